"""What runs the statements of one transaction, and locks a session before anything of it is read."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import psycopg
from psycopg.pq import TransactionStatus
from psycopg.sql import Literal

from shared_core.stores.postgres.connections import Connection
from shared_core.stores.postgres.postgres_schema import USER
from shared_core.stores.statements import Many, Marks, Rows, Statement, columns_of_messages, expanded

LIFE = "coalesce(extract(epoch FROM (SELECT stats_reset FROM pg_stat_bgwriter))::text, '')"
"""Tells one life of a server from the next: statistics begin anew after a crash, and a standby has its own.

What a server had not written to its log when it crashed is gone, the numbers of transactions, too. Its next life gives
them to others: a number means one transaction within a life only.
"""

_BEGIN = f"BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE; SELECT pg_current_xact_id()::text, {LIFE}"
_FOR = f"SELECT set_config('{USER}', %s, true)"
_LOCK = "; SELECT 1 FROM {s}.sessions WHERE session = %d FOR NO KEY UPDATE"


NO_USER = ""
"""What a transaction is told under row security if no user is set: it sees nothing."""


_SAYING = (
    "SELECT {columns} FROM unnest(%(fingerprints)s::bigint[]) AS w (fingerprint), LATERAL (SELECT * "
    "FROM {s}.messages AS n WHERE n.session = %(session)s AND n.fingerprint = w.fingerprint "
    "ORDER BY n.seq DESC LIMIT %(limit)s) AS m ORDER BY m.seq"
)


def _table(name: str, *columns: str) -> str:
    arrays = ", ".join(f"%({name}_{number})s::bigint[]" for number in range(len(columns)))
    return f"unnest({arrays}) WITH ORDINALITY AS w ({', '.join(columns)}, n)"


_MARKS: Marks = {
    "names": lambda: "{s}.names",
    "ordinal": lambda: "{next}",
    "in": lambda kind, name: f"= ANY(%({name})s::{kind}[])",
    "each": lambda kind, name, column: f"unnest(%({name})s::{kind}[]) AS w ({column})",
    "rows": _table,
    "by": lambda index: "",
    "unindexed": lambda: "",
    "columns": lambda: columns_of_messages("m"),
    "texts": lambda: "",
    "content": lambda: "m.content",
    "live": lambda vector: "",
    "tip": lambda segment: f"{segment}.tip",
    "last": lambda session: f"{session}.last_seq",
    "version": lambda session: f"{session}.version",
    "whole": lambda session: "true",
    "saying": lambda: _SAYING,
}


class Schema:
    """Puts the name of a schema into statements, in place of `{s}`, and the next free number in place of `{next}`.

    Args:
        name: of the schema, as it is.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        quoted = '"' + name.replace('"', '""') + '"'
        sequence = f"{quoted}.numbers".replace("'", "''")
        self._places = {"{s}": quoted, "{next}": f"nextval('{sequence}')"}
        self._known: dict[str, str] = {}

    def plain(self, sql: str) -> str:
        """Return a statement without values."""
        for mark, place in self._places.items():
            sql = sql.replace(mark, place)
        return sql

    def __call__(self, sql: str) -> str:
        """Return a statement with values, in which every other percent sign is doubled."""
        found = self._known.get(sql)
        if found is None:
            found = expanded(sql, _MARKS)
            for mark, place in self._places.items():
                found = found.replace(mark, place.replace("%", "%%"))
            self._known[sql] = found
        return found


