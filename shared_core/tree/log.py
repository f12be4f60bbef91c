"""The log of a conversation tree: messages and merges as nodes with their parents, and a drawing of them."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from shared_core.messages import Message
from shared_core.records import Position, Record, Segment
from shared_core.store import Store


@dataclass(frozen=True, slots=True)
class LogEntry:
    """A message or a merge, as a node of the tree.

    Attributes:
        place: where it is.
        message: what was said; None: a merge.
        parents: the places before it, the first parent first; two for a merge.
        branches: those that end here.
        tags: those that stand here.
    """

    place: Position
    message: Message | None
    parents: tuple[Position, ...]
    branches: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON data."""
        said = self.message.model_dump(mode="json", exclude_defaults=True) if self.message is not None else None
        return {
            "place": list(self.place),
            "message": said,
            "parents": [list(parent) for parent in self.parents],
            "branches": list(self.branches),
            "tags": list(self.tags),
        }


class Lineage:
    """Looks up what stands at and before places of a session.

    Args:
        store: where the session is.
        session: which session.
        segment_of: looks a segment up.
    """

    def __init__(self, store: Store, session: int, segment_of: Callable[[int], Segment]) -> None:
        self.store = store
        self.session = session
        self.segment_of = segment_of

    def message_at(self, place: Position | None) -> Record | None:
        """Return the newest message at a place or before it on its line; before a merge, what was merged in."""
        waiting = [place]
        seen: set[Position] = set()  # branches that merged each other lead to one place in very many ways
        while waiting:
            at = waiting.pop()
            if at is None or at in seen:
                continue
            seen.add(at)
            found = self._in_segment(at)
            if found is not None:
                return found
            segment = self.segment_of(at.segment)
            waiting += [segment.parent, segment.merged]
        return None

    def _in_segment(self, place: Position) -> Record | None:
        return next(iter(self.store.newest(self.session, place, 1)), None)

    def node_at(self, place: Position | None) -> Position | None:
        """Return the newest message or merge at a place or before it on its line."""
        while place is not None:
            found = self._in_segment(place)
            if found is not None:
                return found.position
            segment = self.segment_of(place.segment)
            if segment.base is not None:
                return Position(segment.segment, segment.base)
            place = segment.parent
        return None

    def log(
        self, records: Sequence[Record], branches: Mapping[str, Position], tags: Mapping[str, Position]
    ) -> list[LogEntry]:
        """Return messages, and the merges among them, as nodes, newest first.

        Args:
            records: the newest of the session, in order of storing.
            branches: where each ends.
            tags: where each stands.
        """
        stored = {record.position: record for record in records}
        parents = dict(self._parents(records))
        ends = self._names(branches, stored), self._names(tags, stored)
        waiting = [*(one for line in parents.values() for one in line), *ends[0], *ends[1]]
        while waiting:
            place = waiting.pop()
            segment = self.segment_of(place.segment)
            if place not in parents and place.depth == segment.base:
                nodes = map(self.node_at, (segment.parent, segment.merged))
                parents[place] = tuple(node for node in nodes if node is not None)
                waiting += parents[place]
        ranks: dict[Position, tuple[int, int]] = {place: (record.seq, 0) for place, record in stored.items()}
        for place in _parents_first([place for place in parents if place not in stored], parents):
            known = [ranks.get(parent, (0, 0)) for parent in parents[place]]
            seq, after = max(known, default=(0, 0))
            ranks[place] = (seq, after + 1)
        return [
            LogEntry(
                place,
                stored[place].message if place in stored else None,
                parents[place],
                tuple(ends[0].get(place, ())),
                tuple(ends[1].get(place, ())),
            )
            for place in sorted(ranks, key=lambda place: ranks[place], reverse=True)
        ]

    def _parents(self, records: Iterable[Record]) -> Iterable[tuple[Position, tuple[Position, ...]]]:
        newest: dict[int, Position] = {}
        for record in records:
            segment, depth = record.position
            before = newest.get(segment) or self.node_at(Position(segment, depth - 1))
            newest[segment] = record.position
            yield record.position, (before,) if before is not None else ()

    def _names(self, places: Mapping[str, Position], stored: Mapping[Position, Record]) -> dict[Position, list[str]]:
        names: dict[Position, list[str]] = {}
        for name, place in places.items():
            node = place if place in stored else self.node_at(place)
            if node is not None:
                names.setdefault(node, []).append(name)
        return names


