"""The small interfaces that you can implement. `store` has the large one."""

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from shared_core.messages import Message
from shared_core.runtime.threads import beside

__all__ = [
    "Embedder", "Fingerprint", "Reranker", "Scores", "Summarizer", "SummarizerModel", "TokenCounter",
    "Vectors",
]  # fmt: skip

Vectors = npt.NDArray[np.float32]


OVERHEAD = 4
"""Tokens of framing per message that chat formats add."""


@runtime_checkable
class TokenCounter(Protocol):
    """Counts the tokens of a text.

    Attributes:
        name: identifies the counter in the database, so two counters of one name must agree on every text. None: counts
            are not stored.
        overhead: the tokens of framing that the model's chat format adds to each message; mostly `OVERHEAD`.
    """

    name: str | None
    overhead: int

    def __call__(self, text: str, /) -> int:
        """Return the number of tokens of `text`. Special tokens in it count as text. Must not raise."""


Summarizer = Callable[[str | None, Sequence[Message]], str | Awaitable[str]]
"""Sums up messages, oldest first, given the summary of the messages before them (None: there is none).

It may be a coroutine function. A request for something in particular, such as the prompt of a merge, comes as the last
message: a user message without an id, which no stored message lacks.
"""


INPUT_TOKENS = 4_000
"""The largest input of one call of a summarizer that says nothing else, in tokens."""


class SummarizerModel(ABC):
    """A summarizer that calls a model, and can be awaited without blocking the event loop.

    Attributes:
        input_tokens: the largest input of one call, in tokens, the previous summary included. The summary itself may
            take an eighth of it, without the wording around it; a longer one is cut. A plain function gets 4,000.
    """

    input_tokens: int = INPUT_TOKENS

    @abstractmethod
    def __call__(self, previous_summary: str | None, messages: Sequence[Message], /) -> str:
        """Sum up; see `Summarizer`."""

    async def summarize(self, previous_summary: str | None, messages: Sequence[Message], /) -> str:
        """Sum up without blocking the event loop. By default, this runs in a thread."""
        return await beside(partial(self, previous_summary, messages), "infinite-memory summarizer")


Scores = Sequence[float] | npt.NDArray[Any]

Reranker = Callable[[str, list[str]], Scores | Awaitable[Scores]]
"""Returns how well each of some texts answers a question: one number per text, in their order, higher is better.

It may be a coroutine function. Numbers are compared within one call only. Minus infinity puts a text last; NaN and
infinity are errors.
"""


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """The identity of an embedder's vectors, and the meaning of their cosines.

    Attributes:
        name: the model and its revision. Together with `dimension`, it identifies the vectors.
        dimension: the numbers per vector.
        floor: the cosine that at least one message of a long chat must reach to count as evidence for a question.
        threshold: the cosine from which a text is about the question. It is stricter than `floor`.
        weight: the weight of the dense score relative to the lexical one (1: equal).
        unrelated: the mean and the standard deviation of the cosine of two unrelated messages. None: they are measured
            on the messages of each session.
    """

    name: str
    dimension: int
    floor: float = 0.0
    threshold: float = 0.0
    weight: float = 0.5
    unrelated: tuple[float, float] | None = None

    @property
    def key(self) -> str:
        """The text that identifies the vectors in a store."""
        return f"{self.name}/{self.dimension}"


class Embedder(ABC):
    """Turns texts into vectors whose dot product is their cosine.

    Attributes:
        at_once: whether a few thousand characters take it a millisecond or two. `context` then calls it in its own
            thread: another one, which it could give up, would cost more than the call. It waits for the vectors of a
            short conversation, however busy the machine is. By default, this is false.
    """

    at_once: bool = False

    @property
    @abstractmethod
    def fingerprint(self) -> Fingerprint:
        """The identity of the vectors. A plain attribute is enough."""

    @abstractmethod
    def embed_documents(self, texts: Sequence[str]) -> Vectors:
        """Embed stored texts.

        Args:
            texts: any strings, none longer than a piece that `split` returns. The sequence may be empty.

        Returns:
            An array of float32 of the shape (len(texts), fingerprint.dimension), with rows of unit length.

        Whatever it raises is a note in the report on a question, and an `EmbedderError` of `index`.
        """

    def embed_query(self, text: str) -> Vectors:
        """Embed a question: an array of the shape (fingerprint.dimension,). Errors are those of `embed_documents`."""
        row: Vectors = self.embed_documents([text])[0]
        return row

    def split(self, text: str) -> list[str]:
        """Return `text` in pieces that the model can read whole, at least one, in order. By default, `text` itself.

        Of more than 64 pieces, 64 are embedded, chosen evenly.
        """
        return [text]

    def load(self) -> None:  # noqa: B027  most embedders have nothing to load
        """Load the model if it is not loaded yet. By default, nothing.

        A question waits for it as long as it takes, and for the calls that follow only as long as it may.
        """

    async def aembed_documents(self, texts: Sequence[str]) -> Vectors:
        """Embed stored texts without blocking the event loop. By default, this runs in a thread."""
        return await beside(partial(self.embed_documents, texts), "infinite-memory embedder")

    async def aembed_query(self, text: str) -> Vectors:
        """Embed a question without blocking the event loop. By default, this runs in a thread."""
        return await beside(partial(self.embed_query, text), "infinite-memory embedder")
