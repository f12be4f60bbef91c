"""The store that decides about conversation trees, over the rows of any database engine."""

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar, get_args

from shared_core.errors import DuplicateError, UnknownReferenceError
from shared_core.queries import After, Branches, Query, Refs, State
from shared_core.records import (
    ALL,
    Appended,
    Change,
    Derived,
    Draft,
    KnownBranch,
    Position,
    RefKind,
    Restored,
    SessionKey,
    SessionState,
    Summary,
    VectorRow,
    VectorRows,
)
from shared_core.store import Store
from shared_core.stores.rows import Reaches, Rows
from shared_core.stores.tree_rules import append, begin, change, check_position, covering, restore

_NOTHING = SessionState(None, 0, 0)

Result = TypeVar("Result")


class TreeStore(Store):
    """A store whose engine only reads and writes rows.

    An engine implements `Rows`, the methods below that begin with an underscore, `size`, `transaction`, `scrub` and
    `close`.
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

    def session(self, user_id: str | None, session_id: str) -> int | None:
        return self._read(lambda rows: rows.session(user_id, session_id))

    def create_session(self, user_id: str | None, session_id: str) -> int:
        found = self.session(user_id, session_id)
        return self._write(lambda rows: _created(rows, user_id, session_id)) if found is None else found

    def sessions(self, *user_ids: str | None, after: int = 0, limit: int = ALL) -> list[SessionKey]:
        return self._read(lambda rows: rows.sessions(user_ids or None, after, limit))

    def rename_session(self, session: int, session_id: str) -> None:
        self._write(lambda rows: _rename(rows, session, session_id))

    def read(self, session: int, *queries: Query) -> list[Any]:
        answers = self._read(lambda rows: rows.ask_all(session, queries))
        return [
            _NOTHING if answer is None and isinstance(query, State) else answer
            for query, answer in zip(queries, answers, strict=True)
        ]

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

    def forget(
        self, session: int, positions: Sequence[Position], *, stale: Sequence[Position] = (), branches: bool = False
    ) -> None:
        self._write(lambda rows: _forget(rows, session, positions, stale, branches=branches))

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


def _created(rows: Rows, user_id: str | None, session_id: str) -> int:
    session = rows.insert_session(user_id, session_id)
    if session is not None:
        begin(rows, session)
        return session
    found = rows.session(user_id, session_id)  # somebody else was faster
    assert found is not None
    return found


def _rename(rows: Rows, session: int, session_id: str) -> None:
    own = next((one for one in rows.sessions(None, session - 1, 1) if one.key == session), None)
    if own is None:
        raise UnknownReferenceError(f"there is no session {session!r}")
    other = rows.session(own.user_id, session_id)
    if other is not None and other != session and rows.ask(other, After(0, 1)):
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
        [reach.number for reach in rows.ask(session, Reaches())] if branches else covering(rows, session, positions)
    )
    before = rows.ask(session, State())
    rows.raise_version(session)
    if rows.erase(session, positions, stale, summaries) and branches and before is not None:
        # Messages that damage had lost are forgotten, too, and not missed from now on.
        rows.note_empty(session, (), [(1, before.last_seq)])
        _begin_anew(rows, session)


def _begin_anew(rows: Rows, session: int) -> None:
    """Drop every name, and open an empty `main` elsewhere."""
    for branch in rows.ask(session, Branches()):
        rows.drop_branch(session, branch.name)
    for kind in get_args(RefKind):
        for ref in rows.ask(session, Refs(kind)):
            rows.drop_ref(session, ref.number)
    begin(rows, session)


def _keep(rows: Rows, session: int, derived: Derived, epoch: int | None) -> bool:
    """Store what was made from messages, if nothing was forgotten since; return whether it is stored."""
    state = rows.ask(session, State())
    if state is None or epoch not in (None, state.epoch):
        return False
    if isinstance(derived, Summary):
        try:
            for position in (derived.upto, derived.along):
                check_position(rows, session, position)
        except UnknownReferenceError:
            return False
    rows.put(session, derived)
    return True
