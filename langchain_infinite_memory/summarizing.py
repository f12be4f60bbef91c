"""LangChain's models as summarizers of the engine."""

from collections.abc import Sequence
from typing import Any, TypeVar, overload

from langchain_core.messages import BaseMessage
from langchain_core.runnables import Runnable, RunnableConfig
from typing_extensions import override

from shared_core.base import SummarizerModel
from shared_core.messages import Message
from shared_core.summaries.requests import AnySummarizer
from shared_core.summaries.template import SUMMARY_PROMPT, instruction

__all__ = ["RunnableSummarizer", "SummarizerLike", "as_summarizer"]

Given = TypeVar("Given", bound=AnySummarizer)

SummarizerLike = Runnable[Any, Any] | AnySummarizer

UNSEEN: RunnableConfig = {"run_name": "summarize", "tags": ["nostream", "langsmith:nostream"]}
"""What the model writes is not part of the answer that an agent streams."""


class RunnableSummarizer(SummarizerModel):
    """Sums up with a model; natively asynchronous in async code.

    Args:
        model: is given one text, and returns a message or a text.
        prompt: see `as_summarizer`.
    """

    def __init__(self, model: Runnable[Any, Any], prompt: str = SUMMARY_PROMPT) -> None:
        self._model = model
        self._prompt = prompt

    @override
    def __call__(self, previous_summary: str | None, messages: Sequence[Message], /) -> str:
        return _text(self._model.invoke(instruction(previous_summary, messages, self._prompt), UNSEEN))

    @override
    async def summarize(self, previous_summary: str | None, messages: Sequence[Message], /) -> str:
        return _text(await self._model.ainvoke(instruction(previous_summary, messages, self._prompt), UNSEEN))


@overload
def as_summarizer(model: Runnable[Any, Any], *, prompt: str = ...) -> SummarizerModel: ...


@overload
def as_summarizer(model: Given, *, prompt: str = ...) -> Given: ...


def as_summarizer(model: SummarizerLike, *, prompt: str = SUMMARY_PROMPT) -> AnySummarizer:
    """Return the summarizer meant, for `InfiniteMemory(summarizer=...)` and for `merge(..., summarizer=...)`.

    Args:
        model: a chat model, or another `Runnable` that takes a text and returns a message or a text; or a function of
            the summary so far (or None) and messages of the engine, which is returned.
        prompt: what the model is told; `{previous}` and `{messages}` are filled in. A merge has its own question.

    Raises:
        TypeError: it is none of these.
    """
    if isinstance(model, Runnable):
        return RunnableSummarizer(model, prompt)
    if isinstance(model, type) or not callable(model):
        raise TypeError(f"summarizer must be a chat model, another Runnable or a function, not {model!r}")
    return model


def _text(answer: Any) -> str:
    said = answer.text if isinstance(answer, BaseMessage) else answer
    if not isinstance(said, str):
        raise TypeError(f"the model that sums up returned {type(answer).__name__}, not a message or a text")
    return str(said)
