"""The store for many workers: one PostgreSQL database that all of them share."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import wraps
from types import MappingProxyType
from typing import Concatenate, ParamSpec, TypeVar

import psycopg

from shared_core.arguments import in_range, name_value, whole_number
from shared_core.errors import StoreUnavailableError
from shared_core.records import (
    Appended,
    Change,
    CheckedOut,
    Derived,
    Draft,
    KnownBranch,
    MainNews,
    Position,
    Record,
    Segment,
    SessionInfo,
    SessionState,
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
from shared_core.stores.postgres.joint_reads import JointReads
from shared_core.stores.postgres.schema import TABLES
from shared_core.stores.postgres.stages import abandoned, insert_stage, name_stages, remove_part
from shared_core.stores.tree_rules import begin, checked_ids
from shared_core.stores.tree_store import TreeStore

SCHEMA = "infinite_memory"
"""The schema that the tables are in, unless another is given."""

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
        retry_seconds: how long a call is repeated, and waits for a connection.
        prepare: whether statements that come often are prepared. Set it to False behind PgBouncer before 1.21.

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
    ) -> None:
        if statement_timeout is not None:
            in_range("statement_timeout", statement_timeout, 0.001, 10**6)
        if partitions is not None and whole_number("partitions", partitions, least=1) > _MOST_PARTITIONS:
            raise ValueError(f"partitions={partitions}: expected at most {_MOST_PARTITIONS}")
        self.database = Database(
            Address(address, statement_timeout=statement_timeout),
            schema=_schema_name(schema),
            pool_size=whole_number("pool_size", pool_size, least=1),
            partitions=partitions,
            retry_seconds=in_range("retry_seconds", retry_seconds, 0, 10**6),
            prepare=prepare,
        )

    @contextmanager
    def _reading(self) -> Iterator[PostgresTables]:
        with self.database.reading() as statements:
            yield PostgresTables(statements)

    @contextmanager
    def _writing(self) -> Iterator[PostgresTables]:
        with self.database.writing() as statements:
            yield PostgresTables(statements)

    def _size(self) -> int:
        with self.database.reading() as statements:
            return int(statements.run("SELECT pg_database_size(current_database())", None)[0][0])

    def transaction(self) -> AbstractContextManager[None]:
        """See `Store`. Readers in other threads go on with what was there before."""
        return self.database.joining()

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
        if at is None and not changes and not covers and not self.database.in_transaction:
            call = AppendCall(branch, drafts, ids, turn, known, vectors, epoch)
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
    def stage(self) -> int | None:
        """See `Store`."""
        with self._writing() as rows:
            session = insert_stage(rows)
            begin(rows, session)
            left = abandoned(rows)
        self.unstage(left)
        return session

    @repeating
    def publish(self, names: Mapping[int, tuple[str | None, str]]) -> bool:
        """See `Store`."""
        with self._writing() as rows:
            return name_stages(rows, names)

    def unstage(self, sessions: Collection[int]) -> None:
        """See `Store`."""
        for session in sessions:
            while not self._removed(session):
                pass

    @repeating
    def _removed(self, session: int) -> bool:
        with self._writing() as rows:
            return remove_part(rows, session)

    def keep(self, session: int, derived: Derived, epoch: int | None = None) -> bool:
        """See `Store`."""
        if isinstance(derived, VectorRows):  # the call may be repeated, an iterator cannot
            derived = derived._replace(rows=list(derived.rows))
        return self._keep(session, derived, epoch)

    def scrub(self) -> str | None:
        """Remove erased rows from the tables and from where they lie; the log, standbys and backups keep theirs."""
        for table in TABLES:
            self.database.outside(f"VACUUM (INDEX_CLEANUP ON) {{s}}.{table}")
        return None

    def close(self) -> None:
        """See `Store`."""
        self.database.close()

    session = repeating(TreeStore.session)
    sessions = repeating(TreeStore.sessions)
    users = repeating(TreeStore.users)
    sessions_named = repeating(TreeStore.sessions_named)
    rename_session = repeating(TreeStore.rename_session)
    state = repeating(TreeStore.state)
    main_states = repeating(TreeStore.main_states)
    stats = repeating(TreeStore.stats)
    segment = repeating(TreeStore.segment)
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
