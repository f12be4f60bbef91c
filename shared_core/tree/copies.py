"""Copies of messages: cherry-pick, rebase and stash. The originals stay where they are."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import chain
from typing import Any

from shared_core.errors import UnknownReferenceError
from shared_core.history.forms import families
from shared_core.history.normal_form import says_the_same
from shared_core.messages import Message, short_repr
from shared_core.records import Change, Draft, Drop, Move, Position, Put, Record, Ref
from shared_core.session.checkout import Changes, Checkout, if_unmoved, with_move
from shared_core.session.forget import by_turn, groups_of_turns, in_group
from shared_core.session.paths import Head, Path, resolve
from shared_core.session.turns import said_together
from shared_core.tree.log import STASH_POP, lineage


@dataclass(frozen=True, slots=True)
class CherryPickResult:
    """What was copied.

    Attributes:
        messages: the copies, as stored.
        sources: the id of the original of each copy.
        skipped: ids of messages that were on the branch already, themselves or as a copy.
        halves: ids of messages that were copied without the question they answer, or without any of its answers.
    """

    messages: tuple[Message, ...] = ()
    sources: tuple[str, ...] = ()
    skipped: tuple[str, ...] = ()
    halves: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return short_repr(self)

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON data."""
        copies = {source: message.id for source, message in zip(self.sources, self.messages, strict=True)}
        return {"copies": copies, "skipped": list(self.skipped), "halves": list(self.halves)}


