"""Paths through the conversation tree, and the references people use for positions in it."""

import re
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import count, takewhile
from typing import NamedTuple

from shared_core.errors import AmbiguousReferenceError, UnknownReferenceError
from shared_core.messages import storable_name
from shared_core.queries import IdPrefix
from shared_core.records import ROOT, Position, Record, Segment, Stretch
from shared_core.store import Store

SHORTEST_PREFIX = 4
"""A message may be named by at least this many characters of its id, if no other id begins with them."""

CANDIDATES = 5
"""How many alternatives an error lists."""


PAGE = 500
"""Messages read at a time."""

EARLIER = re.compile(r"(.+)@\{(\d{1,9})\}", re.DOTALL)
"""The syntax of a reference to where a branch ended some moves ago, such as `main@{1}`."""


class Span(NamedTuple):
    """A run of positions of one segment on a path.

    Attributes:
        segment: the segment.
        upto: the depth of its last position, inclusive.
        start: the depth of its first position.
        shift: a depth plus this is the index on the path; 0 except for what a merge brought in.
        turn_shift: a turn's number plus this is the turn's number on the path.
    """

    segment: int
    upto: int
    start: int = 0
    shift: int = 0
    turn_shift: int = 0

    @property
    def last(self) -> int:
        """The index of its last position on the path."""
        return self.upto + self.shift

    @property
    def stretch(self) -> Stretch:
        """Its positions as a stretch."""
        return Stretch(self.segment, self.start, self.upto)


class Head(NamedTuple):
    """What a memory has checked out: a branch, or a position without a branch (detached)."""

    branch: str | None
    at: Position | None = None


@dataclass(frozen=True)
class Path:
    """The path of the conversation from the root to a head, as spans in order.

    Messages that a merge brought in come just before the merge: everything on the path of its second parent that is not
    on the path of its first.

    Attributes:
        spans: runs of positions, in path order.
    """

    spans: tuple[Span, ...]

    @cached_property
    def head(self) -> Position:
        """The newest position on the path."""
        return Position(*self.spans[-1][:2])

    @cached_property
    def plain(self) -> bool:
        """Whether every depth is the index on the path, as it is without a merge."""
        return not any(span.shift or span.turn_shift for span in self.spans)

    @cached_property
    def upto(self) -> Mapping[int, int]:
        """Segment -> the depth down to which the segment is on the path."""
        return {span.segment: span.upto for span in self.spans}  # the last span of a segment reaches deepest

    @cached_property
    def _lasts(self) -> list[int]:
        return [span.last for span in self.spans]

    @cached_property
    def _of_segment(self) -> dict[int, list[Span]]:
        found: dict[int, list[Span]] = {}
        for span in self.spans:
            found.setdefault(span.segment, []).append(span)
        return found

    def at(self, index: int) -> Position:
        """Return the position at an index of this path, counted from the root."""
        span = self.spans[min(bisect_left(self._lasts, index), len(self.spans) - 1)]
        return Position(span.segment, index - span.shift)

    def span_of(self, position: Position) -> Span:
        """Return the span that contains a position of this path."""
        return next(span for span in self._of_segment[position.segment] if position.depth <= span.upto)

    def index_of(self, position: Position) -> int:
        """Return the index, counted from the root, of a position of this path."""
        return position.depth if self.plain else position.depth + self.span_of(position).shift

    def covers(self, position: Position) -> bool:
        """Return whether a position is on this path."""
        return position.depth <= self.upto.get(position.segment, -2)

    def without(self, other: "Path") -> list[Span]:
        """Return the spans that are on this path and not on the other, in order."""
        left = (
            span._replace(start=max(span.start, other.upto.get(span.segment, span.start - 1) + 1))
            for span in self.spans
        )
        return [span for span in left if span.start <= span.upto]

    def shared(self, other: "Path") -> list[Span]:
        """Return the spans that are on both paths, as spans of this one; the last ends at their lowest position."""
        both = (
            span._replace(upto=min(span.upto, other.upto[span.segment]))
            for span in self.spans
            if span.segment in other.upto
        )
        return [span for span in both if span.start <= span.upto]


ROOT_PATH = Path((Span(*ROOT),))
"""The path before the first message."""


