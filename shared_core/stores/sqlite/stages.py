"""Sessions that an import fills step by step, and that nobody sees until it is done."""

import sqlite3
import uuid
from collections.abc import Mapping

from shared_core.errors import StoreError, UnknownReferenceError
from shared_core.stores.sqlite.connection import text
from shared_core.stores.sqlite.tree_rows import ident_of

IS_STAGE = "ident >= '+' AND ident < ','"
"""The condition for a session that is the stage of an import; the index of names finds these."""

ABANDONED = "-1 day"
"""A stage that is older was left by an import that was killed."""

_MOVED = "+moved "

AT_ONCE = 10
"""The parts of abandoned stages that are removed when a database is opened, which they delay by a moment."""

REMOVED = 1_000
"""Messages and vectors that are removed in one transaction."""

_BLANK_TEXTS = (
    "UPDATE texts SET name = zeroblob(length(CAST(name AS BLOB))), content = zeroblob(length(CAST(content AS BLOB))), "
    "extra = zeroblob(length(CAST(extra AS BLOB))) "
    "WHERE text IN (SELECT text FROM messages WHERE session = ?1 AND seq <= ?2)"
)
_BLANK_VECTORS = (
    "UPDATE vectors SET hash = zeroblob(length(CAST(hash AS BLOB))), vector = zeroblob(length(vector)), live = 0 "
    "WHERE rowid IN (SELECT rowid FROM vectors WHERE session = ?1 AND live = 1 LIMIT ?2)"
)
_REMOVE_VECTORS = (
    "DELETE FROM vectors WHERE rowid IN (SELECT rowid FROM vectors WHERE session = ?1 AND live = 0 LIMIT ?2)"
)


def insert_stage(connection: sqlite3.Connection) -> int:
    """Insert a session that is not listed; return its key."""
    sql = "INSERT INTO sessions (ident, user_id, session_id) VALUES (?, NULL, '')"
    session = connection.execute(sql, (f"+import {uuid.uuid4()}",)).lastrowid
    assert session is not None
    return session


def name_stages(connection: sqlite3.Connection, names: Mapping[int, tuple[str | None, str]]) -> bool:
    """Give stages the users and names of sessions; return False, and do nothing, if one of these exists by now.

    Raises:
        StoreError: a stage was removed, as after a day.
    """
    idents = {session: ident_of(*name) for session, name in names.items()}
    for ident in idents.values():
        if connection.execute("SELECT 1 FROM sessions WHERE ident = ?", (ident,)).fetchone():
            return False
    for session, (user_id, session_id) in names.items():
        values = (idents[session], None if user_id is None else text(user_id), text(session_id), session)
        sql = "UPDATE sessions SET ident = ?, user_id = ?, session_id = ? WHERE session = ?"
        if not connection.execute(sql, values).rowcount:
            raise StoreError("what was imported so far was removed, because the import took a day; import again")
    return True


def abandoned(connection: sqlite3.Connection) -> list[int]:
    """Return the stages that killed imports left."""
    sql = f"SELECT session FROM sessions WHERE {IS_STAGE} AND created_at < datetime('now', ?)"
    return [int(row[0]) for row in connection.execute(sql, (ABANDONED,))]


def mark_moved(connection: sqlite3.Connection, session: int) -> None:
    """Note that the texts of a stage belong to another session now.

    Raises:
        UnknownReferenceError: there is no such stage, or this was noted before.
    """
    sql = "UPDATE sessions SET ident = ? WHERE session = ? AND ident LIKE '+import %'"
    if not connection.execute(sql, (f"{_MOVED}{uuid.uuid4()}", session)).rowcount:
        raise UnknownReferenceError(f"there is no stage {session!r}; import again")


def remove_part(connection: sqlite3.Connection, session: int) -> bool:
    """Remove some of a stage, and its bytes; return whether it is gone. It is left alone once it has a name."""
    sql = f"SELECT ident FROM sessions WHERE session = ? AND {IS_STAGE}"
    found = connection.execute(sql, (session,)).fetchone()
    if found is None:
        return True
    sql = "SELECT max(seq) FROM (SELECT seq FROM messages WHERE session = ? ORDER BY seq LIMIT ?)"
    (upto,) = connection.execute(sql, (session, REMOVED)).fetchone()
    if connection.execute(_BLANK_VECTORS, (session, REMOVED)).rowcount:
        connection.execute(_REMOVE_VECTORS, (session, REMOVED))
        return False
    if upto is not None:
        if not found[0].startswith(_MOVED):
            connection.execute(_BLANK_TEXTS, (session, upto))
        connection.execute("DELETE FROM messages WHERE session = ? AND seq <= ?", (session, upto))
        return False
    connection.execute("DELETE FROM sessions WHERE session = ?", (session,))
    return True
