"""A BM25 index in which a message is also found by what its neighbours say."""

from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from shared_core.index.arrays import Growing

__all__ = ["LexicalIndex", "LexicalScores", "Line"]

K1 = 0.9
"""BM25's saturation of the term frequency (spec of BM25: Robertson and Zaragoza 2009); measured on three data sets."""

B = 0.75
"""BM25's length normalisation; .4 is as good on short chat and loses 12 points of evidence on long replies."""

NEIGHBOURS = {1: 0.7, 2: 0.4, 3: 0.2, -1: 0.4, -2: 0.2}
"""How much of a term's frequency a message lends to the one k places after it (k < 0: before), in one sitting."""

FADE_TERMS = 20
"""A message with more terms than this takes less from its neighbours: it says what it is about by itself."""

MAX_ROWS = 1 << 24
MAX_FREQUENCY = 255

CELLS = 1 << 19
"""Terms are spread together as long as terms times places are no more than this: NumPy's calls cost more than the work
in a short history, and memory counts in a long one."""

Ints = npt.NDArray[np.int32]
Places = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float32]
Scalar = TypeVar("Scalar", bound=np.generic)


class Line(Protocol):
    """An ordered run of rows: a path through the tree, of which the first `upto` places count."""

    @property
    def upto(self) -> int:
        """How many places count."""

    @property
    def rows(self) -> Ints:
        """The row at each place."""

    @property
    def sittings(self) -> Ints:
        """The sitting each place belongs to; neighbours lend terms within one sitting only."""

    def places(self, rows: Ints) -> Ints:
        """Return the place of each row, -1 where it is not on the line."""

    def along(self, column: npt.NDArray[Scalar]) -> npt.NDArray[Scalar]:
        """Return the values at the first `upto` places, given one for each row."""


@dataclass(frozen=True, slots=True)
class LexicalScores:
    """BM25 of every place of a line.

    Attributes:
        values: shape (line.upto,), 0 where nothing matches.
        present: the sum of the idf of the terms that occur there, however long the message is.
        ceiling: the sum of the terms' idf; `values / ceiling` is about the share of the question that a place matches.
    """

    values: Floats
    present: Floats
    ceiling: float


@dataclass(frozen=True, slots=True)
class _Term:
    """Where a term occurs on a line, its frequency there over the length norm, and its idf."""

    places: Places
    weights: Floats
    idf: float


