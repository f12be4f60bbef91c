"""How damage to a file is noticed where rows are read: checksums tell what has changed, and gaps what is missing.

Gaps note which positions and numbers hold no message on purpose, so that any other that is missing is noticed.
"""

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from shared_core.errors import StoreError
from shared_core.stores.gaps import Range, without
from shared_core.stores.row_values import WRONG, checksum_of

ADVICE = (
    "the file is damaged: restore it from a backup, or run `infinite-memory doctor`, which lists what is damaged and "
    "saves the rest"
)
"""What to do about damage."""

_PAGE = 5_000
"""Rows that get their checksum in one statement."""

_WITHOUT = (
    "SELECT m.session, m.segment, m.depth, m.seq, m.id, m.turn_id, m.turn_no, m.role, m.created_at, m.stays, "
    "m.counter, m.tokens, m.picked_from, t.name, t.content, t.extra FROM messages AS m LEFT JOIN texts AS t "
    "USING (text) WHERE (m.session, m.segment, m.depth) > (?, ?, ?) ORDER BY m.session, m.segment, m.depth LIMIT ?"
)


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


def damaged(what: str, why: str = WRONG) -> StoreError:
    """Return the error that says what is damaged, and what to do."""
    return StoreError(f"{what} cannot be read: {why}; {ADVICE}")


def seal_messages(connection: sqlite3.Connection) -> None:
    """Give every stored message its checksum, in a transaction of the caller's."""
    after: tuple[Any, ...] = (-1, 0, 0)
    with lenient(connection):
        while rows := connection.execute(_WITHOUT, (*after, _PAGE)).fetchall():
            sums = [(checksum_of(row), *row[:3]) for row in rows]
            sql = "UPDATE messages SET checksum = ? WHERE session = ? AND segment = ? AND depth = ?"
            connection.executemany(sql, sums)
            after = rows[-1][:3]


_TREE = {
    "segments": (
        "session, segment, parent_segment, parent_depth, merged_segment, merged_depth, base, turn_shift",
        "session = ?1 AND segment = ?2",
    ),
    "branches": ("session, name, segment, depth", "session = ?1 AND name = ?2"),
    "refs": ("session, kind, name, segment, depth, base_segment, base_depth, note, ref", "ref = ?2 AND ?1"),
}
"""The columns whose checksum a row has, and how the row is found; the number of a ref is not among them."""


def seal_tree(connection: sqlite3.Connection) -> None:
    """Give every segment, branch and ref its checksum, in a transaction of the caller's."""
    with lenient(connection):
        for table, (columns, found) in _TREE.items():
            rows = connection.execute(f"SELECT {columns} FROM {table}").fetchall()
            keys = [(row[0], row[-1] if table == "refs" else row[1]) for row in rows]
            sums = [checksum_of(row[:-1] if table == "refs" else row) for row in rows]
            values = [(*key, one) for key, one in zip(keys, sums, strict=True)]
            connection.executemany(f"UPDATE {table} SET checksum = ?3 WHERE {found}", values)


def _decoded(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")


# Gaps of one segment never overlap, so at most one begins before a range and reaches into it.
_GAPS_IN = (
    "SELECT start, upto FROM gaps WHERE session = ?1 AND segment = ?2 AND start <= ?4 AND start >= coalesce("
    "(SELECT max(start) FROM gaps WHERE session = ?1 AND segment = ?2 AND start <= ?3), ?3) ORDER BY start"
)

# What is missing when the checksums are introduced has been forgotten, as far as anybody can know.
_FOUND = (
    "INSERT INTO gaps SELECT session, -1, prior + 1, seq - 1 FROM (SELECT session, seq, "
    "lag(seq, 1, 0) OVER (PARTITION BY session ORDER BY seq) AS prior FROM messages) WHERE seq > prior + 1",
    "INSERT INTO gaps SELECT session, -1, newest + 1, least_seq FROM (SELECT session, least_seq, coalesce("
    "(SELECT max(seq) FROM messages AS m WHERE m.session = s.session), 0) AS newest FROM sessions AS s) "
    "WHERE least_seq > newest",
    "INSERT INTO gaps SELECT session, segment, prior + 1, depth - 1 FROM (SELECT session, segment, depth, "
    "lag(depth, 1, coalesce(base, parent_depth, -1)) OVER (PARTITION BY session, segment ORDER BY depth) AS prior "
    "FROM messages JOIN segments USING (session, segment)) WHERE depth > prior + 1",
    "INSERT INTO gaps SELECT session, segment, deepest + 1, least_tip FROM (SELECT session, segment, least_tip, "
    "coalesce((SELECT max(depth) FROM messages AS m WHERE m.session = g.session AND m.segment = g.segment), "
    "base, parent_depth, -1) AS deepest FROM segments AS g) WHERE least_tip > deepest",
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


def note_gaps(connection: sqlite3.Connection) -> None:
    """Note all gaps of a database that has none noted yet, in a transaction of the caller's."""
    for statement in _FOUND:
        connection.execute(statement)
