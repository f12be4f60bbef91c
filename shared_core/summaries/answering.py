"""What is asked of a summarizer, and how the sync and the async face answer it."""

import asyncio
import inspect
from collections.abc import Awaitable
from dataclasses import dataclass
from typing import Any, TypeAlias

from shared_core.base import SummarizerModel
from shared_core.messages import Message
from shared_core.summaries.rules import AnySummarizer

__all__ = ["SummaryFailure", "SummaryReply", "SummaryRequest", "asummarize", "summarize"]


@dataclass(frozen=True, slots=True)
class SummaryRequest:
    """Messages to sum up, and the summary of what came before them; None: nothing did."""

    summarizer: AnySummarizer
    previous: str | None
    messages: tuple[Message, ...]


@dataclass(frozen=True, slots=True)
class SummaryFailure:
    """Why there is no new summary."""

    error: Exception

    def __str__(self) -> str:
        return f"{type(self.error).__name__}: {self.error}"


SummaryReply: TypeAlias = str | SummaryFailure


def summarize(request: SummaryRequest) -> SummaryReply:
    """Return the new summary, or why there is none; the chat goes on without."""
    try:
        reply: Any = request.summarizer(request.previous, request.messages)
    except Exception as error:  # whatever a plug-in raises must not end a chat; it is named in the report
        return SummaryFailure(error)
    if inspect.iscoroutine(reply):
        reply.close()
        return SummaryFailure(TypeError("an async summarizer needs AsyncInfiniteMemory; pass a plain function here"))
    return _usable(reply)


async def asummarize(request: SummaryRequest) -> SummaryReply:
    """Do the same without blocking the event loop."""
    summarizer = request.summarizer
    try:
        if isinstance(summarizer, SummarizerModel):
            reply: Any = await summarizer.summarize(request.previous, request.messages)
        else:
            # In a thread, a coroutine function only makes its coroutine, which is awaited here.
            reply = await asyncio.to_thread(summarizer, request.previous, request.messages)
            reply = await reply if isinstance(reply, Awaitable) else reply
    except Exception as error:  # as above
        return SummaryFailure(error)
    return _usable(reply)


def _usable(reply: Any) -> SummaryReply:
    if not isinstance(reply, str):
        return SummaryFailure(TypeError(f"the summarizer returned {type(reply).__name__}, not text"))
    return reply if reply.strip() else SummaryFailure(ValueError("the summarizer returned nothing"))
