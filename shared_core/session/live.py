"""LiveSession: one session as one memory object sees it, with the path that is checked out and its newest messages."""

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from shared_core.errors import UnknownReferenceError
from shared_core.messages import Message
from shared_core.plugins.base import TokenCounter
from shared_core.queries import After, InTurns, Line, LineRead, Pinned, State
from shared_core.records import MAIN, ROOT, Appended, KnownBranch, Newest, Position, Record, Segment, SessionState
from shared_core.session.paths import ROOT_PATH, Head, Path, Span, walk
from shared_core.session.turns import Entry, Turn, group_turns, in_front, is_prompt, newest_prompt
from shared_core.store import Store
from shared_core.tokens import body_tokens, message_tokens

PAGE = 64
"""Messages read at a time, backwards from the head."""

TAIL_KEPT = 4_096
"""How many of the newest messages stay in memory, at least."""

RECENT_KEPT = 4_096
"""How many messages that recall has read stay in memory. Those read first are dropped first."""

NEWS = 256
"""How many new messages are read with the state, at most. If there are more, each part reads its own, in pages."""

NEWS_KEPT = 1_024
"""How many of these stay in memory for the index, which reads them when something is recalled."""

MEDIA_KEPT = 1_000_000
"""How many characters of images and the like an object may hold that nobody uses: a pool keeps 64 such objects."""


def _characters(data: Any) -> int:
    """Return how long the texts in JSON data are together."""
    if isinstance(data, str):
        return len(data)
    inner = data.values() if isinstance(data, Mapping) else data if isinstance(data, list) else ()
    return sum(map(_characters, inner))


class OutdatedError(Exception):
    """Something was forgotten since the messages were found, so that what was found must be looked for again."""


class News:
    """The messages stored since an object first looked at a session, of all branches, in order of storing.

    Attributes:
        upto: the number of the newest message when it last looked; None: it has not looked yet.
        staying: messages of every prompt, of all branches, by position; None: not read yet, or not all known any more.
    """

    def __init__(self) -> None:
        self.upto: int | None = None
        self.staying: dict[Position, Record] | None = None
        self._epoch = -1
        self._after = 0
        self._records: list[Record] = []

    def take(self, state: SessionState, records: Sequence[Record]) -> None:
        """Add the messages read after `upto`; begin anew if they are not all, or if something was forgotten."""
        newest = records[-1].seq if records else self.upto
        if state.epoch != self._epoch or newest != state.last_seq:
            self._after, self._records, self.staying = state.last_seq, [], None
        else:
            self._records += records
            if self.staying is not None:
                self.staying |= {record.position: record for record in records if record.message.stays}
            if len(self._records) > NEWS_KEPT:
                self._after, self._records = self._records[-NEWS - 1].seq, self._records[-NEWS:]
        self.upto, self._epoch = state.last_seq, state.epoch

    def after(self, seq: int, epoch: int) -> list[Record]:
        """Return the messages with larger numbers, of an epoch; none if not all of them are known."""
        if seq < self._after or epoch != self._epoch:
            return []
        return self._records[bisect_right(self._records, seq, key=lambda record: record.seq) :]


