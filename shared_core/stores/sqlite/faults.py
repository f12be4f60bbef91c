"""What SQLite finds wrong with a file."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from shared_core.stores.sqlite.connection import migrate
from shared_core.stores.sqlite.wal import look_into

_LISTED = 20
"""Findings of SQLite that are listed."""

_OBJECTS = "SELECT type, name, tbl_name, sql FROM sqlite_master WHERE name <> 'sqlite_sequence'"


def faults_of(connection: sqlite3.Connection, path: Path | None) -> Iterator[str]:
    """Yield in words what is wrong with the structure of a database, its schema, its references and its log."""
    log = None if path is None else look_into(Path(f"{path}-wal"))
    if log is not None and log.dropped:
        yield f"the write-ahead log cannot be read from frame {log.frames + 1} on, and holds what was stored last"
    try:
        yield from (line for (line,) in connection.execute(f"PRAGMA integrity_check({_LISTED})") if line != "ok")
        # SQLite does not miss an index whose definition is gone, nor a trigger or a view.
        yield from _changed_objects(connection)
        unowned = {(row[0], row[2]) for row in connection.execute("PRAGMA foreign_key_check")}
        yield from (f"rows of {table} belong to no row of {owner}" for table, owner in sorted(unowned))
    except sqlite3.Error as error:
        yield str(error)


def _changed_objects(connection: sqlite3.Connection) -> Iterator[str]:
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as empty:
        migrate(empty, "an empty database")
        expected = _objects(empty)
    there = _objects(connection)
    yield from (f"{kind} {name} is missing" for kind, name in expected.keys() - there.keys())
    changed = [one for one in expected.keys() & there.keys() if there[one] != expected[one]]
    yield from (f"{kind} {name} is not defined as it was made" for kind, name in changed)


def _objects(connection: sqlite3.Connection) -> dict[tuple[str, str], list[str]]:
    """Return the kind and name of each object -> the words of what it belongs to, and of its definition."""
    return {(kind, name): [table, *str(sql).split()] for kind, name, table, sql in connection.execute(_OBJECTS)}
