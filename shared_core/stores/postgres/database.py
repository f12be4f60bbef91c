"""A PostgreSQL database of ours: transactions, what is repeated after a failure, and errors in words."""

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import psycopg
from psycopg.sql import Identifier

from shared_core.errors import StoreError, StoreUnavailableError
from shared_core.stores.postgres.address import Address
from shared_core.stores.postgres.connections import Connection, Connections, Pauses, adapt, pauses
from shared_core.stores.postgres.migrations import check, migrate
from shared_core.stores.postgres.postgres_failures import (
    is_broken,
    is_mistaken,
    is_passing,
    store_error,
    unknown_outcome,
)
from shared_core.stores.postgres.row_security import check_security, grant
from shared_core.stores.postgres.transactions import LIFE, Schema, Statements, Writer

Result = TypeVar("Result")

# A standby may not have come to the number yet.
_STATUS = f"SELECT CASE WHEN NOT pg_is_in_recovery() THEN pg_xact_status(%s::text::xid8) END, {LIFE}"


class Database:
    """A schema of a PostgreSQL database, and the connections to it.

    Args:
        address: where it is.
        schema: the name of the schema; it is created if it does not exist.
        pool_size: the most connections at a time.
        partitions: how many parts the tables are split into when they are created.
        retry_seconds: how long opening, or a call, is repeated that failed because of the connection, or of another
            writer.
        prepare: whether statements are prepared.
        row_security: whether a transaction sees the rows of the user that it is for, see `row_security.setting_of`.

    Raises:
        StoreError: the database cannot be used; the message says why and what to do.
    """

    def __init__(
        self, address: Address, *, schema: str, pool_size: int, partitions: int | None, retry_seconds: float,
        prepare: bool, row_security: bool = False,
    ) -> None:  # fmt: skip
        self._address = address
        self._schema = Schema(schema)
        self._seconds = retry_seconds
        self._prepare = prepare
        self._row_security = row_security
        self._local = threading.local()
        self._connections = Connections(self._connect, size=pool_size, seconds=max(retry_seconds, 1.0))
        try:
            self.repeated(lambda: self._migrate(partitions))
        except BaseException:
            self.close()
            raise

    def _migrate(self, partitions: int | None) -> None:
        with self._errors(opening=True), self._borrowed() as connection:
            migrate(connection, self._schema, self._address.label, partitions)

    @property
    def schema_name(self) -> str:
        """The name of the schema."""
        return self._schema.name

    def _connect(self) -> Connection:
        connection = self._address.connect(prepare=self._prepare)
        try:
            adapt(connection)
            if check(connection, self._schema, self._address.label) or self._row_security:
                check_security(connection, self._schema, self._address.label, wanted=self._row_security)
        except BaseException:
            connection.close()
            raise
        return connection

    @contextmanager
    def _borrowed(self) -> Iterator[Connection]:
        connection = self._connections.take()
        try:
            yield connection
        finally:
            self._connections.give_back(connection)

    @contextmanager
    def reading(self, user: str | None = None) -> Iterator[Statements]:
        """Enter a block for statements, each of which sees one moment; within `joining`, what that has done so far.

        `user`: whom it is for, see `row_security.setting_of`; None: there is no row security.
        """
        writer = self._joined()
        with self._errors():
            if writer is not None:
                with writer.being_for(user):
                    yield writer
                return
            with self._borrowed() as connection:
                yield Statements(connection, self._schema, user)

    @contextmanager
    def writing(self, user: str | None = None) -> Iterator[Writer]:
        """Enter a transaction, undone if an exception leaves the block; within `joining`, a part of that one.

        `user`: as for `reading`.
        """
        writer = self._joined()
        with self._errors():
            if writer is not None:
                with writer.being_for(user), writer.part():
                    yield writer
                return
            with self._borrowed() as connection, self._transaction(Writer(connection, self._schema, user)) as writer:
                yield writer

    @contextmanager
    def _transaction(self, writer: Writer) -> Iterator[Writer]:
        try:
            yield writer
        except BaseException:
            writer.undo()
            raise
        try:
            writer.commit()
        except psycopg.OperationalError as error:
            if not self._has_committed(writer, error):
                raise

    def _has_committed(self, writer: Writer, error: psycopg.OperationalError) -> bool:
        """Return whether a transaction happened whose last answer got lost; raise `error` if nobody can tell."""
        pause = pauses(self._seconds)
        while True:
            self._connections.drop_idle()
            try:
                with self._address.connect(prepare=False) as connection:
                    ((status, life),) = connection.execute(_STATUS, (writer.number,)).fetchall()
            except psycopg.errors.InvalidParameterValue:
                return False  # the server knows no such number: it lost what it had not written
            except psycopg.OperationalError:
                status = life = None
            if status == "aborted":
                return False
            if status == "committed" and life == writer.life:
                return True
            if status == "committed" or not pause.wait():  # in another life, it may be another transaction's number
                raise unknown_outcome(error) from None  # without a cause that would have the call repeated

    @contextmanager
    def joining(self, user: str | None = None) -> Iterator[None]:
        """Enter a transaction that all reads and writes of this thread join until it ends."""
        with self.writing(user) as writer:
            if self._joined() is not None:
                yield
                return
            self._local.joined = os.getpid(), writer
            try:
                yield
            finally:
                self._local.joined = None

    def _joined(self) -> Writer | None:
        joined: tuple[int, Writer] | None = getattr(self._local, "joined", None)
        if joined is None:
            return None
        if joined[0] != os.getpid():
            raise StoreError("this process forked in the middle of a transaction, which is its parent's; begin another")
        return joined[1]

    @property
    def in_transaction(self) -> bool:
        """Whether this thread is within `joining`."""
        return self._joined() is not None

    def outside(self, sql: str) -> None:
        """Run a statement without values and outside of any transaction, such as VACUUM."""
        with self._errors(), self._borrowed() as connection:
            connection.execute(self._schema.plain(sql))

    def grant(self, role: str) -> None:
        """Turn row security on, and let a role use the tables under it."""
        with self._errors(), self._borrowed() as connection, connection.transaction():
            grant(connection, self._schema, Identifier(role).as_string(connection))

    def repeated(self, call: Callable[[], Result]) -> Result:
        """Return what a call returns; repeat it after a failure that passes, but for a part of a transaction."""
        pause: Pauses | None = None
        while True:
            try:
                return call()
            except StoreUnavailableError as error:
                pause = pauses(self._seconds) if pause is None else pause
                if self._joined() is not None or not is_passing(error.__cause__) or not pause.wait():
                    raise

    @contextmanager
    def _errors(self, *, opening: bool = False) -> Iterator[None]:
        try:
            yield
        except (psycopg.Error, OverflowError) as error:
            if is_broken(error):
                self._connections.drop_idle()
            raise store_error(error, self._address.label, mistaken=opening and is_mistaken(error)) from error

    def close(self) -> None:
        """Close all connections; closing twice is fine."""
        self._connections.close()
