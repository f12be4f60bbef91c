"""The store for many workers: one PostgreSQL database that all of them share."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from copy import copy
from weakref import WeakValueDictionary

import psycopg

from shared_core.arguments import in_range, name_value, whole_number
from shared_core.errors import StoreUnavailableError
from shared_core.records import (
    Appended,
    Change,
    Derived,
    Draft,
    Expect,
    KnownBranch,
    MainChanges,
    MainNews,
    Mark,
    Position,
    Record,
    Snapshot,
    VectorRow,
    VectorRows,
)
from shared_core.stores.postgres.address import Address
from shared_core.stores.postgres.appends import AppendCall, Appends
from shared_core.stores.postgres.database import Database
from shared_core.stores.postgres.joint_reads import JointReads
from shared_core.stores.postgres.postgres_failures import unknown_outcome
from shared_core.stores.postgres.postgres_schema import SCHEMA, SCRUBBED
from shared_core.stores.postgres.row_security import setting_of
from shared_core.stores.postgres.transactions import NO_USER
from shared_core.stores.sql_rows import Result, SqlStore
from shared_core.stores.tree_rules import checked_ids

_IDENTITY = (
    "SELECT (SELECT system_identifier FROM pg_control_system())::text, "
    "(SELECT oid FROM pg_database WHERE datname = current_database())::text"
)

_NAME_BYTES = 63
_MOST_PARTITIONS = 1024


class AllTables(Appends, JointReads):
    """All tables of a database, and all ways to ask them."""


class PostgresStore(SqlStore):
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
        """Return this store without row security; with it, one object for each user that somebody still uses."""
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
        return self._pool_size

    def _read(self, ask: Callable[[AllTables], Result]) -> Result:
        def call() -> Result:
            with self.database.reading(self._user) as statements:
                return ask(AllTables(statements))

        return self.database.repeated(call)

    def _write(self, act: Callable[[AllTables], Result]) -> Result:
        def call() -> Result:
            with self.database.writing(self._user) as statements:
                return act(AllTables(statements))

        return self.database.repeated(call)

    def _at_once(self, act: Callable[[AllTables], Result]) -> Result:
        """Return what a call of `Statements.at_once` does; within `transaction`, a part that is undone alone."""
        return self._write(act) if self.database.in_transaction else self._read(act)

    def size(self) -> int:
        return self._read(lambda rows: int(rows.run("SELECT pg_database_size(current_database())", None)[0][0]))

    def main_news(self, wanted: Mapping[int, tuple[int, int]], space: str | None = None) -> dict[int, MainNews]:
        return self._read(lambda rows: rows.main_news(wanted, space))

    def at(self, wanted: Mapping[int, Sequence[Position]], epochs: Mapping[int, int]) -> dict[int, list[Record]] | None:
        return self._read(lambda rows: rows.at_epochs(wanted, epochs))

    def main_changes(self, user_id: str | None, since: Mark | None = None) -> MainChanges:
        """Return what has changed; what a transaction has seen of itself may be undone: it gets no mark."""
        if self.database.in_transaction:
            return super().main_changes(user_id)._replace(mark=None)
        return super().main_changes(user_id, since)

    def transaction(self) -> AbstractContextManager[None]:
        """Enter a transaction; readers in other threads go on with what was there before."""
        return self.database.joining(self._user)

    def append(
        self, session: int, branch: str, drafts: Sequence[Draft], *, at: Position | None = None,
        turn: str | None = None, changes: Sequence[Change] = (), known: KnownBranch | None = None,
        vectors: VectorRows | None = None, epoch: int | None = None,
    ) -> Appended:  # fmt: skip
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
        return super().append(session, branch, drafts, at=at, turn=turn, changes=changes, vectors=vectors, epoch=epoch)

    def _append_at_once(self, session: int, call: AppendCall) -> Appended | None:
        try:
            return self._read(lambda rows: rows.append_at_once(session, call))
        except StoreUnavailableError as error:
            if not call.unanswered or not isinstance(error.__cause__, psycopg.Error):
                raise
            raise unknown_outcome(error.__cause__) from None

    def keep(self, session: int, derived: Derived, epoch: int | None = None) -> bool:
        if isinstance(derived, VectorRows):  # the call may be repeated, an iterator cannot
            rows = {session: list(derived.rows)}
            return session in self._at_once(lambda tables: tables.put_vectors_of(derived.space, rows, {session: epoch}))
        if isinstance(derived, Snapshot):
            return self._at_once(lambda tables: tables.put_snapshot_at(session, derived, epoch))
        return super().keep(session, derived, epoch)

    def keep_vectors(
        self, space: str, rows: Mapping[int, Sequence[VectorRow]], epochs: Mapping[int, int]
    ) -> frozenset[int]:
        return self._at_once(lambda tables: tables.put_vectors_of(space, rows, epochs))

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
        due = self._read(AllTables.to_scrub)
        for part in sorted({name for _, _, name in due}):
            tables = ", ".join(f"{{s}}.{table}{part}" for table in SCRUBBED)
            self.database.outside(f"VACUUM (INDEX_CLEANUP ON) {tables}")
        if due:
            self._write(lambda rows: rows.note_scrubbed([(session, epoch) for session, epoch, _ in due]))

    @contextmanager
    def inspecting(self) -> Iterator[AllTables]:
        with self.database.writing(self._user) as statements:
            statements.run("SET LOCAL statement_timeout = 0", None)
            yield AllTables(statements)

    def faults(self) -> list[str]:
        return self._read(AllTables.faults)

    def identity(self) -> str:
        ((cluster, database),) = self._read(lambda rows: rows.run(_IDENTITY, None))
        return f"postgresql {cluster} {database} {self.database.schema_name}"

    def close(self) -> None:
        self.database.close()


def _schema_name(name: str) -> str:
    if len(name_value("schema", name).encode()) > _NAME_BYTES:
        raise ValueError(f"schema={name!r}: expected a name of at most {_NAME_BYTES} bytes that PostgreSQL can hold")
    return name
