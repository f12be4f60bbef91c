"""An import is all or nothing, also if it is killed in the middle, and is done the next time."""

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
from shared_core.records import Restored
from shared_core.sharing.files import export_sessions, import_sessions
from shared_core.stores import SQLiteStore
from tests.sharing.lines import branch, said, segment, write
from tests.support.histories import history

MESSAGES = 1_200

IMPORT = """
import os, signal, sys
from shared_core.sharing.files import import_sessions

database, file, step = sys.argv[1:]

def kill(done, total):
    if done >= int(step):
        os.kill(os.getpid(), signal.SIGKILL)

import_sessions(database, file, progress=kill)
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Return an export of two conversations with a fork, a tag and vectors."""
    path = tmp_path / "chats.jsonl"
    with InfiniteMemory(tmp_path / "from.db", session_id="a", embedder="words") as memory:
        memory.add(history(MESSAGES))
        memory.fork("side", at="m7")
        memory.add(Message.user("aside", id="x"))
        memory.tag("here")
    with InfiniteMemory(tmp_path / "from.db", session_id="b", embedder="words") as memory:
        memory.add(history(9))
    export_sessions(tmp_path / "from.db", path)
    return path


def raw(database: Path, sql: str) -> list[Any]:
    with closing(sqlite3.connect(database)) as connection:
        return connection.execute(sql).fetchall()


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="this system has no SIGKILL")
@pytest.mark.parametrize("step", [1, 600, MESSAGES + 10] if "SOAK" in os.environ else [600])
def test_an_import_that_is_killed_leaves_nothing(file: Path, tmp_path: Path, step: int) -> None:
    database = tmp_path / "chat.db"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[2]), *sys.path])}
    command = [sys.executable, "-c", IMPORT, str(database), str(file), str(step)]
    assert subprocess.run(command, env=environment, check=False).returncode == -signal.SIGKILL
    assert raw(database, "SELECT (SELECT count(*) FROM sessions), (SELECT count(*) FROM texts)") == [(0, 0)]
    import_sessions(database, file)
    export_sessions(database, tmp_path / "again.jsonl")
    assert (tmp_path / "again.jsonl").read_bytes() == file.read_bytes()


@pytest.mark.parametrize("cause", ["line", "end", "session", "progress"])
def test_an_import_that_fails_stores_nothing(file: Path, tmp_path: Path, cause: str) -> None:
    database, path = tmp_path / "chat.db", file
    if cause == "line":
        lines = [segment(0, 599), *(said(f"m{n}", 0, n) for n in range(600))]
        path = write(tmp_path / "bad.jsonl", [*lines, said("last", 1, 0), branch("main", 0, 1)])
    elif cause == "end":
        path.write_bytes(file.read_bytes().replace(b"aside", b"ASIDE"))

    def stop(done: int, total: int) -> None:
        if cause == "progress" and done >= 600:
            raise KeyboardInterrupt

    with pytest.raises((InputFileError, UnknownReferenceError, KeyboardInterrupt)):
        import_sessions(database, path, sessions=["a", "no"] if cause == "session" else None, progress=stop)
    assert database.exists() == (cause != "end"), "a file that is damaged creates no store"
    if database.exists():
        assert raw(database, "SELECT (SELECT count(*) FROM sessions), (SELECT count(*) FROM texts)") == [(0, 0)]


def test_an_error_of_the_callers_progress_is_no_error_of_the_file(file: Path, tmp_path: Path) -> None:
    def stop(done: int, total: int) -> None:
        if done:
            raise ValueError("mine")

    with pytest.raises(ValueError, match=r"^mine$"):
        import_sessions(tmp_path / "chat.db", file, progress=stop)


class Away(SQLiteStore):
    """A store that cannot be reached when messages are written, as a server that restarts."""

    def restore(self, session: int, restored: Restored) -> None:
        raise StoreUnavailableError("it cannot be reached; try again")


def test_an_outage_is_told_as_one(file: Path, tmp_path: Path) -> None:
    """Whoever imports may try again: the error has the class that says so, and names the line."""
    told = pytest.raises(StoreUnavailableError, match=r"line \d+: ")
    with closing(Away(tmp_path / "chat.db")) as store, told:
        import_sessions(store, file)
