"""What a whole store holds, counted on both databases; and its schema."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from shared_core import InfiniteMemory, Message, PostgresStore, SQLiteStore
from shared_core.operations.store_stats import SessionSize, SpaceStats, store_stats
from shared_core.store import Store
from shared_core.testing import HashingEmbedder
from tests.stores.dict_store import DictStore
from tests.stores.postgres_server import Server


def fill(store: Store) -> None:
    for user, name, count in (("ann", "diary", 5), (None, "other", 3), ("bob", "é", 1)):
        how: dict[str, Any] = {"embedder": HashingEmbedder()} if user == "ann" else {"embedder": "words"}
        with InfiniteMemory(store, session_id=name, user_id=user, **how) as memory:
            memory.add([Message.user(f"message {n}", id=f"m{n}") for n in range(count)])
            if user == "ann":
                memory.index()
                memory.add(Message.user("not yet embedded", id="new"))
            if user is None:
                memory.forget(ids=["m1"])


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
    assert store_stats(store).largest[2] == SessionSize("bob", "é", 1)
    assert found.bytes == store.size() > 0


def test_an_empty_store_and_one_of_another_kind(store: Store) -> None:
    found = store_stats(store)
    assert (found.sessions, found.messages, found.spaces, found.largest) == (0, 0, [], [])
    with pytest.raises(ValueError, match="DictStore cannot be counted"):
        store_stats(DictStore())
