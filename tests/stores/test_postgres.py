"""What is particular to PostgreSQL: addresses, schemas, processes, forks, restarts, and errors in words."""

import json
import os
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import quote

import psycopg
import pytest

import shared_core.stores.postgres.migrations as steps
from shared_core import InfiniteMemory, Message, PostgresStore, SessionPool, SQLiteStore
from shared_core.cli.app import run as run_command
from shared_core.errors import (
    DuplicateError,
    MissingExtraError,
    StoreError,
    StoreUnavailableError,
    UnknownReferenceError,
)
from shared_core.records import MAIN, After, Create, Draft, MainChanges, Mark, Position, Snapshot, VectorRows
from shared_core.sharing import foreign, importer, large_conversation, session_tree
from shared_core.sharing.files import export_sessions, import_sessions
from shared_core.store import Store
from shared_core.stores import open_store, read_address, without_password
from shared_core.stores.addresses import split_arguments
from shared_core.stores.postgres import grafts
from shared_core.stores.postgres.joint_reads import SPANS
from shared_core.stores.postgres.schema import MIGRATIONS, Migration
from shared_core.stores.postgres.texts import after_all, plain, text
from shared_core.stores.postgres.transactions import Reader, Statement, Writer
from shared_core.testing.oracle import ALL, Session, draft, drafts
from shared_core.testing.store_contract.change_contract import Follower
from tests.sharing.test_staged_merges import PART, Case, chatgpt, own, reply_first
from tests.stores.postgres_server import Server, running_server
from tests.support.documents import ROOT, blocks_of, run

pytestmark = pytest.mark.server


