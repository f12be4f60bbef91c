"""What is forgotten leaves iterators that are open, and a scrub that was cut short is resumed."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from shared_core import InfiniteMemory, Message
from tests.support.histories import history, ids
from tests.test_forget import reader

SECRET = b"xyzzyplugh"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "chat.db"


@pytest.fixture(params=["itself", "another object"])
def memories(path: Path, request: pytest.FixtureRequest) -> Iterator[tuple[InfiniteMemory, InfiniteMemory]]:
    """A memory that is read from, and the one that forgets."""
    with InfiniteMemory(path, embedder="words") as memory, InfiniteMemory(path, embedder="words") as other:
        memory.add(history(400))
        yield memory, memory if request.param == "itself" else other


@pytest.mark.parametrize("backwards", [False, True])
def test_a_forgotten_session_ends_the_iterators_over_it(
    memories: tuple[InfiniteMemory, InfiniteMemory], backwards: bool
) -> None:
    memory, forgetful = memories
    messages = reversed(memory.messages()) if backwards else iter(memory.messages())
    assert ids([next(messages)]) == ["m399" if backwards else "m0"]
    forgetful.forget(session=True)
    assert list(messages) == []


@pytest.mark.parametrize("backwards", [False, True])
def test_a_forgotten_message_is_passed_over_and_a_new_one_too(
    memories: tuple[InfiniteMemory, InfiniteMemory], backwards: bool
) -> None:
    memory, forgetful = memories
    messages = reversed(memory.messages()) if backwards else iter(memory.messages())
    begun = [next(messages) for _ in range(40)]
    forgetful.add(Message.user("later"))
    gone = {"m5", "m60", "m61", "m300", "m390"}
    forgetful.forget(ids=sorted(gone))
    expected = [f"m{number}" for number in range(400)][:: -1 if backwards else 1]
    assert ids(begun) == expected[:40]
    assert ids(messages) == [id_ for id_ in expected[40:] if id_ not in gone]


KILLED = """
import os, sys
from shared_core import InfiniteMemory, Message
from shared_core.stores import SQLiteStore
SQLiteStore.scrub = lambda store: os._exit(9)
memory = InfiniteMemory(sys.argv[1], embedder="words")
memory.add([Message.user("xyzzyplugh is the word", id="secret"), Message.user("hello", id="kept")])
memory.forget(ids=["secret"])
"""


def killed_before_the_scrub(path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    assert subprocess.run([sys.executable, "-c", KILLED, str(path)], env=environment, check=False).returncode == 9
    assert any(SECRET in file.read_bytes() for file in path.parent.iterdir())


def test_a_scrub_that_was_cut_short_is_resumed_at_the_next_opening(path: Path) -> None:
    killed_before_the_scrub(path)
    with InfiniteMemory(path, embedder="words") as memory:
        assert not any(SECRET in file.read_bytes() for file in path.parent.iterdir())
        assert ids(memory.messages()) == ["kept"]
        assert memory._store._db.query("PRAGMA user_version")[0][0] & 0xFF == 0  # type: ignore[attr-defined]


def test_a_reader_that_keeps_the_scrub_from_being_resumed_is_reported(path: Path) -> None:
    killed_before_the_scrub(path)
    with reader(path, "process"), pytest.warns(RuntimeWarning, match=r"scrub\(\)"):
        memory = InfiniteMemory(path, embedder="words")
    assert any(SECRET in file.read_bytes() for file in path.parent.iterdir())
    assert memory.scrub().scrubbed
    assert not any(SECRET in file.read_bytes() for file in path.parent.iterdir())
    memory.close()
