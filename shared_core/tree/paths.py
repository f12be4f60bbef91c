"""Paths through the conversation tree, and the references people use for positions in it."""

import re
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import takewhile
from typing import NamedTuple

from shared_core.errors import AmbiguousReferenceError, UnknownReferenceError
from shared_core.records import ROOT, IdPrefix, Position, Record, Segment, Stretch
from shared_core.store import Store

__all__ = ["EARLIER", "ROOT_PATH", "Head", "Path", "Span", "beginning", "read", "resolve", "unused_branch_name", "walk"]

SHORTEST_PREFIX = 4
"""Characters of an id that are enough to name a message, if no other begins so."""

CANDIDATES = 5
"""How many alternatives an error names."""


_set = object.__setattr__  # a frozen value has no other way in

PAGE = 500
"""Messages read at a time."""

EARLIER = re.compile(r"(.+)@\{(\d{1,9})\}", re.DOTALL)
"""How the place is written where a branch ended some moves ago."""


class Span(NamedTuple):
    """A run of places of one segment on a path.

    Attributes:
        segment: which segment.
        upto: the depth of its last place, inclusive.
        start: the depth of its first place.
        shift: added to a depth, it is the place on the path; 0 but for what a merge brought in.
        turn_shift: added to a turn's number, it is the turn's number on the path.
    """

    segment: int
    upto: int
    start: int = 0
    shift: int = 0
    turn_shift: int = 0

    @property
    def last(self) -> int:
        """Its last place, counted along the path."""
        return self.upto + self.shift

    @property
    def stretch(self) -> Stretch:
        """The messages it holds."""
        return Stretch(self.segment, self.start, self.upto)


class Head(NamedTuple):
    """Where a memory stands: on a branch, or detached at a position."""

    branch: str | None
    at: Position | None = None


@dataclass(frozen=True)
class Path:
    """The line of conversation that ends at a head: spans, root first.

    Messages that a merge brought in stand just before the merge: all that is on the path of its second parent and not
    on that of its first.

    Attributes:
        spans: runs of positions, in path order.
        head: the newest position on the path.
        plain: whether a depth is the index on the path everywhere, as it is without a merge.
        upto: segment -> the depth down to which it belongs to the path.
    """

    spans: tuple[Span, ...]
    head: Position = field(init=False, compare=False)
    plain: bool = field(init=False, compare=False)
    upto: Mapping[int, int] = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        _set(self, "head", Position(*self.spans[-1][:2]) if self.spans else None)
        _set(self, "plain", not any(span.shift or span.turn_shift for span in self.spans))
        # The last span of a segment reaches deepest.
        _set(self, "upto", {span.segment: span.upto for span in self.spans})

    @cached_property
    def _lasts(self) -> list[int]:
        return [span.last for span in self.spans]

    @cached_property
    def _of_segment(self) -> dict[int, list[Span]]:
        found: dict[int, list[Span]] = {}
        for span in self.spans:
            found.setdefault(span.segment, []).append(span)
        return found

    def at(self, place: int) -> Position:
        """Return the position at a place of this path, counted from the root."""
        span = self.spans[min(bisect_left(self._lasts, place), len(self.spans) - 1)]
        return Position(span.segment, place - span.shift)

    def span_of(self, position: Position) -> Span:
        """Return the span that holds a position of this path."""
        return next(span for span in self._of_segment[position.segment] if position.depth <= span.upto)

    def place(self, position: Position) -> int:
        """Return the place, counted from the root, of a position of this path."""
        return position.depth if self.plain else position.depth + self.span_of(position).shift

    def covers(self, position: Position) -> bool:
        """Return whether a message is on this path."""
        return position.depth <= self.upto.get(position.segment, -2)

    def without(self, other: "Path") -> list[Span]:
        """Return what is on this path and not on the other, in order."""
        left = (
            span._replace(start=max(span.start, other.upto.get(span.segment, span.start - 1) + 1))
            for span in self.spans
        )
        return [span for span in left if span.start <= span.upto]

    def shared(self, other: "Path") -> list[Span]:
        """Return what is on both, as spans of this path; the newest place of the last is the lowest they share."""
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
        head: the newest place.
        segment_of: looks a segment up; asked once for every segment on the path.
    """
    spans: list[Span] = []
    upto: dict[int, int] = {}
    segments: dict[int, Segment] = {}
    # Depth first, the first parent before the second; a loop, because a path may be longer than the stack is deep.
    waiting = [(head, 0)]
    while waiting:
        place, turn_shift = waiting.pop()
        known = upto.get(place.segment)
        if known is not None and place.depth <= known:
            continue
        if place.segment not in segments:
            segment = segments[place.segment] = segment_of(place.segment)
            before = (segment.merged, turn_shift + segment.turn_shift), (segment.parent, turn_shift)
            waiting.append((place, turn_shift))
            waiting += [(parent, shift) for parent, shift in before if parent is not None]
            continue
        start = segments[place.segment].start if known is None else known + 1
        spans.append(Span(*place, start, (spans[-1].last + 1 if spans else 0) - start, turn_shift))
        upto[place.segment] = place.depth
    return Path(tuple(spans))


def read(store: Store, session: int, spans: Iterable[Span]) -> Iterator[Record]:
    """Yield the messages of some spans, in order, reading as it goes."""
    for span in spans:
        for start in range(span.start, span.upto + 1, PAGE):
            depths = range(start, min(start + PAGE, span.upto + 1))
            yield from store.get(session, [Position(span.segment, depth) for depth in depths])


def resolve(store: Store, session: int, reference: str) -> Head:
    """Return the place that a name means: a branch, a tag, where a branch was (`main@{1}`), or a message.

    A message goes by its id, or by the beginning of it, if no other begins so.

    Raises:
        UnknownReferenceError: nothing goes by this name.
        AmbiguousReferenceError: several ids begin so; `candidates` lists some.
    """
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
    """Return where a branch ended so many moves ago, for a reference such as `main@{1}`; None for any other."""
    found = EARLIER.fullmatch(reference)
    if found is None:
        return None
    name, number = found[1], int(found[2])
    if not number:
        return branches.get(name)
    moves = store.refs(session, "move", name, number)
    return moves[-1].base if len(moves) == number else None


def unused_branch_name(store: Store, session: int) -> str:
    """Return a name for the branch that a message added at a detached head opens."""
    taken = {branch.name for branch in store.branches(session)} | {ref.name for ref in store.refs(session, "tag")}
    return next(name for number in range(1, len(taken) + 2) if (name := f"branch-{number}") not in taken)


def beginning(path: Path, upto: Position) -> list[Span]:
    """Return the spans of a path up to one of its places, inclusive."""
    end = path.place(upto)
    spans = takewhile(lambda span: span.start + span.shift <= end, path.spans)
    return [span._replace(upto=min(span.upto, end - span.shift)) for span in spans]
