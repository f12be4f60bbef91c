"""Nearest vectors by cosine: what an index of them does, and the exact oracle that tests compare it with."""

from abc import ABC, abstractmethod

import numpy as np
import numpy.typing as npt
from typing_extensions import override

from shared_core.base import Vectors
from shared_core.index.arrays import Growing

__all__ = ["ExactVectorIndex", "VectorIndex", "dot"]

SPARE = 16
"""Vectors fetched beyond those asked for: enough to see, most times, that no equal one was left out."""

Half = npt.NDArray[np.float16]
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
