"""Shared by the tests of a session's index: refresh it from the store, and embed."""

import threading
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from shared_core.index.session import SessionIndex
from shared_core.index.session_vectors import SessionVectors
from shared_core.plugins.base import Embedder
from shared_core.plugins.calls import Steps, run_steps
from shared_core.recall.backlog import embed_rows
from shared_core.records import Position
from shared_core.session.paths import Path as TreePath
from shared_core.session.paths import walk
from shared_core.testing.oracle import Session

__all__ = ["embed_steps", "fill", "path_to", "refreshed", "texts_of", "vectors_of"]


def refreshed(session: Session, index: SessionIndex | None = None) -> SessionIndex:
    """Catch up with the store."""
    index = SessionIndex(session.store, session.key) if index is None else index
    state = session.store.state(session.key)
    if not index.refresh(state):
        index = SessionIndex(session.store, session.key)
        assert index.refresh(state)
    return index


def path_to(session: Session, head: Position) -> TreePath:
    return walk(head, lambda segment: session.store.segment(session.key, segment))


def vectors_of(session: Session, index: SessionIndex | None = None, dimension: int = 8) -> SessionVectors:
    vectors = SessionVectors(refreshed(session) if index is None else index, "space", dimension)
    vectors.refresh()
    return vectors


def fill(vectors: SessionVectors, embedder: Embedder, rows: Sequence[int] | None = None) -> None:
    """Embed rows; as texts stand the ids of messages, without their first letter, so that some are equal."""
    wanted = range(len(vectors.session_index)) if rows is None else rows
    for start in range(0, len(wanted), 3):
        run_steps(embed_steps(vectors, embedder, wanted[start : start + 3]))
        vectors.save()


def embed_steps(vectors: SessionVectors, embedder: Embedder, rows: Sequence[int]) -> Steps[int]:
    return embed_rows(vectors, np.array(rows, np.int64), embedder, texts_of(vectors), lock=threading.RLock())


def texts_of(vectors: SessionVectors) -> Callable[[npt.NDArray[np.int64]], list[str]]:
    def texts(rows: npt.NDArray[np.int64]) -> list[str]:
        positions = vectors.session_index.positions(rows)
        records = {
            record.position: record
            for record in vectors.session_index.store.get(vectors.session_index.session, positions)
        }
        return [str(records[position].message.id)[1:] if position in records else "" for position in positions]

    return texts
