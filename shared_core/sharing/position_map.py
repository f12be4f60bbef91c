"""The mapping from the positions of a file to those of a session: known ones are found, others are added."""

from bisect import bisect_right
from collections import deque
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from shared_core.records import Position, Record, Stretch
from shared_core.sharing.format import FileRef, LineError
from shared_core.sharing.session_tree import SessionTree

MAX_REMEMBERED = 4_096
"""The number of recent messages whose positions are kept in memory. Older ones are looked up in the store."""

MAX_EMPTY = 2**24
"""The number of empty positions that a session of a file may have. It bounds what one short line can create."""

SKIPPED = 2**25
"""The number of the first message that is skipped. The file does not number these, and has no number as large."""


class _EmptyRun(NamedTuple):
    """Consecutive positions of the file that hold no message: empty ones, or one merge.

    `number` is that of the first position, `size` their count. A merge has two parents, any other run has one.
    """

    number: int
    size: int
    parents: tuple[FileRef | None, ...]
    fork: bool = False
    turn_shift: int = 0

    @property
    def merge(self) -> bool:
        return len(self.parents) == 2


class _FoundRun(NamedTuple):
    """Consecutive positions of the file, from `number` on, that are consecutive positions of a segment."""

    number: int
    size: int
    first: Position


class _Found:
    """Where the positions of the file that hold no message are in the session.

    They are kept as runs, because one short line of a file may stand for millions of them.
    """

    def __init__(self) -> None:
        self._runs: list[_FoundRun] = []

    def __iter__(self) -> Iterator[_FoundRun]:
        return iter(self._runs)

    def add(self, run: _FoundRun) -> None:
        """Add positions, none of which is known."""
        self._runs.insert(bisect_right(self._runs, run.number, key=_number), run)

    def run_at(self, number: int) -> _FoundRun | None:
        """Return the last run that begins at or before a number."""
        at = bisect_right(self._runs, number, key=_number) - 1
        return self._runs[at] if at >= 0 else None

    def get(self, number: int) -> Position | None:
        """Return where a position of the file is."""
        run = self.run_at(number)
        if run is None or number >= run.number + run.size:
            return None
        return run.first._replace(depth=run.first.depth + number - run.number)

    def known_upto(self, number: int, end: int) -> int:
        """Return the first number from `number` on that is not known in one run, at most `end`."""
        run = self.run_at(number)
        return number if run is None else min(max(number, run.number + run.size), end)

    def next_known(self, number: int, end: int) -> int:
        """Return the first number from `number` on that is known, at most `end`."""
        at = bisect_right(self._runs, number, key=_number)
        return min(self._runs[at].number, end) if at < len(self._runs) else end


def _number(run: _FoundRun) -> int:
    return run.number


class _Used:
    """Positions of the session, as stretches of segments that do not overlap."""

    def __init__(self) -> None:
        self._stretches: dict[int, list[tuple[int, int]]] = {}

    def add(self, first: Position, size: int) -> None:
        """Add consecutive positions, of which any may be there already."""
        stretches = self._stretches.setdefault(first.segment, [])
        start, upto = first.depth, first.depth + size - 1
        low = bisect_right(stretches, (start,))
        low -= low > 0 and stretches[low - 1][1] >= start - 1
        high = bisect_right(stretches, upto + 1, key=lambda one: one[0])
        if low < high:
            start, upto = min(start, stretches[low][0]), max(upto, stretches[high - 1][1])
        stretches[low:high] = [(start, upto)]

    def free(self, first: Position, most: int) -> int:
        """Return how many positions are not among these, from the first one on up to the next that is."""
        stretches = self._stretches.get(first.segment, [])
        at = bisect_right(stretches, first.depth, key=lambda one: one[0])
        if at and stretches[at - 1][1] >= first.depth:
            return 0
        return min(most, stretches[at][0] - first.depth) if at < len(stretches) else most


