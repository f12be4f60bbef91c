"""The rows of a session along one path through its tree, as arrays that grow with the path."""

from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from shared_core.index.arrays import Growing

__all__ = ["LinePrefix", "PathLine"]

SITTING_GAP = 6 * 3600.0
"""Seconds without a message after which a new sitting begins."""

_set = object.__setattr__  # a frozen value has no other way in

Ints = npt.NDArray[np.int32]
Scalar = TypeVar("Scalar", bound=np.generic)


class PathLine:
    """The rows along one line of segments, in path order.

    Attributes:
        taken: how many rows of the last segment are on the line so far.
        plain: whether the place of every row is its number, as in a conversation that was never forked.
    """

    def __init__(self) -> None:
        self.taken = 0
        self.plain = True
        self._rows: Growing[np.int32] = Growing(np.int32)
        self._sittings: Growing[np.int32] = Growing(np.int32)
        self._places: Growing[np.int32] = Growing(np.int32)
        self._terms: Growing[np.int64] = Growing(np.int64)
        self._before_in_turn: Growing[np.int32] = Growing(np.int32)  # by place, -1: it begins its turn
        self._last_of_turn: Growing[np.int32] = Growing(np.int32)  # by turn, -1: it is not on the line
        self._first_said: dict[int, int] = {}
        self._last_time = -np.inf
        self._parted = False

    @property
    def rows(self) -> Ints:
        """The row at each place."""
        return self._rows.values

    @property
    def sittings(self) -> Ints:
        """The number of the sitting at each place."""
        return self._sittings.values

    def places(self, rows: Ints) -> Ints:
        """Return the place of each row, -1 where it is not on the line, as rows are that came after it was extended."""
        known = self._places.values
        if rows.min(initial=0) >= 0 and rows.max(initial=-1) < len(known):
            return known[rows]
        places = np.full(len(rows), -1, dtype=np.int32)
        inside = (rows >= 0) & (rows < len(known))
        places[inside] = known[rows[inside]]
        return places

    def of_turn(self, turn: int) -> list[int]:
        """Return the places of a turn's messages, by its number."""
        place = int(self._last_of_turn.values[turn]) if 0 <= turn < len(self._last_of_turn) else -1
        places = list[int]()
        while place >= 0:
            places.append(place)
            place = int(self._before_in_turn.values[place])
        return places[::-1]

    def ends(self, turns: npt.NDArray[np.integer[Any]]) -> Ints:
        """Return the place of the last message of each turn, given the numbers of turns that are on the line."""
        ends: Ints = self._last_of_turn.values[turns]
        return ends

    def beginning(self, count: int, times: npt.NDArray[np.float64], turns: Ints) -> "PathLine":
        """Return a line of the first `count` places, which goes on by itself; `times` and `turns` are all rows'."""
        line = PathLine()
        line.plain = self.plain or bool(np.array_equal(self.rows[:count], np.arange(count)))
        line._rows = Growing.of(self.rows[:count])
        line._sittings = Growing.of(self.sittings[:count])
        line._terms = Growing.of(self._terms.values[:count])
        line._places = Growing(np.int32, self._places.values)
        line._places.values[self.rows[count:]] = -1
        line._first_said = {speaker: place for speaker, place in self._first_said.items() if place < count}
        line._last_time = float(times[self.rows[count - 1]]) if count else -np.inf
        line._before_in_turn = Growing.of(self._before_in_turn.values[:count])
        line._last_of_turn = Growing(np.int32, self._last_of_turn.values)
        # From the last place to the first, so that of a turn's what is before the first one cut off stays.
        cut = turns[self.rows[count:]][::-1]
        line._last_of_turn.values[cut] = self._before_in_turn.values[count:][::-1]
        return line

    def terms(self, upto: int) -> int:
        """Return how many terms the messages before a place have together."""
        return int(self._terms.values[upto - 1]) if upto else 0

    def has_said(self, speaker: int, upto: int) -> bool:
        """Return whether a speaker, by his code, says something before a place."""
        return self._first_said.get(speaker, upto) < upto

    def note(self, speakers: Ints, lengths: Ints) -> None:
        """Note who says what comes next, and its length in terms; call it before `extend`."""
        if not len(speakers):
            return
        start = len(self._rows)
        first = np.empty(int(speakers.max(initial=-1)) + 2, dtype=np.int64)
        first[speakers[::-1]] = np.arange(start, start + len(speakers))[::-1]  # the first is written last
        for speaker in np.flatnonzero(np.bincount(speakers + 1)).tolist():
            self._first_said.setdefault(speaker - 1, int(first[speaker - 1]))
        self._terms.extend(self.terms(start) + np.cumsum(lengths, dtype=np.int64))

    def part(self) -> None:
        """Begin a new sitting with the next row: what a merge brought in follows what it did not answer."""
        self._parted = True

    def extend(self, rows: Ints, times: npt.NDArray[np.float64], turns: Ints, total: int) -> None:
        """Append rows with their times (seconds) and turns (numbers); `total` is how many rows the session has."""
        self._places.extend(np.full(total - len(self._places), -1, dtype=np.int32))
        if not len(rows):
            return
        start = len(self._rows)
        self.plain = self.plain and bool(np.array_equal(rows, np.arange(start, start + len(rows))))
        self._places.values[rows] = np.arange(start, start + len(rows))
        gaps = np.diff(times, prepend=self._last_time) > SITTING_GAP
        gaps[0] |= self._parted
        self._parted = False
        self._sittings.extend((self.sittings[-1] if start else -1) + np.cumsum(gaps))
        self._last_time = float(times[-1])
        self._rows.extend(rows)
        self._into_turns(turns)

    def _into_turns(self, turns: Ints) -> None:
        """Put the next places into their turns."""
        start, unknown = len(self._before_in_turn), int(turns.max()) + 1 - len(self._last_of_turn)
        self._last_of_turn.extend(np.full(max(0, unknown), -1, dtype=np.int32))
        order = np.argsort(turns, kind="stable")
        places, last = (start + order).astype(np.int32), self._last_of_turn.values
        begins = np.flatnonzero(np.diff(turns[order], prepend=-1))
        met = turns[order[begins]]
        before = np.empty_like(places)
        before[order[1:]] = places[:-1]
        before[order[begins]] = last[met]
        self._before_in_turn.extend(before)
        last[met] = places[np.append(begins[1:], len(places)) - 1]


