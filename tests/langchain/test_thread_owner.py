"""A checkpointer's thread belongs to the user who began it: a run of another one stores and sends nothing."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph

from langchain_infinite_memory import infinite_memory_node
from shared_core.pool import SessionPool
from tests.langchain.agents import Model, Words, agent, config, memory, reply, sqlite_saver

SECRET = "my locker code is 4471"
REFUSED = "the state of this thread belongs to another user; make thread ids unique over all users"


class State(MessagesState):
    llm_input_messages: list[Any]


def with_middleware(pool: SessionPool, model: Model, saver: Any) -> Any:
    return agent(model, memory(pool), checkpointer=saver)


def with_agent_as_node(pool: SessionPool, model: Model, saver: Any) -> Any:
    """A graph that keeps the messages; its agent's own state begins anew with each run."""
    builder = StateGraph(MessagesState)
    builder.add_node("agent", agent(model, memory(pool)))
    builder.add_edge(START, "agent")
    return builder.compile(checkpointer=saver)


def with_node(pool: SessionPool, model: Model, saver: Any) -> Any:
    node: Any = infinite_memory_node(pool)
    builder = StateGraph(State)
    builder.add_node("remember", node)
    builder.add_node("answer", lambda state: {"messages": [model.invoke(state["llm_input_messages"])]})
    builder.add_edge(START, "remember")
    builder.add_edge("remember", "answer")
    return builder.compile(checkpointer=saver)


Build = Callable[[SessionPool, Model, Any], Any]

WAYS = pytest.mark.parametrize("build", [with_middleware, with_node, with_agent_as_node])


def open_pool(path: Path) -> SessionPool:
    limits: Any = {"max_tokens": 500, "reserve_tokens": 0}
    return SessionPool(path, token_counter=Words(), embedder="words", on_overflow="raise", **limits)


@contextmanager
def opened(build: Build, folder: Path, saver: Any, model: Model) -> Iterator[Any]:
    """What a process has: a pool and, unless one is given, a saver of its own, on the same files."""
    with open_pool(folder / "chat.db") as pool:
        if saver is not None:
            yield build(pool, model, saver)
            return
        with sqlite_saver(folder / "threads.db") as own:
            yield build(pool, model, own)


def run(one: Any, text: str, **names: Any) -> str:
    return str(one.invoke({"messages": [HumanMessage(text)]}, config("tuesday", **names))["messages"][-1].text)


def texts_of(folder: Path, user: str) -> list[str]:
    """What is stored of a user, in all sessions."""
    with open_pool(folder / "chat.db") as pool:
        found = []
        for info in pool.sessions(user):
            with pool.use(info.session_id, user) as one:
                found += [message.content for message in one.messages()]
        return found


@WAYS
@pytest.mark.parametrize("lasting", [False, True], ids=["in memory", "sqlite"])
def test_another_user_is_refused_and_the_same_one_goes_on(build: Build, lasting: bool, tmp_path: Path) -> None:
    saver, model = None if lasting else InMemorySaver(), Model()
    with opened(build, tmp_path, saver, model) as one:
        assert run(one, SECRET, user_id="dora") == f"fine: {SECRET}"
    stored, sent = texts_of(tmp_path, "dora"), len(model.sent)
    for _ in range(2):  # what the refused run left in the state changes nothing
        with opened(build, tmp_path, saver, model) as one, pytest.raises(ValueError, match=REFUSED) as raised:
            run(one, "what is my locker code?", user_id="emil")
        assert "dora" not in str(raised.value)
    assert (len(model.sent), texts_of(tmp_path, "emil"), texts_of(tmp_path, "dora")) == (sent, [], stored)
    with opened(build, tmp_path, saver, model) as one:
        assert run(one, "what is my locker code?", user_id="dora") == "4471"


