"""Documents that a chain pasted around a question are sent with it, with no later one, and found by search."""

from langchain_core.messages import BaseMessage, HumanMessage, ToolMessage
from langgraph.checkpoint.memory import InMemorySaver

from shared_core.strippers import TOOL_RESULTS
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
