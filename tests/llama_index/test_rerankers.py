"""LlamaIndex's node postprocessors as rerankers of what is recalled."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from llama_index.core.base.llms.types import ChatMessage
from llama_index.core.postprocessor import SentenceTransformerRerank, SimilarityPostprocessor
from llama_index.core.postprocessor.types import BaseNodePostprocessor
from llama_index.core.schema import NodeWithScore, QueryBundle, TextNode
from typing_extensions import override

from llama_index_infinite_memory import InfiniteChatMemoryBuffer, InfiniteMemoryBlock, as_reranker
from llama_index_infinite_memory.settings import Settings
from shared_core import AsyncInfiniteMemory, InfiniteMemory, Message
from tests.embedders.test_rerankers import cross_encoder

SETTINGS: dict[str, Any] = {"ranking": "lexical", "max_tokens": 400, "reserve_tokens": 0}
SAID = [Message.user(f"locker {number} is in row {number * 7 % 40}", id=f"m{number}") for number in range(40)]
QUESTION = "which row is locker 3 in?"


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


def row(text: str) -> int:
    return int(text.split()[-1])


def found(postprocessor: Any) -> list[tuple[str | None, float | None]]:
    with InfiniteMemory(reranker=as_reranker(postprocessor), rerank_budget_ms=float("inf"), **SETTINGS) as one:
        one.add(SAID)
        return [(hit.message.id, hit.reranked) for hit in one.search(QUESTION, 30)]


def without() -> list[str | None]:
    with InfiniteMemory(**SETTINGS) as one:
        one.add(SAID)
        return [hit.message.id for hit in one.search(QUESTION, 30)]


def by_row() -> list[tuple[str, float]]:
    rows = {message.id or "": float(row(message.content)) for message in SAID if message.id in without()}
    return sorted(rows.items(), key=lambda item: -item[1])


def test_the_order_and_the_scores_are_the_postprocessor_s() -> None:
    postprocessor = LargeRows()
    assert found(postprocessor) == by_row()
    assert {query for query, _ in postprocessor.seen} == {QUESTION}
    assert "user: locker 3 is in row 21" in [text for _, text in postprocessor.seen]


def test_what_it_drops_goes_to_the_end_in_its_old_order() -> None:
    kept = by_row()[:3]
    rest = [(id_, None) for id_ in without() if id_ not in dict(kept)]
    assert found(LargeRows(keep=3)) == [*kept, *rest]
    assert found(LargeRows(keep=3, scored=False)) == [*((id_, 3.0 - rank) for rank, (id_, _) in enumerate(kept)), *rest]
    assert found(SimilarityPostprocessor(similarity_cutoff=0.5)) == [(id_, None) for id_ in without()]


def test_foreign_nodes_are_a_note() -> None:
    with InfiniteMemory(reranker=as_reranker(Foreign()), **SETTINGS) as one:
        one.add(SAID)
        [note] = one.context(QUESTION).report.degraded
    assert note.endswith("TypeError: the postprocessor returned nodes that it was not given")


def test_asynchronous_code_awaits_it() -> None:
    async def search() -> list[str | None]:
        one = await AsyncInfiniteMemory.open(reranker=as_reranker(Awaited()), **SETTINGS)
        await one.add(SAID)
        return [hit.message.id for hit in await one.search(QUESTION, 30)]

    assert asyncio.run(search()) == [id_ for id_, _ in by_row()]


@pytest.mark.model
def test_llama_index_s_own_cross_encoder_orders_as_the_engine_s(tmp_path: Path) -> None:
    folder = str(cross_encoder(tmp_path / "model"))
    theirs = SentenceTransformerRerank(model=folder, top_n=30, device="cpu")
    assert [id_ for id_, _ in found(theirs)] == [id_ for id_, _ in found(folder)]


def test_buffers_and_blocks_pass_it_on() -> None:
    postprocessor = LargeRows()
    with InfiniteChatMemoryBuffer.from_defaults(
        token_limit=200, tokenizer_fn=str.split, reranker=postprocessor, recall="thorough"
    ) as buffer:
        buffer.put_messages([ChatMessage(message.content) for message in SAID])
        buffer.get(QUESTION)
        assert buffer.explain().degraded == ()
    assert postprocessor.seen
    assert Settings.of(reranker=postprocessor).unwritten() == ["reranker"]
    assert Settings.of(reranker="org/model").to_dict()["reranker"] == "org/model"

    async def recalled() -> str:
        block = InfiniteMemoryBlock(reranker=postprocessor, ranking="lexical")
        await block.aput([ChatMessage(message.content) for message in SAID])
        return str(await block.aget(input=QUESTION))

    postprocessor.seen.clear()
    assert "row" in asyncio.run(recalled())
    assert postprocessor.seen


@pytest.mark.parametrize("wrong", [7, LargeRows])
def test_what_is_none_is_refused(wrong: Any) -> None:
    with pytest.raises(TypeError, match="reranker="):
        as_reranker(wrong)
