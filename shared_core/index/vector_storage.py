"""How FAISS keeps vectors: all of them in half precision, in blocks, and short codes of many. Copies share memory."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt

from shared_core.index.arrays import to_single_precision
from shared_core.plugins.base import Vectors

Half = npt.NDArray[np.float16]
Mask = npt.NDArray[np.bool_]
Numbers = npt.NDArray[np.int64]

BLOCK = 16_384
"""Vectors per block of memory. Adding vectors copies at most one block, and taking one out copies one.

Four times as many are searched no faster (150,000 of 256 numbers in 4.7 ms), and half as many take a tenth longer."""


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
        self._blocks: list[Any] = []

    def add(self, vectors: Half) -> None:
        """Append vectors, shape (n, dimension)."""
        for part in np.split(vectors, range(BLOCK - self._size % BLOCK, len(vectors), BLOCK)):
            number, start = divmod(self._size, BLOCK)
            end = start + len(part)
            if number == len(self._blocks):
                self._blocks.append(self._new_block(len(part)))
            elif self._blocks[number].codes.size() < end * 2 * self.dimension:
                self._blocks[number] = self._grown(self._blocks[number], start, end)
            _view(self._blocks[number])[start:end] = part
            self._blocks[number].ntotal = end
            self._size += len(part)

    def _new_block(self, room: int) -> Any:
        with single_threaded_faiss() as faiss:
            kind = faiss.ScalarQuantizer.QT_fp16
            block = faiss.IndexScalarQuantizer(self.dimension, kind, faiss.METRIC_INNER_PRODUCT)
            block.codes.resize(room * 2 * self.dimension)
        return block

    def _grown(self, block: Any, size: int, needed: int) -> Any:
        """Return a larger block with the same vectors. Concurrent readers still hold the old one."""
        grown = self._new_block(min(max(2 * size, needed), BLOCK))
        _view(grown)[:size] = _view(block)[:size]
        return grown

    def take(self, numbers: Numbers) -> Vectors:
        """Return some vectors, shape (len(numbers), dimension)."""
        return to_single_precision(self.halves(numbers))

    def halves(self, numbers: Numbers) -> Half:
        """Return some vectors as they are kept, shape (len(numbers), dimension)."""
        if len(self._blocks) == 1 and len(numbers):
            block = self._blocks[0]  # hold it: a concurrent `add` may replace it
            return _view(block).take(numbers, axis=0)
        halves, blocks = np.empty((len(numbers), self.dimension), dtype=np.float16), list(self._blocks)
        order = np.argsort(numbers, kind="stable")
        cuts = np.searchsorted(numbers[order], np.arange(1, len(blocks)) * BLOCK)
        for number, here in enumerate(np.split(order, cuts)):
            if len(here):
                halves[here] = _view(blocks[number])[numbers[here] - number * BLOCK]
        return halves

    def nearest(self, query: Vectors, top_k: int, allowed: Mask | None) -> tuple[Numbers, Vectors]:
        """Return the numbers and cosines of the nearest allowed vectors, best first."""
        found = [
            self._nearest_in(block, number * BLOCK, query, top_k, allowed)
            for number, block in enumerate(list(self._blocks))
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


def _view(block: Any) -> Half:
    """Return the memory of a block as an array. It is valid while the block is held and not resized."""
    import faiss

    view: Half = faiss.rev_swig_ptr(block.codes.data(), block.codes.size()).view(np.float16).reshape(-1, block.d)
    return view


LONG = 256
"""From this dimension on, half a byte codes four numbers of a vector. For shorter vectors, it codes two."""


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
