"""A database is replaced by a backup while programs have it open: by `restore`, or by a copy over its file."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from shared_core import InfiniteMemory, Message
from shared_core.errors import StoreError
from shared_core.operations.store_check import check_store
from shared_core.stores.sqlite.backup import restore
from tests.support.histories import history, texts

KILLED = """
import os, sys
from shared_core import InfiniteMemory, Message
memory = InfiniteMemory(sys.argv[1])
memory.add([Message.user(f"after the backup {n}" * 300) for n in range(30)])
os._exit(9)
"""


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    """A database, and a backup of what it held first."""
    path, copy = tmp_path / "chat.db", tmp_path / "copy.db"
    with InfiniteMemory(path) as memory:
        memory.add(history(4))
        memory.backup(copy)
    return path, copy


def check_holds_the_backup(path: Path) -> None:
    with InfiniteMemory(path) as memory:
        assert texts(memory.messages()) == texts(history(4))
        memory.add(Message.user("after the restoration"))
        assert len(memory.messages()) == 5
    assert not check_store(path).damages


def test_a_copy_over_an_open_file_is_noticed_and_not_destroyed(files: tuple[Path, Path]) -> None:
    path, copy = files
    with InfiniteMemory(path) as memory:
        memory.add([Message.user(f"after the backup {number}" * 300) for number in range(30)])
        shutil.copyfile(copy, path)
        for _ in range(2):
            with pytest.raises(StoreError, match="replaced"):
                memory.add(Message.user("lost"))
    check_holds_the_backup(path)


def test_the_log_of_a_killed_program_is_not_written_over_a_copy(files: tuple[Path, Path]) -> None:
    path, copy = files
    assert subprocess.run([sys.executable, "-c", KILLED, path], check=False).returncode == 9
    shutil.copyfile(copy, path)
    with pytest.raises(StoreError, match="-wal"):
        InfiniteMemory(path).messages()
    Path(f"{path}-wal").unlink()
    check_holds_the_backup(path)


def test_a_backup_is_restored_under_an_open_memory(files: tuple[Path, Path]) -> None:
    path, copy = files
    with InfiniteMemory(path) as memory, InfiniteMemory(path, session_id="other") as other:
        memory.add(Message.user("after the backup"))
        steps: list[tuple[int, int]] = []
        restore(copy, path, lambda done, total: steps.append((done, total)))
        assert steps[-1][0] == steps[-1][1] > 0
        for one in (memory, other):
            with pytest.raises(StoreError, match="replaced"):
                one.add(Message.user("lost"))
    check_holds_the_backup(path)
    restore(copy, path.with_name("new.db"))
    check_holds_the_backup(path.with_name("new.db"))


def test_only_a_backup_is_restored(files: tuple[Path, Path], tmp_path: Path) -> None:
    path, _ = files
    (tmp_path / "notes.txt").write_text("no database " * 100)
    for wrong in ("notes.txt", "none.db"):
        with pytest.raises(StoreError, match="is no backup" if wrong == "notes.txt" else "there is no file"):
            restore(tmp_path / wrong, path)
    check_holds_the_backup(path)
    assert not list(tmp_path.glob(".restored-*"))
