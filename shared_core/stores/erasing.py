"""The transaction that erases messages from SQLite."""

import sqlite3
from collections.abc import Sequence

from shared_core.records import Position
from shared_core.stores.places import begin
from shared_core.stores.summing import BLANK_TEXT, drop_summaries

__all__ = ["forget"]


WHERE = "WHERE session = ? AND segment = ? AND depth = ?"

BLANK_VECTORS = (
    "UPDATE vectors SET hash = zeroblob(length(CAST(hash AS BLOB))), vector = zeroblob(length(vector)), live = 0 "
    + WHERE
)
# Zeroes of the same length are written over the very bytes; see table `texts`.


def forget(
    connection: sqlite3.Connection,
    session: int,
    positions: Sequence[Position],
    stale: Sequence[Position],
    *,
    branches: bool,
) -> None:
    """Do what `Store.forget` says, inside the caller's transaction."""
    changed = connection.execute(
        "UPDATE sessions SET epoch = epoch + 1, "
        "least_seq = (SELECT last_seq FROM states AS s WHERE s.session = sessions.session) WHERE session = ?",
        (session,),
    )
    if changed.rowcount == 0:
        return
    connection.executemany(
        "UPDATE segments SET least_tip = "
        "(SELECT tip FROM tips AS t WHERE t.session = segments.session AND t.segment = segments.segment) "
        "WHERE session = ? AND segment = ?",
        {(session, position.segment) for position in positions},
    )
    # Before the branches and the messages go: what a summary covers follows from the tree.
    drop_summaries(connection, session, None if branches else positions)
    for position in positions:
        _erase(connection, session, position)
    connection.executemany(BLANK_VECTORS, [(session, *position) for position in stale])
    connection.execute("DELETE FROM snapshots WHERE session = ?", (session,))
    if branches:
        connection.execute("DELETE FROM branches WHERE session = ?", (session,))
        connection.execute("DELETE FROM refs WHERE session = ?", (session,))
        begin(connection, session)


def _erase(connection: sqlite3.Connection, session: int, position: Position) -> None:
    place = (session, *position)
    row = connection.execute("SELECT id, text FROM messages " + WHERE, place).fetchone()
    if row is None:
        return
    connection.execute("INSERT INTO tombstones VALUES (?, ?)", (session, row[0]))
    connection.execute("DELETE FROM messages " + WHERE, place)
    connection.execute(BLANK_VECTORS, place)
    connection.execute(BLANK_TEXT, (row[1],))
