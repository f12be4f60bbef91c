"""The small plug-in points on one screen: TokenCounter, Summarizer and Embedder; `store` has the large one."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from shared_core.messages import Message

__all__ = [
    "AsyncSummarizer", "Embedder", "Fingerprint", "Summarizer", "SummarizerModel", "TokenCounter", "Vectors",
]  # fmt: skip

Vectors = npt.NDArray[np.float32]


@runtime_checkable
class TokenCounter(Protocol):
    """Counts the tokens of a text.

    `name` identifies the counter for as long as the database lives: two counters with one name must agree on every
    text. None: counts are not stored.
    """

    name: str | None

    def __call__(self, text: str, /) -> int:
        """Return the number of tokens of `text`; special tokens in it count as text. Never raises."""


Summarizer = Callable[[str | None, Sequence[Message]], str]
"""Sums up messages, oldest first, given the summary of what came before them (None: nothing did).

Where it is asked for something in particular, that is the last message: a user's without an id, as only what is stored
has one.
"""

AsyncSummarizer = Callable[[str | None, Sequence[Message]], Awaitable[str]]
"""The same as a coroutine function, for the async face."""


class SummarizerModel(ABC):
    """A summarizer that a model is behind, with a way to wait for it without holding up the event loop."""

    @abstractmethod
    def __call__(self, previous_summary: str | None, messages: Sequence[Message], /) -> str:
        """Sum up; see `Summarizer`."""

    async def summarize(self, previous_summary: str | None, messages: Sequence[Message], /) -> str:
        """Do the same without blocking the event loop; by default in a thread."""
        return await asyncio.to_thread(self, previous_summary, messages)


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """What tells one embedder's vectors from another's, and what their cosines mean.

    Attributes:
        name: model and revision; together with `dimension` it identifies the vectors.
        dimension: numbers per vector.
        floor: cosine that at least one text must reach to be evidence for a question in a long chat.
        threshold: cosine above which a text is about the question; stricter than `floor`.
        weight: how much the dense score counts against the lexical one (1: the same).
    """

    name: str
    dimension: int
    floor: float = 0.0
    threshold: float = 0.0
    weight: float = 0.5

    @property
    def key(self) -> str:
        """The text that identifies the vectors in a store."""
        return f"{self.name}/{self.dimension}"


class Embedder(ABC):
    """Turns texts into vectors whose dot product is their cosine."""

    @property
    @abstractmethod
    def fingerprint(self) -> Fingerprint:
        """What tells these vectors from another embedder's; a plain attribute will do."""

    @abstractmethod
    def embed_documents(self, texts: Sequence[str]) -> Vectors:
        """Embed stored texts.

        Args:
            texts: any strings, each no longer than `split` returns; may be empty.

        Returns:
            float32, shape (len(texts), fingerprint.dimension), rows of unit length.

        Raises:
            EmbedderError: the model failed or returned something else.
        """

    def embed_query(self, text: str) -> Vectors:
        """Embed a question: shape (fingerprint.dimension,); errors as in `embed_documents`."""
        row: Vectors = self.embed_documents([text])[0]
        return row

    def split(self, text: str) -> list[str]:
        """Return `text` as pieces that the model reads whole, in order, at least one; by default just `text`."""
        return [text]

    async def aembed_documents(self, texts: Sequence[str]) -> Vectors:
        """Embed stored texts without blocking the event loop; by default in a thread."""
        return await asyncio.to_thread(self.embed_documents, texts)

    async def aembed_query(self, text: str) -> Vectors:
        """Embed a question without blocking the event loop; by default in a thread."""
        return await asyncio.to_thread(self.embed_query, text)
