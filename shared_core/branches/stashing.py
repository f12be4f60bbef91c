"""Stashes: the end of a branch put aside, to be brought back later, there or elsewhere."""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from shared_core.arguments import whole_number
from shared_core.branches.picking import Picked, Picking
from shared_core.errors import UnknownReferenceError
from shared_core.records import Change, Drop, Move, Position, Put, Record, Ref
from shared_core.tree import Head, Span

__all__ = ["Stash", "Stashing"]


@dataclass(frozen=True, slots=True)
class Stash:
    """What was put aside.

    Attributes:
        number: 0 is the newest.
        branch: where it was; empty: at a detached head.
        base: the message it came after; None: none.
        ids: what it holds, in order; less what has been forgotten since.
        note: what it was given to be told by.
        at: when.
    """

    number: int
    branch: str
    base: str | None
    ids: tuple[str, ...]
    note: str
    at: datetime

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON data."""
        fields = {name: getattr(self, name) for name in self.__slots__}
        return fields | {"ids": list(self.ids), "at": self.at.isoformat()}


class Stashing(Picking):
    """The verbs of the stash, which belongs to the session and outlives every object."""

    def stash(self, since: str | None = None, note: str = "") -> Stash | None:
        """Take the end of the branch away and keep it under number 0; None if there is nothing to take.

        Args:
            since: the last message that stays, or another place on this branch; None: take the newest user message and
                all that follows it.
            note: to tell it by.

        Raises:
            UnknownReferenceError: there is no such place on this branch.
            ValueError: a merge brought it in.
        """
        return self._until_fresh(lambda: self._stash(since, note))

    def _stash(self, since: str | None, note: str) -> Stash | None:
        session = self._live.key
        if session is None:
            return None
        self._live.sync()
        branch, path = self._live.head.branch, self._live.path
        base = self._before_newest() if since is None else self._placed(since)
        if base is None:
            return None
        if not path.covers(base):
            raise UnknownReferenceError(f"{since!r} is not on this branch; give a message that is")
        if path.span_of(base).shift:
            raise ValueError(
                f"{since!r} came in by a merge, and what was said here before the merge would go, too: "
                "give a message that was said on this branch"
            )
        gone = path.without(self._live.path_to(base))
        if not self._newest_of(gone, 1):
            return None
        changes: list[Change] = [Put("stash", branch or "", path.head, base, note)]
        if branch is not None:
            changes.insert(0, Move(branch, base, "stash", path.head))
        self._store.change(session, changes)
        self._stand(Head(branch, None if branch is not None else base))
        refs = enumerate(self._store.refs(session, "stash"))
        # Another process may have put something aside since.
        return next((self._told(number, ref) for number, ref in refs if ref.place == path.head), None)

    def _before_newest(self) -> Position | None:
        """Return the place before the newest user message; None if a merge brought both in."""
        path, count = self._live.path, 8
        while True:
            entries = self._live.last(count)
            user = next((entry for entry in reversed(entries) if entry.message.role == "user"), None)
            if user is not None:
                before = path.at(user.order - 1)
                return None if path.span_of(before).shift else before
            if len(entries) < count:
                return None
            count *= 2

    def stashes(self) -> list[Stash]:
        """Return what was put aside, the newest first."""
        with self._lock:
            session = self._live.key
            refs = self._store.refs(session, "stash") if session is not None else []
            return [self._told(number, ref) for number, ref in enumerate(refs)]

    def stash_apply(self, number: int = 0) -> Picked:
        """Add copies of what was put aside to the branch; the stash stays.

        Raises:
            UnknownReferenceError: there is no stash of this number.
        """
        return self._until_fresh(lambda: self._copy(self._put_aside(self._stash_ref(number)), self._live.path))

    def stash_pop(self, number: int = 0) -> Picked:
        """Add copies of what was put aside to the branch and drop the stash; both or neither.

        Raises:
            UnknownReferenceError: there is no stash of this number.
        """
        return self._until_fresh(lambda: self._stash_pop(number))

    def _stash_pop(self, number: int) -> Picked:
        ref = self._stash_ref(number)
        return self._copy(self._put_aside(ref), self._live.path, lambda branch: [Drop(ref.number)])

    def stash_drop(self, number: int = 0) -> None:
        """Drop a stash; what was said stays until it is forgotten.

        Raises:
            UnknownReferenceError: there is no stash of this number.
        """
        with self._lock:
            ref = self._stash_ref(number)
            self._store.change(self._existing(), [Drop(ref.number)])

    def _stash_ref(self, number: int) -> Ref:
        whole_number("number", number, least=0)
        refs = self._store.refs(self._existing(), "stash", limit=number + 1)
        if len(refs) <= number:
            raise UnknownReferenceError(f"there is no stash {number!r}; there are {len(refs)}, counted from 0")
        return refs[number]

    def _put_aside(self, ref: Ref) -> list[Record]:
        assert ref.place is not None
        assert ref.base is not None
        spans = self._line_between(ref.base, ref.place)
        if spans is None:
            spans = self._live.path_to(ref.place).without(self._live.path_to(ref.base))
        return self._read(self._existing(), spans)

    def _line_between(self, base: Position, place: Position) -> list[Span] | None:
        """Return what comes after a place up to a later one; None if a merge came between, or it is on another line.

        Paths through many merges are long, and a list of stashes would walk two for each.
        """
        spans: list[Span] = []
        while place.segment != base.segment:
            segment = self._live.segment(place.segment)
            if segment.parent is None or segment.merged is not None:
                return None
            spans.append(Span(*place, segment.start))
            place = segment.parent
        return [Span(*place, base.depth + 1), *reversed(spans)] if base <= place else None

    def _told(self, number: int, ref: Ref) -> Stash:
        base = self._lineage().message_at(ref.base)
        ids = tuple(record.message.id or "" for record in self._put_aside(ref))
        at = datetime.fromisoformat(ref.created_at).replace(tzinfo=UTC)
        return Stash(number, ref.name, base.message.id if base is not None else None, ids, ref.note, at)
