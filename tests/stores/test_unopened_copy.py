"""A database is copied as it is at one moment, by reading alone."""

from pathlib import Path

import pytest

from shared_core import InfiniteMemory, Message
from shared_core.errors import StoreError
from shared_core.stores.sqlite import unopened_copy
from shared_core.stores.sqlite.unopened_copy import copy_database


def said(path: Path) -> list[str]:
    with InfiniteMemory(path) as memory:
        return [message.content for message in memory.messages()]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    with InfiniteMemory(tmp_path / "chat.db") as memory:
        memory.add(Message.user("one"))
    return tmp_path / "chat.db"


def test_a_copy_holds_the_same(path: Path, tmp_path: Path) -> None:
    before = path.read_bytes()
    copy_database(path, tmp_path / "copy.db")
    assert said(tmp_path / "copy.db") == ["one"]
    assert path.read_bytes() == before
    assert {one.name for one in tmp_path.iterdir() if one.suffix != ".db-reserve"} == {"chat.db", "copy.db"}


def test_a_copy_of_a_file_in_use_holds_what_is_not_in_the_file_yet(path: Path, tmp_path: Path) -> None:
    with InfiniteMemory(path) as writer:
        writer.add(Message.user("two"))
        copy_database(path, tmp_path / "copy.db")
    assert said(tmp_path / "copy.db") == ["one", "two"]


def test_a_copy_is_made_again_if_somebody_writes_meanwhile(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    backup, options = unopened_copy._backup, list[str]()

    def interrupted(source: Path, target: Path, how: str) -> None:
        backup(source, target, how)
        options.append(how)
        if len(options) == 1:
            with InfiniteMemory(source) as writer:
                writer.add(Message.user("two"))

    monkeypatch.setattr(unopened_copy, "_backup", interrupted)
    copy_database(path, tmp_path / "copy.db")
    assert options == ["mode=ro&immutable=1", "mode=ro"]
    assert said(tmp_path / "copy.db") == ["one", "two"]


@pytest.mark.parametrize("name", ["none.db", "junk.db", "folder.db"])
def test_what_is_no_database_of_ours_is_not_copied(tmp_path: Path, name: str) -> None:
    (tmp_path / "junk.db").write_bytes(b"junk " * 300)
    (tmp_path / "folder.db").mkdir()
    with pytest.raises(StoreError, match=name):
        copy_database(tmp_path / name, tmp_path / "copy.db")
    assert not (tmp_path / "copy.db").exists()


def test_a_copy_that_cannot_be_written(path: Path, tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"chat.db' cannot be copied: .*; check the disk space and the permissions"):
        copy_database(path, tmp_path / "none" / "copy.db")
