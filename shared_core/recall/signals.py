"""What speaks for a place being the answer to a question, before it is weighed."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Literal

import numpy as np
import numpy.typing as npt

from shared_core.base import Vectors
from shared_core.index.arrays import distinct
from shared_core.index.lexical import LexicalScores
from shared_core.index.session_index import ROLES
from shared_core.recall.query import Query
from shared_core.recall.scope import Scope

__all__ = ["Ranking", "Search", "Signals"]

Ranking = Literal["hybrid", "dense", "lexical"]

AROUND = {1: 0.4, 2: 0.2, -1: 0.2, -2: 0.1}
"""How much of the cosine of the message k places before a message (k < 0: after) counts for it, too, in one sitting.

Measured on LoCoMo, BEAM and QMSum with static vectors beside none: .5, .4 and .8 points more of the evidence in 1,000
tokens, .3, .8 and 2.0 in 4,000. With MiniLM the second place away is worth 1 point on QMSum, a third less than .5.
"""

AROUND_TERMS = 8
"""A message with more terms than this takes less from its neighbours: it says what it is about by itself."""

NOT_OF_SELF = 0.5
"""How much it counts that a named speaker says it if it is not of himself."""

ASKED_BACK = 1.5
"""How much it counts that the assistant says it, if the question asks for what it said."""

BEGINNING = 4
"""Places that a sitting begins with; 4 to 12, evenly less or by powers, differ by less than .3 points."""

FADE_TERMS = 20
"""For a message with more terms than this it counts less where it stands and of whom it speaks."""

Places = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Signals:
    """Columns, a value per place.

    Attributes:
        scopes: the number of the scope it is in.
        places: where on that scope's line; of a turn, the place of the message whose words match best.
        lexical: the share of the question's informative words it matches, its length and its neighbours considered.
        present: the share that occurs in it.
        dense: the cosine of its vector with the question's, NaN without a vector.
        around: what the cosines of its neighbours add.
        named: 1 if the question names its speaker, who speaks of himself; `NOT_OF_SELF` if not of himself. If it names
            nobody and asks what the assistant said: `ASKED_BACK` for that.
        dated: how well its time matches a date in the question, 0 to 1.
        instructs: 1 if it says how to answer from then on.
        begins: 1 if it is the first of its sitting, less for the next few and for a long message.
        reacts: 1 if it speaks of who hears it, not of who says it; less for a long message.
    """

    scopes: Places
    places: Places
    lexical: Floats
    present: Floats
    dense: Floats
    around: Floats
    named: Floats
    dated: Floats
    instructs: Floats
    begins: Floats
    reacts: Floats

    @classmethod
    def none(cls) -> "Signals":
        """Return no places."""
        nowhere, nothing = np.empty(0, np.int64), np.empty(0, np.float32)
        return cls(nowhere, nowhere, *[nothing] * (len(fields(cls)) - 2))

    @classmethod
    def joined(cls, parts: Sequence["Signals"]) -> "Signals":
        """Return the columns one below the other."""
        names = [field.name for field in fields(cls)]
        return cls(*(np.concatenate([getattr(part, name) for part in parts]) for name in names))


class Search:
    """One scope, searched for one question.

    Args:
        number: the scope's number.
        query: the question.
        scope: where to look.
        vector: the question's unit vector; None: words alone.
        ranking: which lists count.
    """

    def __init__(self, number: int, query: Query, scope: Scope, vector: Vectors | None, ranking: Ranking) -> None:
        self.number = number
        self.query = query
        self.scope = scope
        self._words = query.terms if ranking != "dense" else ()
        self._vector = vector if ranking != "lexical" and scope.vectors is not None else None

    @cached_property
    def _words_found(self) -> LexicalScores:
        line = self.scope.line
        return self.scope.index.lexical.score(self._words, line, line.terms)

    def _shares(self, places: Places) -> tuple[Floats, Floats]:
        """Return `Signals.lexical` and `Signals.present` of some places."""
        scores, present = self._words_found.at(places)
        ceiling = np.float32(max(self._words_found.ceiling, 1e-9))
        return scores / ceiling, present / ceiling

    def nearest(self, count: int, usual: int) -> tuple[Signals, npt.NDArray[np.bool_]]:
        """Return the union of the best `count` by words and by meaning, and which are among the best `usual` of one."""
        lists = [self.scope.units(self._uncrowded(self._best_by_words, count))]
        if self._vector is not None:
            lists.append(self._uncrowded(self._best_by_meaning, count))
        units = distinct(np.concatenate(lists))
        among = np.zeros(len(units), dtype=np.bool_)
        for best in lists:
            among[np.searchsorted(units, best[:usual])] = True
        return self.signals(units), among

    def _best_by_words(self, count: int) -> Places:
        return self._words_found.best(count, self.scope.eligible)

    def _best_by_meaning(self, count: int) -> Places:
        vectors = self.scope.vectors
        assert self._vector is not None
        assert vectors is not None
        rows, _ = vectors.vectors.search(self._vector, count, self.scope.findable())
        return self.scope.line.places(rows).astype(np.int64)

    def _uncrowded(self, best: Callable[[int], Places], count: int) -> Places:
        """Return the best `count`, of what is said again and again only as many as the scope allows."""
        asked, most = count, self.scope.repeats
        while True:
            found = best(asked)
            if most is None or len(found) <= most:
                return found
            few = found[self._newest_of_each(found, most)]
            if len(few) >= count or len(found) < asked:
                return few[:count]
            asked *= 4

    def _newest_of_each(self, places: Places, most: int) -> npt.NDArray[np.bool_]:
        """Return which places are among the newest of those that say the same."""
        newest = _newest(places, self.scope.said(places), most)
        if self.scope.unit == "turn" and not newest.all():  # turns that end alike may be different ones
            newest = _newest(places, self.scope.said_in_turn(places), most)
        return newest

    def signals(self, units: Places) -> Signals:
        """Return what speaks for some units, each given by the place whose vector stands for it."""
        scope, index, query = self.scope, self.scope.index, self.query
        dense, around = self._meaning(units)
        places = scope.best(units, lambda places: self._shares(places)[0])
        shares, present = self._shares(places)
        rows = scope.line.rows[places]
        fade = np.minimum(1, FADE_TERMS / np.maximum(index.lexical.lengths[rows], 1)).astype(np.float32)
        return Signals(
            np.full(len(places), self.number), places, shares, present, dense, around, self._named(rows),
            query.date_matches(index.column("times")[rows]), index.column("instructs")[rows].astype(np.float32),
            fade * self._begins(places), fade * (index.column("persons")[rows] < 0),
        )  # fmt: skip

    def _named(self, rows: npt.NDArray[np.int32]) -> Floats:
        """Return `Signals.named` of some rows."""
        index = self.scope.index
        speakers = [index.names.index(name) for name in self.query.speakers if name in index.names]
        if self.query.asks_back and not speakers:
            said: Floats = np.float32(ASKED_BACK) * (index.column("roles")[rows] == ROLES.index("assistant"))
            return said
        if len(speakers) != 1:
            return np.zeros(len(rows), dtype=np.float32)
        of_self = np.where(index.column("persons")[rows] > 0, np.float32(1), np.float32(NOT_OF_SELF))
        named: Floats = of_self * (index.column("speakers")[rows] == speakers[0])
        return named

    def _begins(self, places: Places) -> Floats:
        """Return how near places are to the first of their sitting, 0 to 1."""
        sittings = self.scope.line.sittings[: self.scope.line.upto]
        since = places - np.searchsorted(sittings, sittings[places])
        begins: Floats = np.maximum(0, 1 - since / BEGINNING).astype(np.float32)
        return begins

    def _meaning(self, units: Places) -> tuple[Floats, Floats]:
        """Return `Signals.dense` and `Signals.around` of some units."""
        line, vectors = self.scope.line, self.scope.vectors
        if self._vector is None or vectors is None:
            return np.full(len(units), np.nan, dtype=np.float32), np.zeros(len(units), dtype=np.float32)
        neighbours = units - np.array(list(AROUND), dtype=np.int64)[:, np.newaxis]
        # What may not be found may have a vector or not; the answer must not depend on it.
        near = (neighbours >= 0) & (neighbours < line.upto) & self.scope.eligible.take(neighbours, mode="clip")
        near &= line.sittings.take(neighbours, mode="clip") == line.sittings[units]
        places, which = np.unique(np.concatenate([units, neighbours[near]]), return_inverse=True)
        cosines = vectors.vectors.cosines(self._vector, line.rows[places])[which]
        lent = np.zeros(neighbours.shape, dtype=np.float32)
        lent[near] = np.nan_to_num(cosines[len(units) :], nan=0.0)
        around = np.array(list(AROUND.values()), dtype=np.float32) @ lent
        lengths = self.scope.index.lexical.lengths[line.rows[units]]
        return cosines[: len(units)], around * np.minimum(1, AROUND_TERMS / np.maximum(lengths, 1)).astype(np.float32)


def _newest(places: Places, codes: Places, most: int) -> npt.NDArray[np.bool_]:
    """Return which places are among the last `most` of those with one code."""
    order = np.lexsort((-places, codes))
    newer = codes[order][most:] == codes[order][:-most]
    newest = np.ones(len(places), dtype=np.bool_)
    newest[order[most:][newer]] = False
    return newest