@dataclass(frozen=True, slots=True)
class Stash:
    """The end of a branch that was put aside.

    Attributes:
        number: 0 is the newest stash.
        branch: the branch it was taken from; empty: it was taken from a detached head.
        base: id of the message it came after; None: there was none.
        ids: ids of its messages, in order, without those forgotten since.
        note: the caller's own words.
        at: when.
    """

    number: int
    branch: str
    base: str | None
    ids: tuple[str, ...]
    note: str
    at: datetime

    def __repr__(self) -> str:
        return short_repr(self)

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON data."""
        fields = {name: getattr(self, name) for name in self.__slots__}
        return fields | {"ids": list(self.ids), "at": self.at.isoformat()}


# Cherry-pick and rebase


def cherry_pick(checkout: Checkout, ids: Sequence[str]) -> CherryPickResult:
    """Copy messages to the branch, turn by turn in the order of storing, under new ids; all of them or none."""

    def pick() -> CherryPickResult:
        session = checkout.existing()
        positions = [_message_position(checkout, session, reference) for reference in ids]
        return _Copier(checkout, checkout.live.path).copy(checkout.store.get(session, positions), why="cherry-pick")

    return checkout.until_fresh(pick)


def _message_position(checkout: Checkout, session: int, reference: str) -> Position:
    records = checkout.store.get(session, [reference])
    position = records[0].position if records else resolve(checkout.store, session, reference).at
    if position is None or not checkout.store.get(session, [position]):
        raise UnknownReferenceError(f"{reference!r} is not a message; give a message's id")
    return position


def rebase(checkout: Checkout, onto: str, since: str | None) -> CherryPickResult:
    """Let the branch end at another position, followed by copies of what only the branch has."""
    return checkout.until_fresh(lambda: _rebase(checkout, onto, since))


def _rebase(checkout: Checkout, onto: str, since: str | None) -> CherryPickResult:
    checkout.existing()
    branch, path = checkout.live.head.branch, checkout.live.path
    if branch is None:
        raise ValueError("this memory is detached; check out the branch to rebase")
    position = checkout.position_of(onto)
    after = checkout.live.path_to(position if since is None else checkout.position_of(since))
    if path.covers(position) and after.head == position:
        return CherryPickResult()
    target = checkout.live.path_to(position)
    only = Path(tuple(path.without(target)))
    records = checkout.read(only.without(after) if only.spans else [])
    move = Move(branch, position, f"rebase onto {onto}", path.head)
    result = _Copier(checkout, target).copy(records, lambda _: [move])
    checkout.stand(Head(branch))
    return result


class _Copier:
    """Copies messages to where a memory stands.

    Args:
        checkout: where it stands.
        path: the path that ends there, or will end there by the changes that come with the copies.
    """

    def __init__(self, checkout: Checkout, path: Path) -> None:
        self._checkout = checkout
        self._store = checkout.store
        self._session = checkout.stored()
        self._path = path
        # As they were before the records were read.
        self._epoch, self._head = checkout.live.epoch, checkout.live.path.head

    def copy(
        self, records: Sequence[Record], changes: Changes = lambda branch: (), *, why: str = ""
    ) -> CherryPickResult:
        """Store copies of messages and make some changes, in one transaction; `why` names the verb in the reflog."""
        wanted = self._with_tool_groups(records)
        present = {record.position for record in wanted if self._on_path(self._copies_that_say_the_same(record))}
        skipped = tuple(record.message.id or "" for record in wanted if record.position in present)
        drafts, halves = self._drafts([record for record in wanted if record.position not in present])
        checkout = self._checkout
        if not drafts:
            self._store.change(checkout.existing(), changes(checkout.live.head.branch or ""))
            return CherryPickResult(skipped=skipped)
        noted = with_move(why, self._head, changes) if why else changes
        appended = checkout.writer.write(drafts, changes=if_unmoved(self._epoch, self._head, noted))
        checkout.writer.open_turn = None
        copies = [record for record in appended.records if record.message.id in appended.added]
        messages = tuple(record.message for record in copies)
        return CherryPickResult(messages, tuple(record.picked_from or "" for record in copies), skipped, halves)

    def _with_tool_groups(self, records: Sequence[Record]) -> list[Record]:
        """Return messages with all of their tool groups, in the order of storing."""
        asked = {record.position: record for record in records}
        found = dict(asked)
        called = [record for record in records if in_group(record)]
        groups_of = groups_of_turns(self._store, self._session, {one.message.turn_id or "" for one in called})
        for record in called:
            # Two branches may answer one call. The answer that was asked for is taken, else the fuller, never both.
            groups = [group for group in groups_of.get(record.message.turn_id or "", ()) if record.position in group]
            if groups:
                chosen: dict[Position, Record] = max(groups, key=lambda one: (len(one.keys() & asked.keys()), len(one)))
                found |= chosen
        return sorted(found.values(), key=lambda record: record.seq)

    def _drafts(self, records: Sequence[Record]) -> tuple[list[Draft], tuple[str, ...]]:
        """Return drafts of copies, and the ids of messages that are copied as half of an exchange."""
        turns: dict[str, list[Record]] = {}
        for record in records:
            turns.setdefault(record.message.turn_id or "", []).append(record)
        homeless: list[Draft] = []
        blocks: dict[str, list[Draft]] = {}
        halves: list[str] = []
        whole = by_turn(self._store, self._session, turns)
        for turn_id, members in turns.items():
            whole_turn = whole.get(turn_id, [])  # forgotten meanwhile: the copies are not stored either
            opener = self._opener(whole_turn, turn_id)
            drafts = [self._draft_of(record) for record in members]
            joined = said_together([draft.message for draft in drafts])
            copies = [replace(draft, message=message) for draft, message in zip(drafts, joined, strict=True)]
            if members[0].message.role in ("user", "system"):
                blocks[turn_id] = copies
            elif opener is not None:
                # A message that the store knows lends its turn to what follows; two turns may have one opener.
                blocks.setdefault(opener.message.id or "", [Draft(opener.message)]).extend(copies)
            else:
                homeless += copies
            if _is_half(members, whole_turn, opener):
                halves += [record.message.id or "" for record in members]
        return list(chain(homeless, *blocks.values())), tuple(halves)

    def _draft_of(self, record: Record) -> Draft:
        copy = record.message.replace(id=self._checkout.writer.stamps.id(), turn_id=None)
        return Draft(copy, record.counter, record.tokens, picked_from=record.message.id)

    def _opener(self, whole_turn: Iterable[Record], turn_id: str) -> Record | None:
        """Return a turn's user message if it is on the path, else the first copy of it there."""
        opener = next((record for record in whole_turn if record.message.id == turn_id), None)
        if opener is None or opener.message.role != "user":
            return None
        return self._on_path([opener, *self._copies_of(opener)])

    def _on_path(self, records: Iterable[Record]) -> Record | None:
        return next((record for record in records if self._path.covers(record.position)), None)

    def _copies_that_say_the_same(self, record: Record) -> list[Record]:
        return [copy for copy in self._copies_of(record) if says_the_same(copy.message, record.message)]

    def _copies_of(self, record: Record) -> list[Record]:
        """Return a message, its original, and all other copies and edited forms of that, in the order of storing."""
        return families(self._store, self._session, [record])[record.message.id or ""]