@dataclass(frozen=True, slots=True)
class LinePrefix:
    """The first `upto` places of a line: what had been said by then.

    Attributes:
        line: the whole line, which may grow.
        upto: how many places the prefix has.
        rows: the row at each place of the line, as it was when the prefix was made.
        sittings: the number of the sitting at each place, likewise.
    """

    line: PathLine
    upto: int
    rows: Ints = field(init=False, repr=False, compare=False)
    sittings: Ints = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        _set(self, "rows", self.line.rows)
        _set(self, "sittings", self.line.sittings)

    @property
    def terms(self) -> int:
        """How many terms the messages of the prefix have together."""
        return self.line.terms(self.upto)

    def places(self, rows: Ints) -> Ints:
        """Return the place of each row, -1 where it is not on the line."""
        return self.line.places(rows)

    def has_said(self, speaker: int) -> bool:
        """Return whether a speaker, by his code, says something in the prefix."""
        return self.line.has_said(speaker, self.upto)

    def along(self, column: npt.NDArray[Scalar]) -> npt.NDArray[Scalar]:
        """Return the values at the places of the prefix, given one for each row; without a copy where that can be."""
        return column[: self.upto] if self.line.plain else column[self.rows[: self.upto]]

    def across(self, places: npt.NDArray[np.bool_], count: int) -> npt.NDArray[np.bool_]:
        """Return for each of `count` rows what is given for its place, False where it is not in the prefix."""
        rows = np.zeros(count, dtype=np.bool_)
        rows[slice(self.upto) if self.line.plain else self.rows[: self.upto]] = places
        return rows