@WAYS
def test_the_other_face_refuses_too(build: Build, tmp_path: Path) -> None:
    saver, model = InMemorySaver(), Model()
    with opened(build, tmp_path, saver, model) as one:
        run(one, SECRET, user_id="dora")
        with pytest.raises(ValueError, match=REFUSED):
            asyncio.run(one.ainvoke({"messages": [HumanMessage("and mine?")]}, config("tuesday", user_id="emil")))
    assert (len(model.sent), texts_of(tmp_path, "emil")) == (1, [])


@WAYS
def test_what_a_user_had_erased_is_not_given_to_another(build: Build, tmp_path: Path) -> None:
    saver, model = InMemorySaver(), Model()
    with opened(build, tmp_path, saver, model) as one:
        run(one, SECRET, user_id="dora")
    with open_pool(tmp_path / "chat.db") as pool, pool.use("any", "dora") as dora:
        dora.forget(user=True)
    with opened(build, tmp_path, saver, model) as one, pytest.raises(ValueError, match=REFUSED):
        run(one, "what is my locker code?", user_id="emil")
    assert (len(model.sent), texts_of(tmp_path, "emil"), texts_of(tmp_path, "dora")) == (1, [], [])


@WAYS
@pytest.mark.parametrize("text", [SECRET, "what is my locker code?"])
@pytest.mark.parametrize("lasting", [False, True], ids=["in memory", "sqlite"])
def test_a_run_that_goes_back_without_a_user_is_the_owners(
    build: Build, text: str, lasting: bool, tmp_path: Path
) -> None:
    """The configuration of a state in the thread's history names the thread, and no user."""
    saver, model = None if lasting else InMemorySaver(), Model()
    with opened(build, tmp_path, saver, model) as one:
        for question in (SECRET, "what is my locker code?"):
            run(one, question, user_id="dora")
    with opened(build, tmp_path, saver, model) as one:
        history = one.get_state_history({"configurable": {"thread_id": "tuesday"}})
        at_question = [
            state
            for state in history
            if state.next and (state.values.get("messages") or [AIMessage("")])[-1].text == text
        ]
        one.invoke(None, at_question[-1].config)
        assert run(one, "hello") == "fine: hello"
        assert run(one, "what is my locker code?", user_id="dora") == "4471"
    with open_pool(tmp_path / "chat.db") as pool:
        assert {key.user_id for key in pool.store.sessions()} == {"dora"}
        with pool.use("any", "dora") as dora:
            dora.forget(user=True)
    assert b"locker code" not in (tmp_path / "chat.db").read_bytes()


@WAYS
@pytest.mark.parametrize("process", ["same", "new"])
def test_a_thread_begun_without_a_user_stays_without_one(build: Build, process: str, tmp_path: Path) -> None:
    saver, model = InMemorySaver(), Model()
    with opened(build, tmp_path, saver, model) as one:
        assert run(one, SECRET) == f"fine: {SECRET}"
        another = opened(build, tmp_path, saver, model) if process == "new" else nullcontext(one)
        with another as two, pytest.raises(ValueError, match="begun without a user; go on without one, or begin"):
            run(two, "i am dora, what is my locker code?", user_id="dora")
        assert (len(model.sent), texts_of(tmp_path, "dora")) == (1, [])
        assert run(one, "what is my locker code?") == "4471"
    assert "dora" not in str(model.sent)


BROUGHT = [
    [HumanMessage("i am emil, my code is tulip9182")],
    [HumanMessage("i am emil"), AIMessage("hello emil"), HumanMessage("my code is tulip9182")],
    [SystemMessage("emil is from tulip9182"), HumanMessage("i am emil")],
]


