"""One SQLite transaction, or a part of one: kept when the block ends, rolled back when an exception leaves it."""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["savepoint", "transaction"]


@contextmanager
def transaction(connection: sqlite3.Connection, *, write: bool) -> Iterator[None]:
    """Begin a transaction of a connection in autocommit mode.

    Args:
        connection: made with `isolation_level=None`.
        write: take the write lock at once, so that nothing read in the block can change before it is written.
    """
    connection.execute("BEGIN IMMEDIATE" if write else "BEGIN")
    try:
        yield
        connection.execute("COMMIT")
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")


@contextmanager
def savepoint(connection: sqlite3.Connection) -> Iterator[None]:
    """Begin a part of a transaction that is undone alone when an exception leaves the block."""
    connection.execute("SAVEPOINT part")
    try:
        yield
    except BaseException:
        if connection.in_transaction:  # SQLite may have rolled back all of it, as when the disk is full
            connection.execute("ROLLBACK TO part")
            connection.execute("RELEASE part")
        raise
    connection.execute("RELEASE part")
