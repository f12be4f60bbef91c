"""The interface of every store: sessions, their trees of messages, and what is derived from them."""

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from functools import partial
from itertools import count
from typing import Any

from shared_core.errors import StoreError, UnknownReferenceError
from shared_core.records import (
    MAIN,
    ROOT,
    After,
    Appended,
    Branch,
    Change,
    Criterion,
    Derived,
    Draft,
    Drop,
    Forgotten,
    KnownBranch,
    Line,
    LineRead,
    MainChanges,
    MainNews,
    Mark,
    Position,
    Put,
    Query,
    Record,
    Ref,
    RefKind,
    Restored,
    Says,
    Segment,
    SessionInfo,
    SessionKey,
    SessionState,
    State,
    Stretch,
    Summary,
    VectorRow,
    VectorRows,
    title_of,
)

PAGE = 1_000
"""Messages read at a time."""

ALL = 2**31
"""A limit that is never reached."""


class Store(ABC):
    """Keeps sessions, and is the only part that does I/O. Safe to use from several threads and processes.

    A session is an integer key, unique per (user_id, session_id). Nothing of one session is ever returned for another.
    For a key that no session has, reading finds nothing, adding a message or a branch raises `UnknownReferenceError`,
    and the rest does nothing. A limit of 0 finds nothing. Every method raises `StoreError` when the database cannot be
    read or written; if that may be different in a moment, `StoreUnavailableError`.

    To keep sessions in another database, implement `Rows` and extend `TreeStore`, which decides everything about the
    tree; a class that implements this interface directly has to decide the same.
    """

    def for_user(self, user_id: str | None) -> "Store":
        """Return the store as a user sees it, who need not see any other's sessions; None: nobody's sessions.

        It shares everything with this store, and closing one closes the other. By default, everybody sees all.
        """
        return self

    @property
    def connections(self) -> int:
        """How many calls the store serves at the same time. `AsyncInfiniteMemory` has as many threads for it."""
        return 4

    # Sessions

    @abstractmethod
    def session(self, user_id: str | None, session_id: str) -> int | None:
        """Return the session's key, or None if it has not been created; writes nothing."""

    @abstractmethod
    def create_session(self, user_id: str | None, session_id: str) -> int:
        """Return the session's key; create the session, with an empty branch `main`, if it does not exist."""

    @abstractmethod
    def sessions(self, *user_ids: str | None, after: int = 0, limit: int = ALL) -> list[SessionKey]:
        """Return all sessions, oldest first; with `user_ids`, only theirs. None is the user of nobody's sessions.

        Args:
            user_ids: whose sessions; none: everybody's.
            after: the key of the last one read, to read by pages: a newer session has a larger key.
            limit: the largest number of sessions.
        """

    def users(self, after: str | None = None, limit: int = ALL) -> list[str]:
        """Return at most `limit` users that have sessions, in an order of the store's; `after`: the last one read.

        By default, this reads all sessions.
        """
        named = sorted({one.user_id for one in self.sessions() if one.user_id is not None})
        return [user for user in named if after is None or user > after][: max(limit, 0)]

    def sessions_named(self, session_id: str) -> list[SessionKey]:
        """Return the sessions of this name, of all users, oldest first. By default, this reads all names."""
        return [one for one in self.sessions() if one.session_id == session_id]

    def sessions_with(self, user_id: str | None, message: str | int) -> list[SessionKey]:
        """Return the sessions of a user that hold a message, oldest first; None: of nobody.

        By default, this looks into each session of the user.

        Args:
            user_id: whose sessions.
            message: the id of the message, or the fingerprint (see `normal_form`).
        """
        own = self.sessions(user_id)
        if isinstance(message, int):
            return [one for one in own if self.find(one.key, Says([message], 1))]
        return [one for one in own if self.get(one.key, [message])]

    @abstractmethod
    def rename_session(self, session: int, session_id: str) -> None:
        """Give a session another name. It keeps its key and everything it holds.

        If the user has a session of this name that holds no messages, the two swap their names.

        Raises:
            DuplicateError: the user has a session of this name that holds messages.
            UnknownReferenceError: there is no such session.
        """

    def overview(self, *user_ids: str | None, limit: int = ALL) -> list[SessionInfo]:
        """Return what is to be said about the sessions that hold messages, the one added to last first.

        Of two that were added to at the same time, the newer session comes first. By default, this reads every message.

        Args:
            user_ids: as for `sessions`.
            limit: the largest number of sessions.
        """
        found = [info for one in reversed(self.sessions(*user_ids)) if (info := _info(self, one)) is not None]
        return sorted(found, key=lambda info: info.last, reverse=True)[: max(limit, 0)]

    @abstractmethod
    def state(self, session: int, branch: str | None = None) -> SessionState:
        """Return the session's state in one read; `head` is None if `branch` is None or does not exist."""

    def read(self, session: int, *queries: Query) -> Any:
        """Return the answers to several queries, in their order: of one moment, and in one round trip.

        By default, this answers one after the other, so that they may be of several moments. Ask for the state first:
        what is forgotten after that is told by the next state.

        Returns:
            For `State` the `SessionState`, for `Line` the `LineRead`, and for each criterion what `find` returns.

        Raises:
            UnknownReferenceError: there is no such position as a `Line` asks for.
        """
        return [self._answer(session, query) for query in queries]

    def _answer(self, session: int, query: Query) -> SessionState | LineRead | list[Record]:
        match query:
            case State():
                return self.state(session, query.branch)
            case Line():
                return self._line(session, query)
            case _:
                return self.find(session, query)

    def _line(self, session: int, line: Line) -> LineRead:
        head = self.state(session, line.head).head if isinstance(line.head, str) else line.head
        found = segments_to(head, lambda one: line.known[one] if one in line.known else self.segment(session, one))
        segments = {segment.segment: segment for segment in found}
        newest: list[Record] = []
        while head is not None and len(newest) < line.newest:
            newest += self.newest(session, head, line.newest - len(newest))
            head = segments[head.segment].parent if segments[head.segment].merged is None else None
        return LineRead([segment for number, segment in segments.items() if number not in line.known], newest)

    def main_changes(self, user_id: str | None, since: Mark | None = None) -> MainChanges:
        """Return the sessions of a user that may have changed since an answer of this method, in one read.

        Every session whose state on `main` differs from what that answer, or an earlier one, said is among them, also
        if what changed it was committed after a later change; and a session may be there that has not changed. A store
        may read everything each time: so does this default body.

        Args:
            user_id: whose sessions; None: nobody's.
            since: the `mark` of that answer, for the same user; None: all sessions are read whose branch `main` holds
                messages, oldest first.
        """
        states = [(one, self.state(one.key, MAIN)) for one in self.sessions(user_id)]
        return MainChanges([(one, state) for one, state in states if state.head not in (None, ROOT)], None, True)

    def main_news(self, wanted: Mapping[int, tuple[int, int]], space: str | None = None) -> dict[int, MainNews]:
        """Return what several sessions hold that is new, to search the branch `main` of all of them; one read.

        A caller that has the states of `main_changes` asks for as many messages as it takes at a time. By default, this
        reads session by session, the state first: of one that forgets something meanwhile, the next state tells.

        Args:
            wanted: session -> the number of the newest message that is known, and that of the last one to read.
            space: the vector space whose vectors are read along; None: none are.

        Returns:
            Session -> what is new there; without the sessions that have no branch `main`.
        """
        found: dict[int, MainNews] = {}
        for session, (after, upto) in wanted.items():
            state, records = self.read(session, State(MAIN), After(after, upto - after))
            if state.head is None:
                continue
            records = [record for record in records if record.seq <= upto]
            positions = [record.position for record in records]
            vectors = list(self.vectors(session, space, positions)) if space is not None and positions else []
            line = segments_to(state.head, partial(self.segment, session))
            found[session] = MainNews(state, line, self.spaces(session), records, vectors)
        return found

    @abstractmethod
    def stats(self, session: int) -> Mapping[str, int]:
        """Return what the session holds and what the whole database takes.

        Returns:
            Counts under "messages", "turns" (those that a user message opened), "branches", "segments", "vectors" and
            "forgotten"; "bytes" is the size of the database, all sessions included.
        """

    # The tree

    @abstractmethod
    def segment(self, session: int, segment: int) -> Segment:
        """Return one segment; UnknownReferenceError if there is none. `parent` never changes, `tip` may grow."""

    def segments(self, session: int, after: int, limit: int) -> list[Segment]:
        """Return at most `limit` segments with a larger number than `after`, in order of numbers.

        By default, this reads all segments one by one.
        """
        left = self.stats(session)["segments"]
        found: list[Segment] = []
        for number in count():
            if not left or len(found) >= limit:
                return found
            with suppress(UnknownReferenceError):
                segment = self.segment(session, number)
                left -= 1
                found += [segment] if number > after else []
        return found

    @abstractmethod
    def branches(self, session: int) -> list[Branch]:
        """Return all branches, in order of creation."""

    @abstractmethod
    def refs(self, session: int, kind: RefKind, name: str | None = None, limit: int = 1_000_000) -> list[Ref]:
        """Return the newest tags, stashes, moves or heads, the newest first; all, or only those of one name."""

    @abstractmethod
    def change(self, session: int, changes: Sequence[Change]) -> None:
        """Create, move, merge, rename or delete branches, keep or drop other refs; in order, or none at all.

        A branch may have any text as its name; branches and tags share their names. It may be created or moved to any
        position of the session, also a forgotten one: from the depth of the segment's parent (-1 without one) to its
        tip. Every change of a branch that exists leaves a "move" in `refs`, under the branch's name; a renamed branch
        takes its own along.

        Raises:
            DuplicateError: a name is taken.
            StaleHeadError: a branch is not where `Move.expect` or `Expect.head` says, or something was forgotten since
                `Expect.epoch`.
            UnknownReferenceError: no such branch, position or number.
        """

    # Messages

    @abstractmethod
    def append(
        self, session: int, branch: str, drafts: Sequence[Draft], *, at: Position | None = None,
        turn: str | None = None, changes: Sequence[Change] = (), known: KnownBranch | None = None,
        vectors: VectorRows | None = None, epoch: int | None = None,
    ) -> Appended:  # fmt: skip
        """Store messages at the tip of a branch, in order, in one transaction; durable on return.

        A message whose id is stored already with the same content (`content_of`) is left as it is. One whose id has
        been forgotten is not stored. The tip's segment grows if the branch stands at its tip, otherwise a new segment
        is opened there.

        A reply joins the turn of the message before it in `drafts` (`assign_turns`), also if that one is stored on the
        branch already: when a history is sent again with a new reply at its end, the reply joins the turn it answers,
        whatever was asked since. Known messages of other branches stay there, and no reply joins their turn.

        Args:
            session: the key.
            branch: an existing branch; or, with `at`, the name of a new one.
            drafts: messages with ids, all different.
            at: where to create the new branch, as `Create` does, in the same transaction. It is created even if no
                draft is new.
            turn: the turn that the first replies join; it has a message on the branch. By default the newest one.
            changes: what to change first, as `change` does, in the same transaction.
            known: what the caller knows of the branch. It spares a store that is a round trip away from reading, if it
                still is so, and changes nothing else.
            vectors: vectors of messages stored before, to be kept in the same transaction, as `keep` does.
            epoch: the session's when these messages were read; the vectors are kept if nothing was forgotten since.

        Raises:
            DuplicateError: an id is stored with other content or given twice, or the new branch's name is taken.
                Nothing is stored.
            UnknownReferenceError: no such branch or position, or no such turn on the branch. Nothing is stored.
            ValueError: a draft has no id or no time. Nothing is stored.
            StoreError: the store cannot hold a message; the error names its id. Nothing is stored.
        """

    @abstractmethod
    def restore(self, session: int, restored: Restored) -> None:
        """Write parts of a session exactly as they are, as when it is imported from another store.

        A branch that stood at the tip of a segment that grows stays where it was. No move is noted.

        Raises:
            DuplicateError: an id, a position, a number or a tag's name is taken. Nothing is written.
            UnknownReferenceError: there is no such session, segment or position. Nothing is written.
            StoreError: the store cannot hold a message; the error names its id. Nothing is written.
        """

    @abstractmethod
    def get(self, session: int, keys: Sequence[str] | Sequence[Position]) -> list[Record]:
        """Return the messages with these ids or at these positions, in the order asked; unknown keys are left out."""

    def at(self, wanted: Mapping[int, Sequence[Position]], epochs: Mapping[int, int]) -> dict[int, list[Record]] | None:
        """Return the messages at some positions of some sessions, if nothing was forgotten meanwhile; one read.

        By default, this reads session by session, and then the epochs: as they only grow, an epoch that still is the
        same afterwards was so when the messages were read.

        Args:
            wanted: session -> positions.
            epochs: session -> the epoch that it must still have.

        Returns:
            Session -> its messages, in the order asked, unknown positions left out; or None if a session has another
            epoch.
        """
        found = {session: self.get(session, positions) for session, positions in wanted.items()}
        if any(self.state(session).epoch != epoch for session, epoch in epochs.items()):
            return None
        return found

    def stored(self, session: int) -> list[tuple[Position, str]]:
        """Return the positions and ids of all messages of a session, in order of storing.

        Nothing else of them need be readable, so that a session with a damaged message can be forgotten. By default,
        this reads the messages.
        """
        found: list[tuple[Position, str]] = []
        seq = 0
        while records := self.find(session, After(seq, PAGE)):
            found += [(record.position, record.message.id or "") for record in records]
            seq = records[-1].seq
        return found

    def check_absent(self, session: int, ids: Collection[str]) -> None:
        """Raise StoreError if one of these messages, which `get` has not found, is stored after all.

        That shows a damaged index. It may read all of the session, and is for errors only. By default, it does nothing.
        """
        return

    def count(self, session: int, stretches: Collection[Stretch]) -> int:
        """Return how many messages these stretches hold. By default, this reads them all."""
        found = 0
        for stretch in stretches:
            upto = stretch.upto
            while upto >= stretch.start and (records := self.newest(session, Position(stretch.segment, upto), PAGE)):
                found += sum(record.position.depth >= stretch.start for record in records)
                upto = records[-1].position.depth - 1
        return found

    @abstractmethod
    def newest(self, session: int, upto: Position, limit: int) -> list[Record]:
        """Return at most `limit` messages of the segment `upto.segment` with depth <= `upto.depth`, newest first."""

    @abstractmethod
    def find(self, session: int, criterion: Criterion) -> list[Record]:
        """Return the messages that meet a criterion, of all branches, in order of storing."""

    @abstractmethod
    def covers(self, session: int, segments: Collection[int]) -> list[tuple[Position, Stretch]]:
        """Return which messages sum up what, where either of the two is in one of these segments.

        Returns:
            The position of a message, and a stretch that it sums up; by position, and of one message in its order.
        """

    # What is derived from messages

    @abstractmethod
    def keep(self, session: int, derived: Derived, epoch: int | None = None) -> bool:
        """Store what was made from messages.

        Args:
            session: the key.
            derived: vectors, a snapshot or a summary.
            epoch: the session's when the messages were read; None: store it in any case.

        Returns:
            False, and nothing is stored, if something has been forgotten since `epoch`, or there is no such session or
            position of a summary.
        """

    def keep_vectors(
        self, space: str, rows: Mapping[int, Sequence[VectorRow]], epochs: Mapping[int, int]
    ) -> frozenset[int]:
        """Store vectors of messages of several sessions in one write. By default, this calls `keep` for each session.

        Args:
            space: the name of the vector space.
            rows: the vectors, by session.
            epochs: the epoch of each of these sessions when its messages were read.

        Returns:
            The sessions whose vectors are stored: those that exist and have forgotten nothing since.
        """
        return frozenset(one for one, some in rows.items() if self.keep(one, VectorRows(space, some), epochs[one]))

    @abstractmethod
    def vectors(
        self, session: int, space: str, positions: Sequence[Position] | None = None, *,
        hashes: Collection[str] | None = None,
    ) -> Iterator[VectorRow]:  # fmt: skip
        """Iterate over vectors of a space; the store may be used meanwhile, and the iterator be left open.

        A vector whose row is damaged comes with an empty hash and no bytes, so that it can be made again.

        Args:
            session: the key.
            space: the name of the vector space.
            positions: only those of these messages, in this order; None: all, in the order of positions.
            hashes: instead, one vector for each of these hashes that was embedded before.
        """

    def known_vectors(self, session: int, space: str, hashes: Mapping[Position, str]) -> list[VectorRow]:
        """Return what need not be embedded again of some messages, in one read.

        That is a message's own vector if it was made from the same text, else one of another message with that text. By
        default, this calls `vectors` once or twice.

        Args:
            session: the key.
            space: the name of the vector space.
            hashes: position -> hash of the text to embed, as in `VectorRows`.
        """
        own = [row for row in self.vectors(session, space, list(hashes)) if hashes[row[0]] == row[1]]
        left = hashes.keys() - {position for position, _, _ in own}
        return own + list(self.vectors(session, space, hashes={hashes[one] for one in left})) if left else own

    @abstractmethod
    def spaces(self, session: int) -> list[str]:
        """Return the names of the vector spaces that hold vectors, the one written to last first."""

    @abstractmethod
    def snapshot(self, session: int, name: str) -> bytes | None:
        """Return the bytes of a snapshot, exactly as they were given to `keep`, or None."""

    @abstractmethod
    def summaries(self, session: int, upto: Position, limit: int) -> list[Summary]:
        """Return at most `limit` summaries that end in the segment `upto.segment` at a depth <= `upto.depth`.

        The deepest comes first, and of one position the one that was kept last.
        """

    # Forgetting

    @abstractmethod
    def forget(
        self, session: int, positions: Sequence[Position], *, stale: Sequence[Position] = (), branches: bool = False
    ) -> None:
        """Erase messages, their vectors, the summaries that cover them and all snapshots, and raise the epoch.

        All of it is one transaction. A summary covers every message that leads to its position.

        The ids are remembered, so that they are not stored again. Nothing else of the messages is, not even a hash: a
        person may say the same thing once more.

        Args:
            session: the key.
            positions: what to erase; empty positions are ignored.
            stale: messages that stay and lose their vectors, in all spaces, because these may stand for what goes, too.
            branches: also drop all branches, tags and other refs, and begin anew with an empty `main`, in a new
                segment without a parent, so that no position is used twice. Ids stay forgotten.
        """

    @abstractmethod
    def forgotten(self, session: int, after: str | None, limit: int) -> list[str]:
        """Return at most `limit` forgotten ids, in an order of the store's; `after`: the last one read.

        The order is the same for the same ids, in every database of this kind.
        """

    def forgotten_since(self, session: int, epoch: int) -> Forgotten | None:
        """Return what was forgotten since an epoch, so that an index can take it out instead of being built anew.

        A store remembers this of calls of `forget` that erased a few messages. By default, none does.

        Returns:
            The positions that `forget` was given since then, of all calls; None if they are not all known.
        """
        return None

    def are_forgotten(self, session: int, ids: Collection[str]) -> set[str]:
        """Return those of some ids that are forgotten. By default, this reads all forgotten ids."""
        found, wanted = set[str](), set(ids)
        page = self.forgotten(session, None, PAGE) if wanted else []
        while page:
            found |= wanted.intersection(page)
            page = self.forgotten(session, page[-1], PAGE)
        return found

    def watch(self, session: int) -> Callable[[], bool]:
        """Return a function that says whether something of the session has been forgotten since this call.

        Iterators call it before each message that they read earlier. By default, it reads the state of the session.
        """
        epoch = self.state(session).epoch
        return lambda: self.state(session).epoch != epoch

    @abstractmethod
    def scrub(self) -> str | None:
        """Remove the erased bytes from the files; return None, or why that has to be tried again later."""

    # The store itself

    @abstractmethod
    def transaction(self) -> AbstractContextManager[None]:
        """Enter a block in which everything that this thread does with the store happens at once.

        It happens when the block ends, or not at all if an exception leaves the block. Other writers wait, and so do
        readers that share this object. A method that raises in the block has done nothing, and the block may go on.
        """

    def identity(self) -> str | None:
        """Return a text that all objects on this database share, and no others; by default None: it is not known."""
        return None

    def backup(self, path: str | os.PathLike[str], progress: Callable[[int, int], None] | None = None) -> None:
        """Write a copy of the whole store, as it is at this moment, to a new file.

        Raises:
            StoreError: the file exists or cannot be written; or, by default, the store has no files to copy.
        """
        raise StoreError(f"a {type(self).__name__} makes no backups; use those of its database, or export()")

    def faults(self) -> list[str]:
        """Return in words what the database itself finds wrong with its files; by default nothing."""
        return []

    def session_keys(self) -> list[int]:
        """Return the keys that segments and messages are stored under, in order.

        So a session is found whose name is lost. By default, these are the keys of `sessions`.
        """
        return [session.key for session in self.sessions()]

    @abstractmethod
    def close(self) -> None:
        """Release what is held; closing twice is fine."""


