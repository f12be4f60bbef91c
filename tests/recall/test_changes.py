"""The newest of what a speaker says about one thing comes first, and reports say what it replaces."""

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from shared_core.recall.query import parse_query
from shared_core.recall.supersession.changes import Said, newest_first, superseded
from shared_core.recall.supersession.former_values import asks_history, without_history
from tests.support.told_changes import MADE_UP

RIGHT, WRONG = 97, 4
"""Of 118 pairs that replace each other and 146 that do not."""

ME, BEN = ("user", None), ("user", "Ben")
AMOUNTS = st.integers(100, 9_999)
NAMES = st.sampled_from(["Anna", "Ravi", "Joanne", "Pieter", "Lucia"])
DAYS = st.sampled_from(["Monday", "Tuesday", "Friday", "Sunday"])


def replaced(question: str, *texts: str, speakers: tuple[tuple[str, str | None], ...] = ()) -> dict[int, int]:
    """What newer texts replace, the texts given oldest first."""
    by = speakers or (ME,) * len(texts)
    said = [Said(speaker, order, text) for order, (speaker, text) in enumerate(zip(by, texts, strict=True))]
    return superseded(said, parse_query(question, []).words, question)


def test_pairs_in_peoples_own_words_are_seldom_marked_wrongly() -> None:
    marked = {"+": 0, "-": 0}
    for line in (MADE_UP / "pairs.txt").read_text().splitlines():
        if line.startswith(("+ ", "- ")):
            question, old, new = line[2:].split(" | ")
            marked[line[0]] += bool(replaced(question, old, new))
    assert marked["+"] >= RIGHT, marked
    assert marked["-"] <= WRONG, marked


@given(AMOUNTS, AMOUNTS)
def test_another_amount_replaces_the_first(old: int, new: int) -> None:
    assume(old != new)
    texts = f"The rent for the flat is {old} a month.", f"The rent for the flat is {new:,} a month now."
    assert replaced("How much is the rent for the flat?", *texts) == {0: 1}


@given(NAMES, NAMES)
def test_another_name_replaces_the_first_and_the_same_one_does_not(old: str, new: str) -> None:
    texts = f"My doctor is {old}.", f"My doctor is {new}."
    assert replaced("Who is my doctor?", *texts) == ({} if old == new else {0: 1})


@given(DAYS, DAYS, st.booleans())
def test_another_day_replaces_the_first(old: str, new: str, moved: bool) -> None:
    assume(old != new)
    later = f"They moved choir practice to {new}." if moved else f"Actually, choir practice is on {new}."
    assert replaced("When is choir practice?", f"Choir practice is on {old}.", later) == {0: 1}


@pytest.mark.parametrize(
    ("question", "old", "new"),
    [
        ("Am I allergic to nuts?", "I'm allergic to nuts.", "I'm not allergic to nuts any more."),
        ("Do I eat meat?", "I eat meat.", "I don't eat meat."),
        ("Where do I live?", "I live in Lyon.", "I moved to Bern last month."),
        ("What is our database?", "Our database is Postgres.", "The database is no longer Postgres, it's MySQL."),
        ("Do I prefer tea or coffee?", "I prefer tea.", "I prefer coffee now."),
        ("What is the budget?", "The budget was 2,800.", "The budget is 3,200."),
        ("What's the code of the shed?", "The code of the shed is 4471.", "I was wrong. The code of the shed is 9030."),
    ],
)
def test_negations_corrections_and_other_words_replace(question: str, old: str, new: str) -> None:
    assert replaced(question, old, new) == {0: 1}


