"""The interface of every store: sessions, their trees of messages, and what is derived from them."""

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import Any, TypeVar

from typing_extensions import TypeIs

from shared_core.errors import StoreError, UnknownReferenceError
from shared_core.queries import (
    After,
    AreForgotten,
    At,
    Back,
    Branches,
    Count,
    Counts,
    Covers,
    Criterion,
    ForgottenIds,
    ForgottenSince,
    Ids,
    KnownVectors,
    Query,
    Refs,
    Says,
    Segments,
    SnapshotOf,
    Spaces,
    State,
    Stored,
    Summaries,
    Vectors,
)
from shared_core.records import (
    ALL,
    MAIN,
    ROOT,
    Appended,
    Branch,
    Change,
    Derived,
    Draft,
    Drop,
    Forgotten,
    KnownBranch,
    MainChanges,
    MainNews,
    Mark,
    Position,
    Put,
    Record,
    Ref,
    RefKind,
    Restored,
    Segment,
    SessionInfo,
    SessionKey,
    SessionState,
    Stretch,
    Summary,
    VectorRow,
    VectorRows,
    title_of,
)

PAGE = 1_000
"""Messages read at a time."""

Answer = TypeVar("Answer")


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
    def read(self, session: int, *queries: Query) -> list[Any]:
        """Return the answers to several queries, in their order: of one moment, and in one round trip.

        Each query says what its answer is, and most have a method of this class that asks for it alone. What follows
        from a message that is missing may take another round trip.

        Raises:
            UnknownReferenceError: there is no such position as a `Line` asks for.
        """

    def _one(self, session: int, query: Query) -> Answer:  # type: ignore[type-var]  # the caller says which
        answer: Answer = self.read(session, query)[0]
        return answer

    def state(self, session: int, branch: str | None = None) -> SessionState:
        """Return the session's state; `head` is None if `branch` is None or does not exist."""
        return self._one(session, State(branch))

    def stats(self, session: int) -> Mapping[str, int]:
        """Return the `Counts` of what the session holds, and "bytes": the size of the whole database."""
        counts: dict[str, int] = self._one(session, Counts())
        return counts | {"bytes": self.size()}

    @abstractmethod
    def size(self) -> int:
        """Return the bytes that the whole database takes."""

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

    # The tree

    def segment(self, session: int, segment: int) -> Segment:
        """Return one segment; UnknownReferenceError if there is none. `parent` never changes, `tip` may grow."""
        for found in self.segments(session, segment - 1, 1):
            if found.segment == segment:
                return found
        raise UnknownReferenceError(f"there is no segment {segment!r} in session {session!r}")

    def segments(self, session: int, after: int, limit: int) -> list[Segment]:
        """Ask for `Segments`."""
        return self._one(session, Segments(after, limit))

    def branches(self, session: int) -> list[Branch]:
        """Ask for `Branches`."""
        return self._one(session, Branches())

    def refs(self, session: int, kind: RefKind, name: str | None = None, limit: int = ALL) -> list[Ref]:
        """Ask for `Refs`."""
        return self._one(session, Refs(kind, name, limit))

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

        A message whose id is stored on the branch already, with the same content (`content_of`), is left as it is. One
        whose id has been forgotten is not stored. The tip's segment grows if the branch stands at its tip, otherwise a
        new segment is opened there.

        A reply joins the turn of the message before it in `drafts` (`assign_turns`), also if that one is stored
        already: when a history is sent again with a new reply at its end, the reply joins the turn it answers, whatever
        was asked since.

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
            DuplicateError: an id is stored with other content, stored but not on the branch, or given twice; or the new
                branch's name is taken. Nothing is stored.
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

    def get(self, session: int, keys: Sequence[str] | Sequence[Position]) -> list[Record]:
        """Ask for the messages with these `Ids`, or `At` these positions."""
        return self._one(session, At(keys) if _are_positions(keys) else Ids(keys))

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
        """Ask for what is `Stored`."""
        return self._one(session, Stored())

    def check_absent(self, session: int, ids: Collection[str]) -> None:
        """Raise StoreError if one of these messages, which `get` has not found, is stored after all.

        That shows a damaged index. It may read all of the session, and is for errors only. By default, it does nothing.
        """
        return

    def count(self, session: int, stretches: Collection[Stretch]) -> int:
        """Ask for the `Count` of messages in some stretches."""
        return self._one(session, Count(stretches))

    def newest(self, session: int, upto: Position, limit: int) -> list[Record]:
        """Ask for the messages `Back` from a position."""
        return self._one(session, Back(upto, limit))

    def find(self, session: int, criterion: Criterion) -> list[Record]:
        """Return the messages that meet a criterion, of all branches, in order of storing."""
        return self._one(session, criterion)

    def covers(self, session: int, segments: Collection[int]) -> list[tuple[Position, Stretch]]:
        """Ask for `Covers`."""
        return self._one(session, Covers(segments))

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

    def vectors(
        self, session: int, space: str, positions: Sequence[Position] | None = None
    ) -> Iterator[VectorRow]:  # fmt: skip
        """Iterate over `Vectors` of a space; the store may be used meanwhile, and the iterator be left open."""
        if positions is None:
            return self._all_vectors(session, space)
        found: list[VectorRow] = self._one(session, Vectors(space, positions))
        return iter(found)

    def _all_vectors(self, session: int, space: str) -> Iterator[VectorRow]:
        last = Position(-1, -1)
        page: list[VectorRow]
        while page := self._one(session, Vectors(space, None, last, PAGE)):
            yield from page
            last = page[-1][0]

    def known_vectors(self, session: int, space: str, hashes: Mapping[Position, str]) -> list[VectorRow]:
        """Ask for `KnownVectors`."""
        return self._one(session, KnownVectors(space, hashes))

    def spaces(self, session: int) -> list[str]:
        """Ask for the `Spaces`."""
        return self._one(session, Spaces())

    def snapshot(self, session: int, name: str) -> bytes | None:
        """Ask for the bytes of a snapshot, `SnapshotOf`."""
        return self._one(session, SnapshotOf(name))

    def summaries(self, session: int, upto: Position, limit: int) -> list[Summary]:
        """Ask for `Summaries`."""
        return self._one(session, Summaries(upto, limit))

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

    def forgotten(self, session: int, after: str | None, limit: int) -> list[str]:
        """Ask for `ForgottenIds`."""
        return self._one(session, ForgottenIds(after, limit))

    def forgotten_since(self, session: int, epoch: int) -> Forgotten | None:
        """Return what was forgotten since an epoch, so that an index can take it out instead of being built anew."""
        return self._one(session, ForgottenSince(epoch))

    def are_forgotten(self, session: int, ids: Collection[str]) -> set[str]:
        """Return those of some ids that are forgotten."""
        return self._one(session, AreForgotten(ids))

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


def _are_positions(keys: Sequence[str] | Sequence[Position]) -> TypeIs[Sequence[Position]]:
    return bool(keys) and not isinstance(keys[0], str)


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
