"""Whose memory a run has: no prompt holds words of another conversation."""

import asyncio
import operator
import re
import uuid
from collections.abc import Callable, Sequence
from contextlib import closing
from typing import Annotated, Any, TypedDict

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import SummarizationMiddleware
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.runtime import Runtime
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
from langchain_infinite_memory.identity import Thread
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
    reply,
    said,
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
    def test_each_is_a_session_of_its_own(self, way: str, tmp_path: Any) -> None:
        model, middleware = Model(), memory(tmp_path / "memory.db")
        texts = [f"mark-{number}: look at a then b" for number in range(4)]
        results = run(agent(model, middleware), way, [question(text) for text in texts])
        assert [marks(sent) for sent in model.sent].count(set()) == 0
        assert sorted(len(marks(sent)) for sent in model.sent) == [1] * 12
        assert [result["messages"][-1].text for result in results] == [f"fine: {text}" for text in texts]
        assert sessions(middleware.pool) == [], "nothing of it is stored"
        assert middleware._memory._runs._idle == [], "nor kept"
        middleware.close()

    def test_one_sees_all_of_its_own_list(self) -> None:
        model = Model()
        history = [HumanMessage("my code is 4471"), AIMessage("fine"), *[HumanMessage("of rain " * 20)] * 9]
        given = {"messages": [*history, HumanMessage("what is my code?")]}
        one = agent(model, memory(max_tokens=120))
        assert [one.invoke(given)["messages"][-1].text for _ in range(2)] == ["4471", "4471"]
        assert ask_alone(one, "what is my code?") == "I do not know"

    def test_runs_that_fail_are_bounded(self) -> None:
        def fails(messages: Any) -> AIMessage:
            raise RuntimeError("no")

        middleware = memory()
        one = agent(Model(reply=fails), middleware)
        for number in range(3):
            with pytest.raises(RuntimeError, match="no"):
                one.invoke(question(f"{number}"))
        assert len(middleware._memory._runs._idle) == 3
        middleware._memory._runs._size = 2
        with pytest.raises(RuntimeError, match="no"):
            one.invoke(question("4"))
        assert len(middleware._memory._runs._idle) == 2

    def test_a_first_message_of_the_same_id_is_another_run(self) -> None:
        model = Model()
        one = agent(model, memory())
        for text in ("mark-a", "mark-b"):
            one.invoke({"messages": [HumanMessage(text, id="1")]})
        assert [marks(sent) for sent in model.sent] == [{"mark-a"}, {"mark-b"}]

    def test_runs_at_once_whose_lists_begin_with_the_same_message(self) -> None:
        memories = memory()._memory
        nobody, greeting = Thread(None), AIMessage("hello", id="1")
        own = {name: [greeting, HumanMessage(f"mark-{name} code", id=name)] for name in "ab"}
        for _ in range(2):
            for list_ in own.values():
                memories.prompt(nobody, list_)
            for list_ in own.values():
                found = memories.search(nobody, list_, "code", 9).found
                assert {hit.message.content for hit in found} == {message.text for message in list_}
                list_.append(AIMessage("fine"))
        assert len(memories._runs._idle) == 2
        for list_ in own.values():
            memories.end_run(nobody, list_)
        assert memories._runs._idle == []

    @ways
    def test_the_node_too(self, way: str) -> None:
        with SessionPool(token_counter=Words()) as pool:
            results = run(
                node_graph(infinite_memory_node(pool)), way, [question(f"mark-{number}") for number in range(4)]
            )
            assert [said(result["llm_input_messages"]) for result in results] == [
                [("human", f"mark-{number}")] for number in range(4)
            ]
            assert sessions(pool) == []


