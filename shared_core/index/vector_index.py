"""Nearest vectors by cosine: FAISS over the history, and the exact oracle that tests compare it with."""

from abc import ABC, abstractmethod
from typing import Any

import numpy as np
import numpy.typing as npt
from typing_extensions import override

from shared_core.base import Vectors
from shared_core.index.arrays import Growing

__all__ = ["ExactVectorIndex", "FaissVectorIndex", "VectorIndex"]

OVERFETCH = 512
"""Up to this many vectors that may not be returned it is faster to fetch as many more, and drop them, than to test each
vector of the index."""

SPARE = 16
"""Vectors fetched beyond those asked for: enough to see, most times, that no equal one was left out."""

Ints = npt.NDArray[np.int32]
Mask = npt.NDArray[np.bool_]


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

    def __len__(self) -> int:
        """Return how many vectors there are."""
        return len(self._owners)

    @property
    def owners(self) -> Ints:
        """The row of each vector."""
        return self._owners.values

    def add(self, rows: npt.ArrayLike, vectors: Vectors) -> None:
        """Add unit vectors, shape (n, dimension), and the rows they belong to, shape (n,).

        All vectors of one row come in one call, one after the other.
        """
        start = len(self)
        self._keep(np.ascontiguousarray(vectors, dtype=np.float32))
        self._owners.extend(rows)
        owners, first, pieces = np.unique(self.owners[start:], return_index=True, return_counts=True)
        if len(owners):
            unknown = max(0, int(owners[-1]) + 1 - len(self._first))
            self._first.extend(np.zeros(unknown, dtype=np.int32))
            self._pieces.extend(np.zeros(unknown, dtype=np.int32))
            self._first.values[owners] = start + first
            self._pieces.values[owners] = pieces

    def has(self, count: int) -> Mask:
        """Return which of the rows 0 to count - 1 have a vector, shape (count,)."""
        mask = np.zeros(count, dtype=np.bool_)
        known = min(count, len(self._pieces))
        mask[:known] = self._pieces.values[:known] > 0
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
        pieces = self._pieces.values[: len(allowed)]
        return int(pieces[~allowed[: len(pieces)]].sum())

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
            np.fmax.at(result, slots, _dot(self._vectors(numbers.astype(np.int64)), query))
        return result

    @abstractmethod
    def _keep(self, vectors: Vectors) -> None:
        """Append vectors."""

    @abstractmethod
    def _nearest(self, query: Vectors, top_k: int, allowed: Mask | None) -> tuple[npt.NDArray[np.int64], Vectors]:
        """Return the numbers and cosines of the `top_k` nearest vectors of the allowed rows; that many exist."""

    @abstractmethod
    def _vectors(self, numbers: npt.NDArray[np.int64]) -> Vectors:
        """Return some vectors, shape (len(numbers), dimension)."""

    @abstractmethod
    def matrix(self) -> npt.NDArray[np.float16]:
        """Return all vectors, shape (n, dimension), for a snapshot."""


def _dot(vectors: Vectors, query: Vectors) -> Vectors:
    """Return the dot product of each row; unlike with `@`, equal rows have equal products, to the last bit."""
    products: Vectors = np.einsum("ij,j->i", vectors, query)
    return products


class ExactVectorIndex(VectorIndex):
    """Plain NumPy over all vectors: what every other index has to agree with."""

    def __init__(self, dimension: int) -> None:
        super().__init__(dimension)
        self._flat: Growing[np.float16] = Growing(np.float16)

    @override
    def _keep(self, vectors: Vectors) -> None:
        self._flat.extend(vectors.astype(np.float16).ravel())

    @override
    def matrix(self) -> npt.NDArray[np.float16]:
        return self._flat.values.reshape(-1, self.dimension)

    @override
    def _vectors(self, numbers: npt.NDArray[np.int64]) -> Vectors:
        return self.matrix()[numbers].astype(np.float32)

    @override
    def _nearest(self, query: Vectors, top_k: int, allowed: Mask | None) -> tuple[npt.NDArray[np.int64], Vectors]:
        numbers = np.arange(len(self)) if allowed is None else np.flatnonzero(allowed[self.owners])
        cosines = _dot(self._vectors(numbers), query)
        best = np.argsort(-cosines, kind="stable")[:top_k]
        return numbers[best], cosines[best]


class FaissVectorIndex(VectorIndex):
    """FAISS's exact search over half-precision vectors: half the memory, and no loss that recall could show."""

    def __init__(self, dimension: int) -> None:
        import faiss

        super().__init__(dimension)
        self._faiss: Any = faiss
        kind = faiss.ScalarQuantizer.QT_fp16
        self._index: Any = faiss.IndexScalarQuantizer(dimension, kind, faiss.METRIC_INNER_PRODUCT)

    @override
    def _keep(self, vectors: Vectors) -> None:
        if len(vectors):
            self._index.add(vectors)

    @override
    def _vectors(self, numbers: npt.NDArray[np.int64]) -> Vectors:
        # A view of what the index holds, valid until vectors are added; `reconstruct_batch` takes twice as long.
        codes = self._faiss.rev_swig_ptr(self._index.codes.data(), self._index.codes.size())
        vectors: Vectors = codes.view(np.float16).reshape(-1, self.dimension)[numbers].astype(np.float32)
        return vectors

    @override
    def matrix(self) -> npt.NDArray[np.float16]:
        codes = self._faiss.vector_to_array(self._index.codes)
        matrix: npt.NDArray[np.float16] = codes.view(np.float16).reshape(-1, self.dimension)
        return matrix

    @override
    def _nearest(self, query: Vectors, top_k: int, allowed: Mask | None) -> tuple[npt.NDArray[np.int64], Vectors]:
        parameters = None
        left_out = self._left_out(allowed)
        if allowed is not None and left_out <= OVERFETCH:
            numbers, cosines = self._nearest(query, top_k + left_out, None)
            kept = allowed[self.owners[numbers]]
            return numbers[kept][:top_k], cosines[kept][:top_k]
        if allowed is not None:
            bits = np.packbits(allowed[self.owners], bitorder="little")
            selector = self._faiss.IDSelectorBitmap(bits)
            parameters = self._faiss.SearchParameters(sel=selector)
        # One question has nothing to share out: waking OpenMP's other threads would cost more than the search, and on
        # a busy machine a hundred times more. The setting belongs to this thread.
        threads = self._faiss.omp_get_max_threads()
        self._faiss.omp_set_num_threads(1)
        try:
            cosines, numbers = self._index.search(query.reshape(1, -1), top_k, params=parameters)
        finally:
            self._faiss.omp_set_num_threads(threads)
        return numbers[0], cosines[0]
