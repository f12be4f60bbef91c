"""How damage to a file is noticed where rows are read: checksums tell what has changed, and gaps what is missing.

Gaps note which positions and numbers hold no message on purpose, so that any other that is missing is noticed.
"""

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from shared_core.stores.gaps import Range, without
from shared_core.stores.row_values import WRONG, DamagedRow

ADVICE = (
    "the file is damaged: restore it from a backup, or run `infinite-memory doctor`, which lists what is damaged and "
    "saves the rest"
)
"""What to do about damage."""


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


def damaged(what: str, why: str = WRONG) -> DamagedRow:
    """Return the error that says what is damaged, and what to do."""
    return DamagedRow(what, why, ADVICE)


def _decoded(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")


# Gaps of one segment never overlap, so at most one begins before a range and reaches into it.
_GAPS_IN = (
    "SELECT start, upto FROM gaps WHERE session = ?1 AND segment = ?2 AND start <= ?4 AND start >= coalesce("
    "(SELECT max(start) FROM gaps WHERE session = ?1 AND segment = ?2 AND start <= ?3), ?3) ORDER BY start"
)


def unexplained(connection: sqlite3.Connection, session: int, segment: int, ranges: Sequence[Range]) -> list[Range]:
    """Return which of some ascending ranges without messages are not noted as gaps."""
    if not ranges:
        return []
    found = connection.execute(_GAPS_IN, (session, segment, ranges[0][0], ranges[-1][1])).fetchall()
    return without(ranges, found)


def note(connection: sqlite3.Connection, session: int, segment: int, ranges: Sequence[Range]) -> None:
    """Note ascending ranges as gaps."""
    rows = [(session, segment, *one) for one in unexplained(connection, session, segment, ranges)]
    connection.executemany("INSERT INTO gaps VALUES (?, ?, ?, ?)", rows)
