"""InfiniteStore: LangGraph's store on the file of the conversations."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from langchain.tools import ToolRuntime
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.store.base import BaseStore, PutOp
from langgraph.store.memory import InMemoryStore

from langchain_infinite_memory import InfiniteStore, remember_tool
from shared_core import Message
from shared_core.pool import SessionPool
from tests.langchain.agents import Model, Words, agent, ask, config, memory

DORA, EMIL = ("user", "dora"), ("user", "emil")


def pool_at(path: Path | None = None, **settings: Any) -> SessionPool:
    given: Any = {"token_counter": Words(), "embedder": "words", "reserve_tokens": 0, "max_tokens": 500, **settings}
    return SessionPool(path, on_overflow="raise", **given)


def fill(store: BaseStore) -> None:
    store.put(DORA, "locker", {"text": "the locker code is 4471", "n": 1})
    store.put((*DORA, "a/b"), "cat", {"text": "the cat is called Nina", "n": 2})
    store.put(EMIL, "locker", {"text": "the locker code is 9999", "n": 3})
    store.put(("team", "x y"), "rule", {"text": "standup at nine", "n": 4})


def test_it_answers_as_langgraphs_own_store() -> None:
    with closing(InfiniteStore(pool_at())) as ours:
        stores: list[BaseStore] = [ours, InMemoryStore()]
        for store in stores:
            fill(store)
            store.put(DORA, "locker", {"text": "the locker code is 5582", "n": 5})
            store.put(EMIL, "gone", {"text": "x"})
            store.delete(EMIL, "gone")
        asked: list[Any] = [
            lambda store: store.get(DORA, "locker").value,
            lambda store: store.get(DORA, "cat"),
            lambda store: store.get((*DORA, "a/b"), "cat").key,
            lambda store: store.get(EMIL, "gone"),
            lambda store: sorted(item.key for item in store.search(DORA)),
            lambda store: sorted(item.namespace for item in store.search(())),
            lambda store: [item.key for item in store.search(DORA, filter={"n": {"$gt": 4}})],
            lambda store: [item.key for item in store.search(DORA, filter={"n": 2})],
            lambda store: sorted(store.list_namespaces()),
            lambda store: sorted(store.list_namespaces(prefix=("user", "*"), max_depth=2)),
            lambda store: store.list_namespaces(suffix=("a/b",)),
            lambda store: sorted(store.list_namespaces(limit=2, offset=1)),
        ]
        for question in asked[:-1]:
            assert question(stores[0]) == question(stores[1])
        assert len(asked[-1](ours)) == 2
        assert ours.get((), "x") is None
        with pytest.raises(ValueError, match="unsupported operator"):
            ours.search(DORA, filter={"n": {"$near": 1}})
        with pytest.raises(TypeError, match="value='blue': expected a dict"):
            ours.put(DORA, "bike", "blue")  # type: ignore[arg-type]


def test_a_search_is_by_meaning_and_within_its_namespace(tmp_path: Path) -> None:
    with pool_at(tmp_path / "chat.db") as pool:
        store = InfiniteStore(pool)
        fill(store)
        store.put(DORA, "hidden", {"text": "the locker code of the attic"}, index=False)
        assert [item.value["text"] for item in store.search(DORA, query="locker code")] == ["the locker code is 4471"]
        assert [item.key for item in store.search((*DORA, "a/b"), query="what is the cat called?")] == ["cat"]
        assert [item.key for item in store.search(("team",), query="when is the standup?")] == ["rule"]
        first = store.get(DORA, "locker")
        store.put(DORA, "locker", {"text": "the locker code is 5582"})
        second = store.get(DORA, "locker")
        assert first is not None
        assert second is not None
        assert second.created_at == first.created_at < second.updated_at
        store.put((*DORA, "v"), "1", {"title": "harbour", "body": "locker"}, index=["title"])
        assert [item.key for item in store.search(DORA, query="harbour")] == ["1"]
        for namespace, text in [("a", "a ferry"), ("a", "rain and wind"), ("b", "the ferry to Almada leaves at nine")]:
            store.put(("docs", namespace), text, {"text": text})
        best, next_best, *_ = store.search(("docs",), query="When does the ferry to Almada leave?")
        assert (best.key, next_best.key) == ("the ferry to Almada leaves at nine", "a ferry"), "of two namespaces"
    assert b"code is 4471" not in (tmp_path / "chat.db").read_bytes(), "an older value is erased"


def test_both_faces_are_one(tmp_path: Path) -> None:
    async def work(store: InfiniteStore) -> list[Any]:
        await store.abatch([PutOp(DORA, "a", {"text": "the locker code is 4471"})])
        return [item.value for item in await store.asearch(DORA, query="locker code")]

    with closing(InfiniteStore(tmp_path / "chat.db", embedder="words")) as store:
        assert asyncio.run(work(store)) == [{"text": "the locker code is 4471"}]


def test_a_tool_finds_the_items_of_the_user_and_nothing_that_was_said() -> None:
    with pool_at(scope="user") as pool:
        store = InfiniteStore(pool)
        store.put((*DORA, "notes"), "bike", {"text": "dora's bicycle was bought in Porto"})
        store.put(EMIL, "bike", {"text": "emil's bicycle is blue"})

        def look(item: str, runtime: ToolRuntime) -> str:
            """Look at an item."""
            assert runtime.store is not None
            return " | ".join(found.value["text"] for found in runtime.store.search(DORA, query=item))

        def reply(messages: Any) -> AIMessage:
            if messages[-1].type == "human" and "find" in messages[-1].text:
                return AIMessage("", tool_calls=[{"name": "look", "args": {"item": "bicycle"}, "id": "1"}])
            return AIMessage("fine")

        one = agent(Model(reply=reply), memory(pool), tools=[look], store=store)
        ask(one, "my bicycle is red", "notes", user_id="dora")
        assert ask(one, "find it", "tuesday", user_id="dora")[-2].text == "dora's bicycle was bought in Porto"
        assert [item.key for item in store.search((*DORA, "notes"), query="bicycle")] == ["bike"]


def test_items_of_nobody_are_kept_beside_those_of_users() -> None:
    with pool_at(scope="user") as pool:
        store = InfiniteStore(pool)
        fill(store)
        assert [item.value["n"] for item in store.search(("team",), query="when is the standup?")] == [4]
        assert sorted(item.value["n"] for item in store.search(())) == [1, 2, 3, 4]
        store.delete(("team", "x y"), "rule")
        assert store.get(("team", "x y"), "rule") is None


@pytest.mark.parametrize("way", ["invoke", "ainvoke"])
def test_a_fact_that_an_agent_saves_is_recalled_in_another_thread(way: str) -> None:
    def reply(messages: Any) -> AIMessage:
        if messages[-1].type == "human" and messages[-1].text.startswith("save"):
            call = {"name": "remember", "args": {"fact": "dora's shoe size is 39"}, "id": "1"}
            return AIMessage("", tool_calls=[call])
        return AIMessage("fine")

    with pool_at(scope="user") as pool:
        model = Model(reply=reply)
        store = InfiniteStore(pool)
        one = agent(model, memory(pool), tools=[remember_tool(store)])

        def say(text: str, thread: str, user: str) -> None:
            given, names = {"messages": [HumanMessage(text)]}, config(thread, user_id=user)
            one.invoke(given, names) if way == "invoke" else asyncio.run(one.ainvoke(given, names))

        say("save it", "monday", "dora")
        say("save it again", "monday", "dora")
        assert [item.value["text"] for item in store.search(DORA)] == ["dora's shoe size is 39"]
        say("what shoe size?", "tuesday", "dora")
        assert "- note: dora's shoe size is 39" in str(model.last)
        say("what shoe size?", "wednesday", "emil")
        assert "shoe size is" not in str(model.last)
        alone = remember_tool(store).invoke({"fact": "x"})
        assert alone == "Nothing was saved: this run names no user."
    with pytest.raises(TypeError, match="expected an InfiniteStore"):
        remember_tool("chat.db")  # type: ignore[arg-type]


def test_an_item_is_never_lost_or_doubled() -> None:
    with closing(InfiniteStore()) as store:
        for value in ({"n": 1, "t": "same"}, {"n": 2, "t": "same"}, {"n": 2, "t": "same"}):
            store.put(("a",), "x", value, index=False)
            assert store.get(("a",), "x").value == value  # type: ignore[union-attr]
        with ThreadPoolExecutor(8) as threads:
            list(threads.map(lambda number: store.put(("a",), "y", {"n": number}), range(24)))
        assert [item.key for item in store.search(("a",))].count("y") == 1


def test_an_item_is_found_however_much_was_said_about_it_elsewhere() -> None:
    pool = SessionPool()
    with closing(pool), closing(InfiniteStore(pool)) as store:
        for number in range(3):
            store.put(("user", "ann", "notes"), f"k{number}", {"text": f"The cat likes fish {number}."})
        with pool.use("talk", "ann") as memory:
            memory.add([Message.user(f"My cat ate fish on day {day}.", id=f"m{day}") for day in range(30)])
        found = store.search(("user", "ann", "notes"), query="cat fish", limit=3)
        assert {item.key for item in found} == {"k0", "k1", "k2"}
        assert store.search(("user", "ann", "talk"), query="cat fish day 7") == []
