"""What a question names: dates, and participants, who are left out of the text that is embedded."""

from datetime import UTC, datetime

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared_core.index.text import terms
from shared_core.recall.query import DatePattern, as_said, parse_query


@pytest.mark.parametrize(
    ("text", "asks_back"),
    [
        ("How did you recommend I structure the essay?", True),
        ("What was it that you suggested for the trip?", True),
        ("What were your suggestions?", True),
        ("Can you summarize what I said?", False),
        ("Would you recommend the ferry?", False),
        ("What did I tell Ann?", False),
    ],
)
def test_whether_it_asks_what_the_assistant_said(text: str, asks_back: bool) -> None:
    assert parse_query(text, []).asks_back is asks_back


@pytest.mark.parametrize(
    ("text", "looked_for"),
    [
        ("Summarize the discussion about the ferry and the tickets.", ["ferri", "ticket"]),
        ("What did Ann think of the order in which we talked about it?", ["ann"]),
        ("what did we discuss?", ["discuss"]),
        ("The THE ferry, the ferries", ["ferri"]),
        ("is it?", []),
    ],
)
def test_words_about_the_talk_itself_are_looked_for_only_if_there_is_nothing_else(
    text: str, looked_for: list[str]
) -> None:
    assert list(parse_query(text, []).terms) == looked_for


def test_participants(subtests: pytest.Subtests) -> None:
    rows: list[tuple[str, list[str], str, list[str]]] = [
        ("Where does Ann live?", ["Ann", "Bob"], "Where does live?", ["Ann"]),
        ("where does ANN live", ["Ann"], "where does live", ["Ann"]),
        ("Ann's boat, Ann\u2019s dog, James' cat", ["Ann", "James"], "boat, dog, cat", ["James", "Ann"]),
        ("Ann and Bob, and Ann", ["Ann", "Bob", "Eve"], "and , and", ["Ann", "Bob"]),
        # a name inside a word is none
        ("an annual plan for Annie and Joanne's anns", ["Ann"], "an annual plan for Annie and Joanne's anns", []),
        ("ann_lee and ann2", ["Ann"], "ann_lee and ann2", []),
        # people are called by parts of their names
        ("What did Lee say, Ann?", ["Ann Lee"], "What did say, ?", ["Ann Lee"]),
        ("What did Ann Lee say?", ["Ann Lee", "Bob"], "What did say?", ["Ann Lee"]),
        ("What did Ann Lee say?", ["Ann Lee", "Lee"], "What did say?", ["Ann Lee"]),
        ("What did Lee say?", ["Ann Lee", "Lee"], "What did say?", ["Lee"]),
        # a part that several share names all of them
        ("What did Ann say?", ["Ann Lee", "Ann Orr"], "What did say?", ["Ann Lee", "Ann Orr"]),
        ("What did Dr Orr say?", ["Dr Lee", "Dr Orr"], "What did say?", ["Dr Orr"]),
        # what is no name by itself is no part of one
        ("the state of J 5 & X", ["Joan of Arc", "J 5 & X the 5th"], "the state of J 5 & X", []),
        ("is 12 the answer?", ["Speaker 12"], "is 12 the answer?", []),
        # a name that is a function word counts where it is written as a name
        ("When will it rain, Will?", ["Will"], "When will it rain, ?", ["Will"]),
        # signs in names are signs
        ("did a.b. or axb. call (Zed)?", ["A.B.", "(Zed)"], "did or axb. call ?", ["(Zed)", "A.B."]),
        ("\u0130pek ve Łukasz", ["Łukasz"], "\u0130pek ve", ["Łukasz"]),
        # where nothing is left, the question is embedded as it is
        ("Ann?", ["Ann"], "Ann?", ["Ann"]),
        ("Ann, Bob!", ["Ann", "Bob"], "Ann, Bob!", ["Ann", "Bob"]),
        ("", ["Ann"], "", []),
        ("???", [], "???", []),
        ("no names", ["", " "], "no names", []),
    ]
    for text, names, dense_text, speakers in rows:
        with subtests.test(text=text, names=names, dense_text=dense_text, speakers=speakers):
            query = parse_query(text, names)
            assert (query.dense_text, sorted(query.speakers)) == (dense_text, sorted(speakers))
            assert query.text == text


@given(st.text(), st.lists(st.text(max_size=5), max_size=3))
def test_any_question_is_taken_apart(text: str, names: list[str]) -> None:
    query = parse_query(text, names)
    assert set(query.speakers) <= set(names)
    assert bool(query.dense_text.strip()) or not text.strip()
    assert len(query.dense_text) <= len(text)


May = DatePattern(5)


