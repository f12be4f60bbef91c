"""How often each verb waits for its store: exact calls, as each is a round trip where the store is another machine."""

import inspect
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from shared_core import InfiniteMemory, Message
from shared_core.index.cache import IndexCache
from shared_core.records import Snapshot
from shared_core.store import Store
from shared_core.stores import SQLiteStore
from shared_core.testing import CountedStore, HashingEmbedder
from tests.support.histories import history

FIRST = "session read(State, After, Pinned, Line) read(Spaces) read(SnapshotOf)"
"""What the first prompt of a process begins with."""

QUESTION = "What about item9 and gardens?"


@pytest.fixture
def counted() -> Iterator[CountedStore]:
    with closing(CountedStore(SQLiteStore(":memory:"))) as store:
        yield store


@pytest.fixture
def filled(counted: CountedStore) -> CountedStore:
    """200 messages, embedded, with snapshots."""
    with of(counted) as memory:
        memory.add(history(200))
        memory.index()
    as_in_a_new_process(counted)
    return counted


def as_in_a_new_process(store: CountedStore) -> None:
    IndexCache.of(store).release()
    store.reset()


def of(store: Store, **how: Any) -> InfiniteMemory:
    usual: dict[str, Any] = {
        "max_tokens": 600,
        "reserve_tokens": 0,
        "embedder": HashingEmbedder(),
        "user_id": "u",
        "session_id": "s",
    }
    return InfiniteMemory(store, **usual | how)


def trips(store: CountedStore) -> str:
    """Return the calls since this was last asked."""
    found = " ".join(store.trips)
    store.reset()
    return found


def test_every_method_of_a_store_is_counted() -> None:
    public = {name: one for name, one in inspect.getmembers(Store, inspect.isfunction) if not name.startswith("_")}
    by_reading = {"stats", "segment", *(name for name, one in public.items() if "_one" in one.__code__.co_names)}
    assert public.keys() - by_reading <= vars(CountedStore).keys()


def test_a_turn(filled: CountedStore) -> None:
    with of(filled) as memory:
        memory.context(QUESTION)
        filled.reset()
        memory.add(Message.user(QUESTION, id="q"))
        assert trips(filled) == "append"
        memory.context()
        assert trips(filled) == "read(State, After) at"
        memory.add(Message.assistant("Fine.", id="a"))
        assert trips(filled) == "append"
        memory.context("item9?")
        assert trips(filled) == "read(State, After) at"
        memory.search("fine", top_k=2)  # embeds both: no prompt needed it
        assert trips(filled) == "read(State, After) at", (
            "it has just stored them, so that nobody else has embedded them"
        )
        assert filled.stats(filled.session("u", "s") or 0)["vectors"] == 200
        filled.reset()
        memory.add(Message.user("And then?", id="r"))
        assert trips(filled) == "append", "what questions embedded is stored along"
        assert filled.stats(filled.session("u", "s") or 0)["vectors"] == 202


def test_a_context(filled: CountedStore) -> None:
    with of(filled) as memory:
        memory.context(QUESTION)
        assert trips(filled) == f"{FIRST} read(SnapshotOf) at"
        memory.context("item11 and gardens?")
        assert trips(filled) == "read(State, After) at"
        memory.fork("side", at="m50")
        filled.reset()
        memory.context(QUESTION)
        assert trips(filled) == "read(State, After, Pinned, Line) at"


def test_what_is_pinned(filled: CountedStore) -> None:
    with of(filled) as memory:
        memory.add([Message.user(f"Wish {number}.", id=f"w{number}", pinned=True) for number in range(3)])
        memory.context("item9?")
        filled.reset()
        assert "Wish 1." in str(memory.context("item11?").messages)
        assert trips(filled) == "read(State, After) read(InTurns) at", "whole turns, all at once"


def test_the_whole_user(filled: CountedStore) -> None:
    for number in range(3):
        with of(filled, session_id=f"s{number}") as memory:
            memory.add(history(20))
            memory.index()
    as_in_a_new_process(filled)
    with of(filled, scope="user") as memory:
        memory.context(QUESTION)
        assert trips(filled) == f"{FIRST} read(SnapshotOf) main_changes main_news at"
        memory.context("item8 and gardens?")
        assert trips(filled) == "read(State, After) main_changes at"
        with of(filled, session_id="s1") as other:
            other.add(Message.user("item8 is near the gardens now.", id="new"))
            other.index()
        filled.reset()
        assert "item8 is near the gardens now." in str(memory.context("item8 and gardens?").messages)
        assert trips(filled) == "read(State, After) main_changes main_news at at"


def test_after_another_object_forgot_something(filled: CountedStore, monkeypatch: pytest.MonkeyPatch) -> None:
    with of(filled) as memory, of(filled) as other:
        memory.context(QUESTION)
        other.context(QUESTION)
        other.forget(ids=["m11", "m50"])
        filled.reset()
        context = memory.context(QUESTION)
        assert trips(filled) == "read(State, After) read(Pinned) read(Back) read(ForgottenSince) at", (
            "no message is indexed again"
        )
        other.close()
        assert trips(filled) == "", "an index of which something was forgotten is not saved"
    as_in_a_new_process(filled)
    with of(filled) as later:
        assert later.context(QUESTION) == context
        assert trips(filled) == f"{FIRST} read(After) read(SnapshotOf) read(Vectors) read(Vectors) at", "it reads all"
    with of(CountedStore(filled.store)) as anew:
        filled.store.keep(filled.store.session("u", "s") or 0, Snapshot("rows", b""))  # it reads every message
        assert anew.context(QUESTION).report.lines == context.report.lines
