"""The overview: its title, sittings, chart, lines and best answered question, exactly, and the laws of the chart."""

from datetime import UTC, date, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared_core.doors.view import gather
from shared_core.doors.view.overview import (
    BARS,
    FOUND,
    TITLE,
    activity,
    best_answered,
    lines,
    one_line,
    sittings,
    title,
)
from shared_core.memory import InfiniteMemory
from shared_core.messages import Message
from shared_core.prompt.hits import Kind
from tests.view.pages import NOON

Node = dict[str, Any]


def said(role: str, text: str, after: timedelta = timedelta(), **fields: Any) -> Node:
    return {"role": role, "text": text, "at": (NOON + after).isoformat(), **fields}


# The title


def test_the_title_is_the_first_question() -> None:
    nodes = [said("system", "Be short."), said("user", " \n "), said("user", "Where\n is\tit? "), said("user", "Why?")]
    assert title(nodes) == "Where is it?"
    assert title(nodes[:2]) is None
    assert title([{"role": "merge"}, {"role": "assistant", "text": "Hello"}]) is None


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("a" * TITLE, "a" * TITLE),
        ("a" * (TITLE + 1), "a" * (TITLE - 1) + "…"),
        ("word " * 30, ("word " * 15).strip() + "…"),
        ("no, " * 30, ("no, " * 19).rstrip(", ") + "…"),
        ("so " + "a" * 100, "so " + "a" * (TITLE - 4) + "…"),
        ("x" + " " * 10_000 + "y", "x"),
    ],
)
def test_a_long_text_ends_after_a_word(text: str, line: str) -> None:
    assert one_line(text) == line
    assert len(line) <= TITLE


# What was said when


def test_a_pause_of_six_hours_ends_a_sitting() -> None:
    hour = timedelta(hours=1)
    nodes = [
        said("system", "Be short."),
        said("user", "one?"),
        said("assistant", "yes", 6 * hour),
        {"role": "merge"},
        said("assistant", "and good night", 12 * hour + timedelta(seconds=1)),
        said("user", "between?", 3 * hour),  # said earlier, and stored later
    ]
    assert sittings(nodes) == [
        {
            "row": 1, "messages": 4, "questions": 2, "title": "one?",
            "start": "2026-05-04T12:00:00+00:00", "end": "2026-05-04T18:00:00+00:00",
        },
        {
            "row": 4, "messages": 1, "questions": 0, "title": "and good night",
            "start": "2026-05-05T00:00:01+00:00", "end": "2026-05-05T00:00:01+00:00",
        },
    ]  # fmt: skip
    assert sittings([]) == []


@pytest.mark.parametrize(
    ("days", "size", "first", "last", "count"),
    [
        (BARS - 1, 1, "2026-05-04", "2026-08-03", BARS),
        (BARS, 7, "2026-05-04", "2026-08-03", 14),
        (7 * BARS - 7, 7, "2026-05-04", "2028-01-31", BARS),
        (7 * BARS, 14, "2026-05-04", "2028-02-07", 47),
        (31 * BARS, 35, "2026-05-04", "2034-02-06", 82),
    ],
)
def test_a_longer_time_has_longer_bars(days: int, size: int, first: str, last: str, count: int) -> None:
    chart = activity([said("user", "a"), said("user", "b", timedelta(days=days))])
    assert (chart["days"], len(chart["bars"])) == (size, count)
    assert [chart["bars"][0], chart["bars"][-1]] == [[first, 1, 0, 0], [last, 1, 0, 1]]
    assert all(bar[1:] == [0, 0, None] for bar in chart["bars"][1:-1])


@given(st.lists(st.datetimes(datetime(1, 1, 8), datetime(9999, 12, 1)), max_size=30))
def test_every_message_is_in_one_bar(times: list[datetime]) -> None:
    nodes = [{"role": "user" if at.second % 2 else "tool", "at": at.replace(tzinfo=UTC).isoformat()} for at in times]
    chart = activity(nodes)
    days = [date.fromisoformat(bar[0]) for bar in chart["bars"]]
    assert [(after - before).days for before, after in pairwise(days)] == [chart["days"]] * (
        len(days) - 1 if days else 0
    )
    assert sum(bar[1] for bar in chart["bars"]) == sum(node["role"] == "user" for node in nodes)
    assert sum(bar[1] + bar[2] for bar in chart["bars"]) == len(nodes)
    assert len(days) <= BARS
    for day, bar in zip(days, chart["bars"], strict=True):
        assert bar[3] is None or 0 <= (times[bar[3]].date() - day).days < chart["days"]


# The lines


def tree(*parents: tuple[int, ...], owners: list[int], **fields: Any) -> list[Node]:
    return [
        {"role": "merge" if len(before) > 1 else "user", "parents": list(before), "owner": owner, **fields}
        for before, owner in zip(parents, owners, strict=True)
    ]


def test_forks_and_merges_are_lines_and_joins() -> None:
    # 0 - 1 - 4 - 5 (a merge of 3) - 6, and 2 - 3 forked after 0; 7 is on no branch; a third branch ends at 6, too
    nodes = tree((), (0,), (0,), (2,), (1,), (4, 3), (5,), (6,), owners=[0, 0, 1, 1, 0, 0, 0, -1])
    assert lines(nodes, [6, 3, 6]) == {
        "stops": [0, 3, 5, 6],
        "lines": [
            {"branch": 0, "own": 4, "from": None, "start": 0, "end": 6},
            {"branch": 2, "own": 0, "from": 6, "start": 6, "end": 6},
            {"branch": 1, "own": 2, "from": 0, "start": 2, "end": 3},
        ],
        "joins": [[3, 5, "merge"]],
        "more": 0,
    }


