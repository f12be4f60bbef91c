"""One session as one memory object sees it: what is checked out, the newest messages, and the storing of new ones."""

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from datetime import datetime
from functools import lru_cache
from typing import Any, TypeVar

from shared_core.base import TokenCounter
from shared_core.errors import DuplicateError, StaleHeadError, UnknownReferenceError
from shared_core.messages import Message, in_utc
from shared_core.paths import ROOT_PATH, Head, Path, Span, read, resolve, unused_branch_name, walk
from shared_core.records import (
    MAIN,
    ROOT,
    Appended,
    Change,
    Draft,
    Expect,
    InTurn,
    Pinned,
    Position,
    Record,
    Segment,
    SessionState,
)
from shared_core.store import Store
from shared_core.system_prompt import in_front, is_prompt, kept_of, newest_prompt, said_together
from shared_core.tokens import body_tokens
from shared_core.turns import Entry, Turn, group_turns

PAGE = 64
"""Messages read at a time, backwards from the head."""

TAIL_KEPT = 4_096
"""How many of the newest messages stay in memory, at least."""

RECENT_KEPT = 4_096
"""How many messages that recall has read stay in memory. Those read first are dropped first."""

REMEMBERED_SIZES = 16_384
"""How many sizes of messages stay in memory, for messages without a stored token count."""


class Sizer:
    """Adds token counts to stored messages. A text is counted only if the store has no count of this counter.

    Args:
        counter: the token counter.
        overhead: the tokens of framing per message.
    """

    def __init__(self, counter: TokenCounter, overhead: int) -> None:
        self.counter = counter
        self.overhead = overhead
        self._count = lru_cache(maxsize=REMEMBERED_SIZES)(lambda message: body_tokens(message, counter))

    def clear(self) -> None:
        """Drop all sizes in memory, because messages were forgotten."""
        self._count.cache_clear()

    def tokens(self, record: Record) -> int:
        """Return the tokens a stored message takes when it is sent, without grounding."""
        known = record.tokens is not None and record.counter is not None and record.counter == self.counter.name
        body = record.tokens if known and record.tokens is not None else self._count(record.message)
        return body + self.overhead

    def entry(self, record: Record, order: int) -> Entry:
        """Return a stored message with its size. `order` is its index on the path."""
        return Entry(record.message, self.tokens(record), record.turn_no, order)


