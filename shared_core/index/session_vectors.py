"""The vectors of one session in memory, in one vector space: read from the store, never computed twice."""

import hashlib
from collections.abc import Sequence
from itertools import islice

import numpy as np
import numpy.typing as npt

from shared_core.base import Vectors
from shared_core.index.arrays import Arrays, digest_of, pack, stored_snapshot
from shared_core.index.session_index import SessionIndex
from shared_core.index.vectors import FaissVectorIndex
from shared_core.records import Position, Snapshot, VectorRows
from shared_core.store import Store

__all__ = ["SessionVectors"]

PART = 16_384
"""Vectors in one part of a snapshot, and the rest of those of the last one's row. Only the last part is written again
when some are added, so that saving takes as long as what is new; and a part of vectors of usual length is small enough
to be kept, and read, in one piece."""

PAGE = 5_000
"""Vectors read from the store at a time."""

Mask = npt.NDArray[np.bool_]


class SessionVectors:
    """The dense half of a session's index.

    `damaged` says that its snapshot could not be read, and that it was made from the stored vectors.

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
        self.damaged = False
        self._mend = False
        self._parts: list[str] = []
        self._ends: list[int] = []
        self._new: list[tuple[Position, str, bytes]] = []
        self._unsaved: list[tuple[Position, str, bytes]] = []
        self._claimed: set[int] = set()
        self.vectors = FaissVectorIndex(dimension)

    @property
    def _store(self) -> Store:
        return self.index.store

    def refresh(self) -> None:
        """Load what the store holds, once for each epoch; call it after the rows have been refreshed."""
        if self._epoch == self.index.epoch:
            return
        self._begin_anew()
        self._epoch = self.index.epoch
        self._mend = False
        self._load_snapshot()
        if not self._parts:
            every = iter(self._store.vectors(self.index.session, self.space))
            while page := list(islice(every, PAGE)):
                self._take([(position, data) for position, _, data in page])
            return
        # What came after the snapshot is read now; who asks first would adopt it in small batches.
        newer = np.arange(int(self.vectors.owners.max(initial=-1)) + 1, len(self.index))
        for start in range(0, len(newer), PAGE):
            positions = self.index.positions(newer[start : start + PAGE])
            stored = self._store.vectors(self.index.session, self.space, positions)
            self._take([(position, data) for position, _, data in stored])

    def missing(self, wanted: Mask) -> npt.NDArray[np.int64]:
        """Return which of the rows wanted have no vector here, newest first."""
        return np.flatnonzero(np.greater(wanted, self.vectors.has(len(wanted))))[::-1]

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
        valid = {position: data for position, text, data in stored if text == hash_of[position]}
        others = self._store.vectors(session, self.space, hashes=set(hashes)) if len(valid) < len(positions) else ()
        equal = {text: data for _, text, data in others}
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
        self._take([(position, data) for position, _, data in encoded])

    def save(self) -> None:
        """Store what is kept only here; it stays here if that raises StoreError.

        What is new has to be stored while its texts are known to be those that the store holds.
        """
        if self._unsaved and self.outdated:
            self._unsaved = []  # a text may have lost a part since, and its vector must not come back
        self._unsaved += self._new
        self._new = []
        if self._unsaved:
            self._store.keep(self.index.session, VectorRows(self.space, self._unsaved))
            self._unsaved = []

    def _take(self, found: Sequence[tuple[Position, bytes]]) -> None:
        rows = self.index.rows_at([position for position, _ in found])
        # Who asks at the same moment may have embedded the same rows: the first vector stays, a row has only one.
        there = self.vectors.has(len(self.index))
        new = [(row, data) for row, (_, data) in zip(rows.tolist(), found, strict=True) if row >= 0 and not there[row]]
        if new:
            pieces = [len(data) // (2 * self.dimension) for _, data in new]
            vectors = decode_vectors(b"".join(data for _, data in new), self.dimension)
            self.vectors.add(np.repeat([row for row, _ in new], pieces), vectors)

    def due(self, least: int) -> bool:
        """Return whether it is worth a snapshot: with so many new vectors."""
        return self._mend or len(self.vectors) - self.saved >= least

    def save_snapshot(self) -> None:
        """Keep the vectors in the store in the form they are searched in."""
        self.save()
        if self._ends and not self._full():
            del self._parts[-1], self._ends[-1]
        while (start := self._ends[-1] if self._ends else 0) < len(self.vectors):
            number, end = len(self._parts), self._end_of_row(start + PART)
            arrays: Arrays = {"owners": self.vectors.owners[start:end], "matrix": self.vectors.matrix(start, end)}
            data = pack(self._about(number), arrays)
            if not self._store.keep(self.index.session, Snapshot(self._name(number), data), self._epoch):
                return
            self._parts.append(digest_of(data))
            self._ends.append(end)
            self.saved = end
        self._mend = False

    def _load_snapshot(self) -> None:
        """Take the parts that follow one another; another process may have written others over some."""
        while not self._ends or self._full():
            number = len(self._parts)
            found = stored_snapshot(self._store, self.index.session, self._name(number))
            if found.damaged:
                self._begin_anew()
                self.damaged = self._mend = True
                return
            if found.about != self._about(number):
                return
            owners, matrix = found.arrays["owners"], found.arrays["matrix"]
            if owners.max(initial=-1) >= len(self.index):
                return  # another process knows rows that have not been read here
            if len(owners) >= PART:
                self.vectors.expect(len(self.index))
            self.vectors.add(owners, matrix)
            self._parts.append(found.digest)
            self.saved += len(owners)
            self._ends.append(self.saved)

    def _begin_anew(self) -> None:
        self.vectors = FaissVectorIndex(self.dimension)
        self._parts, self._ends, self.saved = [], [], 0

    def _full(self) -> bool:
        """Return whether the last part is done with."""
        return self._ends[-1] - (self._ends[-2] if len(self._ends) > 1 else 0) >= PART

    def _end_of_row(self, number: int) -> int:
        """Return how many vectors there are up to the end of a row: one row's stay in one part."""
        owners = self.vectors.owners
        end = min(number, len(owners))
        while end < len(owners) and owners[end] == owners[end - 1]:
            end += 1
        return end

    def _about(self, number: int) -> dict[str, object]:
        after = self._parts[number - 1] if number else ""
        return {"epoch": self._epoch, "dimension": self.dimension, "part": number, "after": after}

    def _name(self, number: int) -> str:
        return f"vectors/{self.space}" + (f"/{number}" if number else "")


def text_hash(text: str) -> str:
    """Return 128 bits, in hex, that stand for an embedded text."""
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


def encode_vector(pieces: Vectors) -> bytes:
    """Return the vectors of a text's pieces as a store keeps them: half precision, one after the other."""
    return pieces.astype("<f2").tobytes()


def decode_vectors(data: bytes, dimension: int) -> npt.NDArray[np.float16]:
    """Return what `encode_vector` was given, in its precision, of one or more texts; shape (pieces, dimension)."""
    return np.frombuffer(data, dtype="<f2").reshape(-1, dimension)
