"""How often a verb waits for a PostgreSQL server, and how many statements it sends: read from the protocol itself."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from shared_core import InfiniteMemory, Message
from shared_core.index.cache import IndexCache
from shared_core.records import MAIN, Position, Snapshot, VectorRows
from shared_core.stores.postgres import PostgresStore
from shared_core.testing import HashingEmbedder
from shared_core.testing.oracle import drafts
from tests.stores.postgres_server import Server
from tests.stores.wire import Sent, Wire
from tests.support.histories import history

pytestmark = pytest.mark.server

APPEND = Sent(waits=1, statements=5)
"""BEGIN, what stores and checks, what is read if that finds the session moved, and COMMIT."""


@pytest.fixture
def wire(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Wire:
    return Wire(monkeypatch, tmp_path)


@pytest.fixture
def store(server: Server, wire: Wire) -> Iterator[PostgresStore]:
    with closing(PostgresStore(server.address(), schema="wire")) as store:
        yield store


def of(store: PostgresStore, session_id: str) -> InfiniteMemory:
    how: dict[str, Any] = {"max_tokens": 600, "reserve_tokens": 0, "embedder": HashingEmbedder()}
    return InfiniteMemory(store, session_id=session_id, **how)


def test_messages_are_added_in_one_round_trip_or_two(store: PostgresStore, wire: Wire) -> None:
    with of(store, "added") as memory, of(store, "added") as other:
        memory.add(history(4))
        wire.sent()
        memory.add(Message.user("Is it known?"))
        assert wire.sent() == APPEND, "from what the last one told"
        memory.context()
        wire.sent()
        memory.add(Message.assistant("Yes."))
        assert wire.sent() == APPEND, "from what the question read"
        other.add(Message.user("Who else is here?"))
        wire.sent()
        memory.add(Message.assistant("Nobody."))
        assert wire.sent().waits == 2, "the session has moved"
        memory.fork("side")
        wire.sent()
        memory.add(Message.user("And here?"))
        assert wire.sent().waits == 2, "the branch goes on in a segment of its own"
        memory.add([Message.assistant("No."), Message.user("Why?")])
        assert wire.sent() == APPEND


def test_a_question_waits_as_often_as_it_calls_the_store(store: PostgresStore, wire: Wire) -> None:
    with of(store, "asked") as memory:
        memory.add(history(200))
        memory.index()
    wire.sent()
    with of(store, "asked") as memory:
        memory.context("item9 and gardens?")
        assert wire.sent().waits == 4, "the first question of an object, where the index is in the cache"
    IndexCache.of(store).release()
    wire.sent()
    with of(store, "asked") as memory:
        memory.context("item9 and gardens?")
        assert wire.sent().waits == 6, "the first question of an object"
        memory.context("item11 and gardens?")
        assert wire.sent() == Sent(waits=2, statements=8)
        memory.search("item12 gardens", top_k=5)
        assert wire.sent().waits <= 3
        memory.add(history(60, start=200))
        wire.sent()
        assert memory.context("item15 and gardens?").report.pending == 0
        assert wire.sent().waits == 2, "while it embeds"
        memory.add(Message.user("What else?"))
        assert wire.sent() == APPEND, "what was embedded is stored in the same statement"
        assert 200 < memory.stats()["vectors"] < 260
        memory.fork("side", at="m50")
        wire.sent()
        memory.context("item9 and gardens?")
        assert wire.sent().waits == 2, "after a fork"


def test_many_sessions_are_read_in_one_round_trip_a_page(store: PostgresStore, wire: Wire) -> None:
    for number in range(20):
        key = store.create_session("many", f"{number}")
        store.append(key, MAIN, drafts("u1", "a1", "u2"))
        store.keep(key, VectorRows("space", [(Position(0, 1), "h", b"v")]))
    wire.sent()
    states, mark, _ = store.main_changes("many")
    assert wire.sent() == Sent(waits=1, statements=4), "all states, and the moment of which they are"
    assert store.main_changes("many", mark).states == []
    assert wire.sent() == Sent(waits=1, statements=1)
    news = store.main_news({one.key: (1, state.last_seq) for one, state in states}, "space")
    assert wire.sent() == Sent(waits=1, statements=7)
    assert sum(len(one.records) for one in news.values()) == 40
    assert sum(len(one.vectors) for one in news.values()) == 20


def test_what_is_derived_is_kept_in_one_round_trip(store: PostgresStore, wire: Wire) -> None:
    keys = [store.create_session("derived", name) for name in "abc"]
    for key in keys:
        store.append(key, MAIN, drafts("u1", "a1"))
    rows = [(Position(0, 1), "h", b"v")]
    wire.sent()
    assert store.keep(keys[0], VectorRows("space", rows), 0)
    assert wire.sent() == Sent(waits=1, statements=5), "BEGIN, the lock, the space, the vectors and COMMIT"
    assert store.keep_vectors("space", dict.fromkeys(keys, rows), dict.fromkeys(keys, 0)) == {*keys}
    assert wire.sent() == Sent(waits=1, statements=5)
    assert store.keep(keys[0], Snapshot("index", b"data"), 0)
    assert wire.sent() == Sent(waits=1, statements=5)


def test_a_question_over_many_sessions_waits_as_often_as_over_one(store: PostgresStore, wire: Wire) -> None:
    how: dict[str, Any] = {"max_tokens": 600, "reserve_tokens": 0, "embedder": HashingEmbedder(), "user_id": "wide"}
    for number in range(12):
        with InfiniteMemory(store, session_id=f"s{number}", **how) as memory:
            memory.add(history(6, start=6 * number))
            memory.index()
    with InfiniteMemory(store, session_id="asks", scope="user", **how) as memory:
        memory.add(Message.user("Hello"))
        memory.search("item9 gardens")
        wire.sent()
        memory.search("item11 gardens")
        assert wire.sent().waits == 4, "what is newer than the best result is read last"
        with InfiniteMemory(store, session_id="s3", **how) as other:
            other.add(Message.user("The gardens of item11 are closed."))
        wire.sent()
        memory.search("item11 gardens closed")
        assert wire.sent().waits == 6, "a page of what is new, whether its text has a vector by now, and the epochs"
        memory.add(Message.user("And now?"))
        assert wire.sent().waits <= 4, "what was embedded in the other sessions is stored with a read and a write"
