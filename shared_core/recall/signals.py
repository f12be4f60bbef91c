"""The signals that a message answers a question, before they are weighted."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property, partial

import numpy as np
import numpy.typing as npt

from shared_core.index.arrays import distinct, distinct_with_inverse
from shared_core.index.lexical import LexicalScores, Occurrences
from shared_core.index.session import ROLES
from shared_core.plugins.base import Vectors
from shared_core.recall.query import Query
from shared_core.recall.scope import Scope

AROUND = {1: 0.4, 2: 0.2, -1: 0.2, -2: 0.1}
"""The share of a neighbour's cosine that is added for the message k after it (k < 0: before it), in one sitting.

Measured with static vectors on LoCoMo, BEAM and QMSum, against no neighbours: .5, .4 and .8 points more of the evidence
in 1,000 tokens, .3, .8 and 2.0 in 4,000. With MiniLM the neighbours two away add 1 point on QMSum; those three away
would add less than .5.
"""

AROUND_TERMS = 8
"""A message with more terms than this takes less from its neighbours, as its own words say what it is about."""

NOT_OF_SELF = 0.5
"""`Signals.named` of a message whose named speaker does not speak about himself or herself."""

ASKED_BACK = 1.5
"""`Signals.named` of the assistant's messages if the question asks what the assistant said, and nothing else.

Measured with static vectors: 29 to 38 % of the evidence in 1,000 tokens, 33 to 62 in 4,000 of BEAM's 11 such questions.
Of RealMem's 27 that go on with the conversation, and mention such a thing besides, it would lose 4 and 6 points.
"""

ANOTHER_USER = -1.0
"""`Signals.named` of users with a name if the question asks about the user without one, as "what is my rent?" does."""

FADE_TERMS = 20
"""In a message with more terms than this, `reacts` counts less."""

SPEAKER_BOOST = 1.6
"""Added if the question names one participant, who speaks about himself (+1.5 points of evidence in 1,000 tokens)."""

DATE_BOOST = 2.5
"""Added, multiplied by the match, if the question names a date (+1 to +1.5 points)."""

INSTRUCTION_BOOST = 2.0
"""Added to standing instructions (+1.2 to 1.8 points of evidence on BEAM, none lost elsewhere) and to preferences.

Of the evidence of BEAM's questions about preferences, 80 % instead of 56 is in 1,000 tokens; no other set changes.
"""

REACTION_BOOST = -0.5
"""Added to messages that are only about the listener: they ask, thank or praise.

Measured on LoCoMo together with `NOT_OF_SELF`: .4 points more of the evidence in 4,000 tokens and 1.6 to 1.9 of
NDCG@10; 1.2 more in 1,000 with MiniLM. Nothing beyond .3 changes elsewhere.
"""

OPENS_BOOST = 3.0
"""Added to the message that opens a sitting if the question goes on with the conversation.

