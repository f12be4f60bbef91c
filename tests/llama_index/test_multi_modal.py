"""LlamaIndex's multi-modal chat engines with our buffer, beside `ChatMemoryBuffer` run in the same way."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from llama_index.core.chat_engine.types import BaseChatEngine
from llama_index.core.memory import ChatMemoryBuffer
from llama_index.core.schema import ImageNode, NodeWithScore, QueryBundle

from llama_index_infinite_memory import InfiniteChatMemoryBuffer
from tests.llama_index.scripted_llm import QUESTIONS, Fixed, Talker, lines, seen
from tests.llama_index.test_engines import Memory, achat, astream, chat, stream, talk

# The oldest releases of 0.14 do not have both engines.
OLD = "this release of llama-index-core has no such chat engine"
plain = pytest.importorskip("llama_index.core.chat_engine.multi_modal_context", reason=OLD)
condensing = pytest.importorskip("llama_index.core.chat_engine.multi_modal_condense_plus_context", reason=OLD)

# A PNG of one pixel.
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg=="
MODES = [chat, stream, achat, astream]

Build = Callable[[Talker, Memory], BaseChatEngine]


class Illustrated(Fixed):
    """Finds its passages, and a picture after them."""

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        return [*super()._retrieve(query_bundle), NodeWithScore(node=ImageNode(image=PIXEL), score=1.0)]


@pytest.fixture
def ours() -> Iterator[InfiniteChatMemoryBuffer]:
    buffer = InfiniteChatMemoryBuffer.from_defaults()
    yield buffer
    buffer.close()


def with_context(llm: Talker, memory: Memory) -> BaseChatEngine:
    engine: BaseChatEngine = plain.MultiModalContextChatEngine.from_defaults(
        retriever=Illustrated("Ladders are tall."), multi_modal_llm=llm, memory=memory, system_prompt="Be short."
    )
    return engine


def condense_plus(llm: Talker, memory: Memory) -> BaseChatEngine:
    engine: BaseChatEngine = condensing.MultiModalCondensePlusContextChatEngine.from_defaults(
        retriever=Illustrated("Ladders are tall."), multi_modal_llm=llm, memory=memory, system_prompt="Be short."
    )
    return engine


def kinds(message: dict[str, Any]) -> list[str]:
    return [block["block_type"] for block in message["blocks"]]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("build", "requests"), [(with_context, 3), (condense_plus, 5)])
def test_engines_do_what_they_do_with_a_chat_memory_buffer_and_store_no_picture_that_is_found(
    build: Build, requests: int, mode: Callable[..., Any], ours: InfiniteChatMemoryBuffer
) -> None:
    theirs = ChatMemoryBuffer.from_defaults()
    sent, expected = talk(build, mode, ours).requests, talk(build, mode, theirs).requests
    assert sent == expected
    assert len(sent) == requests  # every question but the first is condensed before it is asked
    assert seen(ours.get_all()) == seen(theirs.get_all())
    assert lines(ours.get_all())[::2] == [f"user: {question}" for question in QUESTIONS]
    last = sent[-1]
    assert [kinds(message) for message in last] == [["text"]] * 5 + [["image", "text"]]
    assert last[-1]["blocks"][0]["image"] == PIXEL
    assert "Ladders are tall." in last[-1]["blocks"][1]["text"]
    assert [kinds(message) for message in seen(ours.get_all())] == [["text"]] * 6
