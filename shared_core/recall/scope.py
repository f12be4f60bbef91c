"""What a question may find: a session's rows along a path, filtered by position, time, role and use of tools."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
import numpy.typing as npt

from shared_core.index.path_rows import LinePrefix
from shared_core.index.session_index import ROLES, SessionIndex
from shared_core.index.session_vectors import SessionVectors
from shared_core.messages import Role
from shared_core.records import Position
from shared_core.tree.paths import Path

__all__ = ["Filter", "RecallTools", "RecallUnit", "Scope", "eligible_places", "speakers"]

Mask = npt.NDArray[np.bool_]

RecallUnit = Literal["message", "turn"]
RecallTools = Literal["replies", "none", "all"]

Places = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Scope:
    """One session's part of what may be recalled.

    Attributes:
        index: its rows.
        vectors: its vectors, None for words alone.
        line: the path searched, up to the question.
        eligible: which places of the line may be found, shape (line.upto,).
        unit: whether single messages or whole turns are found.
        repeats: how often the same may be among the best; None: however often.
    """

    index: SessionIndex
    vectors: SessionVectors | None
    line: LinePrefix
    eligible: Mask
    unit: RecallUnit = "message"
    repeats: int | None = None

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

    def units(self, places: npt.NDArray[np.integer]) -> Places:
        """Return the place whose vector stands for each place's unit: itself, or the last of its turn."""
        if self.unit == "message":
            return places.astype(np.int64)
        ends: Places = self.line.line.ends(self._turns(places)).astype(np.int64)
        # A reply that came after the question is not part of what the question can find.
        late = np.flatnonzero(ends >= self.line.upto)
        turns = self._turns(places[late])
        for turn in np.unique(turns).tolist():
            ends[late[turns == turn]] = self._members(turn)[-1]
        return ends

    def best(self, units: Places, score: Callable[[Places], Floats]) -> Places:
        """Return the eligible place with the highest score of each unit, of equals the newest."""
        if self.unit == "message" or not len(units):
            return units
        turns = [np.array([p for p in self._members(t) if self.eligible[p]]) for t in self._turns(units).tolist()]
        scores = np.split(score(np.concatenate(turns)), np.cumsum([len(places) for places in turns])[:-1])
        newest = [np.flatnonzero(values == values.max())[-1] for values in scores]
        return np.array([places[best] for places, best in zip(turns, newest, strict=True)], dtype=np.int64)

    def said(self, places: Places) -> Places:
        """Return what stands for the text at each place."""
        codes: Places = self.index.column("statements")[self.line.rows[places]]
        return codes

    def said_in_turn(self, places: Places) -> Places:
        """Return what stands for all texts of each place's turn."""
        turns = [self.said(np.array(self._members(turn))).tolist() for turn in self._turns(places).tolist()]
        return np.array([hash(tuple(turn)) for turn in turns], dtype=np.int64)  # of numbers: alike in every process

    def _turns(self, places: npt.NDArray[np.integer]) -> Places:
        turns: Places = self.index.column("turns")[self.line.rows[places]]
        return turns

    def _members(self, turn: int) -> list[int]:
        return [place for place in self.line.line.of_turn(turn) if place < self.line.upto]


@dataclass(frozen=True, slots=True)
class Filter:
    """Which messages may be found.

    Attributes:
        path: the line of conversation; None: the one the object stands on.
        before: the question's place on the path; None: all of the path.
        without: turns that are in the prompt anyway.
        since, until: seconds since 1970, inclusive.
        role: only what this role said; None: what the conversation itself says, tools as `recall_tools` has it.
        repeats: how often the same is looked at, the newest first; None: however often.
    """

    path: Path | None = None
    before: Position | None = None
    without: tuple[str, ...] = ()
    since: float = -np.inf
    until: float = np.inf
    role: Role | None = None
    repeats: int | None = None


def eligible_places(index: SessionIndex, line: LinePrefix, wanted: Filter, tools: RecallTools) -> Mask:
    """Return which places of a line may be found; `wanted.path` and `wanted.before` have made the line already."""
    eligible = _speaks(index, line, wanted.role, tools)
    if wanted.since != -np.inf or wanted.until != np.inf:
        times = line.along(index.column("times"))
        eligible &= (times >= wanted.since) & (times <= wanted.until)
    for turn in wanted.without:
        places = [place for place in line.line.of_turn(index.turns.find(turn)) if place < line.upto]
        eligible[places] = False
    return eligible


def _speaks(index: SessionIndex, line: LinePrefix, role: Role | None, tools: RecallTools) -> Mask:
    """Return which places say something that may be recalled."""
    roles = line.along(index.column("roles"))
    if role is not None:
        said: Mask = np.equal(roles, ROLES.index(role))
        said &= line.along(index.column("characters")) > 0
        return said
    tool, speaks = roles == ROLES.index("tool"), line.along(index.column("speaks"))
    speaks = np.greater(speaks, tool) if tools != "all" else speaks.copy()
    if tools == "none":
        turns = line.along(index.column("turns"))
        speaks &= ~np.isin(turns, np.unique(turns[tool]))
    return speaks


def speakers(scopes: Sequence[Scope]) -> list[str]:
    """Return the participants' names as far as they speak in what is searched."""
    found: dict[str, None] = {}
    for scope in scopes:
        found |= dict.fromkeys(name for code, name in enumerate(scope.index.names) if scope.line.has_said(code))
    return list(found)
