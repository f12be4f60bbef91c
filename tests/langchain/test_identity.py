"""Whose memory a run has: no prompt holds words of another conversation."""

import asyncio
import re
import uuid
from collections.abc import Callable, Sequence
from contextlib import closing
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import Send

from langchain_infinite_memory import (
    HistoryRetriever,
    InfiniteChatMessageHistory,
    InfiniteMemoryMiddleware,
    infinite_memory_node,
    prune_messages,
    recall_tool,
    with_infinite_memory,
)
from shared_core.memory import InfiniteMemory
from shared_core.pool import SessionPool
from shared_core.stores.sqlite.sqlite_store import SQLiteStore
from tests.langchain.agents import (
    Model,
    Sent,
    Words,
    agent,
    ask,
    branches_of,
    config,
    memory,
    sqlite_saver,
    stored,
)

MARK = re.compile(r"mark-\w+")

ways = pytest.mark.parametrize("way", ["invoke", "ainvoke"])


def marks(sent: Sent) -> set[str]:
    return {mark for message in sent.messages for mark in MARK.findall(str(message.text))}


def run(graph: Any, way: str, given: Sequence[Any], settings: Any = None) -> list[Any]:
    """Run a graph on several inputs: one after the other, or at once."""
    if way == "invoke":
        return [graph.invoke(one, settings) for one in given]

    async def work() -> list[Any]:
        return list(await asyncio.gather(*(graph.ainvoke(one, settings) for one in given)))

    return asyncio.run(work())


def question(text: str) -> dict[str, Any]:
    return {"messages": [HumanMessage(text)]}


def sessions(pool: SessionPool) -> list[str]:
    return [one.session_id for one in pool.store.sessions(None)]


class TestRunsWithoutIds:
    @ways
    @pytest.mark.parametrize("on_error", ["window", "raise"])
    def test_an_agent_says_what_to_name(self, way: str, on_error: Any) -> None:
        model, middleware = Model(), memory(on_error=on_error)
        with pytest.raises(ValueError, match="config names no 'thread_id': call with config="):
            run(agent(model, middleware), way, [question("hello")])
        assert (model.sent, sessions(middleware.pool)) == ([], [])

    @ways
    def test_a_node_too(self, way: str) -> None:
        with SessionPool() as pool, pytest.raises(ValueError, match="config names no 'thread_id'"):
            run(node_graph(infinite_memory_node(pool)), way, [question("hello")])


class TestNamedSessions:
    def test_a_thread_that_begins_without_a_message_leaves_the_session_as_it_is(self) -> None:
        pool = SessionPool(token_counter=Words(), embedder="words", on_overflow="raise")
        for number, texts in enumerate((["my code is 4471"], [], ["what is my code?"])):
            middleware = memory(pool, session_id="bob")
            one = agent(Model(reply=lambda messages: AIMessage("hello")), middleware, checkpointer=InMemorySaver())
            one.invoke({"messages": [HumanMessage(text) for text in texts]}, config(f"thread {number}"))
        assert stored(middleware, "bob") == ["my code is 4471", "hello", "hello", "what is my code?", "hello"]

    def test_by_a_function_of_the_runtime(self) -> None:
        pool = SessionPool(token_counter=Words())
        middleware = memory(pool, session_id=lambda runtime: (runtime.context or {}).get("project"))
        one = agent(Model(), middleware, context_schema=dict)
        one.invoke(question("one"), config("t"), context={"project": "bridge"})
        one.invoke(question("two"), config("t"), context={})
        assert sessions(pool) == ["bridge", "t"]

    def test_a_new_thread_continues_a_session_that_is_named(self) -> None:
        model, middleware = Model(), memory(session_id="bob")
        one = agent(model, middleware, checkpointer=InMemorySaver())
        ask(one, "my code is 4471", "first")
        assert ask(one, "what is my code?", "second")[-1].text == "4471"
        ask(one, "and?", "second")
        assert stored(middleware, "bob") == [
            "my code is 4471", "fine: my code is 4471", "what is my code?", "4471", "and?", "fine: and?",
        ]  # fmt: skip

    @pytest.mark.parametrize("durable", [False, True])
    def test_a_thread_continues_only_if_its_checkpointer_lost_its_state(self, tmp_path: Any, *, durable: bool) -> None:
        """With another process, a checkpointer in memory begins anew; one on disk knows that the thread is new."""
        for turn, text in enumerate(["my code is 4471", "what is my code?", "what is my code?"]):
            middleware = memory(tmp_path / "memory.db")
            if durable:
                with sqlite_saver(tmp_path / f"graph-{turn}.db") as saver:
                    answer = ask(agent(Model(), middleware, checkpointer=saver), text)[-1].text
            else:
                kept = InMemorySaver()
                answer = ask(agent(Model(), middleware, checkpointer=kept), text)[-1].text
                middleware.close()
                middleware = memory(tmp_path / "memory.db")
                assert ask(agent(Model(), middleware, checkpointer=kept), "what is my code?")[-1].text == "4471"
            middleware.close()
        assert answer == ("I do not know" if durable else "4471")

    def test_without_a_checkpointer_the_stored_history_is_added(self) -> None:
        one = agent(Model(), memory())
        ask(one, "my code is 4471")
        assert ask(one, "what is my code?")[-1].text == "4471"
        exact = agent(Model(), memory(removed="leave_out"))
        ask(exact, "my code is 4471")
        assert ask(exact, "what is my code?")[-1].text == "I do not know"


