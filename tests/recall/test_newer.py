"""What changes in a conversation: the newer of two statements in search and prompts, and the past as it was."""

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from shared_core import AsyncInfiniteMemory, InfiniteMemory, Message, RecallTemplate, UnknownReferenceError
from shared_core.prompt.hits import Kind

START = datetime(2026, 1, 1, tzinfo=UTC)
QUESTION = "What is the budget for the kitchen?"
SETTINGS: dict[str, Any] = {"embedder": "words", "reserve_tokens": 0, "token_counter": "characters/4"}


@pytest.fixture
def memory() -> Iterator[InfiniteMemory]:
    """Sixty days of weather, in which the budget changes on day 40, in other words."""
    with InfiniteMemory(max_tokens=300, recall_template=RecallTemplate(excerpt_tokens=None), **SETTINGS) as memory:
        for day in range(60):
            text = {
                5: "The budget for the kitchen is 2,800.",
                40: "The bank gives us 3,200 for the kitchen.",
            }.get(day, f"Day {day} was sunny and dry.")
            at = START + timedelta(days=day)
            memory.add(Message.user(text, id=f"u{day}", created_at=at))
            memory.add(Message.assistant("Good to hear.", id=f"a{day}", created_at=at + timedelta(minutes=1)))
        yield memory


def found(memory: InfiniteMemory, top_k: int = 10, **when: Any) -> list[str | None]:
    hits = memory.search(QUESTION, top_k, **when)
    assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)
    return [hit.message.id for hit in hits if "kitchen" in hit.message.content]


def test_the_newer_of_two_statements_comes_first(memory: InfiniteMemory) -> None:
    assert found(memory) == ["u40", "u5"]
    assert found(memory, 1) == ["u40"]
    assert found(memory, until=START + timedelta(days=20)) == ["u5"]


def test_a_question_that_names_a_date_gets_what_was_said_then_first(memory: InfiniteMemory) -> None:
    hits = memory.search("What was the budget for the kitchen in January?")
    assert hits[0].message.id == "u5"
    assert memory.search("What was the budget for the kitchen in February?")[0].message.id == "u40"


@pytest.mark.parametrize("days", [108, 320])
def test_a_month_is_recalled_from_a_talk_of_nearly_equal_days_that_never_names_it(days: int) -> None:
    dishes = ["pasta", "soup", "curry", "salad", "pizza", "tacos", "risotto", "stew", "omelette", "gnocchi", "ramen",
              "burgers"]  # fmt: skip
    with InfiniteMemory(max_tokens=1_000, **SETTINGS) as memory:
        for day in range(days):
            at = START + timedelta(days=day)
            said = Message.user(f"We had {dishes[day % 12]} for dinner today.", created_at=at)
            memory.add([said, Message.assistant("Enjoy!", created_at=at)])
        report = memory.context("What did we have for dinner in February?").report
    recalled = {line.text: line.at.month for line in report.best if line.at is not None}
    assert (len(recalled), set(recalled.values())) == (12, {2})  # though each dish is newer elsewhere


def test_a_date_that_a_message_names_is_looked_for_in_its_words(memory: InfiniteMemory) -> None:
    memory.add([Message.user("The dentist waits on 3 May.", id="d"), Message.assistant("Noted.")])
    memory.add([Message.user("Day 3 was better than day 60."), Message.assistant("Good.")])
    assert memory.search("Which appointment is on 3 May?")[0].message.id == "d"
    for question in ("What happens in May 2026?", "Which appointments are on 3 May and on 7 June?"):
        assert memory.search(question)[0].message.id == "d"


def test_a_prompt_with_the_older_statement_has_the_newer_one(memory: InfiniteMemory) -> None:
    for max_tokens in range(70, 300, 10):
        memory.max_tokens = max_tokens
        included = {line.id for line in memory.context(QUESTION).report.included}
        assert "u40" in included or "u5" not in included


def test_only_a_short_later_message_of_the_same_speaker_counts(subtests: pytest.Subtests) -> None:
    old = Message.user("The budget for the kitchen is 2,800.", id="old")
    rows: dict[str, tuple[Message, bool]] = {
        "another value": (Message.user("The bank gives us 3,200 for the kitchen."), True),
        "another speaker": (Message.user("The bank gives us 3,200 for the kitchen.", name="Eve"), False),
        "a reply": (Message.assistant("The bank gives us 3,200 for the kitchen."), False),
        "a long text": (Message.user(f"The bank gives us 3,200 for the kitchen. {'It was a long day. ' * 20}"), False),
    }
    for name, (new, counts) in rows.items():
        with subtests.test(name), InfiniteMemory(max_tokens=300, **SETTINGS) as memory:
            memory.add([Message.user(f"Day {day} was sunny and dry.") for day in range(30)])
            memory.add([old, Message.assistant("Noted."), new.replace(id="new")])
            assert [hit.message.id for hit in memory.search("What is the budget for the kitchen?", 1)] == [
                "new" if counts else "old"
            ]


@pytest.mark.parametrize("later", [[], ["The code is 8812 now."], ["The code is 8812 now.", "The code is easy."]])
def test_what_tells_no_number_leaves_one_as_it_was(later: list[str]) -> None:
    with InfiniteMemory(max_tokens=300, **SETTINGS) as memory:
        memory.add([Message.user(f"Day {day} was sunny and dry.") for day in range(30)])
        for text in ["My locker code is 4711.", "The locker is blue.", *later]:
            memory.add([Message.user(text), Message.assistant("Noted.")])
        best, *_ = memory.search("What is my locker code?")
        assert best.message.content == (later[0] if later else "My locker code is 4711.")


