"""What only served one turn is sent whole in that turn, and gives way first in later ones."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from llama_index.core.agent.workflow import AgentWorkflow, CodeActAgent, FunctionAgent, ReActAgent
from llama_index.core.base.llms.types import ChatMessage
from llama_index.core.chat_engine import SimpleChatEngine
from llama_index.core.prompts.default_prompts import DEFAULT_TEXT_QA_PROMPT_TMPL

from llama_index_infinite_memory import InfiniteChatMemoryBuffer
from tests.llama_index.scripted_llm import Talker, called, lines

pytestmark = [  # what upstream's agents do
    pytest.mark.filterwarnings("ignore::pydantic.warnings.PydanticDeprecationWarning"),
    pytest.mark.filterwarnings("ignore:is_running called from within a step"),
]


Make = Callable[..., InfiniteChatMemoryBuffer]


PAGE = "The ladder weighs twelve kilos and costs eighty euros. " * 20


def reads(messages: Sequence[ChatMessage]) -> ChatMessage | str:
    return called("read") if messages[-1].role == "user" else "Twelve kilos."


def read() -> str:
    """Read the page."""
    return PAGE


def test_of_old_results_only_the_beginning_is_sent_once_not_everything_fits(made: Make) -> None:
    llm = Talker(reads)
    ours = made(token_limit=600)

    async def run() -> None:
        agent = FunctionAgent(tools=[read], llm=llm, streaming=False)
        for number in range(8):
            await agent.run(f"What does ladder {number} weigh?", memory=ours)

    asyncio.run(run())
    results = [message.content for message in ours.get_all() if message.role == "tool"]
    assert results == [PAGE] * 8
    asked = [[ChatMessage.model_validate(one) for one in sent] for sent in llm.requests[::2]]
    for number, sent in enumerate(asked):
        assert sum(len(ours.tokenizer_fn(f" {message.content}")) for message in sent) <= 600
        assert lines(sent)[-1] == f"user: What does ladder {number} weigh?"
    assert [message.content for message in asked[2] if message.role == "tool"] == [PAGE] * 2  # everything fits
    shortened = [str(message.content) for message in asked[-1] if message.role == "tool"]
    assert len(shortened) == 7
    assert all(text == PAGE[: len(text) - 4] + " […]" and len(text) < 210 for text in shortened)
    assert "[…]" not in str(llm.requests[-1][-1])  # the result that is being read


def test_an_agent_that_takes_over_is_sent_the_results_of_this_turn_whole(made: Make) -> None:
    def rule(messages: Sequence[ChatMessage]) -> ChatMessage | str:
        if messages[0].content == "You are first.":
            read_already = messages[-1].role == "tool"
            return called("handoff", id="hand", to_agent="second", reason="Go.") if read_already else called("read")
        return "Twelve kilos."

    llm = Talker(rule)
    ours = made(token_limit=600)
    first = FunctionAgent(
        name="first", description="Reads.", system_prompt="You are first.", tools=[read], can_handoff_to=["second"],
        llm=llm, streaming=False,
    )  # fmt: skip
    second = FunctionAgent(
        name="second", description="Answers.", system_prompt="You are second.", llm=llm, streaming=False
    )

    async def run() -> None:
        for number in range(5):
            await AgentWorkflow(agents=[first, second], root_agent="first").run(f"Ladder {number}?", memory=ours)

    asyncio.run(run())
    taken_over = [sent for sent in llm.requests if sent[0]["blocks"][0]["text"] == "You are second."]
    assert len(taken_over) == 5
    for number, sent in enumerate(taken_over):
        texts = [f"{one['role']}: {one['blocks'][0]['text']}" for one in sent]
        assert texts[-5] == f"user: Ladder {number}?"
        assert texts[-3] == f"tool: {PAGE}"
        assert sum(len(ours.tokenizer_fn(f" {text.partition(': ')[2]}")) for text in texts[1:]) <= 600
    assert "[…]" in str(taken_over[-1])


def thinks(messages: Sequence[ChatMessage]) -> str:
    if "Observation:" in (messages[-1].content or ""):
        return "Thought: I know.\nAnswer: Twelve kilos."
    return "Thought: I need the page.\nAction: read\nAction Input: {}"


def codes(messages: Sequence[ChatMessage]) -> str:
    return "Twelve." if "Result of" in str(messages[-1].content) else "<execute>\nprint(read())\n</execute>"


@pytest.mark.parametrize("kind", ["react", "code"])
def test_of_agents_that_write_results_into_their_texts_it_is_the_same(kind: str, made: Make) -> None:
    llm = Talker(thinks if kind == "react" else codes)
    ours = made(token_limit=600)

    async def run() -> None:
        agent: Any = (
            ReActAgent(tools=[read], llm=llm, streaming=False)
            if kind == "react"
            else CodeActAgent(code_execute_fn=lambda code: PAGE, llm=llm, streaming=False)
        )
        for number in range(8):
            await agent.run(f"What does ladder {number} weigh?", memory=ours)

    asyncio.run(run())
    stored = [str(message.content) for message in ours.get_all()]
    assert sum(PAGE.strip() in text for text in stored) == 8
    for sent in llm.requests[::2]:
        texts = [one["blocks"][0]["text"] for one in sent if one["role"] != "system"]
        assert sum(len(ours.tokenizer_fn(f" {text}")) for text in texts) <= 600
    assert not any(PAGE.strip() in text for text in texts)
    if kind == "react":
        assert texts[1:-1:2] == ["Thought: I know.\nAnswer: Twelve kilos."] * 7
    else:
        assert all(
            text == f"Result of executing the code given:\n\n{PAGE}"[: len(text) - 4] + " […]"
            for text in texts
            if text.startswith("Result")
        )


def pasted(number: int) -> str:
    """LlamaIndex's template around a page of its own."""
    page = f"Passage {number}. {PAGE}\n\nThe voucher of ladder {number} expires in March."
    return DEFAULT_TEXT_QA_PROMPT_TMPL.format(context_str=page, query_str=f"What is in it, {number}?")


