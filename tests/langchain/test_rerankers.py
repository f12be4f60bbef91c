"""LangChain's document compressors as rerankers of what is recalled."""

import asyncio
from collections.abc import Sequence
from typing import Any
from uuid import UUID

from langchain_core.callbacks import BaseCallbackHandler, BaseCallbackManager, Callbacks
from langchain_core.documents import BaseDocumentCompressor, Document
from langchain_core.runnables import RunnableLambda
from typing_extensions import override

from langchain_infinite_memory import HistoryRetriever, as_reranker
from shared_core import AsyncInfiniteMemory, InfiniteMemory
from tests.langchain.agents import Model, agent, ask, memory
from tests.support.reranker_contract import QUESTION, SAID, SETTINGS, RerankerContract, row


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


class TestCompressors(RerankerContract):
    @override
    def as_reranker(self, given: Any) -> Any:
        return as_reranker(given)

    @override
    def largest_rows(self, *, keep: int = 30, scored: bool = True) -> Any:
        return Newest(keep=keep, scored=scored)

    @override
    def awaited(self) -> Any:
        return Awaited()


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
