"""What several users of one PostgreSQL database do to each other, and what is as on SQLite."""

import os
import threading
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest

from shared_core import PostgresStore
from shared_core.errors import StoreError, StoreUnavailableError
from shared_core.queries import After, Line, Query, State
from shared_core.records import MAIN, Draft, Position, Snapshot, VectorRows
from shared_core.stores.postgres.joint_reads import SPANS
from shared_core.stores.rows import Rows
from shared_core.testing.oracle import ALL, Session, draft, drafts
from tests.stores.postgres_server import Server
from tests.support.documents import blocks_of, run
from tests.support.histories import stored_ids

pytestmark = pytest.mark.server


# Several users of one database


def test_a_child_makes_its_own_connections(address: str) -> None:
    with closing(PostgresStore(address)) as store:
        key = Session(store).key
        store.append(key, MAIN, drafts("u1"))
        child = os.fork()
        if child == 0:
            try:
                store.append(key, MAIN, drafts("u9"))
                os._exit(0 if stored_ids(store, key) == ["u1", "u9"] else 1)
            except BaseException:
                os._exit(2)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        store.append(key, MAIN, drafts("u2"))
        assert stored_ids(store, key) == ["u1", "u9", "u2"]
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
        assert stored_ids(store, key) == ["u1", "u9", "u2", "u3"]


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
        assert stored_ids(store, key) == ["u1"]


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


# What is read together


def one_by_one(store: PostgresStore, key: int, *queries: Query) -> list[Any]:
    """Return what a store that answers each query by itself returns."""
    return store._read(lambda rows: Rows.ask_all(rows, key, queries))


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
                asked = State(branch), After(3, 9), Line(branch, newest, known)
                *found, line = store.read(session.key, *asked)
                *expected, other = one_by_one(store, session.key, *asked)
                assert found == expected
                assert (sorted(line.segments), line.newest) == (sorted(other.segments), other.newest)
                with store.transaction():
                    assert store.read(session.key, *asked) == [*found, line]


# Beside SQLite


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
