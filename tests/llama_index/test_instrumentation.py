"""What a buffer does is seen by LlamaIndex's instrumentation: a span for each call, and events with what it found."""

import asyncio
import inspect
from collections.abc import Iterator
from typing import Any

import pytest
from llama_index.core.instrumentation.event_handlers import BaseEventHandler
from llama_index.core.instrumentation.events import BaseEvent
from llama_index.core.instrumentation.events.retrieval import RetrievalEndEvent, RetrievalStartEvent
from llama_index.core.instrumentation.span import SimpleSpan
from llama_index.core.instrumentation.span_handlers import BaseSpanHandler
from pydantic import PrivateAttr

from llama_index_infinite_memory import (
    InfiniteChatMemoryBuffer,
    MemoryDegradedEvent,
    MemoryGetEvent,
    MemoryPutEvent,
    instrumentation,
)
from tests.llama_index.test_buffer import TALK, called, ours, result, user


class Events(BaseEventHandler):
    """Records events."""

    _seen: list[BaseEvent] = PrivateAttr(default_factory=list)

    def handle(self, event: BaseEvent, **kwargs: Any) -> None:
        self._seen.append(event)

    def of(self, kind: type[BaseEvent]) -> list[Any]:
        return [event for event in self._seen if type(event) is kind]


class Spans(BaseSpanHandler[SimpleSpan]):
    """Records spans: name, parent's name, and how they ended."""

    _seen: list[tuple[str, str | None, str]] = PrivateAttr(default_factory=list)

    def new_span(self, id_: str, bound_args: inspect.BoundArguments, instance: Any = None,
                 parent_span_id: str | None = None, tags: Any = None, **kwargs: Any) -> SimpleSpan:  # fmt: skip
        assert instance is None or not isinstance(instance, InfiniteChatMemoryBuffer) or "self" not in bound_args.kwargs
        return SimpleSpan(id_=id_, parent_id=parent_span_id)

    def prepare_to_exit_span(self, id_: str, *args: Any, **kwargs: Any) -> SimpleSpan:
        return self._ended(id_, "returned")

    def prepare_to_drop_span(self, id_: str, *args: Any, **kwargs: Any) -> SimpleSpan:
        return self._ended(id_, "raised")

    def _ended(self, id_: str, how: str) -> SimpleSpan:
        span = self.open_spans[id_]
        parent = span.parent_id
        self._seen.append((id_.partition("-")[0], parent.partition("-")[0] if parent else None, how))
        return span


@pytest.fixture
def events() -> Iterator[Events]:
    handler = Events()
    instrumentation.dispatcher.root.add_event_handler(handler)
    yield handler
    instrumentation.dispatcher.root.event_handlers.remove(handler)


@pytest.fixture
def spans() -> Iterator[Spans]:
    handler = Spans()
    instrumentation.dispatcher.root.add_span_handler(handler)
    yield handler
    instrumentation.dispatcher.root.span_handlers.remove(handler)


@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_put_a_get_and_what_was_recalled_are_events(events: Events, asynchronous: bool) -> None:
    memory = ours(TALK, token_limit=200)
    question = "what is my locker code?"
    sent = asyncio.run(memory.aget(input=question)) if asynchronous else memory.get(input=question)
    (put,) = events.of(MemoryPutEvent)
    assert (put.session_id, put.messages) == ("chat_history", TALK)
    (got,) = events.of(MemoryGetEvent)
    report = memory.explain(question)
    assert (got.query, got.messages, got.limit, got.tokens) == (question, sent, 200, report.total_tokens)
    assert sum(got.left_out.values()) == sum(not line.included for line in report.lines)
    (started,), (found,) = events.of(RetrievalStartEvent), events.of(RetrievalEndEvent)
    assert started.str_or_query_bundle == found.str_or_query_bundle == question
    recalled = {line.id: (line.text, line.score) for line in report.included if line.kind == "recalled" and line.id}
    assert {node.node.node_id: (node.text, node.score) for node in found.nodes} == recalled
    assert TALK[0].content in [node.text for node in found.nodes]
    assert events.of(MemoryDegradedEvent) == []
    assert [event.class_name() for event in events._seen] == [
        "MemoryPutEvent", "RetrievalStartEvent", "RetrievalEndEvent", "MemoryGetEvent"
    ]  # fmt: skip


def test_what_is_missing_and_why_is_an_event(events: Events) -> None:
    def broken(texts: list[str]) -> list[list[float]]:
        if len(texts) > 1:
            raise ConnectionError("no network")
        return [[1.0, 0.0]]

    memory = ours(TALK, token_limit=200, embed_model=broken)
    with pytest.warns(RuntimeWarning, match="no network"):
        memory.get(input="what is my locker code?")
    (degraded,) = events.of(MemoryDegradedEvent)
    assert ["ConnectionError: no network" in note for note in degraded.notes] == [True]
    long = ours([user("so long a message that it never fits")], token_limit=5)
    long.get()
    assert events.of(MemoryDegradedEvent)[1].notes == ["the prompt takes 8 tokens and its limit is 5"]
    steps = [user("look"), called("a"), result("once upon a time " * 40, "a"), called("b"), result("so " * 40, "b")]
    ours(steps, token_limit=120).get()
    assert len(events.of(MemoryDegradedEvent)[2].notes) >= 1


def test_calls_are_spans_also_in_threads(events: Events, spans: Spans) -> None:
    memory = ours(TALK[:2])

    async def talk() -> None:
        await memory.aput(user("hi"))
        await memory.aget()
        await memory.areset()

    asyncio.run(talk())
    with pytest.raises(ValueError, match="Initial token count"):
        memory.get(initial_token_count=10_000)
    own = "InfiniteChatMemoryBuffer"
    assert spans._seen == [
        (f"{own}.put_messages", None, "returned"),
        (f"{own}.put", None, "returned"),
        (f"{own}.aget", None, "returned"),
        (f"{own}.reset", None, "returned"),
        (f"{own}.get", None, "raised"),
    ]
    assert events.of(MemoryPutEvent)[1].span_id.startswith(f"{own}.put-")
    assert events.of(MemoryGetEvent)[0].span_id.startswith(f"{own}.aget-")


def test_without_a_handler_nothing_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: Any, **kwargs: Any) -> None:
        raise AssertionError("made for nobody")

    for name in ("MemoryPutEvent", "MemoryGetEvent", "RetrievalEndEvent", "TextNode"):
        monkeypatch.setattr(instrumentation, name, refuse)
    monkeypatch.setattr(type(instrumentation.dispatcher), "span_enter", refuse)
    memory = ours(TALK, token_limit=200)
    assert memory.get(input="what is my locker code?")
