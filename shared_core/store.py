"""The interface of every store: sessions, their trees of messages, and what is derived from them."""

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager

from shared_core.records import (
    Appended,
    Branch,
    Change,
    Draft,
    Position,
    Record,
    Ref,
    RefKind,
    Restored,
    Segment,
    SessionState,
    Stretch,
    Summary,
)

__all__ = ["Store"]


class Store(ABC):
    """Keeps sessions, and is the only part that does I/O. Safe to use from several threads and processes.

    A session is an integer key, unique per (user_id, session_id). Nothing of one session is ever returned for another.
    For a key that no session has, reading finds nothing, adding a message or a branch raises `UnknownReferenceError`,
    and the rest does nothing. A limit of 0 finds nothing. Every method raises `StoreError` when the database cannot be
    read or written.
    """

    @abstractmethod
    def session(self, user_id: str | None, session_id: str) -> int | None:
        """Return the session's key, or None if it has not been created; writes nothing."""

    @abstractmethod
    def create_session(self, user_id: str | None, session_id: str) -> int:
        """Return the session's key; create the session, with an empty branch `main`, if it does not exist."""

    @abstractmethod
    def sessions(self, user_id: str | None) -> Mapping[str, int]:
        """Return session_id -> key of all of one user's sessions, oldest first."""

    @abstractmethod
    def users(self) -> list[str | None]:
        """Return whose sessions there are, each once, in the order of their oldest sessions; None: nobody's."""

    @abstractmethod
    def transaction(self) -> AbstractContextManager[None]:
        """Enter a block in which all that this thread does with the store happens at once.

        It happens when the block ends, or not at all if an exception leaves the block. Others wait to write, those that
        share this object also to read. A method that raises in the block has done nothing, and the block may go on.
        """

    @abstractmethod
    def state(self, session: int, branch: str | None = None) -> SessionState:
        """Return the session's state in one read; `head` is None if `branch` is None or does not exist."""

    @abstractmethod
    def append(
        self, session: int, branch: str, drafts: Sequence[Draft], *, at: Position | None = None,
        turn: str | None = None, changes: Sequence[Change] = (),
    ) -> Appended:  # fmt: skip
        """Store messages at the tip of a branch, in order, in one transaction; durable on return.

        A message whose id is stored already with the same content (`content_of`) is left as it is. One whose id has
        been forgotten is not stored. The tip's segment is extended if the branch stands at its tip, otherwise a new
        segment is opened there.

        A reply joins the turn of the message before it in `drafts` (`assign_turns`), also if that one is stored on the
        branch already: of a history that is sent again with a new reply at its end, the reply joins the turn it
        answers, whatever was asked since. Known messages of other branches stay there, and lend nobody their turn.

        Args:
            session: the key.
            branch: an existing branch; or, with `at`, the name of a new one.
            drafts: messages with ids, all different.
            at: where to create the new branch, as in `create_branch`, in the same transaction. If no draft is new, it
                is created all the same.
            turn: the turn that the first replies join; it has a message on the branch. By default the newest one.
            changes: what is to be changed before, as by `change`, in the same transaction.

        Raises:
            DuplicateError: an id is stored with other content or given twice, or the new branch's name is taken.
                Nothing is stored.
            UnknownReferenceError: no such branch or place, or no such turn on the branch. Nothing is stored.
            ValueError: a draft has no id or no time. Nothing is stored.
            StoreError: the store cannot hold a message; the error names its id. Nothing is stored.
        """

    @abstractmethod
    def restore(self, session: int, restored: Restored) -> None:
        """Write parts of a session just as they are, as when it is brought from another store.

        A branch that stood at the tip of a segment that grows stays where it was. No move is noted.

        Raises:
            DuplicateError: an id, a place, a number or a tag's name is taken. Nothing is written.
            UnknownReferenceError: there is no such session, segment or place. Nothing is written.
            StoreError: the store cannot hold a message; the error names its id. Nothing is written.
        """

    @abstractmethod
    def segment(self, session: int, segment: int) -> Segment:
        """Return one segment; UnknownReferenceError if there is none. `parent` never changes, `tip` may grow."""

    @abstractmethod
    def branches(self, session: int) -> list[Branch]:
        """Return all branches, in order of creation."""

    @abstractmethod
    def create_branch(self, session: int, name: str, at: Position) -> None:
        """Create a branch.

        Args:
            session: the key.
            name: any text.
            at: a place of the session, also a forgotten one: from the depth of the segment's parent (-1 without one) to
                its tip.

        Raises:
            DuplicateError: the name is taken.
            UnknownReferenceError: the session has no such place.
        """

    @abstractmethod
    def change(self, session: int, changes: Sequence[Change]) -> None:
        """Move, merge, rename or delete branches, keep or drop tags and stashes; one after the other, or none at all.

        Branches and tags share their names. Every change of a branch leaves a "move" in `refs`, under the branch's
        name; a renamed branch takes its own along.

        Raises:
            DuplicateError: a name is taken.
            StaleHeadError: a branch is not where `Move.expect` or `Expect.head` says, or something was forgotten since
                `Expect.epoch`.
            UnknownReferenceError: no such branch, place or number.
        """

    @abstractmethod
    def refs(self, session: int, kind: RefKind, name: str | None = None, limit: int = 1_000_000) -> list[Ref]:
        """Return the newest tags, stashes or moves, the newest first; all, or only those of one name."""

    @abstractmethod
    def get(self, session: int, ids: Sequence[str]) -> list[Record]:
        """Return the messages with these ids, in the order asked; unknown ids are left out."""

    @abstractmethod
    def ids_like(self, session: int, prefix: str, limit: int) -> list[str]:
        """Return at most `limit` ids that begin with `prefix`, in order of storing; wildcards mean themselves."""

    @abstractmethod
    def at(self, session: int, positions: Sequence[Position]) -> list[Record]:
        """Return the messages at these positions, in the order asked; empty places are left out."""

    @abstractmethod
    def newest(self, session: int, upto: Position, limit: int) -> list[Record]:
        """Return at most `limit` messages of the segment `upto.segment` with depth <= `upto.depth`, newest first."""

    @abstractmethod
    def after(self, session: int, seq: int, limit: int) -> list[Record]:
        """Return at most `limit` messages, of all branches, stored after number `seq`, in order of storing."""

    @abstractmethod
    def turn(self, session: int, turn_id: str) -> list[Record]:
        """Return the messages of one turn, of all branches, in order of storing."""

    @abstractmethod
    def made_from(self, session: int, positions: Sequence[Position]) -> list[Record]:
        """Return the messages that are copies of some at these positions, or sum any of them up, in order of storing.

        A copy is known by the id that it was picked from. Copies of copies are not looked for.
        """

    @abstractmethod
    def covers(self, session: int, segments: Collection[int]) -> list[tuple[Position, Stretch]]:
        """Return what is summed up of some segments, with the position of the message that does."""

    @abstractmethod
    def covered(self, session: int, position: Position) -> list[Stretch]:
        """Return what the message at a position sums up, in order."""

    @abstractmethod
    def pinned(self, session: int) -> list[Record]:
        """Return system and pinned messages of all branches, in order of storing."""

    @abstractmethod
    def put_vectors(self, session: int, space: str, rows: Iterable[tuple[Position, str, bytes]]) -> None:
        """Keep (position, hash of the embedded text, vector) in a vector space; a vector already there is replaced.

        A position whose message has been forgotten meanwhile is left out.
        """

    @abstractmethod
    def vectors(self, session: int, space: str, positions: Sequence[Position]) -> dict[Position, tuple[str, bytes]]:
        """Return (hash, vector) of those of `positions` that have one."""

    @abstractmethod
    def all_vectors(self, session: int, space: str) -> Iterator[tuple[Position, str, bytes]]:
        """Iterate over (position, hash, vector) of a vector space, in the order of positions."""

    @abstractmethod
    def vectors_of(self, session: int, space: str, hashes: Collection[str]) -> dict[str, bytes]:
        """Return hash -> vector for those of `hashes` that were embedded before."""

    @abstractmethod
    def spaces(self, session: int) -> list[str]:
        """Return the names of the vector spaces that hold vectors, the one written to last first."""

    @abstractmethod
    def put_snapshot(self, session: int, name: str, epoch: int, data: bytes) -> bool:
        """Keep a snapshot of a derived index; False, and nothing is kept, if the session's epoch is not `epoch`."""

    @abstractmethod
    def snapshot(self, session: int, name: str) -> bytes | None:
        """Return the snapshot, exactly as put, or None."""

    @abstractmethod
    def put_summary(self, session: int, summary: Summary, epoch: int) -> bool:
        """Keep a summary beside those that are there.

        False, and nothing is kept, if the session's epoch is not `epoch` or it has no such place.
        """

    @abstractmethod
    def summaries(self, session: int, upto: Position, limit: int) -> list[Summary]:
        """Return at most `limit` summaries that end in the segment `upto.segment` at a depth <= `upto.depth`.

        The deepest comes first, and of one place the one that was kept last.
        """

    @abstractmethod
    def forget(
        self, session: int, positions: Sequence[Position], *, stale: Sequence[Position] = (), branches: bool = False
    ) -> None:
        """Erase messages, their vectors, the summaries that cover them and all snapshots, and raise the epoch.

        It is one transaction. A summary covers what leads to its place.

        The ids are remembered, so that they are not stored again; of what was said nothing is, not even a hash: a
        person may say the same once more.

        Args:
            session: the key.
            positions: what to erase; empty places are ignored.
            stale: messages that stay and lose their vectors, in all spaces: these may stand for what goes, too.
            branches: also drop all branches, tags, stashes and moves, and begin anew with an empty `main`, in a new
                segment without a parent, so that no old place is used again. Ids stay forgotten.
        """

    @abstractmethod
    def forgotten(self, session: int, after: str | None, limit: int) -> list[str]:
        """Return at most `limit` ids that have been forgotten, in an order of the store's; `after`: the last one read.

        The order stays the same for the same ids, in every database of this kind.
        """

    @abstractmethod
    def scrub(self) -> str | None:
        """Remove the erased bytes from the files; return None, or why that has to be tried again later."""

    @abstractmethod
    def stats(self, session: int) -> Mapping[str, int]:
        """Return what the session holds and what the whole database takes.

        Returns:
            Counts under "messages", "turns" (those that a user message opened), "branches", "segments", "vectors" and
            "forgotten"; "bytes" is the size of the database, all sessions included.
        """

    @abstractmethod
    def close(self) -> None:
        """Release what is held; closing twice is fine."""