class TestNamedSessions:
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

    @pytest.mark.parametrize("named", [True, False])
    def test_a_thread_that_begins_without_a_message_leaves_the_session_as_it_is(self, *, named: bool) -> None:
        pool = SessionPool(token_counter=Words(), embedder="words", on_overflow="raise")
        for texts in (["my code is 4471"], [], ["what is my code?"]):
            middleware = memory(pool, session_id="bob" if named else None)
            one = agent(Model(reply=lambda messages: AIMessage("hello")), middleware, checkpointer=InMemorySaver())
            thread = f"thread {texts}" if named else "bob"
            one.invoke({"messages": [HumanMessage(text) for text in texts]}, config(thread))
        assert stored(middleware, "bob") == ["my code is 4471", "hello", "hello", "what is my code?", "hello"]

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

    def test_what_another_agent_or_a_failed_run_did_with_the_checkpointer_does_not_matter(self, tmp_path: Any) -> None:
        """An agent that is made for each request continues what is stored, even if the first request failed."""

        def fails(messages: Any) -> AIMessage:
            raise RuntimeError("no")

        def request(text: str, saver: Any, reply_: Any = reply) -> str:
            middleware = memory(tmp_path / "memory.db")
            with closing(middleware):
                return str(ask(agent(Model(reply=reply_), middleware, checkpointer=saver), text)[-1].text)

        request("my code is 4471", InMemorySaver())
        saver = InMemorySaver()  # with another process
        ask(agent(Model(), memory(), checkpointer=saver), "hello")
        with pytest.raises(RuntimeError, match="no"):
            request("hello", saver, fails)
        assert [request("what is my code?", saver) for _ in range(2)] == ["4471", "4471"]

    def test_a_new_checkpointer_in_memory_for_each_run(self) -> None:
        middleware = memory()
        texts = ["my code is 4471", "what is my code?", "and?", "what is my code?"]
        for text in texts:
            answer = ask(agent(Model(), middleware, checkpointer=InMemorySaver()), text)[-1].text
        assert answer == "4471"
        assert stored(middleware)[::2] == texts

    def test_without_a_checkpointer_the_stored_history_is_added(self) -> None:
        one = agent(Model(), memory())
        ask(one, "my code is 4471")
        assert ask(one, "what is my code?")[-1].text == "4471"
        exact = agent(Model(), memory(removed="leave_out"))
        ask(exact, "my code is 4471")
        assert ask(exact, "what is my code?")[-1].text == "I do not know"