class LexicalIndex:
    """Postings of rows that are numbered from 0 in the order they are added; at most 2**24 rows."""

    def __init__(self) -> None:
        # One posting is 32 bits: the row in the upper 24, the frequency in the lower 8.
        self._postings: dict[str, array[int]] = {}
        self._lengths: Growing[np.int32] = Growing(np.int32)
        self._fades: Growing[np.float64] = Growing(np.float64)

    def __len__(self) -> int:
        return len(self._lengths)

    @property
    def lengths(self) -> Ints:
        """Terms per row."""
        return self._lengths.values

    def add(self, documents: Iterable[Mapping[str, int]]) -> None:
        """Append rows, each given as its terms with their frequency."""
        lengths: list[int] = []
        for row, document in enumerate(documents, start=len(self)):
            if row >= MAX_ROWS:
                raise OverflowError(f"a session holds at most {MAX_ROWS:,} messages")
            for term, frequency in document.items():
                posting = row << 8 | min(frequency, MAX_FREQUENCY)
                self._postings.setdefault(term, array("I")).append(posting)
            lengths.append(sum(document.values()))
        self._measure(lengths)

    def _measure(self, lengths: npt.ArrayLike) -> None:
        """Note how long the next rows are, and how much they take from their neighbours."""
        start = len(self)
        self._lengths.extend(lengths)
        self._fades.extend(np.minimum(np.float32(1), np.float32(FADE_TERMS) / np.maximum(self.lengths[start:], 1)))

    def score(self, query: Iterable[str], line: Line, total: int | None = None) -> LexicalScores:
        """Return context-weighted BM25 along a line.

        The term frequency of a message is its own, divided by its own length norm, plus `NEIGHBOURS` of those around it
        (as BM25F weighs fields). Document frequencies and lengths are those of the line, so that other branches and
        later messages change nothing.

        Args:
            query: terms; repeated ones count once.
            line: the messages in question.
            total: how many terms they have together; None: they are counted.
        """
        lengths = line.along(self.lengths)
        mean = max(int(lengths.sum() if total is None else total) / line.upto, 1.0) if line.upto else 1.0
        found = [self._on_line(term, line, lengths, mean) for term in sorted(set(query))]
        scores = np.zeros(line.upto, dtype=np.float32)
        fades = line.along(self._fades.values)
        matching = [term for term in found if len(term.places)]
        together = max(1, CELLS // max(line.upto, 1))
        for first in range(0, len(matching), together):
            _spread(scores, matching[first : first + together], line.sittings, fades)
        present = np.zeros(line.upto, dtype=np.float32)
        for term in matching:
            present[term.places] += np.float32(term.idf)
        return LexicalScores(scores, present, sum((term.idf for term in found), 0.0))

    def _on_line(self, term: str, line: Line, lengths: Ints, mean: float) -> _Term:
        posting = self._postings.get(term)
        packed = np.array(posting if posting is not None else (), dtype=np.uint32)
        place = line.places((packed >> 8).astype(np.int32))
        on_line = (place >= 0) & (place < line.upto)
        # NumPy indexes with 64 bits twice as fast as with 32.
        places = place[on_line].astype(np.int64)
        frequency = (packed & MAX_FREQUENCY).astype(np.int32)[on_line]
        norm = 1 - B + B * lengths[places] / mean
        idf = float(np.log1p((line.upto - len(places) + 0.5) / (len(places) + 0.5))) if line.upto else 0.0
        return _Term(places, (frequency / norm).astype(np.float32), idf)

    def arrays(self) -> dict[str, npt.NDArray[np.generic]]:
        """Return the index as plain arrays, for a snapshot."""
        vocabulary = "\n".join(self._postings).encode("utf-8", "surrogatepass")
        sizes = [len(posting) for posting in self._postings.values()]
        joined: array[int] = array("I")
        for posting in self._postings.values():
            joined.extend(posting)
        return {
            "lengths": self.lengths,
            "vocabulary": np.frombuffer(vocabulary, dtype=np.uint8),
            "sizes": np.array(sizes, dtype=np.int64),
            "postings": np.array(joined, dtype=np.uint32),
        }

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, npt.NDArray[np.generic]]) -> "LexicalIndex":
        """Return the index that `arrays` came from."""
        index = cls()
        index._measure(arrays["lengths"])
        text = arrays["vocabulary"].tobytes().decode("utf-8", "surrogatepass")
        if text:  # rows without a term, such as one "ok", leave no vocabulary
            parts = np.split(arrays["postings"], np.cumsum(arrays["sizes"])[:-1])
            for term, part in zip(text.split("\n"), parts, strict=True):
                index._postings[term] = array("I", part.astype(np.uint32).tobytes())
        return index


def _spread(total: Floats, terms: Sequence[_Term], sittings: Ints, fades: npt.NDArray[np.float64]) -> None:
    """Add the saturated scores of terms to `total`, at their places and at the neighbours of these."""
    upto, reach = len(total), max(map(abs, NEIGHBOURS))
    places = np.concatenate([term.places for term in terms])
    weights = np.concatenate([term.weights for term in terms])
    # One row of cells for each term, and room on both sides, so that no neighbour is out of bounds.
    starts = reach + upto * np.arange(len(terms) + 1)
    cells = np.concatenate([start + term.places for start, term in zip(starts.tolist(), terms, strict=False)])
    frequency = np.zeros(upto * len(terms) + 2 * reach, dtype=np.float32)
    frequency[cells] = weights
    sitting = sittings[places]
    for offset, share in NEIGHBOURS.items():
        target = places + offset
        near = sittings.take(target, mode="clip") == sitting
        near &= (target < upto) if offset > 0 else (target >= 0)
        # Within one offset every cell occurs once, so plain indexing adds correctly; who is not near lends nothing.
        frequency[cells + offset] += np.float32(share) * weights * fades.take(target, mode="clip") * near
    touched = np.flatnonzero(frequency != 0)
    ends = np.searchsorted(touched, starts).tolist()
    for start, term, first, end in zip(starts.tolist(), terms, ends, ends[1:], strict=False):
        reached = touched[first:end]
        own = frequency[reached]
        total[reached - start] += term.idf * (K1 + 1) * own / (own + K1)
