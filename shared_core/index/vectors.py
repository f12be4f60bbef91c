"""Nearest vectors by cosine: searched exactly by FAISS, or, of many, through a shortlist of short codes."""

import os
import threading
from collections.abc import Iterator
from concurrent.futures import Future, wait
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from shared_core.index.arrays import GrowingArray
from shared_core.plugins.base import Vectors
from shared_core.runtime.threads import exiting, in_background

Ints = npt.NDArray[np.int32]
Half = npt.NDArray[np.float16]
Mask = npt.NDArray[np.bool_]
Numbers = npt.NDArray[np.int64]

SPARE = 16
"""Vectors fetched beyond `top_k`: usually enough to see that no equally near one was left out."""

PAIRED = 128
"""Rows whose cosines tell how close unrelated messages are: 8,128 pairs, however long the history is."""

LEAST_SAMPLE = 16
"""Fewer rows tell too little."""

UNTHREADED = 1 << 17
"""Multiplications in one product of matrices, at most: from twice as many on, OpenBLAS wakes its threads.

These then wait for more work, with a processor each. Measured for 128 rows of 256 numbers on two processors: 0.2 ms of
them instead of 8.
"""

CHUNK = 8_192
"""Vectors coded at a time."""

TRAINED_ON = 16_384
"""Vectors from which the centroids are trained: 1,000 for each. Four times as many do not improve recall."""

SHORTLIST_FROM = 100_000
"""A shortlist is used if at least this many vectors may be returned.

Measured with static vectors of 1,000,000 real texts, dimension 256, for the 116 nearest to real questions, on one core.
Milliseconds exactly / through a shortlist, and the shortlist's recall of the nearest 20 and 100: 100,000 vectors
2.6 / 1.1 (.999, .986), 300,000 6.9 / 1.7 (1, .987), 1,000,000 22 / 2.8 (1, .989). An inverted file of 4,096 lists finds
.95 of 20 if it visits a fifth of the lists, because questions lie elsewhere than messages. Codes add 6 % of memory, and
making a million of them takes 4 seconds.
"""

SHORTLIST = 1_000
"""The least number of vectors on a shortlist."""

PER_ASKED = 10
"""Vectors on a shortlist per vector asked for."""

SHARE = 50
"""A shortlist of more than one in this many vectors takes as long as an exact search."""

BLOCK = 16_384
"""Vectors per block of memory. Adding vectors copies at most one block, and taking one out copies one.

Four times as many are searched no faster (150,000 of 256 numbers in 4.7 ms), and half as many take a tenth longer."""

LONG = 256
"""From this dimension on, half a byte codes four numbers of a vector. For shorter vectors, it codes two."""

HALF_BITS = np.uint32(0x8FFF_E000).view(np.int32)
"""The bits of single precision that hold the sign, exponent and fraction of half precision."""

HALF_SCALE = np.float32(2.0**112)
"""The factor by which an exponent of half precision, read as single precision, is too small."""


