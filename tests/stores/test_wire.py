"""How often a verb waits for a PostgreSQL server, and how many statements it sends: read from the protocol itself."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from shared_core import InfiniteMemory, Message
from shared_core.index.cache import IndexCache
from shared_core.stores.postgres import PostgresStore
from shared_core.testing import HashingEmbedder
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