@pytest.mark.parametrize("limit", [700, 100_000])
def test_pasted_passages_are_sent_with_their_question_and_with_no_later_one(limit: int, made: Make) -> None:
    llm = Talker(lambda messages: "Noted.")
    ours = made(token_limit=limit, embedder="words")
    engine = SimpleChatEngine.from_defaults(llm=llm, memory=ours)
    asked = [pasted(number) for number in range(9)]
    for question in asked:
        engine.chat(question)
    last = [one["blocks"][0]["text"] for one in llm.requests[-1]]
    assert last[-1] == asked[-1]
    assert last[0:-1:2] == [f"What is in it, {number}?" for number in range(8)]
    assert [str(message.content) for message in ours.get_all()][::2] == asked


def test_what_is_sent_is_what_is_explained(made: Make) -> None:
    ours = made(token_limit=100_000)
    for number in range(9):
        ours.put(ChatMessage(role="user", content=pasted(number)))
        report, sent = ours.explain(), ours.get()
        assert report.total_tokens == sum(len(ours.tokenizer_fn(f" {message.content}")) for message in sent)
        ours.put(ChatMessage(role="assistant", content="Noted."))
    assert report.total_tokens < 500


def test_what_was_set_apart_is_found_by_search_and_given_back_to_the_letter(made: Make) -> None:
    ours = made(token_limit=700)
    for number in range(9):
        ours.put_messages(
            [ChatMessage(role="user", content=pasted(number)), ChatMessage(role="assistant", content="Noted.")]
        )
    found = ours.search("voucher expires March", top_k=9)
    assert [one.message.content for one in found] == [pasted(number) for number in range(8, -1, -1)]
    assert ours.search("voucher of ladder 3")[0].message.content == pasted(3)
    assert ours.get(input="When does the voucher expire?")[-1].content == "Noted."


def test_results_of_tools_are_found_by_search_short_or_long(made: Make) -> None:
    ours = made()
    call = called("weigh")
    short, long = ("The blue ladder weighs 12 kg.", f"{PAGE} The red one has a dented rung.")
    for result in (short, long):
        reply = ChatMessage(role="tool", content=result, additional_kwargs={"tool_call_id": "1"})
        ours.put_messages([ChatMessage(role="user", content="And?"), call, reply])
    assert ours.search("blue ladder")[0].message.content == short
    assert ours.search("dented rung")[0].message.content == long
    assert [one.message.content for one in ours.search("dented rung", role="user")] == []
