"""What a buffer recalls is seen by LlamaIndex's instrumentation as what a retriever found."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from llama_index.core.instrumentation.event_handlers import BaseEventHandler
from llama_index.core.instrumentation.events import BaseEvent
from llama_index.core.instrumentation.events.retrieval import RetrievalEndEvent, RetrievalStartEvent
from pydantic import PrivateAttr

from llama_index_infinite_memory import prompt
from tests.llama_index.test_buffer import TALK, ours


class Events(BaseEventHandler):
    """Records events."""

    _seen: list[BaseEvent] = PrivateAttr(default_factory=list)

    def handle(self, event: BaseEvent, **kwargs: Any) -> None:
        self._seen.append(event)


@pytest.fixture
def events() -> Iterator[Events]:
    handler = Events()
    prompt.dispatcher.root.add_event_handler(handler)
    yield handler
    prompt.dispatcher.root.event_handlers.remove(handler)


@pytest.mark.parametrize("asynchronous", [False, True])
def test_what_was_recalled_is_an_event(events: Events, asynchronous: bool) -> None:
    memory = ours(TALK, token_limit=200)
    question = "what is my locker code?"
    _ = asyncio.run(memory.aget(input=question)) if asynchronous else memory.get(input=question)
    started, found = events._seen
    assert isinstance(started, RetrievalStartEvent)
    assert isinstance(found, RetrievalEndEvent)
    assert started.str_or_query_bundle == found.str_or_query_bundle == question
    report = memory.explain(question)
    recalled = {line.id: (line.text, line.score) for line in report.included if line.kind == "recalled" and line.id}
    assert {node.node.node_id: (node.text, node.score) for node in found.nodes} == recalled
    assert TALK[0].content in [node.text for node in found.nodes]


def test_without_a_handler_nothing_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: Any, **kwargs: Any) -> None:
        raise AssertionError("made for nobody")

    for name in ("RetrievalEndEvent", "TextNode"):
        monkeypatch.setattr(prompt, name, refuse)
    assert ours(TALK, token_limit=200).get(input="what is my locker code?")
