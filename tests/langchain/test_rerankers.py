"""LangChain's document compressors as rerankers of what is recalled."""

import asyncio
from collections.abc import Sequence
from typing import Any
from uuid import UUID

import pytest
from langchain_core.callbacks import BaseCallbackHandler, BaseCallbackManager, Callbacks
from langchain_core.documents import BaseDocumentCompressor, Document
from langchain_core.runnables import RunnableLambda
from typing_extensions import override

from langchain_infinite_memory import HistoryRetriever, as_reranker
from shared_core import AsyncInfiniteMemory, InfiniteMemory, Message
from tests.langchain.agents import Model, agent, ask, memory

SETTINGS: dict[str, Any] = {"ranking": "lexical", "max_tokens": 400, "reserve_tokens": 0}
SAID = [Message.user(f"locker {number} is in row {number * 7 % 40}", id=f"m{number}") for number in range(40)]
QUESTION = "which row is locker 3 in?"


class Newest(BaseDocumentCompressor):
    """Keeps texts of large rows, the largest first, cut to their ends, and forgets ids, as many compressors do."""

    keep: int = 30
    scored: bool = True
    metadata: bool = True
    seen: list[tuple[str, str]] = []  # noqa: RUF012  (pydantic copies it)

    @override
    def compress_documents(
        self, documents: Sequence[Document], query: str, callbacks: Callbacks | None = None
    ) -> list[Document]:
        self.seen.extend((query, document.page_content) for document in documents)
        best = sorted(documents, key=lambda document: -row(document.page_content))[: self.keep]
        return [
            Document(
                one.page_content[-2:],
                metadata={
                    **(one.metadata if self.metadata else {}),
                    **({"relevance_score": float(row(one.page_content))} if self.scored else {}),
                },
            )
            for one in best
        ]


class Awaited(Newest):
    """Has a client of its own for asynchronous code."""

    @override
    def compress_documents(self, *given: Any, **named: Any) -> list[Document]:
        raise AssertionError("only asynchronous")

    @override
    async def acompress_documents(
        self, documents: Sequence[Document], query: str, callbacks: Callbacks | None = None
    ) -> list[Document]:
        await asyncio.sleep(0)
        return super().compress_documents(documents, query, callbacks)


class Traced(Newest):
    """Notes to which run its own runs would belong."""

    parents: list[Any] = []  # noqa: RUF012

    @override
    def compress_documents(
        self, documents: Sequence[Document], query: str, callbacks: Callbacks | None = None
    ) -> list[Document]:
        assert isinstance(callbacks, BaseCallbackManager)
        self.parents.append(callbacks.parent_run_id)
        return super().compress_documents(documents, query, callbacks)


class Runs(BaseCallbackHandler):
    """Notes the runs of chains."""

    def __init__(self) -> None:
        self.ids: list[UUID] = []

    @override
    def on_chain_start(self, *given: Any, run_id: UUID, **named: Any) -> None:
        self.ids.append(run_id)


def row(text: str) -> int:
    """The number that a text ends with; 0 if there is none."""
    return int(text.split()[-1]) if text[-1:].isdecimal() else 0


def text_of(id_: str | None) -> str:
    return next(message.content for message in SAID if message.id == id_)


def found(compressor: Any, top_k: int = 30) -> list[tuple[str | None, float | None]]:
    with InfiniteMemory(reranker=as_reranker(compressor), **SETTINGS) as one:
        one.add(SAID)
        return [(hit.message.id, hit.reranked) for hit in one.search(QUESTION, top_k)]


def without() -> list[str | None]:
    with InfiniteMemory(**SETTINGS) as one:
        one.add(SAID)
        return [hit.message.id for hit in one.search(QUESTION, 30)]


def by_row() -> list[tuple[str, float]]:
    rows = {message.id or "": float(row(message.content)) for message in SAID if message.id in without()}
    return sorted(rows.items(), key=lambda item: -item[1])


def test_the_order_and_the_scores_are_the_compressor_s() -> None:
    compressor = Newest()
    assert found(compressor) == by_row()
    assert [text for _, text in compressor.seen] == [f"user: {text_of(id_)}" for id_ in without()]
    assert {query for query, _ in compressor.seen} == {QUESTION}


def test_what_it_drops_goes_to_the_end_in_its_old_order() -> None:
    kept = by_row()[:3]
    rest = [(id_, None) for id_ in without() if id_ not in dict(kept)]
    assert found(Newest(keep=3)) == [*kept, *rest]
    assert found(Newest(keep=3, scored=False)) == [*((id_, 3.0 - rank) for rank, (id_, _) in enumerate(kept)), *rest]
    assert found(Newest(keep=0)) == [(id_, None) for id_ in without()]


def test_recall_shows_what_was_said_not_what_the_compressor_made_of_it() -> None:
    with InfiniteMemory(reranker=as_reranker(Newest()), recall="thorough", **SETTINGS) as one:
        one.add(SAID)
        context = one.context(QUESTION)
    assert context.report.reranked
    best = context.report.best[0]
    assert f"- user: {best.text}" in context.messages[-1].content
    assert best.text.startswith("locker ")


def test_documents_that_cannot_be_told_apart_are_a_note() -> None:
    with InfiniteMemory(reranker=as_reranker(Newest(metadata=False)), **SETTINGS) as one:
        one.add(SAID)
        [note] = one.context(QUESTION).report.degraded
    assert note.endswith("TypeError: the compressor returned documents without the metadata of those that it was given")


def test_asynchronous_code_awaits_it() -> None:
    async def search() -> list[str | None]:
        one = await AsyncInfiniteMemory.open(reranker=as_reranker(Awaited()), **SETTINGS)
        await one.add(SAID)
        return [hit.message.id for hit in await one.search(QUESTION, 30)]

    assert asyncio.run(search()) == [id_ for id_, _ in by_row()]


def test_what_it_runs_belongs_to_the_run_that_recalls() -> None:
    compressor, runs = Traced(), Runs()
    with InfiniteMemory(reranker=as_reranker(compressor), **SETTINGS) as one:
        one.add(SAID)

        async def asearch(query: str) -> Any:
            return await AsyncInfiniteMemory(one).search(query)

        chain = RunnableLambda(one.search, asearch)
        chain.invoke(QUESTION, {"callbacks": [runs]})
        asyncio.run(chain.ainvoke(QUESTION, {"callbacks": [runs]}))
    assert compressor.parents == runs.ids
    assert len(set(runs.ids)) == 2


def test_agents_and_retrievers_pass_it_on() -> None:
    compressor = Newest()
    chat = agent(Model(), memory(reranker=compressor, max_tokens=90, recall="thorough"), tools=[])
    for number in range(30):
        ask(chat, f"locker {number} has {'a red' if number % 9 else 'an orange'} door in row {number}")
    ask(chat, "which lockers have an orange door?")
    assert any(text.startswith("user: locker 9 has an orange door") for _, text in compressor.seen)
    assert HistoryRetriever(None, session_id="1", reranker=compressor).invoke("anything") == []


@pytest.mark.parametrize("wrong", [7, Newest])
def test_what_is_none_is_refused(wrong: Any) -> None:
    with pytest.raises(TypeError, match="reranker="):
        as_reranker(wrong)


def test_what_the_engine_takes_is_passed_on() -> None:
    assert as_reranker(len) is len  # type: ignore[arg-type, comparison-overlap]
    assert as_reranker("org/model") is as_reranker("org/model")
