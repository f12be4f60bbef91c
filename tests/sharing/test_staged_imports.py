"""A large import does not keep other writers waiting, and is all or nothing, also if it is killed in the middle."""

import os
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from shared_core import InfiniteMemory, Message
from shared_core.errors import InputFileError, StoreUnavailableError, UnknownReferenceError
from shared_core.records import MAIN, Restored
from shared_core.sharing import importer, session_tree
from shared_core.sharing.files import export_sessions, import_sessions
from shared_core.stores import SQLiteStore
from tests.sharing.test_linear_imports import branch, said, write
from tests.support.histories import history

MESSAGES = 320
BATCH = 100

IMPORT = """
import os, signal, sys
from shared_core.sharing import importer, session_tree
from shared_core.sharing.files import import_sessions

importer.LARGE, importer.BATCH, session_tree.PAGE = 1, 100, 100
database, file, step = sys.argv[1:]

def kill(done, total):
    if done >= int(step):
        os.kill(os.getpid(), signal.SIGKILL)

import_sessions(database, file, progress=kill)
"""


@pytest.fixture(scope="module")
def exported_once(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """Return an export of two conversations with forks, tags and vectors."""
    tmp_path = tmp_path_factory.mktemp("from")
    path = tmp_path / "chats.jsonl"
    with InfiniteMemory(tmp_path / "from.db", session_id="a", embedder="words") as memory:
        memory.add(history(MESSAGES))
        memory.fork("side", at="m7")
        memory.add(Message.user("aside", id="x"))
        memory.tag("here")
    with InfiniteMemory(tmp_path / "from.db", session_id="b", embedder="words") as memory:
        memory.add(history(9))
    export_sessions(tmp_path / "from.db", path)
    return path.read_bytes()


@pytest.fixture
def file(exported_once: bytes, tmp_path: Path) -> Path:
    path = tmp_path / "chats.jsonl"
    path.write_bytes(exported_once)
    return path


@pytest.fixture(autouse=True)
def stages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importer, "LARGE", 1)
    monkeypatch.setattr(importer, "BATCH", BATCH)
    monkeypatch.setattr(session_tree, "PAGE", BATCH)


def raw(database: Path, sql: str) -> list[Any]:
    with closing(sqlite3.connect(database)) as connection:
        return connection.execute(sql).fetchall()


def exported(database: Path) -> bytes:
    path = database.with_suffix(".again")
    export_sessions(database, path)
    return path.read_bytes()


def test_others_write_while_it_runs_and_see_nothing_of_it(file: Path, tmp_path: Path) -> None:
    database = tmp_path / "chat.db"
    seen: list[tuple[list[str], int]] = []
    with InfiniteMemory(database, session_id="mine", embedder="words") as memory:

        def write_meanwhile(done: int, total: int) -> None:
            memory.add(Message.user(f"at {done}"))  # would wait for a lock that this very thread holds
            store = memory._store
            names = [one.session_id for one in store.sessions()]
            assert names == [key.session_id for key, _ in store.main_states()]
            assert names == [one.session_id for one in store.overview()]
            seen.append((names, done))

        results = import_sessions(database, file, progress=write_meanwhile)
        assert [(one.session_id, one.new, one.created) for one in results] == [
            ("a", MESSAGES + 1, True),
            ("b", 9, True),
        ]
        assert len(seen) > 3
        assert {tuple(names) for names, _ in seen} == {("mine",)}
        assert len(memory.messages()) == len(seen)
        memory.forget(session=True)
    again = exported(database)
    whole = tmp_path / "whole.db"
    import_sessions(whole, file)
    for session in ("a", "b"):
        with InfiniteMemory(database, session_id=session) as there, InfiniteMemory(whole, session_id=session) as here:
            assert there.messages() == here.messages()
            assert there.branches() == here.branches()
    assert again.count(b"\n") > MESSAGES
    assert exported(whole) == file.read_bytes()


def test_an_import_into_an_open_memory(file: Path, tmp_path: Path) -> None:
    with InfiniteMemory(tmp_path / "chat.db", session_id="c", embedder="words") as memory:
        result = memory.import_file(file, session="a")
        assert (result.session_id, result.new, result.head) == ("c", MESSAGES + 1, MAIN)
        assert memory.import_file(file, session="a").known == MESSAGES + 1
        assert memory.add(Message.user("and now", id="now"))
        assert len(memory.messages()) == MESSAGES + 1
    assert raw(tmp_path / "chat.db", "SELECT count(*) FROM sessions") == [(1,)]


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="this system has no SIGKILL")
@pytest.mark.parametrize("step", [1, 200, MESSAGES + 10] if "SOAK" in os.environ else [200])
def test_an_import_that_is_killed_leaves_nothing_that_is_seen(file: Path, tmp_path: Path, step: int) -> None:
    database = tmp_path / "chat.db"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[2]), *sys.path])}
    command = [sys.executable, "-c", IMPORT, str(database), str(file), str(step)]
    assert subprocess.run(command, env=environment, check=False).returncode == -signal.SIGKILL
    assert SQLiteStore(database).sessions() == []
    assert raw(database, "SELECT count(*) FROM sessions") != [(0,)]
    with closing(sqlite3.connect(database)) as connection, connection:
        connection.execute("UPDATE sessions SET created_at = datetime('now', '-2 days')")
    import_sessions(database, file)
    assert exported(database) == file.read_bytes()
    assert raw(database, "SELECT count(*) FROM sessions") == [(2,)]
    assert raw(database, "SELECT count(*) FROM messages") == [(MESSAGES + 10,)]
    assert raw(database, "SELECT count(*) FROM texts WHERE typeof(content) = 'text'") == [(MESSAGES + 10,)]
    assert raw(database, "SELECT count(*) FROM segments") == [(3,)]


@pytest.mark.parametrize("cause", ["line", "end", "session", "progress"])
def test_an_import_that_fails_removes_what_it_wrote(file: Path, tmp_path: Path, cause: str) -> None:
    database, path = tmp_path / "chat.db", file
    if cause == "line":
        lines = [said(f"m{n}", *([f"m{n - 1}"] if n else [])) for n in range(240)]
        path = write(tmp_path / "bad.jsonl", [*lines, said("last", "nobody"), branch("main", "m1")])
    elif cause == "end":
        path.write_bytes(file.read_bytes().replace(b"aside", b"ASIDE"))

    def stop(done: int, total: int) -> None:
        if cause == "progress" and done > 200:
            raise KeyboardInterrupt

    with pytest.raises((InputFileError, UnknownReferenceError, KeyboardInterrupt)):
        import_sessions(database, path, sessions=["a", "no"] if cause == "session" else None, progress=stop)
    assert raw(database, "SELECT count(*) FROM sessions") == [(0,)]
    assert raw(database, "SELECT count(*) FROM messages") == [(0,)]
    assert raw(database, "SELECT count(*) FROM texts WHERE typeof(content) = 'text'") == [(0,)]


class Away(SQLiteStore):
    """A store that cannot be reached when messages are written, as a server that restarts."""

    def restore(self, session: int, restored: Restored) -> None:
        raise StoreUnavailableError("it cannot be reached; try again")


def test_an_outage_is_told_as_one(file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever imports may try again: the error has the class that says so, and names the line."""
    monkeypatch.setattr(importer, "LARGE", 10_000)
    told = pytest.raises(StoreUnavailableError, match=r"line \d+: ")
    with closing(Away(tmp_path / "chat.db")) as store, told:
        import_sessions(store, file)
