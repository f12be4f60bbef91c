"""What the steps of a verb ask for, and how the sync face answers it; the async face has `aio`."""

from collections.abc import Generator
from typing import TypeAlias, TypeVar

from shared_core.recall.backfill import EmbedReply, EmbedRequest
from shared_core.recall.dense import aanswer as aembed
from shared_core.recall.dense import answer as embed
from shared_core.summaries.answering import SummaryReply, SummaryRequest, asummarize, summarize

__all__ = ["Reply", "Request", "Steps", "aanswer", "answer", "drive"]

Result = TypeVar("Result")

Request: TypeAlias = EmbedRequest | SummaryRequest
Reply: TypeAlias = EmbedReply | SummaryReply
Steps: TypeAlias = Generator[Request, Reply, Result]


def answer(request: Request) -> Reply:
    """Ask the model that a request is for."""
    return summarize(request) if isinstance(request, SummaryRequest) else embed(request)


async def aanswer(request: Request) -> Reply:
    """Do the same without blocking the event loop."""
    return await (asummarize(request) if isinstance(request, SummaryRequest) else aembed(request))


def drive(steps: Steps[Result]) -> Result:
    """Answer all that some steps ask for and return their result."""
    try:
        request = next(steps)
        while True:
            request = steps.send(answer(request))
    except StopIteration as stop:
        result: Result = stop.value
        return result
