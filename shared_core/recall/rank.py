"""Rank messages by how well they answer a question, by words, meaning and neighbours together."""

import math
from collections.abc import Sequence
from copy import copy
from functools import partial

import numpy as np
import numpy.typing as npt

from shared_core.index.arrays import distinct_with_inverse
from shared_core.index.lexical import K1, B, Occurrences, idf_of
from shared_core.plugins.base import Vectors
from shared_core.prompt.hits import Hit, Place, Reason
from shared_core.recall.query import Query
from shared_core.recall.scope import Scope
from shared_core.recall.signals import OPENS_BOOST, ScopeSearch, Signals

STRONG = 60
"""This many of the best messages lift their neighbours. In a shorter list nothing is lifted."""

REACH = 20
"""A strong message lifts this many messages before and after it, in its sitting, less with every step."""

LIFT = 3.0
"""The factor of a lift: it multiplies the mean excess of the strong messages around over `lift_threshold`.

Measured on QMSum: 33 to 40 % of the evidence in 1,000 tokens, 65 to 73 in 4,000; no change on chat.
"""

FADE_TERMS = 20
"""A message with more terms than this is lifted less, as its own words say what it is about.

Measured against 100: .5 to 1.2 points more of the evidence in 1,000 tokens on BEAM and QMSum, .1 to .4 on chat.
"""

MIN_LIFT = 0.1
"""A smaller lift is dropped. A larger one also passes the floors: most talk about a topic matches no question word."""

Indices = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float32]


def lift_threshold(score: Floats) -> float:
    """Return the score above which a message lifts its neighbours, given the scores of the best messages."""
    return float(np.partition(score, -STRONG)[-STRONG]) if len(score) > STRONG else np.inf


def lift_neighbours(
    searches: Sequence[ScopeSearch],
    found: Signals,
    score: Floats,
    weak: npt.NDArray[np.bool_],
    *,
    threshold: float,
    most: int,
) -> tuple[Floats, Signals, Floats]:
    """Return the lift of each message found, the other messages that are lifted, and their lift.

    Args:
        searches: the searches, one per scope.
        found: the best messages by themselves.
        score: the score of each.
        weak: which of them match too little to lift others.
        threshold: see `lift_threshold`.
        most: how many other messages each scope may add.
    """
    known, others, by = np.zeros(len(score), dtype=np.float32), [], []
    excess = np.where(weak, 0, np.maximum(score - threshold, 0)).astype(np.float32)
    for search in searches:
        own = np.flatnonzero(found.scopes == search.number)
        strong = own[excess[own] > 0]
        units, lift = _in_units(search.scope, *_lift_around(search.scope, found.indices[strong], excess[strong]))
        ours = search.scope.units(found.indices[own])
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


def _in_units(scope: Scope, indices: Indices, lift: Floats) -> tuple[Indices, Floats]:
    """Return the units of some messages, each once, in order, with the largest lift of its messages."""
    if scope.unit == "message":
        return indices, lift
    units, which = np.unique(scope.units(indices), return_inverse=True)
    most = np.zeros(len(units), dtype=np.float32)
    np.maximum.at(most, which, lift)
    return units, most


def _lift_around(scope: Scope, strong: Indices, excess: Floats) -> tuple[Indices, Floats]:
    """Return the indices that some strong messages lift, in order, and their lift."""
    line, offsets = scope.line, np.arange(-REACH, REACH + 1)
    targets = strong[:, np.newaxis] + offsets
    near = (targets >= 0) & (targets < line.upto)
    near &= line.sittings.take(targets, mode="clip") == line.sittings[strong][:, np.newaxis]
    lent = excess[:, np.newaxis] * (1 - np.abs(offsets) / (REACH + 1)) * LIFT / (REACH + 1)
    indices, which = distinct_with_inverse(targets[near])
    lengths = scope.session_index.lexical.lengths[line.rows[indices]]
    lift = np.bincount(which, lent[near], len(indices)) * np.minimum(1, FADE_TERMS / np.maximum(lengths, 1))
    enough = scope.eligible[indices] & (lift >= MIN_LIFT)
    return indices[enough], lift[enough].astype(np.float32)


POOL = 100
"""Candidates per list; scores are normalised over their union. 50 to 200 differ by less than .5 points."""

FIRST = 8
"""Lifts count only after this many of the best by themselves. Without this, NDCG@10 on chat is 4 points lower."""