def walk(head: Position, segment_of: Callable[[int], Segment]) -> Path:
    """Return the path to a head.

    Args:
        head: the newest position.
        segment_of: looks up a segment; called once for every segment on the path.
    """
    spans: list[Span] = []
    upto: dict[int, int] = {}
    segments: dict[int, Segment] = {}
    # Depth first, the first parent before the second. A loop, because a path may be longer than the recursion limit.
    waiting = [(head, 0)]
    while waiting:
        position, turn_shift = waiting.pop()
        known = upto.get(position.segment)
        if known is not None and position.depth <= known:
            continue
        if position.segment not in segments:
            segment = segments[position.segment] = segment_of(position.segment)
            before = (segment.merged, turn_shift + segment.turn_shift), (segment.parent, turn_shift)
            waiting.append((position, turn_shift))
            waiting += [(parent, shift) for parent, shift in before if parent is not None]
            continue
        start = segments[position.segment].start if known is None else known + 1
        spans.append(Span(*position, start, (spans[-1].last + 1 if spans else 0) - start, turn_shift))
        upto[position.segment] = position.depth
    return Path(tuple(spans))


def read(store: Store, session: int, spans: Iterable[Span]) -> Iterator[Record]:
    """Yield the messages of some spans in order, reading them page by page; none that has been forgotten meanwhile."""
    yield from kept(store, session, _pages(store, session, spans))


def _pages(store: Store, session: int, spans: Iterable[Span]) -> Iterator[list[Record]]:
    for span in spans:
        for start in range(span.start, span.upto + 1, PAGE):
            depths = range(start, min(start + PAGE, span.upto + 1))
            yield store.get(session, [Position(span.segment, depth) for depth in depths])


def kept(store: Store, session: int, pages: Iterable[Sequence[Record]]) -> Iterator[Record]:
    """Yield the messages of pages, which are read one by one, but for those forgotten since their page was read."""
    has_forgotten = store.watch(session)
    for page in pages:
        waiting = list(page[::-1])
        while waiting:
            if has_forgotten():
                has_forgotten = store.watch(session)
                left = {record.position for record in store.get(session, [record.position for record in waiting])}
                waiting = [record for record in waiting if record.position in left]
                continue
            yield waiting.pop()


def resolve(store: Store, session: int, reference: str) -> Head:
    """Return the head that a reference names: a branch, a tag, where a branch was (`main@{1}`), or a message.

    A message is named by its id or by a unique beginning of it.

    Raises:
        UnknownReferenceError: the reference names nothing.
        AmbiguousReferenceError: several ids begin with it; `candidates` lists some.
    """
    if not isinstance(reference, str):
        raise ValueError(f"reference={reference!r}: expected the name of a branch or a tag, or the id of a message")
    storable_name(reference)
    branches = {branch.name: branch.head for branch in store.branches(session)}
    if reference in branches:
        return Head(reference)
    tag = next(iter(store.refs(session, "tag", reference, 1)), None)
    earlier = tag.position if tag is not None else _earlier(store, session, reference, branches)
    if earlier is not None:
        return Head(None, earlier)
    records = store.get(session, [reference])
    if not records and len(reference) >= SHORTEST_PREFIX:
        records = store.find(session, IdPrefix(reference, CANDIDATES))
        ids = [record.message.id or "" for record in records]
        if len(ids) > 1:
            raise AmbiguousReferenceError(
                f"{reference!r} is the beginning of several messages: {', '.join(map(repr, ids))}", candidates=ids
            )
    if not records:
        tags = [ref.name for ref in reversed(store.refs(session, "tag"))]
        known = ", ".join(map(repr, branches)) or "none yet"
        known += f"; tags: {', '.join(map(repr, tags))}" if tags else ""
        raise UnknownReferenceError(
            f"no branch or message {reference!r}; branches: {known}", candidates=[*branches, *tags]
        )
    return Head(None, records[0].position)


def _earlier(store: Store, session: int, reference: str, branches: Mapping[str, Position]) -> Position | None:
    """Return where a branch ended some moves ago, for a reference such as `main@{1}`; None for any other reference."""
    found = EARLIER.fullmatch(reference)
    if found is None:
        return None
    name, number = found[1], int(found[2])
    if not number:
        return branches.get(name)
    moves = store.refs(session, "move", name, number)
    return moves[-1].base if len(moves) == number else None


def unused_branch_name(store: Store, session: int, prefix: str = "branch-", first: int = 1) -> str:
    """Return a name for a new branch that its caller does not name: `branch-1`, or the next one that is not taken."""
    taken = {branch.name for branch in store.branches(session)} | {ref.name for ref in store.refs(session, "tag")}
    return next(name for number in count(first) if (name := f"{prefix}{number}") not in taken)


def beginning(path: Path, upto: Position) -> list[Span]:
    """Return the spans of a path up to one of its positions, inclusive."""
    end = path.index_of(upto)
    spans = takewhile(lambda span: span.start + span.shift <= end, path.spans)
    return [span._replace(upto=min(span.upto, end - span.shift)) for span in spans]
