"""The vectors of one session in one vector space, in memory. They are read from the store, never computed twice."""

import hashlib
import os
import re
from collections.abc import Sequence
from itertools import islice
from typing import NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt

from shared_core.index.arrays import Arrays, pack, read_snapshot
from shared_core.index.lines import Line
from shared_core.index.session import SNAPSHOT_ROWS, SessionIndex
from shared_core.index.vectors import VectorIndex
from shared_core.plugins.base import Vectors
from shared_core.records import Position, Snapshot, VectorRow, VectorRows
from shared_core.store import Store

PART = 16_384
"""Rows per part of a snapshot. Only parts with new vectors are written again, so that the time to save depends on what
is new. A part of vectors of usual length is small enough to be stored and read in one piece."""

SPACE_BYTES = 5_000
"""What an index of vectors takes besides these: its objects, and those of FAISS."""

PAGE = 5_000
"""Vectors read from the store at a time."""

Mask = npt.NDArray[np.bool_]


class Shortened(NamedTuple):
    """A long text of whose `whole` pieces `kept` were embedded."""

    kept: int
    whole: int


class SessionVectors:
    """The dense half of a session's index. Several threads may use it; what changes does so under the index's lock.

    `shortened` lists long texts of which not all was embedded here.

    Attributes:
        epoch: the session's when the vectors were loaded or last followed.
        saved: how many vectors each part of the stored snapshot has.

    Args:
        session_index: the session's rows.
        space: the vectors' name in the store.
        dimension: numbers per vector.
    """

    def __init__(self, session_index: SessionIndex, space: str, dimension: int) -> None:
        self.session_index = session_index
        self.space = space
        self.dimension = dimension
        self.epoch = session_index.epoch
        self.saved: list[int] = []
        self._unsaved: list[VectorRow] = []
        self.shortened: list[Shortened] = []
        self._claimed: set[int] = set()
        self._pid = os.getpid()
        self.vectors = VectorIndex(dimension)
        self._samples: WeakKeyDictionary[Line, tuple[Mask, int, tuple[float, float] | None]] = WeakKeyDictionary()

    @property
    def _store(self) -> Store:
        return self.session_index.store

    @property
    def nbytes(self) -> int:
        """About how many bytes they take in memory: half precision, with a twentieth for the codes of many."""
        return SPACE_BYTES + (2 * self.dimension * 21 // 20 + 20) * len(self.vectors)

    def refresh(self) -> None:
        """Load the stored vectors. Call this once, after the rows have been refreshed."""
        if not len(self.session_index.gone):  # else the rows of a snapshot are others
            self._load_snapshot()
        if not self.saved:
            every = iter(self._store.vectors(self.session_index.session, self.space))
            while page := list(islice(every, PAGE)):
                self.take([(position, data) for position, _, data in page])
            return
        # Read vectors newer than the snapshot at once. The next search would adopt them in small batches.
        newer = np.arange(int(self.vectors.owners.max(initial=-1)) + 1, len(self.session_index))
        for start in range(0, len(newer), PAGE):
            positions = self.session_index.positions(newer[start : start + PAGE])
            stored = self._store.vectors(self.session_index.session, self.space, positions)
            self.take([(position, data) for position, _, data in stored])

    def drop_forgotten(self) -> bool:
        """Take out what is not stored yet of messages that were forgotten. False: all have to be read anew.

        The vector of a message that was forgotten is not found any more, as its row is on no line. One that stands for
        several messages may have lost one of them.
        """
        with self.session_index.lock:
            if self.epoch != self.session_index.epoch:
                if "#" in self.space:
                    return False
                self._unsaved = self._left(self._unsaved)
                self.epoch = self.session_index.epoch
            return True

    def _left(self, rows: Sequence[VectorRow]) -> list[VectorRow]:
        """Return the vectors of messages that have not been forgotten."""
        there = self.session_index.rows_at([position for position, _, _ in rows]) >= 0
        return [row for row, is_there in zip(rows, there.tolist(), strict=True) if is_there]

    def missing(self, wanted: Mask) -> npt.NDArray[np.int64]:
        """Return which of the rows wanted have no vector here, newest first."""
        lacking = self.vectors.lacking(len(wanted))
        return lacking[wanted[lacking]][::-1].astype(np.int64)

    def unrelated(self, line: Line, wanted: Mask, *, least: int) -> tuple[float, float] | None:
        """Return `VectorIndex.unrelated` of some messages at the beginning of a line, kept until one of them changes.

        Args:
            line: the line.
            wanted: which of its first messages are meant, by index.
            least: how many of them must have a vector; otherwise, the result is None.
        """
        count = len(self.vectors)
        before, known, found = self._samples.get(line, (None, 0, None))
        new = line.indices(self.vectors.owners[known:])
        if before is None or not np.array_equal(before, wanted) or np.any((new >= 0) & (new < len(wanted))):
            before, found = wanted.copy(), self.vectors.unrelated(line.rows[: len(wanted)][wanted], least=least)
        self._samples[line] = before, count, found
        return found

    def claim(self, rows: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Return the rows that no other caller has claimed, and claim them until `release`."""
        if self._pid != os.getpid():  # the callers who claimed rows are threads, which a fork does not copy
            self._claimed, self._pid = set(), os.getpid()
        with self.session_index.lock:
            free = np.array([row for row in rows.tolist() if row not in self._claimed], dtype=np.int64)
            self._claimed.update(free.tolist())
            return free

    def release(self, rows: npt.NDArray[np.int64]) -> None:
        """Release claimed rows."""
        with self.session_index.lock:
            self._claimed.difference_update(rows.tolist())

    def adopt(self, positions: Sequence[Position], hashes: Sequence[str], *, ask: bool = True) -> list[int]:
        """Take existing vectors of these messages or of equal texts; return the indices that still need one.

        Vectors of equal texts are copied; `save` stores the copies.

        Args:
            positions: messages; those that got a vector here meanwhile need none.
            hashes: the `text_hash` of each.
            ask: whether to ask the store; otherwise, only vectors that were made here and are not stored yet are taken.
        """
        there = self.vectors.has(self.session_index.rows_at(positions))
        lacking = {position for position, has in zip(positions, there.tolist(), strict=True) if not has}
        hash_of = {position: text for position, text in zip(positions, hashes, strict=True) if position in lacking}
        known: Sequence[VectorRow] = list(self._unsaved)
        if ask and hash_of:
            known = self.session_index.known_vectors(self.space, hash_of)
        valid = {position: data for position, text, data in known if hash_of.get(position) == text}
        equal = {text: data for _, text, data in known}
        copies = [
            (position, text, equal[text])
            for position, text in hash_of.items()
            if position not in valid and text in equal
        ]
        with self.session_index.lock:
            copies = self._left(copies)
            self._unsaved += copies
            self.take([*valid.items(), *((position, data) for position, _, data in copies)])
        lacking -= {*valid, *(position for position, _, _ in copies)}
        return [i for i, position in enumerate(positions) if position in lacking]

    def put(self, rows: Sequence[tuple[Position, str, Vectors]]) -> None:
        """Add new vectors: (message, hash of its text, vectors of its pieces). `save` stores them."""
        with self.session_index.lock:
            new = self._left([(position, text, encode_vector(pieces)) for position, text, pieces in rows])
            self._unsaved += new
            # Search the vectors as decoded from half precision, so that a reopened store ranks the same.
            self.take([(position, data) for position, _, data in new])

    def save(self) -> None:
        """Store new vectors, in one call. If this raises StoreError, they stay here and the next call tries again.

        If something was forgotten since their messages were read, only those of what is left are stored, or none if
        they may stand for what is forgotten, too.
        """
        while (rows := self.unsaved) is not None:
            if self.session_index.keep_vectors(rows, self.epoch):
                self.note_saved(rows)
            elif not self._follow():
                return

    def _follow(self) -> bool:
        """Take out what was forgotten since the vectors were loaded or last followed; False if nothing was."""
        state = self.session_index.state()
        if state.epoch == self.epoch:
            return False
        if not (self.session_index.drop_forgotten(state) and self.drop_forgotten()):
            with self.session_index.lock:
                self._unsaved = []
        return True

    @property
    def unsaved(self) -> VectorRows | None:
        """The new vectors, which are not stored yet; None if there are none."""
        with self.session_index.lock:
            return VectorRows(self.space, tuple(self._unsaved)) if self._unsaved else None

    def note_saved(self, rows: VectorRows) -> None:
        """Note that what `unsaved` returned is stored."""
        stored = set(map(id, rows.rows))
        with self.session_index.lock:
            self._unsaved = [row for row in self._unsaved if id(row) not in stored]

    def take(self, found: Sequence[tuple[Position, bytes]]) -> None:
        """Add the stored vectors of some messages, as far as these are here and have none."""
        self.session_index.damaged |= not all(data for _, data in found)
        found = [one for one in found if one[1]]
        rows = self.session_index.rows_at([position for position, _ in found])
        # A concurrent caller may have embedded the same rows. The first vector stays, as a row has only one.
        wanted = (rows >= 0) & ~self.vectors.has(rows)
        new = [(int(rows[number]), found[number][1]) for number in np.flatnonzero(wanted)]
        if new:
            pieces = [len(data) // (2 * self.dimension) for _, data in new]
            vectors = decode_vectors(b"".join(data for _, data in new), self.dimension)
            self.vectors.add(np.repeat([row for row, _ in new], pieces), vectors)

    def snapshot_due(self, least: int = SNAPSHOT_ROWS) -> bool:
        """Return whether to save a snapshot: so many vectors are new."""
        return len(self.vectors) - sum(self.saved) >= least

    def save_snapshot(self) -> None:
        """Store the vectors in the form in which they are searched, without the parts that are stored as they are."""
        self.save()
        with self.session_index.lock:
            epoch = self.epoch
            if not self.session_index.may_be_saved:
                return  # forgotten since it was due: what is packed now would hold it
        part_of = self.vectors.owners // PART
        for number, size in enumerate(np.bincount(part_of).tolist()):
            if self.saved[number : number + 1] == [size]:
                continue
            own = np.flatnonzero(part_of == number)
            arrays: Arrays = {"owners": self.vectors.owners[own], "matrix": self.vectors.matrix(own)}
            data = pack({"epoch": epoch, "dimension": self.dimension}, arrays)
            if not self._store.keep(self.session_index.session, Snapshot(self._name(number), data), epoch):
                return
            self.saved[number : number + 1] = [size]

    def _load_snapshot(self) -> None:
        """Load the parts up to one that is not there, or of rows that are not loaded here."""
        about = {"epoch": self.epoch, "dimension": self.dimension}
        for number in range(-(-len(self.session_index) // PART)):
            found = read_snapshot(self._store, self.session_index.session, self._name(number))
            if found.damaged:
                self.vectors, self.saved = VectorIndex(self.dimension), []
                self.session_index.damaged = self.session_index.needs_rewrite = True
                return
            if found.about != about or found.arrays["owners"].max(initial=0) >= len(self.session_index):
                return
            self.vectors.add(found.arrays["owners"], found.arrays["matrix"])
            self.saved.append(len(found.arrays["owners"]))

    def _name(self, number: int) -> str:
        return f"vectors/{self.space}" + (f"/{number}" if number else "")


def vectors_in(rows: SessionIndex, space: str, dimension: int) -> SessionVectors:
    """Return the vectors of an index in a space. They are read before others see them."""
    found: SessionVectors | None = rows.vectors.get(space)
    while found is None:
        read = SessionVectors(rows, space, dimension)
        read.refresh()
        with rows.lock:  # another thread may have read them, or followed a forgetting
            if space not in rows.vectors and read.drop_forgotten():
                rows.vectors[space] = read
            found = rows.vectors.get(space)
    return found


def embedder_key(space: str) -> str:
    """Return the `Fingerprint.key` in the name of a space: up to the dimension, as a model's name may contain `#`."""
    found = re.fullmatch(r"(.+/\d+)(?:#.*)?", space, re.DOTALL)
    return found[1] if found else space


def text_hash(text: str) -> str:
    """Return a 128-bit hash of an embedded text, in hex."""
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


def encode_vector(pieces: Vectors) -> bytes:
    """Return the vectors of a text's pieces as stored: in half precision, one after the other."""
    return pieces.astype("<f2").tobytes()


def decode_vectors(data: bytes, dimension: int) -> npt.NDArray[np.float16]:
    """Return the vectors encoded by `encode_vector` for one or more texts, shape (pieces, dimension)."""
    return np.frombuffer(data, dtype="<f2").reshape(-1, dimension)