class LiveSession:
    """Follows the changes of a session. Each call costs one small read, plus the messages that are new.

    Args:
        store: the store that holds the session.
        user_id: the user of the session.
        session_id: the name of the session.
        sizer: adds the sizes of messages.

    Attributes:
        head: the branch or position that is checked out.
        path: the path to it, as of the last `sync`.
    """

    def __init__(self, store: Store, user_id: str | None, session_id: str, sizer: Sizer) -> None:
        self.store = store
        self.user_id = user_id
        self.session_id = session_id
        self.sizer = sizer
        self.head = Head(MAIN)
        self._key: int | None = None
        self._segments: dict[int, Segment] = {}
        self._forget_cache()

    def _forget_cache(self) -> None:
        self.sizer.clear()
        self._epoch = -1
        self.path = ROOT_PATH
        self._tail: list[Entry] = []
        self._cursor: list[Span] = []
        self._stays: list[Entry] = []
        self.replaced = 0
        self._recent: dict[Position, Record] = {}
        self._openers: dict[str, Position | None] = {}

    @property
    def key(self) -> int | None:
        """The session's key in the store. None: nothing is stored yet."""
        if self._key is None:
            self._key = self.store.session(self.user_id, self.session_id)
        return self._key

    def is_renamed(self) -> bool:
        """Return whether the session in use has another name by now, which another object gave it."""
        return self._key is not None and self.store.session(self.user_id, self.session_id) != self._key

    def rename(self, session_id: str) -> None:
        """Give the session another name; see `Store.rename_session`."""
        if self.key is None:
            raise UnknownReferenceError(f"nothing is stored in session {self.session_id!r} yet: it cannot be renamed")
        self.store.rename_session(self.key, session_id)
        self.session_id = session_id

    @property
    def epoch(self) -> int:
        """The session's epoch at the last `sync`."""
        return self._epoch

    def create(self) -> int:
        """Return the session's key. The session is created if it does not exist."""
        if self._key is None:
            self._key = self.store.create_session(self.user_id, self.session_id)
        return self._key

    def go(self, head: Head) -> None:
        """Check out another branch or position."""
        self.head = head
        self._forget_cache()

    def sync(self) -> SessionState:
        """Catch up with the store and return the session's state."""
        if self.key is None:
            return SessionState(ROOT, 0, 0)
        state = self.store.state(self.key, self.head.branch)
        at = state.head if self.head.branch is not None else self.head.at
        if at is None:
            names = [branch.name for branch in self.store.branches(self.key)]
            raise UnknownReferenceError(
                f"the branch {self.head.branch!r} does not exist any more; check out one of {names}", candidates=names
            )
        if state.epoch != self._epoch:
            self._forget_cache()
            self._epoch = state.epoch
            self._move(at)
        elif at != self.path.head:
            # More new messages than stay in memory are not read here, but in pages when they are needed.
            grows = at.segment == self.path.head.segment and 0 < at.depth - self.path.head.depth <= TAIL_KEPT
            self._grow(at) if grows else self._move(at)
        return state

    def segment(self, segment: int) -> Segment:
        """Return a segment. Its parent never changes, but its tip may be outdated."""
        assert self.key is not None
        if segment not in self._segments:
            self._segments[segment] = self.store.segment(self.key, segment)
        return self._segments[segment]

    def path_to(self, head: Position) -> Path:
        """Return the path to a position of this session."""
        return walk(head, self.segment)

    def _move(self, head: Position) -> None:
        assert self.key is not None
        self.path = self.path_to(head)
        self._tail = []
        self._cursor = list(self.path.spans)
        self._stays = []
        self.replaced = 0
        self._keep_staying([record for record in self.store.find(self.key, Pinned()) if self._covers(record)])

    def _keep_staying(self, records: Sequence[Record]) -> None:
        """Note messages of every prompt that are new on the path. A system prompt replaces those before it."""
        stays = sorted([*self._stays, *self.entries(records)], key=lambda entry: entry.order)
        current = self._newest_prompt([entry for entry in stays if is_prompt(entry.message)], self.path)
        ids = {entry.message.id for entry in current}
        self._stays = [entry for entry in stays if not is_prompt(entry.message) or entry.message.id in ids]
        self.replaced += len(stays) - len(self._stays)

    def _newest_prompt(self, prompts: Sequence[Entry], path: Path) -> list[Entry]:
        """Return the current system prompt of a path: the newest of its own, else the newest of what was merged in."""
        if path.plain or len(prompts) < 2:
            return newest_prompt(prompts)
        own = walk(path.head, lambda segment: self.segment(segment)._replace(merged=None))
        return newest_prompt([entry for entry in prompts if own.covers(path.at(entry.order))] or prompts)

    def prompt(self) -> list[Entry]:
        """Return the system prompt of the path; empty if there is none."""
        return [entry for entry in self._stays if is_prompt(entry.message)]

    def prompt_of(self, path: Path) -> list[Entry]:
        """Return the system prompt of another path of this session."""
        assert self.key is not None
        records = [record for record in self.store.find(self.key, Pinned()) if path.covers(record.position)]
        prompts = [entry for entry in self.entries(records, path) if is_prompt(entry.message)]
        return self._newest_prompt(sorted(prompts, key=lambda entry: entry.order), path)

    def is_replaced(self, message: Message) -> bool:
        """Return whether a message of the path belongs to a system prompt that a newer one has replaced."""
        return is_prompt(message) and all(message.id != entry.message.id for entry in self.prompt())

    def _covers(self, record: Record) -> bool:
        return self.path.covers(record.position)

    def _grow(self, head: Position) -> None:
        """Read the messages that were added at the head since the last call."""
        assert self.key is not None
        new = self.store.newest(self.key, head, head.depth - self.path.head.depth)[::-1]
        new = [record for record in new if record.position.depth > self.path.head.depth]
        self.path = Path((*self.path.spans[:-1], self.path.spans[-1]._replace(upto=head.depth)))
        self._tail += self.entries(new)
        staying = [record for record in new if record.message.stays]
        if staying:
            self._keep_staying(staying)
        if len(self._tail) > 2 * TAIL_KEPT:
            self._tail = self._tail[-TAIL_KEPT:]
            oldest = self._tail[0].order
            older = [span for span in self.path.spans if span.start + span.shift < oldest]
            self._cursor = [span._replace(upto=min(span.upto, oldest - 1 - span.shift)) for span in older]

    def entries(self, records: Sequence[Record], path: Path | None = None) -> list[Entry]:
        """Return messages with their indexes and turn numbers on a path, by default the one that is checked out."""
        path = self.path if path is None else path
        if path.plain:
            return [self.sizer.entry(record, record.position.depth) for record in records]
        self._find_openers(records)
        return [self._merged_entry(record, path) for record in records]

    def _merged_entry(self, record: Record, path: Path) -> Entry:
        """Return a message of a path with merges. Its turn gets the number that the turn's first message has there."""
        opener = self._openers.get(record.message.turn_id or "") or record.position
        turns = path.span_of(opener if path.covers(opener) else record.position).turn_shift
        entry = self.sizer.entry(record, path.index_of(record.position))
        return replace(entry, turn_no=entry.turn_no + turns) if turns else entry

    def _find_openers(self, records: Sequence[Record]) -> None:
        """Find the first messages of some messages' turns. None: it was forgotten."""
        self._openers |= {r.message.id or "": r.position for r in records if r.message.id == r.message.turn_id}
        turns = {record.message.turn_id or "" for record in records} - self._openers.keys()
        if turns and self.key is not None:
            self._openers |= dict.fromkeys(turns)
            self._openers |= {r.message.id or "": r.position for r in self.store.get(self.key, sorted(turns))}

    def stays_beside(self, turn_id: str | None) -> list[Entry]:
        """Return the messages of every prompt: the system prompt, and what is pinned, with its whole turn.

        Args:
            turn_id: the turn that is being answered, which is left out.
        """
        pinned = dict.fromkeys(entry.message.turn_id or "" for entry in self._stays if entry.message.role != "system")
        system = [entry for entry in self._stays if entry.message.role == "system" and entry.message.pinned]
        stays = [*in_front(self.prompt()), *system]
        for pinned_turn in pinned:
            turn = self.whole_turn(pinned_turn) if turn_id is None or pinned_turn != turn_id else None
            stays += turn.whole().entries if turn else ()
        return stays

    def tail(self, tokens: int) -> tuple[list[Entry], bool]:
        """Return the newest messages of the path, oldest first, and whether these are all messages of the path.

        Args:
            tokens: return messages of at least this many tokens, or all messages.
        """
        have = count = 0
        while have < tokens:
            if count == len(self._tail):
                if not self._cursor:
                    break
                self._tail[:0] = self._read_page()
                continue
            count += 1
            have += self._tail[-count].tokens
        return self._tail[len(self._tail) - count :], not self._cursor and count == len(self._tail)

    def _read_page(self) -> list[Entry]:
        assert self.key is not None
        span = self._cursor.pop()
        limit = min(PAGE, span.upto - span.start + 1)
        records = self.store.newest(self.key, Position(span.segment, span.upto), limit) if limit > 0 else []
        # If messages of the span were forgotten, the store returns older ones instead, which are not on this span.
        records = [record for record in records if record.position.depth >= span.start]
        if len(records) == limit and limit and records[-1].position.depth > span.start:
            self._cursor.append(span._replace(upto=records[-1].position.depth - 1))
        return self.entries(records[::-1])

    def last(self, count: int) -> list[Entry]:
        """Return the newest messages of the path, at most `count`, oldest first."""
        while len(self._tail) < count and self._cursor:
            self._tail[:0] = self._read_page()
        return self._tail[max(0, len(self._tail) - count) :]

    def ends_at(self, position: Position) -> bool:
        """Return whether nothing is said on the path after a position of it: at most a system prompt follows."""
        if position == self.path.head:
            return True
        count, newest = 1, self.last(1)
        while len(newest) == count:
            # The newest message may be before the head, because the message at the head may have been forgotten.
            if self.path.at(newest[0].order) == position:
                return True
            if not is_prompt(newest[0].message):
                return False
            count += 1
            newest = self.last(count)
        return False

    def records(self, session: int, positions: Sequence[Position]) -> list[Record]:
        """Return the messages at these positions, in any order.

        Messages never change, so recently read messages of this session stay in memory until some are forgotten.
        """
        if session != self._key:
            return self.store.get(session, positions)
        missing = [position for position in positions if position not in self._recent]
        for record in self.store.get(session, missing) if missing else ():
            self._recent[record.position] = record
        found = [self._recent[position] for position in positions if position in self._recent]
        while len(self._recent) > RECENT_KEPT:
            self._recent.pop(next(iter(self._recent)))
        return found

    def whole_turn(self, turn_id: str) -> Turn | None:
        """Return the messages of one turn that are on the path."""
        assert self.key is not None
        records = [record for record in self.store.find(self.key, InTurn(turn_id)) if self._covers(record)]
        entries = sorted(self.entries(records), key=lambda entry: entry.order)
        return next(iter(group_turns(entries)), None)


