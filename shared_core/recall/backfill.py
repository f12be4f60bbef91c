"""Give vectors to messages that have none: in batches, newest first, within a time budget."""

import time
from collections.abc import Callable, Generator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from shared_core.base import Embedder, Vectors
from shared_core.errors import EmbedderError
from shared_core.index.session_vectors import SessionVectors, text_hash

__all__ = ["EmbedReply", "EmbedRequest", "backfill"]

Rows = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class EmbedRequest:
    """Texts that a step needs vectors for; the sync and the async face each answer it in their own way."""

    embedder: Embedder
    texts: tuple[str, ...]
    query: bool = False


EmbedReply: TypeAlias = Vectors | EmbedderError


def backfill(
    vectors: SessionVectors, embedder: Embedder, rows: Rows, text_of: Callable[[Rows], Sequence[str]], *,
    batch: int, lock: AbstractContextManager[object], deadline: float = float("inf"),
    progress: Callable[[int], None] = lambda done: None, save: Callable[[SessionVectors], None] = SessionVectors.save,
) -> Generator[EmbedRequest, EmbedReply, int]:  # fmt: skip
    """Embed rows in the order given and return how many are left; rows that another caller is at are left to him.

    Args:
        vectors: where the vectors go.
        embedder: what the requests are for; it is not asked to embed here, only to split long texts.
        rows: which rows.
        text_of: the texts to embed, one for each of some rows; empty where everything was forgotten.
        batch: how many rows a request is for.
        lock: held while the index is touched, never while a request waits.
        deadline: `time.monotonic()` after which nothing is embedded; vectors that exist already are still taken.
        progress: told how many rows are done, after each batch.
        save: stores the vectors, after each batch.

    Raises:
        EmbedderError: the embedder failed; what was done before is kept.
        StoreError: whatever `save` raises.
    """
    left = 0
    for start in range(0, len(rows), batch):
        late = time.monotonic() >= deadline
        with lock:
            part = vectors.claim(rows[start : start + batch])
        left += len(rows[start : start + batch]) - len(part)
        try:
            todo = yield from _embed(vectors, embedder, part, text_of, lock, save, late=late)
        finally:
            vectors.release(part)
        left += todo
        progress(min(start + batch, len(rows)) - left)
        if late and todo == len(part):
            return left + max(0, len(rows) - start - batch)
    return left


def _embed(
    vectors: SessionVectors, embedder: Embedder, part: Rows, text_of: Callable[[Rows], Sequence[str]],
    lock: AbstractContextManager[object], save: Callable[[SessionVectors], None], *, late: bool,
) -> Generator[EmbedRequest, EmbedReply, int]:  # fmt: skip
    """Give rows vectors: those that exist already, and unless it is too late, new ones; return how many are left."""
    with lock:
        positions = vectors.index.positions(part)
        texts = text_of(part)
        todo = vectors.adopt(positions, [text_hash(text) for text in texts])
        save(vectors)
    if late or not todo:
        return len(todo)
    # Equal texts are embedded once.
    pieces = {text: embedder.split(text) for text in dict.fromkeys(texts[i] for i in todo)}
    reply = yield EmbedRequest(embedder, tuple(piece for split in pieces.values() for piece in split))
    if isinstance(reply, EmbedderError):
        raise reply
    ends = np.cumsum([len(split) for split in pieces.values()])
    embedded = dict(zip(pieces, np.split(reply, ends[:-1]), strict=True))
    with lock:
        # What was forgotten while the model computed is gone from the text, and its vector must not stay behind.
        now = text_of(part) if vectors.outdated else texts
        kept = [i for i in todo if now[i] == texts[i]]
        vectors.put([(positions[i], text_hash(texts[i]), embedded[texts[i]]) for i in kept])
        save(vectors)
    return 0
