"""Checksums of rows: damage to a file is noticed where a row is read, and named."""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from shared_core.errors import StoreError
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
