"""Nearest vectors by cosine: the interface, the exact oracle, and the FAISS index that recall uses."""

import weakref
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt
from typing_extensions import override

from shared_core.base import Vectors
from shared_core.index.arrays import Growing
from shared_core.lifecycle import Background, Work

__all__ = [
    "BLOCK",
    "SHORTLIST_FROM",
    "ExactVectorIndex",
    "FaissVectorIndex",
    "HalfBlocks",
    "ShortCodes",
    "VectorIndex",
    "alone",
    "dot",
    "widened",
]

Half = npt.NDArray[np.float16]
Ints = npt.NDArray[np.int32]
Mask = npt.NDArray[np.bool_]
Numbers = npt.NDArray[np.int64]

SPARE = 16
"""Vectors fetched beyond those asked for: enough to see, most times, that no equal one was left out."""


class VectorIndex(ABC):
    """Vectors of rows; a row may have several, one for each piece of a long text, and scores by the best of them.

    Args:
        dimension: numbers per vector.
    """

    def __init__(self, dimension: int) -> None:
        self.dimension = dimension
        self._owners: Growing[np.int32] = Growing(np.int32)
        self._first: Growing[np.int32] = Growing(np.int32)
        self._pieces: Growing[np.int32] = Growing(np.int32)
        self._has: Growing[np.bool_] = Growing(np.bool_)
        self._several: Growing[np.int32] = Growing(np.int32)

    def __len__(self) -> int:
        """Return how many vectors there are."""
        return len(self._owners)

    @property
    def owners(self) -> Ints:
        """The row of each vector."""
        return self._owners.values

    def add(self, rows: npt.ArrayLike, vectors: Vectors | Half) -> None:
        """Add unit vectors, shape (n, dimension), and the rows they belong to, shape (n,).

        All vectors of one row come in one call, one after the other.
        """
        start = len(self)
        self._keep(np.ascontiguousarray(vectors, dtype=np.float16))
        self._owners.extend(rows)
        first = np.flatnonzero(np.diff(self.owners[start:], prepend=-1))
        owners, pieces = self.owners[start:][first], np.diff(first, append=len(self) - start)
        if len(owners):
            unknown = max(0, int(owners.max()) + 1 - len(self._first))
            self._first.extend(np.zeros(unknown, dtype=np.int32))
            self._pieces.extend(np.zeros(unknown, dtype=np.int32))
            self._has.extend(np.zeros(unknown, dtype=np.bool_))
            self._first.values[owners] = start + first
            self._pieces.values[owners] = pieces
            self._has.values[owners] = True
            self._several.extend(owners[pieces > 1])

    def has(self, count: int) -> Mask:
        """Return which of the rows 0 to count - 1 have a vector, shape (count,); nobody may write into it."""
        if count <= len(self._has):
            return self._has.values[:count]
        mask = np.zeros(count, dtype=np.bool_)
        mask[: len(self._has)] = self._has.values
        return mask

    def search(self, query: Vectors, top_k: int, allowed: Mask | None = None) -> tuple[Ints, Vectors]:
        """Return the rows nearest to a question and their cosines, best first; of equals the newer row first.

        Args:
            query: unit vector, shape (dimension,).
            top_k: how many rows at most.
            allowed: which rows may be returned, shape (rows,); decided before the search, not after. None: all.
        """
        found = len(self) - self._left_out(allowed)
        ask = min(top_k + SPARE, found) if top_k else 0
        while True:
            rows, cosines = self._best_per_row(query, ask, allowed)
            # Several vectors of one row may crowd out others, and an equal row beyond the last one fetched may be
            # newer: ask for more until neither can be.
            if ask in (0, found) or (len(rows) > top_k and cosines[-1] < cosines[top_k - 1]):
                return rows[:top_k], cosines[:top_k]
            ask = min(4 * ask, found)

    def _left_out(self, allowed: Mask | None) -> int:
        """Return how many vectors belong to rows that may not be returned."""
        if allowed is None:
            return 0
        has = self._has.values
        rows = np.count_nonzero(np.greater(has, allowed[: len(has)]))
        several = self._several.values[~allowed[self._several.values]]
        return int(rows + (self._pieces.values[several] - 1).sum())

    def _best_per_row(self, query: Vectors, ask: int, allowed: Mask | None) -> tuple[Ints, Vectors]:
        numbers, cosines = self._nearest(query, ask, allowed) if ask else (np.empty(0, np.int64), np.empty(0))
        owners = self.owners[numbers]
        order = np.lexsort((-owners, -cosines))
        _, first = np.unique(owners[order], return_index=True)
        chosen = order[np.sort(first)]
        return owners[chosen], cosines[chosen].astype(np.float32)

    def cosines(self, query: Vectors, rows: Ints) -> Vectors:
        """Return the cosine of each row with a question, NaN for rows without a vector; shape (len(rows),)."""
        result = np.full(len(rows), np.nan, dtype=np.float32)
        known = np.flatnonzero(self.has(int(rows.max(initial=-1)) + 1)[rows])
        if len(known):
            pieces = self._pieces.values[rows[known]]
            slots = np.repeat(known, pieces)
            # The vectors of a row stand one after the other: its first, and so many more.
            numbers = np.repeat(self._first.values[rows[known]] - np.cumsum(pieces) + pieces, pieces)
            numbers = numbers + np.arange(len(numbers))
            cosines = dot(self._vectors(numbers.astype(np.int64)), query)
            if len(slots) == len(known):
                result[known] = cosines
            else:
                np.fmax.at(result, slots, cosines)
        return result

    @abstractmethod
    def _keep(self, vectors: Half) -> None:
        """Append vectors."""

    @abstractmethod
    def _nearest(self, query: Vectors, top_k: int, allowed: Mask | None) -> tuple[npt.NDArray[np.int64], Vectors]:
        """Return the numbers and cosines of the `top_k` nearest vectors of the allowed rows; that many exist."""

    @abstractmethod
    def _vectors(self, numbers: npt.NDArray[np.int64]) -> Vectors:
        """Return some vectors, shape (len(numbers), dimension)."""

    @abstractmethod
    def matrix(self, start: int = 0, stop: int | None = None) -> Half:
        """Return vectors by their numbers, all by default, shape (n, dimension), for a snapshot."""


