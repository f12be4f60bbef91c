"""What a database engine implements to become a store: it reads and writes rows and decides nothing."""

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from shared_core.records import (
    Branch,
    Criterion,
    Forgotten,
    MainChanges,
    Mark,
    Newest,
    Position,
    Record,
    Ref,
    RefKind,
    Segment,
    SessionInfo,
    SessionKey,
    SessionState,
    Stretch,
    Summary,
    VectorRow,
)
from shared_core.store import ALL


class BranchEnd(NamedTuple):
    """The end of a branch, and what an append has to know.

    Attributes:
        head: where the branch ends.
        tip: the depth at which the segment of `head` ends.
        attached: whether the branch stands at the tip of its segment and moves along when the segment grows.
        last_seq: the number of the session's newest message.
        forgetful: whether the session has ever forgotten a message.
    """

    head: Position
    tip: int
    attached: bool
    last_seq: int
    forgetful: bool


class SummaryReach(NamedTuple):
    """A stored summary by its number, and the positions that say what it covers; see `Summary`."""

    number: int
    upto: Position
    along: Position


class Rows(ABC):
    """The rows of a database, seen and changed inside one transaction.

    `TreeStore` decides what happens to the tree of a session and calls these methods in one transaction, so that none
    of them checks or decides anything beyond what it says. Values come back exactly as they were given. Nothing of one
    session is ever returned or changed for another. A limit of 0 or less finds nothing. For a session that does not
    exist, reading finds nothing. Every method raises `StoreError` when the database cannot be read or written.
    """

    # Sessions

    @abstractmethod
    def session(self, user_id: str | None, session_id: str) -> int | None:
        """Return the key of a session, or None."""

    @abstractmethod
    def sessions(self, user_ids: Collection[str | None] | None, after: int = 0, limit: int = 2**31) -> list[SessionKey]:
        """Return at most `limit` sessions of some users whose key is larger than `after`, oldest first.

        `user_ids`: None for everybody's.
        """

    @abstractmethod
    def insert_session(self, user_id: str | None, session_id: str) -> int | None:
        """Insert a session with epoch 0 and without branches; return its key, None if there is one of this name.

        No key is used twice, not even of a session that was deleted.
        """

    @abstractmethod
    def session_key(self, session: int) -> SessionKey | None:
        """Return the user and the name of a session, or None if there is no such session."""

    @abstractmethod
    def rename_sessions(self, names: Mapping[int, str]) -> None:
        """Give sessions other names, all at once; the names of a user differ afterwards as before."""

    @abstractmethod
    def state(self, session: int, branch: str | None) -> SessionState | None:
        """Return the state of a session, in one read; None if there is no such session."""

    @abstractmethod
    def raise_version(self, session: int) -> None:
        """Raise the version of a session by one, if there is such a session; inserting messages raises it, too."""

    @abstractmethod
    def counts(self, session: int) -> dict[str, int]:
        """Return what `Store.stats` returns, but for "bytes"."""

    # The tree: segments, branches and refs

    @abstractmethod
    def segment(self, session: int, segment: int) -> Segment | None:
        """Return one segment, or None; its `tip` is the deepest position that has ever held a message."""

    @abstractmethod
    def next_segment(self, session: int) -> int:
        """Return the number of the next segment: one more than the largest there is, 0 for the first."""

    @abstractmethod
    def put_segment(self, session: int, segment: Segment) -> None:
        """Insert a segment; if there is one of this number, only raise its tip to that of the one given."""

    @abstractmethod
    def end(self, session: int, branch: str) -> BranchEnd | None:
        """Return the end of a branch, in one read; None if there is no such branch."""

    @abstractmethod
    def branches(self, session: int) -> list[Branch]:
        """Return all branches, in order of creation."""

    @abstractmethod
    def put_branch(self, session: int, name: str, head: Position, *, attached: bool = False) -> None:
        """Set where a branch ends; create it if it does not exist. `attached`: see `BranchEnd`."""

    @abstractmethod
    def detach_branches(self, session: int, segments: Collection[int]) -> None:
        """Have the branches that are attached to some segments stay where the tips of these are now."""

    @abstractmethod
    def rename_branch(self, session: int, name: str, to: str) -> None:
        """Rename a branch, its moves, stashes and head; it keeps its rank in the order of creation."""

    @abstractmethod
    def drop_branch(self, session: int, name: str) -> None:
        """Delete a branch."""

    @abstractmethod
    def refs(self, session: int, kind: RefKind, name: str | None = None, limit: int = ALL) -> list[Ref]:
        """Return the newest refs of a kind, the newest first; all, or only those of one name."""

    @abstractmethod
    def insert_ref(self, session: int, ref: Ref) -> None:
        """Insert a ref under a new number, larger than any before in the database; without `created_at`, as of now."""

    @abstractmethod
    def drop_ref(self, session: int, number: int) -> bool:
        """Delete a ref; return whether there was one of this number."""

    # Messages

    @abstractmethod
    def get(self, session: int, ids: Sequence[str]) -> list[Record]:
        """Return the messages with these ids, each once, in any order."""

    @abstractmethod
    def at(self, session: int, positions: Sequence[Position]) -> list[Record]:
        """Return the messages at these positions, in the order asked."""

    @abstractmethod
    def newest(self, session: int, upto: Position, limit: int) -> list[Record]:
        """Return the messages of the segment of `upto` no deeper than it, the deepest first."""

    @abstractmethod
    def find(self, session: int, criterion: Criterion) -> list[Record]:
        """Return the messages that meet a criterion, in order of storing."""

    @abstractmethod
    def covers(self, session: int, segments: Collection[int]) -> list[tuple[Position, Stretch]]:
        """Return what `Store.covers` returns."""

    @abstractmethod
    def newest_question(self, session: int, stretch: Stretch) -> Newest | None:
        """Return the turn of the deepest user message in a stretch."""

    @abstractmethod
    def turn_number(self, session: int, turn_id: str, upto: Position) -> int | None:
        """Return the number of a turn if one of its messages is in the segment of `upto` and no deeper than it."""

    @abstractmethod
    def insert_records(
        self, session: int, records: Sequence[Record], covers: Sequence[tuple[Position, Stretch]] = ()
    ) -> None:
        """Insert messages, and what they and others sum up, in this order.

        Raises:
            DuplicateError: an id, a position or a number is taken.
            UnknownReferenceError: there is no such segment, or no message that is said to sum something up.
            StoreError: a message cannot be stored; the error names its id.
        """

    @abstractmethod
    def raise_number(self, session: int, seq: int) -> None:
        """Have the number of the session's newest message be at least this one, whether or not there is a message."""

    def note_empty(self, session: int, stretches: Sequence[Stretch], numbers: Sequence[range]) -> None:
        """Note positions, and numbers of messages, that hold nothing on purpose.

        An engine that can tell a message lost through damage from one that never was needs them; by default, none does.
        """
        return

    # Forgetting

    @abstractmethod
    def erase(
        self, session: int, positions: Sequence[Position], stale: Sequence[Position], summaries: Collection[int]
    ) -> bool:
        """Erase messages with their vectors, the vectors of `stale`, summaries by number and all snapshots.

        The ids of the messages become tombstones, the epoch is raised by one, and the tips of segments and the number
        of the newest message stay what they are. Return False, and do nothing, if there is no such session.
        """

    @abstractmethod
    def forgotten(self, session: int, after: str | None, limit: int) -> list[str]:
        """Return forgotten ids, in a fixed order; `after`: the last one read."""

    @abstractmethod
    def are_forgotten(self, session: int, ids: Collection[str]) -> set[str]:
        """Return those of some ids that have been forgotten."""

    @abstractmethod
    def insert_tombstones(self, session: int, ids: Sequence[str]) -> None:
        """Note ids as forgotten, but for those of messages that are stored."""

    # What is derived

    @abstractmethod
    def put_vectors(self, session: int, space: str, vectors: Sequence[VectorRow]) -> None:
        """Insert or replace the vectors of messages that exist; the space becomes the newest."""

    @abstractmethod
    def vectors_at(self, session: int, space: str, positions: Sequence[Position]) -> list[VectorRow]:
        """Return the vectors of messages, in the order asked."""

    @abstractmethod
    def vectors_after(self, session: int, space: str, after: Position, limit: int) -> list[VectorRow]:
        """Return the vectors of positions larger than `after`, in order."""

    @abstractmethod
    def vectors_of(self, session: int, space: str, hashes: Collection[str]) -> list[VectorRow]:
        """Return one vector for each of some hashes that has any."""

    @abstractmethod
    def spaces(self, session: int) -> list[str]:
        """Return the vector spaces that hold vectors, the one written to last first."""

    @abstractmethod
    def put_snapshot(self, session: int, name: str, data: bytes) -> None:
        """Insert or replace a snapshot."""

    @abstractmethod
    def snapshot(self, session: int, name: str) -> bytes | None:
        """Return a snapshot, or None."""

    @abstractmethod
    def insert_summary(self, session: int, summary: Summary) -> None:
        """Insert a summary beside those that are there."""

    @abstractmethod
    def summaries(self, session: int, upto: Position, limit: int) -> list[Summary]:
        """Return the summaries of the segment of `upto` no deeper than it, the deepest first, then the newest."""

    @abstractmethod
    def summary_reaches(self, session: int) -> list[SummaryReach]:
        """Return all summaries of a session without their texts."""