MIN_LEXICAL = 0.1
"""The share of a question's informative words that a message must match if its cosine is below the floor.

Measured on LoCoMo, BEAM and QMSum without vectors, against .3: 9 points more of the evidence in 1,000 tokens, about as
many greetings that find something (53 and 50 %), and more questions on unrelated topics that do (82 and 36 %).
"""

OPENING_LEXICAL = 0.15
"""The share of words that at least one message must match if no cosine reaches the floor. Else nothing is recalled."""

RELAXED = 0.5
"""Once one message reaches the embedder's floor, others pass at this share of it.

Measured with static vectors against one floor of .1: of 18 greetings and questions on unrelated topics, 88 and 78 %
find something instead of 98 % (LoCoMo, QMSum), and .1 % of the real questions find nothing. With MiniLM it keeps 1.3
points more of the evidence in 4,000 tokens than one floor of .25 (LoCoMo).
"""

PRESENT = 1 / 3
"""The weight of `Signals.present` against `MIN_LEXICAL`. BM25 alone would keep long messages below it."""

SITTING_SHARE = 0.5
"""How far a message that opens a sitting rises to the best one found in it, if the question goes on with the talk.

Measured on RealMem: 2 points more of the evidence in 1,000 and 4,000 tokens. 0.9 brings no more.
"""

LEAST_DEVIATION = 1e-4
"""Scores that differ by less are equal except for rounding."""

STEP = 1e-3
"""The least distance between the scores of the first messages and all others."""

Mask = npt.NDArray[np.bool_]


class RankedResults:
    """Results in the order of their scores. `Hit` values are made on demand, as most results are never read.

    Args:
        signals: the signals of the messages, in any order.
        scores: the score of each; of equal scores, the newer message comes first.
        weak: which match too little.
        matches: which match by their own words or meaning.

    Attributes:
        threshold: the cosine from which a text is about the query, for the words in reports.
    """

    def __init__(self, signals: Signals, scores: Floats, weak: Mask, matches: Mask) -> None:
        self.threshold = 0.0
        # `lexsort` sorts by its last key first.
        order = np.lexsort((-signals.indices, -scores))
        self.scopes, self.indices = signals.scopes[order], signals.indices[order]
        self.scores, self.weak, self.matches = scores[order], weak[order], matches[order]
        self.present, self.dense = signals.present[order], signals.dense[order]
        # Beside "my cat", "ok" is no match for "cat". But what holds one of the words counts those of its neighbours:
        # else, 40 % of LoCoMo's evidence among the ten best would be weak instead of 24, and 22 of BEAM's instead of 4.
        self.lexical = np.where(self.present > 0, signals.lexical[order], np.float32(0))
        self._reranked: dict[int, float] = {}

    def __len__(self) -> int:
        return len(self.indices)

    def hits(self, which: Indices) -> list[Hit]:
        """Return the results at some ranks, counted from 0."""
        places = zip(self.scopes[which].tolist(), self.indices[which].tolist(), strict=True)
        every = (self.scores, self.lexical, self.dense, self.weak, self.matches)
        columns = (column[which].tolist() for column in every)
        return [
            Hit(
                place, score, lexical, None if dense != dense else dense, Reason.WEAK if weak else None, own,
                reranked=self._reranked.get(rank), threshold=self.threshold,
            )
            for rank, place, score, lexical, dense, weak, own in zip(which.tolist(), places, *columns, strict=True)
        ]  # fmt: skip

    def reordered(self, which: Indices, order: Indices, reranked: Sequence[float]) -> "RankedResults":
        """Return the results, those at some ranks in another order. Each rank keeps its score.

        Args:
            which: the ranks, none of a weak result.
            order: the result that comes to each of them, as an index of `which`.
            reranked: the reranker's score of the result at each of `which`; minus infinity: none.
        """
        after, ranks = copy(self), np.arange(len(self))
        ranks[which] = which[order]
        for name in ("scopes", "indices", "lexical", "present", "dense", "matches"):
            setattr(after, name, getattr(self, name)[ranks])
        scores = zip(which.tolist(), map(reranked.__getitem__, order.tolist()), strict=True)
        after._reranked = {rank: score for rank, score in scores if math.isfinite(score)}
        return after


