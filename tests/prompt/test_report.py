"""The report as text: short, in full, and in a notebook."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared_core import InfiniteMemory, Message
from shared_core.events import Note
from shared_core.prompt.hits import Kind, Reason
from shared_core.prompt.report import NARROWEST, ContextReport, ReportLine

DAY = datetime(2026, 3, 12, 9, 30, tzinfo=UTC)


def recalled(
    number: int, score: float, text: str, *, reason: Reason = Reason.RECALLED, included: bool = True
) -> ReportLine:
    return ReportLine(f"m{number}", "user", Kind.RECALLED, included, reason, 10, 0, text, score, 0.5, None, DAY)


QUESTION = ReportLine(None, "user", Kind.QUESTION, True, Reason.QUESTION, 10, 90, "What is the code of my locker?")
SCORES = [8.0, 6.0, 5.9, 2.0, 1.0, 0.5, -1.0]
LINES = (
    QUESTION,
    *(recalled(number, score, f"text {number}") for number, score in enumerate(SCORES)),
    recalled(90, -2.0, "no", reason=Reason.WEAK, included=False),
    recalled(91, -2.0, "no", reason=Reason.WEAK, included=False),
    recalled(92, -2.0, "no", reason=Reason.NO_ROOM, included=False),
)
REPORT = ContextReport(100, 20, LINES)


def test_the_short_form() -> None:
    assert REPORT.render(width=80).splitlines() == [
        f"[{'Q' * 5}{'R' * 35}{'·' * 10}] 80 of 100 tokens (80 %)",
        "Q = question 10, R = recalled 70, · = free 20, 20 reserved",
        "",
        "Recalled, best first; > marks the best matches:",
        "> fair    2026-03-12  user       text 0",
        "> fair    2026-03-12  user       text 1",
        "  fair    2026-03-12  user       text 2",
        "  fair    2026-03-12  user       text 3",
        "  fair    2026-03-12  user       text 4",
        "",
        "… 2 more recalled, 3 left out (weak 2, no room 1); every line: report.full()",
    ]


def test_the_full_form_has_every_line_and_says_what_the_codes_mean() -> None:
    lines = REPORT.full(width=100).splitlines()
    assert lines[3].split() == ["role", "tokens", "left", "match", "score", "words", "reason", "text"]
    assert [line[0] for line in lines[4 : 4 + len(LINES)]] == ["+"] * 8 + ["-"] * 3
    assert lines[4 + len(LINES) :] == [
        "",
        "question      the question, what was retrieved for it, or what was said since (1 line)",
        "recalled      matches the question (7 lines)",
        "weak          matches the question too little to be worth its tokens (2 lines)",
        "no_room       did not fit beside what comes first (1 line)",
    ]


def test_what_is_wrong_is_noted() -> None:
    report = ContextReport(5, 0, LINES, pending=2, degraded=(Note("one\nthing"),))
    assert [line for line in report.render(width=120).splitlines() if line.startswith("! ")] == [
        "! one thing",
        "! 2 messages without a vector yet, ranked by words alone: index() embeds them",
        "! the prompt is larger than the budget",
    ]


def test_found_are_the_matches_near_the_best_and_no_neighbours() -> None:
    assert [line.score for line in REPORT.best] == SCORES
    assert [line.score for line in REPORT.found] == [8.0, 6.0]
    lines = (
        recalled(0, 9.0, "near", reason=Reason.NEIGHBOUR),
        recalled(1, 8.0, "it"),
        recalled(2, 7.9, "part"),
    )
    assert [line.text for line in ContextReport(100, 0, lines).found] == ["it", "part"]
    below = (recalled(0, -1.0, "it"), recalled(1, -1.1, "not it"))
    assert [line.text for line in ContextReport(100, 0, below).found] == ["it"]
    assert ContextReport(100, 0, ()).found == ()


def test_the_short_form_says_when_nothing_had_to_be_recalled() -> None:
    told = "Nothing had to be recalled: the window holds the whole conversation."
    with InfiniteMemory(max_tokens=700) as memory:
        assert told not in memory.context("Hello?").report.render(width=80)
        memory.add([Message.user("Day 0 was sunny."), Message.assistant("Good.")])
        assert told in memory.context("Hello?").report.render(width=80).splitlines()
        memory.add([Message.user(f"Day {day} was sunny.") for day in range(1, 60)])
        assert told not in memory.context(
            "Hello?",
        ).report.render(width=80)


texts = st.text(st.characters(codec="utf-8"), max_size=150)


rows_of_a_report = st.lists(st.tuples(texts, st.floats(-9, 99), st.sampled_from(Reason), st.booleans()), max_size=16)


@given(rows_of_a_report, texts, st.integers(60, 160))
def test_no_line_is_longer_than_the_width(
    rows: list[tuple[str, float, Reason, bool]], question: str, width: int
) -> None:
    lines = [
        recalled(number, score, text, reason=reason, included=included)
        for number, (text, score, reason, included) in enumerate(rows)
    ]
    asked = ReportLine(None, "user", Kind.QUESTION, True, Reason.QUESTION, 10, 90, question)
    report = ContextReport(100, 20, (asked, *lines), 3, (Note(question),))
    assert all(len(line) <= width for line in report.render(width=width).split("\n"))
    table, meanings = report.full(width=width).rsplit("\n\n", 1)
    assert sum(line[:1] in "+-" for line in table.split("\n\n")[-1].split("\n")) == 1 + len(lines)
    assert all(len(line) <= width for line in meanings.split("\n"))


def test_the_part_of_a_long_text_that_answers_is_shown() -> None:
    text = f"{'so on ' * 80}then my locker got the code 4093 at last {'and so on ' * 80}".strip()
    drawn = ContextReport(100, 20, (QUESTION, recalled(0, 1.0, text))).render(width=80)
    assert "my locker got the code 4093" in " ".join(drawn.split())
    assert drawn.count("…") == 2


def test_a_text_that_goes_on_ends_in_an_ellipsis() -> None:
    text = "The school holidays begin in the spring, extraordinarily early, notwithstanding considerable misgivings"
    drawn = ContextReport(100, 20, (QUESTION, recalled(0, 1.0, text))).render(width=71).splitlines()
    assert drawn[5].strip() == "spring, extraordinarily early, …"


@pytest.mark.parametrize("width", [0, NARROWEST - 1, 80.0, "80"])
def test_a_width_that_is_none_is_refused(width: object) -> None:
    with pytest.raises((ValueError, TypeError), match="width"):
        REPORT.render(width=width)  # type: ignore[arg-type]
