"""Requests for vectors: long texts are cut into pieces, and what an embedder returns is checked."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from shared_core.errors import EmbedderError
from shared_core.plugins import calls
from shared_core.plugins.base import Embedder, Vectors
from shared_core.plugins.calls import Failure, Request
from shared_core.runtime.threads import beside

MOST_PIECES = 64
"""Pieces of one text that are embedded: a text of 2 MB has 2,300 of MiniLM's length. 64 hold 56,000 characters."""

UNIT_TOLERANCE = 1e-3
"""How far from 1 the length of a vector may be. Half precision is no more exact."""

BRIEF = 4_096
"""Characters that `Embedder.at_once` speaks of: static word vectors take 2 to 4 ms for them."""


@dataclass(frozen=True, slots=True)
class Embedded:
    """What an embedder returned for some texts.

    Attributes:
        vectors: one per piece, those of each text one after the other, shape (pieces, dimension).
        kept: how many pieces of each text were embedded.
        whole: how many pieces each text has.
    """

    vectors: Vectors
    kept: tuple[int, ...]
    whole: tuple[int, ...]

    def by_text(self) -> list[Vectors]:
        """Return the vectors of each text's pieces."""
        return np.split(self.vectors, np.cumsum(self.kept)[:-1])


def question_request(embedder: Embedder, text: str) -> Request[Vectors]:
    """Return a request for the vector of a question, which waits for it no longer than it may."""
    dimension = embedder.fingerprint.dimension
    return Request(
        "embedder", partial(embedder.embed_query, text), lambda reply: _checked(embedder, reply, (dimension,))[0],
        seconds=None if embedder.at_once and len(text) <= BRIEF else calls.SECONDS,
        afunction=partial(embedder.aembed_query, text),
    )  # fmt: skip


def documents_request(embedder: Embedder, texts: Sequence[str]) -> Request[Embedded]:
    """Return a request for the vectors of stored texts, of any length: long ones are embedded in pieces."""
    wanted = _Documents(embedder, texts)
    return Request("embedder", wanted.embed, wanted.checked, texts=len(texts), afunction=wanted.aembed)


def embedder_error(failure: Failure) -> EmbedderError:
    """Return the error of an embedder as the report names it."""
    if isinstance(failure.error, EmbedderError):
        return failure.error
    error = EmbedderError(str(failure))
    error.__cause__ = failure.error
    return error


@dataclass(frozen=True, slots=True)
class _Documents:
    embedder: Embedder
    texts: Sequence[str]

    def split(self) -> list[list[str]]:
        return [self.embedder.split(text) for text in self.texts]

    def embed(self) -> tuple[list[list[str]], Any]:
        pieces = self.split()
        return pieces, self.embedder.embed_documents(_chosen(pieces))

    async def aembed(self) -> tuple[list[list[str]], Any]:
        pieces = await beside(self.split)  # it may load a tokenizer
        return pieces, await self.embedder.aembed_documents(_chosen(pieces))

    def checked(self, reply: tuple[list[list[str]], Any]) -> Embedded:
        pieces, vectors = reply
        kept = [len(evenly(some)) for some in pieces]
        rows = _checked(self.embedder, vectors, (sum(kept), self.embedder.fingerprint.dimension))
        return Embedded(rows, tuple(kept), tuple(map(len, pieces)))


def _chosen(pieces: list[list[str]]) -> list[str]:
    return [one for some in pieces for one in evenly(some)]


def _checked(embedder: Embedder, reply: Any, shape: tuple[int, ...]) -> Vectors:
    """Return vectors, one a row, as float32.

    The store keeps them in half precision, which ends at 65,504, so long ones are scaled. Vectors of about unit length,
    as an `Embedder` should return them, stay what they are.
    """
    rows: npt.NDArray[np.float64] = np.asarray(reply, dtype=np.float64)
    if rows.shape != shape or not np.isfinite(rows).all():
        what = f"shape {rows.shape}" if rows.shape != shape else "numbers that are not finite"
        key = embedder.fingerprint.key
        raise EmbedderError(f"{key!r} returned {what}; expected finite numbers of shape {shape}")
    rows = rows.reshape(-1, shape[-1])
    with np.errstate(over="ignore", under="ignore"):
        off = np.abs(np.linalg.norm(rows, axis=1) - 1) > UNIT_TOLERANCE
        found = rows.astype(np.float32)
    if off.any():
        found[off] = unit_length(rows[off])
    return found


def unit_length(rows: Any) -> Vectors:
    """Return finite vectors, one a row, as float32 of unit length; zeros stay zeros."""
    values = np.asarray(rows, dtype=np.float64)
    peaks = np.abs(values).max(axis=1, keepdims=True, initial=0)
    values = values / np.where(peaks > 0, peaks, 1)  # so that squares neither overflow nor underflow
    lengths = np.linalg.norm(values, axis=1, keepdims=True)
    unit: Vectors = (values / np.where(lengths > 0, lengths, 1)).astype(np.float32)
    return unit


# Pieces of long texts


def cut(text: str, starts: Sequence[int], ends: Sequence[int], limit: int) -> list[str]:
    """Return `text` in overlapping pieces of at most `limit` tokens, given the start and end of each token."""
    if len(starts) <= limit:
        return [text]
    pieces, first = [], 0
    while first + limit < len(starts):
        stop = _boundary(text, starts, ends, first + limit // 2, first + limit)
        pieces.append(text[starts[first] : ends[stop - 1]])
        first = _boundary(text, starts, ends, stop - limit // 4 - 1, stop - limit // 8)
    return [*pieces, text[starts[first] :]]


def pieces(text: str, tokenizer: Any, limit: int) -> list[str]:
    """Return `text` in pieces of at most `limit` tokens.

    The tokenizer is a `tokenizers.Tokenizer` that neither truncates nor pads.
    """
    spans = tokenizer.encode(encodable(text), add_special_tokens=False).offsets
    if len(spans) <= limit:
        return [text]
    starts, ends = [start for start, _ in spans], [end for _, end in spans]
    for share in (1, 2, 4):  # a piece on its own can have more tokens than it has inside the text
        found = cut(text, starts, ends, max(1, limit // share))
        again = (tokenizer.encode(encodable(piece), add_special_tokens=False) for piece in found)
        if all(len(tokens) <= limit for tokens in again):
            break
    return found


def _boundary(text: str, starts: Sequence[int], ends: Sequence[int], after: int, last: int) -> int:
    """Return the last token in (after, last] that begins a word, or else a character; `last` if there is none."""
    tokens = range(last, after, -1)
    words = (i for i in tokens if any(map(str.isspace, text[max(starts[i] - 1, 0) : starts[i] + 1])))
    characters = (i for i in tokens if starts[i] >= ends[i - 1])
    return next(words, next(characters, last))


def evenly(pieces: list[str], most: int = MOST_PIECES) -> list[str]:
    """Return at most so many of a text's pieces, the first and the last among them, evenly chosen."""
    if len(pieces) <= most:
        return pieces
    return [pieces[number * (len(pieces) - 1) // (most - 1)] for number in range(most)]


def encodable(text: str) -> str:
    """Return `text` with lone surrogates, which tokenizers reject, as question marks. The length stays the same."""
    return text.encode("utf-8", "replace").decode("utf-8")