def given_values(session: int | None, values: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the values of a statement as psycopg takes them: a table of numbers by its columns."""
    given: dict[str, Any] = {"session": session}
    for name, value in (values or {}).items():
        if isinstance(value, Many):
            given |= {f"{name}_{number}": [row[number] for row in value.rows] for number in range(value.width)}
        else:
            given[name] = value
    return given


class Statements:
    """Runs statements in which `{s}` is the schema and `%(name)s` a value, one by one; each sees one moment.

    Args:
        connection: in autocommit mode.
        schema: the tables are in it.
        user: whom each transaction is for, see `row_security.setting_of`; None: there is no row security.
    """

    def __init__(self, connection: Connection, schema: Schema, user: str | None = None) -> None:
        self._connection = connection
        self._schema = schema
        self._user = user

    def run(self, sql: str, session: int | None, values: Mapping[str, Any] | None = None) -> Rows:
        """Return the rows of a statement, which names the session it is about; an empty list if it returns none."""
        if self._user is not None:  # a transaction, which alone can be told the user
            return self.together([Statement(sql, session, values or {})])[0]
        return self._run(sql, session, values)

    def _run(self, sql: str, session: int | None, values: Mapping[str, Any] | None) -> Rows:
        cursor = self._execute(sql, session, values)
        return cursor.fetchall() if cursor.description else []

    def count(self, sql: str, session: int | None, values: Mapping[str, Any] | None = None) -> int:
        """Return how many rows a statement found or changed."""
        return self._execute(sql, session, values).rowcount

    def together(self, statements: Sequence[Statement]) -> list[Rows]:
        """Return the rows of several statements that see the same moment, in one round trip."""
        return self._sent("ISOLATION LEVEL REPEATABLE READ READ ONLY", statements)

    def at_once(self, statements: Sequence[Statement]) -> list[Rows]:
        """Run statements one after the other in one round trip, in a transaction of their own; return their rows."""
        return self._sent("ISOLATION LEVEL READ COMMITTED READ WRITE", statements)

    def _sent(self, how: str, statements: Sequence[Statement]) -> list[Rows]:
        with self._connection.pipeline():
            self._connection.execute(f"BEGIN {how}")
            if self._user is not None:
                self._connection.execute(_FOR, (self._user,))
            cursors = [self._execute(*statement) for statement in statements]
            self._connection.execute("COMMIT")
        return [cursor.fetchall() if cursor.description else [] for cursor in cursors]

    def _execute(
        self, sql: str, session: int | None, values: Mapping[str, Any] | None
    ) -> "psycopg.Cursor[tuple[object, ...]]":
        return self._connection.execute(self._schema(sql), given_values(session, values), binary=True)


class Writer(Statements):
    """Runs statements in a transaction, which begins with the first of them.

    The first statement on a session is preceded by one that locks its row: a statement sees what was committed before
    it began, so that one which waits for the lock itself would go on with what it saw before.
    """

    def __init__(self, connection: Connection, schema: Schema, user: str | None = None) -> None:
        super().__init__(connection, schema, user)
        self.number: str | None = None
        """The number of the transaction, None before its first statement."""
        self.life: str | None = None
        """The life of the server that gave the number, see `LIFE`."""
        self._locked: frozenset[tuple[str | None, int | None]] = frozenset()

    def run(self, sql: str, session: int | None, values: Mapping[str, Any] | None = None) -> Rows:
        return self._run(sql, session, values)

    @contextmanager
    def being_for(self, user: str | None) -> Iterator[None]:
        """Enter a block that is for another user, as a transaction may join what is done for several."""
        before = self._user
        self._be_for(user)
        try:
            yield
        finally:
            self._be_for(before)

    def _be_for(self, user: str | None) -> None:
        begun = self.number is not None and self._connection.info.transaction_status == TransactionStatus.INTRANS
        if user != self._user and begun:
            self._connection.execute(_FOR, (user,))
        self._user = user

    def _execute(
        self, sql: str, session: int | None, values: Mapping[str, Any] | None
    ) -> "psycopg.Cursor[tuple[object, ...]]":
        self._prepare(session)
        return super()._execute(sql, session, values)

    def _prepare(self, session: int | None) -> None:
        own = (self._user, session)  # a user who does not see a session has not locked it
        lock = "" if session is None or own in self._locked else self._schema(_LOCK) % session
        if self.number is None:
            user = "" if self._user is None else f"; {_FOR % Literal(self._user).as_string(self._connection)}"
            cursor = self._connection.execute(_BEGIN + user + lock)
            cursor.nextset()
            ((number, life),) = cursor.fetchall()
            self.number, self.life = str(number), str(life)
        elif lock:
            self._connection.execute(lock.removeprefix("; "))
        if session is not None:
            self._locked |= {own}

    def together(self, statements: Sequence[Statement]) -> list[Rows]:
        """Run statements one by one; the sessions are locked, so that what they hold stays the same."""
        return [self.run(*statement) for statement in statements]

    at_once = together

    @contextmanager
    def part(self) -> Iterator[None]:
        """Enter a part of the transaction, which is undone alone if an exception leaves the block."""
        self._prepare(None)
        before = self._locked
        self._connection.execute("SAVEPOINT part")
        try:
            yield
        except BaseException:
            if not self._connection.broken:
                self._connection.execute("ROLLBACK TO part; RELEASE part")
                self._locked = before  # the locks are gone, too
            raise
        self._connection.execute("RELEASE part")

    def commit(self) -> None:
        """Make everything happen."""
        if self.number is not None:
            self._connection.execute("COMMIT")

    def undo(self) -> None:
        """Undo everything."""
        if self.number is not None and not self._connection.broken:
            self._connection.execute("ROLLBACK")


def columns(rows: Sequence[tuple[Any, ...]], names: Sequence[str]) -> dict[str, list[Any]]:
    """Return the columns of some rows by name, as a statement takes many rows at once."""
    return {name: [row[number] for row in rows] for number, name in enumerate(names)}
