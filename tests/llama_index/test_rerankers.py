"""LlamaIndex's node postprocessors as rerankers of what is recalled."""

import asyncio
from typing import Any

from llama_index.core.base.llms.types import ChatMessage
from llama_index.core.postprocessor.types import BaseNodePostprocessor
from llama_index.core.schema import NodeWithScore, QueryBundle, TextNode
from typing_extensions import override

from llama_index_infinite_memory import InfiniteChatMemoryBuffer, InfiniteMemoryBlock, as_reranker
from llama_index_infinite_memory.settings import Settings
from shared_core import InfiniteMemory
from tests.support.reranker_contract import QUESTION, SAID, SETTINGS, RerankerContract, row


class LargeRows(BaseNodePostprocessor):
    """Keeps texts of large rows, the largest first."""

    keep: int = 30
    scored: bool = True
    seen: list[tuple[str, str]] = []  # noqa: RUF012  (pydantic copies it)

    @override
    def _postprocess_nodes(
        self, nodes: list[NodeWithScore], query_bundle: QueryBundle | None = None
    ) -> list[NodeWithScore]:
        assert query_bundle is not None
        self.seen.extend((query_bundle.query_str, one.text) for one in nodes)
        best = sorted(nodes, key=lambda one: -row(one.text))[: self.keep]
        for one in best:
            one.score = float(row(one.text)) if self.scored else None
        return best


class Awaited(LargeRows):
    """Has a client of its own for asynchronous code."""

    @override
    async def _apostprocess_nodes(
        self, nodes: list[NodeWithScore], query_bundle: QueryBundle | None = None
    ) -> list[NodeWithScore]:
        await asyncio.sleep(0)
        return LargeRows._postprocess_nodes(self, nodes, query_bundle)

    @override
    def _postprocess_nodes(self, *given: Any, **named: Any) -> list[NodeWithScore]:
        raise AssertionError("only asynchronous")


class Foreign(LargeRows):
    """Returns nodes that it was not given."""

    @override
    def _postprocess_nodes(self, *given: Any, **named: Any) -> list[NodeWithScore]:
        return [NodeWithScore(node=TextNode(text="a summary of all"))]


class TestPostprocessors(RerankerContract):
    @override
    def as_reranker(self, given: Any) -> Any:
        return as_reranker(given)

    @override
    def largest_rows(self, *, keep: int = 30, scored: bool = True) -> Any:
        return LargeRows(keep=keep, scored=scored)

    @override
    def awaited(self) -> Any:
        return Awaited()


def test_foreign_nodes_are_a_note() -> None:
    with InfiniteMemory(reranker=as_reranker(Foreign()), **SETTINGS) as one:
        one.add(SAID)
        [note] = one.context(QUESTION).report.degraded
    assert note.endswith("TypeError: the postprocessor returned nodes that it was not given")


def test_buffers_and_blocks_pass_it_on() -> None:
    postprocessor = LargeRows()
    with InfiniteChatMemoryBuffer.from_defaults(
        token_limit=200, tokenizer_fn=str.split, reranker=postprocessor, recall="thorough"
    ) as buffer:
        buffer.put_messages([ChatMessage(message.content) for message in SAID])
        buffer.get(QUESTION)
        assert buffer.explain().degraded == ()
    assert postprocessor.seen
    assert Settings(reranker=postprocessor).unwritten() == ["reranker"]
    assert Settings(reranker="org/model").to_dict()["reranker"] == "org/model"

    async def recalled() -> str:
        block = InfiniteMemoryBlock(reranker=postprocessor, embed_model="words")
        await block.aput([ChatMessage(message.content) for message in SAID])
        return str(await block.aget(input=QUESTION))

    postprocessor.seen.clear()
    assert "row" in asyncio.run(recalled())
    assert postprocessor.seen