def rank(
    query: Query, scopes: Sequence[Scope], vector: Vectors | None, *, floor: float, weight: float,
    min_score: float | None = None, pool: int = POOL,
) -> RankedResults:  # fmt: skip
    """Return the best messages of all scopes, best first, including weak ones, which are marked.

    Messages are scored by themselves: z(lexical) + weight · z(dense), plus the boosts for a named speaker, a named date
    and the like, where z is the standard score over the union of the `POOL` best of both lists. After the first few,
    the meaning of their neighbours and the lift by strong neighbours count too. Scopes filter before the best are
    taken, so that filters never shorten a list.

    Args:
        query: the question.
        scopes: the scopes to search.
        vector: the question's unit vector; None to search by words alone.
        floor: the cosine that one message must reach, unless words match; see `RELAXED`.
        weight: how much meaning counts against words.
        min_score: the cosine that every message with a vector must reach, lifted ones, too, instead of the floor; one
            must exceed it. It changes no score.
        pool: the candidates taken from each list.
    """
    searches = [ScopeSearch(number, query, scope, vector) for number, scope in enumerate(scopes)]
    if not searches:
        return RankedResults(Signals.none(), np.empty(0, np.float32), np.empty(0, np.bool_), np.empty(0, np.bool_))
    _weigh_together(searches)
    parts = [search.nearest(pool, POOL) for search in searches]
    found = Signals.joined([part for part, _ in parts])
    passes = partial(_passes, floor=RELAXED * floor if floor > 0 else floor, min_score=min_score)
    weak = ~passes(found) | (not _opens(found, floor, min_score))
    # A larger pool must not change the order, so scores are normalised over the `POOL` best of each list only.
    among = _usual(found, np.concatenate([masks for _, masks in parts], axis=1))
    usual_dense, with_near = found.dense[among], found.dense + found.around
    words, near = _spread(found.lexical[among]), _spread(with_near[among])
    by_words = _z(found.lexical, words)
    alone = found.boosted(by_words + weight * _z(found.dense, _spread(usual_dense)))
    score = found.boosted(by_words + weight * _z(with_near, near))
    if query.goes_on:
        alone, score = alone + spoken_for(searches, found, alone), score + spoken_for(searches, found, score)
    lift, others, by = lift_neighbours(searches, found, score, weak, threshold=lift_threshold(score[among]), most=pool)
    # Neighbours change nothing, so the first order stands and need not be merged.
    if not lift.any() and np.array_equal(score, alone):
        return RankedResults(found, score, weak, passes(found, alone=True))
    best = np.lexsort((-found.indices, -alone))
    first = best[~weak[best]][:FIRST]
    beside = others.boosted(_z(others.lexical, words) + weight * _z(others.dense + others.around, near))
    total = np.concatenate([score + lift, beside + by])
    weak_now = np.concatenate([weak & (lift == 0), np.zeros(len(by), dtype=np.bool_)])
    every = Signals.joined([found, others])
    if min_score is not None:
        weak_now |= ~passes(every)
    return RankedResults(every, _first_then_rest(first, alone[first], total), weak_now, passes(every, alone=True))


def _weigh_together(searches: Sequence[ScopeSearch]) -> None:
    """Let a word weigh the same in all scopes, as if their messages were those of one."""
    if len(searches) > 1:
        parts = [search.occurrences() for search in searches]
        for search in searches:
            search.beside = Occurrences.joined([part for part in parts if part is not parts[search.number]])


def _usual(found: Signals, lists: Mask) -> Mask:
    """Return which messages are among the `POOL` best of all scopes, by words or by meaning.

    Args:
        found: the messages.
        lists: which are among the best of their own scope by words, and which by meaning, shape (2, messages).
    """
    usual = np.zeros(len(found.lexical), dtype=np.bool_)
    for own, scores in zip(lists, (found.lexical, found.dense), strict=True):
        best = np.flatnonzero(own)
        usual[best[np.argsort(-scores[best], kind="stable")[:POOL]]] = True
    return usual


def spoken_for(searches: Sequence[ScopeSearch], found: Signals, score: Floats) -> Floats:
    """Return what messages that open a sitting gain from the best message found in it, given the scores."""
    alone, gain = score - np.float32(OPENS_BOOST) * found.opens, np.zeros_like(score)
    for search in searches:
        own = np.flatnonzero(found.scopes == search.number)
        sittings = search.scope.line.sittings[found.indices[own]]
        best = np.full(int(sittings.max(initial=-1)) + 1, -np.inf, dtype=np.float32)
        np.maximum.at(best, sittings, alone[own])
        gain[own] = SITTING_SHARE * found.opens[own] * (best[sittings] - alone[own])
    return gain


def _spread(usual: Floats) -> tuple[np.float32, float] | None:
    """Return the mean and the standard deviation of the usual values; None: none is known."""
    known = usual[np.isfinite(usual)]
    # Equal scores have no deviation to divide by.
    return (known.mean(), max(float(known.std()), LEAST_DEVIATION)) if len(known) else None


