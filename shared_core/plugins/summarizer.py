"""Requests to a summarizer, and the check of its reply."""

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any

from shared_core.messages import Message
from shared_core.plugins.base import SummarizerModel
from shared_core.plugins.calls import Request

AnySummarizer = Callable[[str | None, Sequence[Message]], str | Awaitable[str]]
"""A `Summarizer`, an `AsyncSummarizer` or a `SummarizerModel`."""


def summary_request(summarizer: AnySummarizer, previous: str | None, messages: Sequence[Message]) -> Request[str]:
    """Return a request to sum up messages, for which a question waits as long as it takes.

    Args:
        summarizer: what sums up.
        previous: the summary of earlier messages; None: there is none.
        messages: the messages, oldest first.
    """
    awaited = summarizer.summarize if isinstance(summarizer, SummarizerModel) else None
    return Request(
        "summarizer", partial(summarizer, previous, messages), _checked, texts=len(messages),
        afunction=partial(awaited, previous, messages) if awaited is not None else None,
    )  # fmt: skip


def _checked(reply: Any) -> str:
    if not isinstance(reply, str):
        raise TypeError(f"the summarizer returned {type(reply).__name__}, not text")
    if not reply.strip():
        raise ValueError("the summarizer returned nothing")
    return reply
