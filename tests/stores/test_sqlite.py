"""What is particular to SQLite: files, schema, processes, forks, kills, and bytes that must be gone."""

import os
import random
import sqlite3
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from threading import Thread, Timer
from typing import Any

import pytest

from shared_core.errors import StoreError, StoreUnavailableError
from shared_core.messages import Payload
from shared_core.queries import After
from shared_core.records import MAIN, Move, Position, Snapshot, VectorRows
from shared_core.stores import SQLiteStore, open_store
from shared_core.stores.sqlite import connection
from shared_core.stores.sqlite.database_file import APPLICATION_ID, version_of
from shared_core.stores.sqlite.sqlite_schema import MIGRATIONS, Migration
from shared_core.testing.oracle import ALL, Session, draft, drafts

SCRIPT = Path(__file__).with_name("kill_writer.py")
SOAK = bool(os.environ.get("SOAK"))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "chat.db"


@pytest.fixture
def store(path: Path) -> Iterator[SQLiteStore]:
    store = SQLiteStore(path, durability="process")
    yield store
    store.close()


@contextmanager
def process(what: str, path: Path, *arguments: object) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, str(SCRIPT), what, str(path), *map(str, arguments)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(SCRIPT.parents[2]), *sys.path])}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, text=True, env=environment, **pipes) as child:  # type: ignore[call-overload]
        try:
            yield child
        finally:
            if child.poll() is None:
                child.kill()


def tell(child: subprocess.Popen[str]) -> None:
    assert child.stdin is not None
    child.stdin.write("go\n")
    child.stdin.flush()


def heard(child: subprocess.Popen[str]) -> str:
    assert child.stdout is not None
    return child.stdout.readline().strip()


def check_integrity(path: Path) -> None:
    with closing(sqlite3.connect(path)) as reader:
        assert reader.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        assert reader.execute("PRAGMA foreign_key_check").fetchall() == []


def everything(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in folder.iterdir() if file.is_file()}


# Opening


