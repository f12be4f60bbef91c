"""Lines: the rows along a path, as arrays that grow with the path."""

from collections.abc import Mapping
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from shared_core.index.arrays import GrowingArray

SITTING_GAP = 6 * 3600.0
"""Seconds without a message after which a new sitting begins."""

Ints = npt.NDArray[np.int32]
Scalar = TypeVar("Scalar", bound=np.generic)


class Line:
    """The rows along a path, in order.

    Attributes:
        begun: how many of them come before the last segment of the path.
        plain: whether every row's index is the row itself, as in a conversation that was never forked.
        first_said: speaker -> the index of his first message.
        first_in: language -> the index of the first message in it.
    """

    def __init__(self) -> None:
        self.begun = 0
        self.plain = True
        self.first_said: dict[int, int] = {}
        self.first_in: dict[int, int] = {}
        self._rows: GrowingArray[np.int32] = GrowingArray(np.int32)
        self._sittings: GrowingArray[np.int32] = GrowingArray(np.int32)
        self._indices: GrowingArray[np.int32] = GrowingArray(np.int32)
        self._terms: GrowingArray[np.int64] = GrowingArray(np.int64)
        self._before_in_turn: GrowingArray[np.int32] = GrowingArray(np.int32)  # by index, -1: it begins its turn
        self._last_of_turn: GrowingArray[np.int32] = GrowingArray(np.int32)  # by turn, -1: it is not on the line
        self._last_time = -np.inf
        self._last_strand = 0

    @property
    def known(self) -> int:
        """How many rows of the index were known when the line was last extended."""
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

    def terms(self, upto: int) -> int:
        """Return the number of terms in all messages before an index."""
        return int(self._terms.values[upto - 1]) if upto else 0

    def turn(self, turn: int) -> list[int]:
        """Return the indices of the messages of a turn, given by its number."""
        last, before, indices = self._last_of_turn.values, self._before_in_turn.values, list[int]()
        index = int(last[turn]) if 0 <= turn < len(last) else -1
        while index >= 0:
            indices.append(index)
            index = int(before[index])
        return indices[::-1]

    def turn_ends(self, turns: npt.NDArray[np.integer[Any]]) -> Ints:
        """Return the index of the last message of each turn, given by numbers of turns that are on the line."""
        ends: Ints = self._last_of_turn.values[turns]
        return ends

    def extend(
        self, rows: Ints, columns: Mapping[str, npt.NDArray[Any]], strands: npt.NDArray[np.int64] | int = 0
    ) -> None:
        """Append rows.

        Args:
            rows: the rows.
            columns: "times", "turns", "speakers", "languages" and "lengths" (in terms) of all rows of the index.
            strands: a number for each of the rows. Where it changes, a sitting ends, whatever the times are: merged
                messages follow messages that they do not answer.
        """
        self._indices.extend(np.full(len(columns["times"]) - self.known, -1, dtype=np.int32))
        if not len(rows):
            return
        start = len(self._rows)
        new = np.arange(start, start + len(rows), dtype=np.int32)
        self.plain = self.plain and bool(np.array_equal(rows, new))
        self._indices.values[slice(start, start + len(rows)) if self.plain else rows] = new
        # Where no other row is between them, nothing has to be gathered.
        together = rows[-1] - rows[0] == len(rows) - 1 and (len(rows) == 1 or bool(np.all(np.diff(rows) == 1)))
        taken: slice | Ints = slice(rows[0], rows[-1] + 1) if together else rows
        _note_first(self.first_said, columns["speakers"][taken], start)
        _note_first(self.first_in, columns["languages"][taken], start)
        self._terms.extend(self.terms(start) + np.cumsum(columns["lengths"][taken], dtype=np.int64))
        times, strands = columns["times"][taken], np.broadcast_to(strands, len(rows))
        begins = np.diff(times, prepend=self._last_time) > SITTING_GAP
        begins |= np.diff(strands, prepend=self._last_strand) != 0
        self._sittings.extend((self.sittings[-1] if start else np.int32(-1)) + np.cumsum(begins, dtype=np.int32))
        self._last_time, self._last_strand = float(times[-1]), int(strands[-1])
        self._rows.extend(rows)
        self._into_turns(columns["turns"][taken])

    def _into_turns(self, turns: Ints) -> None:
        """Link the next messages to their turns."""
        start, unknown = len(self._before_in_turn), int(turns.max()) + 1 - len(self._last_of_turn)
        self._last_of_turn.extend(np.full(max(0, unknown), -1, dtype=np.int32))
        last = self._last_of_turn.values
        order = np.argsort(turns, kind="stable")  # in nearly no time, as they nearly always ascend
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
    first = np.full(int(numbers.max()) + 2, -1, dtype=np.int64)
    newest_first = np.arange(start + len(numbers) - 1, start - 1, -1)
    first[numbers[::-1].astype(np.int64) + 1] = newest_first  # so that the first is written last
    for number in np.flatnonzero(first >= 0).tolist():
        found.setdefault(number - 1, int(first[number]))


class LinePrefix:
    """The first `upto` messages of a line, as they are now: the line may grow.

    Attributes:
        line: the whole line.
        upto: how many messages the prefix has.
        rows: the row at each index of the line when the prefix was made.
        sittings: the number of the sitting at each index, likewise.
    """

    def __init__(self, line: Line, upto: int) -> None:
        self.line = line
        self.upto = upto
        self.rows = line.rows
        self.sittings = line.sittings

    @property
    def terms(self) -> int:
        """The number of terms in all messages of the prefix."""
        return self.line.terms(self.upto)

    def indices(self, rows: Ints) -> Ints:
        """Return the index of each row, -1 if it is not on the line."""
        return self.line.indices(rows)

    def turn(self, turn: int) -> list[int]:
        """Return the indices of the messages of a turn, given by its number."""
        return [index for index in self.line.turn(turn) if index < self.upto]

    def turn_ends(self, turns: npt.NDArray[np.int32]) -> npt.NDArray[np.int64]:
        """Return the index of the last message of each turn, given by numbers of turns that have some in the prefix."""
        ends: npt.NDArray[np.int64] = self.line.turn_ends(turns).astype(np.int64)
        for turn in np.unique(turns[ends >= self.upto]).tolist():
            ends[turns == turn] = self.turn(turn)[-1]
        return ends

    def has_said(self, speaker: int) -> bool:
        """Return whether a speaker, given by code, speaks in the prefix."""
        return self.line.first_said.get(speaker, self.upto) < self.upto

    def languages(self) -> list[int]:
        """Return the numbers of the languages in which something is said in the prefix, in order of their first."""
        return sorted(
            (language for language, index in self.line.first_in.items() if index < self.upto),
            key=self.line.first_in.__getitem__,
        )

    def along(self, column: npt.NDArray[Scalar]) -> npt.NDArray[Scalar]:
        """Return the values of a column over rows, by index in the prefix; without copying if the line is plain."""
        return column[: self.upto] if self.line.plain else column[self.rows[: self.upto]]

    def across(self, indices: npt.NDArray[np.bool_], count: int) -> npt.NDArray[np.bool_]:
        """Return a mask over `count` rows, given one by index in the prefix; False for rows outside it."""
        rows = np.zeros(count, dtype=np.bool_)
        rows[slice(self.upto) if self.line.plain else self.rows[: self.upto]] = indices
        return rows
