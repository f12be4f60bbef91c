"""How PostgreSQL finds what a statement is about: in one partition, and by an index that begins with the session."""

import re
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from importlib import import_module
from types import ModuleType
from typing import Any

import psycopg
import pytest

from shared_core import PostgresStore
from shared_core.errors import InfiniteMemoryError
from shared_core.queries import After, State
from shared_core.records import MAIN, Delete, Drop, Merge, Position, Put, Rename, VectorRows
from shared_core.store import Store
from shared_core.stores.postgres.connections import adapt
from shared_core.testing.oracle import Session, drafts, of_texts
from tests.stores.postgres_server import Server
from tests.stores.test_row_security import WITH_KEY, fill
from tests.support.documents import ROOT

pytestmark = pytest.mark.server

PARTITIONS = 4

OTHERS = (
    "INSERT INTO infinite_memory.names "
    "SELECT n, CASE WHEN n % 2 = 0 THEN 'ann' ELSE 'u' || n END, 's' || n "
    "FROM generate_series(1000000, 1020000) AS n"
)
"""Other sessions, half of them of the same user, so that it makes a difference to look at all of them."""


@pytest.fixture
def plans(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """What the benchmark of stores has to record statements and to judge plans."""
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    return import_module("stores_plans")


@pytest.fixture
def ran(plans: ModuleType) -> Iterator[dict[str, Any]]:
    """The statements that were run from here on, each once."""
    with plans.recording(others=True) as found:
        yield found


def use_everything(store: PostgresStore, name: str, user: str) -> None:
    """Call every method that names a session, and every kind of change."""
    session = Session(store, name, user)
    key = session.key
    fill(session)
    changes = [
        Merge(MAIN, session.tree.branches["side"], ""), Rename("side", "aside"), Put("stash", MAIN, Position(0, 1)),
        Delete("aside"), Drop(store.refs(key, "tag")[0].number),
    ]  # fmt: skip
    store.change(key, changes)  # type: ignore[arg-type]
    for call in WITH_KEY.values():
        try:
            call(store, key)
        except InfiniteMemoryError:
            continue


@pytest.mark.parametrize("user", ["postgres", "planner"])
def test_every_statement_on_a_session_looks_into_one_partition_by_an_index(
    server: Server, plans: ModuleType, ran: dict[str, Any], user: str
) -> None:
    """As the owner, and under row security. The planner is told to read a whole table only if there is no other way."""
    server.run(f"CREATE DATABASE plans_{user}")
    address = server.address(f"plans_{user}")
    with closing(PostgresStore(address, partitions=PARTITIONS)) as store:
        if user == "postgres":
            use_everything(store, "s", "ann")
        else:
            server.run(f"CREATE ROLE {user} LOGIN")
            store.grant(user)
            with closing(PostgresStore(server.address(f"plans_{user}", user=user), row_security=True)) as guarded:
                use_everything(guarded.for_user("ann"), "s", "ann")
    server.run(OTHERS, database=f"plans_{user}")
    server.run("ANALYZE", database=f"plans_{user}")
    on_sessions = [one for one in ran.values() if one.values["session"] is not None]
    assert len(on_sessions) > 60
    found = {}
    with psycopg.connect(server.address(f"plans_{user}", user=user)) as connection:
        adapt(connection)
        connection.execute("SELECT set_config('enable_seqscan', 'off', false)")
        connection.execute("SELECT set_config('infinite_memory.user', 'uann', false)")
        for one in on_sessions:
            ((plan,),) = connection.execute(f"EXPLAIN (FORMAT JSON) {one.sql}", one.values).fetchall()
            wrong = plans.faults(plan[0]["Plan"])
            if wrong:
                found[one.sql] = wrong
    assert not found, "\n".join(f"{sql}\n    {wrong}" for sql, wrong in found.items())
    server.run(f"DROP DATABASE plans_{user} WITH (FORCE)")


ROWS = (
    OTHERS,
    "INSERT INTO infinite_memory.sessions (session, last_seq, epoch, owner, changed) "
    "SELECT session, 1, 0, user_id, 1 FROM infinite_memory.names WHERE session >= 1000000",
    "INSERT INTO infinite_memory.branches SELECT session, 'main', 0, NULL, 1, 0 FROM infinite_memory.sessions "
    "WHERE session >= 1000000",
    "INSERT INTO infinite_memory.segments (session, segment, tip, turn_shift, checksum) "
    "SELECT session, 0, 0, 0, 0 FROM infinite_memory.sessions WHERE session >= 1000000",
    "ANALYZE",
)


@pytest.mark.parametrize("user", ["postgres", "asker"])
def test_what_has_changed_is_read_by_an_index_without_the_other_sessions(
    server: Server, plans: ModuleType, ran: dict[str, Any], user: str
) -> None:
    """As the owner, and under row security: of each table, the rows of what has changed."""
    database = f"changes_{user}"
    server.run(f"CREATE DATABASE {database}")
    with closing(PostgresStore(server.address(database), partitions=PARTITIONS)) as store:
        keys = [Session(store, f"{number}", "ann").key for number in range(5)]
        if user != "postgres":
            server.run(f"CREATE ROLE {user} LOGIN")
            store.grant(user)
        for sql in ROWS:
            server.run(sql, database=database)
        guarded = PostgresStore(server.address(database, user=user), row_security=user != "postgres")
        with closing(guarded):
            reader = guarded.for_user("ann")
            mark = reader.main_changes("ann").mark
            for key in keys[:2]:
                store.append(key, MAIN, drafts("u1"))
            ran.clear()
            assert [key.key for key, _ in reader.main_changes("ann", mark).states] == keys[:2]
    asked = next(one for sql, one in ran.items() if "changed" in sql)
    with psycopg.connect(server.address(database, user=user)) as connection:
        adapt(connection)
        connection.execute("SELECT set_config('infinite_memory.user', 'uann', false)")
        ((plan,),) = connection.execute(f"EXPLAIN (ANALYZE, FORMAT JSON) {asked.sql}", asked.values).fetchall()
    read: dict[str, float] = {}
    for node in plans.nodes(plan[0]["Plan"]):
        if "Relation Name" in node:
            table = re.sub(r"_\d+$", "", node["Relation Name"])
            rows = node["Actual Rows"] + node.get("Rows Removed by Filter", 0)
            read[table] = read.get(table, 0) + rows * node["Actual Loops"]
    # Under row security, names are also looked up for each row of the other tables.
    assert read.pop("names") <= (2 if user == "postgres" else 10)
    assert read == {"sessions": 2, "branches": 2, "segments": 2}
    server.run(f"DROP DATABASE {database} WITH (FORCE)")
    if user != "postgres":
        server.run(f"DROP ROLE {user}")


MANY = 2_000
"""Messages of a session that has just been brought in."""

FEW: dict[str, Callable[[Store, int], object]] = {
    "known_vectors": lambda store, key: store.known_vectors(key, "space", {at(3): "h3", at(4): "h9", at(5): "none"}),
    "vectors": lambda store, key: list(store.vectors(key, "space", [at(3), at(4)])),
    "vectors of texts": lambda store, key: of_texts(store, key, "space", ["h3", "h4"]),
    "get": lambda store, key: (store.get(key, [at(3), at(4)]), store.get(key, ["u3", "u4"])),
    "at": lambda store, key: store.at({key: [at(3), at(4)]}, {}),
    "check_absent": lambda store, key: store.check_absent(key, ["u3", "x"]),
    "are_forgotten": lambda store, key: store.are_forgotten(key, ["u3"]),
    "newest": lambda store, key: store.newest(key, at(MANY - 1), 3),
    "read": lambda store, key: store.read(key, State(MAIN), After(MANY - 3, 9)),
    "append": lambda store, key: store.append(key, MAIN, drafts("u99999", "u4")),
    "keep": lambda store, key: store.keep(key, VectorRows("space", [(at(3), "h", b"w")])),
    "forget": lambda store, key: store.forget(key, [at(3), at(4)]),
}
"""What asks for a few of them, or changes a few."""


def at(depth: int) -> Position:
    return Position(0, depth)


def rows_read(nodes: Iterator[dict[str, Any]]) -> int:
    """Return the most rows that a part of a plan has read from a table."""
    scans = [one for one in nodes if one["Node Type"].endswith("Scan") and "Relation Name" in one]
    read = [one["Actual Loops"] * (one["Actual Rows"] + one.get("Rows Removed by Filter", 0)) for one in scans]
    return int(max(read, default=0))


def test_few_of_many_are_looked_up_one_by_one_before_anything_is_analysed(
    server: Server, plans: ModuleType, ran: dict[str, Any]
) -> None:
    """PostgreSQL takes a session that it knows nothing of for a few rows, which it would rather read all."""
    server.run("CREATE DATABASE fresh")
    found = {}
    with closing(PostgresStore(server.address("fresh"), partitions=PARTITIONS)) as store:
        key = Session(store).key
        store.append(key, MAIN, drafts(*(f"u{number}" for number in range(MANY))))
        store.keep(key, VectorRows("space", [(at(number), f"h{number}", b"v" * 64) for number in range(MANY)]))
        for name, call in FEW.items():
            ran.clear()
            with suppress(KeyboardInterrupt), store.transaction():
                call(store, key)
                raise KeyboardInterrupt  # undone, so that each statement may be run once more
            for one in list(ran.values()):
                with psycopg.connect(server.address("fresh")) as connection:
                    adapt(connection)
                    explained = f"EXPLAIN (ANALYZE, FORMAT JSON) {one.sql}"
                    ((plan,),) = connection.execute(explained, one.values).fetchall()
                    connection.rollback()
                read = rows_read(plans.nodes(plan[0]["Plan"]))
                if read > MANY // 100:
                    found[name, one.sql] = read
    assert not found, "\n".join(f"{name}: {read} rows: {sql}" for (name, sql), read in found.items())
    server.run("DROP DATABASE fresh WITH (FORCE)")