def test_open_store_takes_a_path_a_store_or_nothing(
    path: Path, store: SQLiteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert open_store(store) is store
    monkeypatch.setenv("HOME", str(path.parent))
    monkeypatch.setenv("USERPROFILE", str(path.parent))
    for place in (path, str(path), f"sqlite:///{path}", f"~/{path.name}", Path("~") / path.name, None):
        with closing(open_store(place)) as opened:
            assert isinstance(opened, SQLiteStore)
            assert opened.session(None, "s") is None
            opened.create_session(None, f"{place}")
    assert [one.session_id for one in store.sessions(None)] == [str(path), f"sqlite:///{path}", f"~/{path.name}"]
    for address in ("mysql://host/db", "postgresql+psycopg://host/db", "redis://host", "sqlite://host/chat.db"):
        with pytest.raises(ValueError, match="SQLite and PostgreSQL"):
            open_store(address)


def test_a_wrong_durability_is_named(path: Path) -> None:
    with pytest.raises(ValueError, match="durability='some'"):
        SQLiteStore(path, durability="some")
    assert not path.exists()


@pytest.mark.parametrize(("durability", "synchronous"), [("full", 2), ("process", 1)])
def test_the_connection_is_set_up(path: Path, durability: str, synchronous: int) -> None:
    with closing(SQLiteStore(path, durability=durability)) as store:
        settings = {
            "journal_mode": "wal",
            "synchronous": synchronous,
            "foreign_keys": 1,
            "secure_delete": 1,
            "busy_timeout": 30_000,
            "application_id": APPLICATION_ID,
        }
        assert {name: store._db.query(f"PRAGMA {name}")[0][0] for name in settings} == settings
        store.scrub()
        assert store._db.query("PRAGMA busy_timeout") == [(30_000,)]


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such file modes")
def test_only_the_owner_can_read_the_files(path: Path) -> None:
    before = os.umask(0)
    try:
        with closing(SQLiteStore(path)) as store:
            Session(store).append(MAIN, drafts("u1"))
            assert {file.stat().st_mode & 0o777 for file in path.parent.iterdir()} == {0o600}
            assert len(list(path.parent.iterdir())) == 4
    finally:
        os.umask(before)


# Files that are not ours


def a_text(path: Path) -> None:
    path.write_text("Dear diary, " * 1000)


def a_short_text(path: Path) -> None:
    path.write_bytes(b"Dear diary, " * 5)


def a_foreign_wal_database(path: Path) -> None:
    with closing(sqlite3.connect(path)) as writer:
        writer.execute("PRAGMA journal_mode = WAL")
        writer.execute("CREATE TABLE diary (day)")


def an_empty_database_of_another_program(path: Path) -> None:
    with closing(sqlite3.connect(path)) as writer:
        writer.execute("PRAGMA application_id = 7")


def filled(path: Path) -> bytes:
    with closing(SQLiteStore(path, durability="process")) as store:
        Session(store).append(MAIN, drafts(*(f"u{number}" for number in range(300))))
    return path.read_bytes()


def a_truncated_first_page(path: Path) -> None:
    path.write_bytes(filled(path)[:1000])


def a_damaged_schema(path: Path) -> None:
    data = filled(path)
    path.write_bytes(data[:100] + b"\xff" * 3996 + data[4096:])


def a_newer_schema(path: Path) -> None:
    filled(path)
    with closing(sqlite3.connect(path)) as writer, writer:
        writer.execute("INSERT INTO migrations (version, name) VALUES (99, 'later')")


NOT_OURS = [
    a_text,
    a_short_text,
    a_foreign_wal_database,
    an_empty_database_of_another_program,
    a_truncated_first_page,
    a_damaged_schema,
    a_newer_schema,
]


@pytest.mark.parametrize("make", NOT_OURS)
def test_a_file_that_is_not_ours_is_left_as_it_was(make: Callable[[Path], None], path: Path) -> None:
    make(path)
    before = everything(path.parent)
    with pytest.raises(StoreError, match=str(path)) as raised:
        SQLiteStore(path)
    assert any(advice in str(raised.value) for advice in ("backup", "another path", "upgrade infinite-memory"))
    assert everything(path.parent) == before


def test_a_foreign_table_still_in_the_log_is_seen(path: Path) -> None:
    with closing(sqlite3.connect(path)) as writer:
        writer.execute("PRAGMA journal_mode = WAL")
        writer.execute("CREATE TABLE diary (day)")
        before = everything(path.parent)
        with pytest.raises(StoreError, match="another program"):
            SQLiteStore(path)
        after = everything(path.parent)
        assert (after[path.name], after[path.name + "-wal"]) == (before[path.name], before[path.name + "-wal"])
        assert writer.execute("SELECT count(*) FROM diary").fetchone() == (0,)


def test_an_empty_file_may_become_a_database(path: Path) -> None:
    path.touch()
    with closing(SQLiteStore(path)) as store:
        Session(store).check()


@pytest.mark.parametrize(
    ("column", "value"), [("extra", "{"), ("extra", "[1]"), ("extra", '{"tool_calls": 1}'), ("content", 7)]
)
def test_a_row_that_is_not_ours_is_named(store: SQLiteStore, column: str, value: object) -> None:
    session = Session(store)
    session.append(MAIN, drafts("u1"))
    with store._db.writing() as writer:
        writer.execute(f"UPDATE texts SET {column} = ?", (value,))
        writer.execute("PRAGMA ignore_check_constraints = ON")
    if column == "content":
        with store._db.writing() as writer:
            writer.execute("UPDATE messages SET created_at = 'yesterday'")
    with pytest.raises(StoreError, match="'u1'"):
        store.get(session.key, ["u1"])


def test_a_payload_that_is_not_json_is_refused_by_name(store: SQLiteStore) -> None:
    session = Session(store)
    endless: list[Any] = []
    endless.append(endless)
    for data in (object(), {"x": {1, 2}}, endless):
        message = draft("u1").message.replace(payload=Payload.model_construct(format="x", data=data))
        with pytest.raises(StoreError, match="'u1'"):
            store.append(session.key, MAIN, [draft("u0"), draft("u1").__class__(message)])
    session.check()


def test_a_number_too_large_for_sqlite_is_a_store_error(store: SQLiteStore) -> None:
    with pytest.raises(StoreError):
        store.newest(1, Position(0, 2**70), 1)


def test_a_database_held_by_another_is_named(store: SQLiteStore, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "_BUSY_SECONDS", 0.05)
    key = Session(store).key
    with closing(sqlite3.connect(path, isolation_level=None)) as other, closing(SQLiteStore(path)) as waiting:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreUnavailableError):
            waiting.append(key, MAIN, drafts("u1"))
        other.execute("ROLLBACK")
        waiting.append(key, MAIN, drafts("u1"))


