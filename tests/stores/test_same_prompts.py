"""The example conversation, held and asked on every kind of store: the same prompts, and the same reports."""

from collections.abc import Iterator
from contextlib import closing
from datetime import timedelta
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from shared_core import InfiniteMemory, Message, PostgresStore, SQLiteStore
from shared_core.sharing.files import import_sessions
from shared_core.store import Store
from tests.stores.postgres_server import Server
from tests.stores.test_postgres_contract import MANY
from tests.support.documents import ROOT
from tests.support.histories import NOON

CONVERSATION = ROOT / "examples" / "data" / "conversation.json"
QUESTIONS = (
    "What was the code of my locker at the climbing hall?",
    "What was our final budget for the Portugal holiday?",
    "What noisy present did my sister post to us?",
)
USER = "ann"


def prompts(store: Store) -> list[Any]:
    """Hold the conversation on an empty store, and return all prompts and reports.

    It is asked as it came, after a branch was merged and something was forgotten, together with another session of
    the user, and by another object on the branch.
    """
    import_sessions(store, CONVERSATION, user_id=USER)
    found: list[Any] = []

    def opened(session_id: str) -> InfiniteMemory:
        return InfiniteMemory(store, session_id=session_id, user_id=USER, max_tokens=2_000)

    def ask(memory: InfiniteMemory) -> None:
        for question in QUESTIONS:
            context = memory.context(question)
            found.append((context.messages, context.report.to_dict()))

    with opened("default") as memory:
        memory.index()
        ask(memory)
        memory.fork("azores")
        memory.checkout("azores")
        memory.add(said("And if we went to the Azores instead? The budget would be 2,400 euros.", 1))
        memory.checkout("main")
        memory.add(said("My new locker is number 17.", 3))
        memory.merge("azores")
        memory.forget(ids=[str(memory.search(QUESTIONS[0], 1)[0].message.id)])
        memory.index()
        ask(memory)
    with opened("other") as memory:
        memory.add(said("My sister posted a drum to us, and it is noisy.", 5))
        memory.index()
        found.extend(memory.search(question, 9, scope="user") for question in QUESTIONS)
    with opened("default") as memory:
        memory.checkout("azores")
        ask(memory)
    return found


def said(text: str, number: int) -> list[Message]:
    """A turn whose ids and times are the same on every store."""
    question = Message.user(text, id=f"new {number}", created_at=NOON + timedelta(minutes=number))
    answer = Message.assistant("Noted.", id=f"new {number + 1}", created_at=NOON + timedelta(minutes=number))
    return [question, answer]


@cache
def expected() -> list[Any]:
    """The prompts of a store in memory."""
    with closing(SQLiteStore(":memory:")) as store:
        return prompts(store)


@pytest.fixture(params=["file", pytest.param("server", marks=pytest.mark.server)])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    if request.param == "file":
        with closing(SQLiteStore(tmp_path / "chat.db", durability="process")) as file:
            yield file
        return
    server: Server = request.getfixturevalue("server")
    with closing(PostgresStore(server.address(), schema="same prompts", partitions=MANY)) as there:
        yield there
    server.run('DROP SCHEMA "same prompts" CASCADE')


def test_prompts_and_reports_are_the_same(store: Store) -> None:
    assert prompts(store) == expected()
    assert len({str(one) for one in expected()}) == 12
