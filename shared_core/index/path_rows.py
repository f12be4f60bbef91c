"""The rows of a session along a path through its tree, as arrays that grow with the path."""

from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from shared_core.index.arrays import GrowingArray

SITTING_GAP = 6 * 3600.0
"""Seconds without a message after which a new sitting begins."""

FEW_NEW = 16
"""Speakers or languages that are looked for one by one; of more, each row is noted."""

_set = object.__setattr__  # a frozen value has no other way in

Ints = npt.NDArray[np.int32]
Scalar = TypeVar("Scalar", bound=np.generic)


class PathLine:
    """The rows along a line of segments, in path order.

    Attributes:
        taken: how many rows of the last segment are on the line so far.
        plain: whether every row's index is the row itself, as in a conversation that was never forked.
    """

    def __init__(self) -> None:
        self.taken = 0
        self.plain = True
        self._rows: GrowingArray[np.int32] = GrowingArray(np.int32)
        self._sittings: GrowingArray[np.int32] = GrowingArray(np.int32)
        self._indices: GrowingArray[np.int32] = GrowingArray(np.int32)
        self._terms: GrowingArray[np.int64] = GrowingArray(np.int64)
        self._before_in_turn: GrowingArray[np.int32] = GrowingArray(np.int32)  # by index, -1: it begins its turn
        self._last_of_turn: GrowingArray[np.int32] = GrowingArray(np.int32)  # by turn, -1: it is not on the line
        self._first_said: dict[int, int] = {}
        self._first_in: dict[int, int] = {}
        self._last_time = -np.inf
        self._sitting_ended = False

    @property
    def nbytes(self) -> int:
        """About how many bytes it takes in memory."""
        arrays = (self._rows, self._sittings, self._indices, self._terms, self._before_in_turn, self._last_of_turn)
        return sum(array.nbytes for array in arrays)

    @property
    def known(self) -> int:
        """How many rows of the session were known when the line was last extended."""
        return len(self._indices)

    @property
    def rows(self) -> Ints:
        """The row at each index."""
        return self._rows.values

    @property
    def sittings(self) -> Ints:
        """The number of the sitting at each index."""
        return self._sittings.values

    def indices(self, rows: Ints) -> Ints:
        """Return the index of each row, -1 if it is not on the line or was added after the line was last extended."""
        known = self._indices.values
        if rows.min(initial=0) >= 0 and rows.max(initial=-1) < len(known):
            return known[rows]
        indices = np.full(len(rows), -1, dtype=np.int32)
        inside = (rows >= 0) & (rows < len(known))
        indices[inside] = known[rows[inside]]
        return indices

    def indices_of_turn(self, turn: int) -> list[int]:
        """Return the indices of the messages of a turn, given by its number."""
        index = int(self._last_of_turn.values[turn]) if 0 <= turn < len(self._last_of_turn) else -1
        indices = list[int]()
        while index >= 0:
            indices.append(index)
            index = int(self._before_in_turn.values[index])
        return indices[::-1]

    def turn_ends(self, turns: npt.NDArray[np.integer[Any]]) -> Ints:
        """Return the index of the last message of each turn, given by numbers of turns that are on the line."""
        ends: Ints = self._last_of_turn.values[turns]
        return ends

    def beginning(self, count: int, times: npt.NDArray[np.float64], turns: Ints) -> "PathLine":
        """Return an independent line of the first `count` rows; `times` and `turns` are columns over all rows."""
        line = PathLine()
        line.plain = self.plain or bool(np.array_equal(self.rows[:count], np.arange(count)))
        line._rows = GrowingArray.of(self.rows[:count])
        line._sittings = GrowingArray.of(self.sittings[:count])
        line._terms = GrowingArray.of(self._terms.values[:count])
        line._indices = GrowingArray(np.int32, self._indices.values)
        line._indices.values[self.rows[count:]] = -1
        line._first_said = {speaker: index for speaker, index in self._first_said.items() if index < count}
        line._first_in = {language: index for language, index in self._first_in.items() if index < count}
        line._last_time = float(times[self.rows[count - 1]]) if count else -np.inf
        line._before_in_turn = GrowingArray.of(self._before_in_turn.values[:count])
        line._last_of_turn = GrowingArray(np.int32, self._last_of_turn.values)
        # Backwards, so that each turn ends before the first of its messages that is cut off.
        cut = turns[self.rows[count:]][::-1]
        line._last_of_turn.values[cut] = self._before_in_turn.values[count:][::-1]
        return line

    def terms(self, upto: int) -> int:
        """Return the number of terms in all messages before an index."""
        return int(self._terms.values[upto - 1]) if upto else 0

    def has_said(self, speaker: int, upto: int) -> bool:
        """Return whether a speaker, given by code, speaks before an index."""
        return self._first_said.get(speaker, upto) < upto

    def languages(self, upto: int) -> list[int]:
        """Return the numbers of the languages in which something is said before an index, in order of their first."""
        return [language for language, index in self._first_in.items() if index < upto]

    def note(self, speakers: Ints, lengths: Ints, languages: npt.NDArray[np.int8]) -> None:
        """Note the speakers, the lengths in terms and the languages of the next rows. Call this before `extend`."""
        if not len(speakers):
            return
        start = len(self._rows)
        _note_first(self._first_said, speakers, start)
        _note_first(self._first_in, languages, start)
        self._terms.extend(self.terms(start) + np.cumsum(lengths, dtype=np.int64))

    def end_sitting(self) -> None:
        """Begin a new sitting with the next row: merged messages follow messages that they do not answer."""
        self._sitting_ended = True

    def extend(
        self, rows: Ints, times: npt.NDArray[np.float64], turns: Ints, total: int,
        breaks: npt.NDArray[np.bool_] | None = None,
    ) -> None:  # fmt: skip
        """Append rows with their times (seconds) and turns (numbers).

        Args:
            rows: the rows.
            times: when each was said.
            turns: the turn of each.
            total: the number of rows of the session.
            breaks: which of them begin a sitting whatever their times are.
        """
        self._indices.extend(np.full(total - len(self._indices), -1, dtype=np.int32))
        if not len(rows):
            return
        start = len(self._rows)
        new = np.arange(start, start + len(rows), dtype=np.int32)
        self.plain = self.plain and bool(np.array_equal(rows, new))
        self._indices.values[slice(start, start + len(rows)) if self.plain else rows] = new
        gaps = np.diff(times, prepend=self._last_time) > SITTING_GAP
        gaps[0] |= self._sitting_ended
        gaps |= False if breaks is None else breaks
        self._sitting_ended = False
        self._sittings.extend((self.sittings[-1] if start else -1) + np.cumsum(gaps, dtype=np.int32))
        self._last_time = float(times[-1])
        self._rows.extend(rows)
        self._into_turns(turns)

    def _into_turns(self, turns: Ints) -> None:
        """Link the next messages to their turns."""
        start, unknown = len(self._before_in_turn), int(turns.max()) + 1 - len(self._last_of_turn)
        self._last_of_turn.extend(np.full(max(0, unknown), -1, dtype=np.int32))
        last = self._last_of_turn.values
        new = np.diff(turns, prepend=np.int32(-1))
        if new.min() >= 0:  # as nearly always: no turn goes on after another one has begun
            begins = np.flatnonzero(new)
            before = np.arange(start - 1, start + len(turns) - 1, dtype=np.int32)
            before[begins] = last[turns[begins]]
            self._before_in_turn.extend(before)
            last[turns[begins]] = start + np.append(begins[1:], len(turns)) - 1
            return
        order = np.argsort(turns, kind="stable")
        indices = (start + order).astype(np.int32)
        begins = np.flatnonzero(np.diff(turns[order], prepend=-1))
        met = turns[order[begins]]
        before = np.empty_like(indices)
        before[order[1:]] = indices[:-1]
        before[order[begins]] = last[met]
        self._before_in_turn.extend(before)
        last[met] = indices[np.append(begins[1:], len(indices)) - 1]