def _parents_first(merges: Sequence[Position], parents: Mapping[Position, Sequence[Position]]) -> list[Position]:
    """Return merges so that each comes after those that it merges."""
    done: dict[Position, None] = {}
    wanted = set(merges)
    waiting = list(merges)
    while waiting:
        place = waiting[-1]
        missing = [parent for parent in parents[place] if parent in wanted and parent not in done]
        if missing and place not in done:
            waiting += missing
            continue
        done[waiting.pop()] = None
    return list(done)


def draw(entries: Sequence[LogEntry]) -> Iterator[tuple[str, LogEntry | None]]:
    """Yield lines of a drawing, each with the entry that stands on it, if any: `*` a message, `o` a merge.

    Args:
        entries: newest first, a parent after all its children, as `InfiniteMemory.log` returns them.
    """
    lanes: list[Position | None] = []
    """What each column waits for, from left to right; None: it is free."""
    for entry in entries:
        mine = [column for column, awaited in enumerate(lanes) if awaited == entry.place]
        column = mine[0] if mine else _free(lanes)
        for other in mine[1:]:
            yield _joined(lanes, column, other), None
            lanes[other] = None
        _trim(lanes, column)
        lanes[column] = entry.place
        yield _row(lanes, column, "o" if entry.message is None else "*"), entry
        first, *others = entry.parents or (None,)
        lanes[column] = first
        for parent in others:
            there = parent in lanes
            side = lanes.index(parent) if there else _free(lanes)
            lanes[side] = parent
            yield _parted(lanes, column, side, there=there), None
        _trim(lanes, -1)


def _free(lanes: list[Position | None]) -> int:
    """Return a free column, a new one if need be."""
    if None not in lanes:
        lanes.append(None)
    return lanes.index(None)


def _trim(lanes: list[Position | None], keep: int) -> None:
    """Drop free columns on the right."""
    while lanes and lanes[-1] is None and len(lanes) - 1 > keep:
        lanes.pop()


def _row(lanes: Sequence[Position | None], column: int, mark: str) -> str:
    marks = ["|" if awaited is not None else " " for awaited in lanes]
    marks[column] = mark
    return " ".join(marks).rstrip()


def _joined(lanes: Sequence[Position | None], column: int, other: int) -> str:
    """Return the line on which one column ends in another to its left."""
    marks = list(" ".join("|" if awaited is not None else " " for awaited in lanes))
    marks[2 * other] = " "
    marks[2 * other - 1] = "/"
    _bridge(marks, column, 2 * other - 1)
    return "".join(marks).rstrip()


def _parted(lanes: Sequence[Position | None], column: int, side: int, *, there: bool) -> str:
    """Return the line on which a column begins beside the one it comes from, or is met, if it is there already."""
    marks = list(" ".join("|" if awaited is not None else " " for awaited in lanes))
    marks[2 * side] = "|" if there else " "
    if side > column:
        marks[2 * side - 1] = "\\"
        _bridge(marks, column, 2 * side - 1)
    else:
        marks[2 * side + 1] = "/"
        _bridge(marks, side + 1, 2 * column)
    return "".join(marks).rstrip()


def _bridge(marks: list[str], column: int, upto: int) -> None:
    """Draw a line over free ground, to the right of a column."""
    for at in range(2 * column + 1, upto):
        if marks[at] == " ":
            marks[at] = "_"
