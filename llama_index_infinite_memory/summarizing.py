"""LlamaIndex's models as summarizers of the engine."""

from collections.abc import Sequence
from typing import TypeVar, overload

from llama_index.core.base.llms.base import BaseLLM
from typing_extensions import override

from shared_core.base import SummarizerModel
from shared_core.messages import Message
from shared_core.summaries.requests import AnySummarizer
from shared_core.summaries.template import SUMMARY_PROMPT, instruction

__all__ = ["LLMSummarizer", "SummarizerLike", "as_summarizer"]

Given = TypeVar("Given", bound=AnySummarizer)

SummarizerLike = BaseLLM | AnySummarizer


class LLMSummarizer(SummarizerModel):
    """Sums up with a model; natively asynchronous in async code.

    Args:
        llm: completes one text.
        prompt: see `as_summarizer`.
    """

    def __init__(self, llm: BaseLLM, prompt: str = SUMMARY_PROMPT) -> None:
        self._llm = llm
        self._prompt = prompt

    @override
    def __call__(self, previous_summary: str | None, messages: Sequence[Message], /) -> str:
        return self._llm.complete(instruction(previous_summary, messages, self._prompt)).text

    @override
    async def summarize(self, previous_summary: str | None, messages: Sequence[Message], /) -> str:
        return (await self._llm.acomplete(instruction(previous_summary, messages, self._prompt))).text


@overload
def as_summarizer(llm: BaseLLM, *, prompt: str = ...) -> SummarizerModel: ...


@overload
def as_summarizer(llm: Given, *, prompt: str = ...) -> Given: ...


def as_summarizer(llm: SummarizerLike, *, prompt: str = SUMMARY_PROMPT) -> AnySummarizer:
    """Return the summarizer meant, for `InfiniteMemory(summarizer=...)` and for `merge(..., summarizer=...)`.

    Args:
        llm: any `LLM`; or a function of the summary so far (or None) and messages of the engine, which is returned.
        prompt: what the model is told; `{previous}` and `{messages}` are filled in. A merge has its own question.

    Raises:
        TypeError: it is neither.
    """
    if isinstance(llm, BaseLLM):
        return LLMSummarizer(llm, prompt)
    if isinstance(llm, type) or not callable(llm):
        raise TypeError(f"summarizer must be an LLM or a function, not {llm!r}")
    return llm