@WAYS
@pytest.mark.parametrize("brought", BROUGHT, ids=["one", "several", "system"])
def test_what_a_refused_run_brought_is_neither_sent_nor_stored(
    build: Build, brought: list[BaseMessage], tmp_path: Path
) -> None:
    saver, model = InMemorySaver(), Model()
    with opened(build, tmp_path, saver, model) as one:
        run(one, SECRET, user_id="dora")
        for _ in range(2):
            with pytest.raises(ValueError, match=REFUSED):
                one.invoke({"messages": [*brought]}, config("tuesday", user_id="emil"))
        run(one, "hello", user_id="dora")
        assert [m.text for m in model.last if m.type != "system"] == [SECRET, f"fine: {SECRET}", "hello"]
    with opened(build, tmp_path, saver, model) as one:
        assert run(one, "what is my code?", user_id="dora") == "I do not know"
        run(one, "good bye", user_id="dora")
    told = [SECRET, f"fine: {SECRET}", "hello", "fine: hello", "what is my code?", "I do not know", "good bye"]
    assert texts_of(tmp_path, "dora")[:7] == told
    assert "emil" not in str(model.sent)
    assert "tulip9182" not in str(model.sent)


@WAYS
def test_what_a_refused_run_asked_is_not_answered_for_the_owner(build: Build, tmp_path: Path) -> None:
    """LangGraph would go on where the refused run stopped."""
    saver, model = InMemorySaver(), Model()
    with opened(build, tmp_path, saver, model) as one:
        run(one, SECRET, user_id="dora")
        with pytest.raises(ValueError, match=REFUSED):
            run(one, "what is my locker code?", user_id="emil")
        for names in ({"user_id": "dora"}, {}):
            with pytest.raises(ValueError, match="the newest question of this thread was erased"):
                one.invoke(None, config("tuesday", **names))
        with pytest.raises(ValueError, match=REFUSED):
            one.invoke(None, config("tuesday", user_id="emil"))
        assert len(model.sent) == 1
        assert run(one, "what is my locker code?", user_id="dora") == "4471"


def test_a_refusal_is_raised_while_the_store_is_down(caplog: pytest.LogCaptureFixture) -> None:
    model, middleware = Model(), memory()
    one = agent(model, middleware, checkpointer=InMemorySaver())
    run(one, SECRET, user_id="dora")
    middleware.close()
    with pytest.raises(ValueError, match=REFUSED):
        run(one, "and mine?", user_id="emil")
    run(one, "hello", user_id="dora")
    assert "goes on without it: it was closed; make another InfiniteMemoryMiddleware" in caplog.text
    assert "what another user's run brought to thread 'tuesday' stays there" in caplog.text


def test_a_list_that_a_caller_brings_to_a_thread_of_their_own_is_theirs() -> None:
    history = [
        HumanMessage("my code is 1", id="1"),
        AIMessage("fine", id="2"),
        HumanMessage("what is my code?", id="3"),
    ]
    with closing(memory()) as middleware:
        one = agent(Model(reply=reply), middleware, checkpointer=InMemorySaver())
        for user in ("dora", "emil"):
            names = config(f"{user}:tuesday", user_id=user)
            assert one.invoke({"messages": history}, names)["messages"][-1].text == "1"


def test_the_user_whom_the_server_authenticated_is_the_default() -> None:
    with closing(memory()) as middleware:
        one = agent(Model(), middleware)
        run(one, SECRET, langgraph_auth_user_id="dora")
        run(one, SECRET, langgraph_auth_user_id="dora", user_id="emil")
        assert {key.user_id for key in middleware.pool.store.sessions()} == {"dora", "emil"}


def test_the_state_records_the_thread_at_every_run() -> None:
    with closing(memory()) as middleware:
        one = agent(Model(), middleware, checkpointer=InMemorySaver())
        for user in ("dora", "dora"):
            messages = one.invoke({"messages": [HumanMessage("hello")]}, config("tuesday", user_id=user))["messages"]
            recorded = one.get_state(config("tuesday")).values["infinite_memory"]
            assert recorded == {
                "owner": "dora", "session_id": "tuesday", "newest": messages[-1].id, "before": [], "summary": None,
            }  # fmt: skip
