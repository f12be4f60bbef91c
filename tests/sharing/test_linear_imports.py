"""Imports take twice as long for twice as many merges, branches or forks: counted in calls and in SQLite's steps."""

import hashlib
import json
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from shared_core.errors import InputFileError
from shared_core.sharing import session_tree
from shared_core.sharing.files import export_sessions, import_sessions
from shared_core.stores import SQLiteStore

Lines = list[dict[str, Any]]

AT = "2026-01-01T00:00:00+00:00"
SIZES = (100, 200) if "SOAK" in os.environ else (40, 80)
EVERY = 10
"""Instructions of SQLite that count as one step."""


def said(id_: str, *parents: str | int, role: str = "user", **more: Any) -> dict[str, Any]:
    line = {"type": "message", "id": id_, "parents": list(parents), "role": role, "content": "hi", "created_at": AT}
    return line | more


def merge(number: int, *parents: str | int) -> dict[str, Any]:
    return {"type": "merge", "place": number, "parents": parents}


def branch(name: str, at: str | int) -> dict[str, Any]:
    return {"type": "branch", "name": name, "at": at}


def merges_of_new_branches(count: int) -> Lines:
    lines, tip = [said("m", turn_no=0)], "m"
    for number in range(count):
        lines += [said(f"s{number}", tip, fork=True, turn_no=1), merge(number, tip, f"s{number}")]
        tip = number  # type: ignore[assignment]
    return [*lines, branch("main", tip)]


def branches(count: int) -> Lines:
    sides = [said(f"s{number}", "m", fork=True, turn_no=1) for number in range(count)]
    return [said("m", turn_no=0), *sides, branch("main", "m"), *(branch(f"b{n}", f"s{n}") for n in range(count))]


def replies_without_turns(count: int) -> Lines:
    line = [said(f"m{n}", *([f"m{n - 1}"] if n else []), role="assistant") for n in range(count)]
    return [*line, *(said(f"s{n}", f"m{n}", role="assistant") for n in range(count - 1)), branch("main", "m1")]


def empty_forks(count: int) -> Lines:
    forks = [{"type": "gone", "place": n, "parents": ["m"], "fork": True} for n in range(count)]
    return [said("m", turn_no=0), *forks, branch("main", "m"), *(branch(f"b{n}", n) for n in range(count))]


def one_long_gap(count: int) -> Lines:
    gap = {"type": "gone", "place": 0, "parents": ["m"], "count": count * 5_000}
    return [said("m", turn_no=0), gap, branch("main", count * 5_000 - 1)]


def write(path: Path, lines: Lines) -> Path:
    messages = sum(line["type"] == "message" for line in lines)
    head = {"format": "infinite-memory", "version": 1, "type": "header", "sessions": 1, "messages": messages}
    everything = [head, {"type": "session", "session_id": "s"}, *lines]
    body = b"".join(json.dumps(line).encode() + b"\n" for line in everything)
    end = {"type": "end", "lines": len(everything), "messages": messages, "sha256": hashlib.sha256(body).hexdigest()}
    path.write_bytes(body + json.dumps(end).encode() + b"\n")
    return path


def steps_of(store: SQLiteStore, work: Callable[[], object]) -> int:
    """Return how many calls some work takes, and steps of SQLite."""
    steps = 0

    def count(*_: object) -> None:
        nonlocal steps
        steps += 1

    connection = store._db._ready()
    connection.set_progress_handler(count, EVERY)
    sys.setprofile(count)
    try:
        work()
    finally:
        sys.setprofile(None)
        connection.set_progress_handler(None, 0)
    return steps


@pytest.fixture
def unprofiled() -> Iterator[None]:
    """Leave alone whoever measures the tests themselves."""
    before = sys.getprofile()
    yield
    sys.setprofile(before)


@pytest.mark.usefixtures("unprofiled")
@pytest.mark.parametrize(
    "history", [merges_of_new_branches, branches, replies_without_turns, empty_forks, one_long_gap]
)
def test_twice_the_history_takes_twice_the_steps(history: Callable[[int], Lines], tmp_path: Path) -> None:
    taken: list[list[int]] = []
    for count in SIZES:
        path = write(tmp_path / f"{count}.jsonl", history(count))
        store = SQLiteStore(":memory:")
        taken.append([steps_of(store, lambda store=store, path=path: import_sessions(store, path)) for _ in range(2)])  # type: ignore[misc]
        export_sessions(store, tmp_path / "again.jsonl")
        other = SQLiteStore(":memory:")
        import_sessions(other, tmp_path / "again.jsonl")
        export_sessions(other, tmp_path / "twice.jsonl")
        assert (tmp_path / "again.jsonl").read_bytes() == (tmp_path / "twice.jsonl").read_bytes()
    for small, large in zip(*taken, strict=True):
        assert large < 2.2 * small


def test_a_summary_of_ever_more_branches_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_tree, "MAX_CROSSED", 100)
    sums = [said(f"m{n}", f"m{n - 1}", fork=True, covers=[["m0", f"m{n - 1}"]]) for n in range(1, 20)]
    path = write(tmp_path / "chat.jsonl", [said("m0", turn_no=0), *sums, branch("main", "m19")])
    store = SQLiteStore(":memory:")
    with pytest.raises(InputFileError, match=r"line 18 covers the positions of too many branches"):
        import_sessions(store, path)
    assert store.sessions() == []