class IndexedRows(Rows):
    """The rows of a database that finds with an index what `Store` finds by reading everything."""

    @abstractmethod
    def users(self, after: str | None = None, limit: int = ALL) -> list[str]:
        """Return what `Store.users` does."""

    @abstractmethod
    def sessions_named(self, session_id: str) -> list[SessionKey]:
        """Return the sessions of this name, of all users, oldest first."""

    @abstractmethod
    def sessions_with(self, user_id: str | None, message: str | int) -> list[SessionKey]:
        """Return what `Store.sessions_with` does."""

    @abstractmethod
    def overview(self, user_ids: Collection[str | None], limit: int) -> list[SessionInfo]:
        """Return what `Store.overview` does."""

    @abstractmethod
    def main_changes(self, user_id: str | None, since: Mark | None = None) -> MainChanges:
        """Return what `Store.main_changes` returns."""

    @abstractmethod
    def segments(self, session: int, after: int, limit: int) -> list[Segment]:
        """Return the segments with a larger number than `after`, in order."""

    @abstractmethod
    def session_keys(self) -> list[int]:
        """Return what `Store.session_keys` returns."""

    @abstractmethod
    def stored(self, session: int) -> list[tuple[Position, str]]:
        """Return what `Store.stored` returns; no checksum is looked at."""

    @abstractmethod
    def count(self, session: int, stretches: Collection[Stretch]) -> int:
        """Return how many messages some stretches hold."""

    @abstractmethod
    def forgotten_since(self, session: int, epoch: int) -> Forgotten | None:
        """Return what `Store.forgotten_since` returns."""
