"""What is asked of a summarizer, under which settings, and how the sync and the async face answer it."""

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias, get_args

from shared_core.arguments import one_of, whole_number
from shared_core.base import SummarizerModel
from shared_core.messages import Message
from shared_core.prompt.frame import SummaryPlacement
from shared_core.summaries.template import SummaryTemplate

__all__ = [
    "AnySummarizer",
    "SummaryFailure",
    "SummaryReply",
    "SummaryRequest",
    "SummaryRules",
]

AnySummarizer = Callable[[str | None, Sequence[Message]], str | Awaitable[str]]
"""A `Summarizer`, or for the async face an `AsyncSummarizer`."""


@dataclass(frozen=True)
class SummaryRules:
    """See the arguments of `InfiniteMemory`; `call_tokens` is `summarizer_tokens`.

    Raises:
        TypeError: the summarizer cannot be called.
        ValueError: a value is out of range.
    """

    summarizer: AnySummarizer | None = None
    tokens: int = 500
    call_tokens: int = 4_000
    placement: SummaryPlacement = "system"
    template: SummaryTemplate = field(default_factory=SummaryTemplate)

    def __post_init__(self) -> None:
        if self.summarizer is not None and (isinstance(self.summarizer, type) or not callable(self.summarizer)):
            raise TypeError(
                f"summarizer={self.summarizer!r}: expected a callable(previous_summary, messages) -> str; "
                "as_summarizer of the LangChain or LlamaIndex package makes one of a model"
            )
        whole_number("summary_tokens", self.tokens, least=1)
        whole_number("summarizer_tokens", self.call_tokens, least=1)
        if self.call_tokens < 2 * self.tokens:
            raise ValueError(
                f"summarizer_tokens={self.call_tokens!r}: a call is given the summary so far and at least as much of "
                f"what came since; with summary_tokens={self.tokens!r} that is {2 * self.tokens!r}"
            )
        one_of("summary_placement", self.placement, get_args(SummaryPlacement))


@dataclass(frozen=True, slots=True)
class SummaryFailure:
    """Why there is no new summary."""

    error: Exception

    def __str__(self) -> str:
        return f"{type(self.error).__name__}: {self.error}"


SummaryReply: TypeAlias = str | SummaryFailure


@dataclass(frozen=True, slots=True)
class SummaryRequest:
    """Messages to sum up, and the summary of what came before them; None: nothing did."""

    summarizer: AnySummarizer
    previous: str | None
    messages: tuple[Message, ...]

    def answer(self) -> SummaryReply:
        """Return the new summary, or why there is none; the chat goes on without."""
        try:
            reply: Any = self.summarizer(self.previous, self.messages)
        except Exception as error:  # whatever a plug-in raises must not end a chat; the report names it
            return SummaryFailure(error)
        if inspect.iscoroutine(reply):
            reply.close()
            return SummaryFailure(
                TypeError("an async summarizer needs AsyncInfiniteMemory; pass a plain function here")
            )
        return _checked(reply)

    async def aanswer(self) -> SummaryReply:
        """Do the same without blocking the event loop."""
        summarizer = self.summarizer
        try:
            if isinstance(summarizer, SummarizerModel):
                reply: Any = await summarizer.summarize(self.previous, self.messages)
            else:
                # In a thread, a coroutine function only makes its coroutine, which is awaited here.
                reply = await asyncio.to_thread(summarizer, self.previous, self.messages)
                reply = await reply if isinstance(reply, Awaitable) else reply
        except Exception as error:  # as above
            return SummaryFailure(error)
        return _checked(reply)


def _checked(reply: Any) -> SummaryReply:
    if not isinstance(reply, str):
        return SummaryFailure(TypeError(f"the summarizer returned {type(reply).__name__}, not text"))
    return reply if reply.strip() else SummaryFailure(ValueError("the summarizer returned nothing"))