def node_graph(node: Any, **arguments: Any) -> Any:
    class State(MessagesState):
        llm_input_messages: list[BaseMessage]

    builder = StateGraph(State)
    builder.add_node("memory", node)
    builder.add_edge(START, "memory")
    return builder.compile(**arguments)


def with_sub_agent(middleware: Any, checkpointer: Any = None, *, own: Any = None) -> tuple[Any, Model]:
    """An agent whose tool asks another agent; both have the same memory."""
    model = Model()
    sub = create_agent(model, tools=[], middleware=[middleware], checkpointer=own)

    @tool
    def look(item: str) -> str:
        """Look at an item."""
        task: Any = question(f"mark-{item} task")
        return str(sub.invoke(task)["messages"][-1].text)

    return agent(Model(), middleware, tools=[look], checkpointer=checkpointer), model


class TestNestedGraphs:
    @pytest.mark.parametrize("saved", [True, False])
    @pytest.mark.parametrize("session", [None, "fixed"])
    def test_a_sub_agent_in_a_tool(self, session: str | None, *, saved: bool) -> None:
        middleware = memory(session_id=session)
        one, model = with_sub_agent(middleware, InMemorySaver() if saved else None)
        for number in range(2):
            ask(one, f"look at a{number}, b{number}")
        assert [len(marks(sent)) for sent in model.sent] == [1] * 4
        assert sorted(mark for sent in model.sent for mark in marks(sent)) == [
            "mark-a0", "mark-a1", "mark-b0", "mark-b1",
        ]  # fmt: skip
        own = session or "t"
        assert [name.startswith(f"{own}//tools:") for name in sessions(middleware.pool) if name != own] == [True] * 4
        assert "mark-a0 task" not in stored(middleware, own)
        assert stored(middleware, own)[0] == "look at a0, b0"

    def test_one_with_a_checkpointer_of_its_own_continues(self) -> None:
        middleware = memory()
        one, model = with_sub_agent(middleware, InMemorySaver(), own=True)
        for number in range(2):
            ask(one, f"look at a{number}")
        assert [marks(sent) for sent in model.sent] == [{"mark-a0"}, {"mark-a0", "mark-a1"}]
        assert sorted(sessions(middleware.pool)) == ["t", "t//tools"]

    @pytest.mark.parametrize("saved", [True, False])
    @pytest.mark.parametrize("shared", [False, True])
    def test_an_agent_that_is_a_node_has_one_session(self, *, shared: bool, saved: bool) -> None:
        runs: list[Any] = []
        middleware = memory(share_with_subgraphs=shared, max_tokens=60, on_report=lambda report, run: runs.append(run))
        one = as_a_node(create_agent(Model(), tools=[], middleware=[middleware]), InMemorySaver() if saved else None)
        messages: list[BaseMessage] = []
        for text in ("my code is 4471", *[f"of rain {number}" for number in range(20)], "what is my code?"):
            given: Any = {"messages": [*([] if saved else messages), HumanMessage(text)]}
            messages = one.invoke(given, config())["messages"]
        assert messages[-1].text == "4471"
        own = "t" if shared else f"t//worker:{messages[0].id}"
        assert sessions(middleware.pool) == [own]
        assert stored(middleware, own) == [message.text for message in messages]
        assert middleware.pool.store.stats(1)["messages"] == len(messages) == 44
        assert {run.session_id for run in runs} == {own}
        if saved:
            middleware.forget(thread_id="t", message_ids=[str(messages[0].id)])
            assert stored(middleware, own) == [message.text for message in messages[1:]]
            ask(one, "and?")
            assert stored(middleware, own)[0] == messages[1].text

    @ways
    @pytest.mark.parametrize("search", ["own tool", "tool"])
    def test_what_searches_in_a_nested_graph_finds_what_its_list_said(self, way: str, search: str) -> None:
        """Also while others work on the same list, as workers do that are sent with all that was said."""
        pool = SessionPool(token_counter=Words(), embedder="words", max_tokens=4096, reserve_tokens=0)
        middleware, found = memory(pool, recall_tool=search == "own tool"), []
        own = recall_tool(pool)

        def reply(messages: Sequence[BaseMessage]) -> AIMessage:
            if messages[-1].type == "tool":
                asked = [m for m in messages if m.type == "human"][-1]
                found.append((marks(Sent([asked], [])), marks(Sent([messages[-1]], []))))
                return AIMessage("done")
            return AIMessage(
                "", tool_calls=[{"name": own.name, "args": {"query": "mark note"}, "id": str(len(messages))}]
            )

        tools = [own] if search == "tool" else []
        worker = create_agent(Model(reply=reply), tools=tools, middleware=[middleware])
        builder = StateGraph(MessagesState)
        builder.add_node("worker", worker)
        builder.add_conditional_edges(
            START,
            lambda state: [
                Send("worker", {"messages": [*state["messages"], AIMessage("fine"), HumanMessage(f"mark-{n} note")]})
                for n in range(4)
            ],
        )
        given: Any = {"messages": [HumanMessage("mark-all note", id="first")]}
        run(builder.compile(), way, [given], config(user_id="ann"))
        expected = [({f"mark-{n}"}, {"mark-all"}) for n in range(4)]
        assert sorted(found, key=lambda pair: sorted(pair[0])) == expected


