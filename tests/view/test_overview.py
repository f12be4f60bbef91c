"""The overview: its title, sittings and lines, exactly."""

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from shared_core.doors.view import gather
from shared_core.doors.view.overview import TITLE, lines, one_line, sittings, title
from shared_core.memory import InfiniteMemory
from shared_core.messages import Message
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
    found = next(cells for cells in data["reports"][str(last - 1)]["lines"] if cells[0] == 0 and cells[2])
    assert data["bands"][found[9]] == "strong"
    assert [(one["row"], one["messages"]) for one in overview["sittings"]] == [(0, len(data["nodes"]))]
