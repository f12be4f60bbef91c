"""The rows in which each term occurs, and how often: what an inverted index holds, in few arrays."""

from array import array
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from shared_core.index.arrays import ARRAY_BYTES, ENTRY_BYTES

LINE_END = ord("\n")

KNOWN_TERMS = 4_096
"""Terms whose numbers are remembered: those that people ask about, many times as many as one question has."""


class Vocabulary:
    """Sorted terms, found by bisection in one text.

    Filling a dictionary with a million terms takes 0.4 seconds and 100 MB. Finding a term here takes a hundredth of a
    millisecond.

    Args:
        text: the `text` of another vocabulary: UTF-8, a line per term.
        ends: where each line ends; None to look for that.
    """

    def __init__(self, text: npt.NDArray[np.uint8], ends: npt.NDArray[np.int32] | None = None) -> None:
        self.text = text
        self._view = text.data
        self._ends = np.flatnonzero(text == LINE_END).astype(np.int32) if ends is None else ends
        self._known: dict[str, int] = {}

    @classmethod
    def of(cls, terms: Iterable[str]) -> "Vocabulary":
        """Return a vocabulary of sorted terms, none of which contains a line end."""
        return cls(np.frombuffer(_encoded("".join(f"{term}\n" for term in terms)), dtype=np.uint8))

    def __len__(self) -> int:
        return len(self._ends)

    @property
    def nbytes(self) -> int:
        """About how many bytes it takes in memory."""
        return self.text.nbytes + self._ends.nbytes + ENTRY_BYTES * len(self._known) + ARRAY_BYTES

    def find(self, term: str) -> int:
        """Return the number of a term, -1 if it is unknown."""
        number = self._known.get(term)
        if number is None:
            if len(self._known) >= KNOWN_TERMS:
                self._known.clear()
            number = self._known[term] = self._find(_encoded(term))
        return number

    def _find(self, wanted: bytes) -> int:
        # UTF-8 sorts like the characters it encodes, so bytes can be compared.
        number = bisect_left(range(len(self)), wanted, key=self._term)
        return number if number < len(self) and self._term(number) == wanted else -1

    def _term(self, number: int) -> bytes:
        start = self._ends[number - 1] + 1 if number else 0
        return bytes(self._view[start : self._ends[number]])

    def terms(self) -> list[str]:
        """Return all terms in order."""
        return self.text.tobytes().decode("utf-8", "surrogatepass").split("\n")[:-1]


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


MAX_ROWS = 1 << 24
MAX_FREQUENCY = 255
ROW_BITS = 8
"""A posting has 32 bits: the row in the upper 24, the frequency in the lower 8."""

Packed = npt.NDArray[np.uint32]
Arrays = Mapping[str, npt.NDArray[np.generic]]


NEW_TERM_BYTES = 290
"""About what a term takes that is not folded yet: its text, an entry of a dictionary, and an array (CPython 3.11)."""


class Postings:
    """The rows and frequencies of each term, in order of rows.

    Postings from a snapshot stay one array: splitting it for a million terms takes ten times as long as reading it.
    """

    def __init__(self) -> None:
        self._vocabulary = Vocabulary.of([])
        self._kept: Packed = np.empty(0, dtype=np.uint32)
        self._starts = np.zeros(1, dtype=np.int64)
        self._new: dict[str, array[int]] = {}
        self._added = 0

    @property
    def nbytes(self) -> int:
        """About how many bytes they take in memory."""
        kept = self._vocabulary.nbytes + self._kept.nbytes + self._starts.nbytes
        return kept + NEW_TERM_BYTES * len(self._new) + 4 * self._added

    def fold(self, share: float) -> None:
        """Move new rows to those that are kept, once they are more than a share of them.

        Kept rows take a tenth of the memory: a new term has a dictionary's entry and an array of its own. As this takes
        time that grows with all rows, it waits for a share of them, and so takes about the same per row.
        """
        if self._added > share * len(self._kept):
            folded = self.from_arrays(self.arrays())
            self._vocabulary, self._kept, self._starts = folded._vocabulary, folded._kept, folded._starts
            self._new, self._added = {}, 0

    def add(self, row: int, document: Mapping[str, int]) -> None:
        """Append a row, given as its terms and their frequencies.

        Raises:
            OverflowError: the session holds more than `MAX_ROWS` messages.
        """
        if row >= MAX_ROWS:
            raise OverflowError(f"a session holds at most {MAX_ROWS:,} messages")
        for term, frequency in document.items():
            self._new.setdefault(term, array("I")).append(row << 8 | min(frequency, MAX_FREQUENCY))
        self._added += len(document)

    def of_any(self, terms: Sequence[str]) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.integer[Any]]]:
        """Return the rows that hold any of some terms in ascending order, and how often each holds them."""
        if len(terms) == 1:
            return self.of(terms[0])
        parts = [self.of(term) for term in terms]
        rows, which = np.unique(np.concatenate([rows for rows, _ in parts]), return_inverse=True)
        frequencies = np.concatenate([frequency for _, frequency in parts])
        return rows, np.bincount(which, frequencies, len(rows)).astype(np.int64)

    def of(self, term: str) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.uint8]]:
        """Return the rows of a term in ascending order, and its frequency in each."""
        number = self._vocabulary.find(term)
        packed = self._kept[self._starts[number] : self._starts[number + 1]] if number >= 0 else self._kept[:0]
        if term in self._new:
            packed = np.concatenate([packed, np.array(self._new[term], dtype=np.uint32)])
        return (packed >> 8).astype(np.int32), (packed & MAX_FREQUENCY).astype(np.uint8)

    def arrays(self, prefix: str = "") -> dict[str, npt.NDArray[np.generic]]:
        """Return the postings as plain arrays for a snapshot, whose names begin with a prefix."""
        text, sizes, postings = self._folded()
        return {f"{prefix}vocabulary": text, f"{prefix}sizes": sizes.astype(np.int32), f"{prefix}postings": postings}

    def _folded(self) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64], Packed]:
        """Return the text of the vocabulary, the number of rows of each of its terms, and all of these."""
        if not self._new:
            return self._vocabulary.text, np.diff(self._starts), self._kept
        kept = self._vocabulary.terms()
        terms = sorted([*kept, *sorted(self._new.keys() - set(kept))])
        numbers = {term: number for number, term in enumerate(terms)}
        kept_numbers = np.fromiter((numbers[term] for term in kept), np.int64, len(kept))
        sizes = np.zeros(len(terms), dtype=np.int64)
        sizes[kept_numbers] = np.diff(self._starts)
        for term, added in self._new.items():
            sizes[numbers[term]] += len(added)
        ends = np.cumsum(sizes)
        joined = np.empty(int(sizes.sum()), dtype=np.uint32)
        shift = (ends - sizes)[kept_numbers] - self._starts[:-1]
        joined[np.arange(len(self._kept)) + np.repeat(shift, np.diff(self._starts))] = self._kept
        for term, added in self._new.items():
            end = ends[numbers[term]]
            joined[end - len(added) : end] = added
        return Vocabulary.of(terms).text, sizes, joined

    @classmethod
    def from_arrays(cls, arrays: Arrays, prefix: str = "") -> "Postings":
        """Return the postings that `arrays` was made from, without copying."""
        postings = cls()
        postings._vocabulary = Vocabulary(np.asarray(arrays[f"{prefix}vocabulary"], dtype=np.uint8))
        postings._kept = np.asarray(arrays[f"{prefix}postings"], dtype=np.uint32)
        postings._starts = np.append(0, np.cumsum(arrays[f"{prefix}sizes"], dtype=np.int64))
        return postings
