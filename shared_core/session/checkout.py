"""Checkout: what one memory object has checked out, and the storing of messages there."""

import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from datetime import date, datetime
from math import inf
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol, TypeVar

from shared_core.arguments import moment
from shared_core.errors import DuplicateError, StaleHeadError, UnknownReferenceError
from shared_core.history.normal_form import says_the_same
from shared_core.messages import Message, in_utc
from shared_core.plugins.base import TokenCounter
from shared_core.records import Appended, Change, Draft, Expect, Move, Position, Record, VectorRows
from shared_core.session.live import LiveSession
from shared_core.session.paths import Head, Path, Span, read, resolve, unused_branch_name
from shared_core.session.turns import Entry, is_prompt, kept_of, said_together
from shared_core.tokens import body_tokens

Changes = Callable[[str], Sequence[Change]]
"""Returns the changes to make in the same transaction, given the name of the branch."""


class NewVectors(Protocol):
    """Vectors of stored messages, some of which are not stored yet."""

    @property
    def epoch(self) -> int:
        """The session's when their messages were read."""

    @property
    def unsaved(self) -> VectorRows | None:
        """Those that are not stored; None if there are none."""

    def note_saved(self, rows: VectorRows) -> None:
        """Note that what `unsaved` returned is stored."""


NO_COPIES: Mapping[str, Record] = MappingProxyType({})

Result = TypeVar("Result")


def no_changes(branch: str) -> Sequence[Change]:
    """Return no changes."""
    return ()


def if_unmoved(epoch: int, head: Position, changes: Changes = no_changes) -> Changes:
    """Return changes that fail if the branch no longer ends at this head, or if messages were forgotten since."""
    return lambda name: [Expect(epoch, name, head), *changes(name)]


def with_move(why: str, head: Position, changes: Changes = no_changes) -> Changes:
    """Return changes that also note in the reflog where a branch ends before messages are added to it."""
    return lambda name: [Move(name, head, why, head), *changes(name)]


@dataclass(frozen=True, slots=True)
class Stamps:
    """Completes messages that have no id or no time.

    Args:
        clock: returns the time.
        id: returns an id, each time another one.
    """

    clock: Callable[[], datetime]
    id: Callable[[], str] = lambda: uuid.uuid4().hex

    def time(self) -> datetime:
        """Return the time, with a zone; ValueError if `clock` returns none that can be stored."""
        now = self.clock()
        if not isinstance(now, datetime):
            raise ValueError(f"clock returned {now!r}; it must return a datetime")
        try:
            return in_utc(now)
        except ValueError as error:
            raise ValueError(f"clock returned a time that cannot be stored: {error}") from error

    def completed(self, message: Message) -> Message:
        """Return a message with an id and a time."""
        changes: dict[str, Any] = {}
        if message.id is None:
            changes["id"] = self.id()
        if message.created_at is None:
            changes["created_at"] = self.time()
        return message.replace(**changes) if changes else message