def dot(vectors: Vectors, query: Vectors) -> Vectors:
    """Return the dot product of each row; unlike with `@`, equal rows have equal products, to the last bit."""
    products: Vectors = np.einsum("ij,j->i", vectors, query)
    return products


class ExactVectorIndex(VectorIndex):
    """Plain NumPy over all vectors: what every other index has to agree with."""

    def __init__(self, dimension: int) -> None:
        super().__init__(dimension)
        self._flat: Growing[np.float16] = Growing(np.float16)

    @override
    def _keep(self, vectors: Half) -> None:
        self._flat.extend(vectors.ravel())

    @override
    def matrix(self, start: int = 0, stop: int | None = None) -> Half:
        return self._flat.values.reshape(-1, self.dimension)[start:stop]

    @override
    def _vectors(self, numbers: npt.NDArray[np.int64]) -> Vectors:
        return self.matrix()[numbers].astype(np.float32)

    @override
    def _nearest(self, query: Vectors, top_k: int, allowed: Mask | None) -> tuple[npt.NDArray[np.int64], Vectors]:
        numbers = np.arange(len(self)) if allowed is None else np.flatnonzero(allowed[self.owners])
        cosines = dot(self._vectors(numbers), query)
        best = np.argsort(-cosines, kind="stable")[:top_k]
        return numbers[best], cosines[best]


BLOCK = 65_536
"""Vectors kept in one piece of memory: adding copies no more than this."""

CHUNK = 8_192
"""Vectors that are coded at a time."""

LONG = 256
"""Numbers of a vector from which on half a byte for four of them is enough; of a shorter one, it stands for two."""

SAMPLE = 16_384
"""Vectors that the centroids are made from: 1,000 for each; four times as many find the same."""

HALF_BITS = np.uint32(0x8FFF_E000).view(np.int32)
"""Where sign, exponent and fraction of half precision stand in single precision."""

HALF_SCALE = np.float32(2.0**112)
"""By how much single precision takes an exponent of half precision as too small."""


