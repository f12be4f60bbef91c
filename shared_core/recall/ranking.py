"""Rank what was said by how well it answers a question: words, meaning and neighbourhood together."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, overload

import numpy as np
import numpy.typing as npt

from shared_core.base import Vectors
from shared_core.messages import Message
from shared_core.recall.query import Query
from shared_core.recall.scope import Scope
from shared_core.recall.signals import Ranking, Search, Signals

__all__ = ["Opening", "Ranked", "RankedPlaces", "ScoredMessage", "Source", "lifted", "rank", "strength"]

STRONG = 60
"""How many of the best lift what is said around them; in a shorter list nothing is lifted."""

REACH = 20
"""So many places before and after a strong one are lifted, in its sitting, less with every step."""

LIFT = 3.0
"""How much: times the mean of what the strong ones around have above the last of them.

Measured on QMSum: 33 to 40 % of the evidence in 1,000 tokens, 65 to 73 in 4,000; no change on chat.
"""

FADE_TERMS = 20
"""A message with more terms than this is lifted less: it says what it is about by itself.

Measured beside 100: .5 to 1.2 points more of the evidence in 1,000 tokens on BEAM and QMSum, .1 to .4 on chat.
"""

MIN_LIFT = 0.1
"""Less is nothing. So much passes the floors: most of what is said about a topic matches no word of a question."""

Places = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float32]


def strength(score: Floats) -> float:
    """Return the score above which a place lifts others, given those of the best."""
    return float(np.partition(score, -STRONG)[-STRONG]) if len(score) > STRONG else np.inf


def lifted(
    searches: Sequence[Search], found: Signals, score: Floats, weak: npt.NDArray[np.bool_], *, bar: float, most: int
) -> tuple[Floats, Signals, Floats]:
    """Return how much each place found is lifted, and which others are, with how much.

    Args:
        searches: the scopes.
        found: the best by themselves.
        score: of each.
        weak: which of them match too little to lift others.
        bar: see `strength`.
        most: how many others there may be in each scope.
    """
    known, others, by = np.zeros(len(score), dtype=np.float32), [], []
    excess = np.where(weak, 0, np.maximum(score - bar, 0)).astype(np.float32)
    for search in searches:
        own = np.flatnonzero(found.scopes == search.number)
        strong = own[excess[own] > 0]
        units, lift = _in_units(search.scope, *_around(search.scope, found.places[strong], excess[strong]))
        ours = search.scope.units(found.places[own])
        order = np.argsort(ours, kind="stable")
        own, ours = own[order], ours[order]
        at = np.searchsorted(ours, units)
        at[at == len(own)] = 0
        there = ours[at] == units if len(own) else np.zeros(len(units), dtype=np.bool_)
        known[own[at[there]]] = lift[there]
        new = np.flatnonzero(~there)
        new = np.sort(new[np.argsort(-lift[new], kind="stable")[:most]])
        others.append(search.signals(units[new]))
        by.append(lift[new])
    return known, Signals.joined(others), np.concatenate(by)


def _in_units(scope: Scope, places: Places, lift: Floats) -> tuple[Places, Floats]:
    """Return the units that places belong to, each once, in order, lifted as the place that is lifted most."""
    if scope.unit == "message":
        return places, lift
    units, which = np.unique(scope.units(places), return_inverse=True)
    most = np.zeros(len(units), dtype=np.float32)
    np.maximum.at(most, which, lift)
    return units, most


def _around(scope: Scope, strong: Places, excess: Floats) -> tuple[Places, Floats]:
    """Return the places that some places lift, in order, and how much."""
    line, offsets = scope.line, np.arange(-REACH, REACH + 1)
    targets = strong[:, np.newaxis] + offsets
    near = (targets >= 0) & (targets < line.upto)
    near &= line.sittings.take(targets, mode="clip") == line.sittings[strong][:, np.newaxis]
    lent = excess[:, np.newaxis] * (1 - np.abs(offsets) / (REACH + 1)) * LIFT / (REACH + 1)
    places, which = np.unique(targets[near], return_inverse=True)
    lengths = scope.index.lexical.lengths[line.rows[places]]
    lift = np.bincount(which, lent[near], len(places)) * np.minimum(1, FADE_TERMS / np.maximum(lengths, 1))
    enough = scope.eligible[places] & (lift >= MIN_LIFT)
    return places[enough], lift[enough].astype(np.float32)


Source = Literal["lexical", "dense", "both"]

POOL = 100
"""Candidates of each list over whose union scores are normalised; 50 to 200 differ by less than .5 points."""

SPEAKER_BOOST = 1.6
"""Added when the question names one participant, who says it of himself (+1.5 points of evidence at 1,000 tokens)."""

DATE_BOOST = 2.5
"""Added, times the match, when the question names a date (+1 to +1.5 points)."""

INSTRUCTION_BOOST = 2.0
"""Added to what says how to answer from then on (+1.2 to 1.8 points of evidence on BEAM, none lost elsewhere)."""

BEGINNING_BOOST = 0.8
"""Added where people begin to talk again, and tell what is new.

