"""How PostgreSQL finds what a statement is about: in one partition, and by an index that begins with the session."""

import re
from collections.abc import Iterator
from contextlib import closing
from typing import Any, NamedTuple

import psycopg
import pytest

from shared_core import PostgresStore
from shared_core.errors import InfiniteMemoryError
from shared_core.records import MAIN, STAGED, Delete, Drop, Merge, Position, Put, Rename, Segment
from shared_core.stores.postgres.connections import adapt
from shared_core.stores.postgres.transactions import Reader
from shared_core.testing.oracle import Session, drafts
from tests.stores.postgres_server import Server
from tests.stores.test_row_security import WITH_KEY, fill

pytestmark = pytest.mark.server

PARTITIONS = 4

OTHERS = (
    "INSERT INTO infinite_memory.names "
    "SELECT n, CASE WHEN n % 2 = 0 THEN 'ann' ELSE 'u' || n END, 's' || n, true, now() "
    "FROM generate_series(1000000, 1020000) AS n"
)
"""Other sessions, half of them of the same user, so that it makes a difference to look at all of them."""


class Ran(NamedTuple):
    """A statement, and the values it had."""

    sql: str
    session: int | None
    values: dict[str, Any]


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> dict[str, Ran]:
    """The statements that were run from here on, each once."""
    found: dict[str, Ran] = {}
    execute = Reader._execute

    def noted(reader: Reader, sql: str, session: int | None, values: Any) -> Any:
        found.setdefault(sql, Ran(reader._schema(sql), session, {"session": session, **(values or {})}))
        return execute(reader, sql, session, values)

    monkeypatch.setattr(Reader, "_execute", noted)
    return found


def nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for part in plan.get("Plans", ()):
        yield from nodes(part)


def faults(plan: dict[str, Any]) -> list[str]:
    """Return what a plan reads from another partition, or without an index on the session."""
    found = []
    scans = [node for node in nodes(plan) if "Scan" in node["Node Type"] and "Relation Name" in node]
    parts = {part[0] for node in scans if (part := re.search(r"_\d+$", node["Relation Name"]))}
    if len(parts) > 1:
        found.append(f"partitions {sorted(parts)}")
    for node in nodes(plan):
        index = node["Node Type"] in ("Index Scan", "Index Only Scan", "Bitmap Index Scan")
        if index and "session" not in node.get("Index Cond", ""):
            found.append(f"{node.get('Index Name')} without the session")
        if node["Node Type"] == "Seq Scan":
            found.append(f"all of {node['Relation Name']}")
    return found


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
    stage = store.stage()
    assert stage is not None
    store.append(stage, MAIN, drafts("u77"))
    store.graft(stage, key, [Segment(STAGED, Position(0, 1), 2)], grown={}, depth=2)
    store.unstage([stage])


@pytest.mark.parametrize("user", ["postgres", "planner"])
def test_every_statement_on_a_session_looks_into_one_partition_by_an_index(
    server: Server, ran: dict[str, Ran], user: str
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
    on_sessions = [one for one in ran.values() if one.session is not None]
    assert len(on_sessions) > 60
    found = {}
    with psycopg.connect(server.address(f"plans_{user}", user=user)) as connection:
        adapt(connection)
        connection.execute("SELECT set_config('enable_seqscan', 'off', false)")
        connection.execute("SELECT set_config('infinite_memory.user', 'uann', false)")
        for one in on_sessions:
            ((plan,),) = connection.execute(f"EXPLAIN (FORMAT JSON) {one.sql}", one.values).fetchall()
            wrong = faults(plan[0]["Plan"])
            if wrong:
                found[one.sql] = wrong
    assert not found, "\n".join(f"{sql}\n    {wrong}" for sql, wrong in found.items())
    server.run(f"DROP DATABASE plans_{user} WITH (FORCE)")


ROWS = (
    OTHERS,
    "INSERT INTO infinite_memory.sessions (session, last_seq, epoch, next_segment, owner, changed) "
    "SELECT session, 1, 0, 1, user_id, 1 FROM infinite_memory.names WHERE session >= 1000000",
    "INSERT INTO infinite_memory.branches SELECT session, 'main', 0, NULL, 1, 0 FROM infinite_memory.sessions "
    "WHERE session >= 1000000",
    "INSERT INTO infinite_memory.segments (session, segment, tip, turn_shift, checksum) "
    "SELECT session, 0, 0, 0, 0 FROM infinite_memory.sessions WHERE session >= 1000000",
    "ANALYZE",
)


@pytest.mark.parametrize("user", ["postgres", "asker"])
def test_what_has_changed_is_read_by_an_index_without_the_other_sessions(
    server: Server, ran: dict[str, Ran], user: str
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
    for node in nodes(plan[0]["Plan"]):
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