class VectorIndex:
    """Unit vectors by row, in half precision. A row has one for each piece of a long text, of which the best counts.

    Once there are many, there are short codes of them, too. These are made in the background, and made again whenever
    the number of vectors has doubled. Until they are ready, searches are exact. Codes depend only on the rows and their
    vectors, not on when or in which order these were added. The cosines of vectors on a shortlist are exact.

    Args:
        dimension: numbers per vector.
    """

    def __init__(self, dimension: int) -> None:
        self.dimension = dimension
        self._owners: GrowingArray[np.int32] = GrowingArray(np.int32)
        self._further: GrowingArray[np.int32] = GrowingArray(np.int32)  # the owners of all but the first of a row
        self._first: GrowingArray[np.int32] = GrowingArray(np.int32)
        self._pieces: GrowingArray[np.int32] = GrowingArray(np.int32)
        self._has: GrowingArray[np.bool_] = GrowingArray(np.bool_)
        self._lacking: tuple[Ints, int] = np.empty(0, dtype=np.int32), 0  # and below which row these are all
        self._blocks = HalfBlocks(dimension)
        self._codes: ShortCodes | None = None
        self._coded_for = 0
        self._coding: Future[None] | None = None
        self._stopping = threading.Event()
        self._pid = os.getpid()

    def __len__(self) -> int:
        """Return the number of vectors."""
        return len(self._owners)

    @property
    def owners(self) -> Ints:
        """The row of each vector."""
        return self._owners.values

    def add(self, rows: npt.ArrayLike, vectors: Vectors | Half) -> None:
        """Add unit vectors, shape (n, dimension), and the rows they belong to, shape (n,).

        All vectors of a row must come one after the other. A call may end between them.
        """
        owners = np.asarray(rows, dtype=np.int32)
        if not len(owners):
            return
        self._blocks.add(np.asarray(vectors, dtype=np.float16))
        new = np.diff(owners, prepend=self.owners[-1] if len(self) else -1) != 0
        for column in (self._first, self._pieces, self._has):
            column.extend(np.zeros(max(0, int(owners.max()) + 1 - len(column)), dtype=np.int32))
        self._first.values[owners[new]] = len(self) + np.flatnonzero(new)
        np.add.at(self._pieces.values, owners, 1)
        self._has.values[owners] = True
        self._further.extend(owners[~new])
        self._owners.extend(owners)
        self._follow()

    def matrix(self, numbers: Numbers) -> Half:
        """Return some vectors, shape (n, dimension), for a snapshot."""
        return self._blocks.halves(numbers)

    def has(self, rows: npt.NDArray[np.integer[Any]]) -> Mask:
        """Return which of some rows have a vector. A negative row has none."""
        has: Mask = (rows >= 0) & (rows < len(self._has))
        has[has] = self._has.values[rows[has]]
        return has

    def lacking(self, count: int) -> Ints:
        """Return which of the rows 0 to count - 1 have no vector, in ascending order; those known before are kept."""
        known, upto = self._lacking
        rows = np.append(known[: known.searchsorted(count)], np.arange(upto, count, dtype=np.int32))
        rows = rows[~self.has(rows)]
        if count >= upto:
            self._lacking = rows, count
        return rows

    def search(self, query: Vectors, top_k: int, allowed: Mask | None = None) -> tuple[Ints, Vectors]:
        """Return the rows nearest to a question and their cosines, best first; of equal cosines, the newer row first.

        Args:
            query: unit vector, shape (dimension,).
            top_k: how many rows at most.
            allowed: which rows may be returned, shape (rows,); None for all. The mask applies during the search, so
                that it never shortens the result.
        """
        found = len(self) - self._left_out(allowed)
        ask = min(top_k + SPARE, found) if top_k else 0
        while True:
            rows, cosines = self._best_per_row(query, ask, allowed, found)
            # Several vectors of one row may crowd out other rows, and a row just beyond the last one fetched may be
            # equally near and newer. Fetch more until neither is possible.
            if ask in (0, found) or (len(rows) > top_k and cosines[-1] < cosines[top_k - 1]):
                return rows[:top_k], cosines[:top_k]
            ask = min(4 * ask, found)

    def _left_out(self, allowed: Mask | None) -> int:
        """Return how many vectors belong to rows that may not be returned."""
        if allowed is None:
            return 0
        has = self._has.values
        rows = np.count_nonzero(np.greater(has, allowed[: len(has)]))
        return int(rows + np.count_nonzero(~allowed[self._further.values]))

    def _best_per_row(self, query: Vectors, ask: int, allowed: Mask | None, found: int) -> tuple[Ints, Vectors]:
        if not ask:
            return np.empty(0, dtype=np.int32), np.empty(0, dtype=np.float32)
        numbers, cosines = self._nearest(query, ask, allowed, found)
        owners = self.owners[numbers]
        order = np.lexsort((-owners, -cosines))
        if len(self._further):
            _, first = np.unique(owners[order], return_index=True)
            order = order[np.sort(first)]
        return owners[order], cosines[order]

    def _nearest(self, query: Vectors, top_k: int, allowed: Mask | None, found: int) -> tuple[Numbers, Vectors]:
        """Return the numbers and cosines of the `top_k` nearest of the vectors that may be found, which are `found`."""
        shortlist = self._shortlist(query, top_k, allowed, found) if found >= SHORTLIST_FROM else None
        if shortlist is None:
            vectors = None if allowed is None or found == len(self) else allowed[self.owners]
            return self._blocks.nearest(query, top_k, vectors)
        cosines = dot(self._blocks.take(shortlist), query)
        best = np.argsort(-cosines, kind="stable")[:top_k]
        return shortlist[best], cosines[best]

    def cosines(self, query: Vectors, rows: Ints) -> Vectors:
        """Return the cosine of each row with a question, NaN for rows without a vector; shape (len(rows),)."""
        result = np.full(len(rows), np.nan, dtype=np.float32)
        known = np.flatnonzero(self.has(rows))
        numbers = self._first.values[rows[known]].astype(np.int64)
        if not len(self._further):
            result[known] = dot(self._blocks.take(numbers), query)
            return result
        # The vectors of a row are consecutive: expand each first number by its count of pieces.
        pieces = self._pieces.values[rows[known]]
        numbers = np.repeat(numbers - np.cumsum(pieces) + pieces, pieces)
        numbers += np.arange(len(numbers))
        np.fmax.at(result, np.repeat(known, pieces), dot(self._blocks.take(numbers), query))
        return result

    def unrelated(self, rows: Ints, *, least: int = LEAST_SAMPLE) -> tuple[float, float] | None:
        """Return the mean and the standard deviation of the cosines among rows, which are sampled evenly.

        Rows without a vector are left out. None: fewer than `least` have one.
        """
        known = rows[self.has(rows)]
        if len(known) < least:
            return None
        sample = known[np.unique(np.linspace(0, len(known) - 1, PAIRED).astype(np.int64))]
        vectors = self.first(sample)
        rows_at_once = max(1, UNTHREADED // vectors.size)
        parts = [vectors[start : start + rows_at_once] @ vectors.T for start in range(0, len(vectors), rows_at_once)]
        cosines = np.concatenate(parts)[np.triu(np.ones((len(sample), len(sample)), dtype=np.bool_), 1)]
        return float(cosines.mean()), float(cosines.std())

    def first(self, rows: Ints) -> Vectors:
        """Return the first vector of each row that has one, in the order of the rows, shape (n, dimension)."""
        known = rows[self.has(rows)]
        return self._blocks.take(self._first.values[known].astype(np.int64))

    def _shortlist(self, query: Vectors, top_k: int, allowed: Mask | None, found: int) -> Numbers | None:
        """Return the numbers of vectors that may be nearest; None if an exact search is needed."""
        self._begin()
        self._follow()
        wanted = max(SHORTLIST, PER_ASKED * top_k)
        count = wanted * len(self) // found
        if self._codes is None or SHARE * count > len(self):
            return None
        numbers = self._codes.nearest(query, count)
        if allowed is not None:
            numbers = numbers[allowed[self.owners[numbers]]]
        # If few of the nearest vectors are allowed, the shortlist is too short to hold the nearest allowed ones.
        return numbers if 2 * len(numbers) >= wanted else None

    def _begin(self) -> None:
        """Start making codes in the background if they are due."""
        due = SHORTLIST_FROM
        # Due at doubling sizes, so that making codes costs about the same per vector at any size.
        while 2 * due <= len(self):
            due *= 2
        if self._pid != os.getpid():  # a fork copies no threads
            self._coding, self._pid = None, os.getpid()
        if self._coded_for < due <= len(self) and (self._coding is None or self._coding.done()):
            self._coding = in_background(partial(self._code, due), "infinite-memory index")

    def _code(self, due: int) -> None:
        """Make codes of all vectors, from a sample of the first rows, however and whenever these were added."""
        by_row = np.argsort(self.owners, kind="stable")[:due].astype(np.int64)
        sample = by_row[np.linspace(0, due - 1, min(due, TRAINED_ON)).astype(np.int64)]
        codes = ShortCodes(self._blocks.take(sample))
        while len(codes) < len(self):
            if self._stopping.is_set() or exiting.is_set():
                return
            codes.add(self._chunk_from(len(codes)))
        self._codes, self._coded_for = codes, due

    def _follow(self) -> None:
        """Code the vectors added since the codes were made."""
        while self._codes is not None and len(self._codes) < len(self):
            self._codes.add(self._chunk_from(len(self._codes)))

    def _chunk_from(self, start: int) -> Vectors:
        """Return the next `CHUNK` vectors from a number on."""
        return self._blocks.take(np.arange(start, min(start + CHUNK, len(self))))

    def settle(self) -> None:
        """Wait until the codes that are due have been made."""
        self._begin()
        coding = self._coding
        if coding is not None:
            coding.result()

    def stop(self) -> None:
        """Stop making codes. The index can still be searched."""
        coding, self._coding = self._coding, None
        if coding is not None and self._pid == os.getpid():
            self._stopping.set()
            wait([coding])
            self._stopping.clear()


def dot(vectors: Vectors, query: Vectors) -> Vectors:
    """Return the dot product of each row. Unlike with `@`, equal rows have equal products, to the last bit."""
    products: Vectors = np.einsum("ij,j->i", vectors, query)
    return products


@contextmanager
def single_threaded_faiss() -> Iterator[Any]:
    """Provide FAISS, restricted to the current thread.

    A single question cannot be split among threads. Waking OpenMP's threads would cost more than the search, on a busy
    machine a hundred times more, and a forked process, which has lost them, would wait forever. The setting is local to
    a thread.
    """
    import faiss

    threads = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(1)
    try:
        yield faiss
    finally:
        faiss.omp_set_num_threads(threads)


class HalfBlocks:
    """All vectors in half precision, searched exactly. This halves the memory without a measurable loss of recall.

    One thread may add vectors while another reads those that were there before.

    Args:
        dimension: numbers per vector.
    """

    def __init__(self, dimension: int) -> None:
        self.dimension = dimension
        self._size = 0
        self._blocks: list[tuple[Any, Half]] = []  # FAISS's index of each block, and its memory as an array

    def add(self, vectors: Half) -> None:
        """Append vectors, shape (n, dimension)."""
        for part in np.split(vectors, range(BLOCK - self._size % BLOCK, len(vectors), BLOCK)):
            number, start = divmod(self._size, BLOCK)
            end = start + len(part)
            index, values = self._blocks[number] if start else self._new_block(len(part))
            if len(values) < end:  # concurrent readers still hold the smaller block
                before, (index, values) = values, self._new_block(min(max(2 * start, end), BLOCK))
                values[:start] = before[:start]
            values[start:end] = part
            index.ntotal = end
            self._blocks[number:] = [(index, values)]
            self._size += len(part)

    def _new_block(self, room: int) -> tuple[Any, Half]:
        with single_threaded_faiss() as faiss:
            kind = faiss.ScalarQuantizer.QT_fp16
            index = faiss.IndexScalarQuantizer(self.dimension, kind, faiss.METRIC_INNER_PRODUCT)
            index.codes.resize(room * 2 * self.dimension)
            memory = faiss.rev_swig_ptr(index.codes.data(), index.codes.size())
        return index, memory.view(np.float16).reshape(-1, self.dimension)

    def take(self, numbers: Numbers) -> Vectors:
        """Return some vectors, shape (len(numbers), dimension)."""
        return to_single_precision(self.halves(numbers))

    def halves(self, numbers: Numbers) -> Half:
        """Return some vectors as they are kept, shape (len(numbers), dimension)."""
        blocks = list(self._blocks)  # held: a concurrent `add` may replace one
        if len(blocks) == 1 and len(numbers):
            return blocks[0][1].take(numbers, axis=0)
        halves = np.empty((len(numbers), self.dimension), dtype=np.float16)
        order = np.argsort(numbers, kind="stable")
        cuts = np.searchsorted(numbers[order], np.arange(1, len(blocks)) * BLOCK)
        for number, here in enumerate(np.split(order, cuts)):
            if len(here):
                halves[here] = blocks[number][1][numbers[here] - number * BLOCK]
        return halves

    def nearest(self, query: Vectors, top_k: int, allowed: Mask | None) -> tuple[Numbers, Vectors]:
        """Return the numbers and cosines of the nearest allowed vectors, best first."""
        found = [
            self._nearest_in(index, number * BLOCK, query, top_k, allowed)
            for number, (index, _) in enumerate(list(self._blocks))
        ]
        numbers, cosines = (np.concatenate(column) for column in zip(*found, strict=True))
        best = np.argsort(-cosines, kind="stable")[:top_k]
        return numbers[best], cosines[best]

    def _nearest_in(
        self, index: Any, start: int, query: Vectors, top_k: int, allowed: Mask | None
    ) -> tuple[Numbers, Vectors]:
        here = allowed[start : start + index.ntotal] if allowed is not None else None
        if here is not None and not here.any():
            return np.empty(0, dtype=np.int64), np.empty(0, dtype=np.float32)
        with single_threaded_faiss() as faiss:
            parameters = None
            if here is not None and not here.all():
                bits = np.packbits(here, bitorder="little")
                parameters = faiss.SearchParameters(sel=faiss.IDSelectorBitmap(bits))
            cosines, numbers = index.search(query.reshape(1, -1), min(top_k, index.ntotal), params=parameters)
        there = numbers[0] >= 0
        return numbers[0][there] + start, cosines[0][there]


class ShortCodes:
    """Short codes of vectors: half a byte, one of 16 centroids, for every few numbers. Near vectors have near codes.

    Product quantisation (Jégou, Douze and Schmid 2011), in the layout of André, Kermarrec and Le Scouarnec (2017).

    Args:
        sample: vectors like those to come, shape (n, dimension). The same sample makes the same codes.
    """

    def __init__(self, sample: Vectors) -> None:
        together = 4 if sample.shape[1] >= LONG else 2
        self._padding = -sample.shape[1] % together
        dimension = sample.shape[1] + self._padding
        with single_threaded_faiss() as faiss:
            self._index: Any = faiss.IndexPQFastScan(dimension, dimension // together, 4, faiss.METRIC_INNER_PRODUCT)
            self._index.pq.cp.max_points_per_centroid = len(sample)
            self._index.train(self._padded(sample))

    def __len__(self) -> int:
        return int(self._index.ntotal)

    def _padded(self, vectors: Vectors) -> Vectors:
        return np.pad(vectors, ((0, 0), (0, self._padding))) if self._padding else np.ascontiguousarray(vectors)

    def add(self, vectors: Vectors) -> None:
        """Append the codes of vectors, shape (n, dimension)."""
        with single_threaded_faiss():
            self._index.add(self._padded(vectors))

    def nearest(self, query: Vectors, count: int) -> Numbers:
        """Return the numbers of the vectors whose codes are nearer than the `count`-th nearest, in ascending order.

        Codes have few distances, so that it would be chance which of those at the end of a list are on it. If there
        are at most `count`, all are returned.
        """
        with single_threaded_faiss():
            near, found = self._index.search(self._padded(query.reshape(1, -1)), count)
        there = found[0] >= 0
        cosines, numbers = near[0][there], found[0][there]
        if len(self) > count:
            numbers = numbers[cosines > cosines[-1]]
        ascending: Numbers = np.sort(numbers)
        return ascending


def to_single_precision(halves: npt.NDArray[np.float16]) -> npt.NDArray[np.float32]:
    """Return finite numbers in single precision, exactly as `astype` does, in a quarter of its time (NumPy 2.4)."""
    bits = halves.view(np.int16).astype(np.int32)
    bits <<= 13
    bits &= HALF_BITS
    values = bits.view(np.float32)
    values *= HALF_SCALE
    return values
