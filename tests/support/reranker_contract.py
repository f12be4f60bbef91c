"""What every framework's reranker must do for the engine: one suite that each adapter's tests inherit."""

import asyncio
from abc import ABC, abstractmethod
from functools import cache
from typing import Any

import pytest

from shared_core import AsyncInfiniteMemory, InfiniteMemory, Message

SETTINGS: dict[str, Any] = {"embedder": "words", "max_tokens": 400, "reserve_tokens": 0}
SAID = [Message.user(f"locker {number} is in row {number * 7 % 40}", id=f"m{number}") for number in range(40)]
QUESTION = "which row is locker 3 in?"


def row(text: str) -> int:
    """The number that a text ends with; 0 if there is none."""
    return int(text.split()[-1]) if text[-1:].isdecimal() else 0


def found(reranker: Any) -> list[tuple[str | None, float | None]]:
    """The ids of what is found with a reranker, each with its score."""
    with InfiniteMemory(reranker=reranker, **SETTINGS) as one:
        one.add(SAID)
        return [(hit.message.id, hit.reranked) for hit in one.search(QUESTION, 30)]


@cache
def without() -> tuple[str | None, ...]:
    """The ids of what is found without one."""
    return tuple(id_ for id_, _ in found(None))


def by_row() -> list[tuple[str, float]]:
    """The same, the largest rows first, each with its row."""
    rows = {message.id or "": float(row(message.content)) for message in SAID if message.id in without()}
    return sorted(rows.items(), key=lambda item: -item[1])


class RerankerContract(ABC):
    """The suite."""

    @abstractmethod
    def as_reranker(self, given: Any) -> Any:
        """Return the adapter's reranker for an object of the framework."""

    @abstractmethod
    def largest_rows(self, *, keep: int = 30, scored: bool = True) -> Any:
        """Return an object of the framework that keeps texts of large rows, the largest first.

        Its `seen` has the questions and texts it was given.
        """

    @abstractmethod
    def awaited(self) -> Any:
        """Return one that orders in the same way, but can only be awaited."""

    def test_the_order_and_the_scores_are_the_framework_s(self) -> None:
        given = self.largest_rows()
        assert found(self.as_reranker(given)) == by_row()
        texts = {message.id: f"user: {message.content}" for message in SAID}
        assert given.seen == [(QUESTION, texts[id_]) for id_ in without()]

    def test_what_it_drops_goes_to_the_end_in_its_old_order(self) -> None:
        kept = by_row()[:3]
        rest = [(id_, None) for id_ in without() if id_ not in dict(kept)]
        ranks = [(id_, 3.0 - rank) for rank, (id_, _) in enumerate(kept)]
        assert found(self.as_reranker(self.largest_rows(keep=3))) == [*kept, *rest]
        assert found(self.as_reranker(self.largest_rows(keep=3, scored=False))) == [*ranks, *rest]
        assert found(self.as_reranker(self.largest_rows(keep=0))) == [(id_, None) for id_ in without()]

    def test_asynchronous_code_awaits_it(self) -> None:
        async def search() -> list[str | None]:
            one = AsyncInfiniteMemory(reranker=self.as_reranker(self.awaited()), **SETTINGS)
            await one.add(SAID)
            return [hit.message.id for hit in await one.search(QUESTION, 30)]

        assert asyncio.run(search()) == [id_ for id_, _ in by_row()]

    def test_what_is_none_is_refused(self) -> None:
        for wrong in (7, type(self.largest_rows())):
            with pytest.raises(TypeError, match="reranker="):
                self.as_reranker(wrong)