def _note_first(found: dict[int, int], numbers: npt.NDArray[np.integer[Any]], start: int) -> None:
    """Note for each number, at least -1, the index at which it first occurs; the indices begin at `start`."""
    new = [number for number in (np.flatnonzero(np.bincount(numbers + 1)) - 1).tolist() if number not in found]
    if len(new) <= FEW_NEW:
        first = {number: int((numbers == number).argmax()) for number in new}
    else:
        noted = np.empty(int(numbers.max()) + 2, dtype=np.int64)
        noted[numbers[::-1]] = np.arange(len(numbers))[::-1]  # the first is written last
        first = {number: int(noted[number]) for number in new}
    for number in sorted(new, key=first.__getitem__):
        found[number] = start + first[number]


@dataclass(frozen=True, slots=True)
class LinePrefix:
    """The first `upto` messages of a line.

    Attributes:
        line: the whole line, which may grow.
        upto: how many messages the prefix has.
        rows: the row at each index of the line when the prefix was made.
        sittings: the number of the sitting at each index, likewise.
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
        """The number of terms in all messages of the prefix."""
        return self.line.terms(self.upto)

    def indices(self, rows: Ints) -> Ints:
        """Return the index of each row, -1 if it is not on the line."""
        return self.line.indices(rows)

    def has_said(self, speaker: int) -> bool:
        """Return whether a speaker, given by code, speaks in the prefix."""
        return self.line.has_said(speaker, self.upto)

    def languages(self) -> list[int]:
        """Return the numbers of the languages in which something is said in the prefix, in order of their first."""
        return self.line.languages(self.upto)

    def along(self, column: npt.NDArray[Scalar]) -> npt.NDArray[Scalar]:
        """Return the values of a column over rows, by index in the prefix; without copying if the line is plain."""
        return column[: self.upto] if self.line.plain else column[self.rows[: self.upto]]

    def across(self, indices: npt.NDArray[np.bool_], count: int) -> npt.NDArray[np.bool_]:
        """Return a mask over `count` rows, given one by index in the prefix; False for rows outside it."""
        rows = np.zeros(count, dtype=np.bool_)
        rows[slice(self.upto) if self.line.plain else self.rows[: self.upto]] = indices
        return rows