Such messages say what a sitting is about. Measured on RealMem (`recall="thorough"`) with `SITTING_SHARE`: 25 to 42 % of
the evidence in 1,000 tokens, 55 to 70 in 4,000.
"""

NEWEST_SITTINGS = 10
"""Sittings whose opening is a candidate in any case if the question goes on. 60 find no more."""

Indices = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float32]
Masks = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Signals:
    """Columns with one value per message found.

    Attributes:
        scopes: the number of its scope.
        indices: its index on that scope's line; for a turn, the index of the message whose words match best.
        lexical: the share of the question's informative words it matches, weighted by its length and its neighbours.
        present: the share that occurs in the message itself.
        dense: the cosine of its vector with the question's, NaN without a vector.
        around: the cosine that its neighbours add.
        named: 1 if the question names its speaker, who speaks about himself; `NOT_OF_SELF` if about something else. If
            the question names nobody and asks what the assistant said: `ASKED_BACK` for the assistant. If it is about
            who asks: `ANOTHER_USER` for users with a name beside one without.
        dated: how well its time matches a date in the question, 0 to 1.
        instructs: 1 if it says how to answer from then on.
        reacts: 1 if it speaks about the listener and not about the speaker; less for a long message.
        opens: 1 if it opens a sitting and the question goes on with the conversation.
    """

    scopes: Indices
    indices: Indices
    lexical: Floats
    present: Floats
    dense: Floats
    around: Floats
    named: Floats
    dated: Floats
    instructs: Floats
    reacts: Floats
    opens: Floats

    def boosted(self, score: Floats) -> Floats:
        """Return scores by words and meaning with what the other signals add to them."""
        boosts = SPEAKER_BOOST * self.named + DATE_BOOST * self.dated + INSTRUCTION_BOOST * self.instructs
        boosted: Floats = score + boosts + REACTION_BOOST * self.reacts + OPENS_BOOST * self.opens
        return boosted

    @classmethod
    def none(cls) -> "Signals":
        """Return empty columns."""
        nowhere, nothing = np.empty(0, np.int64), np.empty(0, np.float32)
        return cls(nowhere, nowhere, *[nothing] * (len(fields(cls)) - 2))

    @classmethod
    def joined(cls, parts: Sequence["Signals"]) -> "Signals":
        """Return the columns of several parts, concatenated."""
        if len(parts) == 1:
            return parts[0]
        names = [field.name for field in fields(cls)]
        return cls(*(np.concatenate([getattr(part, name) for part in parts]) for name in names))


class ScopeSearch:
    """One scope, searched for one question.

    Args:
        number: the scope's number.
        query: the question.
        scope: the scope to search.
        vector: the question's unit vector; None to search by words alone.
    """

    def __init__(self, number: int, query: Query, scope: Scope, vector: Vectors | None) -> None:
        self.number = number
        self.query = query
        self.scope = scope
        self._borrowed = dict(query.borrowed)
        self._vector = vector if scope.vectors is not None else None
        self.beside: Occurrences | None = None

    @cached_property
    def _words_found(self) -> LexicalScores:
        line = self.scope.line
        return self.scope.session_index.lexical.score(
            self.query.terms, line, borrowed=self._borrowed, forms=self.query.forms, beside=self.beside
        )

    def occurrences(self) -> Occurrences:
        """Return how often the question's words occur in the scope."""
        terms = dict.fromkeys([*self.query.terms, *self._borrowed])
        return self.scope.session_index.lexical.occurrences(terms, self.scope.line, self.query.forms)

    def _shares(self, indices: Indices) -> tuple[Floats, Floats]:
        """Return `Signals.lexical` and `Signals.present` at some indices."""
        scores, present = self._words_found.at(indices)
        ceiling = np.float32(max(self._words_found.ceiling, 1e-9))
        return scores / ceiling, present / ceiling

    def nearest(self, count: int, usual: int) -> tuple[Signals, Masks]:
        """Return the `count` best by words and by meaning, and for either which are among its `usual` best."""
        scope, lists = self.scope, self._best_of(self.scope, count)
        others = [scope.openings(np.concatenate(lists), NEWEST_SITTINGS)] if self.query.goes_on else []
        if self.query.dates:  # what was said then need not be among the best of all
            then = self.query.date_matches(scope.line.along(scope.session_index.columns["times"])) > 0
            others += self._best_of(replace(scope, eligible=scope.eligible & then), count)
        units = distinct(np.concatenate(lists + others))
        among = np.zeros((2, len(units)), dtype=np.bool_)
        for best, own in zip(lists, among, strict=False):
            own[np.searchsorted(units, best[:usual])] = True
        return self.signals(units), among

    def _best_of(self, scope: Scope, count: int) -> list[Indices]:
        """Return the best units of a scope by words, and by meaning if it can be searched by that."""
        by_words = partial(self._words_found.best, allowed=scope.eligible)
        lists = [scope.units(self._uncrowded(by_words, count))]
        if self._vector is not None:
            lists.append(self._uncrowded(partial(self._best_by_meaning, scope), count))
        return lists

    def _best_by_meaning(self, scope: Scope, count: int) -> Indices:
        assert self._vector is not None
        assert scope.vectors is not None
        rows, _ = scope.vectors.vectors.search(self._vector, count, scope.findable())
        return scope.line.indices(rows).astype(np.int64)

    def _uncrowded(self, best: Callable[[int], Indices], count: int) -> Indices:
        """Return the `count` best, with at most `Scope.repeats` that say the same."""
        asked, most = count, self.scope.repeats
        while True:
            found = best(asked)
            if most is None or len(found) <= most:
                return found
            few = found[self._newest_of_each(found, most)]
            if len(few) >= count or len(found) < asked:
                return few[:count]
            asked *= 4  # repeats crowded out other messages

    def _newest_of_each(self, indices: Indices, most: int) -> npt.NDArray[np.bool_]:
        """Return which messages are among the newest of those that say the same."""
        newest = _newest(indices, self.scope.statement_codes(indices), most)
        if self.scope.unit == "turn" and not newest.all():  # turns that end alike may differ before their end
            newest = _newest(indices, self.scope.turn_codes(indices), most)
        return newest

    def signals(self, units: Indices) -> Signals:
        """Return the signals of some units, each given by the index of the message that holds its vector."""
        scope, session_index, query = self.scope, self.scope.session_index, self.query
        dense, around = self._meaning(units)
        indices = scope.best(units, lambda indices: self._shares(indices)[0])
        shares, present = self._shares(indices)
        rows = scope.line.rows[indices]
        fade = np.minimum(1, FADE_TERMS / np.maximum(session_index.lexical.lengths[rows], 1)).astype(np.float32)
        return Signals(
            np.full(len(indices), self.number), indices, shares, present, dense, around, self._named(rows),
            query.date_matches(session_index.columns["times"][rows]),
            session_index.columns["instructs"][rows].astype(np.float32),
            fade * (session_index.columns["persons"][rows] < 0), self._opens(indices),
        )  # fmt: skip

    def _opens(self, indices: Indices) -> Floats:
        """Return `Signals.opens` at some indices."""
        if not self.query.goes_on or not len(indices):
            return np.zeros(len(indices), dtype=np.float32)
        return self.scope.opens(indices).astype(np.float32)

    def _named(self, rows: npt.NDArray[np.int32]) -> Floats:
        """Return `Signals.named` of some rows."""
        session_index = self.scope.session_index
        speakers = [session_index.names.index(name) for name in self.query.speakers if name in session_index.names]
        if self.query.asks_back and not speakers and not self.query.goes_on:
            said: Floats = np.float32(ASKED_BACK) * (session_index.columns["roles"][rows] == ROLES.index("assistant"))
            return said
        if self.query.of_self:
            return self._of_others(rows)
        if len(speakers) != 1:
            return np.zeros(len(rows), dtype=np.float32)
        of_self = np.where(session_index.columns["persons"][rows] > 0, np.float32(1), np.float32(NOT_OF_SELF))
        named: Floats = of_self * (session_index.columns["speakers"][rows] == speakers[0])
        return named

    def _of_others(self, rows: npt.NDArray[np.int32]) -> Floats:
        """Return `Signals.named` of users if the question is about the one who asks, who alone has no name."""
        users = self.scope.session_index.columns["roles"][rows] == ROLES.index("user")
        unnamed = self.scope.session_index.columns["speakers"][rows] < 0
        others: Floats = np.where(users & ~unnamed, np.float32(ANOTHER_USER), np.float32(0))
        return others if np.any(users & unnamed) else np.zeros(len(rows), dtype=np.float32)

    def _meaning(self, units: Indices) -> tuple[Floats, Floats]:
        """Return `Signals.dense` and `Signals.around` of some units."""
        line, vectors = self.scope.line, self.scope.vectors
        if self._vector is None or vectors is None:
            return np.full(len(units), np.nan, dtype=np.float32), np.zeros(len(units), dtype=np.float32)
        neighbours = units - np.array(list(AROUND), dtype=np.int64)[:, np.newaxis]
        # Messages outside the scope may or may not have vectors. The ranking must not depend on that.
        near = (neighbours >= 0) & (neighbours < line.upto) & self.scope.eligible.take(neighbours, mode="clip")
        near &= line.sittings.take(neighbours, mode="clip") == line.sittings[units]
        indices, which = distinct_with_inverse(np.concatenate([units, neighbours[near]]))
        cosines = vectors.vectors.cosines(self._vector, line.rows[indices])[which]
        lent = np.zeros(neighbours.shape, dtype=np.float32)
        lent[near] = np.where(np.isnan(cosines[len(units) :]), np.float32(0), cosines[len(units) :])
        around = np.array(list(AROUND.values()), dtype=np.float32) @ lent
        lengths = self.scope.session_index.lexical.lengths[line.rows[units]]
        return cosines[: len(units)], around * np.minimum(1, AROUND_TERMS / np.maximum(lengths, 1)).astype(np.float32)


def _newest(indices: Indices, codes: Indices, most: int) -> npt.NDArray[np.bool_]:
    """Return which indices are among the last `most` of those with the same code."""
    order = np.lexsort((-indices, codes))
    newer = codes[order][most:] == codes[order][:-most]
    newest = np.ones(len(indices), dtype=np.bool_)
    newest[order[most:][newer]] = False
    return newest