class Writer:
    """Stores the messages of one memory object.

    Args:
        live: the session, and what is checked out.
        counter: counts the tokens of stored messages. The counts of a counter without a name are not stored.
        stamps: the ids and times of messages that have none.

    Attributes:
        open_turn: the turn that this object opened last. The next reply joins it, even if other objects opened turns
            on the branch since.
        own_vectors: returns the session's vectors, if they are in memory; new ones are stored along with messages.
    """

    def __init__(self, live: LiveSession, counter: TokenCounter, stamps: Stamps) -> None:
        self.live = live
        self.counter = counter
        self.stamps = stamps
        self.open_turn: str | None = None
        self.own_vectors: Callable[[], NewVectors | None] = lambda: None

    def add(
        self, messages: Sequence[Message], turn: str | None, prompt_id: str | None = None,
        copied: Mapping[str, Record] = NO_COPIES, changes: Changes = no_changes, alone: bool = False,
    ) -> list[Message]:  # fmt: skip
        """Store messages and return them as stored. `turn` and errors are those of `InfiniteMemory.add`.

        System messages replace the system prompt, or join the one whose `turn_id` is `prompt_id`. `copied` says, by
        their ids, which messages are copies, and of what; `changes` is that of `write`, `alone` that of `Draft`.
        """
        if turn is not None and not isinstance(turn, str):
            raise ValueError(f"turn={turn!r}: expected the id of a turn's user message")
        if turn is not None and any(message.role == "user" for message in messages):
            raise ValueError(f"turn={turn!r}: only replies can join a turn; a user message opens its own")
        if not messages:
            return []
        if turn is not None and self.live.key is None:
            raise UnknownReferenceError(f"there is no turn {turn!r} on this branch; nothing is stored yet")
        known = self._known_prompt(messages)
        new = said_together(
            [self.stamps.completed(message) for index, message in enumerate(messages) if index not in known],
            next((entry.message.turn_id for entry in known.values()), prompt_id),
        )
        drafts = [self.draft(message, copied.get(message.id or "")) for message in new]
        drafts = [replace(draft, alone=True) for draft in drafts] if alone else drafts
        records = self._append(drafts, turn, changes) if drafts else ()
        for record in records:
            if record.message.role == "user":
                self.open_turn = record.message.turn_id
        stored = [record.message for record in records]
        for index, entry in known.items():
            stored.insert(index, entry.message)
        return stored

    def _known_prompt(self, messages: Sequence[Message]) -> dict[int, Entry]:
        """Return which of some messages say what the current system prompt says already: index -> what is stored.

        A message with an id of its own is another one.
        """
        wanted = [index for index, message in enumerate(messages) if is_prompt(message)]
        if not wanted or any(messages[index].id is not None for index in wanted):
            return {}
        self.live.sync()
        prompt = self.live.system_prompt()
        kept = kept_of([entry.message for entry in prompt], [messages[index] for index in wanted])
        return dict(zip(wanted, prompt[:kept], strict=False))

    def _append(self, drafts: Sequence[Draft], turn: str | None, changes: Changes) -> Sequence[Record]:
        """Store drafts in a turn; None: the one that this object opened last."""
        if turn is not None:
            return self.write(drafts, turn=turn, changes=changes).records
        try:
            return self.write(drafts, turn=self.open_turn, changes=changes).records
        except UnknownReferenceError:
            if self.open_turn is None:
                raise
            self.open_turn = None  # nothing of the turn is left on this branch
            return self.write(drafts, changes=changes).records

    def draft(self, message: Message, source: Record | None = None) -> Draft:
        """Return a message with an id, a time and a token count; `source`: what it is a copy of."""
        complete = self.stamps.completed(message)
        picked_from = None if source is None else source.message.id
        if source is not None and says_the_same(source.message, complete):
            return Draft(complete, source.counter, source.tokens, picked_from)
        if self.counter.name is None:
            return Draft(complete, picked_from=picked_from)
        return Draft(complete, self.counter.name, body_tokens(complete, self.counter), picked_from)

    def write(self, drafts: Sequence[Draft], *, turn: str | None = None, changes: Changes = no_changes) -> Appended:
        """Store drafts at the head. On a detached head, this opens a branch.

        Args:
            drafts: the messages to store.
            turn: the turn that the first replies join, as in `Store.append`.
            changes: returns the changes to make in the same transaction, given the name of the branch.
        """
        session = self.live.create()
        store = self.live.store
        branch, at = self.live.head
        if branch is not None:
            known = self.live.known
            made = self.own_vectors()
            rows = None if made is None else made.unsaved
            appended = store.append(
                session, branch, drafts, turn=turn, changes=changes(branch), known=known,
                vectors=rows, epoch=None if made is None else made.epoch,
            )  # fmt: skip
            if made is not None and rows is not None and appended.kept:
                made.note_saved(rows)
            self.live.note_appended(appended)
            return appended
        while True:
            name = unused_branch_name(store, session)
            try:
                appended = store.append(session, name, drafts, at=at, turn=turn, changes=changes(name))
            except DuplicateError:
                if name not in {other.name for other in store.branches(session)}:
                    raise
                continue  # another writer took the name first
            self.live.go(Head(name))
            return appended


class Past(NamedTuple):
    """Where a branch ended.

    Attributes:
        position: its last message then, or the root.
        time: seconds since 1970, after which nothing counts that was said in other sessions.
    """

    position: Position
    time: float


