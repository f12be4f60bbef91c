"""Copies of messages: cherry-pick, rebase and stash."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import chain
from typing import Any

from shared_core.arguments import whole_number
from shared_core.errors import UnknownReferenceError
from shared_core.forget import groups_of_turn
from shared_core.messages import Message
from shared_core.records import (
    Appended,
    Change,
    Draft,
    Drop,
    Expect,
    InTurn,
    MadeFrom,
    Move,
    Position,
    Put,
    Record,
    Ref,
)
from shared_core.session import Changes
from shared_core.tree.branches import Branching
from shared_core.tree.paths import Head, Path, Span, read, resolve

__all__ = ["Picked", "Picking", "Stash", "Stashing", "if_unmoved"]


@dataclass(frozen=True, slots=True)
class Picked:
    """What was copied.

    Attributes:
        messages: the copies, as stored.
        sources: the id of what each is a copy of.
        skipped: ids that are on the branch already, themselves or as a copy.
        halves: ids that were copied without the question they answer, or without any answer that was given.
    """

    messages: tuple[Message, ...] = ()
    sources: tuple[str, ...] = ()
    skipped: tuple[str, ...] = ()
    halves: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON data."""
        copies = {source: message.id for source, message in zip(self.sources, self.messages, strict=True)}
        return {"copies": copies, "skipped": list(self.skipped), "halves": list(self.halves)}


@dataclass(frozen=True, slots=True)
class _Plan:
    drafts: tuple[Draft, ...]
    skipped: tuple[str, ...]
    halves: tuple[str, ...]


def if_unmoved(epoch: int, head: Position, changes: Changes) -> Changes:
    """Return some changes that are refused if the branch has been moved from this head, or something was forgotten."""
    return lambda name: [Expect(epoch, name, head), *changes(name)]