def test_statements_about_something_else_events_and_doubts_replace_nothing(subtests: pytest.Subtests) -> None:
    rows: list[tuple[str, str, str]] = [
        (
            "What colour do we paint the hallway?",
            "We'll paint the hallway green.",
            "Actually, we'll paint the bath white.",
        ),
        ("What is the budget?", "The budget for the kitchen is 2,800.", "The budget for the bathroom is 1,500."),
        ("Where do I live?", "I live in Lyon.", "My sister lives in Ghent now."),
        ("When are birthdays?", "Anna's birthday is on 3 May.", "Actually, Ben's birthday is on 7 June."),
        ("How far did I run?", "I ran 5 km with Tom on Monday.", "I ran 12 km with Tom on Friday."),
        ("Which ticket is closed?", "Ticket 5 is closed, Tom checked it.", "Ticket 8 is closed, Tom checked it."),
        ("How old is Tom?", "Tom is 5 years old this week.", "Priya is 8 years old this week."),
        ("What is the budget?", "The budget is 3,200 now.", "The budget was 2,800 before."),
        ("What is the budget?", "The budget is 3,200.", "The budget might be 2,800."),
        ("What is the budget?", "The budget is 3,200.", "Is the budget 2,800 now?"),
        ("What is the rent?", "The rent is 850 a month.", "The rent is 850 a month, as I said."),
        (
            "When does the Oslo flight leave?",
            "Our flight to Oslo leaves at 7:15.",
            "Our Rome flight now leaves at 9:05.",
        ),
        ("How much is the invoice?", "The invoice for March is 400 euros.", "The invoice for April is 520 euros."),
        ("When is our call?", "We have a call with the client at 10.", "We have a call with the printer at 2."),
        ("Where does my aunt live?", "My aunt Lea lives in Graz.", "My aunt Ines lives in Vienna."),
        ("Is there a pool?", "The pool in Rome is open.", "The pool in Bari is not open."),
        ("When is the train?", "The train to Rome is at 8.", "The train back from Rome is at 21:30."),
        ("When is the deadline?", "The first deadline is on 1 June.", "The second deadline is on 15 June."),
        ("Where did we have lunch?", "We had lunch in Kiel yesterday.", "We had lunch in Bonn today."),
        ("What do I want to learn?", "I want to learn Italian.", "I want to learn chess."),
        ("What is my dog allergic to?", "My dog is allergic to wheat.", "My dog is allergic to soy as well."),
        ("When is my appointment?", "I have an appointment on Monday.", "I have another appointment on Friday."),
        ("What is the rent?", "The rent is 850 a month.", "Their rent is 990 a month."),
    ]
    for question, old, new in rows:
        with subtests.test(question=question, old=old, new=new):
            assert replaced(question, old, new) == {}


@pytest.mark.parametrize(
    "request_",
    [
        "The exam is on June 10 now, so can you stretch my plan?",
        "Can you stretch my plan, because the exam is on June 10 now?",
        "Please plan my weeks with three chapters each and a day off, and by the way the exam is now on June 10, so do "
        "leave the last days free for old papers, sleep and a walk in the woods.",
    ],
)
def test_a_request_may_tell_a_change_in_passing(request_: str) -> None:
    assert replaced("When is the exam?", "The exam is on June 3.", request_) == {0: 1}


@pytest.mark.parametrize(
    "request_",
    [
        "What if the exam is on June 10, can you stretch my plan then?",
        "Can you ask her whether they moved it, the exam is on June 10, isn't it?",
        "Is the exam on June 10 now, or is the list wrong?",
        "Please stretch the plan, with three chapters each week, a day off and a walk, as if the exam was much later, "
        "the exam is on June 10 in that case, and then compare the two of them for me.",
    ],
)
def test_what_a_request_asks_or_supposes_replaces_nothing(request_: str) -> None:
    assert replaced("When is the exam?", "The exam is on June 3.", request_) == {}


@given(AMOUNTS, AMOUNTS, st.permutations([ME, BEN, ("assistant", None)]))
def test_nobody_replaces_what_another_speaker_says(old: int, new: int, by: list[tuple[str, str | None]]) -> None:
    texts = f"The budget is {old}.", f"Actually, the budget is {new} now."
    assert replaced("What is the budget?", *texts, speakers=(by[0], by[1])) == {}


@given(st.lists(AMOUNTS, min_size=2, max_size=6, unique=True))
def test_all_older_values_are_replaced_by_the_newest(values: list[int]) -> None:
    texts = [f"The budget is {value} now." for value in values]
    last = len(values) - 1
    assert replaced("What is the budget?", *texts) == dict.fromkeys(range(last), last)