Measured on LoCoMo: .4 and .3 points more of the evidence in 1,000 and 4,000 tokens; .2 on BEAM, none lost on QMSum.
"""

REACTION_BOOST = -0.5
"""Added to what is said only of who hears it: it asks, thanks or praises.

Measured on LoCoMo together with `NOT_OF_SELF`: .4 points more of the evidence in 4,000 tokens and 1.6 to 1.9 of
NDCG@10; 1.2 more in 1,000 with MiniLM. Nothing beyond .3 changes elsewhere.
"""

FIRST = 8
"""The best by themselves come first, then what is lifted counts; without, NDCG@10 on chat is 4 points lower."""

MIN_LEXICAL = 0.1
"""Share of a question's informative words that a message must match if its vector does not speak for it.

Measured on LoCoMo, BEAM and QMSum without vectors, beside .3: 9 points more of the evidence in 1,000 tokens, as many
greetings that find something (53 and 50 %), and more questions about something else (82 and 36 %).
"""

OPENING_LEXICAL = 0.15
"""Share of a question's informative words that one message must match, if none is near: else nothing is relevant."""

RELAXED = 0.5
"""Once one message reaches the embedder's floor, others pass at this share of it.

Measured with static vectors beside a floor of .1 for all: of 18 greetings and questions about something else 88 and
78 % find something instead of 98 (LoCoMo, QMSum), and .1 % of the questions nothing. With MiniLM it keeps 1.3 points
more of the evidence in 4,000 tokens than one floor of .25 (LoCoMo).
"""

PRESENT = 1 / 3
"""The share of the words that simply occur counts so much against `min_lexical`: BM25 gives long messages little."""

LEAST_DEVIATION = 1e-4
"""Scores that differ less are equal but for rounding."""

STEP = 1e-3
"""What the scores of the first are above all others at least."""

Mask = npt.NDArray[np.bool_]


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


class RankedPlaces(Sequence[Ranked]):
    """Places in the order of their scores; one is made a `Ranked` when it is looked at: most never are.

    Args:
        signals: what speaks for the places, in any order.
        score: of each; of equals the newer place comes first.
        weak: of each.
    """

    def __init__(self, signals: Signals, score: Floats, weak: Mask) -> None:
        order = np.lexsort((-signals.places, -score))
        self.scopes = signals.scopes[order]
        self.places = signals.places[order]
        self.weak = weak[order]
        self._scores = (score[order], signals.lexical[order], signals.dense[order])

    def __len__(self) -> int:
        return len(self.places)

    @overload
    def __getitem__(self, which: int) -> Ranked: ...
    @overload
    def __getitem__(self, which: slice) -> list[Ranked]: ...
    def __getitem__(self, which: int | slice) -> Ranked | list[Ranked]:
        if isinstance(which, slice):
            return self.at(np.arange(len(self))[which])
        return self.at(np.array([which]))[0]

    def at(self, which: Places) -> list[Ranked]:
        """Return some of them, given how many come before each."""
        columns = (column[which].tolist() for column in (self.scopes, self.places, *self._scores, self.weak))
        return [
            Ranked(scope, place, score, lexical, None if dense != dense else dense, weak)
            for scope, place, score, lexical, dense, weak in zip(*columns, strict=True)
        ]


class Opening(NamedTuple):
    """What one place at least must reach, or nothing is brought back: a cosine, or a share of the question's words."""

    dense: float
    lexical: float


