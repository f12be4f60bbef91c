"""Documents that a chain pasted around a question are sent with it, with no later one, and found by search."""

from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import BaseMessage, HumanMessage, ToolMessage
from langchain_core.runnables import RunnableLambda
from langgraph.checkpoint.memory import InMemorySaver

from langchain_infinite_memory import InfiniteChatMessageHistory, with_infinite_memory
from shared_core import InfiniteMemory
from shared_core.strippers import PASTED_CONTEXT, TOOL_RESULTS
from tests.langchain.agents import Model, agent, ask, memory

PAGE = "The ladder weighs twelve kilos and costs eighty euros. " * 5


def pasted(number: int) -> str:
    """LangChain's template for retrieval."""
    return (
        "You are an assistant for question-answering tasks. Use the following pieces of retrieved context to answer "
        f"the question.\nContext: {PAGE}Voucher {number} expires in March.\nQuestion: What is in {number}?\nAnswer:"
    )


def humans(messages: list[BaseMessage]) -> list[str]:
    return [str(message.text) for message in messages if isinstance(message, HumanMessage)]


def test_an_agent_is_sent_the_documents_of_the_newest_question_only() -> None:
    model, middleware = Model(), memory()
    chat = agent(model, middleware, checkpointer=InMemorySaver())
    for number in range(4):
        state = ask(chat, pasted(number))
        assert humans(model.last) == [*(f"What is in {n}?" for n in range(number)), pasted(number)]
    assert humans(state) == [pasted(number) for number in range(4)]
    with middleware.pool.use("t") as stored:
        found = stored.search("voucher 2 expires", top_k=1)
    assert [hit.message.whole.content for hit in found] == [pasted(2)]


@pytest.mark.parametrize("strippers", [[], [TOOL_RESULTS]])
def test_the_list_is_the_users(strippers: list[Any]) -> None:
    model = Model()
    chat = agent(model, memory(strippers=strippers), checkpointer=InMemorySaver())
    for number in range(2):
        ask(chat, pasted(number))
    assert humans(model.last) == [pasted(0), pasted(1)]


def test_of_old_results_the_beginning_is_sent_where_not_everything_fits() -> None:
    def look(item: str) -> str:
        """Look at an item."""
        return f"{item} {PAGE}{PAGE}"

    model, tight = Model(), memory(strippers=[TOOL_RESULTS], max_tokens=330)
    chat = agent(model, tight, checkpointer=InMemorySaver(), tools=[look])
    for item in "abcd":
        ask(chat, f"look at {item}")
    results = [str(message.text) for message in model.last if isinstance(message, ToolMessage)]
    assert results[-1] == look("d")
    assert len(results) == 4
    assert all(text.endswith(" […]") and len(text) < 210 for text in results[:-1])


def test_a_chain_is_sent_them_too_and_its_history_holds_them_to_the_letter(tmp_path: Path) -> None:
    sent: list[list[BaseMessage]] = []

    def answer(messages: list[BaseMessage]) -> str:
        sent.append(messages)
        return "Noted."

    chain = with_infinite_memory(RunnableLambda(answer), store=tmp_path / "a.db", embedder="words")
    for number in range(3):
        chain.invoke(pasted(number), {"configurable": {"session_id": "s"}})
    assert humans(sent[-1]) == ["What is in 0?", "What is in 1?", pasted(2)]
    history = InfiniteChatMessageHistory("s", store=tmp_path / "a.db")
    assert humans(history.messages) == [pasted(number) for number in range(3)]


def test_what_was_stored_whole_by_an_earlier_version_is_recognized(tmp_path: Path) -> None:
    sent = [{"role": "human", "content": pasted(0)}, {"role": "ai", "content": "Noted."}]
    with InfiniteMemory(tmp_path / "a.db") as earlier:
        ids = earlier.follow(sent).ids
    with InfiniteMemory(tmp_path / "a.db", strippers=[PASTED_CONTEXT]) as now:
        assert now.follow([*sent, {"role": "human", "content": pasted(1)}]).ids[:2] == ids
        assert len(now.messages()) == 3
        assert [branch.name for branch in now.branches()] == ["main"]
        assert now.add([{**sent[0], "id": ids[0]}])[0].id == ids[0]  # and adding it again changes nothing
        assert len(now.messages()) == 3