@contextmanager
def alone() -> Iterator[Any]:
    """Give FAISS, held to this thread.

    One question has nothing to share out: waking OpenMP's other threads would cost more than the search, on a busy
    machine a hundred times more, and a forked process that has lost them would wait for ever. The setting is a
    thread's own.
    """
    import faiss

    threads = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(1)
    try:
        yield faiss
    finally:
        faiss.omp_set_num_threads(threads)


class HalfBlocks:
    """All vectors in half precision, searched exactly: half the memory, and no loss that recall could show.

    One thread may add while another reads what was there before.

    Attributes:
        expected: how many vectors there will be at least: room for them is made at once, in whole blocks.

    Args:
        dimension: numbers per vector.
    """

    def __init__(self, dimension: int) -> None:
        self.dimension = dimension
        self.expected = 0
        self._size = 0
        self._blocks: list[Any] = []

    def __len__(self) -> int:
        return self._size

    def add(self, vectors: Half) -> None:
        """Append vectors, shape (n, dimension)."""
        taken = 0
        while taken < len(vectors):
            start = self._size % BLOCK
            part = vectors[taken : taken + BLOCK - start]
            end = start + len(part)
            if start == 0:
                self._blocks.append(self._new_block(min(max(len(part), self.expected - self._size), BLOCK)))
            elif self._blocks[-1].codes.size() < end * 2 * self.dimension:
                self._blocks[-1] = self._grown(self._blocks[-1], start, end)
            _view(self._blocks[-1])[start:end] = part
            self._blocks[-1].ntotal = end
            self._size += len(part)
            taken += len(part)

    def _new_block(self, room: int) -> Any:
        with alone() as faiss:
            kind = faiss.ScalarQuantizer.QT_fp16
            block = faiss.IndexScalarQuantizer(self.dimension, kind, faiss.METRIC_INNER_PRODUCT)
            block.codes.resize(room * 2 * self.dimension)
        return block

    def _grown(self, block: Any, size: int, needed: int) -> Any:
        """Return a larger block with the same vectors; whoever reads the old one still holds it."""
        grown = self._new_block(min(max(2 * size, needed), BLOCK))
        _view(grown)[:size] = _view(block)[:size]
        return grown

    def between(self, start: int, stop: int) -> Half:
        """Return a copy of the vectors from one number up to another, shape (stop - start, dimension)."""
        pieces = [np.empty((0, self.dimension), dtype=np.float16)]
        for number in range(start // BLOCK, -(-stop // BLOCK)):
            first = number * BLOCK
            block = self._blocks[number]  # held, and copied: whoever adds may put a larger one in its place
            pieces.append(_view(block)[max(0, start - first) : stop - first].copy())
        return np.concatenate(pieces)

    def take(self, numbers: Numbers) -> Vectors:
        """Return some vectors, shape (len(numbers), dimension)."""
        halves = np.empty((len(numbers), self.dimension), dtype=np.float16)
        order = np.argsort(numbers, kind="stable")
        starts = np.arange(0, self._size, BLOCK)
        cuts = np.searchsorted(numbers[order], starts)[1:]
        # Whoever adds meanwhile may have begun another block.
        for block, start, here in zip(self._blocks, starts, np.split(order, cuts), strict=False):
            if len(here):
                halves[here] = _view(block)[numbers[here] - start]
        return widened(halves)

    def nearest(self, query: Vectors, top_k: int, allowed: Mask | None) -> tuple[Numbers, Vectors]:
        """Return the numbers and cosines of the nearest vectors of those allowed, best first."""
        found = [self._nearest_in(block, query, top_k, allowed) for block in range(len(self._blocks))]
        numbers, cosines = (np.concatenate(column) for column in zip(*found, strict=True))
        best = np.argsort(-cosines, kind="stable")[:top_k]
        return numbers[best], cosines[best]

    def _nearest_in(self, block: int, query: Vectors, top_k: int, allowed: Mask | None) -> tuple[Numbers, Vectors]:
        start = block * BLOCK
        here = allowed[start : start + BLOCK] if allowed is not None else None
        if here is not None and not here.any():
            return np.empty(0, dtype=np.int64), np.empty(0, dtype=np.float32)
        with alone() as faiss:
            parameters = None
            if here is not None and not here.all():
                bits = np.packbits(here, bitorder="little")
                parameters = faiss.SearchParameters(sel=faiss.IDSelectorBitmap(bits))
            index = self._blocks[block]
            cosines, numbers = index.search(query.reshape(1, -1), min(top_k, index.ntotal), params=parameters)
        there = numbers[0] >= 0
        return numbers[0][there] + start, cosines[0][there]


def _view(block: Any) -> Half:
    """Return what a block has room for, as an array: good as long as the block is held and not given more room."""
    import faiss

    view: Half = faiss.rev_swig_ptr(block.codes.data(), block.codes.size()).view(np.float16).reshape(-1, block.d)
    return view


class ShortCodes:
    """Half a byte, one of 16 centroids, for a few numbers of a vector each: what is near in truth is near in these.

    (Product quantisation: Jégou, Douze and Schmid 2011; in the order of André, Kermarrec and Le Scouarnec 2017.)

    Args:
        sample: vectors like those to come, shape (n, dimension); the same sample makes the same codes.
    """

    def __init__(self, sample: Vectors) -> None:
        together = 4 if sample.shape[1] >= LONG else 2
        self._padding = -sample.shape[1] % together
        dimension = sample.shape[1] + self._padding
        with alone() as faiss:
            self._index: Any = faiss.IndexPQFastScan(dimension, dimension // together, 4, faiss.METRIC_INNER_PRODUCT)
            self._index.pq.cp.max_points_per_centroid = SAMPLE
            self._index.train(self._padded(sample))

    def __len__(self) -> int:
        return int(self._index.ntotal)

    def _padded(self, vectors: Vectors) -> Vectors:
        return np.pad(vectors, ((0, 0), (0, self._padding))) if self._padding else np.ascontiguousarray(vectors)

    def add(self, vectors: Vectors) -> None:
        """Append the codes of vectors, shape (n, dimension)."""
        with alone():
            self._index.add(self._padded(vectors))

    def nearest(self, query: Vectors, count: int) -> Numbers:
        """Return the numbers of vectors whose codes are nearest, at most `count`, in order of number."""
        with alone():
            _, numbers = self._index.search(self._padded(query.reshape(1, -1)), count)
        found: Numbers = np.sort(numbers[0][numbers[0] >= 0])
        return found


def widened(halves: npt.NDArray[np.float16]) -> npt.NDArray[np.float32]:
    """Return finite numbers in single precision, to the last bit as `astype` does, in a quarter of its time (2.4)."""
    bits = halves.view(np.int16).astype(np.int32)
    bits <<= 13
    bits &= HALF_BITS
    values = bits.view(np.float32)
    values *= HALF_SCALE
    return values


SHORTLIST_FROM = 100_000
"""Vectors that may be returned from which on a shortlist pays.

Static vectors of 1,000,000 real texts, 256 numbers, the 116 nearest to real questions, one core; in milliseconds
exactly / through a shortlist, with the shortlist's recall of the nearest 20 and 100: 100,000 vectors 2.6 / 1.1
(.999, .986), 300,000 6.9 / 1.7 (1, .987), 1,000,000 22 / 2.8 (1, .989). An inverted file of 4,096 lists finds .95 of 20
when it visits a fifth of them: questions do not lie where messages do. Codes add 6 % of memory, and to make them takes
4 seconds for a million.
"""

SHORTLIST = 1_000
"""Vectors on a shortlist at least."""

PER_ASKED = 10
"""Vectors on a shortlist for each that is asked for."""

SHARE = 50
"""A shortlist of more than one in so many takes as long as to search exactly."""


class FaissVectorIndex(VectorIndex):
    """Half-precision vectors, and beside them short codes once there are many.

    The codes are made in the background and again whenever there are twice as many vectors; what is asked meanwhile is
    answered exactly. They depend on the rows and their vectors alone, not on when or in which order these came. The
    cosines of what is on a shortlist are computed exactly.

    Args:
        dimension: numbers per vector.
    """

    def __init__(self, dimension: int) -> None:
        super().__init__(dimension)
        self._blocks = HalfBlocks(dimension)
        self._codes: ShortCodes | None = None
        self._coded_for = 0
        self._work: Background | None = None

    @override
    def add(self, rows: npt.ArrayLike, vectors: Vectors | Half) -> None:
        super().add(rows, vectors)
        self._follow()

    @override
    def _keep(self, vectors: Half) -> None:
        self._blocks.add(vectors)

    def expect(self, count: int) -> None:
        """Make room for so many vectors at once, when the next ones are added."""
        self._blocks.expected = count

    @override
    def _vectors(self, numbers: Numbers) -> Vectors:
        return self._blocks.take(numbers)

    @override
    def matrix(self, start: int = 0, stop: int | None = None) -> Half:
        stop = len(self) if stop is None else min(stop, len(self))
        return self._blocks.between(start, stop)

    @override
    def _nearest(self, query: Vectors, top_k: int, allowed: Mask | None) -> tuple[Numbers, Vectors]:
        found = len(self) - self._left_out(allowed)
        if found >= SHORTLIST_FROM:
            shortlist = self._shortlist(query, top_k, allowed, found)
            if shortlist is not None:
                cosines = dot(self._vectors(shortlist), query)
                best = np.argsort(-cosines, kind="stable")[:top_k]
                return shortlist[best], cosines[best]
        vectors = None if allowed is None or found == len(self) else allowed[self.owners]
        return self._blocks.nearest(query, top_k, vectors)

    def _shortlist(self, query: Vectors, top_k: int, allowed: Mask | None, found: int) -> Numbers | None:
        """Return the numbers of what may be nearest, None if it takes an exact search to know."""
        self._begin()
        self._follow()
        wanted = max(SHORTLIST, PER_ASKED * top_k)
        count = wanted * len(self) // found
        if self._codes is None or SHARE * count > len(self):
            return None
        numbers = self._codes.nearest(query, count)
        if allowed is not None:
            numbers = numbers[allowed[self.owners[numbers]]]
        # Where what may be returned is of another kind than the question, the shortlist holds little of it.
        return numbers if 2 * len(numbers) >= wanted else None

    def _begin(self) -> None:
        """Have codes made in the background if they are due."""
        due = SHORTLIST_FROM
        while 2 * due <= len(self):
            due *= 2
        if self._work is not None and self._work.lost:
            self._work = None
        if self._coded_for < due <= len(self) and self._work is None:
            self._work = Background(_code(weakref.ref(self), due))

    def _follow(self) -> None:
        """Code what was added since the codes were made."""
        while self._codes is not None and len(self._codes) < len(self):
            self._codes.add(self._part(len(self._codes)))

    def _part(self, start: int) -> Vectors:
        """Return the next few vectors from a number on."""
        return self._vectors(np.arange(start, min(start + CHUNK, len(self))))

    def _sample(self, due: int) -> Vectors:
        """Return some of the vectors of the first rows, the same ones whenever and in whichever order they came."""
        # Whoever adds meanwhile adds behind what is looked at here.
        rows = self.owners
        by_row = np.argsort(rows, kind="stable")[:due]
        chosen = np.random.default_rng(due).choice(due, min(due, SAMPLE), replace=False)
        return self._vectors(by_row[np.sort(chosen)].astype(np.int64))

    def _publish(self, codes: ShortCodes, due: int) -> None:
        self._codes, self._coded_for, self._work = codes, due, None

    def settle(self) -> None:
        """Return when the codes that are due have been made."""
        self._begin()
        work = self._work
        if work is not None:
            work.wait()

    def stop(self) -> None:
        """Leave nothing running; the index can still be searched."""
        work, self._work = self._work, None
        if work is not None:
            work.stop()


def _code(index_of: "weakref.ref[FaissVectorIndex]", due: int) -> Work:
    """Make codes for an index; end without them once nobody holds the index any more."""
    index = index_of()
    if index is None:
        return
    sample = index._sample(due)
    del index
    codes = ShortCodes(sample)
    while True:
        yield
        index = index_of()
        if index is None:
            return
        if len(codes) >= len(index):
            break
        codes.add(index._part(len(codes)))
        del index
    index._publish(codes, due)
