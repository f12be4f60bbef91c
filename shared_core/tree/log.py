"""What is to be seen of a conversation tree: its log, moves of its branches, and what two lines do not share."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from shared_core.messages import Message, short_repr
from shared_core.records import Position, Record, Segment
from shared_core.session.checkout import Checkout
from shared_core.store import Store

STASH_POP = "stash pop"
"""What the reflog says of a stash that was popped, so that taking it back stashes the copies again."""


@dataclass(frozen=True, slots=True)
class ReflogEntry:
    """A line of the reflog: a verb moved a branch, or added to it what was said elsewhere.

    Attributes:
        reference: names the position where the branch ended before, for `checkout`, `fork` and `reset`.
        branch: the branch that was moved.
        why: the verb that did it.
        before: id of the newest message there before; None: there was none.
        after: id of the newest message where the branch was moved to, before anything was added there; None: there was
            none.
        at: when.
        deleted: whether the branch was deleted.
    """

    reference: str
    branch: str
    why: str
    before: str | None
    after: str | None
    at: datetime
    deleted: bool = False

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON data."""
        return {name: getattr(self, name) for name in self.__slots__} | {"at": self.at.isoformat()}


@dataclass(frozen=True, slots=True)
class Diff:
    """What two positions of the tree do not share.

    Attributes:
        base: id of the newest message that both have; None: they share none.
        only_a: ids of the messages that only the first has, in order.
        only_b: ids of the messages that only the second has, in order.
    """

    base: str | None
    only_a: tuple[str, ...]
    only_b: tuple[str, ...]

    def __repr__(self) -> str:
        return short_repr(self)

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON data."""
        return {"base": self.base, "only_a": list(self.only_a), "only_b": list(self.only_b)}


@dataclass(frozen=True, slots=True)
class LogEntry:
    """A message or a merge, as a node of the tree.

    Attributes:
        position: where it stands in the tree.
        message: the message; None: the node is a merge.
        parents: the positions before it, the first parent first; a merge has two.
        branches: names of the branches that end here.
        tags: names of the tags that point here.
    """

    position: Position
    message: Message | None
    parents: tuple[Position, ...]
    branches: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return short_repr(self)

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON data."""
        said = self.message.model_dump(mode="json", exclude_defaults=True) if self.message is not None else None
        return {
            "place": list(self.position),
            "message": said,
            "parents": [list(parent) for parent in self.parents],
            "branches": list(self.branches),
            "tags": list(self.tags),
        }


class Lineage:
    """Looks up the messages and merges at or before positions of a session.

    Args:
        store: where the session is.
        session: which session.
        segment_of: looks a segment up.
    """

    def __init__(self, store: Store, session: int, segment_of: Callable[[int], Segment]) -> None:
        self.store = store
        self.session = session
        self.segment_of = segment_of

    def message_at(self, position: Position | None) -> Record | None:
        """Return the newest message at a position or before it; before a merge, messages that it brought in count."""
        waiting = [position]
        seen: set[Position] = set()  # branches that merged each other lead to one position along very many ways
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

    def _in_segment(self, position: Position) -> Record | None:
        return next(iter(self.store.newest(self.session, position, 1)), None)

    def node_at(self, position: Position | None) -> Position | None:
        """Return the position of the newest message or merge at a position or before it, along first parents."""
        while position is not None:
            found = self._in_segment(position)
            if found is not None:
                return found.position
            segment = self.segment_of(position.segment)
            if segment.base is not None:
                return Position(segment.segment, segment.base)
            position = segment.parent
        return None

    def log(
        self, records: Sequence[Record], branches: Mapping[str, Position], tags: Mapping[str, Position]
    ) -> list[LogEntry]:
        """Return messages, and the merges among them, as nodes, newest first.

        Args:
            records: the newest messages of the session, in order of storing.
            branches: the head of each branch.
            tags: the position of each tag.
        """
        stored = {record.position: record for record in records}
        parents = dict(self._parents(records))
        ends = self._names(branches, stored), self._names(tags, stored)
        waiting = [*(one for line in parents.values() for one in line), *ends[0], *ends[1]]
        while waiting:
            position = waiting.pop()
            segment = self.segment_of(position.segment)
            if position not in parents and position.depth == segment.base:
                nodes = map(self.node_at, (segment.parent, segment.merged))
                parents[position] = tuple(node for node in nodes if node is not None)
                waiting += parents[position]
        ranks: dict[Position, tuple[int, int]] = {position: (record.seq, 0) for position, record in stored.items()}
        for position in sorted(position for position in parents if position not in stored):  # parents come first
            known = [ranks.get(parent, (0, 0)) for parent in parents[position]]
            seq, after = max(known, default=(0, 0))
            ranks[position] = (seq, after + 1)
        return [
            LogEntry(
                position,
                stored[position].message if position in stored else None,
                parents[position],
                tuple(ends[0].get(position, ())),
                tuple(ends[1].get(position, ())),
            )
            for position in sorted(ranks, key=lambda position: ranks[position], reverse=True)
        ]

    def _parents(self, records: Iterable[Record]) -> Iterable[tuple[Position, tuple[Position, ...]]]:
        newest: dict[int, Position] = {}
        for record in records:
            segment, depth = record.position
            before = newest.get(segment) or self.node_at(Position(segment, depth - 1))
            newest[segment] = record.position
            yield record.position, (before,) if before is not None else ()

    def _names(self, positions: Mapping[str, Position], stored: Mapping[Position, Record]) -> dict[Position, list[str]]:
        names: dict[Position, list[str]] = {}
        for name, position in positions.items():
            node = position if position in stored else self.node_at(position)
            if node is not None:
                names.setdefault(node, []).append(name)
        return names


def lineage(checkout: Checkout) -> Lineage:
    """Return the lookup of what stands at the positions of the session."""
    session = checkout.live.key
    return Lineage(checkout.store, session if session is not None else -1, checkout.live.segment)
