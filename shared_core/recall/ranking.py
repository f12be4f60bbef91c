"""Rank what was said by how well it answers a question: words and meaning together."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from shared_core.base import Vectors
from shared_core.index.lines import LinePrefix
from shared_core.index.session_index import SessionIndex
from shared_core.index.session_vectors import SessionVectors
from shared_core.messages import Message
from shared_core.recall.query import Query

__all__ = ["Ranked", "Ranking", "RecallUnit", "Scope", "ScoredMessage", "Source", "rank"]

Ranking = Literal["hybrid", "dense", "lexical"]
Source = Literal["lexical", "dense", "both"]
RecallUnit = Literal["message", "turn"]

POOL = 100
"""Candidates of each list over whose union scores are normalised; 50 to 200 differ by less than .5 points."""

SPEAKER_BOOST = 1.2
"""Added when the question names one participant, who said it (+1.5 points of evidence at 1,000 tokens)."""

DATE_BOOST = 2.5
"""Added, times the match, when the question names a date (+1 to +1.5 points)."""

MIN_LEXICAL = 0.1
"""Share of a question's informative words that a message must match if its vector does not speak for it.

Measured on LoCoMo, BEAM and QMSum without vectors, beside .3: 9 points more of the evidence in 1,000 tokens, as many
greetings that find something (53 and 50 %), and more questions about something else (82 and 36 %).
"""

GROUP = 32
"""Values looked at together in the search for the largest of many."""

Mask = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class ScoredMessage:
    """A message found by `search`.

    Attributes:
        message: what was said.
        score: higher is better; comparable within one result only.
        source: which index found it.
        lexical: share of the question's informative words it matches, about 0 to 1.
        dense: cosine with the question, None without a vector.
    """

    message: Message
    score: float
    source: Source
    lexical: float
    dense: float | None


@dataclass(frozen=True)
class Scope:
    """One session's part of what may be recalled.

    Attributes:
        index: its rows.
        vectors: its vectors, None for words alone.
        line: the path searched, up to the question.
        eligible: which places of the line may be found, shape (line.upto,).
        unit: whether single messages or whole turns are found.
    """

    index: SessionIndex
    vectors: SessionVectors | None
    line: LinePrefix
    eligible: Mask
    unit: RecallUnit = "message"

    def findable(self) -> Mask:
        """Return which rows of the index have the vector of a unit that may be found."""
        mask = self._findable
        later = len(self.index) - len(mask)  # rows that another caller has added since
        return np.pad(mask, (0, later)) if later else mask

    @cached_property
    def _findable(self) -> Mask:
        places = self.eligible
        if self.unit == "turn":
            places = np.zeros(self.line.upto, dtype=np.bool_)
            places[self.units(np.flatnonzero(self.eligible))] = True
        return self.line.across(places, len(self.index))

    def units(self, places: npt.NDArray[np.integer]) -> npt.NDArray[np.int64]:
        """Return the place whose vector stands for each place's unit: itself, or the last of its turn."""
        if self.unit == "message":
            return places.astype(np.int64)
        ends: npt.NDArray[np.int64] = self.line.line.turn_ends[places].astype(np.int64)
        # A reply that came after the question is not part of what the question can find.
        late = np.flatnonzero(ends >= self.line.upto)
        turns = self._turns(places[late])
        for turn in np.unique(turns).tolist():
            ends[late[turns == turn]] = self._members(turn)[-1]
        return ends

    def best(self, units: npt.NDArray[np.int64], scores: Floats) -> npt.NDArray[np.int64]:
        """Return the eligible place with the highest score of each unit, of equals the newest."""
        if self.unit == "message":
            return units
        eligible = [[p for p in self._members(turn) if self.eligible[p]] for turn in self._turns(units).tolist()]
        return np.array([max(places, key=lambda place: (scores[place], place)) for places in eligible], dtype=np.int64)

    def _turns(self, places: npt.NDArray[np.integer]) -> npt.NDArray[np.int64]:
        turns: npt.NDArray[np.int64] = self.index.column("turns")[self.line.rows[places]]
        return turns

    def _members(self, turn: int) -> list[int]:
        return [place for place in self.line.line.of_turn(turn) if place < self.line.upto]


class Ranked(NamedTuple):
    """A place found, with its scores; `weak` if it does not match well enough to be brought back.

    Of a turn it is the place of the message whose words match best.
    """

    scope: int
    place: int
    score: float
    lexical: float
    dense: float | None
    weak: bool