def test_a_summary_of_another_line_joins_it_and_one_of_its_own_does_not() -> None:
    nodes = tree((), (0,), (0,), (2,), (3,), owners=[0, 1, 0, 0, 0])
    nodes[3]["sums"] = [1]
    nodes[4]["sums"] = [0, 2]
    assert lines(nodes, [4, 1])["joins"] == [[1, 3, "summary"]]


def test_a_squash_is_one_join_to_its_answer(tmp_path: Path) -> None:
    with InfiniteMemory(tmp_path / "chat.db", embedder="words") as memory:
        memory.add([Message.user("Where to?"), Message.assistant("Porto.")])
        memory.fork("rail")
        memory.add([Message.user("Which train?"), Message.assistant("The first.")])
        memory.checkout("main")
        memory.merge("rail", "squash")
    assert gather(tmp_path / "chat.db")["overview"]["lines"]["joins"] == [[3, 5, "summary"]]


def test_an_empty_branch_is_no_line() -> None:
    assert lines([], [None]) == {"stops": [], "lines": [], "joins": [], "more": 0}
    assert lines(tree((), owners=[1]), [None, 0])["lines"] == [
        {"branch": 1, "own": 1, "from": None, "start": 0, "end": 0}
    ]


# The question answered best


def recalled(row: int | None, words: float, cosine: float, band: int | None, *, sent: bool = True) -> list[Any]:
    return [row, list(Kind).index(Kind.RECALLED), int(sent), 0, 5, 100, 1.0, words, cosine, band]


def test_the_closest_match_of_a_question_wins() -> None:
    nodes = [
        said("user", "the code is 4471", turn="a"), said("assistant", "Noted.", turn="a"),
        said("user", "good night", turn="b"), said("assistant", "Good night.", turn="b"),
        said("user", "what was the code?", turn="c"), said("assistant", "", turn="c"),
        said("tool", "4471", turn="c"), said("assistant", "4471.", turn="c"),
        said("user", "and the time?", turn="d"),
    ]  # fmt: skip
    reports = {
        "2": {"threshold": 0.4, "lines": [recalled(3, 1.0, 0.9, 0)]},  # closer, but not a question
        "4": {
            "threshold": 0.4,
            "lines": [recalled(1, 0.6, 0.5, 0), recalled(0, 1.2, 0.5, 0), recalled(3, 0.5, 0.1, 1)],
        },
        "8": {
            "threshold": 0.4,
            "lines": [recalled(0, 0.6, 0.4, 0), recalled(1, 1.2, 0.6, 0, sent=False), recalled(None, 1.2, 0.6, 0)],
        },
    }
    assert best_answered(nodes, reports) == {"question": 4, "reply": 7, "found": [0, 1]}
    assert best_answered(nodes, {"8": reports["8"]}) == {"question": 8, "reply": None, "found": [0]}
    assert best_answered(nodes, {"2": reports["2"]}) == {"question": 2, "reply": 3, "found": [3]}


def test_only_so_many_lines_are_shown() -> None:
    nodes = [said("user", "why the rain?", turn=str(number)) for number in range(9)]
    reports = {"8": {"threshold": 0.4, "lines": [recalled(row, 1.0, 0.6 - row / 100, 0) for row in range(8)]}}
    best = best_answered(nodes, reports)
    assert best is not None
    assert best["found"] == list(range(FOUND))


@pytest.mark.parametrize("text", ["What if 4?", "And what if?", "42?", "?"])
def test_a_question_of_stop_words_and_numbers_is_none_to_open_on(text: str) -> None:
    nodes = [said("user", "4 or 42, what if?", turn="a"), said("user", text, turn="b")]
    reports = {"1": {"threshold": 0.4, "lines": [recalled(0, 1.0, 0.9, 0)]}}
    assert best_answered(nodes, reports) is None
    nodes[1] = said("user", "What if 4 trains?", turn="b")
    assert best_answered(nodes, reports) is not None


def test_nothing_that_matches_is_no_answer() -> None:
    nodes = [said("user", "why the rain?", turn="a"), said("user", "who sings?", turn="b")]
    window = [0, list(Kind).index(Kind.WINDOW), 1, 0, 5, 100, 1.0, 1.0, 0.9, 0]
    assert best_answered(nodes, {}) is None
    assert best_answered(nodes, {"0": {"error": "no room"}}) is None
    assert best_answered(nodes, {"1": {"threshold": 0.4, "lines": [window, recalled(0, 0.1, 0.1, 2)]}}) is None


def test_a_stored_conversation_shows_what_it_recalled(tmp_path: Path) -> None:
    path = tmp_path / "chat.db"
    with InfiniteMemory(path, max_tokens=220, reserve_tokens=60) as memory:
        texts = ["My locker code is 4471.", "Noted.", *(f"We talk about topic {number}." for number in range(40))]
        for number, text in enumerate([*texts, "What is my locker code?", "It is 4471."]):
            make = Message.assistant if number % 2 else Message.user
            memory.add(make(text, id=f"m{number}", created_at=NOON + timedelta(minutes=number)))
    data = gather(path, max_tokens=220, reserve_tokens=60)
    overview, last = data["overview"], len(data["nodes"]) - 1
    assert overview["title"] == "My locker code is 4471."
    assert overview["best"] == {"question": last - 1, "reply": last, "found": [0]}
    found = next(cells for cells in data["reports"][str(last - 1)]["lines"] if cells[0] == 0 and cells[2])
    assert data["bands"][found[9]] == "strong"
    assert [(one["row"], one["messages"]) for one in overview["sittings"]] == [(0, len(data["nodes"]))]
