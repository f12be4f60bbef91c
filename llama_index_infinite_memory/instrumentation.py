"""What a buffer reports to LlamaIndex's instrumentation: a span for each call, and events for what it did.

Nothing is made while no handler listens.
"""

import inspect
from collections import Counter
from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any, TypeVar

from llama_index.core.base.llms.types import ChatMessage
from llama_index.core.instrumentation import get_dispatcher  # type: ignore[attr-defined]  # not marked as exported
from llama_index.core.instrumentation.event_handlers import NullEventHandler
from llama_index.core.instrumentation.events import BaseEvent
from llama_index.core.instrumentation.events.retrieval import RetrievalEndEvent, RetrievalStartEvent
from llama_index.core.instrumentation.span_handlers import NullSpanHandler
from llama_index.core.schema import NodeWithScore, TextNode

from shared_core.prompt.context import ContextReport
from shared_core.prompt.hits import Kind

__all__ = ["MemoryDegradedEvent", "MemoryGetEvent", "MemoryPutEvent"]

dispatcher = get_dispatcher("llama_index_infinite_memory")

Method = TypeVar("Method", bound=Callable[..., Any])


class _MemoryEvent(BaseEvent):
    """Something that happened to the session `session_id`."""

    session_id: str

    @classmethod
    def class_name(cls) -> str:
        """Return the name of the event."""
        return cls.__name__


class MemoryPutEvent(_MemoryEvent):
    """Messages were stored.

    Attributes:
        messages: the messages as they were given.
    """

    messages: list[ChatMessage]


class MemoryGetEvent(_MemoryEvent):
    """A prompt was built.

    Attributes:
        query: the text of the question; None: there was none.
        messages: the messages that were returned.
        tokens: what they take, with the question.
        limit: the most that they may take.
        left_out: how many messages were considered and not sent, by the reason.
    """

    query: str | None
    messages: list[ChatMessage]
    tokens: int
    limit: int
    left_out: dict[str, int]


class MemoryDegradedEvent(_MemoryEvent):
    """A prompt lacks something that it should hold, or exceeds its limit.

    Attributes:
        notes: what could not be done, and why.
    """

    notes: list[str]


def traced(method: Method) -> Method:
    """Return a method whose calls are spans, while a span handler listens."""
    spanned: Any = dispatcher.span(method)

    @wraps(method)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        return spanned.__get__(self, type(self))(*args, **kwargs) if spans() else method(self, *args, **kwargs)

    @wraps(method)
    async def acall(self: Any, *args: Any, **kwargs: Any) -> Any:
        return await (spanned.__get__(self, type(self))(*args, **kwargs) if spans() else method(self, *args, **kwargs))

    return acall if inspect.iscoroutinefunction(method) else call  # type: ignore[return-value]


def spans() -> bool:
    """Return whether a span handler listens."""
    return any(not isinstance(one, NullSpanHandler) for at in _chain() for one in at.span_handlers)


def listens() -> bool:
    """Return whether an event handler listens."""
    return any(not isinstance(one, NullEventHandler) for at in _chain() for one in at.event_handlers)


def _chain() -> list[Any]:
    """Return the dispatchers that a report reaches."""
    found: list[Any] = [dispatcher]
    while found[-1].propagate:
        found.append(found[-1].parent)
    return found


def report_put(session_id: str, messages: Sequence[ChatMessage]) -> None:
    """Report that messages were stored."""
    if listens():
        dispatcher.event(MemoryPutEvent(session_id=session_id, messages=list(messages)))


def report_get(session_id: str, query: str | None, messages: Sequence[ChatMessage], report: ContextReport) -> None:
    """Report a prompt: what was recalled for it, what was returned, and what is missing."""
    if not listens():
        return
    recalled = [line for line in report.included if line.kind is Kind.RECALLED and line.id is not None]
    report_recall(query, [(str(line.id), line.text, line.score) for line in recalled])
    left_out = Counter(line.why for line in report.lines if not line.included)
    dispatcher.event(
        MemoryGetEvent(
            session_id=session_id, query=query, messages=list(messages), tokens=report.total_tokens,
            limit=report.budget, left_out=left_out,
        )
    )  # fmt: skip
    notes: list[str] = [*report.degraded]
    if report.over_budget:
        notes.append(f"the prompt takes {report.total_tokens:,} tokens and its limit is {report.budget:,}")
    if notes:
        dispatcher.event(MemoryDegradedEvent(session_id=session_id, notes=notes))


def report_recall(query: str | None, found: Sequence[tuple[str, str, float | None]]) -> None:
    """Report messages that were recalled, as LlamaIndex reports the nodes that a retriever found."""
    nodes = [NodeWithScore(node=TextNode(id_=id_, text=text), score=score) for id_, text, score in found]
    dispatcher.event(RetrievalStartEvent(str_or_query_bundle=query or ""))
    dispatcher.event(RetrievalEndEvent(str_or_query_bundle=query or "", nodes=nodes))