def _z(values: Floats, spread: tuple[np.float32, float] | None) -> Floats:
    """Return standard scores. Unknown values count as the mean."""
    if spread is None:
        return np.zeros_like(values)
    standard: Floats = (values - spread[0]) / spread[1]
    standard[np.isnan(standard)] = 0
    return standard


def _first_then_rest(first: npt.NDArray[np.int64], alone: Floats, total: Floats) -> Floats:
    """Return scores in one order: the first messages with their own scores, and below them all totals, shifted down."""
    rest = np.ones(len(total), dtype=np.bool_)
    rest[first] = False
    over = total[rest].max(initial=-np.inf) - alone.min(initial=np.inf)
    score = total - np.float32(max(0.0, float(over) + STEP))
    score[first] = alone
    return score


def _opens(found: Signals, floor: float, min_score: float | None) -> bool:
    """Return whether a message matches well enough that anything is recalled."""
    cosines, by_words = _cosines(found), _share(found) >= OPENING_LEXICAL
    if min_score is None:
        return bool(np.any(by_words) or np.any(cosines >= floor))
    return bool(np.any(cosines > min_score) or np.any(by_words & np.isnan(found.dense)))


def _share(found: Signals) -> Floats:
    share: Floats = np.maximum(found.lexical, PRESENT * found.present)
    return share


def _passes(found: Signals, *, floor: float, min_score: float | None, alone: bool = False) -> Mask:
    """Return which messages match enough. `alone`: a message without a word of the question has only borrowed words."""
    passes: Mask = _share(found) >= MIN_LEXICAL
    if alone:
        passes &= found.present > 0
    passes |= _cosines(found) >= floor
    return passes if min_score is None else np.where(np.isnan(found.dense), passes, found.dense >= min_score)


def _cosines(found: Signals) -> Floats:
    """Return the cosines; without a vector, one that reaches no floor."""
    cosines: Floats = np.where(np.isnan(found.dense), np.float32(-np.inf), found.dense)
    return cosines


# Grounding: documents around a question, and the ends of long results. Only `search` looks there: a question of the
# conversation would be found by every word of the documents pasted around it.


def grounding_hits(groups: Sequence[Sequence[str]], scopes: Sequence[Scope]) -> list[Hit]:
    """Return the messages whose grounding matches enough of the words (BM25), best first; of equals, the newest.

    Each group holds a word and the terms that count as the same.
    """
    hits: list[Hit] = []
    for number, scope in enumerate(scopes):
        lengths = scope.line.along(scope.session_index.grounding.lengths)
        if not lengths.any():
            continue
        share = _shares(groups, scope, lengths)
        found = np.flatnonzero((share >= MIN_LEXICAL) & scope.eligible)
        for index, value in zip(found.tolist(), share[found].tolist(), strict=True):
            hits.append(Hit((number, index), value, value, grounding=True))
    return sorted(hits, key=lambda hit: (-hit.score, hit.place[0], -hit.place[1]))


def _shares(groups: Sequence[Sequence[str]], scope: Scope, lengths: npt.NDArray[np.int32]) -> Floats:
    """Return the share of the words' weight that each message of a line matches, about 0 to 1."""
    mean, ceiling = float(lengths[lengths > 0].mean()), 0.0
    shares = np.zeros(len(lengths), dtype=np.float32)
    for group in groups:
        _, indices, frequency = scope.session_index.grounding.on_line(group, scope.line)
        idf = idf_of(len(indices), len(lengths))
        weights = frequency.astype(np.float32) / (1 - B + B / mean * lengths[indices])
        shares[indices] += (idf * (K1 + 1) * weights / (weights + K1)).astype(np.float32)
        ceiling += idf
    return shares / np.float32(max(ceiling, 1e-9))


def with_grounding_hits(found: Sequence[Hit], hits: Sequence[Hit]) -> list[Hit]:
    """Return results in their order, with the hits among them.

    A hit comes before the results that match less than it does, by words and by meaning. It takes the score of the one
    it comes before, because the scores of two rankings cannot be compared.
    """
    merged: dict[Place, Hit] = {}
    left = list(hits)
    for one in found:
        while left and left[0].lexical > max(one.lexical, one.dense or 0.0):
            hit = left.pop(0)
            merged.setdefault(hit.place, hit._replace(score=one.score))
        merged.setdefault(one.place, one)
    last = found[-1].score if found else float("inf")
    for hit in left:
        merged.setdefault(hit.place, hit._replace(score=min(hit.score, last)))
    return list(merged.values())