def as_a_node(worker: Any, checkpointer: Any = None) -> Any:
    """A graph that has another one, which works on its messages, as its only node."""
    builder = StateGraph(MessagesState)
    builder.add_node("worker", worker)
    builder.add_edge(START, "worker")
    return builder.compile(checkpointer=checkpointer)


def tasks(state: Any) -> list[Send]:
    return [Send("worker", {"messages": [HumanMessage(f"mark-{number}")]}) for number in range(4)]


def test_what_a_sub_agent_said_is_not_recalled_for_the_user() -> None:
    middleware = memory(scope="user", user_key="who")
    one, model = with_sub_agent(middleware, InMemorySaver())
    for number in range(2):
        ask(one, f"look at a{number} then b{number}", f"t{number}", who="ann")
    assert [len(marks(sent)) for sent in model.sent] == [1, 1, 1, 1]
    done = [one.session_id for one in middleware.pool.sessions("ann") if "/" in one.session_id]
    assert sorted(len(branches_of(middleware, name, "ann")) for name in done) == [2, 2, 2, 2], "it stays on record"
    assert [stored(middleware, name, "ann") for name in done] == [[]] * 4


def test_a_question_costs_no_more_for_what_sub_agents_have_said(monkeypatch: pytest.MonkeyPatch) -> None:
    reads: list[Any] = []
    reading = SQLiteStore._read

    def counted(store: SQLiteStore, ask: Any) -> Any:
        reads.append(store)
        return reading(store, ask)

    monkeypatch.setattr(SQLiteStore, "_read", counted)
    middleware, cost = memory(scope="user", user_key="who"), []
    one, _ = with_sub_agent(middleware, InMemorySaver())
    for number in range(3):
        ask(one, "look at " + ", ".join(f"a{number}{n}" for n in range(4)), who="ann")
        with InfiniteMemory(middleware.pool.store, session_id="new", user_id="ann", scope="user") as asking:
            asking.search("look at a00", 1)
            reads.clear()
            assert {hit.session_id for hit in asking.search("look at a00", 1)} == {"t"}
        cost.append(len(reads))
    assert len(middleware.pool.store.sessions("ann")) == 1 + 12
    assert cost == [cost[0]] * 3 != [0] * 3


def test_a_report_names_its_session_and_what_it_raises_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    runs: list[Any] = []

    def note(report: Any, run: Any) -> None:
        runs.append((run.session_id, run.user_id, run.thread_id))
        raise RuntimeError("no room for reports")

    one = agent(Model(), memory(session_id="s", on_report=note))
    assert one.invoke(question("hello"), config("t", user_id=7))["messages"][-1].text == "fine: hello"
    assert "no room for reports" in caplog.text
    one.invoke(question("hello"))
    assert runs == [("s", "7", "t"), ("s", None, None)]


def in_context(middleware: InfiniteMemoryMiddleware) -> None:
    agent(Model(), middleware, context_schema=dict).invoke(question("hello"), config(), context={"user_id": ""})


NO_IDS = [True, 1.0, ["dora"], {}, object()]