def ask_alone(one: Any, text: str) -> str:
    return str(one.invoke(question(text))["messages"][-1].text)


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
        middleware.forget(thread_id="t", message_ids=[str(messages[0].id)])
        assert stored(middleware, own) == [message.text for message in messages[1:]]
        ask(one, "and?") if saved else one.invoke({"messages": [*messages, HumanMessage("and?")]}, config())
        assert stored(middleware, own)[0] == messages[1].text

    def test_a_summary_in_a_node_leaves_the_session_as_it_is(self) -> None:
        middleware = memory(max_tokens=80)
        summing = SummarizationMiddleware(
            Model(reply=lambda messages: AIMessage("of rain")), trigger=("messages", 6), keep=("messages", 2)
        )
        agent_ = create_agent(Model(), tools=[], middleware=[middleware, summing])

        class Replaced(TypedDict):
            messages: list[BaseMessage]

        builder = StateGraph(Replaced)
        builder.add_node("worker", agent_)
        builder.add_edge(START, "worker")
        one: Any = builder.compile()
        messages: list[BaseMessage] = []
        for text in ("my code is 4471", *["of rain"] * 9, "what is my code?"):
            messages = one.invoke({"messages": [*messages, HumanMessage(text)]}, config())["messages"]
        assert len(messages) < 8
        assert len(sessions(middleware.pool)) == 1
        assert messages[-1].text == "4471"

    @ways
    @pytest.mark.parametrize("search", ["own tool", "tool", "retriever"])
    def test_what_searches_in_a_nested_graph_finds_what_its_list_said(self, way: str, search: str) -> None:
        """Also while others work on the same list, as workers do that are sent with all that was said."""
        pool = SessionPool(token_counter=Words(), embedder="words", max_tokens=4096, reserve_tokens=0)
        middleware, found = memory(pool, recall_tool=search == "own tool"), []
        retriever = HistoryRetriever(store=pool, session_key="thread_id", k=20)

        @tool
        def look_back(query: str) -> str:
            """Look back."""
            return " ".join(document.page_content for document in retriever.invoke(query))

        own, other = recall_tool(store=pool), {"own tool": [], "tool": [], "retriever": [look_back]}[search]
        name = "look_back" if search == "retriever" else own.name

        def reply(messages: Sequence[BaseMessage]) -> AIMessage:
            if messages[-1].type == "tool":
                asked = [m for m in messages if m.type == "human"][-1]
                found.append((marks(Sent([asked], [])), marks(Sent([messages[-1]], []))))
                return AIMessage("done")
            return AIMessage("", tool_calls=[{"name": name, "args": {"query": "mark note"}, "id": str(len(messages))}])

        tools = [own] if search == "tool" else other
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
        own_words = [{f"mark-{n}"} for n in range(4)]
        expected = [(one, {"mark-all"} | (one if search == "retriever" else set())) for one in own_words]
        assert sorted(found, key=lambda pair: sorted(pair[0])) == expected

    @ways
    @pytest.mark.parametrize("thread", ["t", None])
    @pytest.mark.parametrize("saved", [True, False])
    def test_workers_that_send_starts(self, way: str, thread: str | None, *, saved: bool) -> None:
        if saved and thread is None:
            return
        model, middleware = Model(), memory()

        class State(TypedDict):
            messages: Annotated[list[BaseMessage], operator.add]

        builder = StateGraph(State)
        builder.add_node("worker", create_agent(model, tools=[], middleware=[middleware]))
        builder.add_conditional_edges(START, tasks)
        one = builder.compile(checkpointer=InMemorySaver() if saved else None)
        for _ in range(2):
            run(one, way, [question("go")], config(thread) if thread else None)
        assert sorted(len(marks(sent)) for sent in model.sent) == [1] * 8

    @ways
    @pytest.mark.parametrize("saved", [True, False])
    def test_nodes_that_send_starts(self, way: str, *, saved: bool) -> None:
        with SessionPool(token_counter=Words()) as pool:
            node, prompts = infinite_memory_node(pool), []

            def worker(state: Any) -> dict[str, Any]:
                prompts.append(node.invoke(state)["llm_input_messages"])
                return {}

            async def aworker(state: Any) -> dict[str, Any]:
                prompts.append((await node.ainvoke(state))["llm_input_messages"])
                return {}

            builder = StateGraph(MessagesState)
            builder.add_node("worker", worker if way == "invoke" else aworker)
            builder.add_conditional_edges(START, tasks)
            one = builder.compile(checkpointer=InMemorySaver() if saved else None)
            for _ in range(2):
                run(one, way, [question("go")], config())
            assert sorted(len(marks(Sent(prompt, []))) for prompt in prompts) == [1] * 8
            assert all(name.startswith("t//worker:") for name in sessions(pool))


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
    reading = SQLiteStore._reading

    def counted(store: SQLiteStore) -> Any:
        reads.append(store)
        return reading(store)

    monkeypatch.setattr(SQLiteStore, "_reading", counted)
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


@pytest.mark.skipif(
    not hasattr(Runtime, "execution_info"), reason="this LangGraph does not tell the run_id it is given"
)
def test_a_report_has_the_id_that_its_run_was_given() -> None:
    runs: list[Any] = []
    one = agent(Model(), memory(on_report=lambda report, run: runs.append(run.run_id)))
    run_id = uuid.uuid4()
    one.invoke(question("hello"), {**config("t"), "run_id": run_id})
    assert runs == [str(run_id)]


