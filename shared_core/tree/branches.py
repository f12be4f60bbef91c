"""Branches by name: rename, delete, tag, move and compare them, and see the tree."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, TypeVar

from shared_core.arguments import whole_number
from shared_core.errors import StaleHeadError, UnknownReferenceError
from shared_core.messages import Message
from shared_core.records import MAIN, After, Branch, Delete, Drop, Move, Position, Put, Record, Rename
from shared_core.tree.conversation import Conversation
from shared_core.tree.log import Lineage, LogEntry
from shared_core.tree.paths import Head, Path, Span, read, resolve

__all__ = ["Branching", "Diff", "Moved"]

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Moved:
    """A line of the reflog: a branch was moved.

    Attributes:
        reference: where it ended before, as `checkout`, `fork` and `reset` understand it.
        branch: which branch.
        why: by which verb.
        before: the newest message there then; None: there was none.
        after: the newest message where it ended from then on; None also where the branch was deleted.
        at: when.
    """

    reference: str
    branch: str
    why: str
    before: str | None
    after: str | None
    at: datetime

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON data."""
        return {name: getattr(self, name) for name in self.__slots__} | {"at": self.at.isoformat()}


@dataclass(frozen=True, slots=True)
class Diff:
    """What two places of the tree do not share.

    Attributes:
        base: the newest message that both have; None: they share none.
        only_a: ids of what only the first has, in order.
        only_b: ids of what only the second has, in order.
    """

    base: str | None
    only_a: tuple[str, ...]
    only_b: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON data."""
        return {"base": self.base, "only_a": list(self.only_a), "only_b": list(self.only_b)}


class Branching(Conversation):
    """The verbs that change and compare branches; none of them changes a message."""

    # Names

    def rename(self, name: str, to: str) -> None:
        """Give a branch another name; what it was moved by goes along. Other objects that stand on it lose it.

        Raises:
            DuplicateError: the name is taken.
            UnknownReferenceError: there is no such branch.
            ValueError: it is `main`, where every memory begins, or the new name is none.
        """
        self._check_name(to)
        self._not_main(name, "renamed")
        with self._lock:
            with self._taken(to):
                self._store.change(self._existing(), [Rename(name, to)])
            if self._live.head.branch == name:
                self._live.head = Head(to)

    def delete_branch(self, name: str) -> None:
        """Drop a branch; what was said on it stays until it is forgotten, and `fork(…, at="name@{1}")` brings it back.

        Raises:
            UnknownReferenceError: there is no such branch.
            ValueError: it is `main`, or the one this object stands on.
        """
        self._not_main(name, "deleted")
        with self._lock:
            if self._live.head.branch == name:
                raise ValueError(f"this memory stands on {name!r}; check out another branch before you delete it")
            self._store.change(self._existing(), [Delete(name)])

    def tag(self, name: str, at: str | None = None) -> None:
        """Name a place for good; unlike a branch it never moves.

        Args:
            name: no branch and no other tag has it.
            at: a message, branch or other place; None: here.

        Raises:
            DuplicateError: the name is taken; UnknownReferenceError: there is no such place.
        """
        self._check_name(name)
        with self._lock, self._taken(name):
            # Where nothing is stored, only the beginning can be named; a place that is refused opens no session.
            session = self._live.create() if at in (None, MAIN) else self._stored()
            self._store.change(session, [Put("tag", name, self._placed(at))])

    def tags(self) -> list[Branch]:
        """Return all tags, in order of creation, as pairs of name and place."""
        session = self._live.key
        refs = self._store.refs(session, "tag") if session is not None else []
        return [Branch(ref.name, ref.position) for ref in reversed(refs) if ref.position is not None]

    def delete_tag(self, name: str) -> None:
        """Drop a tag; UnknownReferenceError if there is none of this name."""
        with self._lock:
            session = self._existing()
            refs = self._store.refs(session, "tag")
            number = next((ref.number for ref in refs if ref.name == name), None)
            if number is None:
                names = [ref.name for ref in reversed(refs)]
                known = ", ".join(map(repr, names)) or "none yet"
                raise UnknownReferenceError(f"no tag {name!r}; tags: {known}", candidates=names)
            self._store.change(session, [Drop(number)])

    # Moving

    def reset(self, to: str) -> None:
        """Have the branch end at another place; nothing said is lost, and `reset("main@{1}")` undoes it.

        A detached object just goes there.

        Args:
            to: a message, branch, tag or earlier end of a branch.

        Raises:
            UnknownReferenceError: there is no such place.
        """
        with self._lock:
            session = self._existing()
            place = self._placed(to)
            branch = self._live.head.branch
            if branch is None:
                self._stand(Head(None, place))
                return
            self._store.change(session, [Move(branch, place, f"reset to {to}")])
            self._stand(Head(branch))

    def reflog(self, branch: str | None = None, limit: int = 100) -> list[Moved]:
        """Return how branches were moved other than by adding to them, the newest move first.

        Args:
            branch: which one; None: all, also those that are gone.
            limit: at most so many.
        """
        whole_number("limit", limit, least=0)
        with self._lock:
            session = self._live.key
            refs = self._store.refs(session, "move", branch, limit) if session is not None else []
            lineage = self._lineage()
            numbers: dict[str, int] = {}
            lines = []
            for ref in refs:
                number = numbers[ref.name] = numbers.get(ref.name, 0) + 1
                before, after = (lineage.message_at(place) for place in (ref.base, ref.position))
                lines.append(
                    Moved(
                        f"{ref.name}@{{{number}}}", ref.name, ref.note,
                        before.message.id if before else None, after.message.id if after else None,
                        datetime.fromisoformat(ref.created_at).replace(tzinfo=UTC),
                    )
                )  # fmt: skip
            return lines

    # Seeing

    def log(self, limit: int = 50) -> list[LogEntry]:
        """Return the newest messages of all branches as nodes with their parents, newest first, for a drawing.

        Args:
            limit: at most so many messages; merges among them come on top.
        """
        whole_number("limit", limit, least=0)
        with self._lock:
            session = self._live.key
            if session is None:
                return []
            records = self._newest_stored(session, limit)
            branches = {branch.name: branch.head for branch in self._store.branches(session)}
            return self._lineage().log(records, branches, dict(self.tags()))

    def diff(self, a: str, b: str | None = None) -> Diff:
        """Return what two places do not share, and the newest message they do.

        Args:
            a: a branch, message or other place.
            b: another; None: where this object stands.

        Raises:
            UnknownReferenceError: there is no such place.
        """
        with self._lock:
            session = self._existing()
            paths = [self._live.path_to(self._placed(place)) for place in (a, b)]
            ids = [
                tuple(record.message.id or "" for record in read(self._store, session, one.without(other)))
                for one, other in (paths, paths[::-1])
            ]
            return Diff(self._base(*paths), *ids)

    def _base(self, one: Path, other: Path) -> str | None:
        """Return the newest message that two paths share."""
        return next((record.message.id for record in self._newest_of(one.shared(other), 1)), None)

    def newest_at(self, reference: str) -> Message | None:
        """Return the newest message at a branch, tag or other place; UnknownReferenceError if there is none such."""
        with self._lock:
            self._existing()
            record = self._lineage().message_at(self._placed(reference))
            return record.message if record is not None else None

    # What the verbs share

    def _until_fresh(self, verb: Callable[[], Result]) -> Result:
        """Do something again until nobody has moved the branch, or forgotten something, between reading and writing."""
        with self._lock:
            while True:
                try:
                    return verb()
                except StaleHeadError:
                    continue

    def _existing(self) -> int:
        """Return the key of the session that this object stands in; UnknownReferenceError if nothing is stored."""
        session = self._stored()
        self._live.sync()
        return session

    def _stored(self) -> int:
        if self._live.key is None:
            raise UnknownReferenceError("there are no branches: nothing is stored yet")
        return self._live.key

    def _placed(self, reference: str | None) -> Position:
        head = self._live.head if reference is None else resolve(self._store, self._live.create(), reference)
        return self._place(head)

    def _newest_of(self, spans: Sequence[Span], limit: int) -> list[Record]:
        """Return the newest messages of some spans, in order, at most `limit`."""
        assert self._live.key is not None
        found: list[Record] = []
        for span in reversed(spans):
            wanted = min(limit - len(found), span.upto - span.start + 1)
            records = self._store.newest(self._live.key, Position(span.segment, span.upto), wanted) if wanted else ()
            found += [record for record in records if record.position.depth >= span.start]
        return found[::-1]

    def _newest_stored(self, session: int, limit: int) -> list[Record]:
        """Return the newest messages of all branches, in order of storing, at most `limit`."""
        newest, back = self._store.state(session).last_seq, limit
        while True:
            records = self._store.find(session, After(newest - back, back))
            if len(records) >= limit or back >= newest:
                return records[max(0, len(records) - limit) :]
            back *= 2  # some numbers are those of forgotten messages

    def _lineage(self) -> Lineage:
        return Lineage(self._store, self._live.key if self._live.key is not None else -1, self._live.segment)

    @staticmethod
    def _not_main(name: str, done: str) -> None:
        if name == MAIN:
            raise ValueError(f"{MAIN!r} is where every memory begins and cannot be {done}")
