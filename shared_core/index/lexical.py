"""BM25 over the messages of a session, in which a message is also found by the words of its neighbours."""

import hashlib
from array import array
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import log1p
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from shared_core.index.arrays import Arrays, GrowingArray, distinct
from shared_core.index.lines import LinePrefix

K1 = 0.9
"""BM25's saturation of the term frequency (Robertson and Zaragoza 2009), measured on three data sets."""

B = 0.75
"""BM25's length normalisation. .4 is as good on short chat but loses 12 points of evidence on long replies."""

NEIGHBOURS = {1: 0.7, 2: 0.4, 3: 0.2, -1: 0.4, -2: 0.2}
"""The share of a term's frequency that a message lends to the one k later (k < 0: earlier) in its sitting."""

FADE_TERMS = 20
"""A message with more terms than this takes less from its neighbours, as its own words say what it is about."""

CELLS = 1 << 16
"""Terms are scored together as long as terms times messages stay below this. For few messages NumPy's calls cost more
than the arithmetic; for many, arrays that fit the processor's cache are faster."""

BLOCK = 4
"""Messages scored together; at least as many as `NEIGHBOURS` reaches. Larger blocks have looser bounds: with blocks of
16, a question to 1,000,000 messages would score half of them."""

SHORT = 3_072
"""A line of at most this many blocks is scored whole, which takes no longer than choosing blocks."""

FIRST = 4
"""The most promising blocks per result asked for. They are scored first; their values rule out most other blocks."""

LEVELS = 1_024
"""Levels into which bounds are sorted to find the largest ones."""

ROUNDING = 1e-4
"""The relative rounding error that a sum may have."""

Ints = npt.NDArray[np.int32]
Indices = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float32]
Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class _Hits:
    """The occurrences of terms on a line, term by term: index, frequency over the length norm, number of the term."""

    indices: Indices
    weights: Floats
    terms: Indices


