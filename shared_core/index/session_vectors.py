"""The vectors of one session in memory, in one vector space: read from the store, never computed twice."""

import hashlib
from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

from shared_core.base import Store, Vectors
from shared_core.index.session_index import SessionIndex
from shared_core.index.snapshot import Arrays, pack, unpack
from shared_core.index.vector_index import FaissVectorIndex, VectorIndex
from shared_core.records import Position

__all__ = ["SessionVectors"]

Mask = npt.NDArray[np.bool_]


class SessionVectors:
    """The dense half of a session's index.

    Args:
        index: the session's rows.
        space: the vectors' name in the store.
        dimension: numbers per vector.
    """

    def __init__(self, index: SessionIndex, space: str, dimension: int) -> None:
        self.index = index
        self.space = space
        self.dimension = dimension
        self._epoch = -1
        self.saved = 0
        self._new: list[tuple[Position, str, bytes]] = []
        self._unsaved: list[tuple[Position, str, bytes]] = []
        self._claimed: set[int] = set()
        self.vectors: VectorIndex = FaissVectorIndex(dimension)

    @property
    def _store(self) -> Store:
        return self.index.store

    def refresh(self) -> None:
        """Load what the store holds, once for each epoch; call it after the rows have been refreshed."""
        if self._epoch == self.index.epoch:
            return
        self.vectors = FaissVectorIndex(self.dimension)
        self._epoch = self.index.epoch
        if not self._load_snapshot():
            stored = self._store.all_vectors(self.index.session, self.space)
            self._take((position, data) for position, _, data in stored)

    def missing(self, wanted: Mask) -> npt.NDArray[np.int64]:
        """Return which of the rows wanted have no vector here, newest first."""
        return np.flatnonzero(wanted & ~self.vectors.has(len(wanted)))[::-1]

    @property
    def outdated(self) -> bool:
        """Whether something was forgotten since these were loaded."""
        return self._store.state(self.index.session).epoch != self._epoch

    def claim(self, rows: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Return those of the rows that nobody is at, and be at them until `release`."""
        free = np.array([row for row in rows.tolist() if row not in self._claimed], dtype=np.int64)
        self._claimed.update(free.tolist())
        return free

    def release(self, rows: npt.NDArray[np.int64]) -> None:
        """Be done with rows."""
        self._claimed.difference_update(rows.tolist())

    def adopt(self, positions: Sequence[Position], hashes: Sequence[str]) -> list[int]:
        """Take vectors that exist already, of these messages or of equal texts; return the indices still to embed.

        Those of equal texts are copied, and stored with `save`.

        Args:
            positions: messages without a vector here.
            hashes: what `text_hash` says of their texts.
        """
        session = self.index.session
        stored = self._store.vectors(session, self.space, positions)
        hash_of = dict(zip(positions, hashes, strict=True))
        valid = {position: data for position, (text, data) in stored.items() if text == hash_of[position]}
        equal = self._store.vectors_of(session, self.space, set(hashes)) if len(valid) < len(positions) else {}
        copies = [
            (position, text, equal[text])
            for position, text in hash_of.items()
            if position not in valid and text in equal
        ]
        self._new += copies
        self._take([*valid.items(), *((position, data) for position, _, data in copies)])
        done = set(valid) | {position for position, _, _ in copies}
        return [i for i, position in enumerate(positions) if position not in done]

    def put(self, rows: Sequence[tuple[Position, str, Vectors]]) -> None:
        """Keep new vectors, (message, hash of its text, its pieces' vectors), here, and with `save` in the store."""
        encoded = [(position, text, encode_vector(pieces)) for position, text, pieces in rows]
        self._new += encoded
        # The vectors searched are always those read back from half precision, so that a reopened store ranks alike.
        self._take((position, data) for position, _, data in encoded)

    def save(self) -> None:
        """Store what is kept only here; it stays here if that raises StoreError.

        What is new has to be stored while its texts are known to be those that the store holds.
        """
        if self._unsaved and self.outdated:
            self._unsaved = []  # a text may have lost a part since, and its vector must not come back
        self._unsaved += self._new
        self._new = []
        if self._unsaved:
            self._store.put_vectors(self.index.session, self.space, self._unsaved)
            self._unsaved = []

    def _take(self, found: Iterable[tuple[Position, bytes]]) -> None:
        found = list(found)
        rows = self.index.rows_at([position for position, _ in found])
        parts = [decode_vector(data, self.dimension) for _, data in found]
        # Who asks at the same moment may have embedded the same rows: the first vector stays, a row has only one.
        there = self.vectors.has(len(self.index))
        known = [(row, part) for row, part in zip(rows.tolist(), parts, strict=True) if row >= 0 and not there[row]]
        if known:
            owners = np.repeat([row for row, _ in known], [len(part) for _, part in known])
            self.vectors.add(owners, np.concatenate([part for _, part in known]))

    def save_snapshot(self) -> None:
        """Keep the vectors in the store in the form they are searched in."""
        self.save()
        arrays: Arrays = {"owners": self.vectors.owners, "matrix": self.vectors.matrix()}
        data = pack({"epoch": self._epoch, "dimension": self.dimension}, arrays)
        if self._store.put_snapshot(self.index.session, self._snapshot, self._epoch, data):
            self.saved = len(self.vectors)

    def _load_snapshot(self) -> bool:
        data = self._store.snapshot(self.index.session, self._snapshot)
        unpacked = unpack(data) if data else None
        if unpacked is None or unpacked[0] != {"epoch": self._epoch, "dimension": self.dimension}:
            return False
        owners, matrix = unpacked[1]["owners"], unpacked[1]["matrix"]
        if owners.max(initial=-1) >= len(self.index):
            return False  # another process knows rows that have not been read here
        self.vectors.add(owners, matrix.astype(np.float32))
        self.saved = len(self.vectors)
        return True

    @property
    def _snapshot(self) -> str:
        return f"vectors/{self.space}"


def text_hash(text: str) -> str:
    """Return 128 bits, in hex, that stand for an embedded text."""
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


def encode_vector(pieces: Vectors) -> bytes:
    """Return the vectors of a text's pieces as a store keeps them: half precision, one after the other."""
    return pieces.astype("<f2").tobytes()


def decode_vector(data: bytes, dimension: int) -> Vectors:
    """Return what `encode_vector` was given, up to its precision; shape (pieces, dimension)."""
    pieces: Vectors = np.frombuffer(data, dtype="<f2").reshape(-1, dimension).astype(np.float32)
    return pieces
