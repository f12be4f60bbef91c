"""Bringing a schema to the newest version: once, however many processes start, and never somebody else's."""

from typing import Any, NamedTuple

from shared_core.errors import StoreError
from shared_core.stores.postgres.connections import Connection
from shared_core.stores.postgres.postgres_schema import MIGRATIONS, RECORD, TABLES, Migration
from shared_core.stores.postgres.row_security import grant_again
from shared_core.stores.postgres.transactions import Schema

OLDEST_SERVER = 150_000
"""The oldest server: PostgreSQL 15 is the first in which two sessions of nobody cannot have one name."""

_LOOK = (
    "SELECT (SELECT count(*) FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace "
    "WHERE n.nspname = %(name)s), EXISTS (SELECT 1 FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace "
    f"WHERE n.nspname = %(name)s AND c.relname = '{RECORD}')"
)
_SERVER = "SELECT pg_is_in_recovery(), current_setting('default_transaction_read_only')"
_RECORD = (
    f"CREATE TABLE {{s}}.{RECORD} (version integer PRIMARY KEY, name text NOT NULL, oldest integer NOT NULL, "
    "partitions integer NOT NULL, applied_at timestamptz NOT NULL DEFAULT now())"
)
_VERSIONS = f"SELECT version, oldest, partitions FROM {{s}}.{RECORD} ORDER BY version"


class Layout(NamedTuple):
    """The state of a schema: its version, the oldest version that may use it, and into how many parts it is split."""

    version: int
    oldest: int
    partitions: int | None


def migrate(connection: Connection, schema: Schema, label: str, partitions: int | None) -> None:
    """Bring a schema to the newest version; each step and its record are one transaction.

    Args:
        connection: in autocommit mode.
        schema: it is created if it does not exist.
        label: names the database in errors.
        partitions: how many parts the tables are split into; None: as it is, or 1 for a new schema.

    Raises:
        StoreError: the server or the schema cannot be used. Nothing is written.
    """
    refuse_server(connection, label)
    while (layout := layout_of(connection, schema, label)).version < len(MIGRATIONS):
        with connection.transaction():
            lock = f"SELECT pg_advisory_xact_lock(hashtextextended({_literal('infinite_memory ' + schema.name)}, 0))"
            connection.execute(lock)
            # Another process may have done this step while this one waited for the lock.
            now = layout_of(connection, schema, label)
            if now.version == layout.version:
                _apply(connection, schema, now, MIGRATIONS[now.version], partitions or 1)
    if partitions is not None and layout.partitions != partitions:
        raise StoreError(
            f"the schema {schema.name!r} of {label} is split into {layout.partitions} partitions, not {partitions}, "
            "and stays so; leave the argument out, or export to a new schema"
        )


def check(connection: Connection, schema: Schema, label: str) -> bool:
    """Return whether the schema is there; raise StoreError if it has become too new for this program."""
    return layout_of(connection, schema, label).version > 0


def refuse_server(connection: Connection, label: str) -> None:
    """Raise StoreError if a server cannot hold our tables."""
    rows: list[Any] = connection.execute(_SERVER).fetchall()
    standby, read_only = rows[0]
    encoding = connection.info.parameter_status("server_encoding") or ""
    why = unfit(connection.info.server_version, encoding, standby=standby, read_only=read_only == "on")
    if why is not None:
        raise StoreError(f"{label} {why}")


def unfit(version: int, encoding: str, *, standby: bool, read_only: bool) -> str | None:
    """Return why a server cannot hold our tables, and what to do; None: it can.

    Args:
        version: of the server, as libpq counts: 150_004 is 15.4.
        encoding: of the database.
        standby: whether the server follows another.
        read_only: whether transactions are read-only unless they say otherwise.
    """
    if version < OLDEST_SERVER:
        return f"is PostgreSQL {version // 10_000}; use version {OLDEST_SERVER // 10_000} or newer"
    if encoding != "UTF8":
        return f"has the encoding {encoding}; create the database with ENCODING 'UTF8'"
    if standby:
        return "is a read-only standby; give the address of the primary"
    if read_only:
        return "is read-only: default_transaction_read_only is on; turn it off for this role or database"
    return None


def layout_of(connection: Connection, schema: Schema, label: str) -> Layout:
    """Return the state of a schema; version 0 if it is empty or does not exist.

    Raises:
        StoreError: it belongs to another program, or to a version that this one cannot work with.
    """
    ((tables, ours),) = connection.execute(_LOOK, {"name": schema.name}).fetchall()
    if not ours and tables:
        raise StoreError(
            f"the schema {schema.name!r} of {label} belongs to another program; nothing was written to it: give "
            "another schema"
        )
    steps: list[Any] = connection.execute(schema.plain(_VERSIONS)).fetchall() if ours else []
    if not steps:
        return Layout(0, 0, None)
    version, _, partitions = steps[-1]
    oldest = max(oldest for _, oldest, _ in steps)
    if version > len(MIGRATIONS) and oldest > len(MIGRATIONS):
        raise StoreError(
            f"the schema {schema.name!r} of {label} was changed by a newer version of this package (schema {version}, "
            f"for programs from {oldest} on, known here: {len(MIGRATIONS)}); upgrade infinite-memory"
        )
    return Layout(version, oldest, partitions)


def _apply(connection: Connection, schema: Schema, before: Layout, step: Migration, partitions: int) -> None:
    partitions = before.partitions or partitions
    if not before.version:
        connection.execute(schema.plain("CREATE SCHEMA IF NOT EXISTS {s}"))
        connection.execute(schema.plain(_RECORD))
    for statement in step.statements:
        by_session = "" if partitions == 1 else "PARTITION BY HASH (session)"
        connection.execute(schema.plain(statement.replace("{by_session}", by_session)))
        for part in _parts(statement, partitions):
            connection.execute(schema.plain(part))
    if before.version + 1 == len(MIGRATIONS):
        grant_again(connection, schema)
    record = f"INSERT INTO {{s}}.{RECORD} (version, name, oldest, partitions) VALUES (%s, %s, %s, %s)"
    connection.execute(schema(record), (before.version + 1, step.name, step.oldest, partitions))


def _parts(statement: str, partitions: int) -> list[str]:
    """Return what creates the partitions of the table that a statement creates, if it is one of those."""
    table = next((one for one in TABLES if statement.startswith(f"CREATE TABLE {{s}}.{one} ")), None)
    if table is None or partitions == 1:
        return []
    return [
        f"CREATE TABLE {{s}}.{table}_{number} PARTITION OF {{s}}.{table} "
        f"FOR VALUES WITH (MODULUS {partitions}, REMAINDER {number})"
        for number in range(partitions)
    ]


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
