"""Which rows each term occurs in, and how often."""

from array import array
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

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
        self._slots: dict[str, int] = {}
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
        slot = self._slots.get(term)
        packed = self._kept[self._starts[slot] : self._starts[slot + 1]] if slot is not None else self._kept[:0]
        if term in self._new:
            packed = np.concatenate([packed, np.array(self._new[term], dtype=np.uint32)])
        return (packed >> 8).astype(np.int32), (packed & MAX_FREQUENCY).astype(np.uint8)

    def arrays(self) -> dict[str, npt.NDArray[np.generic]]:
        """Return the postings as plain arrays, for a snapshot."""
        unknown = [term for term in self._new if term not in self._slots]
        slots = self._slots | {term: slot for slot, term in enumerate(unknown, start=len(self._slots))}
        kept = np.append(np.diff(self._starts), np.zeros(len(unknown), dtype=np.int64))
        sizes = kept.copy()
        for term, added in self._new.items():
            sizes[slots[term]] += len(added)
        ends = np.cumsum(sizes)
        joined = np.empty(int(sizes.sum()), dtype=np.uint32)
        shift = (ends - sizes)[: len(self._slots)] - self._starts[:-1]
        joined[np.arange(len(self._kept)) + np.repeat(shift, kept[: len(self._slots)])] = self._kept
        for term, added in self._new.items():
            end = ends[slots[term]]
            joined[end - len(added) : end] = added
        vocabulary = "\n".join(slots).encode("utf-8", "surrogatepass")
        return {"vocabulary": np.frombuffer(vocabulary, dtype=np.uint8), "sizes": sizes, "postings": joined}

    @classmethod
    def from_arrays(cls, arrays: Arrays) -> "Postings":
        """Return the postings that `arrays` came from."""
        postings = cls()
        text = arrays["vocabulary"].tobytes().decode("utf-8", "surrogatepass")
        terms = text.split("\n") if text else []  # rows without a term, such as one "ok", leave no vocabulary
        postings._slots = {term: slot for slot, term in enumerate(terms)}
        postings._kept = np.array(arrays["postings"], dtype=np.uint32)
        postings._starts = np.append(0, np.cumsum(arrays["sizes"], dtype=np.int64))
        return postings