@ways
def test_recall_is_a_run_among_the_events(way: str) -> None:
    model = Model()
    one = agent(model, memory(max_tokens=120), checkpointer=InMemorySaver())
    for text in ("my code is 4471", *["of rain " * 20] * 4):
        ask(one, text)

    async def events() -> list[Any]:
        return [event async for event in one.astream_events(question("what is my code?"), config(), version="v2")]

    class Handler(BaseCallbackHandler):
        def on_retriever_end(self, documents: Any, *, parent_run_id: Any = None, **kwargs: Any) -> None:
            found.append((parent_run_id is not None, [document.page_content for document in documents]))

    found: list[Any] = []
    if way == "invoke":
        one.invoke(question("what is my code?"), {**config(), "callbacks": [Handler()]})
    else:
        ended = [event for event in asyncio.run(events()) if event["event"] == "on_retriever_end"]
        found = [
            (bool(event["parent_ids"]), [document.page_content for document in event["data"]["output"]])
            for event in ended
        ]
    assert found[-1][0]
    assert "my code is 4471" in found[-1][1]


def in_context(middleware: InfiniteMemoryMiddleware) -> None:
    agent(Model(), middleware, context_schema=dict).invoke(question("hello"), config(), context={"user_id": ""})


@pytest.mark.parametrize(
    "use",
    [
        in_context,
        lambda middleware: ask(agent(Model(), middleware), "hello", user_id=""),
        lambda middleware: middleware.forget(thread_id="t", user_id=""),
        lambda middleware: recall_tool(middleware.pool, user_id=""),
        lambda middleware: HistoryRetriever(middleware.pool, session_id="t", user_id="").invoke("hello"),
    ],
    ids=["context", "configurable", "forget", "tool", "retriever"],
)
def test_an_empty_user_id_is_an_error_not_nobody(use: Callable[[InfiniteMemoryMiddleware], Any]) -> None:
    with closing(memory()) as middleware, pytest.raises(ValueError, match="user_id=''"):
        use(middleware)


def test_a_wrong_argument_is_refused_where_it_is_given() -> None:
    with pytest.raises(ValueError, match="removed='leave-out'"):
        InfiniteMemoryMiddleware(removed="leave-out")  # type: ignore[arg-type]


NO_IDS = [True, 1.0, ["dora"], b"dora", {}, object()]


@pytest.mark.parametrize("id_", NO_IDS, ids=lambda id_: type(id_).__name__)
@pytest.mark.parametrize("key", ["thread_id", "session_id", "user_id"])
def test_only_a_text_a_number_or_a_uuid_is_an_id(key: str, id_: Any) -> None:
    """The text of another object may be that of a second one, whose memory would be the same."""
    names: Any = {"configurable": {"session_id": "t", key: id_}}
    with closing(memory()) as middleware, closing(with_infinite_memory(Model(), store=middleware.pool)) as chain:
        for one, given in ((agent(Model(), middleware), question("hello")), (chain, "hello")):
            if key != "thread_id" or one is not chain:  # whose session_id counts
                with pytest.raises(ValueError, match=f"{key}=.*: expected a text, a whole number or a UUID"):
                    one.invoke(given, names)


def test_ids_are_taken_by_their_text() -> None:
    own = uuid.uuid4()
    with closing(memory()) as middleware:
        one = agent(Model(), middleware)
        for thread, user in ((own, 5), (str(own), "5")):
            one.invoke(question("hello"), {"configurable": {"thread_id": thread, "user_id": user}})
        assert [(key.session_id, key.user_id) for key in middleware.pool.store.sessions()] == [(str(own), "5")]


def test_a_session_that_a_function_names_empty_is_an_error() -> None:
    with (
        closing(memory(session_id=lambda runtime: "")) as middleware,
        pytest.raises(ValueError, match="session_id=''"),
    ):
        ask(agent(Model(), middleware), "hello")


