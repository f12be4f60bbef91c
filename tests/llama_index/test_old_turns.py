"""What only served one turn is sent whole in that turn, and gives way first in later ones."""

import asyncio
from collections.abc import Callable, Sequence

import pytest
from llama_index.core.agent.workflow import FunctionAgent
from llama_index.core.base.llms.types import ChatMessage
from llama_index.core.chat_engine import SimpleChatEngine
from llama_index.core.prompts.default_prompts import DEFAULT_TEXT_QA_PROMPT_TMPL

from llama_index_infinite_memory import InfiniteChatMemoryBuffer
from tests.llama_index.scripted_llm import Talker, called, lines
from tests.llama_index.test_buffer import found_by

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


def pasted(number: int) -> str:
    """LlamaIndex's template around a page of its own."""
    page = f"Passage {number}. {PAGE}\n\nThe voucher of ladder {number} expires in March."
    return DEFAULT_TEXT_QA_PROMPT_TMPL.format(context_str=page, query_str=f"What is in it, {number}?")


@pytest.mark.parametrize("limit", [700, 100_000])
def test_pasted_passages_are_sent_with_their_question_and_with_no_later_one(limit: int, made: Make) -> None:
    llm = Talker(lambda messages: "Noted.")
    ours = made(token_limit=limit, embed_model="words")
    engine = SimpleChatEngine.from_defaults(llm=llm, memory=ours)
    asked = [pasted(number) for number in range(9)]
    for question in asked:
        engine.chat(question)
    last = [one["blocks"][0]["text"] for one in llm.requests[-1]]
    assert last[-1] == asked[-1]
    assert last[0:-1:2] == [f"What is in it, {number}?" for number in range(8)]
    assert [str(message.content) for message in ours.get_all()][::2] == asked


def test_what_was_set_apart_is_found_by_search_and_given_back_to_the_letter(made: Make) -> None:
    ours = made(token_limit=700)
    for number in range(9):
        ours.put_messages(
            [ChatMessage(role="user", content=pasted(number)), ChatMessage(role="assistant", content="Noted.")]
        )
    found = found_by(ours, "voucher expires March", top_k=9)
    assert [one.content for one in found] == [pasted(number) for number in range(8, -1, -1)]
    assert found_by(ours, "voucher of ladder 3")[0].content == pasted(3)
    assert ours.get(input="When does the voucher expire?")[-1].content == "Noted."
