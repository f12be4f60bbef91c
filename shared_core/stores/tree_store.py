"""The store that decides about conversation trees, over the rows of any database engine."""

from abc import abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from operator import methodcaller
from typing import Any, Concatenate, ParamSpec, TypeVar, assert_never, get_args

from typing_extensions import TypeIs

from shared_core.errors import DuplicateError, UnknownReferenceError
from shared_core.records import (
    After,
    Appended,
    Change,
    Derived,
    Draft,
    KnownBranch,
    Position,
    Record,
    RefKind,
    Restored,
    Segment,
    SessionInfo,
    SessionKey,
    SessionState,
    Snapshot,
    Summary,
    VectorRow,
    VectorRows,
)
from shared_core.store import ALL, PAGE, Store
from shared_core.stores.rows import IndexedRows, Rows
from shared_core.stores.tree_rules import append, begin, change, check_position, covering, restore, segment_at

_NOTHING = SessionState(None, 0, 0)


Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


def asking(method: Callable[Concatenate[Any, Arguments], Result]) -> Callable[Concatenate[Any, Arguments], Result]:
    """Return the method of a store that its rows answer, by their method of this name."""
    name = method.__name__

    def asked(store: "TreeStore", /, *args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        result: Result = store._read(methodcaller(name, *args, **kwargs))
        return result

    asked.__name__, asked.__doc__ = name, method.__doc__
    return asked


class TreeStore(Store):
    """A store whose engine only reads and writes rows.

    An engine implements `Rows`, the methods below that begin with an underscore, `transaction`, `scrub` and `close`.
    """

    @abstractmethod
    def _read(self, ask: Callable[[Rows], Result]) -> Result:
        """Return what is asked of the rows, one method of which sees one moment of the database."""

    @abstractmethod
    def _write(self, act: Callable[[Rows], Result]) -> Result:
        """Return what is done in a transaction that no other writer can come between; undone if it raises.

        Within `transaction` it is a part of that one, and is undone alone. An engine may call `act` again after a
        failure that passes.
        """

    @abstractmethod
    def _size(self) -> int:
        """Return the bytes that the whole database takes."""

    session = asking(Rows.session)
    branches = asking(Rows.branches)
    refs = asking(Rows.refs)
    newest = asking(Rows.newest)
    find = asking(Rows.find)
    covers = asking(Rows.covers)
    forgotten = asking(Rows.forgotten)
    are_forgotten = asking(Rows.are_forgotten)
    spaces = asking(Rows.spaces)
    snapshot = asking(Rows.snapshot)
    summaries = asking(Rows.summaries)

    # Sessions

    def create_session(self, user_id: str | None, session_id: str) -> int:
        found = self.session(user_id, session_id)
        return self._write(lambda rows: _created(rows, user_id, session_id)) if found is None else found

    def sessions(self, *user_ids: str | None, after: int = 0, limit: int = ALL) -> list[SessionKey]:
        return self._read(lambda rows: rows.sessions(user_ids or None, after, limit))

    def rename_session(self, session: int, session_id: str) -> None:
        self._write(lambda rows: _rename(rows, session, session_id))

    def state(self, session: int, branch: str | None = None) -> SessionState:
        return self._read(lambda rows: rows.state(session, branch)) or _NOTHING

    def stats(self, session: int) -> Mapping[str, int]:
        return self._read(lambda rows: rows.counts(session)) | {"bytes": self._size()}

    # The tree and its messages

    def segment(self, session: int, segment: int) -> Segment:
        return self._read(lambda rows: segment_at(rows, session, segment))

    def change(self, session: int, changes: Sequence[Change]) -> None:
        self._write(lambda rows: change(rows, session, changes))

    def append(
        self, session: int, branch: str, drafts: Sequence[Draft], *, at: Position | None = None,
        turn: str | None = None, changes: Sequence[Change] = (), known: KnownBranch | None = None,
        vectors: VectorRows | None = None, epoch: int | None = None,
    ) -> Appended:  # fmt: skip
        if vectors is not None:  # read before the transaction, which may also be repeated
            vectors = vectors._replace(rows=list(vectors.rows))

        def act(rows: Rows) -> Appended:
            appended = append(rows, session, branch, drafts, at, turn, changes)
            if vectors is None or _keep(rows, session, vectors, epoch):
                return appended
            return replace(appended, kept=False)

        return self._write(act)

    def restore(self, session: int, restored: Restored) -> None:
        self._write(lambda rows: restore(rows, session, restored))

    def get(self, session: int, keys: Sequence[str] | Sequence[Position]) -> list[Record]:
        if _are_positions(keys):
            return self._read(lambda rows: rows.at(session, keys))
        found = {record.message.id: record for record in self._read(lambda rows: rows.get(session, keys))}
        return [found[id_] for id_ in keys if id_ in found]

    # Forgetting

    def forget(
        self, session: int, positions: Sequence[Position], *, stale: Sequence[Position] = (), branches: bool = False
    ) -> None:
        self._write(lambda rows: _forget(rows, session, positions, stale, branches=branches))

    # What is derived

    def keep(self, session: int, derived: Derived, epoch: int | None = None) -> bool:
        if isinstance(derived, VectorRows):  # read before the transaction: it may call the store, or take its time
            derived = derived._replace(rows=list(derived.rows))
        return self._write(lambda rows: _keep(rows, session, derived, epoch))

    def keep_vectors(
        self, space: str, rows: Mapping[int, Sequence[VectorRow]], epochs: Mapping[int, int]
    ) -> frozenset[int]:

        def act(writer: Rows) -> frozenset[int]:
            given = {session: VectorRows(space, some) for session, some in sorted(rows.items())}
            return frozenset(one for one, some in given.items() if _keep(writer, one, some, epochs[one]))

        return self._write(act)

    def vectors(
        self, session: int, space: str, positions: Sequence[Position] | None = None, *,
        hashes: Collection[str] | None = None,
    ) -> Iterator[VectorRow]:  # fmt: skip
        if hashes is not None:
            return iter(self._read(lambda rows: rows.vectors_of(session, space, hashes)))
        if positions is not None:
            return iter(self._read(lambda rows: rows.vectors_at(session, space, positions)))
        return self._all_vectors(session, space)

    def _all_vectors(self, session: int, space: str) -> Iterator[VectorRow]:
        last = Position(-1, -1)
        # By pages, because the caller may call the store, or stop, between two vectors.
        while page := self._read(methodcaller("vectors_after", session, space, last, PAGE)):
            yield from page
            last = page[-1][0]


class IndexedStore(TreeStore):
    """A store over `IndexedRows`."""

    users = asking(IndexedRows.users)
    sessions_named = asking(IndexedRows.sessions_named)
    sessions_with = asking(IndexedRows.sessions_with)
    main_changes = asking(IndexedRows.main_changes)
    segments = asking(IndexedRows.segments)
    session_keys = asking(IndexedRows.session_keys)
    stored = asking(IndexedRows.stored)
    count = asking(IndexedRows.count)
    forgotten_since = asking(IndexedRows.forgotten_since)

    def overview(self, *user_ids: str | None, limit: int = ALL) -> list[SessionInfo]:
        return self._read(methodcaller("overview", user_ids, limit))


def _created(rows: Rows, user_id: str | None, session_id: str) -> int:
    session = rows.insert_session(user_id, session_id)
    if session is not None:
        begin(rows, session)
        return session
    found = rows.session(user_id, session_id)  # somebody else was faster
    assert found is not None
    return found


def _rename(rows: Rows, session: int, session_id: str) -> None:
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


def _forget(
    rows: Rows, session: int, positions: Sequence[Position], stale: Sequence[Position], *, branches: bool
) -> None:
    # Found before the messages go: what a summary covers follows from the tree.
    summaries = (
        [reach.number for reach in rows.summary_reaches(session)] if branches else covering(rows, session, positions)
    )
    before = rows.state(session, None)
    rows.raise_version(session)
    if rows.erase(session, positions, stale, summaries) and branches and before is not None:
        # Messages that damage had lost are forgotten, too, and not missed from now on.
        rows.note_empty(session, (), [range(1, before.last_seq + 1)])
        _begin_anew(rows, session)


def _are_positions(keys: Sequence[str] | Sequence[Position]) -> TypeIs[Sequence[Position]]:
    return bool(keys) and not isinstance(keys[0], str)


def _begin_anew(rows: Rows, session: int) -> None:
    """Drop every name, and open an empty `main` elsewhere."""
    for branch in rows.branches(session):
        rows.drop_branch(session, branch.name)
    for kind in get_args(RefKind):
        for ref in rows.refs(session, kind):
            rows.drop_ref(session, ref.number)
    begin(rows, session)


def _keep(rows: Rows, session: int, derived: Derived, epoch: int | None) -> bool:
    """Store what was made from messages, if nothing was forgotten since; return whether it is stored."""
    state = rows.state(session, None)
    if state is None or epoch not in (None, state.epoch):
        return False
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