class Picking(Branching):
    """The verbs that copy messages; what is copied stays where it is."""

    def cherry_pick(self, ids: str | Sequence[str]) -> Picked:
        """Copy messages to the branch, turn by turn in the order of storing, under new ids; all of them or none.

        A tool result brings its call, and a call all its results. An answer without its question joins the question's
        turn if that is on the branch, else the newest. What is on the branch already is not copied again.

        Args:
            ids: of messages of this session, or unique beginnings of them.

        Raises:
            UnknownReferenceError: an id is not stored.
        """
        return self._until_fresh(lambda: self._cherry_pick([ids] if isinstance(ids, str) else ids))

    def _cherry_pick(self, ids: Sequence[str]) -> Picked:
        session = self._existing()
        places = [self._message(session, id_) for id_ in ids]
        return self._copy(self._store.get(session, places), self._live.path)

    def rebase(self, onto: str, since: str | None = None) -> Picked:
        """Have the branch end at another place, followed by copies of what only the branch has.

        `reset("name@{1}")` undoes it. A branch that stands behind that place is moved there.

        Args:
            onto: where to: a branch, message or other place.
            since: copy only what comes after this place; None: all.

        Raises:
            UnknownReferenceError: there is no such place.
            ValueError: this object stands on no branch.
        """
        return self._until_fresh(lambda: self._rebase(onto, since))

    def _rebase(self, onto: str, since: str | None) -> Picked:
        session = self._existing()
        branch, path = self._live.head.branch, self._live.path
        if branch is None:
            raise ValueError("this memory is detached; check out the branch to rebase")
        place = self._placed(onto)
        after = self._live.path_to(place if since is None else self._placed(since))
        if path.covers(place) and after.head == place:
            return Picked()
        target = self._live.path_to(place)
        only = Path(tuple(path.without(target)))
        records = self._read(session, only.without(after) if only.spans else [])
        move = Move(branch, place, f"rebase onto {onto}", path.head)
        picked = self._copy(records, target, lambda _: [move])
        self._stand(Head(branch))
        return picked

    # Copies

    def _message(self, session: int, reference: str) -> Position:
        records = self._store.get(session, [reference])
        place = records[0].position if records else resolve(self._store, session, reference).at
        if place is None or not self._store.get(session, [place]):
            raise UnknownReferenceError(f"{reference!r} is not a message; give a message's id")
        return place

    def _read(self, session: int, spans: Sequence[Span]) -> list[Record]:
        return list(read(self._store, session, spans))

    def _copy(self, records: Sequence[Record], path: Path, changes: Changes = lambda branch: ()) -> Picked:
        """Copy messages to where the object stands, which is, or will be by `changes`, at the end of `path`."""
        epoch, head = self._live.epoch, self._live.path.head  # as they were before the records were read
        plan = self._plan(records, path)
        if not plan.drafts:
            self._store.change(self._existing(), changes(self._live.head.branch or ""))
            return Picked(skipped=plan.skipped)
        appended = self._writer.write(plan.drafts, changes=if_unmoved(epoch, head, changes))
        self._writer.open_turn = None
        return _picked(appended, plan)

    def _plan(self, records: Sequence[Record], path: Path) -> _Plan:
        assert self._live.key is not None
        wanted = self._whole_groups(records)
        there = self._present(wanted, path)
        new = [record for record in wanted if record.position not in there]
        turns: dict[str, list[Record]] = {}
        for record in new:
            turns.setdefault(record.message.turn_id or "", []).append(record)
        homeless: list[Draft] = []
        blocks: dict[str, list[Draft]] = {}
        halves: list[str] = []
        for turn_id, members in turns.items():
            all_of_turn = self._store.find(self._live.key, InTurn(turn_id))
            home = self._home(all_of_turn, turn_id, path)
            copies = [self._draft_of(record) for record in members]
            if members[0].message.role in ("user", "system"):
                blocks[turn_id] = copies
            elif home is not None:
                # A message known to the store lends its turn to what follows; two turns may have one home.
                blocks.setdefault(home.message.id or "", [Draft(home.message)]).extend(copies)
            else:
                homeless += copies
            if _is_half(members, all_of_turn, home):
                halves += [record.message.id or "" for record in members]
        drafts = chain(homeless, *blocks.values())
        skipped = tuple(record.message.id or "" for record in wanted if record.position in there)
        return _Plan(tuple(drafts), skipped, tuple(halves))

    def _draft_of(self, record: Record) -> Draft:
        copy = record.message.replace(id=self._writer.new_id(), turn_id=None)
        return Draft(copy, record.counter, record.tokens, picked_from=record.message.id)

    def _whole_groups(self, records: Sequence[Record]) -> list[Record]:
        """Return messages with all of their tool groups, in the order of storing."""
        assert self._live.key is not None
        asked = {record.position: record for record in records}
        found = dict(asked)
        groups_of: dict[str, list[dict[Position, Record]]] = {}
        for record in records:
            if record.message.role == "tool" or record.message.tool_calls:
                turn = record.message.turn_id or ""
                if turn not in groups_of:
                    groups_of[turn] = list(groups_of_turn(self._store, self._live.key, turn))
                # Two branches may answer one call: the answer that is asked for is taken, else the fuller, not both.
                groups = [group for group in groups_of[turn] if record.position in group]
                chosen: dict[Position, Record] = max(groups, key=lambda one: (len(one.keys() & asked.keys()), len(one)))
                found |= chosen
        return sorted(found.values(), key=lambda record: record.seq)

    def _present(self, records: Sequence[Record], path: Path) -> set[Position]:
        """Return where those stand that are on a path already, themselves or as another copy of the same."""
        return {record.position for record in records if self._on(path, self._family(record))}

    @staticmethod
    def _on(path: Path, records: Iterable[Record]) -> Record | None:
        return next((record for record in records if path.covers(record.position)), None)

    def _family(self, record: Record) -> list[Record]:
        """Return a message, what it was copied from, and all other copies of that, in the order of storing."""
        assert self._live.key is not None
        first = record
        while first.picked_from is not None:
            origin = self._store.get(self._live.key, [first.picked_from])
            if not origin:
                break
            first = origin[0]
        family = {first.message.id: first}
        newest = [first]
        while newest:
            made = self._store.find(self._live.key, MadeFrom([one.position for one in newest]))
            newest = [one for one in made if one.picked_from in family and one.message.id not in family]
            family |= {one.message.id: one for one in newest}
        return sorted(family.values(), key=lambda one: one.seq)

    def _home(self, all_of_turn: Iterable[Record], turn_id: str, path: Path) -> Record | None:
        """Return a turn's user message if it is on a path, or else the first copy of it there."""
        opener = next((record for record in all_of_turn if record.message.id == turn_id), None)
        if opener is None or opener.message.role != "user":
            return None
        return self._on(path, [opener, *self._family(opener)])


def _is_half(members: Sequence[Record], all_of_turn: Sequence[Record], home: Record | None) -> bool:
    """Return whether a turn is copied without its question, or a question without any of its answers."""
    first = members[0].message
    if first.role != "user":
        return first.id != first.turn_id and home is None
    return len(members) == 1 and len(all_of_turn) > 1


def _picked(appended: Appended, plan: _Plan) -> Picked:
    copies = [record for record in appended.records if record.message.id in appended.added]
    messages = tuple(record.message for record in copies)
    sources = tuple(record.picked_from or "" for record in copies)
    return Picked(messages, sources, plan.skipped, plan.halves)


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
        return next((self._told(number, ref) for number, ref in refs if ref.position == path.head), None)

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
        assert ref.position is not None
        assert ref.base is not None
        spans = self._line_between(ref.base, ref.position)
        if spans is None:
            spans = self._live.path_to(ref.position).without(self._live.path_to(ref.base))
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
