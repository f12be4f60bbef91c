"""The store that decides about conversation trees, over the rows of any database engine."""

from abc import abstractmethod
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager

from shared_core.errors import UnknownReferenceError
from shared_core.records import (
    Appended,
    Branch,
    Change,
    Create,
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
from shared_core.store import Store
from shared_core.stores.additions import append, restore
from shared_core.stores.ancestry import check_position, covering, segment_at
from shared_core.stores.changes import begin, change
from shared_core.stores.rows import Rows

__all__ = ["TreeStore"]

_PAGE = 1000
"""Vectors read at a time."""

_NOTHING = SessionState(None, 0, 0)


class TreeStore(Store):
    """A store whose engine only reads and writes rows.

    An engine implements `Rows`, the two transactions below, `transaction`, `scrub` and `close`. What it may do in a
    single statement, such as the state of a session or the messages at some positions, is a single method of `Rows`.
    """

    @abstractmethod
    def _reading(self) -> AbstractContextManager[Rows]:
        """Enter a block for one method of `Rows`, which sees one moment of the database."""

    @abstractmethod
    def _writing(self) -> AbstractContextManager[Rows]:
        """Enter a transaction that no other writer can come between; undone if an exception leaves the block.

        Within `transaction` it is a part of that one, and is undone alone.
        """

    @abstractmethod
    def _size(self) -> int:
        """Return the bytes that the whole database takes."""

    # Sessions

    def session(self, user_id: str | None, session_id: str) -> int | None:
        """See `Store`."""
        with self._reading() as rows:
            return rows.session(user_id, session_id)

    def create_session(self, user_id: str | None, session_id: str) -> int:
        """See `Store`."""
        with self._writing() as rows:
            session = rows.session(user_id, session_id)
            if session is None:
                session = rows.insert_session(user_id, session_id)
                begin(rows, session)
            return session

    def sessions(self, user_id: str | None) -> Mapping[str, int]:
        """See `Store`."""
        with self._reading() as rows:
            return rows.sessions(user_id)

    def users(self) -> list[str | None]:
        """See `Store`."""
        with self._reading() as rows:
            return rows.users()

    def state(self, session: int, branch: str | None = None) -> SessionState:
        """See `Store`."""
        with self._reading() as rows:
            return rows.state(session, branch) or _NOTHING

    def stats(self, session: int) -> Mapping[str, int]:
        """See `Store`."""
        with self._reading() as rows:
            counts = rows.counts(session)
        return counts | {"bytes": self._size()}

    # The tree

    def segment(self, session: int, segment: int) -> Segment:
        """See `Store`."""
        with self._reading() as rows:
            return segment_at(rows, session, segment)

    def branches(self, session: int) -> list[Branch]:
        """See `Store`."""
        with self._reading() as rows:
            return rows.branches(session)

    def refs(self, session: int, kind: RefKind, name: str | None = None, limit: int = 1_000_000) -> list[Ref]:
        """See `Store`."""
        with self._reading() as rows:
            return rows.refs(session, kind, name, limit)

    def create_branch(self, session: int, name: str, at: Position) -> None:
        """See `Store`."""
        self.change(session, [Create(name, at)])

    def change(self, session: int, changes: Sequence[Change]) -> None:
        """See `Store`."""
        with self._writing() as rows:
            change(rows, session, changes)

    # Messages

    def append(
        self, session: int, branch: str, drafts: Sequence[Draft], *, at: Position | None = None,
        turn: str | None = None, changes: Sequence[Change] = (),
    ) -> Appended:  # fmt: skip
        """See `Store`."""
        with self._writing() as rows:
            return append(rows, session, branch, drafts, at, turn, changes)

    def restore(self, session: int, restored: Restored) -> None:
        """See `Store`."""
        with self._writing() as rows:
            restore(rows, session, restored)

    def get(self, session: int, ids: Sequence[str]) -> list[Record]:
        """See `Store`."""
        with self._reading() as rows:
            found = {record.message.id: record for record in rows.get(session, ids)}
        return [found[id_] for id_ in ids if id_ in found]

    def ids_like(self, session: int, prefix: str, limit: int) -> list[str]:
        """See `Store`."""
        with self._reading() as rows:
            return rows.ids_like(session, prefix, limit)

    def at(self, session: int, positions: Sequence[Position]) -> list[Record]:
        """See `Store`."""
        with self._reading() as rows:
            return rows.at(session, positions)

    def newest(self, session: int, upto: Position, limit: int) -> list[Record]:
        """See `Store`."""
        with self._reading() as rows:
            return rows.newest(session, upto, limit)

    def after(self, session: int, seq: int, limit: int) -> list[Record]:
        """See `Store`."""
        with self._reading() as rows:
            return rows.after(session, seq, limit)

    def turn(self, session: int, turn_id: str) -> list[Record]:
        """See `Store`."""
        with self._reading() as rows:
            return rows.turn(session, turn_id)

    def pinned(self, session: int) -> list[Record]:
        """See `Store`."""
        with self._reading() as rows:
            return rows.pinned(session)

    def made_from(self, session: int, positions: Sequence[Position]) -> list[Record]:
        """See `Store`."""
        with self._reading() as rows:
            return rows.made_from(session, positions)

    def covers(self, session: int, segments: Collection[int]) -> list[tuple[Position, Stretch]]:
        """See `Store`."""
        with self._reading() as rows:
            return rows.covers(session, segments)

    def covered(self, session: int, position: Position) -> list[Stretch]:
        """See `Store`."""
        with self._reading() as rows:
            return rows.covered(session, position)

    # Forgetting

    def forget(
        self, session: int, positions: Sequence[Position], *, stale: Sequence[Position] = (), branches: bool = False
    ) -> None:
        """See `Store`."""
        with self._writing() as rows:
            # Found before the messages go: what a summary covers follows from the tree.
            summaries = (
                [reach.number for reach in rows.summary_reaches(session)]
                if branches
                else covering(rows, session, positions)
            )
            if rows.erase(session, positions, stale, summaries) and branches:
                rows.drop_names(session)
                begin(rows, session)

    def forgotten(self, session: int, after: str | None, limit: int) -> list[str]:
        """See `Store`."""
        with self._reading() as rows:
            return rows.tombstones(session, after, limit)

    # What is derived

    def put_vectors(self, session: int, space: str, rows: Iterable[tuple[Position, str, bytes]]) -> None:
        """See `Store`."""
        vectors = list(rows)  # read before the transaction, because it may call the store or take its time
        with self._writing() as found:
            found.put_vectors(session, space, vectors)

    def vectors(self, session: int, space: str, positions: Sequence[Position]) -> dict[Position, tuple[str, bytes]]:
        """See `Store`."""
        with self._reading() as rows:
            return rows.vectors(session, space, positions)

    def all_vectors(self, session: int, space: str) -> Iterator[tuple[Position, str, bytes]]:
        """See `Store`."""
        last = Position(-1, -1)
        # By pages, because the caller may call the store, or stop, between two vectors.
        while page := self._vectors_after(session, space, last):
            yield from page
            last = page[-1][0]

    def _vectors_after(self, session: int, space: str, after: Position) -> list[tuple[Position, str, bytes]]:
        with self._reading() as rows:
            return rows.vectors_after(session, space, after, _PAGE)

    def vectors_of(self, session: int, space: str, hashes: Collection[str]) -> dict[str, bytes]:
        """See `Store`."""
        with self._reading() as rows:
            return rows.vectors_of(session, space, hashes)

    def spaces(self, session: int) -> list[str]:
        """See `Store`."""
        with self._reading() as rows:
            return rows.spaces(session)

    def put_snapshot(self, session: int, name: str, epoch: int, data: bytes) -> bool:
        """See `Store`."""
        with self._writing() as rows:
            current = _is_at(rows, session, epoch)
            if current:
                rows.put_snapshot(session, name, data)
            return current

    def snapshot(self, session: int, name: str) -> bytes | None:
        """See `Store`."""
        with self._reading() as rows:
            return rows.snapshot(session, name)

    def put_summary(self, session: int, summary: Summary, epoch: int) -> bool:
        """See `Store`."""
        with self._writing() as rows:
            if not _is_at(rows, session, epoch):
                return False
            try:
                for position in (summary.upto, summary.along):
                    check_position(rows, session, position)
            except UnknownReferenceError:
                return False
            rows.insert_summary(session, summary)
            return True

    def summaries(self, session: int, upto: Position, limit: int) -> list[Summary]:
        """See `Store`."""
        with self._reading() as rows:
            return rows.summaries(session, upto, limit)


def _is_at(rows: Rows, session: int, epoch: int) -> bool:
    """Return whether nothing has been forgotten since an epoch."""
    state = rows.state(session, None)
    return state is not None and state.epoch == epoch