class Checkout:
    """What one memory object has checked out, and the operations that all methods on the tree share.

    Args:
        live: the session, and the branch or position that is checked out.
        writer: stores messages there.
        lock: held by one method at a time.
    """

    def __init__(self, live: LiveSession, writer: Writer, lock: AbstractContextManager[object]) -> None:
        self.live = live
        self.writer = writer
        self.lock = lock
        self.store = live.store

    def existing(self) -> int:
        """Return the session's key after a `sync`; UnknownReferenceError if nothing is stored."""
        session = self.stored()
        self.live.sync()
        return session

    def stored(self) -> int:
        """Return the session's key; UnknownReferenceError if nothing is stored."""
        if self.live.key is None:
            raise UnknownReferenceError("there are no branches: nothing is stored yet")
        return self.live.key

    def position_of(self, reference: str | None) -> Position:
        """Return the position that a reference means. None: the position that is checked out.

        Raises:
            UnknownReferenceError: the reference means no position.
        """
        session = self.live.create()
        head = self.live.head if reference is None else resolve(self.store, session, reference)
        at = head.at or self.store.state(session, head.branch).head
        if at is None:
            raise UnknownReferenceError(f"the branch {head.branch!r} does not exist any more")
        return at

    def end_on_path(self, reference: str) -> Position:
        """Return the position on the path that a reference means, where the branch may end.

        Raises:
            UnknownReferenceError: the reference means no position, or one that is not on the path.
            ValueError: a merge brought it in.
        """
        position, path = self.position_of(reference), self.live.path
        if not path.covers(position):
            raise UnknownReferenceError(f"{reference!r} is not on this branch; give a message that is")
        if path.span_of(position).shift:
            raise ValueError(
                f"{reference!r} came in by a merge, and what was said here before the merge would go, too: "
                "give a message that was said on this branch"
            )
        return position

    def past(self, as_of: date | str, end_at: Callable[[float], Position]) -> Past:
        """Return the past that `as_of` means: up to a message, or before the first message said after a time.

        Args:
            as_of: a datetime, a date, which means the end of its day, ISO 8601 text, or the id of a message.
            end_at: returns where the branch ended at a time, in seconds since 1970.

        Raises:
            TypeError: `as_of` is something else.
            ValueError: a merge brought the message in.
            UnknownReferenceError: the text is no time, and names no message of the branch.
        """
        expected = f"as_of={as_of!r}: expected a time, such as '2026-01-31' or a datetime, or the id of a message"
        if not isinstance(as_of, date | str):
            raise TypeError(expected)
        self.live.sync()
        if isinstance(as_of, str) and self.live.key is not None:
            for record in self.store.get(self.live.key, [as_of]):
                at = record.message.created_at
                return Past(self.end_on_path(as_of), inf if at is None else at.timestamp())
        try:
            time = moment("as_of", as_of, end=True).timestamp()
        except ValueError:
            raise UnknownReferenceError(f"{expected} on this branch") from None
        return Past(end_at(time), time)

    def stand(self, head: Head) -> None:
        """Check out a branch or a position."""
        self.live.go(head)
        self.writer.open_turn = None

    def stand_at(self, position: Position) -> None:
        """Check out the branch that ends at this position, or the position itself if there is none."""
        if self.live.ends_at(position):
            return
        session = self.live.key
        branches = self.store.branches(session) if session is not None else []
        names = [branch.name for branch in branches if branch.head == position]
        self.stand(Head(names[-1]) if names else Head(None, position))
        self.live.sync()

    def until_fresh(self, verb: Callable[[], Result]) -> Result:
        """Repeat a call until the branch did not change between its reads and its write."""
        with self.lock:
            while True:
                try:
                    return verb()
                except StaleHeadError:
                    continue

    def read(self, spans: Iterable[Span]) -> list[Record]:
        """Return the messages of some spans, in order."""
        return list(read(self.store, self.stored(), spans))

    def newest_of(self, spans: Sequence[Span], limit: int) -> list[Record]:
        """Return the newest messages of some spans, at most `limit`, in order."""
        session, found = self.stored(), list[Record]()
        for span in reversed(spans):
            wanted = min(limit - len(found), span.upto - span.start + 1)
            records = self.store.newest(session, Position(span.segment, span.upto), wanted) if wanted else ()
            found += [record for record in records if record.position.depth >= span.start]
        return found[::-1]

    def newest_shared(self, one: Path, other: Path) -> str | None:
        """Return the id of the newest message that two paths share. None: they share none."""
        return next((record.message.id for record in self.newest_of(one.shared(other), 1)), None)
