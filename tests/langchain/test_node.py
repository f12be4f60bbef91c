"""The node for graphs of one's own: the prompt stands beside the messages, which stay as they are."""

from collections.abc import Sequence
from typing import Any, TypedDict

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, MessagesState, StateGraph

from langchain_infinite_memory import infinite_memory_node
from shared_core.pool import SessionPool
from shared_core.prompt.report import ContextReport
from tests.langchain.agents import Words, config, look, noting, reply
from tests.langchain.repaired import tokens

TALK = "tell me of the weather " * 8


class State(MessagesState):
    llm_input_messages: list[BaseMessage]


class Context(TypedDict):
    user_id: str


def answer(state: State) -> dict[str, Any]:
    return {"messages": [reply(state["llm_input_messages"])]}


def tools(state: State) -> dict[str, Any]:
    last = state["messages"][-1]
    assert isinstance(last, AIMessage)
    return {"messages": [ToolMessage(look(**call["args"]), tool_call_id=call["id"]) for call in last.tool_calls]}


def more(state: State) -> str:
    last = state["messages"][-1]
    return "tools" if isinstance(last, AIMessage) and last.tool_calls else END


def graph(node: Any, **arguments: Any) -> Any:
    """memory -> model -> tools -> memory."""
    builder = StateGraph(State, context_schema=Context)
    builder.add_node("memory", node)
    builder.add_node("model", answer)
    builder.add_node("tools", tools)
    builder.add_edge(START, "memory")
    builder.add_edge("memory", "model")
    builder.add_conditional_edges("model", more, ["tools", END])
    builder.add_edge("tools", "memory")
    return builder.compile(**arguments)


def pool(**settings: Any) -> SessionPool:
    given = {"token_counter": Words(), "embedder": "words", "max_tokens": 200, "reserve_tokens": 0, **settings}
    return SessionPool(on_overflow="keep", **given)


def size(messages: Sequence[BaseMessage]) -> int:
    return tokens(messages, Words())


def ask(one: Any, text: str, thread: str = "t", **arguments: Any) -> Any:
    return one.invoke({"messages": [HumanMessage(text)]}, config(thread), **arguments)


def texts_of(memories: SessionPool, thread: str = "t") -> list[str]:
    with memories.use(thread) as one:
        return [message.content for message in one.messages()]


class TestInAGraph:
    def test_the_prompt_fits_and_knows_what_the_window_does_not(self) -> None:
        reports: list[ContextReport] = []
        with pool() as memories:
            one = graph(infinite_memory_node(memories, on_report=noting(reports)), checkpointer=InMemorySaver())
            texts = ["my code is 4471", *[TALK] * 6, "look at a, b then c", "what is my code?"]
            for text in texts:
                state = ask(one, text)
                assert size(state["llm_input_messages"]) <= 200
                assert state["llm_input_messages"][-1].text.endswith(text) or text.startswith("look")
            assert state["messages"][-1].text == "4471"
            assert [m.text for m in state["messages"] if isinstance(m, HumanMessage)] == texts
            assert len(reports) == len(texts) + 2
            assert [report.total_tokens for report in reports[-1:]] == [size(state["llm_input_messages"])]
            assert texts_of(memories) == [m.text for m in state["messages"][:-1]], "the answer comes with the next"
            assert not any(state["messages"][0] is message for message in state["llm_input_messages"])

    def test_system_messages_are_sent_and_charged_and_not_stored(self) -> None:
        with pool(max_tokens=100) as memories:
            one = graph(infinite_memory_node(memories))
            history = [SystemMessage("be brief " * 10), HumanMessage(TALK), AIMessage("fine"), HumanMessage("and now?")]
            for words, sent in ((10, 4), (30, 2)):
                history[0] = SystemMessage("be brief " * words)
                state = one.invoke({"messages": history}, config())
                assert len(state["llm_input_messages"]) == sent
                assert state["llm_input_messages"][0] == history[0]
                assert size(state["llm_input_messages"]) <= 100
            assert texts_of(memories) == [TALK, "fine", "and now?"]


class TestByItself:
    def test_names_of_keys_and_of_the_session(self) -> None:
        with pool() as memories:
            node = infinite_memory_node(memories, session_id="s", messages_key="talk", output_key="prompt")
            given = [HumanMessage("hello", id="1")]
            assert node.invoke({"talk": given}) == {"prompt": given}
            assert node.invoke({"talk": given})["prompt"][0] is given[0]
            assert texts_of(memories, "s") == ["hello"]


def test_a_limit_beside_a_pool_is_that_of_the_node() -> None:
    with SessionPool(token_counter=Words(), embedder="words", reserve_tokens=0) as pool:
        one = graph(infinite_memory_node(pool, max_tokens=100), checkpointer=InMemorySaver())
        for number in range(8):
            state = one.invoke({"messages": [HumanMessage(f"{number} {TALK}")]}, config())
    assert 0 < tokens(state["llm_input_messages"], Words()) <= 100 < 8 * 45
    assert len(state["messages"]) == 16
