"""Vectors as FAISS searches them: whole, in half precision, and as short codes that make a shortlist."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt

from shared_core.base import Vectors
from shared_core.index.arrays import widened

__all__ = ["BLOCK", "HalfBlocks", "ShortCodes", "alone"]

BLOCK = 65_536
"""Vectors kept in one piece of memory: adding copies no more than this."""

CHUNK = 8_192
"""Vectors that are coded at a time."""

LONG = 256
"""Numbers of a vector from which on half a byte for four of them is enough; of a shorter one, it stands for two."""

SAMPLE = 16_384
"""Vectors that the centroids are made from: 1,000 for each; four times as many find the same."""

Half = npt.NDArray[np.float16]
Mask = npt.NDArray[np.bool_]
Numbers = npt.NDArray[np.int64]


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
