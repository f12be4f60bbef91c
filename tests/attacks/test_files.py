"""Files that change under a live process: what nobody would find is not acknowledged, and copies are whole."""

import os
import shutil
import time
from pathlib import Path

import pytest

from shared_core import InfiniteMemory, Message, StoreError


def told(path: Path) -> list[str]:
    with InfiniteMemory(path, embedder="words") as memory:
        return [message.content for message in memory.newest(9)]


def replaced(path: Path) -> None:
    with InfiniteMemory(path.with_name("other.db")) as other:
        other.add(Message.user("Somebody else's."))
    os.replace(path.with_name("other.db"), path)


@pytest.mark.parametrize("change", [Path.unlink, lambda path: path.rename(path.with_name("moved.db")), replaced])
def test_nothing_is_acknowledged_that_nobody_would_find(tmp_path: Path, change: object) -> None:
    path = tmp_path / "chat.db"
    with InfiniteMemory(path, embedder="words") as memory:
        memory.add(Message.user("First."))
        change(path)  # type: ignore[operator]
        with pytest.raises(StoreError):
            memory.add(Message.user("Second."))
    if (tmp_path / "moved.db").exists():
        (tmp_path / "moved.db").rename(path)
        assert told(path) == ["First."]


@pytest.mark.parametrize("store", [None, "chat.db"])
def test_a_backup_holds_all_that_is_stored(tmp_path: Path, store: str | None) -> None:
    copy, steps = tmp_path / "copy.db", list[tuple[int, int]]()
    with InfiniteMemory(tmp_path / store if store else None, embedder="words") as memory:
        memory.add([Message.user(f"Number {number}.") for number in range(5)])
        memory.backup(copy, progress=lambda done, of: steps.append((done, of)))
        memory.add(Message.user("Later."))
        if store:
            plain = tmp_path / "cp.db"
            shutil.copy(tmp_path / store, plain)
            assert told(plain) == []  # why cp is no backup: all of it is still in the log
        with pytest.raises(StoreError):
            memory.backup(copy)
    assert told(copy) == [f"Number {number}." for number in range(5)]
    assert steps[-1][0] == steps[-1][1]
    assert copy.stat().st_mode & 0o777 == 0o600
    assert not list(tmp_path.glob(".*.part*"))


def test_a_backup_that_cannot_be_written_leaves_nothing(tmp_path: Path) -> None:
    with InfiniteMemory(tmp_path / "chat.db", embedder="words") as memory:
        memory.add(Message.user("First."))
        for path, why in ((tmp_path / "none" / "copy.db", "check its folder"), (tmp_path, "is a folder")):
            with pytest.raises(StoreError, match=why):
                memory.backup(path)
    assert {path.name for path in tmp_path.iterdir()} == {"chat.db", "chat.db-reserve"}


def test_an_export_removes_what_killed_ones_left_a_day_ago(tmp_path: Path) -> None:
    old, fresh, foreign = (
        tmp_path / name for name in (".talk.jsonl.ab12cd_9.part", ".talk.jsonl.ab12cd_8.part", ".x.part")
    )
    for path in (old, fresh, foreign):
        path.touch()
    for path in (old, foreign):
        os.utime(path, (time.time() - 100_000,) * 2)
    with InfiniteMemory() as memory:
        memory.add(Message.user("First."))
        memory.export(tmp_path / "talk.jsonl")
    assert sorted(path.name for path in tmp_path.iterdir()) == [fresh.name, foreign.name, "talk.jsonl"]
