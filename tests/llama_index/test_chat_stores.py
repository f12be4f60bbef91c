"""A chat store holds the conversation of a buffer; and ours holds those of LlamaIndex's own memories."""

import asyncio
import copy
import json
import pickle
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from llama_index.core.base.llms.types import ChatMessage
from llama_index.core.memory import ChatMemoryBuffer, ChatSummaryMemoryBuffer
from llama_index.core.storage.chat_store import BaseChatStore, SimpleChatStore

from llama_index_infinite_memory import InfiniteChatMemoryBuffer, InfiniteChatStore
from llama_index_infinite_memory import chat_store as chat_store_module
from shared_core import SQLiteStore, StoreError, UnknownReferenceError
from tests.llama_index.sample_messages import EVERY
from tests.llama_index.test_buffer import TALK, called, ours, result, texts, user

pytestmark = [  # what upstream's agents do
    pytest.mark.filterwarnings("ignore::pydantic.warnings.PydanticDeprecationWarning"),
    pytest.mark.filterwarnings("ignore:is_running called from within a step"),
]

KEY = "chat_history"


# The chat store of a buffer


def test_what_another_chat_store_holds_is_imported_once(tmp_path: Path) -> None:
    there = SimpleChatStore(store={"dora": TALK[:2]})
    for turn in range(2):
        with ours(chat_store=there, chat_store_key="dora", store=tmp_path / "a.db") as memory:
            assert len(memory.get_all()) == 2 + turn
            assert memory.get_all()[:2] == TALK[:2]
            memory.put(user("more"))
            assert (memory.session_id, memory.chat_store_key) == ("dora", "dora")
    assert there.get_messages("dora") == TALK[:2]
    with ours(chat_store=there, chat_store_key="dora", store=tmp_path / "a.db") as memory:
        memory.reset()
    with ours(chat_store=there, chat_store_key="dora", store=tmp_path / "a.db") as memory:
        assert memory.get_all() == []


def test_ours_holds_the_conversation_of_a_buffer(tmp_path: Path) -> None:
    with InfiniteChatStore(tmp_path / "a.db", user_id="u") as store:
        memory = ours(TALK[:2], chat_store=store, chat_store_key="dora", user_id="u")
        assert store.get_messages("dora") == TALK[:2]
        store.add_message("dora", user("more"))
        assert texts(memory.get_all()) == [*texts(TALK[:2]), "more"]
        with pytest.raises(ValueError, match="pass the same user_id"):
            ours(chat_store=store, chat_store_key="dora")


@pytest.mark.parametrize("place", ["memory", "file"])
def test_the_chat_store_of_a_buffer_writes_what_a_simple_one_reads(place: str, tmp_path: Path) -> None:
    path = str(tmp_path / "folder" / "chats.json")
    with ours(TALK[:2], store=tmp_path / "a.db" if place == "file" else None, session_id="dora") as memory:
        there = memory.chat_store
        assert there.get_messages(memory.chat_store_key) == TALK[:2]
        there.add_message("other", user("hi"))
        there.persist(path)
        there.close()
    with pytest.raises(StoreError, match="closed"):
        there.get_keys()
    with pytest.raises(StoreError, match="closed"):
        memory.chat_store  # noqa: B018
    read = SimpleChatStore.from_persist_path(path)
    assert read.store == {"dora": TALK[:2], "other": [user("hi")]}
    assert ours(chat_store=read, chat_store_key="dora").get_all() == TALK[:2]
    with closing(InfiniteChatStore.from_persist_path(path, store=tmp_path / "b.db")) as loaded:
        assert {key: loaded.get_messages(key) for key in loaded.get_keys()} == read.store
    assert InfiniteChatStore.from_persist_path(str(tmp_path / "none.json")).get_keys() == []


# Ours, for LlamaIndex's memories