def rank(
    query: Query, scopes: Sequence[Scope], vector: Vectors | None, *, ranking: Ranking, floor: float,
    min_lexical: float, weight: float, opening: Opening | None = None, pool: int = POOL, strict: bool = False,
) -> RankedPlaces:  # fmt: skip
    """Return the best places of all scopes, best first; weak ones among them, marked.

    They are scored by themselves (`_fused`); after the first few, what a place's neighbours mean and what they lend it
    counts too. The scope is applied before the best are taken, never after.

    Args:
        query: the question.
        scopes: where to look.
        vector: the question's unit vector; None: words alone.
        ranking: which lists count.
        floor: cosine a place must reach, unless its words match.
        min_lexical: share of the question's words a place must match, unless its cosine is high enough.
        weight: how much meaning counts against words.
        opening: what the best must reach; None: no more than all others.
        pool: how many of each list are looked at.
        strict: whether nothing passes the floors that does not match by itself.
    """
    searches = [Search(number, query, scope, vector, ranking) for number, scope in enumerate(scopes)]
    if not searches:
        return RankedPlaces(Signals.none(), np.empty(0, np.float32), np.empty(0, np.bool_))
    parts = [search.nearest(pool, POOL) for search in searches]
    found = Signals.joined([part for part, _ in parts])
    weak = _weak(found, ranking, floor, min_lexical, opening or Opening(floor, min_lexical))
    if ranking == "dense":
        return RankedPlaces(found, np.nan_to_num(found.dense, nan=-1.0), weak)
    weight = 0.0 if ranking == "lexical" else weight
    # How many are wanted must not decide which come first: what is normal is what is usual among the best.
    among = np.concatenate([mask for _, mask in parts])
    usual_words, usual_dense = found.lexical[among], found.dense[among]
    usual_near = usual_dense + found.around[among]
    alone = _fused(found, found.dense, weight, usual_words, usual_dense)
    score = _fused(found, found.dense + found.around, weight, usual_words, usual_near)
    lift, others, by = lifted(searches, found, score, weak, bar=strength(score[among]), most=pool)
    if not lift.any() and np.array_equal(score, alone):
        return RankedPlaces(found, score, weak)
    best = np.lexsort((-found.places, -alone))
    first = best[~weak[best]][:FIRST]
    total = np.concatenate(
        [score + lift, _fused(others, others.dense + others.around, weight, usual_words, usual_near) + by]
    )
    weak_now = np.concatenate([weak & (strict | (lift == 0)), np.full(len(by), strict)])
    return RankedPlaces(Signals.joined([found, others]), _behind(first, alone[first], total), weak_now)


def _fused(signals: Signals, dense: Floats, weight: float, usual_words: Floats, usual_dense: Floats) -> Floats:
    """Return z(lexical) + weight · z(dense), and what is added for a named speaker, a named date and the like.

    Each list counts in standard deviations above what is usual: the values of the union of the `POOL` best of both.
    """
    score = _z(signals.lexical, usual_words) + weight * _z(dense, usual_dense)
    score += SPEAKER_BOOST * signals.named + DATE_BOOST * signals.dated + INSTRUCTION_BOOST * signals.instructs
    score += BEGINNING_BOOST * signals.begins + REACTION_BOOST * signals.reacts
    return score


def _z(values: Floats, usual: Floats) -> Floats:
    """Return standard scores; a value that is not known counts as the mean."""
    known = usual[np.isfinite(usual)]
    if not len(known):
        return np.zeros_like(values)
    scores = (values - known.mean()) / max(float(known.std()), LEAST_DEVIATION)
    standard: Floats = np.nan_to_num(scores, nan=0.0).astype(np.float32)
    return standard


def _behind(first: npt.NDArray[np.int64], alone: Floats, total: Floats) -> Floats:
    """Return scores that fall from place to place: those of the first by themselves, and below them all totals."""
    rest = np.ones(len(total), dtype=np.bool_)
    rest[first] = False
    over = total[rest].max(initial=-np.inf) - alone.min(initial=np.inf)
    score = total - np.float32(max(0.0, float(over) + STEP))
    score[first] = alone
    return score


def _weak(found: Signals, ranking: Ranking, floor: float, min_lexical: float, opening: Opening) -> Mask:
    cosine = np.nan_to_num(found.dense, nan=-1.0)
    if ranking == "dense":
        # The threshold opens only above itself: with nothing better than exactly the floor, nothing is brought back.
        return (cosine < floor) | (not np.any(cosine > opening.dense))
    share = np.maximum(found.lexical, PRESENT * found.present)
    passes: Mask = share >= min_lexical
    opened = bool(np.any(share >= opening.lexical))
    if ranking == "hybrid":
        passes |= cosine >= floor
        opened |= bool(np.any(cosine >= opening.dense))
    return ~passes | (not opened)