@pytest.mark.parametrize(
    ("question", "history"),
    [
        ("What was the budget before?", "before"),
        ("Where did I use to live?", "before"),
        ("When was it originally?", "beginning"),
        ("How did the budget change?", "beginning"),
        ("What is the budget?", None),
    ],
)
def test_questions_for_the_history(question: str, history: str | None) -> None:
    assert asks_history(question) == history


RANKS = st.permutations(range(8))


@given(RANKS, st.sets(st.integers(0, 7), min_size=2, max_size=5), st.sampled_from([None, "before", "beginning"]))
def test_the_right_one_takes_the_best_place_and_nothing_is_lost(
    ranks: list[int], group: set[int], history: None
) -> None:
    newest = max(group)
    result = newest_first(ranks, dict.fromkeys(group - {newest}, newest), {rank: rank for rank in ranks}, history)
    assert sorted(result) == sorted(ranks)
    others = [rank for rank in ranks if rank not in group]
    assert [rank for rank in result if rank not in group] == others
    members = [rank for rank in result if rank in group]
    first = {None: newest, "before": sorted(group)[-2], "beginning": min(group)}[history]
    assert members[0] == first
    assert result.index(first) == min(map(ranks.index, group))
    assert history is None or members[-1] == newest


def test_what_a_question_names_numbers_of_things_and_additions_replace_nothing(subtests: pytest.Subtests) -> None:
    rows: list[tuple[str, str, str]] = [
        ("How hot is locker number 7 at the gym?", "About locker number 7 at the gym.", "About locker number 16 now."),
        ("Which lockers do I know?", "About locker number 7 at the gym.", "About locker number 16 at the gym."),
        (
            "What is the code of the locker?",
            "Noted: the code of locker 6 is 186.",
            "Noted: the code of locker 14 is 434.",
        ),
        ("Which locker is red?", "m0426 locker number 7 is red.", "m0427 locker number 16 is red."),
        (
            "What is version 2.0 of the plan?",
            "Version 2.0 of the plan is short.",
            "Version 2.1 of the plan is long now.",
        ),
        ("What did I buy for the hall?", "I bought a lamp for the hall.", "I bought a mirror for the hall."),
        ("When does the Oslo flight leave?", "The Oslo flight leaves at 7:15.", "The flight leaves at 9:05 now."),
        ("What books have I got?", "I have a book about whales.", "I have a book about canals now."),
        ("What do I collect?", "I collect stamps.", "I also collect coins."),
    ]
    for question, old, new in rows:
        with subtests.test(question=question, old=old, new=new):
            assert replaced(question, old, new) == {}


def test_long_prompts_ask_for_no_single_value() -> None:
    asked = (
        "Draft a letter to the landlord about the budget, the rent, the garden, the heating, the roof and the cellar."
    )
    assert replaced(asked, "The budget is 2,800.", "The budget is 3,200 now.") == {}


@pytest.mark.parametrize(
    ("question", "old", "new"),
    [
        ("What should I cook tonight?", "I'm vegan.", "Good news: I eat meat again."),
        ("Is there a good recipe for Sunday lunch with my whole family, warm and quick, with rice or potatoes?",
         "I'm vegan.", "I'm no longer vegan."),
        ("Which seats do I like?", "I prefer window seats.", "I prefer aisle seats now."),
    ],
)  # fmt: skip
def test_what_replaces_a_standing_fact_replaces_the_message_that_states_it(question: str, old: str, new: str) -> None:
    assert replaced(question, old, new) == {0: 1}
    assert replaced(question, old, new, speakers=(ME, BEN)) == {}
    assert replaced(question, old, new, speakers=(("assistant", None),) * 2) == {}


@pytest.mark.parametrize(
    ("question", "old", "new"),
    [
        ("What should I cook tonight?", "I'm vegan.", "As I said, I'm vegan."),
        ("Which train is the fastest?", "I'm vegan.", "I'm no longer vegan."),
        ("What should I cook tonight?", "I'm allergic to nuts.", "I'm allergic to shellfish."),
    ],
)
def test_a_standing_fact_said_again_or_about_something_else_replaces_nothing(question: str, old: str, new: str) -> None:
    assert replaced(question, old, new) == {}


