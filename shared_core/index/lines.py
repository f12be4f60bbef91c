"""The rows of a session along one path through its tree, as arrays that grow with the path."""

from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from shared_core.index.arrays import Growing

__all__ = ["LinePrefix", "PathLine"]

SITTING_GAP = 6 * 3600.0
"""Seconds without a message after which a new sitting begins."""

LAYERS = 16
"""Lines that a line may share its beginning with before it keeps a copy of its own."""

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
        self._turn_ends: Growing[np.int32] = Growing(np.int32)
        self._terms: Growing[np.int64] = Growing(np.int64)
        self._of_turn: dict[int, list[int]] = {}
        self._begun: list[tuple[dict[int, list[int]], int]] = []
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

    @property
    def turn_ends(self) -> Ints:
        """The place of the last message of each place's turn."""
        return self._turn_ends.values

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
        """Return the places of a turn's messages, by its code."""
        own = self._of_turn.get(turn, [])
        begun = [place for places, upto in self._begun for place in places.get(turn, ()) if place < upto]
        return begun + own if begun else own

    def beginning(self, count: int, times: npt.NDArray[np.float64], turns: npt.NDArray[np.int64]) -> "PathLine":
        """Return a line of the first `count` places, which goes on by itself; `times` and `turns` are all rows'."""
        line = PathLine()
        line.plain = self.plain or bool(np.array_equal(self.rows[:count], np.arange(count)))
        line._rows = Growing(np.int32, self.rows[:count])
        line._sittings = Growing(np.int32, self.sittings[:count])
        line._terms = Growing(np.int64, self._terms.values[:count])
        line._turn_ends = Growing(np.int32, self.turn_ends[:count])
        line._places = Growing(np.int32, self._places.values)
        line._places.values[self.rows[count:]] = -1
        line._first_said = {speaker: place for speaker, place in self._first_said.items() if place < count}
        line._last_time = float(times[self.rows[count - 1]]) if count else -np.inf
        line._begun = [*((places, min(upto, count)) for places, upto in self._begun), (self._of_turn, count)]
        if len(line._begun) > LAYERS:
            line._of_turn = {turn: line.of_turn(turn) for places, _ in line._begun for turn in places}
            line._begun = []
        for place in np.flatnonzero(line.turn_ends >= count).tolist():
            line.turn_ends[place] = line.of_turn(int(turns[line.rows[place]]))[-1]
        return line

    def terms(self, upto: int) -> int:
        """Return how many terms the messages before a place have together."""
        return int(self._terms.values[upto - 1]) if upto else 0

    def has_said(self, speaker: int, upto: int) -> bool:
        """Return whether a speaker, by his code, says something before a place."""
        return self._first_said.get(speaker, upto) < upto

    def note(self, speakers: Ints, lengths: Ints) -> None:
        """Note who says what comes next, and its length in terms; call it before `extend`."""
        start = len(self._rows)
        codes, first = np.unique(speakers, return_index=True)
        for speaker, place in zip(codes.tolist(), (start + first).tolist(), strict=True):
            self._first_said.setdefault(speaker, place)
        self._terms.extend(self.terms(start) + np.cumsum(lengths, dtype=np.int64))

    def part(self) -> None:
        """Begin a new sitting with the next row: what a merge brought in follows what it did not answer."""
        self._parted = True

    def extend(self, rows: Ints, times: npt.NDArray[np.float64], turns: npt.NDArray[np.int64], total: int) -> None:
        """Append rows with their times (seconds) and turns; `total` is how many rows the session has."""
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
        for place, turn in enumerate(turns.tolist(), start=start):
            self._of_turn.setdefault(turn, []).append(place)
        codes, which = np.unique(turns, return_inverse=True)
        self._turn_ends.extend(np.array([self._of_turn[code][-1] for code in codes.tolist()])[which])
        for code in codes.tolist():
            members = self.of_turn(code)
            if members[0] < start:
                self._turn_ends.values[members] = members[-1]


@dataclass(frozen=True, slots=True)
class LinePrefix:
    """The first `upto` places of a line: what had been said by then."""

    line: PathLine
    upto: int

    @property
    def rows(self) -> Ints:
        """The row at each place of the whole line."""
        return self.line.rows

    @property
    def sittings(self) -> Ints:
        """The sitting of each place of the whole line."""
        return self.line.sittings

    def places(self, rows: Ints) -> Ints:
        """Return the place of each row, -1 where it is not on the line."""
        return self.line.places(rows)

    @property
    def terms(self) -> int:
        """How many terms the prefix has."""
        return self.line.terms(self.upto)

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
