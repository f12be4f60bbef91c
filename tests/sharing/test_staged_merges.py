"""A large import, what others do meanwhile, and kills: all of it is stored as if one came after the other."""

import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from shared_core import InfiniteMemory, Message
from shared_core.records import Draft
from shared_core.sharing import foreign, importer, large_conversation, session_tree
from shared_core.sharing.files import export_sessions, import_sessions
from shared_core.sharing.importer import ImportResult
from shared_core.stores import SQLiteStore
from shared_core.stores.sqlite.doctor import examine
from shared_core.testing.hashing_embedder import HashingEmbedder
from tests.sharing.test_staged_imports import raw
from tests.support.histories import history
from tests.tree.test_verb_sequences import SOAK

NEW = 70
"""Messages that a file holds."""

PART = 20
"""Messages that are written together."""


SETTINGS: dict[str, Any] = {"max_tokens": 300, "reserve_tokens": 50}


class Case(NamedTuple):
    """A database that holds something, and a file that adds to it."""

    database: Path
    file: Path


def own(folder: Path) -> Case:
    """Return a conversation that has gone on elsewhere: with forks, merges, gaps, tags, stashes and vectors."""
    with InfiniteMemory(folder / "there.db", session_id="s", embedder=HashingEmbedder(), **SETTINGS) as memory:
        memory.add(history(20))
        memory.fork("side", at="m9")
        memory.add(Message.user("aside", id="x"))
        memory.context("which gardens?")
        memory.export(folder / "first.jsonl", vectors=True)
        memory.add(history(4, start=30))
        memory.checkout("main")
        memory.add(history(NEW - 20, start=100))
        memory.merge("side")
        memory.forget(ids=["m103", "m104"])
        memory.stash(note="later")
        memory.tag("here")
        memory.fork("third", at="x")
        memory.add(history(3, start=5_000))
        memory.context("which gardens?")
        memory.export(folder / "file.jsonl", vectors=True)
    import_sessions(folder / "here.db", folder / "first.jsonl")
    return Case(folder / "here.db", folder / "file.jsonl")


def chatgpt(folder: Path, *, known: int = 40) -> Case:
    """Return a chat with a version that has grown since it was imported."""
    for name, count in (("first.json", known), ("file.json", NEW)):
        nodes = {
            f"n{n}": {
                "parent": f"n{n - 1}" if n else None,
                "message": {"author": {"role": ["user", "assistant"][n % 2]}, "content": {"parts": [f"said {n}"]},
                            "create_time": 1_700_000_000 + n},
            }
            for n in range(count)
        }  # fmt: skip
        if not nodes:
            continue
        nodes["v"] = {**nodes[f"n{count - 1}"], "parent": f"n{count - 3}"}
        chat = {"id": "s", "title": "Ferries", "mapping": nodes, "current_node": f"n{count - 1}"}
        (folder / name).write_text(json.dumps([chat]))
    if known:
        import_sessions(folder / "here.db", folder / "first.json")
    return Case(folder / "here.db", folder / "file.json")


def new_chatgpt(folder: Path) -> Case:
    """Return a chat that is not stored yet."""
    with InfiniteMemory(folder / "here.db", session_id="other") as memory:
        memory.add(history(5))
    return chatgpt(folder, known=0)


def listed(folder: Path) -> Case:
    """Return a list of messages that begins with a reply to what was asked last."""
    with InfiniteMemory(folder / "here.db", session_id="default", embedder="words") as memory:
        memory.add(history(21))
    said = [{"role": "assistant", "content": "And so?"}]
    said += [{"role": ["user", "assistant"][n % 2], "content": f"said {n}"} for n in range(NEW)]
    (folder / "file.json").write_text(json.dumps(said))
    return Case(folder / "here.db", folder / "file.json")


MAKERS = [own, chatgpt, new_chatgpt, listed]


