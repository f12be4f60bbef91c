"""The places of a session as lines of a file: each after those it follows from, and named by id or by number."""

from bisect import bisect_right
from collections.abc import Iterator
from typing import Any, NamedTuple

from shared_core.records import Position, Record, Segment
from shared_core.store import Store

__all__ = ["Places"]


class _Run(NamedTuple):
    """Places without a message, one after the other in a segment: the first one's depth and number, and how many."""

    start: int
    number: int
    size: int


class Places:
    """Writes the places of one session.

    A message is named by its id. A merge, and a place whose message was forgotten or is not to be told, has a number.

    Args:
        store: where the session is.
        session: its key.
    """

    def __init__(self, store: Store, session: int) -> None:
        self._store = store
        self._session = session
        self._segments: dict[int, Segment] = {}
        self._written: dict[int, int] = {}
        self._newest: dict[int, str | int | None] = {}
        self._runs: dict[int, list[_Run]] = {}
        self._numbers = 0

    def segment(self, segment: int) -> Segment:
        """Return a segment whose parents are right; its tip may be old."""
        if segment not in self._segments:
            self._segments[segment] = self._store.segment(self._session, segment)
        return self._segments[segment]

    def before(self, place: Position) -> Position | None:
        """Return the place before one, by first parents; None: the root."""
        segment = self.segment(place.segment)
        return self.real(place._replace(depth=place.depth - 1) if place.depth > segment.start else segment.parent)

    def real(self, place: Position | None) -> Position | None:
        """Return a place as the place it stands for: an empty segment ends where its parent does; None: the root."""
        while place is not None:
            segment = self.segment(place.segment)
            if place.depth >= segment.start:
                return place
            place = segment.parent
        return None

    def message(self, record: Record, fields: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """Yield the line of a message, after those of the places before it that have not been written yet."""
        segment, depth = record.position
        previous = self.before(record.position)
        yield from self.upto(previous)
        opens = segment not in self._written
        parent = self._newest[segment] if not opens else self.name(previous)
        fields["parents"] = [] if parent is None else [parent]
        if opens and self.segment(segment).parent is not None:
            fields["fork"] = True
        self._written[segment], self._newest[segment] = depth, record.message.id
        yield fields

    def upto(self, place: Position | None) -> Iterator[dict[str, Any]]:
        """Yield the lines of a place and of those before it, as far as they have not been written yet.

        What has no message here is written as gone: the messages of the session are written in order, so that a place
        that is passed over has none.
        """
        waiting = [place]
        while waiting:
            here = self.real(waiting[-1])
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

    def name(self, place: Position | None) -> str | int | None:
        """Return how a place that has been written is named; None: the root."""
        here = self.real(place)
        if here is None:
            return None
        if self._written[here.segment] == here.depth:
            return self._newest[here.segment]
        runs = self._runs.get(here.segment, [])
        at = bisect_right(runs, here.depth, key=lambda run: run.start) - 1
        if at >= 0 and here.depth < runs[at].start + runs[at].size:
            return runs[at].number + here.depth - runs[at].start
        (record,) = self._store.at(self._session, [here])
        return record.message.id

    def _is_written(self, place: Position | None) -> bool:
        here = self.real(place)
        return here is None or self._written.get(here.segment, -1) >= here.depth

    def _merge(self, segment: Segment) -> dict[str, Any]:
        assert segment.base is not None
        parents = [self.name(segment.parent), self.name(segment.merged)]
        number = self._number(Position(segment.segment, segment.base), 1)
        line: dict[str, Any] = {"type": "merge", "place": number, "parents": parents}
        return line | ({"turn_shift": segment.turn_shift} if segment.turn_shift else {})

    def _gone(self, upto: Position, segment: Segment) -> dict[str, Any]:
        opens = upto.segment not in self._written
        first = segment.start if opens else self._written[upto.segment] + 1
        parent = self.name(segment.parent) if opens else self._newest[upto.segment]
        count = upto.depth - first + 1
        number = self._number(Position(upto.segment, first), count)
        line: dict[str, Any] = {"type": "gone", "place": number, "parents": [] if parent is None else [parent]}
        line |= {"count": count} if count > 1 else {}
        return line | ({"fork": True} if opens and segment.parent is not None else {})

    def _number(self, first: Position, count: int) -> int:
        number = self._numbers
        self._numbers += count
        self._runs.setdefault(first.segment, []).append(_Run(first.depth, number, count))
        self._written[first.segment] = first.depth + count - 1
        self._newest[first.segment] = number + count - 1
        return number
