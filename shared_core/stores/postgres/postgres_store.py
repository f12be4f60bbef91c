"""The store for many workers: one PostgreSQL database that all of them share."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from copy import copy
from functools import wraps
from types import MappingProxyType
from typing import Concatenate, ParamSpec, TypeVar
from weakref import WeakValueDictionary

import psycopg

from shared_core.arguments import in_range, name_value, whole_number
from shared_core.errors import StoreUnavailableError
from shared_core.records import (
    Appended,
    Change,
    CheckedOut,
    Derived,
    Draft,
    Expect,
    Forgotten,
    KnownBranch,
    MainChanges,
    MainNews,
    Mark,
    Position,
    Record,
    Segment,
    SessionInfo,
    SessionState,
    Snapshot,
    Stretch,
    VectorRow,
    VectorRows,
)
from shared_core.store import ALL
from shared_core.stores.postgres.address import Address
from shared_core.stores.postgres.appends import AppendCall, Appends
from shared_core.stores.postgres.database import Database
from shared_core.stores.postgres.derived_tables import DerivedTables
from shared_core.stores.postgres.failures import unknown_outcome
from shared_core.stores.postgres.inspection import PostgresInspector
from shared_core.stores.postgres.joint_reads import JointReads
from shared_core.stores.postgres.row_security import setting_of
from shared_core.stores.postgres.schema import SCHEMA, SCRUBBED
from shared_core.stores.postgres.transactions import NO_USER
from shared_core.stores.tree_rules import begin, checked_ids
from shared_core.stores.tree_store import TreeStore

_IDENTITY = (
    "SELECT (SELECT system_identifier FROM pg_control_system())::text, "
    "(SELECT oid FROM pg_database WHERE datname = current_database())::text"
)

_NAME_BYTES = 63
_MOST_PARTITIONS = 1024


Arguments = ParamSpec("Arguments")
Owner = TypeVar("Owner", bound=TreeStore)
Result = TypeVar("Result")
Method = Callable[Concatenate[Owner, Arguments], Result]


def repeating(method: Method[Owner, Arguments, Result]) -> Method[Owner, Arguments, Result]:
    """Return a method that is repeated after a failure that passes; what it does happens once, or not at all."""

    @wraps(method)
    def repeated(self: Owner, *args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        assert isinstance(self, PostgresStore)
        return self.database.repeated(lambda: method(self, *args, **kwargs))

    return repeated  # type: ignore[return-value]


class PostgresTables(Appends, JointReads, DerivedTables):
    """All tables of a database."""


class PostgresStore(TreeStore):
    """Keeps sessions in a PostgreSQL database that threads, processes and machines may share.

    Needs PostgreSQL 15 or newer, a database with the encoding UTF-8, and the extra `postgres`. A call that fails
    because the connection broke, or because of another writer, is repeated; it happens once, or not at all.

    Args:
        address: `postgresql://user:password@host:port/database`, with whatever else libpq takes.
        schema: where the tables are; created if it does not exist. Each schema is a store of its own.
        pool_size: the most connections that this object has at a time. They are made when they are needed.
        partitions: how many parts the tables are split into, by session; for a new schema only. None: 1 for a new
            schema, otherwise as it is.
        statement_timeout: the seconds that a statement may take on the server. None: as the server has it, which
            PgBouncer needs.
        retry_seconds: how long a call is repeated, and waits for a connection; opening, too, while the server is away.
        prepare: whether statements that come often are prepared. Set it to False behind PgBouncer before 1.21.
        row_security: the server itself keeps users apart: the store sees nothing, and what `for_user` returns sees the
            sessions of that user. The role of `address` owns nothing and has its rights from `grant`.

    Raises:
        MissingExtraError: the extra is not installed.
        StoreError: the server cannot be reached or used; the message says why, and what to do.
        ValueError: an argument is out of range.
    """

    def __init__(
        self,
        address: str,
        *,
        schema: str = SCHEMA,
        pool_size: int = 8,
        partitions: int | None = None,
        statement_timeout: float | None = 30.0,
        retry_seconds: float = 10.0,
        prepare: bool = True,
        row_security: bool = False,
    ) -> None:
        if statement_timeout is not None:
            in_range("statement_timeout", statement_timeout, 0.001, 10**6)
        if partitions is not None and whole_number("partitions", partitions, least=1) > _MOST_PARTITIONS:
            raise ValueError(f"partitions={partitions}: expected at most {_MOST_PARTITIONS}")
        self._pool_size = whole_number("pool_size", pool_size, least=1)
        self.database = Database(
            Address(address, statement_timeout=statement_timeout),
            schema=_schema_name(schema),
            pool_size=self._pool_size,
            partitions=partitions,
            retry_seconds=in_range("retry_seconds", retry_seconds, 0, 10**6),
            prepare=prepare,
            row_security=row_security,
        )
        self._user = NO_USER if row_security else None
        self._user_id: str | None = None
        self._of_users: WeakValueDictionary[str | None, PostgresStore] = WeakValueDictionary()

    def for_user(self, user_id: str | None) -> "PostgresStore":
        """See `Store`. Without row security, this store; with it, one object for each user that somebody still uses."""
        if self._user is None:
            return self
        found = self._of_users.get(user_id)
        if found is None:
            own = copy(self)
            own._user, own._user_id = setting_of(user_id), user_id
            found = self._of_users.setdefault(user_id, own)  # another thread may have been faster
        return found

    def grant(self, role: str) -> None:
        """Turn row security on, and give a role what a store with `row_security=True` needs; call it as the owner.

        The role sees the rows of one user at a time then, also with a program of its own. What has been granted stays
        so when a newer version changes the schema. The owner goes on seeing everything.

        Args:
            role: an existing role, which is no superuser, owns nothing and is no member of the owner.

        Raises:
            StoreError: there is no such role, or this one is not the owner.
        """
        self.database.grant(name_value("role", role))

    @property
    def connections(self) -> int:
        """See `Store`."""
        return self._pool_size

    @contextmanager
    def _reading(self) -> Iterator[PostgresTables]:
        with self.database.reading(self._user) as statements:
            yield PostgresTables(statements)

    @contextmanager
    def _writing(self) -> Iterator[PostgresTables]:
        with self.database.writing(self._user) as statements:
            yield PostgresTables(statements)

    def _size(self) -> int:
        with self.database.reading(self._user) as statements:
            return int(statements.run("SELECT pg_database_size(current_database())", None)[0][0])

    def transaction(self) -> AbstractContextManager[None]:
        """See `Store`. Readers in other threads go on with what was there before."""
        return self.database.joining(self._user)

    def create_session(self, user_id: str | None, session_id: str) -> int:
        """See `Store`."""
        found = self.session(user_id, session_id)
        return self._created(user_id, session_id) if found is None else found

    @repeating
    def _created(self, user_id: str | None, session_id: str) -> int:
        with self._writing() as rows:
            session = rows.claim_session(user_id, session_id)
            if session is not None:
                begin(rows, session)
                return session
            found = rows.session(user_id, session_id)
        assert found is not None
        return found

    def append(
        self, session: int, branch: str, drafts: Sequence[Draft], *, at: Position | None = None,
        turn: str | None = None, changes: Sequence[Change] = (), known: KnownBranch | None = None,
        vectors: VectorRows | None = None, epoch: int | None = None,
    ) -> Appended:  # fmt: skip
        """See `Store`."""
        if vectors is not None:  # the call may be repeated, an iterator cannot
            vectors = vectors._replace(rows=list(vectors.rows))
        ids, covers = checked_ids(drafts), any(draft.covers for draft in drafts)
        expect = changes[0] if len(changes) == 1 and isinstance(changes[0], Expect) else None
        alone = not changes or (expect is not None and expect.branch == branch)
        if at is None and alone and not covers and not self.database.in_transaction:
            call = AppendCall(branch, drafts, ids, turn, known, vectors, epoch, expect)
            appended = self._append_at_once(session, call)
            if appended is not None:
                return appended
        return self._append_locked(
            session, branch, drafts, at=at, turn=turn, changes=changes, vectors=vectors, epoch=epoch
        )

    def _append_at_once(self, session: int, call: AppendCall) -> Appended | None:
        try:
            return self._append_at_once_or_again(session, call)
        except StoreUnavailableError as error:
            if not call.unanswered or not isinstance(error.__cause__, psycopg.Error):
                raise
            raise unknown_outcome(error.__cause__) from None

    @repeating
    def _append_at_once_or_again(self, session: int, call: AppendCall) -> Appended | None:
        with self._reading() as rows:
            return rows.append_at_once(session, call)

    @repeating
    def overview(self, *user_ids: str | None, limit: int = ALL) -> list[SessionInfo]:
        """See `Store`."""
        with self._reading() as rows:
            return rows.overview(user_ids, limit)

    @repeating
    def stored(self, session: int) -> list[tuple[Position, str]]:
        """See `Store`."""
        with self._reading() as rows:
            return rows.stored(session)

    @repeating
    def count(self, session: int, stretches: Collection[Stretch]) -> int:
        """See `Store`."""
        with self._reading() as rows:
            return rows.count(session, stretches)

    @repeating
    def catch_up(
        self, session: int, branch: str | None, after_seq: int, limit: int
    ) -> tuple[SessionState, list[Record]]:
        """See `Store`."""
        with self._reading() as rows:
            return rows.catch_up(session, branch, after_seq, limit)

    @repeating
    def check_out(
        self, session: int, branch: str | None, at: Position | None, *, after_seq: int, limit: int, newest: int,
        known: Mapping[int, Segment] = MappingProxyType({}),
    ) -> CheckedOut:  # fmt: skip
        """See `Store`."""
        with self._reading() as rows:
            return rows.check_out(session, branch, at, after_seq=after_seq, limit=limit, newest=newest, known=known)

    @repeating
    def main_changes(self, user_id: str | None, since: Mark | None = None) -> MainChanges:
        """See `Store`. What a transaction has seen of itself may be undone: it gets no mark."""
        undoable = self.database.in_transaction
        with self._reading() as rows:
            found = rows.main_changes(user_id, None if undoable else since)
        return found._replace(mark=None) if undoable else found

    @repeating
    def main_news(self, wanted: Mapping[int, tuple[int, int]], space: str | None = None) -> dict[int, MainNews]:
        """See `Store`."""
        with self._reading() as rows:
            return rows.main_news(wanted, space)

    @repeating
    def at(self, wanted: Mapping[int, Sequence[Position]], epochs: Mapping[int, int]) -> dict[int, list[Record]] | None:
        """See `Store`."""
        with self._reading() as rows:
            return rows.at_epochs(wanted, epochs)

    @repeating
    def known_vectors(self, session: int, space: str, hashes: Mapping[Position, str]) -> list[VectorRow]:
        """See `Store`."""
        with self._reading() as rows:
            return rows.known_vectors(session, space, hashes)

    @repeating
    def forgotten_since(self, session: int, epoch: int) -> Forgotten | None:
        """See `Store`."""
        with self._reading() as rows:
            return rows.forgotten_since(session, epoch)

    def keep(self, session: int, derived: Derived, epoch: int | None = None) -> bool:
        """See `Store`."""
        if isinstance(derived, VectorRows):  # the call may be repeated, an iterator cannot
            return session in self._keep_vectors(derived.space, {session: list(derived.rows)}, {session: epoch})
        if isinstance(derived, Snapshot):
            return self._keep_snapshot(session, derived, epoch)
        return self._keep(session, derived, epoch)

    def keep_vectors(
        self, space: str, rows: Mapping[int, Sequence[VectorRow]], epochs: Mapping[int, int]
    ) -> frozenset[int]:
        """See `Store`."""
        return self._keep_vectors(space, rows, epochs)

    @repeating
    def _keep_vectors(
        self, space: str, rows: Mapping[int, Sequence[VectorRow]], epochs: Mapping[int, int | None]
    ) -> frozenset[int]:
        with self._at_once() as tables:
            return tables.put_vectors_of(space, rows, epochs)

    @repeating
    def _keep_snapshot(self, session: int, snapshot: Snapshot, epoch: int | None) -> bool:
        with self._at_once() as tables:
            return tables.put_snapshot_at(session, snapshot, epoch)

    def _at_once(self) -> AbstractContextManager[PostgresTables]:
        """Enter a block for a call of `Statements.at_once`; within `transaction`, a part that is undone alone."""
        return self._writing() if self.database.in_transaction else self._reading()

    def scrub(self) -> str | None:
        """Have the server free the space of erased rows, in the partitions of the sessions that have lost something.

        The log, standbys and backups keep theirs.
        """
        if self._user is not None:
            return "under row security, only the owner of the tables can vacuum them: call scrub() of a store it opened"
        try:
            self._vacuum()
        except StoreUnavailableError as error:
            return f"{error}; call scrub()"
        return None

    def _vacuum(self) -> None:
        with self._reading() as rows:
            due = rows.to_scrub()
        for part in sorted({name for _, _, name in due}):
            tables = ", ".join(f"{{s}}.{table}{part}" for table in SCRUBBED)
            self.database.outside(f"VACUUM (INDEX_CLEANUP ON) {tables}")
        if due:
            with self._writing() as rows:
                rows.note_scrubbed([(session, epoch) for session, epoch, _ in due])

    @contextmanager
    def inspecting(self) -> Iterator[PostgresInspector]:
        """Enter a block in which the rows may be counted, for as long as it takes."""
        with self._writing() as rows:
            rows.run("SET LOCAL statement_timeout = 0", None)
            yield PostgresInspector(rows.statements, self.database.schema_name)

    @repeating
    def faults(self) -> list[str]:
        """See `Store`."""
        with self.database.reading(self._user) as statements:
            return PostgresInspector(statements, self.database.schema_name).faults()

    @repeating
    def identity(self) -> str:
        """See `Store`."""
        with self.database.reading() as statements:
            ((cluster, database),) = statements.run(_IDENTITY, None)
        return f"postgresql {cluster} {database} {self.database.schema_name}"

    def close(self) -> None:
        """See `Store`."""
        self.database.close()

    session = repeating(TreeStore.session)
    sessions = repeating(TreeStore.sessions)
    users = repeating(TreeStore.users)
    sessions_named = repeating(TreeStore.sessions_named)
    sessions_with = repeating(TreeStore.sessions_with)
    rename_session = repeating(TreeStore.rename_session)
    state = repeating(TreeStore.state)
    main_states = repeating(TreeStore.main_states)
    stats = repeating(TreeStore.stats)
    segment = repeating(TreeStore.segment)
    segments = repeating(TreeStore.segments)
    branches = repeating(TreeStore.branches)
    refs = repeating(TreeStore.refs)
    change = repeating(TreeStore.change)
    _append_locked = repeating(TreeStore.append)
    restore = repeating(TreeStore.restore)
    get = repeating(TreeStore.get)
    newest = repeating(TreeStore.newest)
    find = repeating(TreeStore.find)
    covers = repeating(TreeStore.covers)
    forget = repeating(TreeStore.forget)
    forgotten = repeating(TreeStore.forgotten)
    are_forgotten = repeating(TreeStore.are_forgotten)
    _keep = repeating(TreeStore.keep)
    _vectors_after = repeating(TreeStore._vectors_after)
    spaces = repeating(TreeStore.spaces)
    snapshot = repeating(TreeStore.snapshot)
    summaries = repeating(TreeStore.summaries)


def _schema_name(name: str) -> str:
    encoded = name_value("schema", name).encode("utf-8", "surrogatepass")
    if len(encoded) > _NAME_BYTES or "\0" in name or any("\ud800" <= one <= "\udfff" for one in name):
        raise ValueError(f"schema={name!r}: expected a name of at most {_NAME_BYTES} bytes that PostgreSQL can hold")
    return name