class LexicalScores:
    """BM25 of the messages of a line, computed block by block on demand.

    Attributes:
        ceiling: the sum of the terms' idf. A value divided by it is about the share of the question that is matched.
    """

    def __init__(self, hits: _Hits, idf: Sequence[float], line: LinePrefix, lengths: Ints) -> None:
        self.ceiling = sum(idf, 0.0)
        self._hits = hits
        self._idf = np.array(idf, dtype=np.float32)
        self._ends = np.searchsorted(hits.terms, np.arange(len(idf) + 1))
        self._blocks = hits.indices // BLOCK
        self._line = line
        self._lengths = lengths
        blocks = -(-line.upto // BLOCK)
        self._first = np.full(blocks, -1, dtype=np.int64)  # each block's first cell, -1 if not scored yet
        self._indices: GrowingArray[np.int64] = GrowingArray(np.int64)
        self._values: GrowingArray[np.float32] = GrowingArray(np.float32)
        self._present: GrowingArray[np.float32] = GrowingArray(np.float32)

    @property
    def values(self) -> Floats:
        """BM25 of every message, shape (line.upto,), 0 where nothing matches."""
        return self.at(np.arange(self._line.upto))[0]

    def at(self, indices: Indices) -> tuple[Floats, Floats]:
        """Return BM25 at some indices, and the sum of the idf of the terms that occur there, regardless of length."""
        blocks = indices // BLOCK
        self._work_out(blocks)
        cells = self._first[blocks] + indices % BLOCK
        return self._values.values[cells], self._present.values[cells]

    def best(self, count: int, allowed: Mask) -> Indices:
        """Return the indices of the `count` largest positive values, largest first; of equal values, the last first.

        Args:
            count: how many, at least 1.
            allowed: which indices may be returned, shape (line.upto,).
        """
        least, blocks = np.float32(0), np.arange(len(self._first))
        if len(blocks) > max(count, SHORT):
            bounds = self._bounds()
            self._work_out(_promising(bounds, FIRST * count))
            values = self._known(least, allowed)[1]
            least = np.partition(values, -count)[-count] if len(values) >= count else least
            blocks = np.flatnonzero((bounds > 0) & (bounds >= least))
        self._work_out(blocks)
        indices, values = self._known(least, allowed)
        if len(values) > count:  # sort those only that may be among the best
            top = np.flatnonzero(values >= np.partition(values, -count)[-count])
            indices, values = indices[top], values[top]
        return indices[np.lexsort((-indices, -values))][:count]

    def _known(self, least: np.float32, allowed: Mask) -> tuple[Indices, Floats]:
        """Return the allowed indices scored so far with a positive value of at least `least`, and their values."""
        values = self._values.values
        cells = np.flatnonzero((values > 0) & (values >= least))
        cells = cells[allowed[self._indices.values[cells]]]
        return self._indices.values[cells], values[cells]

    def _bounds(self) -> Floats:
        """Return an upper bound of the values in each block."""
        ahead = np.float32(max((share for offset, share in NEIGHBOURS.items() if offset > 0), default=0))
        behind = np.float32(max((share for offset, share in NEIGHBOURS.items() if offset < 0), default=0))
        # One room for all terms: in a long history, allocating memory for each would cost more than the sums.
        bounds, lent, said, most = np.zeros((4, len(self._first)), dtype=np.float32)
        for idf, start, end in zip(self._idf, self._ends, self._ends[1:], strict=False):
            said[:] = 0
            np.add.at(said, self._blocks[start:end], self._hits.weights[start:end])
            # A message has at most the weight of its whole block plus what the adjacent blocks may lend.
            most[:] = said
            most[1:] += np.multiply(said[:-1], ahead, out=lent[1:])
            most[:-1] += np.multiply(said[1:], behind, out=lent[:-1])
            bounds += _saturated(most, idf, lent)
        bounds *= np.float32(1 + ROUNDING)
        return bounds

    def _work_out(self, blocks: Indices) -> None:
        """Score the blocks that are not scored yet."""
        new = distinct(blocks[self._first[blocks] < 0])
        if not len(new):
            return
        if len(new) == len(self._first):  # nothing to choose, as in a short line
            values, present = self._score(self._hits, self._hits.indices, np.arange(self._line.upto))
            self._first = BLOCK * np.arange(len(new))
            self._keep(np.arange(self._line.upto), values, present)
            return
        # With their adjacent blocks, the new blocks form a shorter line. Where its pieces meet, messages lend terms to
        # strangers, but only in the adjacent blocks, whose values are not kept.
        around = distinct(np.concatenate([new - 1, new, new + 1]))
        around = around[(around >= 0) & (around < len(self._first))]
        indices = (around[:, np.newaxis] * BLOCK + np.arange(BLOCK)).ravel()
        indices = indices[: np.searchsorted(indices, self._line.upto)]
        near = np.zeros(len(self._first), dtype=np.bool_)
        near[around] = True
        inside = np.flatnonzero(near[self._blocks])
        cells = around.searchsorted(self._blocks[inside]) * BLOCK + self._hits.indices[inside] % BLOCK
        hits = _Hits(self._hits.indices[inside], self._hits.weights[inside], self._hits.terms[inside])
        values, present = self._score(hits, cells, indices)
        near[new] = False
        kept = np.flatnonzero(~near[indices // BLOCK])
        self._first[new] = len(self._values) + BLOCK * np.arange(len(new))
        self._keep(indices[kept], values[kept], present[kept])

    def _keep(self, indices: Indices, values: Floats, present: Floats) -> None:
        self._indices.extend(indices)
        self._values.extend(values)
        self._present.extend(present)

    def _score(self, hits: _Hits, cells: Indices, indices: Indices) -> tuple[Floats, Floats]:
        """Return what `at` returns, for messages at some indices as a line of their own; hits are in its `cells`."""
        terms, weights = hits.terms, hits.weights
        lending = _lending(self._line.sittings[indices], _fades(self._lengths[self._line.rows[indices]]))
        values = np.zeros(len(indices), dtype=np.float32)
        together = max(1, CELLS // len(indices))
        for first in range(0, len(self._idf), together):
            idf = self._idf[first : first + together]
            start, end = np.searchsorted(terms, (first, first + together))
            own = np.zeros((len(idf), len(indices)), dtype=np.float32)
            own[terms[start:end] - first, cells[start:end]] = weights[start:end]
            for score in _saturated(_with_neighbours(own, lending), idf[:, np.newaxis]):
                values += score
        present = np.bincount(cells, self._idf[terms], len(indices))
        return values, present.astype(np.float32)


def _lending(sittings: Ints, fades: Floats) -> list[tuple[slice, slice, Floats]]:
    """Return for each of `NEIGHBOURS` which messages lend, which take, and the share of a term's weight."""
    size, lending = len(sittings), []
    ends = np.flatnonzero(sittings[1:] != sittings[:-1]) + 1  # where other sittings begin
    for offset, share in NEIGHBOURS.items():
        lenders = slice(max(0, -offset), max(0, size - max(0, offset)))
        takers = slice(max(0, offset), max(0, size - max(0, -offset)))
        shares = np.float32(share) * fades[takers]
        # A message is near unless a sitting begins between. Sittings are few, so this is faster than comparing all.
        for step in range(abs(offset)):
            cut = ends - abs(offset) + step
            shares[cut[(cut >= 0) & (cut < len(shares))]] = 0
        lending.append((lenders, takers, shares))
    return lending


def _with_neighbours(own: Floats, lending: Sequence[tuple[slice, slice, Floats]]) -> Floats:
    """Return the weights of terms, shape (terms, messages), with the shares that neighbours lend."""
    weights, lent = own.copy(), np.empty_like(own)
    for lenders, takers, shares in lending:
        # Into a buffer: allocating memory costs more than the sums.
        weights[:, takers] += np.multiply(own[:, lenders], shares, out=lent[:, takers])
    return weights


def _saturated(weights: Floats, idf: Floats | np.float32, room: Floats | None = None) -> Floats:
    """Return what terms add to a score. Overwrites their weights, and `room`, a buffer of the same size."""
    weights /= np.add(weights, np.float32(K1), out=room)
    weights *= idf * np.float32(K1 + 1)
    return weights


def _promising(bounds: Floats, count: int) -> Indices:
    """Return the indices of about `count` of the largest bounds, without zeros; an exact choice takes longer."""
    scale = np.float32(LEVELS / max(float(bounds.max()), 1e-9))
    levels = (bounds * scale).astype(np.int64)
    reached = np.bincount(levels, minlength=LEVELS + 1)[::-1].cumsum()
    return np.flatnonzero((bounds > 0) & (levels >= LEVELS - int(reached.searchsorted(count))))


def _fades(lengths: Ints) -> Floats:
    """Return the share that messages of these lengths take from their neighbours."""
    shares: Floats = np.minimum(np.float32(1), np.float32(FADE_TERMS) / np.maximum(lengths, 1).astype(np.float32))
    return shares


def idf_of(size: int, total: int) -> float:
    """Return the weight of a term that `size` of `total` messages contain."""
    return log1p((total - size + 0.5) / (size + 0.5)) if total else 0.0


class Occurrences(NamedTuple):
    """How many messages and terms some lines hold, and in how many of the messages each of some terms occurs."""

    messages: int
    terms: int
    sizes: Mapping[str, int]

    @classmethod
    def joined(cls, parts: Sequence["Occurrences"]) -> "Occurrences":
        """Return those of several lines together."""
        sizes = Counter[str]()
        for part in parts:
            sizes.update(part.sizes)
        return cls(sum(part.messages for part in parts), sum(part.terms for part in parts), sizes)


FREQUENCY_BITS = 8
MAX_FREQUENCY = (1 << FREQUENCY_BITS) - 1
MAX_ROWS = 1 << 24
"""A posting has 32 bits: the row in the upper 24, the frequency in the lower 8."""

Packed = npt.NDArray[np.uint32]


@lru_cache(maxsize=8_192)  # people ask about the same words, and about nearly the same turns
def code_of(text: str) -> int:
    """Return a 64-bit hash, which stands for a term.

    Of a million terms, two have the same one with a chance of 1 in 37 million; one of them may then not be found.
    """
    digest = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "little", signed=True)


def find(codes: npt.NDArray[np.int64], code: int) -> int:
    """Return the index of a code among ascending ones, -1 if it is not there.

    Filling a dictionary with a million of them would take longer than reading everything else of a snapshot.
    """
    index = int(codes.searchsorted(code))
    return index if index < len(codes) and codes[index] == code else -1


class LexicalIndex:
    """The terms of texts: the rows and frequencies of each term, in order of rows.

    Rows are numbered from 0 as they are added. A 64-bit hash stands for a term. Those from a snapshot stay one array:
    splitting it for a million terms takes ten times as long as reading it.
    """

    def __init__(self) -> None:
        self._lengths: GrowingArray[np.int32] = GrowingArray(np.int32)
        self._codes = np.empty(0, dtype=np.int64)  # of the terms, ascending
        self._starts = np.zeros(1, dtype=np.int64)
        self._kept: Packed = np.empty(0, dtype=np.uint32)
        self._new: dict[str, array[int]] = {}
        self._added = 0

    def __len__(self) -> int:
        return len(self._lengths)

    @property
    def size(self) -> int:
        """How many rows of terms there are, of all terms together."""
        return len(self._kept) + self._added

    @property
    def lengths(self) -> Ints:
        """The number of terms per row."""
        return self._lengths.values

    def fold(self, share: float) -> None:
        """Move new rows to those that are kept, once they are more than a share of them.

        Kept rows take a tenth of the memory: a new term has a dictionary's entry and an array of its own. As this takes
        time that grows with all rows, it waits for a share of them, and so takes about the same per row.
        """
        if self._added > share * len(self._kept):
            self._codes, self._starts, self._kept = self._folded()
            self._new, self._added = {}, 0

    def add(self, documents: Iterable[Mapping[str, int]]) -> None:
        """Append rows, each given as its terms and their frequencies.

        Raises:
            OverflowError: the session holds more than `MAX_ROWS` messages.
        """
        lengths: list[int] = []
        for row, document in enumerate(documents, start=len(self)):
            if row >= MAX_ROWS:
                raise OverflowError(f"a session holds at most {MAX_ROWS:,} messages")
            for term, frequency in document.items():
                self._new.setdefault(term, array("I")).append(row << FREQUENCY_BITS | min(frequency, MAX_FREQUENCY))
            self._added += len(document)
            lengths.append(sum(document.values()))
        self._lengths.extend(lengths)

    def of_any(self, terms: Sequence[str]) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.integer[Any]]]:
        """Return the rows that hold any of some terms in ascending order, and how often each holds them."""
        if len(terms) == 1:
            return self.of(terms[0])
        rows, frequencies = (np.concatenate(column) for column in zip(*map(self.of, terms), strict=True))
        order = np.argsort(rows, kind="stable")  # in little time, as the rows of each term ascend
        begins = np.flatnonzero(np.diff(rows[order], prepend=-1))
        return rows[order][begins], np.add.reduceat(frequencies[order], begins, dtype=np.int64)

    def on_line(
        self, terms: Sequence[str], line: LinePrefix
    ) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32], npt.NDArray[np.integer[Any]]]:
        """Return the rows of a line that hold any of some terms, their indices, and how often each holds them."""
        rows, frequency = self.of_any(terms)
        if line.line.plain:
            rows = rows[: rows.searchsorted(np.int32(line.upto))]
            return rows, rows, frequency[: len(rows)]
        indices = line.indices(rows)
        there = np.flatnonzero((indices >= 0) & (indices < line.upto))
        return rows[there], indices[there], frequency[there]

    def of(self, term: str) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.uint8]]:
        """Return the rows of a term in ascending order, and its frequency in each."""
        number = find(self._codes, code_of(term))
        packed = self._kept[self._starts[number] : self._starts[number + 1]] if number >= 0 else self._kept[:0]
        if term in self._new:
            packed = np.concatenate([packed, np.array(self._new[term], dtype=np.uint32)])
        return (packed >> FREQUENCY_BITS).astype(np.int32), (packed & MAX_FREQUENCY).astype(np.uint8)

    def score(
        self, query: Iterable[str], line: LinePrefix, *, borrowed: Mapping[str, float] | None = None,
        forms: Mapping[str, Sequence[str]] | None = None, beside: Occurrences | None = None,
    ) -> LexicalScores:  # fmt: skip
        """Return context-weighted BM25 along a line.

        A message's term frequency is its own over its length norm, plus the shares in `NEIGHBOURS` of those around it
        (as BM25F weighs fields). Document frequencies and lengths are those of the line, so that other branches and
        later messages change nothing.

        Args:
            query: terms; repeated ones count once.
            line: the messages to score.
            borrowed: further terms, and how much each counts against one of the query. Those of the query count as 1.
            forms: other terms that count as the same as one of the query, as a word has in other languages.
            beside: what other lines hold that are searched at the same time, so that a term weighs the same on each.
        """
        beside = beside or Occurrences(0, 0, {})
        count = line.upto + beside.messages
        mean = max((line.terms + beside.terms) / count, 1.0) if count else 1.0
        weights = {**(borrowed or {}), **dict.fromkeys(query, 1.0)}
        forms = forms or {}
        found = [self._on_line((term, *forms.get(term, ())), line, mean) for term in sorted(weights)]
        sizes = [len(indices) for indices, _ in found]
        hits = _Hits(
            np.concatenate([np.empty(0, np.int64), *(indices for indices, _ in found)]),
            np.concatenate([np.empty(0, np.float32), *(weights for _, weights in found)]),
            np.repeat(np.arange(len(found)), sizes),
        )
        with_others = [size + beside.sizes.get(term, 0) for term, size in zip(sorted(weights), sizes, strict=True)]
        idf = [weights[term] * idf_of(size, count) for term, size in zip(sorted(weights), with_others, strict=True)]
        return LexicalScores(hits, idf, line, self.lengths)

    def occurrences(self, terms: Iterable[str], line: LinePrefix, forms: Mapping[str, Sequence[str]]) -> Occurrences:
        """Return what a line holds of some terms, each counted together with its forms."""
        sizes = {term: len(self.on_line((term, *forms.get(term, ())), line)[1]) for term in terms}
        return Occurrences(line.upto, line.terms, sizes)

    def occurs(self, term: str, line: LinePrefix) -> bool:
        """Return whether a message of a line contains a term."""
        rows, _ = self.of(term)
        indices = line.indices(rows)
        return bool(np.any((indices >= 0) & (indices < line.upto)))

    def holding(self, term: str, line: LinePrefix) -> Indices:
        """Return the messages of a line that hold a term."""
        return self.on_line((term,), line)[1].astype(np.int64)

    def _on_line(self, terms: Sequence[str], line: LinePrefix, mean: float) -> tuple[Indices, Floats]:
        """Return the indices at which any of some terms occurs on a line, and their frequency over the length norm."""
        rows, indices, frequency = self.on_line(terms, line)
        weights = frequency.astype(np.float32)
        weights /= np.float32(1 - B) + np.float32(B / mean) * self.lengths[rows].astype(np.float32)
        # NumPy indexes twice as fast with 64-bit integers as with 32-bit ones.
        return indices.astype(np.int64), weights

    def _folded(self) -> tuple[Indices, Indices, Packed]:
        """Return the codes of all terms, where the rows of each begin, and the rows."""
        new = {code_of(term): added for term, added in self._new.items()}
        new_codes, new_sizes = np.fromiter(new, np.int64, len(new)), [len(added) for added in new.values()]
        codes = distinct(np.append(self._codes, new_codes))
        old, at = codes.searchsorted(self._codes), codes.searchsorted(new_codes)
        sizes = np.zeros(len(codes), dtype=np.int64)
        sizes[old] = np.diff(self._starts)
        sizes[at] += np.array(new_sizes, dtype=np.int64)
        starts = np.append(0, np.cumsum(sizes))
        joined = np.empty(starts[-1], dtype=np.uint32)
        moved = np.repeat(starts[old] - self._starts[:-1], np.diff(self._starts))
        joined[np.arange(len(self._kept)) + moved] = self._kept
        for end, added in zip(starts[at + 1].tolist(), new.values(), strict=True):
            joined[end - len(added) : end] = added
        return codes, starts, joined

    def arrays(self, prefix: str = "") -> Arrays:
        """Return the index as plain arrays for a snapshot, whose names begin with a prefix."""
        codes, starts, postings = self._folded()
        arrays: Arrays = {"lengths": self.lengths, "terms": codes, "starts": starts, "postings": postings}
        return {prefix + name: values for name, values in arrays.items()}

    @classmethod
    def from_arrays(cls, arrays: Arrays, prefix: str = "") -> "LexicalIndex":
        """Return the index that `arrays` was made from, without copying."""
        index = cls()
        index._lengths = GrowingArray.of(arrays[f"{prefix}lengths"])
        index._codes, index._starts = arrays[f"{prefix}terms"], arrays[f"{prefix}starts"]
        index._kept = arrays[f"{prefix}postings"]
        return index