class Sizer:
    """Adds token counts to stored messages. A text is counted only if the store has no count of this counter.

    Args:
        counter: the token counter.
    """

    def __init__(self, counter: TokenCounter) -> None:
        self.counter = counter

    def tokens(self, record: Record) -> int:
        """Return the tokens a stored message takes when it is sent, without grounding."""
        known = record.tokens is not None and record.counter is not None and record.counter == self.counter.name
        body = record.tokens if known and record.tokens is not None else body_tokens(record.message, self.counter)
        return body + self.counter.overhead

    def size(self, message: Message) -> int:
        """Return the tokens a message takes when it is sent, as it is now."""
        return message_tokens(message, self.counter)

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
        epoch: the session's epoch then; -1: there was none.
        rows_read: how many messages it has read from the store.
        rows_cached: how many messages that recall needed were in memory.
    """

    def __init__(self, store: Store, user_id: str | None, session_id: str, sizer: Sizer) -> None:
        self.store = store
        self.user_id = user_id
        self.session_id = session_id
        self.sizer = sizer
        self.head = Head(MAIN)
        self.news = News()
        self.rows_read = self.rows_cached = 0
        self._key: int | None = None
        self._segments: dict[int, Segment] = {}
        self.reset()

    def reset(self) -> None:
        """Drop what was read, because another path is checked out, or because something was forgotten."""
        self.epoch = -1
        self._state: SessionState | None = None
        self._appended: KnownBranch | None = None
        self.path = ROOT_PATH
        self._tail: list[Entry] = []
        self._cursor: list[Span] = []
        self._stays: list[Entry] = []
        self.replaced = 0
        self._recent: dict[Position, Record] = {}
        self._ours: set[Position] = set()
        self._openers: dict[str, Position | None] = {}

    @property
    def key(self) -> int | None:
        """The session's key in the store. None: nothing is stored yet."""
        if self._key is None:
            self._key = self.store.session(self.user_id, self.session_id)
        return self._key

    @property
    def is_heavy(self) -> bool:
        """Whether the newest messages hold more images than should stay in memory while nobody uses this object."""
        payloads = (one.message.payload for one in self._tail if one.message.media_tokens)
        return sum(_characters(payload.data) for payload in payloads if payload is not None) > MEDIA_KEPT

    def is_renamed(self) -> bool:
        """Return whether the session in use has another name by now, which another object gave it."""
        return self._key is not None and self.store.session(self.user_id, self.session_id) != self._key

    def rename(self, session_id: str) -> None:
        """Give the session another name; see `Store.rename_session`."""
        if self.key is None:
            raise UnknownReferenceError(f"nothing is stored in session {self.session_id!r} yet: it cannot be renamed")
        self.store.rename_session(self.key, session_id)
        self.session_id = session_id

    def create(self) -> int:
        """Return the session's key. The session is created if it does not exist."""
        if self._key is None:
            self._key = self.store.create_session(self.user_id, self.session_id)
        return self._key

    def standing_at(self, position: Position) -> "LiveSession":
        """Return this session as it was at a position, for reading only."""
        past = LiveSession(self.store, self.user_id, self.session_id, self.sizer)
        past._key = self.key
        past.go(Head(None, position))
        return past

    def go(self, head: Head) -> None:
        """Check out another branch or position."""
        self.head = head
        self.reset()

    def sync(self, ahead: int = 0) -> SessionState:
        """Catch up with the store and return the session's state.

        Args:
            ahead: how many messages at the end of the path will be needed; they are read along if its end is not known.
        """
        if self.key is None:
            return SessionState(ROOT, 0, 0)
        state, newest = self._look(self.key, ahead)
        at = state.head if self.head.branch is not None else self.head.at
        if at is None:
            names = [branch.name for branch in self.store.branches(self.key)]
            raise UnknownReferenceError(
                f"the branch {self.head.branch!r} does not exist any more; check out one of {names}", candidates=names
            )
        if state.epoch != self.epoch:
            self.reset()
            self.epoch = state.epoch
            self._move(at, newest)
        elif at != self.path.head:
            # More new messages than stay in memory are not read here, but in pages when they are needed.
            grows = at.segment == self.path.head.segment and 0 < at.depth - self.path.head.depth <= TAIL_KEPT
            self._grow(at) if grows and len(self._tail) < 2 * TAIL_KEPT else self._move(at)
        self._state, self._appended = state, None
        return state

    @property
    def known(self) -> KnownBranch | None:
        """What this object knows of the branch that is checked out; None: not enough for `Store.append`."""
        state = self._state
        if self._appended is not None or state is None or self.head.branch is None or not self.path.plain:
            return self._appended
        asked = next((entry for entry in reversed(self._tail) if entry.message.role == "user"), None)
        if asked is None:
            return None if self._cursor else KnownBranch(state, Newest(None, -1))
        return KnownBranch(state, Newest(asked.message.turn_id, asked.turn_no))

    def note_appended(self, appended: Appended) -> None:
        """Note what was stored on the branch that is checked out. The next `sync` reads it, with what else is new."""
        self._state, self._appended = None, appended.known
        self._ours |= {record.position for record in appended.records if record.message.id in appended.added}
        if len(self._ours) > RECENT_KEPT:
            self.share()

    def is_ours(self, session: int, positions: Sequence[Position]) -> bool:
        """Return whether this object has stored some messages, and nobody else has added to the session since."""
        return session == self._key and self._ours.issuperset(positions)

    def share(self) -> None:
        """Take no message for one that only this object knows."""
        self._ours.clear()

    def _look(self, key: int, ahead: int) -> tuple[SessionState, list[Record]]:
        """Return the session's state, and the newest messages on the path, the newest first, if they are needed."""
        # What is stored when this object first looks is not new to it: it is read from the end backwards.
        after, limit = (0, 0) if self.news.upto is None else (self.news.upto, NEWS)
        state: SessionState
        line: LineRead
        queries = State(self.head.branch), After(after, limit)
        head = self.head.branch if self.head.branch is not None else self.head.at
        if self.epoch >= 0 or not ahead or head is None:
            state, records = self.store.read(key, *queries)
            self._take(state, records)
            return state, []
        state, records, staying, line = self.store.read(key, *queries, Pinned(), Line(head, ahead, self._segments))
        self._take(state, records)
        self.news.staying = {record.position: record for record in staying}
        self._segments |= {segment.segment: segment for segment in line.segments}
        self.rows_read += len(line.newest)
        return state, line.newest

    def _take(self, state: SessionState, records: Sequence[Record]) -> None:
        """Take the messages that are new to this object."""
        known = self.news.upto
        self.rows_read += len(records)
        self.news.take(state, records)
        ours = self._ours.intersection(record.position for record in records)
        if known is not None and state.last_seq - known > len(ours):
            self.share()  # others have added some
        self._remember(records)

    def segment(self, segment: int) -> Segment:
        """Return a segment. Its parent never changes, but its tip may be outdated."""
        assert self.key is not None
        if segment not in self._segments:
            self._segments[segment] = self.store.segment(self.key, segment)
        return self._segments[segment]

    def path_to(self, head: Position) -> Path:
        """Return the path to a position of this session."""
        return walk(head, self.segment) if self.key is not None else self.path

    def _move(self, head: Position, newest: Sequence[Record] = ()) -> None:
        """Take another path; `newest` are its newest messages, the newest first, unless they are read when needed."""
        self.path = self.path_to(head)
        self._stays, self.replaced = [], 0
        self._keep_staying([record for record in self._staying() if self.path.covers(record.position)])
        self._tail = self.entries(newest[::-1])
        self._cursor = list(self.path.spans)
        if newest:
            oldest = newest[-1].position
            rest = self.path.span_of(oldest)._replace(upto=oldest.depth - 1)
            self._cursor = [span for span in self.path.spans if span.last < rest.start + rest.shift]
            self._cursor += [rest] if rest.start <= rest.upto else []

    def _staying(self) -> list[Record]:
        """Return the messages that are part of every prompt, of all branches, in order of storing."""
        if self.key is None:
            return []
        if self.news.staying is None:
            self.news.staying = {record.position: record for record in self.store.find(self.key, Pinned())}
        return sorted(self.news.staying.values(), key=lambda record: record.seq)

    def _keep_staying(self, records: Sequence[Record]) -> None:
        """Note messages of every prompt that are new on the path. A system prompt replaces those before it."""
        stays = sorted([*self._stays, *self.entries(records)], key=lambda entry: entry.order)
        current = self._newest_system_prompt([entry for entry in stays if is_prompt(entry.message)], self.path)
        ids = {entry.message.id for entry in current}
        self._stays = [entry for entry in stays if not is_prompt(entry.message) or entry.message.id in ids]
        self.replaced += len(stays) - len(self._stays)

    def _newest_system_prompt(self, prompts: Sequence[Entry], path: Path) -> list[Entry]:
        """Return the current system prompt of a path: the newest of its own, else the newest of what was merged in."""
        if path.plain or len(prompts) < 2:
            return newest_prompt(prompts)
        own = walk(path.head, lambda segment: self.segment(segment)._replace(merged=None))
        return newest_prompt([entry for entry in prompts if own.covers(path.at(entry.order))] or prompts)

    def system_prompt(self) -> list[Entry]:
        """Return the system prompt of the path; empty if there is none."""
        return [entry for entry in self._stays if is_prompt(entry.message)]

    def system_prompt_of(self, path: Path) -> list[Entry]:
        """Return the system prompt of another path of this session."""
        records = [record for record in self._staying() if path.covers(record.position)]
        prompts = [entry for entry in self.entries(records, path) if is_prompt(entry.message)]
        return self._newest_system_prompt(sorted(prompts, key=lambda entry: entry.order), path)

    def _grow(self, head: Position) -> None:
        """Read the messages that were added at the head since the last call."""
        assert self.key is not None
        depths = range(self.path.head.depth + 1, head.depth + 1)
        new = [self._recent.get(Position(head.segment, depth)) for depth in depths]
        records = [record for record in new if record is not None]
        if len(records) < len(depths):  # a branch may also be moved to messages of another one, which are not new
            newest = self.store.newest(self.key, head, len(depths))[::-1]
            self.rows_read += len(newest)
            records = [record for record in newest if record.position.depth in depths]
        path = Path((*self.path.spans[:-1], self.path.spans[-1]._replace(upto=head.depth)))
        entries = self.entries(records, path)  # which may fail; nothing has changed then
        self.path = path
        self._tail += entries
        staying = [record for record in records if record.message.stays]
        if staying:
            self._keep_staying(staying)

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
            found = {r.message.id or "": r.position for r in self.store.get(self.key, sorted(turns))}
            self._openers |= dict.fromkeys(turns) | found

    def stays_beside(self, turn_id: str | None) -> list[Entry]:
        """Return the messages of every prompt: the system prompt, and what is pinned, with its whole turn.

        Args:
            turn_id: the turn that is being answered, which is left out.
        """
        pinned = dict.fromkeys(entry.message.turn_id or "" for entry in self._stays if entry.message.role != "system")
        system = [entry for entry in self._stays if entry.message.role == "system" and entry.message.pinned]
        stays = [*in_front(self.system_prompt()), *system]
        turns = self._whole_turns([one for one in pinned if one != turn_id])
        for pinned_turn in pinned:
            stays += turns[pinned_turn].whole(self.sizer.size).entries if pinned_turn in turns else ()
        return stays

    def _whole_turns(self, turn_ids: Sequence[str]) -> dict[str, Turn]:
        """Return turn -> its messages that are on the path; all of them in one read."""
        if self.key is None or not turn_ids:
            return {}
        found = self.store.find(self.key, InTurns(turn_ids))
        entries = self.entries([record for record in found if self.path.covers(record.position)])
        return {turn.turn_id: turn for turn in group_turns(sorted(entries, key=lambda entry: entry.order))}

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
        span = self._cursor[-1]
        limit = min(PAGE, span.upto - span.start + 1)
        records = self.store.newest(self.key, Position(span.segment, span.upto), limit) if limit > 0 else []
        self.rows_read += len(records)
        # If messages of the span were forgotten, the store returns older ones instead, which are not on this span.
        records = [record for record in records if record.position.depth >= span.start]
        entries = self.entries(records[::-1])
        self._cursor.pop()  # only now, so that a page that cannot be read is tried again and not left out
        if len(records) == limit and limit and records[-1].position.depth > span.start:
            self._cursor.append(span._replace(upto=records[-1].position.depth - 1))
        return entries

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
        """Return the messages at these positions, in the order asked."""
        return self.records_of({session: positions})[session]

    def records_of(self, wanted: Mapping[int, Sequence[Position]], epoch: int | None = None) -> dict[int, list[Record]]:
        """Return the messages at some positions of some sessions, in the order asked, with one read of the store.

        Messages never change, so recently read messages of this session stay in memory until some are forgotten.

        Args:
            wanted: session -> positions.
            epoch: the epoch that this session must still have; None if that does not matter.

        Raises:
            OutdatedError: it has another one.
        """
        recent = self._recent
        missing = {
            session: [one for one in positions if session != self._key or one not in recent]
            for session, positions in wanted.items()
        }
        read = self._read({session: positions for session, positions in missing.items() if positions}, epoch)
        found = {session: read.get(session, []) for session in wanted}
        new = sum(map(len, read.values()))
        self.rows_read += new
        self.rows_cached += sum(map(len, wanted.values())) - new
        if self._key is not None and self._key in wanted:
            self._remember(found[self._key])
            found[self._key] = [recent[one] for one in wanted[self._key] if one in recent]
        return found

    def _remember(self, records: Sequence[Record]) -> None:
        self._recent |= {record.position: record for record in records}
        while len(self._recent) > RECENT_KEPT:
            self._recent.pop(next(iter(self._recent)))

    def _read(self, missing: Mapping[int, Sequence[Position]], epoch: int | None) -> Mapping[int, list[Record]]:
        epochs = {} if epoch is None or self._key is None else {self._key: epoch}
        found = self.store.at(missing, epochs) if missing or epochs else {}
        if found is None:
            raise OutdatedError
        return found

    def stored_last(self, limit: int) -> list[Record]:
        """Return the messages that were stored last, of all branches, at most `limit`, in the order of storing."""
        if self.key is None:
            return []
        newest, back = self.store.state(self.key).last_seq, limit
        while True:
            records = self.store.find(self.key, After(newest - back, back))
            if len(records) >= limit or back >= newest:
                return list(records[max(0, len(records) - limit) :])
            back *= 2  # some numbers belong to forgotten messages