class PositionMap:
    """Finds the positions of one session of a file in a session of the store.

    Args:
        tree: adds positions to the session.
        renamed: id in the file -> id here.
    """

    def __init__(self, tree: SessionTree, renamed: dict[str, str]) -> None:
        self._tree = tree
        self._renamed = renamed
        self._seen = bytearray(tree.last_seq + 1)
        self._remembered: dict[str, Position] = {}
        self._skipped: dict[str, int] = {}
        self._runs: list[_EmptyRun] = []
        self._skipped_runs: list[_EmptyRun] = []
        self._found = _Found()
        self._used = _Used()
        self._numbers = 0
        self._forgotten_positions: set[Position] = set()
        self._children: dict[tuple[Position, Position | None], deque[int]] | None = None

    # What the file holds

    def has_id(self, id_: str) -> bool:
        """Return whether an earlier line had this id, as far as that is still in memory."""
        return id_ in self._remembered or id_ in self._skipped

    def is_in_file(self, record: Record) -> bool:
        """Return whether an earlier line was this message."""
        return self._tree.is_added(record) or (record.seq < len(self._seen) and bool(self._seen[record.seq]))

    def mark_known(self, id_: str, record: Record) -> None:
        """Note that a message of the file is already stored."""
        self._seen.extend(bytes(max(record.seq + 1 - len(self._seen), 0)))  # others may add messages meanwhile
        self._seen[record.seq] = 1
        self.remember(id_, record.position)

    def remember(self, id_: str, position: Position) -> None:
        """Note the position of a message of the file."""
        self._remembered[id_] = position
        while len(self._remembered) > MAX_REMEMBERED:
            self._remembered.pop(next(iter(self._remembered)))

    def add_gone(self, count: int, parent: FileRef | None, *, fork: bool, number: int | None = None) -> None:
        """Note empty positions. They are created when something follows them."""
        self._add_run(_EmptyRun(self._numbers, count, (parent,), fork), number)

    def add_merge(self, parents: Sequence[FileRef | None], turn_shift: int, number: int) -> None:
        """Note a merge."""
        self._add_run(_EmptyRun(self._numbers, 1, tuple(parents), True, turn_shift), number)

    def add_skipped(self, id_: str, parent: FileRef | None, *, fork: bool) -> None:
        """Note a message that must not be stored, so that its position stays empty."""
        run = _EmptyRun(SKIPPED + len(self._skipped_runs), 1, (parent,), fork)
        self._skipped[id_] = run.number
        self.check(parent)
        self._skipped_runs.append(run)
        if self._tree.empty:
            self.position(id_)

    def add_forgotten(self, records: Sequence[Record]) -> None:
        """Note messages that were forgotten in the store the file comes from: the file has empty positions for them."""
        self._forgotten_positions.update(record.position for record in records)

    def _add_run(self, run: _EmptyRun, number: int | None) -> None:
        if number is not None and number != run.number:
            raise LineError(f"place: the next number is {run.number}, not {number}")
        if run.number + run.size > MAX_EMPTY:
            raise LineError("has too many positions without a message")
        for parent in run.parents:
            self.check(parent)
        self._runs.append(run)
        self._numbers += run.size
        if self._tree.empty:
            self.position(run.number)

    def check(self, ref: FileRef | None) -> None:
        """Raise `LineError` if no earlier line has this position. Nothing is created."""
        if isinstance(ref, int):
            if ref >= self._numbers:
                raise LineError(f"refers to position {ref}, which no earlier line has")
        elif ref is not None and ref not in self._skipped:
            self._message_position(ref)

    def _run_of(self, number: int) -> _EmptyRun:
        if number >= SKIPPED:
            return self._skipped_runs[number - SKIPPED]
        return self._runs[bisect_right(self._runs, number, key=lambda run: run.number) - 1]

    # Finding

    def position(self, ref: FileRef | None) -> Position:
        """Return the position in the session that a reference of the file means. Empty positions are created if needed.

        The walk uses a list instead of recursion, because runs may follow each other thousands of times.

        Raises:
            LineError: no earlier line has it.
        """
        waiting = [ref]
        while waiting:
            top = self._as_number(waiting[-1])
            if not isinstance(top, int) or self._known_position(top) is not None:
                waiting.pop()
                continue
            run = self._run_of(top)
            before = [one for one in map(self._as_number, run.parents) if isinstance(one, int)]
            missing = [one for one in before if self._known_position(one) is None]
            if missing:
                waiting += missing
            elif run.merge:
                self._found.add(_FoundRun(top, 1, self._find_or_merge(run)))
            else:
                self._create(run)
        return self._resolved(ref)

    def is_at(self, ref: FileRef | None, position: Position) -> bool:
        """Return whether a reference of the file may mean a position. Empty positions match wherever they can be."""
        waiting, matched = [(ref, position)], _Found()
        while waiting:
            what, here = waiting.pop()
            number = self._as_number(what)
            known = matched.get(number) if isinstance(number, int) else None
            if known is not None or not isinstance(number, int) or self._known_position(number) is not None:
                if (self._resolved(what) if known is None else known) != here:
                    return False
                continue
            run, segment = self._run_of(number), self._tree.segment(here.segment)
            if here == self._tree.root or run.merge != (here.depth == segment.base):
                return False
            back = self._run_back(run, number, here, matched)
            matched.add(back)
            first = run.parents[0] if back.number == run.number else back.number - 1
            waiting.append((first, self._tree.before(back.first)))
            if run.merge:
                waiting.append((run.parents[1], self._tree.normalized(segment.merged)))
        for one in matched:
            self._found.add(one)
            self._used.add(one.first, one.size)
        return True

    def _run_back(self, run: _EmptyRun, number: int, here: Position, matched: _Found) -> _FoundRun:
        """Return the positions of a run up to a number that may be those of a segment up to a position."""
        segment = self._tree.segment(here.segment)
        start = segment.start if run.merge or segment.base is None else segment.base + 1
        low = max(run.number, number - (here.depth - start))
        for found in (self._found, matched):
            before = found.run_at(number)
            low = low if before is None else max(low, before.number + before.size)
        return _FoundRun(low, number - low + 1, here._replace(depth=here.depth - (number - low)))

    def _as_number(self, ref: FileRef | None) -> FileRef | None:
        return self._skipped.get(ref, ref) if isinstance(ref, str) else ref

    def _resolved(self, ref: FileRef | None) -> Position:
        ref = self._as_number(ref)
        if ref is None:
            return self._tree.root
        if isinstance(ref, str):
            return self._message_position(ref)
        known = self._known_position(ref)
        assert known is not None
        return known

    def _known_position(self, number: int) -> Position | None:
        return self._found.get(number)

    def _message_position(self, id_: str) -> Position:
        if id_ not in self._remembered:
            self._tree.flush()
            records = self._tree.get([self._renamed.get(id_, id_)])
            if not records or not self.is_in_file(records[0]):
                raise LineError(f"refers to the message {id_!r}, which no earlier line has")
            self.remember(id_, records[0].position)
        return self._remembered[id_]

    # Creating

    def _create(self, run: _EmptyRun) -> None:
        """Find or create the positions of a run."""
        position, number, end = self._resolved(run.parents[0]), run.number, run.number + run.size
        while number < end:
            upto = self._found.known_upto(number, end)
            if upto == number:
                upto = self._find_or_add(run, number, position)
            known = self._known_position(upto - 1)
            assert known is not None
            position, number = known, upto

    def _find_or_add(self, run: _EmptyRun, number: int, before: Position) -> int:
        """Find or create positions of a run from a number on; return the number after the last one."""
        most = self._found.next_known(number, run.number + run.size) - number
        found = self._empty_after(before, number, most)
        if found is None:
            first = self._tree.next_position(before, fork=run.fork and number == run.number)
            self._tree.extend(first.segment, first.depth + most - 1)
            found = _FoundRun(number, most, first)
        self._found.add(found)
        if not self._tree.empty:
            self._used.add(found.first, found.size)
        return number + found.size

    def _find_or_merge(self, run: _EmptyRun) -> Position:
        parent, merged = map(self._resolved, run.parents)
        segments = self._segments_from(parent, merged)
        while segments:
            number = segments.popleft()
            known = Position(number, self._tree.segment(number).start)
            if self._used.free(known, 1):
                self._used.add(known, 1)
                return known
        return self._tree.merge(parent, merged, run.turn_shift)

    def _empty_after(self, before: Position, number: int, most: int) -> _FoundRun | None:
        """Return existing positions after another one that are empty, or whose message the file lists as forgotten.

        A segment that has no such position at its start never will: it is not looked at again.
        """
        if self._tree.empty:
            return None
        self._tree.flush()
        first = before._replace(depth=before.depth + 1)
        size = self._empty_size(first, most)
        segments = self._segments_from(before, None)
        while not size and segments:
            first = Position(segments[0], self._tree.segment(segments[0]).start)
            size = self._empty_size(first, most)
            if not size:
                segments.popleft()
        return _FoundRun(number, size, first) if size else None

    def _empty_size(self, first: Position, most: int) -> int:
        """Return how many positions of a segment are empty and not used, from one on, looking at few messages."""
        room = min(most, self._tree.segment(first.segment).tip - first.depth + 1)
        room = self._used.free(first, room) if room > 0 else 0
        if not room or first in self._forgotten_positions:
            return min(room, 1)
        empty, size = 0, 1  # so many are known to be empty; so many are looked at next
        while empty < room:
            size = min(size, room - empty)
            start = first.depth + empty
            if self._tree.count(Stretch(first.segment, start, start + size - 1)):
                room, size = empty + size - 1, size // 2
            else:
                empty, size = empty + size, size * 2
        return empty

    def _segments_from(self, parent: Position, merged: Position | None) -> deque[int]:
        """Return the segments of the session that begin after a position, or with the merge of two positions."""
        if self._tree.empty:
            return deque()
        if self._children is None:
            self._children = {}
            for segment in list(self._tree.segments):
                second = None if segment.merged is None else self._tree.normalized(segment.merged)
                key = self._tree.normalized(segment.parent), second
                self._children.setdefault(key, deque()).append(segment.segment)
        return self._children.setdefault((parent, merged), deque())
