"""Any function as an embedder, such as the client of an embedding service."""

import inspect
from collections.abc import Awaitable, Callable, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from shared_core.errors import EmbedderError
from shared_core.plugins.base import Embedder, Fingerprint, Vectors
from shared_core.plugins.calls import completed
from shared_core.plugins.embedding import cut, unit_length

OTHER_WEIGHT = 0.7
"""The weight for models that were not measured: between those of the static embedder and of MiniLM."""

Row = Sequence[float] | npt.NDArray[Any]
Rows = Sequence[Row] | npt.NDArray[Any]


class CallableEmbedder(Embedder):
    """Embeds with any function that returns vectors, such as the client of an embedding service.

    The vectors are normalised.

    Args:
        function: takes a list of texts, which is never empty, and returns as many vectors. It may be a coroutine
            function: the sync memory then runs it in an event loop of its own.
        name: the model and its revision, for example `"openai/text-embedding-3-small"`; a "#" in it becomes a "-". It
            identifies the stored vectors: two functions of the same name must return the same vectors. None: the
            module and name of the function, or the class of a callable object.
        dimension: the numbers per vector. None: one short text is embedded to find out.
        query: takes a question and returns its vector, if the model embeds questions differently from documents.
        adocuments: `function` as a coroutine function. Without it, a sync `function` is called in a thread.
        aquery: `query` as a coroutine function.
        max_chars: how many characters of a text the model reads. Longer texts are split. None: all.
        floor: `Fingerprint.floor`.
        threshold: `Fingerprint.threshold`. For text-embedding-ada-002, 0.8 is customary; it was tuned on one
            demonstration.
        weight: `Fingerprint.weight`.

    Raises:
        ValueError: a number is too small; or the function has no name of its own, as a lambda, and no `name` is given.
    """

    def __init__(
        self,
        function: Callable[[list[str]], Rows | Awaitable[Rows]],
        *,
        name: str | None = None,
        dimension: int | None = None,
        query: Callable[[str], Row] | None = None,
        adocuments: Callable[[list[str]], Awaitable[Rows]] | None = None,
        aquery: Callable[[str], Awaitable[Row]] | None = None,
        max_chars: int | None = None,
        floor: float = 0.0,
        threshold: float = 0.0,
        weight: float = OTHER_WEIGHT,
    ) -> None:
        for argument, value in (("dimension", dimension), ("max_chars", max_chars)):
            if value is not None and value < 1:
                raise ValueError(f"{argument} must be at least 1, not {value!r}")
        self._function = function
        self._name = (name or _name_of(function)).replace("#", "-")
        self._dimension = dimension
        self._query = query
        self._adocuments: Any = adocuments or (function if _is_asynchronous(function) else None)
        self._aquery = aquery
        self._max_chars = max_chars
        self._scale = (floor, threshold, weight)

    @cached_property
    def fingerprint(self) -> Fingerprint:
        """The identity of the vectors. The function is called once if the dimension was not given."""
        dimension = self._dimension or len(self._called(["dimension"])[0])
        if not dimension:
            raise EmbedderError(f"embedder {self._name!r} returned a vector of no numbers")
        return Fingerprint(self._name, dimension, *self._scale)

    def embed_documents(self, texts: Sequence[str]) -> Vectors:
        """Embed texts, as in `Embedder.embed_documents`."""
        if not texts:
            return np.zeros((0, self.fingerprint.dimension), np.float32)
        return self._unit(self._called(list(texts)))

    def embed_query(self, text: str) -> Vectors:
        """Embed a question, as in `Embedder.embed_query`, with `query` if that was given."""
        if self._query is None:
            return super().embed_query(text)
        row: Vectors = self._unit([self._query(text)])[0]
        return row

    def split(self, text: str) -> list[str]:
        """Return pieces of at most `max_chars` characters, cut between words, that overlap by about an eighth."""
        if self._max_chars is None:
            return [text]
        return cut(text, range(len(text)), range(1, len(text) + 1), self._max_chars)

    async def aembed_documents(self, texts: Sequence[str]) -> Vectors:
        """Embed texts with `adocuments` if that was given, else in a thread."""
        if self._adocuments is None or not texts:
            return await super().aembed_documents(texts)
        return self._unit(await self._adocuments(list(texts)))

    async def aembed_query(self, text: str) -> Vectors:
        """Embed a question with `aquery`, with `adocuments` if there is no `query`, or else in a thread."""
        if self._aquery is not None:
            rows = self._unit([await self._aquery(text)])
        elif self._adocuments is not None and self._query is None:
            rows = await self.aembed_documents([text])
        else:
            return await super().aembed_query(text)
        row: Vectors = rows[0]
        return row

    def _called(self, texts: list[str]) -> Any:
        return completed(self._function(texts), "infinite-memory embedder")

    def _unit(self, rows: Rows) -> Vectors:
        """Return the vectors of a function, of unit length; whether they are as many and as long is for the caller."""
        values = np.asarray(rows, dtype=np.float64)
        if values.ndim != 2 or not np.isfinite(values).all():
            raise EmbedderError(f"embedder {self._name!r} returned no finite vectors, one per text")
        return unit_length(values)


def _is_asynchronous(function: object) -> bool:
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__)


def _name_of(function: object) -> str:
    own = getattr(function, "__qualname__", None)
    if own is None and type(function).__module__ != "functools":
        return type(function).__qualname__
    if own is None or "<lambda>" in own or inspect.ismethod(function):
        raise ValueError(
            f"{function!r} has no name that could identify its vectors: use one made by def, give a name, or wrap it: "
            "CallableEmbedder(function, name='model and revision')"
        )
    return f"{getattr(function, '__module__', None)}.{own}"