Changes = Callable[[str], Sequence[Change]]
"""Returns the changes to make in the same transaction, given the name of the branch."""

Result = TypeVar("Result")


def _no_changes(branch: str) -> Sequence[Change]:
    return ()


def if_unmoved(epoch: int, head: Position, changes: Changes = _no_changes) -> Changes:
    """Return changes that fail if the branch no longer ends at this head, or if messages were forgotten since."""
    return lambda name: [Expect(epoch, name, head), *changes(name)]


class Writer:
    """Stores the messages of one memory object.

    Args:
        live: the session, and what is checked out.
        counter: counts the tokens of stored messages. The counts of a counter without a name are not stored.
        clock: returns the time for messages that have none.
        new_id: returns the id for messages that have none.

    Attributes:
        open_turn: the turn that this object opened last. The next reply joins it, even if other objects opened turns
            on the branch since.
    """

    def __init__(
        self, live: LiveSession, counter: TokenCounter, *, clock: Callable[[], datetime], new_id: Callable[[], str]
    ) -> None:
        self.live = live
        self.counter = counter
        self.clock = clock
        self.new_id = new_id
        self.open_turn: str | None = None

    def add(self, messages: Sequence[Message], turn: str | None, prompt_id: str | None = None) -> list[Message]:
        """Store messages and return them as stored. `turn` and errors are those of `InfiniteMemory.add`.

        System messages replace the system prompt, or join the one whose `turn_id` is `prompt_id`.
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
            [self.completed(message) for index, message in enumerate(messages) if index not in known],
            next((entry.message.turn_id for entry in known.values()), prompt_id),
        )
        drafts = [self.draft(message) for message in new]
        records: Sequence[Record] = ()
        if drafts:
            records = self.write(drafts, turn=turn).records if turn is not None else self._append_to_open_turn(drafts)
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
        prompt = self.live.prompt()
        kept = kept_of([entry.message for entry in prompt], [messages[index] for index in wanted])
        return dict(zip(wanted, prompt[:kept], strict=False))

    def _append_to_open_turn(self, drafts: Sequence[Draft]) -> Sequence[Record]:
        try:
            return self.write(drafts, turn=self.open_turn).records
        except UnknownReferenceError:
            if self.open_turn is None:
                raise
            self.open_turn = None  # nothing of the turn is left on this branch
            return self.write(drafts).records

    def completed(self, message: Message) -> Message:
        """Return a message with an id and a time."""
        changes: dict[str, Any] = {}
        if message.id is None:
            changes["id"] = made = self.new_id()
            if not isinstance(made, str) or not made:
                raise ValueError(f"new_id returned {made!r}; it must return a text that is not empty")
        if message.created_at is None:
            now = self.clock()
            if not isinstance(now, datetime):
                raise ValueError(f"clock returned {now!r}; it must return a datetime")
            changes["created_at"] = in_utc(now)
        return message.replace(**changes) if changes else message

    def draft(self, message: Message) -> Draft:
        """Return a message with an id, a time and a token count."""
        complete = self.completed(message)
        if self.counter.name is None:
            return Draft(complete)
        return Draft(complete, self.counter.name, body_tokens(complete, self.counter))

    def write(self, drafts: Sequence[Draft], *, turn: str | None = None, changes: Changes = _no_changes) -> Appended:
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
            return store.append(session, branch, drafts, turn=turn, changes=changes(branch))
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