@pytest.fixture(params=["memory", "file", "store"])
def chat_store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[InfiniteChatStore]:
    with ExitStack() as opened:
        given = opened.enter_context(closing(SQLiteStore(tmp_path / "b.db"))) if request.param == "store" else None
        path = tmp_path / "a.db" if request.param == "file" else None
        yield opened.enter_context(InfiniteChatStore(given or path))


steps = st.one_of(
    st.tuples(st.just("set_messages"), st.lists(st.sampled_from([*TALK[:3], *EVERY[:8]]), max_size=4)),
    st.tuples(st.just("add_message"), st.sampled_from(TALK[:4])),
    st.tuples(st.just("add_message"), st.sampled_from(TALK[:4]), st.integers(-1, 4)),
    st.tuples(st.just("delete_message"), st.integers(0, 3)),
    st.tuples(st.just("delete_messages")),
)


def applied(store: BaseChatStore, key: str, step: tuple[Any, ...]) -> Any:
    """Do a step, and return what it returns."""
    return getattr(store, step[0])(key, *copy.deepcopy(step[1:]))


TWICE = [ChatMessage(role="system", content="be brief")] * 2


@settings(max_examples=settings().max_examples // 2)
@example([("a", ("add_message", TALK[0])), ("a", ("add_message", TALK[1], 0))])
@example([("a", ("set_messages", TWICE[:1])), ("a", ("set_messages", TWICE))])
@given(st.lists(st.tuples(st.sampled_from("ab"), steps), max_size=10))
def test_it_holds_what_a_simple_chat_store_holds(history: list[tuple[str, tuple[Any, ...]]]) -> None:
    theirs = SimpleChatStore()
    with InfiniteChatStore() as store:
        for key, step in history:
            found, expected = applied(store, key, step), applied(theirs, key, step)
            assert found == (expected or None)
            assert [store.get_messages(one) for one in "ab"] == [theirs.get_messages(one) for one in "ab"]
        held = {key for key in theirs.get_keys() if theirs.get_messages(key)}
        assert set(store.get_keys()) == held


def test_indexes_out_of_range_and_unknown_keys_are_none(chat_store: InfiniteChatStore) -> None:
    assert (chat_store.get_messages("a"), chat_store.get_keys()) == ([], [])
    assert chat_store.delete_messages("a") is None
    assert chat_store.delete_last_message("a") is None
    chat_store.add_message("a", user("hi"))
    assert chat_store.delete_message("a", 1) is chat_store.delete_message("a", -2) is None
    assert chat_store.delete_last_message("a") == user("hi")
    assert (chat_store.delete_last_message("a"), chat_store.get_keys()) == (None, [])
    for key in ("b", "a", "c"):
        chat_store.add_message(key, user(key))
    assert sorted(chat_store.get_keys()) == ["a", "b", "c"]
    chat_store.forget("b")
    chat_store.forget("b")
    assert (sorted(chat_store.get_keys()), chat_store.get_messages("b")) == (["a", "c"], [])
    with pytest.raises(UnknownReferenceError, match="no conversation 'typo'"):
        chat_store.forget("typo")


@pytest.mark.parametrize("said", [0, 1, len(TALK)])
def test_a_conversation_that_was_erased_does_not_come_back_with_its_history(said: int) -> None:
    with InfiniteChatStore() as store:
        memory = ChatMemoryBuffer.from_defaults(chat_store=store, chat_store_key="a")
        memory.put_messages(TALK)
        store.forget("a")
        memory.put_messages(new := [user(f"new {number}") for number in range(said)])
        memory.set([*copy.deepcopy(TALK), *new])
        assert (memory.get_all(), store.get_keys()) == (new, ["a"] if new else [])
        memory.put(TALK[0])  # said again on purpose
        assert memory.get_all() == [*new, TALK[0]]


def test_asynchronous_calls_have_their_effect_in_their_order() -> None:
    async def talk(store: InfiniteChatStore) -> list[Any]:
        return await asyncio.gather(
            store.async_add_message("k", user("a")), store.async_add_message("k", user("b")),
            store.adelete_last_message("k"), store.aget_messages("k"), store.async_add_message("k", user("c")),
            store.adelete_message("k", 0), store.adelete_messages("k"), store.aget_keys(),
            store.aset_messages("k", [user("d")]), store.aget_keys(),
        )  # fmt: skip

    with InfiniteChatStore() as store:
        a, b, c = user("a"), user("b"), user("c")
        assert asyncio.run(talk(store)) == [None, None, b, [a], None, a, [c], [], None, ["k"]]


def test_what_a_chat_memory_buffer_keeps_in_it_is_recalled_by_ours(tmp_path: Path) -> None:
    with InfiniteChatStore(tmp_path / "a.db", user_id="u") as store:
        theirs = ChatMemoryBuffer.from_defaults(chat_store=store, chat_store_key="dora", token_limit=200)
        for message in TALK:
            theirs.put(message)
        assert "my locker code is 4471" not in texts(theirs.get())
        summing = ChatSummaryMemoryBuffer.from_defaults(chat_store=store, chat_store_key="other", token_limit=100)
        summing.put(user("hi"))
        with ours(store=tmp_path / "a.db", session_id="dora", user_id="u", token_limit=200) as memory:
            assert texts(memory.get(input="what is my locker code?"))[0] == "my locker code is 4471"
            memory.put(user("from ours"))
        assert texts(theirs.get())[-1] == "from ours"
        theirs.reset()
        assert theirs.get_all() == []
        assert store.get_keys() == ["other"]


def test_copies_and_json_lead_back_to_it(tmp_path: Path) -> None:
    for place in (None, tmp_path / "a.db"):
        with InfiniteChatStore(place, user_id="u") as store:
            store.set_messages("k", [user("q"), called("a"), result("12", "a")])
            data = json.loads(store.to_json())
            assert data["class_name"] == "InfiniteChatStore"
            for other in (copy.deepcopy(store), pickle.loads(pickle.dumps(store)), InfiniteChatStore.from_dict(data)):
                other.add_message("k", user("more"))
                assert store.delete_last_message("k") == user("more")
                assert (other.opened, other.user_id) == (store.opened, "u")
            del other
            held = store.get_messages("k")
        assert "messages" not in data
        with pytest.raises(StoreError, match="is closed"):
            store.get_messages("k")
        if place is None:
            with pytest.raises(StoreError, match="has no file, and its store is closed"):
                InfiniteChatStore.from_dict(data)
            continue
        with InfiniteChatStore.from_dict(data) as again:
            assert (again.get_messages("k"), again.user_id) == (held, "u")
    (tmp_path / "a.db").unlink()
    with pytest.raises(StoreError, match=r"a\.db' is gone"):
        InfiniteChatStore.from_dict(data)
    with pytest.raises(TypeError, match=r"store=.*expected the path"):
        InfiniteChatStore.from_dict({"store": {"k": []}, "class_name": "SimpleChatStore"})


def test_many_keys_share_one_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chat_store_module, "IN_USE", 4)
    with InfiniteChatStore(tmp_path / "a.db") as store, InfiniteChatStore(tmp_path / "a.db") as other:
        for number in range(7):
            store.add_message(f"k{number}", user(f"m{number}"))
        assert all(texts(other.get_messages(f"k{number}")) == [f"m{number}"] for number in range(7))
        assert len(store._conversations) == 4
        assert other._opened is store._opened
        assert isinstance(store._opened and store._opened.store, SQLiteStore)
        assert InfiniteChatMemoryBuffer(token_limit=9, store=tmp_path / "a.db", session_id="k3").get() == [user("m3")]
        for file in tmp_path.glob("a.db*"):
            file.unlink()
        with InfiniteChatStore(tmp_path / "a.db") as new:
            assert new.get_keys() == [], "of a file that took its place"