def test_a_new_file_held_by_another_is_waited_for(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    filled(path)
    with closing(sqlite3.connect(path, isolation_level=None, check_same_thread=False)) as other:
        other.execute("PRAGMA journal_mode = DELETE")
        other.execute("BEGIN")
        other.execute("SELECT * FROM migrations").fetchall()
        with monkeypatch.context() as impatient:
            impatient.setattr(connection, "_BUSY_SECONDS", 0.3)
            with pytest.raises(StoreUnavailableError):
                SQLiteStore(path)
        release = Timer(0.05, other.execute, ("COMMIT",))
        release.start()
        with closing(SQLiteStore(path)) as store:
            assert store._db.query("PRAGMA journal_mode") == [("wal",)]
        release.join()


def test_a_database_without_wal_is_refused() -> None:
    with closing(sqlite3.connect(":memory:")) as memory, pytest.raises(StoreError, match="local disk"):
        connection._switch_to_wal(memory, "'x'")


# Schema


def test_a_step_and_its_record_are_one_transaction(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    filled(path)
    later = Migration("later", ("CREATE TABLE later (x)", "SELECT * FROM nowhere"))
    monkeypatch.setattr(connection, "MIGRATIONS", [*MIGRATIONS, later])
    with pytest.raises(StoreError, match="nowhere"):
        SQLiteStore(path)
    monkeypatch.undo()
    with closing(SQLiteStore(path)) as store:
        assert version_of(store._db._ready()) == len(MIGRATIONS)
        assert store._db.query("SELECT 1 FROM sqlite_master WHERE name = 'later'") == []
    monkeypatch.setattr(connection, "MIGRATIONS", [*MIGRATIONS, later._replace(statements=later.statements[:1])])
    with closing(SQLiteStore(path)) as store:
        assert version_of(store._db._ready()) == len(MIGRATIONS) + 1


@pytest.mark.parametrize("round_", range(20 if SOAK else 1))
def test_processes_create_one_file_at_once(path: Path, round_: int) -> None:
    with (
        process("create", path, "u1") as one,
        process("create", path, "u2") as two,
        process("create", path, "u3") as three,
    ):
        children = (one, two, three)
        assert [heard(child) for child in children] == ["ready"] * 3
        for child in children:
            tell(child)
        assert [child.wait() for child in children] == [0, 0, 0]
    with closing(SQLiteStore(path)) as store:
        records = store.find(1, After(0, ALL))
    assert sorted(str(record.message.id) for record in records) == ["u1", "u2", "u3"]
    assert [record.position for record in records] == [Position(0, 0), Position(0, 1), Position(0, 2)]


# Processes


def in_child(work: Callable[[], object]) -> int:
    """Fork, do something, and return the child's exit code as seen by `os.waitpid`."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        code = 1
        try:
            work()
            code = 0
        finally:
            os._exit(code)
    return child


def status(child: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


forks = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")


@forks
def test_a_forked_child_gets_a_connection_of_its_own(path: Path, store: SQLiteStore) -> None:
    session = Session(store)
    session.append(MAIN, drafts("u1"))
    told, tell_child = os.pipe()
    child_told, tell_parent = os.pipe()

    def work() -> None:
        store.append(session.key, MAIN, drafts("u2"))
        os.write(tell_parent, b"x")
        os.read(told, 1)
        store.append(session.key, MAIN, drafts("u3"))
        store.close()
        assert store._db._connection is None

    child = in_child(work)
    store.append(session.key, MAIN, drafts("u4"))
    os.read(child_told, 1)
    # If the child had no locks of its own, closing here would remove the log it is writing to.
    store.close()
    os.write(tell_child, b"x")
    assert status(child) == 0
    for end in (told, tell_child, child_told, tell_parent):
        os.close(end)
    with closing(SQLiteStore(path)) as again:
        assert sorted(str(r.message.id) for r in again.find(session.key, After(0, ALL))) == ["u1", "u2", "u3", "u4"]
    check_integrity(path)


@forks
def test_forking_while_threads_write_loses_nothing(path: Path, store: SQLiteStore) -> None:
    key = Session(store).key

    def write(name: str) -> None:
        for number in range(50):
            store.append(key, MAIN, drafts(f"{name}-{number}"))

    threads = [Thread(target=write, args=(f"u{number}",)) for number in range(2)]
    for thread in threads:
        thread.start()
    children = []
    for number in range(5):
        children.append(in_child(partial(store.append, key, MAIN, drafts(f"a{number}"))))
        time.sleep(0.01)
    for thread in threads:
        thread.join()
    assert [status(child) for child in children] == [0] * 5
    records = store.find(key, After(0, ALL))
    expected = {f"u{name}-{number}" for name in range(2) for number in range(50)} | {f"a{n}" for n in range(5)}
    assert {record.message.id for record in records} == expected
    assert [record.seq for record in records] == list(range(1, 106))
    check_integrity(path)


@forks
def test_an_in_memory_store_does_not_reach_into_a_child() -> None:
    with closing(SQLiteStore(":memory:")) as store:
        key = Session(store).key

        def work() -> None:
            with pytest.raises(StoreError, match="forked process"):
                store.state(key)
            store.close()

        assert status(in_child(work)) == 0
        Session(store).check()


def test_a_killed_writer_loses_nothing_it_was_told_is_stored(path: Path) -> None:
    chance = random.Random()
    acknowledged: list[str] = []
    sizes: dict[str, int] = {}
    for run in range(200 if SOAK else 3):
        name, size = f"u{run}", chance.choice([1, 1, 5, 50])
        sizes[name] = size
        with process("append", path, name, size) as child:
            assert heard(child) == "ready"
            time.sleep(chance.random() * 0.2)
            child.kill()
            assert child.stdout is not None
            acknowledged += [line.strip() for line in child.stdout if line.endswith("\n")]
    check_integrity(path)
    with closing(SQLiteStore(path)) as store:
        records = store.find(1, After(0, ALL))
        ids = [str(record.message.id) for record in records]
        assert len(set(ids)) == len(ids) == store.stats(1)["messages"]
        assert set(acknowledged) <= set(ids)
        assert [record.seq for record in records] == list(range(1, len(ids) + 1))
        assert [record.position for record in records] == [Position(0, depth) for depth in range(len(ids))]
        assert all(record.message.content == f"{record.message.id} " * 40 for record in records)
        for name, size in sizes.items():
            stored = sum(id_.startswith(name + "-") for id_ in ids)
            assert stored % size == 0, "a call was stored by half"
            assert stored - sum(id_.startswith(name + "-") for id_ in acknowledged) <= size + size - 1


def test_processes_and_threads_hold_conversations_in_one_session(path: Path) -> None:
    times = 100 if SOAK else 10
    with (
        process("exchange", path, "p0", times) as p0,
        process("exchange", path, "p1", times) as p1,
        process("exchange", path, "p2", times) as p2,
        process("exchange", path, "p3", times) as p3,
    ):
        assert [child.wait() for child in (p0, p1, p2, p3)] == [0] * 4
    names = {f"p{p}-{thread}-{number}" for p in range(4) for thread in range(4) for number in range(times)}
    with closing(SQLiteStore(path)) as store:
        records = store.find(1, After(0, ALL))
        assert [record.seq for record in records] == list(range(1, 2 * len(names) + 1))
        assert [record.position for record in records] == [Position(0, depth) for depth in range(2 * len(names))]
        assert sorted(str(record.message.id) for record in records) == sorted(r + n for r in "au" for n in names)
        assert all(str(r.message.turn_id) == "u" + str(r.message.id)[1:] for r in records)
        users = [record for record in records if record.message.role == "user"]
        assert [record.turn_no for record in users] == list(range(len(names)))
        turn_no = {record.message.turn_id: record.turn_no for record in users}
        assert all(record.turn_no == turn_no[record.message.turn_id] for record in records)


# Forgetting


def secrets_in(folder: Path, prefix: str) -> set[str]:
    """The numbers n of all texts "<prefix>n." in any byte of any file."""
    found: set[str] = set()
    for data in everything(folder).values():
        for piece in data.split(prefix.encode())[1:]:
            found.add(piece[:9].split(b".")[0].decode("utf-8", "replace"))
    return found


def hide(session: Session, number: int, chance: random.Random) -> None:
    secret = f"sesame{number}."
    text = secret + "x" * chance.choice([0, 40, 300, 900, 3000, 9000]) + secret
    fields = {"name": secret, "grounding": secret, "payload": {"format": "x", "data": [secret]}}
    record = session.append(MAIN, [draft(f"u{number}", content=text, **fields)]).records[0]  # type: ignore[arg-type]
    vector = secret.encode() + b"v" * chance.choice([60, 1000])
    session.store.keep(session.key, VectorRows("space", [(record.position, f"h{number}", vector)]))


@pytest.mark.parametrize("seed", range(20 if SOAK else 1))
def test_forgotten_bytes_are_in_no_file(path: Path, store: SQLiteStore, seed: int) -> None:
    chance = random.Random(seed)
    sessions = [Session(store, f"s{number}") for number in range(3)]
    for number in range(500):
        session = chance.choice(sessions)
        hide(session, number, chance)
        store.keep(
            session.key, Snapshot("index", b"".join(b"sesame%d." % number for _ in range(99))), session.tree.epoch
        )
        if number % 10 == 9:
            session.forget([r.position for r in session.tree.records if chance.random() < 0.1])
    assert store.scrub() is None
    kept = {str(r.message.id)[1:] for session in sessions for r in session.tree.records}
    assert secrets_in(path.parent, "sesame") == kept
    for session in sessions:
        session.check()


def test_a_reader_delays_the_scrubbing(path: Path, store: SQLiteStore) -> None:
    session = Session(store)
    hide(session, 1, random.Random(1))
    store.scrub()
    with process("hold", path) as reader:
        assert heard(reader) == "ready"
        session.forget([Position(0, 0)])
        reason = store.scrub()
        assert reason is not None
        assert "scrub() again" in reason
        assert secrets_in(path.parent, "sesame") == {"1"}
        tell(reader)
        assert reader.wait() == 0
    assert store.scrub() is None
    assert secrets_in(path.parent, "sesame") == set()
    session.check()


def test_adding_looks_at_as_much_of_a_long_session_as_of_a_short_one(store: SQLiteStore) -> None:
    def steps(name: str, count: int) -> int:
        key = Session(store, name).key
        store.append(key, MAIN, [draft(f"u{number}") for number in range(count)])
        taken = [0]

        def step() -> None:
            taken[0] += 1

        connection = store._db._ready()
        connection.set_progress_handler(step, 1)
        store.append(key, MAIN, [draft(f"new {number}") for number in range(7)])
        connection.set_progress_handler(None, 1)
        return taken[0]

    assert steps("long", 2_000) == steps("short", 20)


# What has changed


def steps_of(store: SQLiteStore, ask: Callable[[], object]) -> int:
    """Return how many instructions of its machine SQLite runs for some statements."""
    steps = 0

    def count() -> int:
        nonlocal steps
        steps += 1
        return 0

    connection = store._db._ready()
    connection.set_progress_handler(count, 1)
    ask()
    connection.set_progress_handler(None, 1)
    return steps


def test_what_has_changed_is_found_without_a_look_at_each_session() -> None:
    """One change takes as many steps among many sessions as among few, whoever they belong to."""
    steps, whole = [], []
    for count in (10, 300):
        with closing(SQLiteStore(":memory:")) as store:
            for number in range(count):
                for user in ("ann", "bob"):
                    store.append(store.create_session(user, str(number)), MAIN, drafts("u1", "a1"))
            mark = store.main_changes("ann").mark
            store.append(3, MAIN, drafts("u2"))
            store.change(5, [Move(MAIN, Position(0, 0), "")])
            assert [key.key for key, _ in store.main_changes("ann", mark).states] == [3, 5]
            steps.append(steps_of(store, partial(store.main_changes, "ann", mark)))
            whole.append(steps_of(store, partial(store.main_changes, "ann")))
    assert steps[0] == steps[1] < whole[0] < whole[1] / 20


def test_many_changes_are_read_with_everything_else(monkeypatch: pytest.MonkeyPatch) -> None:
    """So many, of whoever, that it is faster; or fewer than none, in a file that was put back."""
    monkeypatch.setattr("shared_core.stores.sqlite.sqlite_rows._FEW", 2)
    monkeypatch.setattr("shared_core.stores.sqlite.sqlite_rows._FEW_EACH", 1)
    with closing(SQLiteStore(":memory:")) as store:
        session, other = Session(store, "a", "ann"), Session(store, "b", "bob")
        session.append(MAIN, drafts("u1"))
        mark = store.main_changes("ann").mark
        assert mark is not None
        for number, whole in enumerate((False, False, False, True)):
            other.append(MAIN, drafts(f"u{number}"))
            assert store.main_changes("ann", mark).whole == whole
        for back in ((mark[0] + 9, *mark[1:]), (mark[0], mark[1] + 9, mark[2])):
            assert store.main_changes("ann", back) == store.main_changes("ann")
