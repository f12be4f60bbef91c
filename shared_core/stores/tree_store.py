"""The store that decides about conversation trees, over the rows of any database engine."""

from abc import abstractmethod
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import assert_never, get_args

from typing_extensions import TypeIs

from shared_core.errors import DuplicateError, UnknownReferenceError
from shared_core.records import (
    After,
    Appended,
    Branch,
    Change,
    Criterion,
    Derived,
    Draft,
    KnownBranch,
    MainChanges,
    Mark,
    Position,
    Record,
    Ref,
    RefKind,
    Restored,
    Segment,
    SessionKey,
    SessionState,
    Snapshot,
    Stretch,
    Summary,
    VectorRow,
    VectorRows,
)
from shared_core.store import Store
from shared_core.stores.rows import Rows
from shared_core.stores.tree_rules import append, begin, change, check_position, covering, restore, segment_at

_PAGE = 1000
"""Vectors read at a time."""

_ALL = 2**31
"""A limit that is never reached."""

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

    def sessions(self, *user_ids: str | None, after: int = 0, limit: int = _ALL) -> list[SessionKey]:
        """See `Store`."""
        with self._reading() as rows:
            return rows.sessions(user_ids or None, after, limit)

    def users(self, after: str | None = None, limit: int = _ALL) -> list[str]:
        """See `Store`."""
        with self._reading() as rows:
            return rows.users(after, limit)

    def sessions_named(self, session_id: str) -> list[SessionKey]:
        """See `Store`."""
        with self._reading() as rows:
            return rows.sessions_named(session_id)

    def sessions_with(self, user_id: str | None, message: str | int) -> list[SessionKey]:
        """See `Store`."""
        with self._reading() as rows:
            return rows.sessions_with(user_id, message)

    def rename_session(self, session: int, session_id: str) -> None:
        """See `Store`."""
        with self._writing() as rows:
            own = rows.session_key(session)
            if own is None:
                raise UnknownReferenceError(f"there is no session {session!r}")
            other = rows.session(own.user_id, session_id)
            if other is not None and other != session and rows.find(other, After(0, 1)):
                raise DuplicateError(f"there is a session {session_id!r} already; choose another name")
            swapped = {} if other is None else {other: own.session_id}
            rows.rename_sessions(swapped | {session: session_id})
            for renamed in (session, *swapped):
                rows.raise_version(renamed)

    def state(self, session: int, branch: str | None = None) -> SessionState:
        """See `Store`."""
        with self._reading() as rows:
            return rows.state(session, branch) or _NOTHING

    def stats(self, session: int) -> Mapping[str, int]:
        """See `Store`."""
        with self._reading() as rows:
            counts = rows.counts(session)
        return counts | {"bytes": self._size()}

    def main_states(self, *user_ids: str | None) -> list[tuple[SessionKey, SessionState]]:
        """See `Store`."""
        with self._reading() as rows:
            return rows.main_states(user_ids or None)

    def main_changes(self, user_id: str | None, since: Mark | None = None) -> MainChanges:
        """See `Store`."""
        with self._reading() as rows:
            return rows.main_changes(user_id, since)

    # The tree

    def segment(self, session: int, segment: int) -> Segment:
        """See `Store`."""
        with self._reading() as rows:
            return segment_at(rows, session, segment)

    def segments(self, session: int, after: int, limit: int) -> list[Segment]:
        """See `Store`."""
        with self._reading() as rows:
            return rows.segments(session, after, limit)

    def branches(self, session: int) -> list[Branch]:
        """See `Store`."""
        with self._reading() as rows:
            return rows.branches(session)

    def refs(self, session: int, kind: RefKind, name: str | None = None, limit: int = 1_000_000) -> list[Ref]:
        """See `Store`."""
        with self._reading() as rows:
            return rows.refs(session, kind, name, limit)

    def change(self, session: int, changes: Sequence[Change]) -> None:
        """See `Store`."""
        with self._writing() as rows:
            change(rows, session, changes)

    # Messages

    def append(
        self, session: int, branch: str, drafts: Sequence[Draft], *, at: Position | None = None,
        turn: str | None = None, changes: Sequence[Change] = (), known: KnownBranch | None = None,
        vectors: VectorRows | None = None, epoch: int | None = None,
    ) -> Appended:  # fmt: skip
        """See `Store`."""
        with self._writing() as rows:
            appended = append(rows, session, branch, drafts, at, turn, changes)
            if vectors is not None:
                state = rows.state(session, None)
                if state is None or state.epoch != epoch:
                    return replace(appended, kept=False)
                rows.put_vectors(session, vectors.space, list(vectors.rows))
            return appended

    def restore(self, session: int, restored: Restored) -> None:
        """See `Store`."""
        with self._writing() as rows:
            restore(rows, session, restored)

    def get(self, session: int, keys: Sequence[str] | Sequence[Position]) -> list[Record]:
        """See `Store`."""
        with self._reading() as rows:
            if _are_positions(keys):
                return rows.at(session, keys)
            found = {record.message.id: record for record in rows.get(session, keys)}
        return [found[id_] for id_ in keys if id_ in found]

    def newest(self, session: int, upto: Position, limit: int) -> list[Record]:
        """See `Store`."""
        with self._reading() as rows:
            return rows.newest(session, upto, limit)

    def find(self, session: int, criterion: Criterion) -> list[Record]:
        """See `Store`."""
        with self._reading() as rows:
            return rows.find(session, criterion)

    def covers(self, session: int, segments: Collection[int]) -> list[tuple[Position, Stretch]]:
        """See `Store`."""
        with self._reading() as rows:
            return rows.covers(session, segments)

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
            before = rows.state(session, None)
            rows.raise_version(session)
            if rows.erase(session, positions, stale, summaries) and branches and before is not None:
                # Messages that damage had lost are forgotten, too, and not missed from now on.
                rows.note_empty(session, (), [range(1, before.last_seq + 1)])
                _begin_anew(rows, session)

    def forgotten(self, session: int, after: str | None, limit: int) -> list[str]:
        """See `Store`."""
        with self._reading() as rows:
            return rows.tombstones(session, after, limit)

    def are_forgotten(self, session: int, ids: Collection[str]) -> set[str]:
        """See `Store`."""
        with self._reading() as rows:
            return rows.forgotten(session, list(ids))

    # What is derived

    def keep(self, session: int, derived: Derived, epoch: int | None = None) -> bool:
        """See `Store`."""
        if isinstance(derived, VectorRows):  # read before the transaction: it may call the store, or take its time
            derived = derived._replace(rows=list(derived.rows))
        with self._writing() as rows:
            state = rows.state(session, None)
            if state is None or epoch not in (None, state.epoch):
                return False
            return _keep(rows, session, derived)

    def keep_vectors(
        self, space: str, rows: Mapping[int, Sequence[VectorRow]], epochs: Mapping[int, int]
    ) -> frozenset[int]:
        """See `Store`."""
        kept = set[int]()
        with self._writing() as writer:
            for session in sorted(rows):
                state = writer.state(session, None)
                if state is not None and state.epoch == epochs[session]:
                    writer.put_vectors(session, space, rows[session])
                    kept.add(session)
        return frozenset(kept)

    def vectors(
        self, session: int, space: str, positions: Sequence[Position] | None = None, *,
        hashes: Collection[str] | None = None,
    ) -> Iterator[VectorRow]:  # fmt: skip
        """See `Store`."""
        if hashes is not None:
            with self._reading() as rows:
                return iter(rows.vectors_of(session, space, hashes))
        if positions is not None:
            with self._reading() as rows:
                return iter(rows.vectors_at(session, space, positions))
        return self._all_vectors(session, space)

    def _all_vectors(self, session: int, space: str) -> Iterator[VectorRow]:
        last = Position(-1, -1)
        # By pages, because the caller may call the store, or stop, between two vectors.
        while page := self._vectors_after(session, space, last):
            yield from page
            last = page[-1][0]

    def _vectors_after(self, session: int, space: str, after: Position) -> list[VectorRow]:
        with self._reading() as rows:
            return rows.vectors_after(session, space, after, _PAGE)

    def spaces(self, session: int) -> list[str]:
        """See `Store`."""
        with self._reading() as rows:
            return rows.spaces(session)

    def snapshot(self, session: int, name: str) -> bytes | None:
        """See `Store`."""
        with self._reading() as rows:
            return rows.snapshot(session, name)

    def summaries(self, session: int, upto: Position, limit: int) -> list[Summary]:
        """See `Store`."""
        with self._reading() as rows:
            return rows.summaries(session, upto, limit)


def _are_positions(keys: Sequence[str] | Sequence[Position]) -> TypeIs[Sequence[Position]]:
    return bool(keys) and not isinstance(keys[0], str)


def _begin_anew(rows: Rows, session: int) -> None:
    """Drop every name, and open an empty `main` elsewhere."""
    for branch in rows.branches(session):
        rows.drop_branch(session, branch.name)
    for kind in get_args(RefKind):
        for ref in rows.refs(session, kind, None, _ALL):
            rows.drop_ref(session, ref.number)
    begin(rows, session)


def _keep(rows: Rows, session: int, derived: Derived) -> bool:
    match derived:
        case VectorRows():
            rows.put_vectors(session, derived.space, list(derived.rows))
        case Snapshot():
            rows.put_snapshot(session, derived.name, derived.data)
        case Summary():
            try:
                for position in (derived.upto, derived.along):
                    check_position(rows, session, position)
            except UnknownReferenceError:
                return False
            rows.insert_summary(session, derived)
        case _:
            assert_never(derived)
    return True
