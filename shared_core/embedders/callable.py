"""Any function as an embedder, such as the client of an embedding service."""

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from shared_core.base import Embedder, Fingerprint, Vectors
from shared_core.embedders.checks import checked, cut, failures
from shared_core.embedders.sentence_transformers import OTHER_WEIGHT
from shared_core.errors import EmbedderError

__all__ = ["CallableEmbedder", "without_marks"]

_T = TypeVar("_T")

Row = Sequence[float] | npt.NDArray[Any]
Rows = Sequence[Row] | npt.NDArray[Any]


class CallableEmbedder(Embedder):
    """Any function that returns vectors, such as the client of an embedding service.

    Vectors of any length are normalised. Whatever the functions raise becomes an `EmbedderError`.

    Args:
        function: from a list of texts to as many vectors; never called with none.
        name: model and revision, for example `"openai/text-embedding-3-small"`. It identifies the stored vectors, so
            two functions with one name must agree.
        dimension: numbers per vector; None: one short text is embedded to learn it.
        query: from a question to its vector, where questions are embedded in another way.
        adocuments: `function` to be awaited; without it, `function` is called in a thread.
        aquery: `query` to be awaited.
        max_chars: the characters of a text that the model reads; longer texts are split. None: all.
        floor: `Fingerprint.floor`.
        threshold: `Fingerprint.threshold`; for text-embedding-ada-002 0.8 is customary, tuned on one demonstration.
        weight: `Fingerprint.weight`.
    """

    def __init__(
        self,
        function: Callable[[list[str]], Rows],
        *,
        name: str,
        dimension: int | None = None,
        query: Callable[[str], Row] | None = None,
        adocuments: Callable[[list[str]], Awaitable[Rows]] | None = None,
        aquery: Callable[[str], Awaitable[Row]] | None = None,
        max_chars: int | None = None,
        floor: float = 0.0,
        threshold: float = 0.0,
        weight: float = OTHER_WEIGHT,
    ) -> None:
        if not name or "#" in name:
            raise ValueError(f"name must be a text without '#', not {name!r}")
        for argument, value in (("dimension", dimension), ("max_chars", max_chars)):
            if value is not None and value < 1:
                raise ValueError(f"{argument} must be at least 1, not {value!r}")
        self._function = function
        self._name = name
        self._dimension = dimension
        self._query = query
        self._adocuments = adocuments
        self._aquery = aquery
        self._max_chars = max_chars
        self._scale = (floor, threshold, weight)

    @classmethod
    def of(cls, function: Callable[[list[str]], Any], name: str | None = None) -> "CallableEmbedder":
        """Return the embedder of a function, sync or async, from a list of texts to as many vectors.

        Args:
            function: in sync code, an async one runs in a loop of its own, in a thread.
            name: identifies the vectors, a "#" in it as "-". By default the function's module and name, or the class
                of an object that is called.

        Raises:
            ValueError: the function has no name of its own, such as a lambda, and there is no `name`.
        """
        known = without_marks(name or _name_of(function))
        if not (inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__)):
            return cls(function, name=known)
        return cls(lambda texts: _to_its_end(function(texts)), name=known, adocuments=function)

    @cached_property
    def fingerprint(self) -> Fingerprint:
        """What identifies the vectors; calls the function once if the dimension was not given."""
        dimension = self._dimension
        if dimension is None:
            with failures(self._name):
                dimension = len(self._function(["dimension"])[0])
            if not dimension:
                raise EmbedderError(f"embedder {self._name!r} returned a vector of no numbers")
        return Fingerprint(self._name, dimension, *self._scale)

    def embed_documents(self, texts: Sequence[str]) -> Vectors:
        """Embed texts, as `Embedder.embed_documents`."""
        with failures(self._name):
            rows = self._function(list(texts)) if texts else np.zeros((0, self.fingerprint.dimension))
        return checked(rows, len(texts), self.fingerprint)

    def embed_query(self, text: str) -> Vectors:
        """Embed a question, as `Embedder.embed_query`, by `query` if that was given."""
        if self._query is None:
            return super().embed_query(text)
        with failures(self._name):
            vector = self._query(text)
        row: Vectors = checked([vector], 1, self.fingerprint)[0]
        return row

    def split(self, text: str) -> list[str]:
        """Return pieces of at most `max_chars` characters that overlap by an eighth or so, cut between words."""
        if self._max_chars is None:
            return [text]
        return cut(text, range(len(text)), range(1, len(text) + 1), self._max_chars)

    async def aembed_documents(self, texts: Sequence[str]) -> Vectors:
        """Embed texts, awaiting `adocuments` if that was given."""
        if self._adocuments is None or not texts:
            return await super().aembed_documents(texts)
        with failures(self._name):
            rows = await self._adocuments(list(texts))
        return checked(rows, len(texts), await asyncio.to_thread(lambda: self.fingerprint))

    async def aembed_query(self, text: str) -> Vectors:
        """Embed a question, awaiting `aquery` if that was given, or `adocuments` if questions are not special."""
        if self._aquery is not None:
            with failures(self._name):
                rows = [await self._aquery(text)]
            row: Vectors = checked(rows, 1, await asyncio.to_thread(lambda: self.fingerprint))[0]
            return row
        if self._adocuments is not None and self._query is None:
            first: Vectors = (await self.aembed_documents([text]))[0]
            return first
        return await super().aembed_query(text)


def without_marks(name: str) -> str:
    """Return a name with every "#", which an embedder may not have in its own, as "-"."""
    return name.replace("#", "-")


def _name_of(function: object) -> str:
    own = getattr(function, "__qualname__", None)
    if own is None and type(function).__module__ != "functools":
        return type(function).__qualname__
    if own is None or "<lambda>" in own or inspect.ismethod(function):
        raise ValueError(
            f"{function!r} has no name to tell its vectors by: use a function made by def, give a name, or wrap it: "
            "CallableEmbedder(function, name='model and revision')"
        )
    return f"{getattr(function, '__module__', None)}.{own}"


def _to_its_end(work: Coroutine[Any, Any, _T]) -> _T:
    """Run a coroutine in a loop of its own, in a thread, since this one may have a loop that is running."""
    with ThreadPoolExecutor(1, "embeddings") as pool:
        return pool.submit(asyncio.run, work).result()