@pytest.mark.parametrize(
    "as_of", ["2026-02-01", "a30", START + timedelta(days=30, hours=1), datetime(2026, 2, 9).date()]
)
def test_as_of_knows_nothing_that_was_said_later(memory: InfiniteMemory, as_of: Any) -> None:
    assert found(memory, as_of=as_of) == ["u5"]
    context = memory.context(QUESTION, as_of=as_of)
    moment = memory.get("a40").created_at
    assert moment is not None
    assert all(line.at is None or line.at < moment for line in context.report.lines)
    assert {line.kind for line in context.report.included} >= {Kind.WINDOW, Kind.RECALLED}


def test_as_of_a_message_counts_it_as_said_and_before_all_there_is_nothing(memory: InfiniteMemory) -> None:
    assert found(memory, as_of="u40") == ["u40", "u5"]
    early = START - timedelta(days=1)
    assert memory.search(QUESTION, as_of=early) == []
    assert [line.kind for line in memory.context(QUESTION, as_of=early).report.lines] == [Kind.QUESTION]
    assert len(memory.newest(200)) == 120


def test_as_of_something_else_says_what_is_expected(memory: InfiniteMemory) -> None:
    with pytest.raises(UnknownReferenceError, match="as_of='nope'"):
        memory.search(QUESTION, as_of="nope")
    with pytest.raises(TypeError, match="as_of=3"):
        memory.context(QUESTION, as_of=3)  # type: ignore[arg-type]


def test_the_newest_of_all_sessions_counts_and_they_are_read_as_of_then_too() -> None:
    with InfiniteMemory(session_id="new", user_id="ann", scope="user", **SETTINGS) as memory:
        for session, day, text in (("z", 0, "The boat is moored in Kiel."), ("a", 9, "My boat is moored in Genoa.")):
            other = InfiniteMemory(memory._store, session_id=session, user_id="ann", token_counter="characters/4")
            other.add([Message.user(f"Day {number} was dry.", created_at=START) for number in range(30)])
            other.add(Message.user(text, id=session, created_at=START + timedelta(days=day)))
        question = "Where is the boat moored?"
        assert [hit.message.id for hit in memory.search(question, 2)] == ["a", "z"]
        assert [hit.message.id for hit in memory.search(question, 1, as_of=START + timedelta(days=2))] == ["z"]
        memory.add(Message.user("The boat is moored here.", id="n", created_at=START + timedelta(days=20)))
        assert memory.search(question)[0].message.id == "n"


def test_the_coroutines_take_as_of_too(memory: InfiniteMemory) -> None:
    async def ask() -> None:
        twin = AsyncInfiniteMemory(memory)
        assert [hit.message.id for hit in await twin.search(QUESTION, 1, as_of="a30")] == ["u5"]
        lines = (await twin.context(QUESTION, as_of="a30")).report.lines
        assert "u40" not in {line.id for line in lines}

    asyncio.run(ask())


SAID = {
    "first": ["My {t} code is {c}.", "The {t} code is {c}.", "By the way, my {t} code is {c}."],
    "later": ["No, the {t} code is {c} now.", "Correction: my {t} code is {c}.", "The {t} code changed to {c}."],
    "noted": ["Noted: the {t} code is {c}.", "Your {t} code is {c}.", "Noted.", "OK, the {t} code is {c}, then."],
}


def corrections(random: Random) -> Iterator[tuple[str, str]]:
    """Yield what is said and answered in a talk about codes that are corrected again and again."""
    things = ["locker", "garage", "alarm"][: random.choice((1, 2, 3))]
    for number in range(random.choice((6, 10, 16, 30))):
        fields = {"t": random.choice(things), "c": random.randrange(1_000, 9_999)}
        wordings = SAID["first" if number < 3 else "later"], SAID["noted"]
        if random.random() < 0.55:
            yield tuple(random.choice(some).format(**fields) for some in wordings)  # type: ignore[misc]
        else:
            yield f"Tell me about hill {number}.", f"Hill {number} is steep."


@given(
    seed=st.integers(0, 10_000), question=st.sampled_from(["What is my locker code?", "locker code?"]),
    unit=st.sampled_from(["message", "turn"]), placement=st.sampled_from(["messages", "grounding"]),
    max_tokens=st.integers(85, 199),
)  # fmt: skip
@example(seed=123, question="locker code?", unit="message", placement="messages", max_tokens=113)
def test_no_message_is_twice_in_a_prompt(
    seed: int, question: str, unit: Any, placement: Any, max_tokens: int
) -> None:  # fmt: skip
    """What is newer may be of a turn that is recalled with another of its messages."""
    settings: dict[str, Any] = {"recall_unit": unit, "placement": placement, "max_tokens": max_tokens}
    with InfiniteMemory(reserve_tokens=0, on_overflow="keep", **settings) as memory:
        for said, answered in corrections(Random(seed)):
            memory.add([Message.user(said), Message.assistant(answered)])
        sent = [line.id for line in memory.context(question).report.lines if line.included and line.id is not None]
    assert len(sent) == len(set(sent))
