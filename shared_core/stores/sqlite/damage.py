"""Texts that are not UTF-8, as damage leaves them: they are read all the same, so that their rows can be named."""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager


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