def give_title(store: Store, session: int, title: str | None) -> None:
    """Replace the title of a session; None: take it away."""
    old = [Drop(ref.number) for ref in store.refs(session, "title")]
    store.change(session, [*old, *([Put("title", "title", ROOT, note=title)] if title else [])])


def segments_to(head: Position | None, segment_of: Callable[[int], Segment]) -> list[Segment]:
    """Return the segments on the line to a position, second parents included; none without a position."""
    segments: dict[int, Segment] = {}
    waiting = [head]
    while waiting:
        end = waiting.pop()
        if end is not None and end.segment not in segments:
            segment = segments[end.segment] = segment_of(end.segment)
            waiting += [segment.merged, segment.parent]
    return list(segments.values())


def _info(store: Store, session: SessionKey) -> SessionInfo | None:
    first, last, count, title, seq = None, None, 0, None, 0
    asked = False
    while records := store.find(session.key, After(seq, PAGE)):
        seq, count = records[-1].seq, count + len(records)
        first, last = first or records[0].message.created_at, records[-1].message.created_at
        question = None if asked else next((r.message for r in records if r.message.role == "user"), None)
        if question is not None:
            asked, title = True, title_of(question.content)
    if first is None or last is None:
        return None
    branches, given = len(store.branches(session.key)), store.refs(session.key, "title", limit=1)
    title = given[0].note if given else title
    return SessionInfo(session.session_id, session.user_id, count, branches, first, last, title)