def rank(
    query: Query, scopes: Sequence[Scope], vector: Vectors | None, *, ranking: Ranking, floor: float,
    min_lexical: float, weight: float, pool: int = POOL,
) -> list[Ranked]:  # fmt: skip
    """Return the best places of all scopes, best first; weak ones among them, marked.

    The score is z(lexical) + weight · z(dense), each normalised over the union of the best of both lists, plus boosts
    for a named speaker and a named date. The scope is applied before the best are taken, never after.

    Args:
        query: the question.
        scopes: where to look.
        vector: the question's unit vector; None: words alone.
        ranking: which lists count.
        floor: cosine a place must reach, unless its words match.
        min_lexical: share of the question's words a place must match, unless its cosine is high enough.
        weight: how much meaning counts against words.
        pool: how many of each list are looked at.
    """
    parts = [_candidates(number, query, scope, vector, ranking, pool) for number, scope in enumerate(scopes)]
    found = _Pool(*(np.concatenate(columns) for columns in zip(*parts, strict=True))) if parts else None
    if found is None or not len(found.places):
        return []
    dense_known = np.isfinite(found.dense)
    if ranking == "dense":
        score = np.where(dense_known, found.dense, -1.0)
    else:
        score = _z(found.lexical) + (weight * _z(found.dense) if ranking == "hybrid" else 0.0)
        score = score + SPEAKER_BOOST * found.named + DATE_BOOST * found.dated
    weak = _weak(found, ranking, floor, min_lexical)
    order = np.lexsort((-found.places, -score))
    columns = (found.scopes, found.places, score, found.lexical, found.dense, dense_known, weak)
    return [
        Ranked(scope, place, value, lexical, dense if known else None, weakly)
        for scope, place, value, lexical, dense, known, weakly in zip(
            *(c[order].tolist() for c in columns), strict=True
        )
    ]


@dataclass(frozen=True, slots=True)
class _Pool:
    scopes: npt.NDArray[np.int64]
    places: npt.NDArray[np.int64]
    lexical: Floats
    dense: Floats
    named: Floats
    dated: Floats


def _candidates(
    number: int, query: Query, scope: Scope, vector: Vectors | None, ranking: Ranking, pool: int
) -> tuple[npt.NDArray[np.generic], ...]:
    line, index = scope.line, scope.index
    scores = index.lexical.score(query.terms if ranking != "dense" else (), line, line.terms)
    shares = scores.values / max(scores.ceiling, 1e-9)
    units = [scope.units(_best(shares * scope.eligible, pool))]
    searched = vector if ranking != "lexical" and scope.vectors is not None else None
    if searched is not None:
        units.append(_nearest(scope, searched, pool))
    found = np.unique(np.concatenate(units))
    dense = np.full(len(found), np.nan, dtype=np.float32)
    if searched is not None and scope.vectors is not None:
        dense = scope.vectors.vectors.cosines(searched, line.rows[found])
    places = scope.best(found, shares)
    rows = line.rows[places]
    speakers = [index.names.index(name) for name in query.speakers if name in index.names]
    named = np.isin(index.column("speakers")[rows], speakers) if len(speakers) == 1 else np.zeros(len(rows))
    dated = query.date_matches(index.column("times")[rows])
    return np.full(len(places), number), places, shares[places], dense, named.astype(np.float32), dated


def _best(values: Floats, count: int) -> npt.NDArray[np.int64]:
    """Return the indices of the largest positive values, at most `count`, largest first; of equals the last first."""
    # A common word matches much of a long history. So many groups reach the bound by their largest value, that what is
    # below it cannot be among the best.
    groups = len(values) // GROUP
    largest = values[: groups * GROUP].reshape(GROUP, groups).max(axis=0)
    bound = np.partition(largest, -count)[-count] if groups > count else 0
    candidates = np.flatnonzero(values >= bound if bound > 0 else values > 0)
    if len(candidates) > count:
        candidates = candidates[values[candidates] >= np.partition(values[candidates], -count)[-count]]
    return candidates[np.lexsort((-candidates, -values[candidates]))][:count]


def _nearest(scope: Scope, vector: Vectors, pool: int) -> npt.NDArray[np.int64]:
    """Return the places whose vectors are nearest."""
    assert scope.vectors is not None
    rows, _ = scope.vectors.vectors.search(vector, pool, scope.findable())
    return scope.line.places(rows).astype(np.int64)


def _z(values: Floats) -> Floats:
    """Return standard scores; a value that is not known counts as the mean."""
    known = np.isfinite(values)
    if not known.any():
        return np.zeros_like(values)
    mean, deviation = values[known].mean(), values[known].std()
    scores: Floats = np.where(known, (values - mean) / max(float(deviation), 1e-6), 0.0).astype(np.float32)
    return scores


def _weak(found: _Pool, ranking: Ranking, floor: float, min_lexical: float) -> Mask:
    near = np.nan_to_num(found.dense, nan=-1.0) >= floor
    if ranking == "dense":
        # The threshold opens only above itself: with nothing better than exactly the floor, nothing is brought back.
        beyond = bool(np.any(np.nan_to_num(found.dense, nan=-1.0) > floor))
        return ~near | (not beyond)
    matches = found.lexical >= min_lexical
    return ~matches if ranking == "lexical" else ~(near | matches)
