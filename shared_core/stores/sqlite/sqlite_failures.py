"""What SQLite's errors mean, and texts that are not UTF-8, as damage leaves them."""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager

from shared_core.stores.row_values import ADVICE

SQLITE_ERRORS = (sqlite3.Error, OverflowError, UnicodeDecodeError)
"""SQLite's errors; a number that it has no room for is an OverflowError, a damaged text in one of its own messages a
UnicodeDecodeError."""


def _code(error: Exception) -> int:
    return getattr(error, "sqlite_errorcode", 0) & 0xFF


def is_busy(error: Exception) -> bool:
    """Return whether another connection held the database for longer than this one waits."""
    return _code(error) in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


def advice(error: Exception) -> str:
    """Return what to do about an error."""
    if isinstance(error, UnicodeDecodeError) or (isinstance(error, sqlite3.Error) and is_undecodable(error)):
        return ADVICE
    if is_busy(error):
        return "another process holds it; try again"
    # Our statements are right: one that SQLite does not understand, or that breaks a rule which `SQLiteRows` does not
    # expect, meets a schema or an index that is damaged.
    if _code(error) in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR, sqlite3.SQLITE_CONSTRAINT):
        return ADVICE
    return "check the disk space and the permissions"


@contextmanager
def lenient(connection: sqlite3.Connection) -> Iterator[None]:
    """Enter a block in which a text that is not UTF-8 is read all the same, so that its row can be named."""
    before = connection.text_factory
    read_leniently(connection)
    try:
        yield
    finally:
        connection.text_factory = before


def read_leniently(connection: sqlite3.Connection) -> None:
    """Have a connection read texts that are not UTF-8 all the same."""
    connection.text_factory = _decoded


def is_undecodable(error: sqlite3.Error) -> bool:
    """Return whether a statement failed because a stored text is not UTF-8."""
    return str(error).startswith("Could not decode to UTF-8")


def _decoded(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")
