"""The sessions of an SQLite database at a glance: two statements, however many sessions there are."""

import json
import sqlite3
from collections.abc import Collection, Iterator
from dataclasses import replace
from datetime import datetime

from shared_core.errors import StoreError
from shared_core.records import TITLE_READ, SessionInfo, title_of
from shared_core.stores.sqlite.connection import plain, text
from shared_core.stores.sqlite.tree_rows import PUBLISHED

# The first and the last message are ends of an index, and the count reads that index alone.
_OF_SESSION = "FROM messages AS m INDEXED BY messages_seq WHERE m.session = s.session"
_SESSIONS = (
    "SELECT s.session, s.user_id, s.session_id, "
    f"(SELECT count(*) {_OF_SESSION}), "
    "(SELECT count(*) FROM branches AS b WHERE b.session = s.session), "
    f"(SELECT m.created_at {_OF_SESSION} ORDER BY m.seq LIMIT 1), "
    f"(SELECT m.created_at {_OF_SESSION} ORDER BY m.seq DESC LIMIT 1) "
    "FROM sessions AS s "
)

# SQLite takes a zero byte for the end of a text, and counts the bytes of a text with lone surrogates instead of its
# characters: those are read whole.
_BEGINNING = (
    "CASE WHEN typeof(t.content) = 'blob' OR instr(t.content, char(0)) THEN t.content "
    f"ELSE substr(t.content, 1, {TITLE_READ}) END"
)
_TITLES = (
    f"SELECT s.value, (SELECT {_BEGINNING} FROM messages AS m INDEXED BY messages_seq JOIN texts AS t USING (text) "
    "WHERE m.session = s.value AND m.role = 'user' ORDER BY m.seq LIMIT 1) FROM json_each(?) AS s"
)


def overview(connection: sqlite3.Connection, user_ids: Collection[str | None], limit: int) -> list[SessionInfo]:
    """Return what `Store.overview` returns; call it in a transaction.

    Raises:
        StoreError: a message has no valid time.
    """
    found = sorted(_sessions(connection, user_ids), key=lambda row: (row[0].last, row[1]), reverse=True)
    page = found[: max(limit, 0)]
    keys = json.dumps([key for _, key in page])
    said = dict(connection.execute(_TITLES, (keys,)).fetchall())
    return [replace(info, title=None if said[key] is None else title_of(plain(said[key]))) for info, key in page]


def _sessions(connection: sqlite3.Connection, user_ids: Collection[str | None]) -> Iterator[tuple[SessionInfo, int]]:
    users: list[tuple[str | bytes | None, ...]] = [(None if one is None else text(one),) for one in set(user_ids)]
    condition = f"WHERE {PUBLISHED}" + (" AND s.user_id IS ?" if users else "")
    for values in users or [()]:
        for key, *fields in connection.execute(_SESSIONS + condition, values):
            if fields[2]:
                yield _info(*fields), key


def _info(
    user_id: str | bytes | None, session_id: str | bytes, messages: int, branches: int, first: str, last: str
) -> SessionInfo:
    try:
        times = datetime.fromisoformat(first), datetime.fromisoformat(last)
    except (ValueError, TypeError) as error:
        raise StoreError(
            f"the times of session {session_id!r} cannot be read: {error}; restore the database from a backup"
        ) from error
    return SessionInfo(plain(session_id), None if user_id is None else plain(user_id), messages, branches, *times)
