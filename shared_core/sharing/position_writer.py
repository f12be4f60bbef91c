"""Write the positions of a session as lines of an export file; `position_map` reads them."""

from bisect import bisect_right
from collections.abc import Iterator
from typing import Any, NamedTuple

from shared_core.records import Position, Record, Segment
from shared_core.store import Store


class _EmptyRun(NamedTuple):
    """Consecutive positions of a segment that hold no message: the first one's depth and number, and their count."""

    start: int
    number: int
    size: int


class PositionWriter:
    """Writes the positions of one session as lines that refer to each other.

    A line refers to a message by its id. A merge has a number; so has a position whose message was forgotten or
    redacted.

    Args:
        store: the store that holds the session.
        session: the session's key.
    """

    def __init__(self, store: Store, session: int) -> None:
        self._store = store
        self._session = session
        self._segments: dict[int, Segment] = {}
        self._written: dict[int, int] = {}
        self._newest: dict[int, str | int | None] = {}
        self._runs: dict[int, list[_EmptyRun]] = {}
        self._numbers = 0

    def segment(self, segment: int) -> Segment:
        """Return a segment. Its parents never change, but its tip may be outdated."""
        if segment not in self._segments:
            self._segments[segment] = self._store.segment(self._session, segment)
        return self._segments[segment]

    def before(self, position: Position) -> Position | None:
        """Return the first parent of a position; None: the root."""
        segment = self.segment(position.segment)
        return self.normalized(
            position._replace(depth=position.depth - 1) if position.depth > segment.start else segment.parent
        )

    def normalized(self, position: Position | None) -> Position | None:
        """Return the same position outside of empty segments, which end where their parents end; None: the root."""
        while position is not None:
            segment = self.segment(position.segment)
            if position.depth >= segment.start:
                return position
            position = segment.parent
        return None

    def message_lines(self, record: Record, fields: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """Yield the line of a message, after the lines of earlier positions that were not written yet."""
        segment, depth = record.position
        previous = self.before(record.position)
        yield from self.lines_upto(previous)
        opens = segment not in self._written
        parent = self._newest[segment] if not opens else self.ref(previous)
        fields["parents"] = [] if parent is None else [parent]
        if opens and self.segment(segment).parent is not None:
            fields["fork"] = True
        self._written[segment], self._newest[segment] = depth, record.message.id
        yield fields

    def lines_upto(self, position: Position | None) -> Iterator[dict[str, Any]]:
        """Yield the lines of a position and of its ancestors that were not written yet.

        They are merges and `gone` lines: the messages of a session are written in order of storing, so a position that
        was passed over holds no message.
        """
        waiting = [position]
        while waiting:
            here = self.normalized(waiting[-1])
            if here is None or self._written.get(here.segment, -1) >= here.depth:
                waiting.pop()
                continue
            segment = self.segment(here.segment)
            if here.segment not in self._written:
                missing = [one for one in (segment.parent, segment.merged) if not self._is_written(one)]
                if missing:
                    waiting += missing[::-1]
                    continue
            if segment.base is not None and here.segment not in self._written:
                yield self._merge(segment)
                continue
            yield self._gone(here, segment)

    def ref(self, position: Position | None) -> str | int | None:
        """Return how lines refer to a position that was written; None: the root."""
        here = self.normalized(position)
        if here is None:
            return None
        if self._written[here.segment] == here.depth:
            return self._newest[here.segment]
        runs = self._runs.get(here.segment, [])
        at = bisect_right(runs, here.depth, key=lambda run: run.start) - 1
        if at >= 0 and here.depth < runs[at].start + runs[at].size:
            return runs[at].number + here.depth - runs[at].start
        (record,) = self._store.get(self._session, [here])
        return record.message.id

    def _is_written(self, position: Position | None) -> bool:
        here = self.normalized(position)
        return here is None or self._written.get(here.segment, -1) >= here.depth

    def _merge(self, segment: Segment) -> dict[str, Any]:
        assert segment.base is not None
        parents = [self.ref(segment.parent), self.ref(segment.merged)]
        number = self._number(Position(segment.segment, segment.base), 1)
        line: dict[str, Any] = {"type": "merge", "place": number, "parents": parents}
        return line | ({"turn_shift": segment.turn_shift} if segment.turn_shift else {})

    def _gone(self, upto: Position, segment: Segment) -> dict[str, Any]:
        opens = upto.segment not in self._written
        first = segment.start if opens else self._written[upto.segment] + 1
        parent = self.ref(segment.parent) if opens else self._newest[upto.segment]
        count = upto.depth - first + 1
        number = self._number(Position(upto.segment, first), count)
        line: dict[str, Any] = {"type": "gone", "place": number, "parents": [] if parent is None else [parent]}
        line |= {"count": count} if count > 1 else {}
        return line | ({"fork": True} if opens and segment.parent is not None else {})

    def _number(self, first: Position, count: int) -> int:
        number = self._numbers
        self._numbers += count
        self._runs.setdefault(first.segment, []).append(_EmptyRun(first.depth, number, count))
        self._written[first.segment] = first.depth + count - 1
        self._newest[first.segment] = number + count - 1
        return number
