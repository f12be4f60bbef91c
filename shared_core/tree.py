"""Where a branch leads: paths through the tree, and the names people use for places in it."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from shared_core.base import Store
from shared_core.errors import AmbiguousReferenceError, UnknownReferenceError
from shared_core.records import Position, Segment

__all__ = ["Head", "Path", "Span", "resolve", "unused_branch_name", "walk"]

SHORTEST_PREFIX = 4
"""Characters of an id that are enough to name a message, if no other begins so."""

CANDIDATES = 5
"""How many alternatives an error names."""


class Span(NamedTuple):
    """The messages of one segment down to a depth, inclusive."""

    segment: int
    upto: int


class Head(NamedTuple):
    """Where a memory stands: on a branch, or detached at a position."""

    branch: str | None
    at: Position | None = None


@dataclass(frozen=True)
class Path:
    """The line of conversation that ends at a head: spans, root first."""

    spans: tuple[Span, ...]

    @property
    def head(self) -> Position:
        """The newest place on the path."""
        return Position(*self.spans[-1])

    @cached_property
    def upto(self) -> dict[int, int]:
        """Segment -> the depth down to which it belongs to the path."""
        return dict(self.spans)

    def at(self, depth: int) -> Position:
        """Return the place at a depth of this path."""
        return Position(next(span.segment for span in self.spans if depth <= span.upto), depth)

    def covers(self, position: Position) -> bool:
        """Return whether a message is on this path."""
        return position.depth <= self.upto.get(position.segment, -2)


def walk(head: Position, segment_of: Callable[[int], Segment]) -> Path:
    """Return the path to a head.

    Args:
        head: the newest place.
        segment_of: looks a segment up; asked once for every segment on the path.
    """
    spans: list[Span] = []
    place: Position | None = head
    while place is not None:
        spans.append(Span(*place))
        place = segment_of(place.segment).parent
    return Path(tuple(reversed(spans)))


def resolve(store: Store, session: int, reference: str) -> Head:
    """Return the place that a name means: a branch, a message's id, or the beginning of one id only.

    Raises:
        UnknownReferenceError: nothing goes by this name.
        AmbiguousReferenceError: several ids begin so; `candidates` lists some.
    """
    names = [branch.name for branch in store.branches(session)]
    if reference in names:
        return Head(reference)
    records = store.get(session, [reference])
    if not records and len(reference) >= SHORTEST_PREFIX:
        ids = store.ids_like(session, reference, CANDIDATES)
        if len(ids) > 1:
            raise AmbiguousReferenceError(
                f"{reference!r} is the beginning of several messages: {', '.join(map(repr, ids))}", candidates=ids
            )
        records = store.get(session, ids)
    if not records:
        known = ", ".join(map(repr, names)) or "none yet"
        raise UnknownReferenceError(f"no branch or message {reference!r}; branches: {known}", candidates=names)
    return Head(None, records[0].position)


def unused_branch_name(store: Store, session: int) -> str:
    """Return a name for the branch that a message added at a detached head opens."""
    taken = {branch.name for branch in store.branches(session)}
    return next(name for number in range(1, len(taken) + 2) if (name := f"branch-{number}") not in taken)
