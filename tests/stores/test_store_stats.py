"""What a whole store holds, counted on both databases; and its schema."""

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from shared_core import InfiniteMemory, Message, PostgresStore, SQLiteStore
from shared_core.cli.app import run
from shared_core.errors import StoreError
from shared_core.operations.migration import migrate_store, schema_of
from shared_core.operations.store_stats import SessionSize, SpaceStats, store_stats
from shared_core.store import Store
from shared_core.stores.postgres import schema as server_schema
from shared_core.stores.sqlite import schema as file_schema
from shared_core.stores.sqlite.connection import migrate
from shared_core.stores.sqlite.database_file import APPLICATION_ID
from shared_core.testing import HashingEmbedder
from tests.stores.dict_store import DictStore
from tests.stores.postgres_server import Server


def fill(store: Store) -> None:
    for user, name, count in (("ann", "diary", 5), (None, "other", 3), ("bob", "é\ud800", 1)):
        how: dict[str, Any] = {"embedder": HashingEmbedder()} if user == "ann" else {"ranking": "lexical"}
        with InfiniteMemory(store, session_id=name, user_id=user, **how) as memory:
            memory.add([Message.user(f"message {n}", id=f"m{n}") for n in range(count)])
            if user == "ann":
                memory.index()
                memory.add(Message.user("not yet embedded", id="new"))
            if user is None:
                memory.forget(ids=["m1"])
    stage = store.stage()
    assert stage is not None


@pytest.fixture(params=["sqlite", "memory", pytest.param("postgres", marks=pytest.mark.server)])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    if request.param != "postgres":
        with closing(SQLiteStore(":memory:" if request.param == "memory" else tmp_path / "a.db")) as store:
            yield store
        return
    server: Server = request.getfixturevalue("server")
    with closing(PostgresStore(server.address(), schema="stats", partitions=3)) as store:
        yield store
    server.run("DROP SCHEMA stats CASCADE")


def test_everything_is_counted(store: Store) -> None:
    fill(store)
    found = store_stats(store, largest=2)
    assert (found.sessions, found.users, found.messages, found.forgotten, found.without_vector) == (3, 2, 9, 1, 1)
    (space,) = found.spaces
    vectors = list(store.vectors(store.session("ann", "diary") or 0, space.space))
    assert space == SpaceStats(space.space, 5, sum(len(row[2]) for row in vectors))
    assert found.largest == [SessionSize("ann", "diary", 6), SessionSize(None, "other", 2)]
    assert store_stats(store).largest[2] == SessionSize("bob", "é\ud800", 1)
    rows = {one.kind: one for one in found.kinds}
    assert (rows["messages"].rows, rows["tombstones"].rows, rows["vectors"].rows) == (9, 1, 5)
    assert 0 < sum(one.bytes or 0 for one in found.kinds) <= found.bytes
    if isinstance(store, PostgresStore):
        parts = rows["messages"].partitions
        assert list(parts) == ["messages_0", "messages_1", "messages_2"]
        assert sum(parts.values()) == rows["messages"].bytes


def test_an_empty_store_and_one_of_another_kind(store: Store) -> None:
    found = store_stats(store)
    assert (found.sessions, found.messages, found.spaces, found.largest) == (0, 0, [], [])
    with pytest.raises(ValueError, match="DictStore cannot be counted"):
        store_stats(DictStore())


def test_the_command_shows_tables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    with closing(SQLiteStore("a.db")) as store:
        fill(store)
    assert run(["stats", "--store", "a.db", "--all-sessions"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[:5] == [
        "sessions        3",
        "users           2",
        "messages        9",
        "forgotten       1",
        "without vector  1",
    ]
    assert lines[-4:] == [
        "MESSAGES  USER  SESSION",
        "       6   ann  diary",
        "       2     -  other",
        "       1   bob  é\\ud800",
    ]
    assert run(["stats", "--store", "a.db", "--all-sessions", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["largest"][0] == {"user": "ann", "session": "diary", "messages": 6}
    assert run(["stats", "--store", "none.db", "--all-sessions"]) == 2


# Schemas


def older(path: Path, version: int) -> None:
    """Make a file as an older version did."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        migrate(connection, "it", file_schema.MIGRATIONS[:version])


def test_a_file_is_brought_up_to_date_with_a_copy_of_what_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    path = Path("a.db")
    older(path, 3)
    newest = len(file_schema.MIGRATIONS)
    bytes_before = path.read_bytes()
    assert run(["migrate", "--store", "a.db", "--dry-run"]) == 0
    out = capsys.readouterr().out.splitlines()
    assert out[0] == f"a.db: schema 3 of {newest}"
    assert out[4] == "  4  to be done           system prompts"
    assert out[-1] == f"to be done: {newest - 3} steps"
    assert path.read_bytes() == bytes_before
    assert run(["migrate", "--store", "a.db", "--backup", "before.db"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == f"done: {newest - 3} steps"
    assert (schema_of("a.db").version, schema_of("before.db").version) == (newest, 3)
    assert run(["migrate", "--store", "a.db", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["migrated"] is False
    assert run(["migrate", "--store", "before.db"]) == 0
    assert "--backup FILE makes one first" in capsys.readouterr().err
    with pytest.raises(StoreError, match="exists already"):
        migrate_store("a.db", backup="before.db")


@pytest.mark.server
def test_a_server_says_which_programs_may_go_on(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    server.run("CREATE DATABASE steps TEMPLATE template0 ENCODING 'UTF8'")
    address = server.address("steps")
    assert [step.applied_at for step in schema_of(address).steps] == [None] * len(server_schema.MIGRATIONS)
    assert server.run("SELECT count(*) FROM pg_namespace WHERE nspname = 'infinite_memory'", database="steps") == [(0,)]
    assert run(["migrate", "--store", address, "--dry-run"]) == 0
    assert "  1  to be done           conversations, for programs from schema 1 on\n" in capsys.readouterr().out
    with pytest.raises(ValueError, match="a server has its own"):
        migrate_store(address, backup="x.db")
    assert migrate_store(address).version == 0
    assert schema_of(address).pending == ()
    with pytest.raises(StoreError):
        schema_of("postgresql://nobody@localhost:1/none")
    server.run("DROP DATABASE steps WITH (FORCE)")


def test_a_store_that_is_missing_has_no_version(tmp_path: Path) -> None:
    assert schema_of(tmp_path / "none.db").version == 0
    assert not (tmp_path / "none.db").exists()
    (tmp_path / "other.db").write_text("no database" * 100)
    with pytest.raises(StoreError):
        schema_of(tmp_path / "other.db")
