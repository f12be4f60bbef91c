"""LlamaIndex's models as summarizers, and what engines and agents are sent of a summary."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from llama_index.core.base.llms.types import ChatMessage
from llama_index.core.chat_engine import SimpleChatEngine
from llama_index.core.llms import MockLLM

from llama_index_infinite_memory import InfiniteChatMemoryBuffer, InfiniteMemoryBlock, as_summarizer
from shared_core import InfiniteMemory, Message, RecallTemplate, Summarizer
from tests.llama_index.scripted_llm import Talker

SETTINGS: dict[str, Any] = {
    "token_limit": 150,
    "tokenizer_fn": str.split,
    "recall_tokens": 0,
    "recall_template": RecallTemplate(summary_header="<sum>", summary_footer="</sum>"),
}


def small(llm: Talker) -> Summarizer:
    """The model as a summarizer that reads little at once."""
    return as_summarizer(llm, input_tokens=120)


def sums(messages: Sequence[ChatMessage]) -> str:
    """Count the lines that the model was told, and add them to what the summary so far counted."""
    text = messages[-1].content or ""
    told = text.partition("Said since:\n")[2].partition("\n\nNew summary:")[0]
    before = text.partition("Summary so far:\n")[2].split()
    count = int(before[2]) if before[0] == "so" else 0
    return f"so far {count + told.count(': ')} lines"


def shown(talker: Talker) -> list[tuple[str, str]]:
    """The last request: who says what."""
    return [(str(sent["role"]), str(sent["blocks"][0]["text"])) for sent in talker.requests[-1]]


@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_chat_engine_sends_the_summary_within_the_limit(asynchronous: bool) -> None:
    llm, summarizer = Talker(lambda messages: "fine, as was said"), Talker(sums)
    with InfiniteChatMemoryBuffer.from_defaults(summarizer=small(summarizer), **SETTINGS) as buffer:
        engine = SimpleChatEngine.from_defaults(llm=llm, memory=buffer)

        async def atalk() -> None:
            for number in range(30):
                await engine.achat(f"what of {number} and all that was said of it?")

        if asynchronous:
            asyncio.run(atalk())
        else:
            for number in range(30):
                engine.chat(f"what of {number} and all that was said of it?")
        kept = buffer.conversation.engine.summary()
        assert kept is not None
        assert kept.text == f"so far {kept.messages} lines"
        (role, first), (second, _), *_ = shown(llm)
        assert (role.lower().endswith("system"), second.lower().endswith("user")) == (True, True)
        assert first == f"<sum>\n{kept.text}\n</sum>"
        assert sum(len(text.split()) for _, text in shown(llm)) <= 150
        assert len(summarizer.requests) <= 15
        assert "M = summary" in str(buffer.explain())


def talk(engine: SimpleChatEngine) -> None:
    for number in range(20):
        engine.chat(f"what of {number} and all that was said of it?")


def test_a_failing_model_does_not_end_the_chat() -> None:
    def fails(messages: Sequence[ChatMessage]) -> str:
        raise ConnectionError("no network")

    with InfiniteChatMemoryBuffer.from_defaults(summarizer=small(Talker(fails)), **SETTINGS) as buffer:
        engine = SimpleChatEngine.from_defaults(llm=MockLLM(max_tokens=3), memory=buffer)
        with pytest.warns(RuntimeWarning, match="ConnectionError: no network"):
            talk(engine)
        assert buffer.get("and now?")
        assert any("no network" in note for note in buffer.explain().degraded)


def test_what_is_given() -> None:
    said = [Message.user("hi", id="u"), Message.assistant("hello", id="a")]
    summarizer = as_summarizer(Talker(lambda messages: (messages[-1].content or "").upper()), prompt="{messages}")
    assert summarizer(None, said) == "USER: HI\n\nASSISTANT: HELLO"
    with InfiniteMemory() as one:
        one.add([Message.user("We write a parser."), Message.assistant("Fine.")])
        one.fork("side")
        one.add([Message.user("Why does it hang?"), Message.assistant("A tab.")])
        one.checkout("main")
        merge = one.merge("side", "squash", prompt="What was the bug?", summarizer=summarizer)
        assert merge.messages[1].content.endswith("THE ABOVE IS A RECORD. WHAT WAS THE BUG?")


def test_a_block_has_no_summary() -> None:
    with pytest.raises(TypeError, match="InfiniteChatMemoryBuffer does both"):
        InfiniteMemoryBlock(summarizer=Talker(sums))
