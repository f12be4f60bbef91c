"""What a database engine implements to become a store: it reads and writes rows and decides nothing."""

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from shared_core.errors import UnknownReferenceError
from shared_core.queries import Back, Line, LineRead, Query, Segments, State
from shared_core.records import ALL, Derived, Position, Record, Ref, Segment, SessionKey, Stretch
from shared_core.store import segments_to
from shared_core.stores.gaps import Range


class End(NamedTuple):
    """Ask for the `BranchEnd` of a branch; None if there is no such branch."""

    branch: str


class NewestQuestion(NamedTuple):
    """Ask for the turn of the deepest user message in a stretch, as a `Newest`; None without one."""

    stretch: Stretch


class TurnNumber(NamedTuple):
    """Ask for the number of a turn if one of its messages is in the segment of `upto` and no deeper; else None."""

    turn_id: str
    upto: Position


@dataclass(frozen=True, slots=True)
class NextSegment:
    """Ask for the number of the next segment: one more than the largest there is, 0 for the first."""


@dataclass(frozen=True, slots=True)
class Reaches:
    """Ask for the `SummaryReach` of every summary of a session."""


RowQuery = Query | End | NewestQuestion | TurnNumber | NextSegment | Reaches
"""What `Rows.ask` answers."""


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

    @abstractmethod
    def ask(self, session: int, query: RowQuery) -> Any:
        """Return the answer to any query but a `Line`; for `State` None if there is no such session."""

    def ask_all(self, session: int, queries: Sequence[Query]) -> list[Any]:
        """Return the answers to several queries; a database that is a round trip away asks for all of them at once."""
        return [line_of(self, session, one) if isinstance(one, Line) else self.ask(session, one) for one in queries]

    @abstractmethod
    def session(self, user_id: str | None, session_id: str) -> int | None:
        """Return the key of a session, or None."""

    @abstractmethod
    def sessions(self, user_ids: Collection[str | None] | None, after: int = 0, limit: int = ALL) -> list[SessionKey]:
        """Return at most `limit` sessions of some users whose key is larger than `after`, oldest first.

        `user_ids`: None for everybody's.
        """

    @abstractmethod
    def insert_session(self, user_id: str | None, session_id: str) -> int | None:
        """Insert a session with epoch 0 and without branches; return its key, None if there is one of this name.

        No key is used twice, not even of a session that was deleted.
        """

    @abstractmethod
    def rename_sessions(self, names: Mapping[int, str]) -> None:
        """Give sessions other names, all at once; the names of a user differ afterwards as before."""

    @abstractmethod
    def raise_version(self, session: int, seq: int = 0) -> None:
        """Raise the version of a session, if there is one, and the number of its newest message to at least `seq`."""

    # The tree: segments, branches and refs

    @abstractmethod
    def put_segment(self, session: int, segment: Segment) -> None:
        """Insert a segment; if there is one of this number, only raise its tip to that of the one given."""

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
    def insert_ref(self, session: int, ref: Ref) -> None:
        """Insert a ref under a new number, larger than any before in the database; without `created_at`, as of now."""

    @abstractmethod
    def drop_ref(self, session: int, number: int) -> bool:
        """Delete a ref; return whether there was one of this number."""

    # Messages

    @abstractmethod
    def insert_records(
        self, session: int, records: Sequence[Record], covers: Sequence[tuple[Position, Stretch]] = ()
    ) -> None:
        """Insert messages, and what they and others sum up, in this order; the tips of their segments grow.

        The version, and the number of the session's newest message, grow, too.

        Raises:
            DuplicateError: an id, a position or a number is taken.
            UnknownReferenceError: there is no such segment, or no message that is said to sum something up.
            StoreError: a message cannot be stored; the error names its id.
        """

    def note_empty(self, session: int, stretches: Sequence[Stretch], numbers: Sequence[Range]) -> None:
        """Note positions, and ranges of numbers of messages, that hold nothing on purpose.

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
    def insert_tombstones(self, session: int, ids: Sequence[str]) -> None:
        """Note ids as forgotten, but for those of messages that are stored."""

    # What is derived

    @abstractmethod
    def put(self, session: int, derived: Derived) -> None:
        """Insert or replace vectors of messages that exist, whose space becomes the newest, or a snapshot.

        A summary is inserted beside those that are there.
        """


def segment_at(rows: Rows, session: int, segment: int) -> Segment:
    """Return a segment; UnknownReferenceError if there is none of this number."""
    found = find_segment(rows, session, segment)
    if found is None:
        raise UnknownReferenceError(f"there is no segment {segment!r} in session {session!r}")
    return found


def find_segment(rows: Rows, session: int, segment: int) -> Segment | None:
    """Return a segment; None if there is none of this number."""
    found: list[Segment] = rows.ask(session, Segments(segment - 1, 1))
    return found[0] if found and found[0].segment == segment else None


def line_of(rows: Rows, session: int, line: Line) -> LineRead:
    """Answer a `Line` by other queries, segment by segment."""
    state = rows.ask(session, State(line.head)) if isinstance(line.head, str) else None
    head: Position | None = line.head if not isinstance(line.head, str) else state and state.head
    known = line.known
    found = segments_to(head, lambda one: known[one] if one in known else segment_at(rows, session, one))
    segments = {segment.segment: segment for segment in found}
    newest: list[Record] = []
    while head is not None and len(newest) < line.newest:
        newest += rows.ask(session, Back(head, line.newest - len(newest)))
        head = segments[head.segment].parent if segments[head.segment].merged is None else None
    return LineRead([segment for number, segment in segments.items() if number not in known], newest)
