"""The index that recall uses: FAISS, exact, and through a shortlist where there are so many vectors that it pays."""

import weakref

import numpy as np
import numpy.typing as npt
from typing_extensions import override

from shared_core.base import Vectors
from shared_core.index.background import Background, Work
from shared_core.index.faiss_codes import CHUNK, SAMPLE, HalfBlocks, ShortCodes
from shared_core.index.vector_index import Half, VectorIndex, dot

__all__ = ["SHORTLIST_FROM", "FaissVectorIndex"]

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

Mask = npt.NDArray[np.bool_]
Numbers = npt.NDArray[np.int64]


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
