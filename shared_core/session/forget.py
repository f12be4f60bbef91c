"""Erase messages everywhere: select what a request erases, and erase it."""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime
from functools import cache, partial
from typing import Any

from shared_core.arguments import moment, suggests_names, texts
from shared_core.errors import UnknownReferenceError
from shared_core.events.source import EventSource, Watch, reported
from shared_core.messages import short_repr
from shared_core.queries import After, InTurns, MadeFrom
from shared_core.records import MAIN, Position, Record, Segment
from shared_core.session.checkout import Checkout
from shared_core.session.paths import Head, walk
from shared_core.session.turns import Entry, tool_groups
from shared_core.store import Store

PAGE = 2_000
"""Messages read at a time."""


@dataclass(frozen=True, slots=True)
class ForgetResult:
    """What was erased or, with `dry_run`, what would be.

    Attributes:
        ids: the ids of the messages, in the order in which they were stored.
        dry_run: whether nothing was erased.
        stay: with `ids`, those of the other messages of their turns, which may repeat what was said: pass their ids,
            too, to erase them.
        scrubbed: whether the bytes are gone from the files, too.
        reason: why they are not gone yet; `scrub()` tries again. None: they are gone.
    """

    ids: tuple[str, ...]
    dry_run: bool = False
    stay: tuple[str, ...] = ()
    scrubbed: bool = True
    reason: str | None = None

    def __repr__(self) -> str:
        return short_repr(self)

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON data."""
        return {
            "ids": list(self.ids), "dry_run": self.dry_run, "stay": list(self.stay), "scrubbed": self.scrubbed,
            "reason": self.reason,
        }  # fmt: skip


def every_record(store: Store, session: int) -> Iterator[Record]:
    """Yield the messages of a session, of all branches, in the order in which they were stored."""
    seq = 0
    while records := store.find(session, After(seq, PAGE)):
        yield from records
        seq = records[-1].seq


def select(
    store: Store, session: int, *, ids: Sequence[str] | None = None, before: datetime | None = None
) -> list[Record]:
    """Return the messages that a request erases: whole tool groups, on all branches, with their copies and summaries.

    Args:
        store: the store that holds the session.
        session: the session's key.
        ids: the messages with these ids.
        before: the messages said before this time, except system messages.

    Raises:
        UnknownReferenceError: an id is not stored.
    """
    if ids is not None:
        chosen = store.get(session, ids)
        missing = set(ids) - {record.message.id for record in chosen}
        if missing:
            store.check_absent(session, missing)
            raise UnknownReferenceError(f"no message {', '.join(map(repr, sorted(missing)))} in this session")
    else:
        assert before is not None
        chosen = [
            record
            for record in every_record(store, session)
            if record.message.role != "system" and record.message.created_at and record.message.created_at < before
        ]
    found: dict[Position, Record] = {}
    while chosen := [record for record in chosen if record.position not in found]:
        found |= {record.position: record for record in chosen}
        _add_groups(store, session, chosen, found)
        # Copies and summaries repeat what they were made from, and so do copies and summaries of those.
        chosen = store.find(session, MadeFrom(list(found)))
    return sorted(found.values(), key=lambda record: record.seq)


def _add_groups(store: Store, session: int, chosen: Sequence[Record], found: dict[Position, Record]) -> None:
    """Add the tool groups that some messages belong to."""
    turns = {record.message.turn_id or "" for record in chosen if in_group(record)}
    for groups in groups_of_turns(store, session, turns).values():
        # Groups of two branches may share a call: erasing one of them erases the other.
        while touched := [group for group in groups if 0 < len(group.keys() & found.keys()) < len(group)]:
            for group in touched:
                found |= group


def in_group(record: Record) -> bool:
    """Return whether a message calls a tool or is the result of a call."""
    return record.message.role == "tool" or bool(record.message.tool_calls)


def groups_of_turns(store: Store, session: int, turns: Collection[str]) -> dict[str, list[dict[Position, Record]]]:
    """Return turn -> its tool groups, branch by branch, because calls on two branches may have the same ids."""
    segment_of = cache(partial(store.segment, session))
    return {turn: list(_groups(of_turn, segment_of)) for turn, of_turn in by_turn(store, session, turns).items()}


def by_turn(store: Store, session: int, turns: Collection[str]) -> dict[str, list[Record]]:
    """Return turn -> its messages, of all branches, in the order of storing; all of them in one read."""
    found: dict[str, list[Record]] = {}
    for record in store.find(session, InTurns([*turns])) if turns else ():
        found.setdefault(record.message.turn_id or "", []).append(record)
    return found


def _groups(records: Sequence[Record], segment_of: Callable[[int], Segment]) -> Iterator[dict[Position, Record]]:
    for segment in {record.position.segment for record in records}:
        end = max(record.position for record in records if record.position.segment == segment)
        path = walk(end, segment_of)
        line = sorted(
            (r for r in records if path.covers(r.position)), key=lambda record: path.index_of(record.position)
        )
        entries = [Entry(record.message, 0, record.turn_no, number) for number, record in enumerate(line)]
        for group in tool_groups(entries):
            yield {line[entry.order].position: line[entry.order] for entry in group}


def forget(store: Store, session: int, records: Sequence[Record]) -> ForgetResult:
    """Erase messages from rows, vectors and snapshots, then from the bytes of the files."""
    gone = [record.position for record in records]
    store.forget(session, gone, stale=_left_of_turns(store, session, records))
    reason = store.scrub()
    return ForgetResult(_ids(records), scrubbed=reason is None, reason=reason)


def _left_of_turns(store: Store, session: int, records: Sequence[Record]) -> list[Position]:
    """Return the remaining messages of turns that lose some. Their vectors are stale if they stand for whole turns."""
    # The name of a space whose vectors stand for more than one message has a "#".
    if not any("#" in space for space in store.spaces(session)):
        return []
    return [record.position for record in _rest_of_turns(store, session, records)]


def _rest_of_turns(store: Store, session: int, records: Sequence[Record]) -> list[Record]:
    """Return the other messages of the turns that some messages belong to, in the order of their positions."""
    turns = {record.message.turn_id or "" for record in records}
    found = {record.position: record for record in store.find(session, InTurns([*turns]))}
    gone = {record.position for record in records}
    return [found[position] for position in sorted(found.keys() - gone)]


def _ids(records: Sequence[Record]) -> tuple[str, ...]:
    return tuple(record.message.id or "" for record in records)


def _of_erased(watch: Watch, result: ForgetResult) -> None:
    watch.silent = result.dry_run
    watch.fields.update(ids=result.ids, count=len(result.ids))


class ForgetVerbs:
    """The methods of a memory that erase messages."""

    _checkout: Checkout
    _events: EventSource

    @suggests_names
    @reported("forget", _of_erased)
    def forget(
        self, *, ids: Sequence[str] | None = None, before: date | str | None = None, session: bool = False,
        user: bool = False, dry_run: bool = False,
    ) -> ForgetResult:  # fmt: skip
        """Erase messages everywhere: from all branches, from vectors, indexes and snapshots, and from the files' bytes.

        A tool call and its results are erased together, and so are all copies and summaries made from an erased
        message. The ids are remembered, and messages with these ids are not stored again. Pass exactly one of `ids`,
        `before`, `session` and `user`.

        Args:
            ids: erase the messages with these ids.
            before: erase messages said before this time, except system messages: a datetime, a date, or ISO 8601 text
                such as `"2026-01-31"`. A time without a zone is taken as UTC.
            session: erase the whole session, with messages that are damaged and can no longer be read.
            user: erase all sessions of this memory's user. Each is erased as a whole; if the process is killed in
                between, call it again. The names of the user and of the sessions remain in the store.
            dry_run: erase nothing and return what would be erased.

        Raises:
            UnknownReferenceError: an id is not stored.
            ValueError: not exactly one of `ids`, `before`, `session` and `user` was passed, or this memory has no user
                whose sessions could be erased.
        """
        if (ids is not None) + (before is not None) + session + user != 1:
            raise ValueError("forget: pass exactly one of ids=, before=, session=True and user=True")
        live = self._checkout.live
        if user and live.user_id is None:
            raise ValueError(
                "forget(user=True): this memory has no user: pass user_id= to InfiniteMemory, "
                "or erase this session with session=True"
            )
        ids = None if ids is None else texts("ids", ids)
        limit = None if before is None else moment("before", before)
        with self._checkout.lock:
            key = live.key
            if key is None and ids:
                raise UnknownReferenceError(f"no message {ids[0]!r}: nothing is stored yet")
            if user or session:
                keys = [one.key for one in live.store.sessions(live.user_id)] if user else [key]
                return self._forget_sessions([one for one in keys if one is not None], dry_run=dry_run)
            records = select(live.store, key, ids=ids, before=limit) if key is not None else []
            stay = _ids(_rest_of_turns(live.store, key, records)) if key is not None and ids is not None else ()
            if dry_run or key is None:
                return ForgetResult(_ids(records), dry_run, stay)
            if not records:
                return self.scrub()  # a new epoch would make every process rebuild its indexes for nothing
            result = forget(live.store, key, records)
            live.reset()
            return replace(result, stay=stay)

    def _forget_sessions(self, sessions: Iterable[int], *, dry_run: bool) -> ForgetResult:
        """Erase whole sessions, with damaged messages, each in a transaction of its own; then the bytes in the files.

        If the process is killed in between, some sessions are erased and the others whole; the next call erases the
        rest.
        """
        store, gone = self._checkout.store, list[str]()
        for session in sessions:
            with store.transaction():
                stored = store.stored(session)
                gone += [id_ for _, id_ in stored]
                if not dry_run:
                    store.forget(session, [position for position, _ in stored], branches=True)
        if dry_run:
            return ForgetResult(tuple(gone), dry_run=True)
        self._checkout.stand(Head(MAIN))
        return replace(self.scrub(), ids=tuple(gone))

    def scrub(self) -> ForgetResult:
        """Remove erased bytes from the files, if a reader kept `forget` from doing so, as its result reports."""
        reason = self._checkout.live.store.scrub()
        return ForgetResult((), scrubbed=reason is None, reason=reason)