@pytest.mark.parametrize("id_", NO_IDS, ids=lambda id_: type(id_).__name__)
def test_only_a_text_a_number_or_a_uuid_is_an_id(id_: Any) -> None:
    """The text of another object may be that of a second one, whose memory would be the same."""
    with closing(memory()) as middleware, closing(with_infinite_memory(Model(), store=middleware.pool)) as chain:
        one, chat = agent(Model(), middleware), question("hello")
        for called, given, keys in ((one, chat, ("thread_id", "user_id")), (chain, "hello", ("session_id", "user_id"))):
            for key in keys:
                names: Any = {"configurable": {"session_id": "t", key: id_}}
                with pytest.raises(ValueError, match=f"{key}="):
                    called.invoke(given, names)


def test_a_wrong_argument_is_named() -> None:
    """An empty user is not nobody, and an empty name is no conversation."""
    rows: list[tuple[Callable[[], Any], str]] = [
        (lambda: in_context(memory()), "user_id=''"),
        (lambda: ask(agent(Model(), memory()), "hello", user_id=""), "user_id=''"),
        (lambda: ask(agent(Model(), memory()), "hello", ""), "thread_id=''"),
        (lambda: ask(agent(Model(), memory()), "hello", session_id=""), "session_id=''"),
        (lambda: ask(agent(Model(), memory(session_id=lambda runtime: "")), "hello"), "session_id=''"),
        (lambda: memory().forget(thread_id="t", user_id=""), "user_id=''"),
        (lambda: memory().forget(thread_id=""), "thread_id=''"),
        (lambda: memory().forget(thread_id="t", message_ids="abc"), "message_ids="),
        (lambda: memory().forget(), "thread_id="),
        (lambda: recall_tool(SessionPool(), user_id=""), "user_id=''"),
        (lambda: HistoryRetriever(pool=SessionPool(), user_id=""), "user_id"),
        (lambda: memory(user_id="ann"), "'user_id'"),
        (lambda: infinite_memory_node(session_id="t", user_id="ann"), "user_id"),
        (lambda: infinite_memory_node(recall_tool=True), "recall_tool"),
        (lambda: memory(recall_tool="yes"), "recall_tool='yes'"),
        (lambda: memory(removed="leave-out"), "removed='leave-out'"),
        (lambda: memory(system="be brief"), "system"),
        (lambda: memory(InMemorySaver()), "InMemorySaver"),
        (lambda: memory(summarizer=7), "summarizer"),
        (lambda: with_infinite_memory(Model(), memory="chat.db"), "store="),
        (lambda: memory(SessionPool(system="be brief")), "system"),
        (lambda: memory(user_key=5), "user_key=5"),
        (lambda: memory(session_id=0), "session_id=0"),
        (lambda: memory(share_with_subgraphs="x"), "share_with_subgraphs='x'"),
        (lambda: memory(on_report=5), "on_report=5"),
        (lambda: memory(max_tokens=200, reserve_tokens=500), "max_tokens=200"),
        (lambda: infinite_memory_node(user_key=""), "user_key=''"),
        (lambda: with_infinite_memory(Model(), session_key=""), "session_key=''"),
        (lambda: with_infinite_memory(Model(), on_report=5), "on_report=5"),
        (lambda: with_infinite_memory(Model(), input_key=5), "input_key=5"),
        (lambda: recall_tool("chat.db"), "pool=SessionPool"),  # type: ignore[arg-type]
        (lambda: recall_tool(SessionPool(), template=5), "template=5"),  # type: ignore[arg-type]
        (lambda: HistoryRetriever(pool=SessionPool(), user_key=""), "user_key"),
        (lambda: HistoryRetriever(pool=SessionPool(), session_id="t").invoke("x", k="three"), "k='three'"),
        (lambda: InfiniteChatMessageHistory(""), "session_id=''"),
        (lambda: prune_messages([], max_tokens=-5, token_counter=len), "max_tokens=-5"),
        (lambda: prune_messages([], max_tokens=5, token_counter=len, query=5), "query=5"),  # type: ignore[arg-type]
    ]
    for make, named in rows:
        with pytest.raises((TypeError, ValueError), match=named):
            make()


def test_ids_are_taken_by_their_text() -> None:
    own = uuid.uuid4()
    with closing(memory()) as middleware:
        one = agent(Model(), middleware)
        for thread, user in ((own, 5), (str(own), "5")):
            one.invoke(question("hello"), {"configurable": {"thread_id": thread, "user_id": user}})
        assert [(key.session_id, key.user_id) for key in middleware.pool.store.sessions()] == [(str(own), "5")]
