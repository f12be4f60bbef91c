"""Which rows each term occurs in, and how often."""

from array import array
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from shared_core.index.vocabulary import Vocabulary

__all__ = ["MAX_FREQUENCY", "MAX_ROWS", "Postings"]

MAX_ROWS = 1 << 24
MAX_FREQUENCY = 255
"""One posting is 32 bits: the row in the upper 24, the frequency in the lower 8."""

Packed = npt.NDArray[np.uint32]
Arrays = Mapping[str, npt.NDArray[np.generic]]


class Postings:
    """Postings by term, in the order of rows.

    Those of a snapshot stay one array: cutting it up for a million terms takes ten times as long as reading it.
    """

    def __init__(self) -> None:
        self._vocabulary = Vocabulary.of([])
        self._kept: Packed = np.empty(0, dtype=np.uint32)
        self._starts = np.zeros(1, dtype=np.int64)
        self._new: dict[str, array[int]] = {}

    def add(self, row: int, document: Mapping[str, int]) -> None:
        """Append a row, given as its terms with their frequency.

        Raises:
            OverflowError: there are too many rows.
        """
        if row >= MAX_ROWS:
            raise OverflowError(f"a session holds at most {MAX_ROWS:,} messages")
        for term, frequency in document.items():
            self._new.setdefault(term, array("I")).append(row << 8 | min(frequency, MAX_FREQUENCY))

    def of(self, term: str) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.uint8]]:
        """Return the rows of a term, ascending, and its frequency in each."""
        number = self._vocabulary.find(term)
        packed = self._kept[self._starts[number] : self._starts[number + 1]] if number >= 0 else self._kept[:0]
        if term in self._new:
            packed = np.concatenate([packed, np.array(self._new[term], dtype=np.uint32)])
        return (packed >> 8).astype(np.int32), (packed & MAX_FREQUENCY).astype(np.uint8)

    def arrays(self) -> dict[str, npt.NDArray[np.generic]]:
        """Return the postings as plain arrays, for a snapshot."""
        kept = self._vocabulary.terms()
        terms = sorted([*kept, *sorted(self._new.keys() - set(kept))])
        numbers = {term: number for number, term in enumerate(terms)}
        places = np.fromiter((numbers[term] for term in kept), np.int64, len(kept))
        sizes = np.zeros(len(terms), dtype=np.int64)
        sizes[places] = np.diff(self._starts)
        for term, added in self._new.items():
            sizes[numbers[term]] += len(added)
        ends = np.cumsum(sizes)
        joined = np.empty(int(sizes.sum()), dtype=np.uint32)
        shift = (ends - sizes)[places] - self._starts[:-1]
        joined[np.arange(len(self._kept)) + np.repeat(shift, np.diff(self._starts))] = self._kept
        for term, added in self._new.items():
            end = ends[numbers[term]]
            joined[end - len(added) : end] = added
        return {"vocabulary": Vocabulary.of(terms).text, "sizes": sizes.astype(np.int32), "postings": joined}

    @classmethod
    def from_arrays(cls, arrays: Arrays) -> "Postings":
        """Return the postings that `arrays` came from, without a copy."""
        postings = cls()
        postings._vocabulary = Vocabulary(np.asarray(arrays["vocabulary"], dtype=np.uint8))
        postings._kept = np.asarray(arrays["postings"], dtype=np.uint32)
        postings._starts = np.append(0, np.cumsum(arrays["sizes"], dtype=np.int64))
        return postings
