"""How often a verb waits for a PostgreSQL server, and how many statements it sends: read from the protocol itself."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from shared_core import InfiniteMemory, Message
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
