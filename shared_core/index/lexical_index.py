"""A BM25 index in which a message is also found by what its neighbours say."""

from array import array
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

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

Ints = npt.NDArray[np.int32]
Floats = npt.NDArray[np.float32]


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

    def along(self, column: Ints) -> Ints:
        """Return the values at the first `upto` places, given one for each row."""


@dataclass(frozen=True, slots=True)
class LexicalScores:
    """BM25 of every place of a line.

    Attributes:
        values: shape (line.upto,), 0 where nothing matches.
        ceiling: the sum of the terms' idf; `values / ceiling` is about the share of the question that a place matches.
    """

    values: Floats
    ceiling: float


class LexicalIndex:
    """Postings of rows that are numbered from 0 in the order they are added; at most 2**24 rows."""

    def __init__(self) -> None:
        # One posting is 32 bits: the row in the upper 24, the frequency in the lower 8.
        self._postings: dict[str, array[int]] = {}
        self._lengths: Growing[np.int32] = Growing(np.int32)

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
        self._lengths.extend(lengths)

    def score(self, query: Iterable[str], line: Line) -> LexicalScores:
        """Return context-weighted BM25 along a line.

        The term frequency of a message is its own, divided by its own length norm, plus `NEIGHBOURS` of those around it
        (as BM25F weighs fields). Document frequencies and lengths are those of the line, so that other branches and
        later messages change nothing.

        Args:
            query: terms; repeated ones count once.
            line: the messages in question.
        """
        total = np.zeros(line.upto, dtype=np.float32)
        lengths = line.along(self.lengths)
        mean = max(float(lengths.mean()), 1.0) if line.upto else 1.0
        ceiling = 0.0
        buffer = np.zeros_like(total)
        for term in sorted(set(query)):
            places, frequency = self._on_line(term, line)
            idf = float(np.log1p((line.upto - len(places) + 0.5) / (len(places) + 0.5))) if line.upto else 0.0
            ceiling += idf
            if len(places):
                norm = 1 - B + B * lengths[places] / mean
                _spread(total, buffer, places, (frequency / norm).astype(np.float32), line.sittings, lengths, idf)
        return LexicalScores(total, ceiling)

    def _on_line(self, term: str, line: Line) -> tuple[Ints, Ints]:
        posting = self._postings.get(term)
        packed = np.array(posting if posting is not None else (), dtype=np.uint32)
        places = line.places((packed >> 8).astype(np.int32))
        on_line = (places >= 0) & (places < line.upto)
        return places[on_line], (packed & MAX_FREQUENCY).astype(np.int32)[on_line]

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
        index._lengths = Growing(np.int32, arrays["lengths"])
        text = arrays["vocabulary"].tobytes().decode("utf-8", "surrogatepass")
        if text:  # rows without a term, such as one "ok", leave no vocabulary
            parts = np.split(arrays["postings"], np.cumsum(arrays["sizes"])[:-1])
            for term, part in zip(text.split("\n"), parts, strict=True):
                index._postings[term] = array("I", part.astype(np.uint32).tobytes())
        return index


def _spread(
    total: Floats, buffer: Floats, places: Ints, weights: Floats, sittings: Ints, lengths: Ints, idf: float
) -> None:
    """Add one term's saturated score to `total`, at its places and at their neighbours; `buffer` is and stays zero."""
    buffer[places] = weights
    touched = [places]
    for offset, share in NEIGHBOURS.items():
        target = places + offset
        inside = (target >= 0) & (target < len(total))
        source, target, lent = places[inside], target[inside], weights[inside]
        near = sittings[source] == sittings[target]
        target, lent = target[near], lent[near]
        # Within one offset every target occurs once, so plain indexing adds correctly.
        fade = np.minimum(np.float32(1), np.float32(FADE_TERMS) / np.maximum(lengths[target], 1))
        buffer[target] += np.float32(share) * lent * fade
        touched.append(target)
    for target in touched:
        frequency = buffer[target]
        total[target] += idf * (K1 + 1) * frequency / (frequency + K1)
        buffer[target] = 0  # a place touched twice is scored once
