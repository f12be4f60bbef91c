"""Imports take twice as long for twice as many branches or forks: counted in calls and in SQLite's steps."""

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from shared_core.sharing.files import export_sessions, import_sessions
from shared_core.stores import SQLiteStore
from tests.sharing.lines import Lines, branch, said, segment, write

SIZES = (100, 200) if "SOAK" in os.environ else (40, 80)
EVERY = 10
"""Instructions of SQLite that count as one step."""


def branches(count: int) -> Lines:
    forks = [segment(n, 1, 0, 0) for n in range(1, count)]
    sides = [said(f"s{n}", n, 1, turn_no=1) for n in range(1, count)]
    return [
        segment(0, 0), *forks, said("m", 0, 0), *sides,
        branch("main", 0, 0), *(branch(f"b{n}", n, 1) for n in range(1, count)),
    ]  # fmt: skip


def empty_forks(count: int) -> Lines:
    forks = [segment(n, 1, 0, 0) for n in range(1, count)]
    ends = [branch(f"b{n}", n, 1) for n in range(1, count)]
    return [segment(0, 0), *forks, said("m", 0, 0), branch("main", 0, 0), *ends]


def one_long_gap(count: int) -> Lines:
    return [segment(0, count * 5_000), said("m", 0, 0), branch("main", 0, count * 5_000)]


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
@pytest.mark.parametrize("history", [branches, empty_forks, one_long_gap])
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