@pytest.mark.parametrize(
    ("question", "old", "new"),
    [
        ("How many matches have I played?", "I'm playing in the chess match again.", "My chess match got pushed back."),
        ("Why do I run for mayor again?", "Running for mayor was my chance.", "I am running for mayor again."),
        ("Which film did I mention watching?", "My film is Heat.", "My film is Alien now."),
        ("What is the second code of the shed?", "The code of the shed is 4471.", "The code of the shed is 9030 now."),
        ("What do I do when I write?", "Acting was my joy, now I shine in writing.", "Tilly is with me when I write."),
    ],
)
def test_counts_reasons_and_one_of_several_have_no_single_value(question: str, old: str, new: str) -> None:
    assert replaced(question, old, new) == {}


@pytest.mark.parametrize(
    ("question", "old", "new"),
    [
        ("How many hens do I keep?", "I keep 12 hens.", "I keep 15 hens now."),
        ("Which train do I catch?", "I catch the 9:05 train.", "They cancelled the 9:05, I catch the 6:55 train."),
        ("What is our hotel in Porto?", "We stay at Hotel Mar in Porto.", "In Porto we stay at the Grand Lux instead."),
        ("Am I vegetarian or vegan?", "I eat vegetarian.", "I changed my diet: I eat vegan."),
    ],
)
def test_figures_names_and_diets_are_told_from_what_is_around_them(question: str, old: str, new: str) -> None:
    assert replaced(question, old, new) == {0: 1}


def test_the_clause_that_states_a_change_replaces_whatever_its_sentence_tells_besides(
    subtests: pytest.Subtests,
) -> None:
    rows: list[tuple[str, str, str]] = [
        ("Who plays the organ?", "Ann plays the organ.", "Ann is ill, so Ben plays the organ."),
        ("When is my lesson?", "My lesson is on Monday.", "The teacher rang, my lesson is on Friday."),
        ("When is my curfew?", "My curfew is at ten.", "Dad says my curfew is at eleven."),
        ("How much iron do I take?", "I take 20 mg of iron.", "The nurse told me to take 30 mg of iron."),
        ("What is my thesis about?", "My thesis is about fish.", "I changed my thesis, it's about birds."),
        ("How old is Rex?", "Rex is 5 years old.", "Rex had his birthday, he is 6 years old."),
        ("Do I own a boat?", "I own a boat.", "I sold the boat."),
        ("What do we eat on Sunday?", "We eat fish on Sunday.", "Change of plan, we eat soup on Sunday."),
        ("Which page is open?", "Page 3 of the book is open.", "Page 9 of the book is open now."),
    ]
    for question, old, new in rows:
        with subtests.test(question=question, old=old, new=new):
            assert replaced(question, old, new) == {0: 1}


@pytest.mark.parametrize(
    ("question", "one", "other"),
    [
        ("What does the roof cost?", "The roof costs 900.", "The kitchen costs 700 now."),
        ("Who is my tutor for art?", "My tutor for art is Ann.", "My tutor for music is Ben now."),
        ("What is my pulse?", "My pulse is 70.", "My dad's pulse is 80 now."),
        ("Which shift do I have?", "I have the Monday shift.", "Karl has the Friday shift."),
        ("When are the bins emptied?", "Bins are emptied on Tuesday.", "Garden waste is emptied on Friday now."),
        ("What is the mileage of the car?", "The car's mileage is 900.", "The van's mileage is 700 now."),
    ],
)
def test_what_only_sounds_alike_replaces_nothing_in_either_order(question: str, one: str, other: str) -> None:
    assert replaced(question, one, other) == {}
    assert replaced(question, other, one) == {}


@given(st.sampled_from(["before", "originally", "at first", "initially", "formerly", "at the beginning"]))
def test_words_for_the_time_before_a_change_are_not_searched_for(words: str) -> None:
    assert without_history(f"What was the budget {words}?").split() == ["What", "was", "the", "budget", "?"]
    assert asks_history(f"What was the budget {words}?")
    assert parse_query(f"What was the budget {words}?", []).terms == ("budget",)


def test_a_message_does_not_replace_itself() -> None:
    assert replaced("What should I cook tonight?", "I'm vegan. Forget that! I eat meat again.") == {}
