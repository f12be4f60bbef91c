"""Two databases that differ only in one forgotten text hold the same rows afterwards: nothing tells what it said."""

import itertools
import json
import sqlite3
import zlib
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import timedelta
from hashlib import blake2b
from pathlib import Path
from typing import Any

import psycopg
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shared_core import InfiniteMemory, Message
from shared_core.history.normal_form import fingerprint
from shared_core.index.session_vectors import encode_vector, text_hash
from shared_core.stores import SQLiteStore
from shared_core.stores.postgres import PostgresStore
from shared_core.testing.hashing_embedder import HashingEmbedder
from tests.stores.conftest import server  # noqa: F401
from tests.stores.postgres_server import Server
from tests.support.histories import NOON, history, with_ids

Dump = dict[str, list[tuple[Any, ...]]]
Way = Callable[[InfiniteMemory, str, Path], None]

CLOCKS = {"created_at", "applied_at", "changed"}
"""Columns that the database fills from its own clock, or with the number of a transaction."""


def rows_of_sqlite(path: Path) -> Dump:
    """Return what every table of a file holds."""
    with closing(sqlite3.connect(path)) as connection:
        tables = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        return {name: _rows(connection.execute(f'SELECT * FROM "{name}"')) for name in tables}


def rows_of_postgres(address: str, schema: str) -> Dump:
    """Return what every table of a schema holds."""
    with psycopg.connect(address) as connection:
        found = connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = %s", (schema,)).fetchall()
        return {name: _rows(connection.execute(f'SELECT * FROM "{schema}"."{name}"')) for (name,) in found}


def _rows(cursor: Any) -> list[tuple[Any, ...]]:
    kept = [number for number, column in enumerate(cursor.description) if column[0] not in CLOCKS]
    return sorted((tuple(row[number] for number in kept) for row in cursor.fetchall()), key=repr)


def memory_of(store: Any) -> InfiniteMemory:
    """Return a memory whose ids and times are the same in every database."""
    seconds, numbers = itertools.count(), itertools.count()
    memory = InfiniteMemory(
        store, embedder=HashingEmbedder(), max_tokens=300, reserve_tokens=50,
        clock=lambda: NOON + timedelta(seconds=next(seconds)),
    )  # fmt: skip
    return with_ids(memory, lambda: f"id-{next(numbers)}")


def added(memory: InfiniteMemory, secret: str, folder: Path) -> None:
    memory.add([*history(6), Message.user(secret, id="secret", name=secret), *history(6, start=6)])


def imported(memory: InfiniteMemory, secret: str, folder: Path) -> None:
    with memory_of(":memory:") as other:
        added(other, secret, folder)
        other.export(folder / "chat.jsonl")
    memory.import_file(folder / "chat.jsonl")


def told(secret: str) -> list[Message]:
    """Return the history of a client that sends no ids and all of it each time."""
    return [message.replace(id=None) for message in (*history(6), Message.user(secret), *history(6, start=6))]


def followed(memory: InfiniteMemory, secret: str, folder: Path) -> None:
    memory.follow(told(secret))


WAYS: list[Way] = [added, imported, followed]


def forget_it(store: Any, way: Way, secret: str, folder: Path) -> None:
    """Store a secret among other messages, let everything be made from it that can be, and forget it."""
    with memory_of(store) as memory:
        way(memory, secret, folder)
        memory.index()
        memory.context("What was I told?")
        found = [message for message in memory.messages() if message.content == secret]
        assert memory.forget(ids=[str(message.id) for message in found]).scrubbed
        if way is followed:  # the client does not know what was forgotten
            memory.follow([*told(secret), Message.user("And what now?")])
            assert secret not in [message.content for message in memory.messages()]
        memory.add(history(4, start=20))
        memory.index()


def chained(said: str) -> str:
    """Return a digest of a history up to the secret: what an id was made of once."""
    digest = ""
    for message in (*history(6), Message.user(said)):
        parts = message.model_dump(include={"role", "content", "tool_calls", "tool_call_id"})
        digest = blake2b(json.dumps([digest, parts], sort_keys=True).encode(), digest_size=16).hexdigest()
    return digest


SECRETS = st.text(st.characters(max_codepoint=127, exclude_categories=["Cc"]), min_size=12, max_size=12)


@pytest.mark.parametrize("way", WAYS)
@settings(max_examples=4)
@given(secrets=st.tuples(SECRETS, SECRETS))
def test_sqlite_holds_the_same_rows(
    way: Way, secrets: tuple[str, str], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """The secrets are equally long: their length is still there, because their bytes are overwritten in place."""
    dumps = []
    for secret in secrets:
        folder = tmp_path_factory.mktemp("forgotten")
        with closing(SQLiteStore(folder / "chat.db", durability="process")) as store:
            forget_it(store, way, secret, folder)
        dumps.append(rows_of_sqlite(folder / "chat.db"))
    assert dumps[0] == dumps[1]


@pytest.fixture(scope="module")
def schemas() -> Iterator[str]:
    return map("forgotten {}".format, itertools.count())


@pytest.mark.server
@pytest.mark.parametrize("way", WAYS)
@settings(max_examples=2)
@given(secrets=st.tuples(SECRETS, st.text(st.characters(max_codepoint=127, exclude_categories=["Cc"]), min_size=1)))
def test_postgres_holds_the_same_rows(
    way: Way, secrets: tuple[str, str], server: Server, schemas: Iterator[str], tmp_path_factory: pytest.TempPathFactory  # noqa: F811
) -> None:  # fmt: skip
    dumps = []
    for secret, schema in zip(secrets, schemas, strict=False):
        folder = tmp_path_factory.mktemp("forgotten")
        with closing(PostgresStore(server.address(), schema=schema)) as store:
            forget_it(store, way, secret, folder)
        dumps.append(rows_of_postgres(server.address(), schema))
        server.run(f'DROP SCHEMA "{schema}" CASCADE')
    assert dumps[0] == dumps[1]


def test_a_pin_cannot_be_guessed(tmp_path: Path) -> None:
    """Whoever has the file tries all PINs against everything that is left of the message."""
    embedder, left = HashingEmbedder(), set()
    for way in WAYS:
        path = tmp_path / f"{way.__name__}.db"
        with closing(SQLiteStore(path)) as store:
            forget_it(store, way, "My PIN is 7351.", tmp_path)
        left |= {value for rows in rows_of_sqlite(path).values() for row in rows for value in row}
    guessed = []
    for pin in range(10_000):
        said = f"My PIN is {pin:04}."
        hash_, vector = text_hash(said), encode_vector(embedder.embed_query(said))
        sums = {zlib.crc32(vector, zlib.crc32(f"0\x00{depth}\x00{hash_}\x00".encode())) for depth in range(20)}
        if left & {said, hash_, vector, *sums, fingerprint(Message.user(said)), chained(said)}:
            guessed.append(pin)
    assert guessed == []