@pytest.fixture(scope="module", params=MAKERS, ids=lambda maker: maker.__name__)
def made(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Case:
    case: Case = request.param(tmp_path_factory.mktemp("case"))
    return case


@pytest.fixture
def case(made: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Case:
    monkeypatch.setattr(importer, "LARGE", 50)
    for module in (importer, foreign, large_conversation):
        monkeypatch.setattr(module, "BATCH", PART)
    monkeypatch.setattr(session_tree, "PAGE", PART)
    return made._replace(database=Path(shutil.copy(made.database, tmp_path / "chat.db")))


def held(database: Path) -> list[Any]:
    """Return everything that is stored, but for the times at which branches were moved and messages without one came.

    It also checks the numbers of the messages and the checksums, and that nothing is left of a stage.
    """
    assert raw(database, "SELECT count(*) FROM sessions WHERE ident < '['") == [(0,)]
    assert raw(database, "SELECT session FROM messages GROUP BY session HAVING max(seq) != count(*) + "
               "(SELECT count(*) FROM tombstones AS t WHERE t.session = messages.session)") == []  # fmt: skip
    live = "SELECT count(*) FROM texts WHERE typeof(content) = 'text'"
    assert raw(database, live) == raw(database, "SELECT count(*) FROM messages")
    assert raw(
        database, "SELECT count(*) FROM vectors WHERE live AND session NOT IN (SELECT session FROM sessions)"
    ) == [(0,)]
    assert examine(database).damages == []
    file = database.with_suffix(".held")
    export_sessions(database, file, vectors=True)
    lines = [json.loads(line) for line in file.read_text().splitlines()][:-1]
    return [{key: value for key, value in line.items() if key != "created_at"} for line in lines]


def main_session(database: Path) -> InfiniteMemory:
    (name,) = {one.session_id for one in SQLiteStore(database).sessions()} - {"s2"}
    return InfiniteMemory(database, session_id=name, embedder="words")


def add(memory: InfiniteMemory) -> None:
    memory.add([Message.user("mine", id="mine"), Message.assistant("yours", id="yours")])


def add_elsewhere(memory: InfiniteMemory) -> None:
    memory.fork("mine", at=memory.messages()[1].id)
    memory.add([Message.user("mine", id="mine")])


def forget_one(memory: InfiniteMemory) -> None:
    memory.forget(ids=[memory.messages()[3].id or ""])


def forget_all(memory: InfiniteMemory) -> None:
    memory.forget(session=True)


def add_what_the_file_has(memory: InfiniteMemory) -> None:
    memory.add([Message.user("clash", id="n60"), Message.user("clash", id="m140")])


def take_names(memory: InfiniteMemory) -> None:
    for name in ("here", "version-2"):
        memory.fork(name)
        memory.add(Message.user("mine", id=f"on {name}"))
    memory.checkout("main")


CHANGES: list[Callable[[InfiniteMemory], None]] = [
    add, add_elsewhere, forget_one, forget_all, add_what_the_file_has, take_names,
]  # fmt: skip


def test_it_is_stored_as_in_one_transaction(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = Path(shutil.copy(case.database, case.database.with_suffix(".whole")))
    import_sessions(case.database, case.file)
    assert import_sessions(case.database, case.file)[0].known
    monkeypatch.setattr(importer, "LARGE", 10**9)
    import_sessions(whole, case.file)
    import_sessions(whole, case.file)
    assert held(case.database) == held(whole)


@pytest.mark.parametrize("made", MAKERS if SOAK else [own, chatgpt, listed], indirect=True)
def test_what_others_do_meanwhile_comes_first(case: Case, subtests: pytest.Subtests) -> None:
    for change in CHANGES:
        with subtests.test(change.__name__), pytest.MonkeyPatch.context() as patch:
            shutil.copy(case.database, other := case.database.with_name(f"{change.__name__}.db"))
            change_meanwhile(case._replace(database=other), change, patch)


def change_meanwhile(case: Case, change: Callable[[InfiniteMemory], None], monkeypatch: pytest.MonkeyPatch) -> None:
    whole = Path(shutil.copy(case.database, case.database.with_suffix(".whole")))
    seen: list[Sequence[Message]] = []
    with main_session(case.database) as memory:
        before = memory.messages()

        def meanwhile(done: int, total: int) -> None:
            if done >= PART and not seen:
                assert memory.messages() == before
                change(memory)
                seen.append(memory.messages())
            if seen and done < total:
                assert memory.messages() == seen[0]

        result = import_sessions(case.database, case.file, progress=meanwhile)
        assert seen
    monkeypatch.setattr(importer, "LARGE", 10**9)
    with main_session(whole) as memory:
        change(memory)
    assert [one.to_dict() for one in import_sessions(whole, case.file)] == [one.to_dict() for one in result]
    assert held(case.database) == held(whole)


def test_two_imports_at_once_store_it_once(case: Case) -> None:
    results: list[list[ImportResult]] = []

    def meanwhile(done: int, total: int) -> None:
        if not results:
            results.append([])
            results[0] += import_sessions(case.database, case.file)

    (second,) = import_sessions(case.database, case.file, progress=meanwhile)
    ((first,),) = results
    assert (second.new, second.known) == (0, first.new + first.known)
    once = held(case.database)
    import_sessions(case.database, case.file)
    assert held(case.database) == once


KILLED = """
import os, signal, sys
from shared_core.sharing import foreign, importer, large_conversation, session_tree
from shared_core.sharing.files import import_sessions
from shared_core.stores import SQLiteStore

importer.LARGE, importer.BATCH, foreign.BATCH, large_conversation.BATCH, session_tree.PAGE = 50, 20, 20, 20, 20
database, file, step = sys.argv[1:]
grafted = SQLiteStore.graft

def kill(*given, **more):
    os.kill(os.getpid(), signal.SIGKILL)

def graft_and_kill(*given, **more):
    grafted(*given, **more)
    kill()

if step == "in the transaction":
    SQLiteStore.graft, SQLiteStore.publish = graft_and_kill, kill
if step == "after it":
    SQLiteStore.unstage = lambda store, stages: kill() if stages else None
import_sessions(database, file, progress=lambda done, total: step.isdigit() and done >= int(step) and kill())
"""


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="this system has no SIGKILL")
@pytest.mark.parametrize("made", MAKERS if SOAK else MAKERS[:1], indirect=True)
@pytest.mark.parametrize("step", ["in the transaction", "after it"])
def test_an_import_that_is_killed_leaves_all_or_nothing(case: Case, step: str) -> None:
    whole = Path(shutil.copy(case.database, case.database.with_suffix(".whole")))
    before = held(whole)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[2]), *sys.path])}
    command = [sys.executable, "-c", KILLED, str(case.database), str(case.file), step]
    assert subprocess.run(command, env=environment, check=False).returncode == -signal.SIGKILL
    import_sessions(whole, case.file)
    with closing(SQLiteStore(case.database)) as store:
        store.unstage([number for (number,) in raw(case.database, "SELECT session FROM sessions WHERE ident < '['")])
    there = held(case.database)
    if step != "after it":
        assert there == before
        import_sessions(case.database, case.file)
        there = held(case.database)
    vectors = "vectors"  # those of a killed import are made again when they are needed
    assert [{**line, vectors: 0} for line in there][1:] == [{**line, vectors: 0} for line in held(whole)][1:]


def test_what_a_killed_import_left_goes_when_the_database_is_opened(tmp_path: Path) -> None:
    database = tmp_path / "chat.db"
    with InfiniteMemory(database, session_id="s", embedder="words") as memory:
        memory.add(history(3))
        store = memory._store
        stage = store.stage()
        assert stage is not None
        store.append(stage, "main", [Draft(message) for message in history(60)])
        assert len(examine(database).sessions) == 1
        assert store.sessions_named("") == []
    SQLiteStore(database).close()
    assert raw(database, "SELECT count(*) FROM sessions") == [(2,)]
    with closing(sqlite3.connect(database)) as connection, connection:
        connection.execute("UPDATE sessions SET created_at = datetime('now', '-2 days') WHERE session_id = ''")
    SQLiteStore(database).close()
    assert raw(database, "SELECT count(*) FROM sessions") == [(1,)]
    assert len(held(database)) == 7
