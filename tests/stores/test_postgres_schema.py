"""Servers and schemas: what is refused, what any name makes, and who brings a schema up to date."""

import os
from contextlib import closing

import pytest

import shared_core.stores.postgres.migrations as steps
from shared_core import PostgresStore
from shared_core.errors import StoreError
from shared_core.records import MAIN, Position
from shared_core.stores.postgres.postgres_schema import MIGRATIONS, Migration
from shared_core.testing.oracle import Session, drafts
from tests.stores.postgres_server import Server

pytestmark = pytest.mark.server


def test_a_schema_of_another_program_is_left_alone(server: Server, database: str, address: str) -> None:
    server.run("CREATE SCHEMA theirs; CREATE TABLE theirs.x (y int)", database=database)
    with pytest.raises(StoreError, match="'theirs'"):
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