@pytest.fixture
def database(server: Server, request: pytest.FixtureRequest) -> Iterator[str]:
    """The name of an empty database."""
    name = f"db_{abs(hash(request.node.nodeid))}"
    server.run(f"CREATE DATABASE {name} TEMPLATE template0 ENCODING 'UTF8'")
    yield name
    server.run(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture
def address(server: Server, database: str) -> str:
    return server.address(database)


def ids(store: Any, key: int) -> list[str | None]:
    return [record.message.id for record in store.find(key, After(0, ALL))]


# Addresses


def test_an_address_works_wherever_a_path_does(
    address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with InfiniteMemory(address, session_id="a") as memory:
        memory.add([Message.user("My locker code is 4471."), Message.assistant("Noted.")])
    with closing(open_store(f"{address}&application_name=x")) as store:
        assert isinstance(store, PostgresStore)
        assert [one.session_id for one in store.sessions()] == ["a"]
    with SessionPool(address) as pool, pool.use("a") as memory:
        assert memory.newest(1)[0].content == "Noted."
    monkeypatch.setenv("INFINITE_MEMORY_STORE", address.replace("postgres@", "postgres:secret@"))
    monkeypatch.chdir(tmp_path)
    for command in ("sessions", "search locker --session a", "view --session a --out x.html"):
        assert run_command(command.split()) == 0
    assert run_command(["log", "--session", "none"]) == 1
    assert run_command(["doctor"]) == run_command(["stats", "--all-sessions"]) == 0
    said = capsys.readouterr()
    assert "4471" in said.out
    assert "postgres@" in said.err
    assert "secret" not in said.out + said.err


def test_arguments_are_part_of_an_address(address: str, server: Server, database: str) -> None:
    told = "&schema=a%26b&pool_size=2&partitions=3&statement_timeout=none&retry_seconds=0.5&prepare=false"
    with closing(open_store(address + told)) as store, closing(PostgresStore(address, schema="a&b")) as same:
        store.create_session(None, "s")
        assert [one.session_id for one in same.sessions()] == ["s"]
    assert server.run('SELECT DISTINCT partitions FROM "a&b".infinite_memory', database=database) == [(3,)]
    with pytest.raises(StoreError, match="row_security=True"):
        open_store(f"{address}&row_security=true")


def test_an_address_is_split_into_what_libpq_takes_and_what_the_store_does() -> None:
    assert split_arguments("postgresql://h/d") == ("postgresql://h/d", {})
    asked = "postgresql://h/d?sslmode=prefer&schema=a%20b&prepare=false&host=/tmp&statement_timeout=2.5&pool_size=4"
    rest = {"schema": "a b", "prepare": False, "statement_timeout": 2.5, "pool_size": 4}
    assert split_arguments(asked) == ("postgresql://h/d?sslmode=prefer&host=/tmp", rest)
    for wrong in ("pool_size=x", "prepare=1", "statement_timeout=", "row_security=True", "partitions=1.5"):
        with pytest.raises(ValueError, match=f"{wrong.partition('=')[0]}='.*': expected"):
            split_arguments(f"postgresql://h/d?{wrong}")


@pytest.mark.parametrize("kind", ["redis", "mysql", "postgresql+psycopg"])
def test_other_kinds_are_refused(kind: str) -> None:
    with pytest.raises(ValueError, match="knows SQLite and PostgreSQL"):
        open_store(f"{kind}://host/db")


def test_a_password_is_not_shown() -> None:
    for address in ("postgresql://me:pa%40ss@host:5/db", "postgresql://me@host/db?password=pa%40ss&sslmode=prefer"):
        assert "pa%40" not in without_password(address)
        assert read_address(address) == address
    assert without_password("chat.db") == "chat.db"
    with pytest.raises(ValueError, match="special characters") as refused:
        open_store("postgresql://me:pass/word@host:5x/db")
    assert "pass/" not in str(refused.value)


def test_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    hidden = [name for name in sys.modules if name.startswith("shared_core.stores.postgres")]
    for name in hidden:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.delattr("shared_core.stores.postgres")
    monkeypatch.setattr("shared_core.embedders.checks.find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match=r"infinite-memory\[postgres\]"):
        open_store("postgresql://host/db")


def test_bad_arguments_are_named(address: str) -> None:
    for arguments in (
        {"schema": ""}, {"schema": "é" * 32}, {"schema": "a\0"}, {"pool_size": 0}, {"partitions": 0},
        {"partitions": 2000},
        {"statement_timeout": 0}, {"retry_seconds": -1},
    ):  # fmt: skip
        with pytest.raises(ValueError, match=next(iter(arguments))):
            PostgresStore(address, **arguments)


# Servers and schemas


def test_what_cannot_be_reached_is_named_without_a_password(server: Server) -> None:
    for wrong, what in (
        (f"postgresql://me:secret@/x?host={quote('/nowhere')}", "cannot be used just now"),
        (f"postgresql://me:secret@/x?host={server.folder}", "role .* does not exist"),
        (f"postgresql://postgres:secret@/none?host={server.folder}", "database .* does not exist"),
    ):
        with pytest.raises(StoreError, match=what) as refused:
            PostgresStore(wrong)
        assert "secret" not in f"{refused.value!r} {refused.value.__cause__!r}"


def test_an_unfit_database_is_refused(server: Server, database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    server.run("CREATE DATABASE latin TEMPLATE template0 ENCODING 'LATIN1' LOCALE 'C'")
    with pytest.raises(StoreError, match="ENCODING 'UTF8'"):
        PostgresStore(server.address("latin"))
    server.run("DROP DATABASE latin WITH (FORCE)")
    monkeypatch.setattr(steps, "OLDEST_SERVER", 990_000)
    with pytest.raises(StoreError, match="use version 99 or newer"):
        PostgresStore(server.address(database))
    monkeypatch.undo()
    server.run("CREATE ROLE guest LOGIN")
    with pytest.raises(StoreError, match=r"permission denied for database .* grant this right"):
        PostgresStore(server.address(database, user="guest"))
    server.run("DROP ROLE guest")


def test_a_schema_of_another_program_is_left_alone(server: Server, database: str, address: str) -> None:
    server.run("CREATE SCHEMA theirs; CREATE TABLE theirs.x (y int)", database=database)
    with pytest.raises(StoreError, match=r"'theirs' .* belongs to another program"):
        PostgresStore(address, schema="theirs")
    tables = "SELECT count(*) FROM pg_class AS c WHERE relnamespace = 'theirs'::regnamespace"
    assert server.run(tables, database=database) == [(1,)]


@pytest.mark.parametrize("name", ['a"b', "a'b", "A %s", "{s}", "é" * 31, "%(session)s"])
def test_any_name_of_a_schema_works(address: str, name: str) -> None:
    with closing(PostgresStore(address, schema=name)) as store:
        session = Session(store)
        session.append(MAIN, drafts("u1", "a1"))
        session.merge(MAIN, Position(0, 0))
        session.forget([Position(0, 1)])
        session.check()
    with closing(PostgresStore(address, schema="other")) as store:
        assert store.sessions() == []


def test_partitions_stay_what_they_are(address: str) -> None:
    PostgresStore(address, partitions=3).close()
    PostgresStore(address).close()
    with pytest.raises(StoreError, match="split into 3 partitions, not 4"):
        PostgresStore(address, partitions=4)


def test_one_of_many_processes_makes_the_schema(server: Server, database: str, address: str) -> None:
    starts, says = os.pipe(), os.pipe()
    children = []
    for _ in range(10):  # forked, because ten imports take longer than all other tests
        child = os.fork()
        if child == 0:
            try:
                os.close(starts[1])
                os.read(starts[0], 1)  # until all are there
                with closing(PostgresStore(address, partitions=2)) as store:
                    os.write(says[1], f"{store.create_session(None, 's')} ".encode())
                os._exit(0)
            except BaseException:
                os._exit(1)
        children.append(child)
    for end in (starts[0], starts[1], says[1]):
        os.close(end)
    assert [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children] == [0] * 10
    keys = os.read(says[0], 1000).split()
    assert (len(keys), len(set(keys))) == (10, 1)
    record = "SELECT version, partitions FROM infinite_memory.infinite_memory ORDER BY version"
    assert server.run(record, database=database) == [(step, 2) for step in range(1, len(MIGRATIONS) + 1)]


def test_a_worker_of_the_version_before_goes_on_as_long_as_it_may(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = list(MIGRATIONS)
    fits = Migration("a column", len(known), ("ALTER TABLE {s}.names ADD COLUMN hue text",))
    parts = Migration("a table", len(known) + 2, ("CREATE TABLE {s}.hues (hue text)",))
    with closing(PostgresStore(address)) as old:
        monkeypatch.setattr(steps, "MIGRATIONS", [*known, fits])
        PostgresStore(address).close()
        monkeypatch.setattr(steps, "MIGRATIONS", known)
        old.database._connections.drop_idle()
        old.create_session(None, "after a step that it may ignore")
        PostgresStore(address).close()
        monkeypatch.setattr(steps, "MIGRATIONS", [*known, fits, parts])
        PostgresStore(address).close()
        monkeypatch.setattr(steps, "MIGRATIONS", known)
        old.database._connections.drop_idle()
        with pytest.raises(StoreError, match="upgrade infinite-memory"):
            old.create_session(None, "after one that it may not")
        with pytest.raises(StoreError, match=f"for programs from {len(known) + 2} on, known here: {len(known)}"):
            PostgresStore(address)


# What has changed


class MarksTheNewestTransaction(PostgresStore):
    """Reads on from the newest number given out, as one does with numbers from a sequence."""

    def main_changes(self, user_id: str | None, since: Mark | None = None) -> MainChanges:
        found = super().main_changes(user_id, since)
        with self.database.reading() as statements:
            ((newest,),) = statements.run("SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint", None)
        return found._replace(mark=(newest, *(found.mark or ())[1:]))


@pytest.mark.parametrize("kind", [PostgresStore, MarksTheNewestTransaction])
def test_a_change_that_is_committed_after_a_later_one_is_told(address: str, kind: type[PostgresStore]) -> None:
    with closing(PostgresStore(address)) as slow, closing(kind(address)) as reader:
        first, second = Session(slow, "first", "ann"), Session(slow, "second", "ann")
        reading = Follower(reader, "ann")
        with slow.transaction():
            slow.append(first.key, MAIN, drafts("u1"))
            with closing(PostgresStore(address)) as fast:
                fast.append(second.key, MAIN, drafts("u1"))
            reading.ask()
            assert [key.session_id for key in reading.states] == ["second"]
        reading.ask()
        told = sorted(key.session_id for key in reading.states)
        assert told == (["first", "second"] if kind is PostgresStore else ["second"])


def test_numbers_of_another_server_are_not_compared(address: str) -> None:
    """What was copied from one that had counted further is there; what changes from now on is told."""
    with closing(PostgresStore(address)) as store:
        session = Session(store, "s", "ann")
        session.append(MAIN, drafts("u1"))
        known = store.main_changes("ann")
        assert known.mark is not None
        assert store.main_changes("ann", (known.mark[0], known.mark[1] + 1))[::2] == known[::2]
        with store.database.writing() as rows:
            rows.run("UPDATE {s}.sessions SET changed = 1::bigint << 60", None)
        assert store.main_changes("ann", known.mark).states == []
        session.append(MAIN, drafts("a1"))
        assert [state.last_seq for _, state in store.main_changes("ann", known.mark).states] == [2]


def test_a_schema_of_before_knows_whose_the_sessions_are(server: Server, database: str, address: str) -> None:
    """As another object of the newest version sees them, with what it tells from then on."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(steps, "MIGRATIONS", MIGRATIONS[:6])
        PostgresStore(address, partitions=2).close()
    for number, quoted in enumerate(("'ann'", "NULL", "'bob'"), 1):
        names = f"INSERT INTO infinite_memory.names VALUES ({number}, {quoted}, 's', true, now())"
        server.run(names, database=database)
        server.run(f"INSERT INTO infinite_memory.sessions VALUES ({number}, 0, 0, 0, 0)", database=database)
    with closing(PostgresStore(address)) as store:
        for number, user in enumerate(("ann", None, "bob"), 1):
            mark = store.main_changes(user).mark
            store.rename_session(number, "t")
            assert [key for key, _ in store.main_changes(user, mark).states] == [(number, user, "t")]


# Texts


def test_texts_are_escaped_reversibly_and_keep_their_beginnings() -> None:
    odd = ["", "\0", "\x10", "\x100000", "\ud800", "\ud83d\ude00", "😀", "a\x10\0", "\x10\x10"]
    assert [plain(text(one)) for one in odd] == odd
    assert len({text(one) for one in odd}) == len(odd)
    for one in odd:
        for other in odd:
            assert text(one).startswith(text(other)) == one.startswith(other)
    given = ("a", "a\U0010ffff", "\U0010ffff", "", "\ud7ff")
    assert [after_all(one) for one in given] == ["b", "b", None, None, "\ue000"]


def test_what_is_too_large_is_refused_by_name(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shared_core.stores.postgres.message_tables._LARGEST", 1_000)
    with closing(PostgresStore(address)) as store:
        key = store.create_session(None, "s")
        with pytest.raises(StoreError, match=r"message 'u2' cannot be stored: a text may have 1,000 bytes at most"):
            store.append(key, MAIN, [draft("u1"), draft("u2", content="é" * 501)])
        long = os.urandom(3_000).hex()
        with pytest.raises(StoreError, match=f"message '{long[:100]}' cannot be stored: its id is too long"):
            store.append(key, MAIN, [draft("u1"), draft(long, content="x")])
        assert ids(store, key) == []


# Damage


@pytest.mark.parametrize(
    ("change", "read", "what"),
    [
        ("UPDATE {s}.messages SET content = 'changed' WHERE seq = 1", lambda s, k: ids(s, k), "message 'u1'"),
        ("UPDATE {s}.branches SET depth = 0", lambda s, k: s.state(k, MAIN), "branch 'main'"),
        ("UPDATE {s}.segments SET turn_shift = 1", lambda s, k: s.segment(k, 0), "segment 0"),
    ],
)
def test_a_row_that_was_changed_is_noticed(address: str, change: str, read: Callable[..., object], what: str) -> None:
    with closing(PostgresStore(address)) as store:
        key = Session(store).key
        store.append(key, MAIN, drafts("u1", "a1"))
        store.database.outside(change)
        with pytest.raises(StoreError, match=f"{what}.*its checksum is wrong"):
            read(store, key)


READS: list[Callable[[PostgresStore, int], object]] = [
    lambda store, key: store.find(key, After(0, ALL)),
    lambda store, key: store.get(key, [Position(0, 1), Position(0, 3)]),
    lambda store, key: store.at({key: [Position(0, 1), Position(0, 3)]}, {key: 1}),
    lambda store, key: store.newest(key, Position(0, 4), 3),
    lambda store, key: store.catch_up(key, MAIN, 0, 4),
    lambda store, key: store.check_out(key, MAIN, None, after_seq=9, limit=9, newest=5),
    lambda store, key: store.check_out(key, "side", None, after_seq=9, limit=9, newest=5),
]


def test_a_message_that_was_lost_is_noticed(address: str) -> None:
    """What was forgotten is not missed; and a session that has lost something can be forgotten."""
    with closing(PostgresStore(address)) as store:
        session = Session(store)
        key = session.key
        session.append(MAIN, drafts("u1", "a1", "u2", "a2", "u3", "a3"))
        session.append("side", drafts("u4", "a4"), at=Position(0, 3))
        session.forget([Position(0, 1), Position(0, 4)])
        session.check()
        for read in READS:
            read(store, key)
        store.database.outside("DELETE FROM {s}.messages WHERE seq = 4")
        for read in READS:
            with pytest.raises(StoreError, match="1 message of session 's' cannot be read: missing after message 'u2'"):
                read(store, key)
        store.database.outside("DELETE FROM {s}.messages WHERE seq = 8")
        with pytest.raises(StoreError, match="missing after message 'u4'"):
            store.catch_up(key, MAIN, 7, ALL)
        positions = [position for position, _ in store.stored(key)]
        store.forget(key, positions, branches=True)
        assert store.catch_up(key, MAIN, 0, ALL)[1] == []
        store.append(key, MAIN, drafts("u9"))
        assert ids(store, key) == ["u9"]


def test_gaps_of_a_database_without_them_are_found(address: str) -> None:
    """They are those that were noted when the messages were forgotten, or passed over."""
    with closing(PostgresStore(address)) as store:
        session = Session(store)
        session.append(MAIN, drafts("u1", "a1", "u2", "a2"))
        session.append("side", drafts("u3", "a3", "u4"), at=Position(0, 1))
        session.merge(MAIN, session.tree.branches["side"])
        session.append(MAIN, drafts("u5", "a5"))
        session.forget([Position(0, 0), Position(1, 3), Position(1, 4), session.tree.branches[MAIN]])
        other = Session(store, "all gone")
        other.append(MAIN, drafts("u1", "a1"))
        other.forget([Position(0, 0), Position(0, 1)])
        expand = "SELECT DISTINCT session, segment, generate_series(start, upto) FROM {s}.gaps ORDER BY 1, 2, 3"
        with store.database.writing() as rows:
            noted = rows.run(expand, None)
            rows.run("DELETE FROM {s}.gaps", None)
            for statement in MIGRATIONS[3].statements:
                if statement.startswith("INSERT"):
                    rows.run(statement, None)
            assert rows.run(expand, None) == noted
            assert len(noted) == 2 * 6


# Several users of one database


def test_a_child_makes_its_own_connections(address: str) -> None:
    with closing(PostgresStore(address)) as store:
        key = Session(store).key
        store.append(key, MAIN, drafts("u1"))
        child = os.fork()
        if child == 0:
            try:
                store.append(key, MAIN, drafts("u9"))
                os._exit(0 if ids(store, key) == ["u1", "u9"] else 1)
            except BaseException:
                os._exit(2)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        store.append(key, MAIN, drafts("u2"))
        assert ids(store, key) == ["u1", "u9", "u2"]
        with store.transaction():
            store.append(key, MAIN, drafts("u3"))
            child = os.fork()
            if child == 0:
                try:
                    store.state(key)
                except StoreError as error:
                    os._exit(0 if "forked in the middle" in str(error) else 1)
                os._exit(2)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert ids(store, key) == ["u1", "u9", "u2", "u3"]


def test_writers_wait_for_the_session_and_readers_see_no_gaps(address: str) -> None:
    """Two objects append to one session while a third follows by number."""
    with closing(PostgresStore(address)) as store:
        key = Session(store).key
        seen: list[int] = []

        def write(name: int) -> None:
            with closing(PostgresStore(address)) as own:
                for number in range(15):
                    own.append(key, MAIN, drafts(f"u{name}-{number}"))

        writers = [threading.Thread(target=write, args=(name,)) for name in range(3)]
        for writer in writers:
            writer.start()
        while any(writer.is_alive() for writer in writers) or len(seen) < 45:
            seen += [record.seq for record in store.find(key, After(seen[-1] if seen else 0, ALL))]
            assert seen == list(range(1, len(seen) + 1))
        assert len(seen) == 45


def test_a_deadlock_is_repeated(address: str) -> None:
    """Two calls that lock two sessions in opposite orders both happen."""
    with closing(PostgresStore(address)) as store:
        one, two = Session(store, "one").key, Session(store, "two").key
        store.append(one, MAIN, drafts("u1"))
        meeting = threading.Barrier(2, timeout=30)
        met: list[str] = []

        def both(first: int, second: int, id_: str) -> None:
            def call() -> None:
                with store.database.writing() as statements:
                    lock = "SELECT 1 FROM {s}.sessions WHERE session = %(session)s"
                    statements.run(lock, first)
                    if len(met) < 2:
                        met.append(id_)
                        meeting.wait()
                    statements.run(lock, second)
                    met.append(id_)

            store.database.repeated(call)

        threads = [threading.Thread(target=both, args=(*pair, str(pair))) for pair in ((one, two), (two, one))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(met) == 4


def test_what_takes_too_long_is_unavailable(address: str) -> None:
    with closing(PostgresStore(address, statement_timeout=0.05, retry_seconds=0)) as store:
        key = Session(store).key
        with closing(PostgresStore(address)) as other, other.transaction():
            other.append(key, MAIN, drafts("u1"))
            with pytest.raises(StoreUnavailableError, match="larger one"):
                store.append(key, MAIN, drafts("u2"))
        assert ids(store, key) == ["u1"]


def test_a_full_pool_is_unavailable(address: str) -> None:
    with closing(PostgresStore(address, pool_size=1, retry_seconds=0)) as store:
        refused: list[BaseException] = []

        def ask() -> None:
            try:
                store.sessions()
            except StoreUnavailableError as error:
                refused.append(error)

        with store.transaction():
            store.sessions()
            thread = threading.Thread(target=ask)
            thread.start()
            thread.join()
        assert "larger pool_size" in str(refused[0])
        assert store.sessions() == []


# Imports


def test_a_stage_is_seen_when_it_is_published_and_its_rows_go_with_it(
    address: str, server: Server, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shared_core.stores.postgres.stages.REMOVED", 2)
    with closing(PostgresStore(address)) as store:
        one, two, old = (store.stage() for _ in range(3))
        assert one is not None
        assert two is not None
        assert old is not None
        for key in (one, two):
            store.append(key, MAIN, drafts("u1", "a1", "u2"))
        assert (store.sessions(), store.overview(), store.main_states()) == ([], [], [])
        store.create_session(None, "taken")
        assert store.publish({one: ("ann", "a"), two: (None, "taken")}) is False
        assert store.publish({one: ("ann", "a")}) is True
        store.unstage([one, two])
        assert [info.messages for info in store.overview()] == [3]
        store.database.outside("UPDATE {s}.names SET created_at = created_at - interval '2 days' WHERE NOT listed")
        fresh = store.stage()
        assert fresh is not None
        with pytest.raises(StoreError, match="took a day"):
            store.publish({old: (None, "b")})
        keys = server.run("SELECT session FROM infinite_memory.sessions ORDER BY session", database=database)
        assert keys == [(one,), (store.session(None, "taken"),), (fresh,)]
        assert server.run("SELECT DISTINCT session FROM infinite_memory.messages", database=database) == [(one,)]


@pytest.mark.parametrize("make", [own, chatgpt, reply_first])
def test_a_large_import_into_a_session_is_that_of_sqlite(
    address: str, make: Callable[[Path], Case], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By way of a stage, whose messages become a part of the session."""
    case = make(tmp_path)
    export_sessions(case.database, tmp_path / "before.jsonl", vectors=True)
    held = []
    with closing(PostgresStore(address, partitions=2)) as server, closing(SQLiteStore(":memory:")) as plain_import:
        for store, large in ((server, PART), (plain_import, 10**9)):
            import_sessions(store, tmp_path / "before.jsonl")
            with monkeypatch.context() as sizes:
                sizes.setattr(importer, "LARGE", large)
                for module in (importer, foreign, large_conversation):
                    sizes.setattr(module, "BATCH", PART)
                sizes.setattr(session_tree, "PAGE", PART)
                sizes.setattr(grafts, "_PAGE", 7)
                import_sessions(store, case.file)
                assert import_sessions(store, case.file)[0].known
            export_sessions(store, tmp_path / "after.jsonl", vectors=True)
            lines = map(json.loads, (tmp_path / "after.jsonl").read_text(encoding="utf-8").splitlines()[:-1])
            held.append([{key: value for key, value in line.items() if key != "created_at"} for line in lines])
        with server.database.reading() as rows:
            left = rows.run("SELECT count(*) FROM {s}.names WHERE NOT listed", None)
    assert held[0] == held[1]
    assert left == [(0,)]


def test_a_stage_becomes_a_part_of_a_session_once(address: str) -> None:
    with closing(PostgresStore(address)) as store:
        session, stage = store.create_session(None, "s"), store.stage()
        assert stage is not None
        assert store.graft(stage, session, [], grown={}) == {}
        with pytest.raises(UnknownReferenceError, match="import again"):
            store.graft(stage, session, [], grown={})


# What is read together


def test_a_long_line_is_checked_out_as_one_after_the_other_reads_it(address: str) -> None:
    """Of more segments than one statement reads the newest messages of, some of them empty, and one a merge."""
    with closing(PostgresStore(address, partitions=2)) as store:
        session = Session(store)
        session.append(MAIN, drafts("u0", "a0", "s0"))
        for number in range(1, 2 * SPANS + 2):
            before = session.tree.branches[f"b{number - 1}" if number > 1 else MAIN]
            session.append(f"b{number}", drafts(f"u{number}", f"a{number}"), at=before._replace(depth=before.depth - 1))
            end = session.tree.branches[f"b{number}"]
            if number % 3 == 0:
                session.forget([end, end._replace(depth=end.depth - 1)])
        session.merge(MAIN, session.tree.branches["b3"])
        session.append(MAIN, drafts("u99"))
        for branch in (f"b{2 * SPANS + 1}", "b5", "b3", MAIN):
            for newest in (0, 1, 5, 15, ALL):
                known = {segment.segment: segment for segment in (store.segment(session.key, n) for n in (0, 4))}
                asked = {"after_seq": 3, "limit": 9, "newest": newest, "known": known}
                found = store.check_out(session.key, branch, None, **asked)  # type: ignore[arg-type]
                expected = Store.check_out(store, session.key, branch, None, **asked)  # type: ignore[arg-type]
                assert found._replace(segments=sorted(found.segments)) == expected._replace(
                    segments=sorted(expected.segments)
                )
                with store.transaction():
                    assert store.check_out(session.key, branch, None, **asked) == found  # type: ignore[arg-type]


def test_what_was_forgotten_is_known_as_on_sqlite(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also by a store opened later; but not of more messages at once than are noted."""
    monkeypatch.setattr("shared_core.stores.row_values._REMEMBERED", 3)
    found = []
    for store in (PostgresStore(address, partitions=2), SQLiteStore(":memory:")):
        with closing(store):
            key = Session(store).key
            store.append(key, MAIN, drafts("u1", "a1", "u2", "a2", "u3", "a3"))
            places = [Position(0, depth) for depth in range(6)]
            store.forget(key, places[:4])
            store.forget(key, [places[4]], stale=[places[5], Position(0, 9)])
            store.forget(key, [])
            found.append([store.forgotten_since(key, epoch) for epoch in range(4)])
    assert found[0] == found[1]
    assert found[0] == [None, ([places[4]], [places[5], Position(0, 9)]), ([], []), ([], [])]


# Restarts


@pytest.fixture(scope="module")
def fragile() -> Iterator[Server]:
    """A server of its own, to be stopped and started again."""
    with running_server() as server:
        yield server


def test_a_restart_costs_nothing_but_time(fragile: Server) -> None:
    with closing(PostgresStore(fragile.address(), schema="restart", retry_seconds=60)) as store:
        key = Session(store).key
        store.append(key, MAIN, drafts("u1"))
        fragile.control("restart", "-m", "immediate")
        assert ids(store, key) == ["u1"]
        fragile.control("restart", "-m", "fast")
        assert store.append(key, MAIN, drafts("u2")).head == Position(0, 1)


def test_while_the_server_is_away_nothing_is_half_done(fragile: Server) -> None:
    with closing(PostgresStore(fragile.address(), schema="away", retry_seconds=0.1)) as store:
        key = Session(store).key
        store.append(key, MAIN, drafts("u1"))

        def half_of_it() -> None:
            with store.transaction():
                store.append(key, MAIN, drafts("u2"))
                fragile.control("stop", "-m", "immediate")
                store.append(key, MAIN, drafts("u3"))

        with pytest.raises(StoreUnavailableError, match="cannot be used just now"):
            half_of_it()
        for call in (lambda: store.state(key), lambda: store.append(key, MAIN, drafts("u4"))):
            with pytest.raises(StoreUnavailableError):
                call()
        fragile.control("start")
        store.append(key, MAIN, drafts("u5"))
        assert ids(store, key) == ["u1", "u5"]


@pytest.mark.parametrize("end", [(Writer, "commit"), (Reader, "at_once")], ids=["locked", "at once"])
def test_a_change_that_nobody_can_tell_of_is_said_so(
    fragile: Server, end: tuple[type[Reader], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server goes away with the answer to a change, and does not come back in time."""
    with closing(PostgresStore(fragile.address(), schema=f"lost {end[1]}", retry_seconds=0.1)) as store:
        key, changes = Session(store).key, [] if end[0] is Reader else [Create("side", Position(0, -1))]

        def lost(*_: object) -> None:
            fragile.control("stop", "-m", "immediate")
            raise psycopg.OperationalError("consuming input failed")

        with monkeypatch.context() as broken:
            broken.setattr(*end, lost)
            with pytest.raises(StoreUnavailableError, match="cannot be asked whether it happened"):
                store.append(key, MAIN, drafts("u1"), changes=changes)
        fragile.control("start")
        store.append(key, MAIN, drafts("u1", "a1"))
        assert ids(store, key) == ["u1", "a1"]


@pytest.mark.parametrize("taken", [False, True])
def test_after_a_crash_the_number_of_a_lost_transaction_may_be_that_of_another(
    fragile: Server, taken: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that crashes before it has written anything of a change gives its number again."""
    fragile.run("ALTER SYSTEM SET wal_writer_delay = '10s'")
    fragile.control("reload")
    with closing(PostgresStore(fragile.address(), schema=f"crash {taken}", retry_seconds=60)) as store:
        key = Session(store).key
        store.append(key, MAIN, drafts("u1"))
        commit = Writer.commit

        def crashing(writer: Writer) -> None:
            monkeypatch.setattr(Writer, "commit", commit)
            fragile.control("restart", "-m", "immediate")
            assert not taken or fragile.run("SELECT pg_current_xact_id()::text") == [(writer.number,)]
            writer.commit()

        monkeypatch.setattr(Writer, "commit", crashing)
        if taken:
            with pytest.raises(StoreUnavailableError, match="whether it happened"):
                store.change(key, [Create("side", Position(0, 0))])
        else:
            store.change(key, [Create("side", Position(0, 0))])
        assert [branch.name for branch in store.branches(key)] == [MAIN, *([] if taken else ["side"])]


def test_a_standby_is_refused_and_one_that_becomes_the_primary_is_waited_for(fragile: Server) -> None:
    with closing(PostgresStore(fragile.address(), schema="standby", retry_seconds=0.1)) as store:
        key = Session(store).key
        fragile.control("stop", "-m", "fast")
        (fragile.folder / "standby.signal").touch()
        fragile.control("start")
        with pytest.raises(StoreError, match="read-only standby"):
            PostgresStore(fragile.address(), schema="standby")
        assert ids(store, key) == []
        with pytest.raises(StoreUnavailableError, match="recovery"):
            store.append(key, MAIN, drafts("u1"))
        fragile.control("promote")
        store.append(key, MAIN, drafts("u2"))
        assert ids(store, key) == ["u2"]


@pytest.mark.parametrize("happened", [True, False])
def test_a_commit_whose_answer_is_lost_happens_once(
    address: str, server: Server, database: str, happened: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The connection breaks just before or just after the commit; either way the branch is created once."""
    with closing(PostgresStore(address)) as store:
        key = Session(store).key
        commit, broken = Writer.commit, list[str | None]()

        def lossy(writer: Writer) -> None:
            if happened:
                commit(writer)
            if not broken:
                broken.append(writer.number)
                server.run(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s AND pid <> "
                    "pg_backend_pid() AND application_name = 'infinite-memory'", database,
                )  # fmt: skip
                raise psycopg.OperationalError("consuming input failed")
            if not happened:
                commit(writer)

        monkeypatch.setattr(Writer, "commit", lossy)
        appended = store.append(key, "side", drafts("u1"), at=Position(0, -1))
        assert appended.added == {"u1"}
        assert len(broken) == 1
        assert [branch.name for branch in store.branches(key)] == [MAIN, "side"]
        assert ids(store, key) == ["u1"]
        with pytest.raises(DuplicateError):
            store.append(key, "side", drafts("u2"), at=Position(0, -1))


@pytest.mark.parametrize("happened", [True, False])
def test_what_is_stored_at_once_is_stored_once_whether_or_not_its_answer_arrives(
    address: str, happened: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Known or not known before, and if another object stores something meanwhile."""
    with closing(PostgresStore(address)) as store, closing(PostgresStore(address)) as other:
        session = Session(store)
        at_once, left, meanwhile = Reader.at_once, list[int](), list[Callable[[], object]]()

        def lossy(reader: Reader, statements: Sequence[Statement]) -> list[Any]:
            lost = left.pop() if left else 0
            done = at_once(reader, statements) if happened or not lost else []
            if meanwhile:
                meanwhile.pop()()
            if lost:
                raise psycopg.OperationalError("consuming input failed")
            return done

        monkeypatch.setattr(Reader, "at_once", lossy)
        for number, known in enumerate((False, True, True)):
            knows = session.known(MAIN) if known else None
            left[:] = [1] if happened else [1, 1]
            added = session.append(MAIN, drafts(f"u{number}", f"a{number}"), known=knows).added
            assert added == {f"u{number}", f"a{number}"}
            assert not left
        session.check()
        left[:] = [1]
        meanwhile[:] = [lambda: other.append(session.key, MAIN, drafts("u8"))]
        store.append(session.key, MAIN, drafts("u9"), known=session.known(MAIN))
        expected = ["u9", "u8"] if happened else ["u8", "u9"]
        assert ids(store, session.key)[-2:] == expected
        assert [r.seq for r in store.find(session.key, After(0, 99))] == list(range(1, 9))


# Beside SQLite


def test_prompts_and_reports_are_those_of_sqlite(address: str, tmp_path: Path) -> None:
    """The example conversation, brought in and asked in the same way."""
    said = ROOT / "examples" / "data" / "conversation.json"
    questions = ("What was the code of my locker at the climbing hall?", "What noisy present did my sister post to us?")
    with closing(PostgresStore(address, partitions=4)) as server, closing(SQLiteStore(tmp_path / "chat.db")) as file:
        import_sessions(file, said)
        (name,) = {one.session_id for one in file.sessions()}
        with InfiniteMemory(file, session_id=name) as memory:
            memory.index()
        exported = tmp_path / "all.jsonl"
        export_sessions(file, exported, vectors=True)
        import_sessions(server, exported)
        for question in questions:
            answers = []
            for store in (server, file):
                with InfiniteMemory(store, session_id=name, max_tokens=2_000) as memory:
                    memory.index()
                    context = memory.context(question)
                    answers.append((context.messages, context.report.to_dict()))
            assert answers[0] == answers[1]
        again = tmp_path / "again.jsonl"
        export_sessions(server, again, vectors=True)
        assert again.read_bytes() == exported.read_bytes()


def test_the_page_on_scaling_runs(address: str, server: Server, database: str, tmp_path: Path) -> None:
    scripts = blocks_of("docs/scaling.md", tmp_path)
    server.run("DROP ROLE IF EXISTS web; CREATE ROLE web LOGIN")
    for script in scripts:
        source = script.read_text(encoding="utf-8")
        source = source.replace("postgresql://app@localhost:5432/chats", address)
        source = source.replace("postgresql://web@localhost:5432/chats", server.address(database, user="web"))
        script.write_text(source, encoding="utf-8")
    assert [ran.out for ran in run(scripts, tmp_path)] == ["My locker code is 4471.\n", "2\n", "0 1\n", ""]


def test_forgotten_rows_are_vacuumed_where_they_were(address: str, server: Server, database: str) -> None:
    """In the partition of their session alone, also by another worker; what was forgotten meanwhile waits."""
    with closing(PostgresStore(address, partitions=4)) as store, closing(PostgresStore(address)) as other:
        keys = [Session(store, f"s{number}").key for number in range(6)]
        for key in keys:
            store.append(key, MAIN, [Draft(draft("u1", content="a secret" * 40).message)])
            store.keep(key, VectorRows("space", [(Position(0, 0), "h", b"v")]))
            store.keep(key, Snapshot("a", b"data"), 0)
        store.forget(keys[0], [Position(0, 0)])
        (mine,) = server.run(
            f"SELECT tableoid FROM infinite_memory.messages WHERE session = {keys[0]} UNION "
            f"SELECT tableoid FROM infinite_memory.sessions WHERE session = {keys[0]}", database=database,
        )  # fmt: skip
        part = server.run(f"SELECT right(relname, 2) FROM pg_class WHERE oid = {mine[0]}", database=database)[0][0]
        assert other.scrub() is None
        dead = (
            "SELECT relname FROM pg_stat_user_tables WHERE relname ~ '^(messages|vectors|snapshots)_' "
            "AND vacuum_count > 0 ORDER BY 1"
        )
        assert server.run(dead, database=database) == [
            (f"{one}{part}",) for one in ("messages", "snapshots", "vectors")
        ]
        assert store.scrub() is None
        counts = f"SELECT vacuum_count FROM pg_stat_user_tables WHERE relname = 'messages{part}'"
        assert server.run(counts, database=database) == [(1,)]
        for key in keys[1:]:
            store.forget(key, [Position(0, 0)])
        assert store.scrub() is None
        size = "SELECT sum(pg_relation_size(oid)) FROM pg_class WHERE relname ~ '^(messages|vectors|snapshots)_[0-9]$'"
        assert server.run(size, database=database) == [(0,)]


def test_what_is_forgotten_while_others_are_scrubbed_is_scrubbed_later(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with closing(PostgresStore(address)) as store:
        key = Session(store).key
        store.append(key, MAIN, drafts("u1", "a1"))
        store.forget(key, [Position(0, 0)])
        outside, vacuumed = store.database.outside, list[str]()

        def slow(sql: str) -> None:
            outside(sql)
            if not vacuumed:
                store.forget(key, [Position(0, 1)])
            vacuumed.append(sql)

        monkeypatch.setattr(store.database, "outside", slow)
        for count in (1, 2, 2):
            store.scrub()
            assert len(vacuumed) == count


def test_a_scrub_that_takes_too_long_is_tried_again_later(address: str, server: Server, database: str) -> None:
    with closing(PostgresStore(address, statement_timeout=0.05)) as hasty, closing(PostgresStore(address)) as store:
        key = Session(store).key
        store.append(key, MAIN, drafts("u1"))
        store.forget(key, [Position(0, 0)])
        with psycopg.connect(address) as other:
            other.execute("LOCK infinite_memory.messages IN SHARE UPDATE EXCLUSIVE MODE")
            assert "call scrub()" in str(hasty.scrub())
        assert store.scrub() is None
        vacuumed = "SELECT vacuum_count FROM pg_stat_user_tables WHERE relname = 'messages'"
        assert server.run(vacuumed, database=database) == [(1,)]