def test_erasing_no_messages_erases_nothing() -> None:
    with closing(memory()) as middleware:
        ask(agent(Model(), middleware), "hello")
        assert middleware.forget(thread_id="t", message_ids=[]).ids == ()
        assert stored(middleware) == ["hello", "fine: hello"]


@pytest.mark.parametrize(
    ("use", "name"),
    [
        (lambda middleware: ask(agent(Model(), middleware), "hello", ""), "thread_id"),
        (lambda middleware: ask(agent(Model(), middleware), "hello", session_id=""), "session_id"),
        (lambda middleware: middleware.forget(thread_id=""), "thread_id"),
    ],
)
def test_an_empty_name_of_a_conversation_is_an_error(use: Callable[[Any], Any], name: str) -> None:
    with (
        closing(memory()) as middleware,
        pytest.raises(ValueError, match=f"{name}='': pass the id of the conversation"),
    ):
        use(middleware)


def test_an_argument_of_something_else_says_what_to_do(subtests: pytest.Subtests) -> None:
    rows: list[tuple[Callable[[], Any], str]] = [
        (lambda: memory(user_id="ann"), "name them in each run: .*'configurable': .'user_id'"),
        (lambda: infinite_memory_node(session_id="t", user_id="ann"), "name them in each run"),
        (lambda: infinite_memory_node(recall_tool=True), r"recall_tool\(store\) makes one"),
        (lambda: memory(recall_tool="yes"), "recall_tool='yes'"),
        (lambda: memory(system="be brief"), r"create_agent\(system_prompt="),
        (lambda: memory(SessionPool(system="be brief")), r"create_agent\(system_prompt="),
        (lambda: memory(user_key=""), "user_key='': expected a name"),
        (lambda: memory(user_key=5), "user_key=5: expected a text"),
        (lambda: memory(session_id=""), "session_id='': expected a name"),
        (lambda: memory(session_id=0), "session_id=0: expected a text"),
        (lambda: memory(share_with_subgraphs="x"), "share_with_subgraphs='x'"),
        (lambda: memory(name=5), "name=5: expected a text"),
        (lambda: memory(on_report=5), r"on_report=5: expected a function, on_report\(report, run\)"),
        (lambda: memory(max_tokens=("tokens", 200), reserve_tokens=500), "max_tokens=200 is not larger than"),
        (lambda: memory().forget(thread_id="t", message_ids="abc"), r"write message_ids=\['abc'\]"),
        (lambda: memory().forget(), "forget: pass thread_id=, the thread to erase"),
        (lambda: infinite_memory_node(user_key=""), "user_key=''"),
        (lambda: infinite_memory_node(on_report=5), "on_report=5"),  # type: ignore[arg-type]
        (lambda: with_infinite_memory(Model(), user_key=""), "user_key=''"),
        (lambda: with_infinite_memory(Model(), session_key=""), "session_key=''"),
        (lambda: with_infinite_memory(Model(), on_report=5), "on_report=5"),
        (lambda: with_infinite_memory(Model(), input_key=5), "input_key=5: expected a text"),
        (lambda: recall_tool(user_key=""), "user_key=''"),
        (lambda: recall_tool(template=5), "template=5: expected a RecallTemplate"),  # type: ignore[arg-type]
        (lambda: HistoryRetriever(user_key=""), "user_key=''"),
        (lambda: HistoryRetriever(session_id="t").invoke("x", k="three"), "k='three': expected a whole number"),
        (lambda: InfiniteChatMessageHistory(""), "session_id='': expected a name"),
        (lambda: prune_messages([], max_tokens=-5, token_counter=len), "max_tokens=-5"),
        (lambda: prune_messages([], max_tokens=5, token_counter=len, query=5), "query=5"),  # type: ignore[call-overload]
    ]
    for make, advice in rows:
        with subtests.test(make=make, advice=advice), pytest.raises((TypeError, ValueError), match=advice):
            make()
