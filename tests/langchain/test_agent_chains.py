"""An agent as the chain that remembers: it streams in its own modes, and its turn is stored once."""

import asyncio
import inspect
from collections.abc import Sequence
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.runnables import Runnable, RunnableConfig, RunnableLambda
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.config import get_stream_writer
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.pregel import Pregel

from langchain_infinite_memory.chains.runnable import InfiniteMemoryRunnable, with_infinite_memory
from tests.langchain.agents import Model

ONE: RunnableConfig = {"configurable": {"session_id": "1"}}
ASKED: Any = {"messages": [HumanMessage("what time?")]}
TURN = ["what time?", "", "noon", "It is noon."]
MODES: list[dict[str, Any]] = [
    {},
    {"stream_mode": "values"},
    {"stream_mode": "updates"},
    {"stream_mode": "messages"},
    {"stream_mode": ["values", "messages"]},
    {"stream_mode": ["updates", "custom"]},
    {"stream_mode": "updates", "subgraphs": True},
    {"stream_mode": ["messages", "values"], "subgraphs": True},
    {"stream_mode": ["updates", "values"], "version": "v2"},
    {"stream_mode": "updates", "version": "v2", "subgraphs": True},
]
OTHER_MODES: list[dict[str, Any]] = [{"stream_mode": "custom"}, {"stream_mode": "debug"}, {"stream_mode": "tasks"}]
"""Modes that show no messages before the end, or only those of the graph's inside."""


def clock(zone: str) -> str:
    """Tell the time, and ask another agent first."""
    get_stream_writer()("looking")
    inner = create_agent(Model(reply=lambda messages: AIMessage("the inner one's secret")), tools=[])
    inner.invoke({"messages": [HumanMessage("what time?")]})
    return "noon"


def answer(messages: Sequence[BaseMessage]) -> AIMessage:
    if isinstance(messages[-1], ToolMessage):
        return AIMessage("It is noon.")
    return AIMessage("", tool_calls=[{"name": "clock", "args": {"zone": "x"}, "id": f"c{len(messages)}"}])


def waiter() -> Runnable[Any, Any]:
    return create_agent(Model(reply=answer), tools=[clock])


def usable(modes: dict[str, Any]) -> dict[str, Any]:
    if "version" in modes and "version" not in inspect.signature(Pregel.stream).parameters:
        pytest.skip("this LangGraph has one version of chunks")
    return modes


def shape(chunk: Any) -> Any:
    """Return the form of a chunk: ids in it differ from run to run."""
    if isinstance(chunk, tuple):
        return [part.partition(":")[0] if isinstance(part, str) else shape(part) for part in chunk]
    return sorted(chunk) if isinstance(chunk, dict) else type(chunk).__name__


def texts(chain: InfiniteMemoryRunnable) -> list[str]:
    return [message.text for message in chain.history("1").messages]


@pytest.mark.parametrize("modes", MODES + OTHER_MODES, ids=str)
@pytest.mark.parametrize("way", ["stream", "astream"])
def test_each_mode_streams_as_it_does_without_memory_and_the_turn_is_stored_once(
    way: str, modes: dict[str, Any]
) -> None:
    modes, chain = usable(modes), with_infinite_memory(waiter())

    async def streamed(runnable: Runnable[Any, Any]) -> list[Any]:
        if way == "stream":
            return list(map(shape, runnable.stream(ASKED, ONE, **modes)))
        return [shape(chunk) async for chunk in runnable.astream(ASKED, ONE, **modes)]

    assert asyncio.run(streamed(chain)) == asyncio.run(streamed(waiter()))
    assert texts(chain) == TURN
    state = chain.invoke({"messages": [HumanMessage("and now?")]}, {"configurable": {"thread_id": "1"}})
    assert [message.text for message in state["messages"]] == texts(chain) == [*TURN, "and now?", *TURN[1:]]


def test_a_chain_inside_a_graph_does_not_take_the_graphs_thread() -> None:
    chain = with_infinite_memory(lambda messages: "noon")
    asking: Runnable[Any, Any] = RunnableLambda(lambda state: {"messages": [AIMessage(chain.invoke("what time?"))]})
    graph = StateGraph(MessagesState).add_node("ask", asking).add_edge(START, "ask").compile(InMemorySaver())
    with pytest.raises(ValueError, match="'session_id'"):
        graph.invoke(ASKED, {"configurable": {"thread_id": "1"}})
    graph.invoke(ASKED, {"configurable": {"thread_id": "1", "session_id": "1"}})
    assert texts(chain) == ["what time?", "noon"]