def _is_half(members: Sequence[Record], whole_turn: Sequence[Record], opener: Record | None) -> bool:
    """Return whether a turn is copied without its question, or a question without any of its answers."""
    first = members[0].message
    if first.role != "user":
        return first.id != first.turn_id and opener is None
    return len(members) == 1 and len(whole_turn) > 1


# Stash


def stash(checkout: Checkout, since: str | None, note: str) -> Stash | None:
    """Take the end of the branch away and keep it under number 0; None if there is nothing to take."""
    return checkout.until_fresh(lambda: _stash(checkout, since, note))


def _stash(checkout: Checkout, since: str | None, note: str) -> Stash | None:
    session = checkout.live.key
    if session is None:
        return None
    checkout.live.sync()
    branch, path = checkout.live.head.branch, checkout.live.path
    base = _before_newest_question(checkout) if since is None else checkout.end_on_path(since)
    if base is None:
        return None
    if not checkout.newest_of(path.without(checkout.live.path_to(base)), 1):
        return None
    changes: list[Change] = [Put("stash", branch or "", path.head, base, note)]
    if branch is not None:
        changes.insert(0, Move(branch, base, "stash", path.head))
    checkout.store.change(session, changes)
    checkout.stand(Head(branch, None if branch is not None else base))
    refs = enumerate(checkout.store.refs(session, "stash"))
    # Another process may have stashed since.
    return next((_stash_of(checkout, number, ref) for number, ref in refs if ref.position == path.head), None)


def _before_newest_question(checkout: Checkout) -> Position | None:
    """Return the position before the newest user message; None if there is none; ValueError if a merge brought both."""
    path, count = checkout.live.path, 8
    while True:
        entries = checkout.live.last(count)
        user = next((entry for entry in reversed(entries) if entry.message.role == "user"), None)
        if user is not None:
            before = path.at(user.order - 1)
            if path.span_of(before).shift:
                raise ValueError(
                    "a merge brought in the newest turns: undo() takes the merge back, and since= can name a message "
                    "that was said on this branch"
                )
            return before
        if len(entries) < count:
            return None
        count *= 2


def stashes(checkout: Checkout) -> list[Stash]:
    """Return all stashes, the newest first."""
    with checkout.lock:
        session = checkout.live.key
        refs = checkout.store.refs(session, "stash") if session is not None else []
        return [_stash_of(checkout, number, ref) for number, ref in enumerate(refs)]


def apply_stash(checkout: Checkout, number: int, *, drop: bool) -> CherryPickResult:
    """Add copies of a stash's messages to the branch; `drop` also drops the stash, in the same transaction."""

    def apply() -> CherryPickResult:
        ref = _ref(checkout, number)
        copier = _Copier(checkout, checkout.live.path)
        changes: Changes = lambda branch: [Drop(ref.number)] if drop else []  # noqa: E731
        return copier.copy(_records_of(checkout, ref), changes, why=STASH_POP if drop else "stash apply")

    return checkout.until_fresh(apply)


def drop_stash(checkout: Checkout, number: int) -> None:
    """Drop a stash; its messages stay until they are forgotten."""
    with checkout.lock:
        ref = _ref(checkout, number)
        checkout.store.change(checkout.existing(), [Drop(ref.number)])


def _ref(checkout: Checkout, number: int) -> Ref:
    refs = checkout.store.refs(checkout.existing(), "stash", limit=number + 1)
    if len(refs) <= number:
        known = f"the newest is 0, the oldest {len(refs) - 1}" if refs else "nothing is stashed"
        raise UnknownReferenceError(f"there is no stash {number!r}: {known}")
    return refs[number]


def _records_of(checkout: Checkout, ref: Ref) -> list[Record]:
    assert ref.position is not None
    assert ref.base is not None
    return checkout.read(checkout.live.path_to(ref.position).without(checkout.live.path_to(ref.base)))


def _stash_of(checkout: Checkout, number: int, ref: Ref) -> Stash:
    base = lineage(checkout).message_at(ref.base)
    ids = tuple(record.message.id or "" for record in _records_of(checkout, ref))
    at = datetime.fromisoformat(ref.created_at).replace(tzinfo=UTC)
    return Stash(number, ref.name, base.message.id if base is not None else None, ids, ref.note, at)
