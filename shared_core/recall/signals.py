"""What speaks for a place being the answer to a question, before it is weighed."""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Literal

import numpy as np
import numpy.typing as npt

from shared_core.base import Vectors
from shared_core.recall.query import Query
from shared_core.recall.scope import Scope

__all__ = ["Ranking", "Search", "Signals"]

Ranking = Literal["hybrid", "dense", "lexical"]

GROUP = 32
"""Values looked at together in the search for the largest of many."""

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
        named: 1 if the question names its speaker.
        dated: how well its time matches a date in the question, 0 to 1.
        instructs: 1 if it says how to answer from then on.
    """

    scopes: Places
    places: Places
    lexical: Floats
    present: Floats
    dense: Floats
    named: Floats
    dated: Floats
    instructs: Floats

    def only(self, mask: npt.NDArray[np.bool_]) -> "Signals":
        """Return some of the places."""
        return Signals(*(getattr(self, field.name)[mask] for field in fields(self)))

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
    def _words_found(self) -> tuple[Floats, Floats]:
        """`Signals.lexical` and `Signals.present` of every place."""
        line = self.scope.line
        scores = self.scope.index.lexical.score(self._words, line, line.terms)
        ceiling = np.float32(max(scores.ceiling, 1e-9))
        return scores.values / ceiling, scores.present / ceiling

    def nearest(self, count: int, usual: int) -> tuple[Signals, npt.NDArray[np.bool_]]:
        """Return the union of the best `count` by words and by meaning, and which are among the best `usual` of one."""
        scope = self.scope
        shares, _ = self._words_found
        lists = [scope.units(_best(shares * scope.eligible, count))]
        if self._vector is not None and scope.vectors is not None:
            rows, _ = scope.vectors.vectors.search(self._vector, count, scope.findable())
            lists.append(scope.line.places(rows).astype(np.int64))
        units = np.unique(np.concatenate(lists))
        return self.signals(units), np.isin(units, np.concatenate([best[:usual] for best in lists]))

    def signals(self, units: Places) -> Signals:
        """Return what speaks for some units, each given by the place whose vector stands for it."""
        scope, index, query = self.scope, self.scope.index, self.query
        dense = np.full(len(units), np.nan, dtype=np.float32)
        if self._vector is not None and scope.vectors is not None:
            dense = scope.vectors.vectors.cosines(self._vector, scope.line.rows[units])
        shares, present = self._words_found
        places = scope.best(units, shares)
        rows = scope.line.rows[places]
        speakers = [index.names.index(name) for name in query.speakers if name in index.names]
        named = np.isin(index.column("speakers")[rows], speakers) if len(speakers) == 1 else np.zeros(len(rows))
        return Signals(
            np.full(len(places), self.number), places, shares[places], present[places], dense, named.astype(np.float32),
            query.date_matches(index.column("times")[rows]), index.column("instructs")[rows].astype(np.float32),
        )  # fmt: skip


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