def test_dates(subtests: pytest.Subtests) -> None:
    rows: list[tuple[str, list[DatePattern]]] = [
        ("on 2023-05-07", [DatePattern(5, 7, 2023)]),
        ("during 2023-05", [DatePattern(5, None, 2023)]),
        ("the 7th of May, 2023", [DatePattern(5, 7, 2023)]),
        ("the 1ST OF DECEMBER", [DatePattern(12, 1)]),
        ("may 22nd, 2023?", [DatePattern(5, 22, 2023)]),
        ("Sept. 5, 2021", [DatePattern(9, 5, 2021)]),
        ("it was May 2023", [DatePattern(5, None, 2023)]),
        ("in may", [May]),
        ("mid-may", [May]),
        ("since january or until sept", [DatePattern(1), DatePattern(9)]),
        # several, in any forms, each once
        ("May 2 or June 3, 2023", [DatePattern(5, 2), DatePattern(6, 3, 2023)]),
        ("May 2 or 3 June", [DatePattern(6, 3), DatePattern(5, 2)]),
        ("2023-05-07 or in May", [DatePattern(5, 7, 2023), May]),
        # verbs, and parts of words
        ("may I march on?", []),
        ("May you march with them? You may.", []),
        ("what Marchetti said in mayonnaise", []),
        ("decide in deck 12 octopus 3", []),
        # no such day or month
        ("2023-13-01", []),
        ("2023-00-01", []),
        ("May 45", []),
        ("the 32 May, 32 of May", [May]),
        ("0 May", []),
        ("12345-05-07, 2023-057", []),
        ("", []),
    ]
    for text, expected in rows:
        with subtests.test(text=text, expected=expected):
            assert list(parse_query(text, []).dates) == expected


def test_words_of_a_date_that_no_message_names_are_not_looked_for() -> None:
    query = parse_query("Which dinner did we have on 3 May?", [])
    assert (query.terms, query.informative) == (("3", "dinner", "may"), 3)
    assert query.proper == {"may"}
    unsaid = as_said(query, {"3", "dinner"}.__contains__)  # "Soup number 3 for dinner."
    assert (unsaid.terms, unsaid.informative, unsaid.dates) == (("dinner",), 1, query.dates)
    assert unsaid.proper == frozenset()
    assert (
        as_said(query, {"3", "may"}.__contains__, hold=lambda terms: terms == {"3", "may"}) == query
    )  # "Book a table for 3 May."
    both = parse_query("Which dinner did we have on 3 May 2026 or in June?", [])
    assert as_said(both, set[str]().__contains__, hold=lambda terms: terms == {"3", "may"}).terms == (
        "3",
        "dinner",
        "may",
    )
    assert as_said(both, set[str]().__contains__, hold=lambda terms: terms == {"june"}).terms == ("dinner", "june")
    date = parse_query("3 May?", [])
    assert as_said(date, set[str]().__contains__) == date


MONTHS = ("January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November",
          "December")  # fmt: skip


@given(st.dates(), st.sampled_from(["%Y-%m-%d", "{day} {month} %Y", "{month} {day}, %Y", "{day} of {short} %Y"]))
def test_every_day_is_recognised_in_every_form(day: datetime, form: str) -> None:
    month = MONTHS[day.month - 1]
    written = form.format(day=day.day, month=month, short=month[:3]).replace("%Y", f"{day.year:04}")
    written = written.replace("%m", f"{day.month:02}").replace("%d", f"{day.day:02}")
    assert list(parse_query(f"what of {written}?", []).dates) == [DatePattern(day.month, day.day, day.year)]


@pytest.mark.parametrize(
    ("pattern", "matches"),
    [
        (DatePattern(5), [1, 1, 1, 0]),
        (DatePattern(5, 7), [1, 0.5, 1, 0]),
        (DatePattern(5, None, 2023), [1, 1, 0, 0]),
        (DatePattern(5, 7, 2023), [1, 0.5, 0, 0]),
    ],
)
def test_a_day_matches_wholly_or_by_its_month(pattern: DatePattern, matches: list[float]) -> None:
    days = np.array(["2023-05-07", "2023-05-08", "2024-05-07", "2023-06-07"], dtype="datetime64[s]")
    assert pattern.match(days).tolist() == matches


def test_of_several_dates_the_best_match_counts_in_utc() -> None:
    query = parse_query("May 7 or June 9, 2023", [])
    moments = ["2023-05-07T00:00:00+00:00", "2023-05-07T00:30:00+01:00", "2023-06-08T23:59:59+00:00",
               "2022-06-09T12:00:00+00:00", "1969-05-07T12:00:00+00:00"]  # fmt: skip
    times = np.array([datetime.fromisoformat(moment).astimezone(UTC).timestamp() for moment in moments])
    assert query.date_matches(times).tolist() == [1, 0.5, 0.5, 0, 1]
    assert parse_query("when?", []).date_matches(times).tolist() == [0] * 5
    assert query.date_matches(times[:0]).tolist() == []
    ends = [datetime.fromisoformat(end) for end in ("0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59.999999-14:00")]
    assert query.date_matches(np.array([end.timestamp() for end in ends])).tolist() == [0, 0]


def test_words_of_one_sense_are_found_without_a_common_stem_and_us_means_those_who_talk() -> None:
    weight = parse_query("What is my weight?", [])
    assert weight.forms_of("weight")[:2] == ("weight", "weigh")
    assert set(parse_query("Where is a car?", []).forms_of("car")) == {"car", *terms("vehicle automobile")}
    assert parse_query("Weigh a weight", []).forms == {}
    assert parse_query("Where did Ann take us?", []).of_us
    assert [parse_query("What did Ann say of my rent?", names).of_self for names in ([], ["Ann"])] == [True, False]
    assert not parse_query("Where did Ann take Ben?", []).of_us


@pytest.mark.parametrize(
    ("text", "known"),
    [
        ("When is our wedding?", True),
        ("When's the wedding?", True),
        ("Where is Ann's wedding?", True),
        ("What does a wedding cost?", False),
        ("What should the wedding of a king cost?", False),
    ],
)
def test_a_thing_that_is_taken_to_be_known_is_found_in_what_was_told_of_it(text: str, known: bool) -> None:
    assert ("marri" in parse_query(text, ["Ann"]).forms_of("wed")) is known
