"""Asks an SQLite database what is wrong with its rows, and mends those that were made from others."""

import re
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from types import MappingProxyType
from typing import Any

from shared_core.records import SessionKey
from shared_core.stores.damages import CHECKS, DERIVED, Check, Damage, Found, Mend, inspect, orphans, statements_of
from shared_core.stores.gaps import NUMBERS
from shared_core.stores.row_values import WRONG, vector_checksum
from shared_core.stores.sqlite.connection import plain, transaction
from shared_core.stores.sqlite.damage import read_leniently
from shared_core.stores.sqlite.database_file import connect

_PAGE = 1_000
_OWN = {
    "{s}.": "",
    "{tips}": "tips",
    "{live}": "x.live = 1",
    "{sessions}": "sessions",
}
"""What stands in statements for every database, and what is here in its place."""

_SIZES = (
    "SELECT m.tbl_name, sum(d.pgsize) FROM dbstat AS d JOIN sqlite_master AS m ON m.name = d.name "
    "WHERE d.aggregate = 1 GROUP BY m.tbl_name"
)
_SIZE = "SELECT page_count * page_size FROM pragma_page_count, pragma_page_size"
_VALUE = re.compile(r"%\((\w+)\)s")

_DEEPEST = "(SELECT max(m.depth) FROM messages AS m WHERE m.session = g.session AND m.segment = g.segment)"
_IN_GAP = "NOT EXISTS (SELECT 1 FROM gaps AS p WHERE p.session = %(session)s AND p.segment = {of} AND {at} <= p.upto)"
_OWN_CHECKS = (
    Check(
        "a segment", "it ends where nothing has ever been",
        "SELECT g.segment, g.segment FROM segments AS g WHERE g.session = %(session)s AND g.least_tip > "
        f"coalesce({_DEEPEST}, g.base, g.parent_depth, -1) AND {_IN_GAP.format(of='g.segment', at='g.least_tip')}",
        "tip", ("segment",),
    ),
    Check(
        "the number of the newest message", "no message has ever had it",
        "SELECT s.least_seq FROM sessions AS s WHERE s.session = %(session)s AND s.least_seq > "
        "coalesce((SELECT max(m.seq) FROM messages AS m WHERE m.session = s.session), 0) "
        f"AND {_IN_GAP.format(of=NUMBERS, at='s.least_seq')}",
        "number",
    ),
)  # fmt: skip

# The bytes are overwritten, as they are when something is forgotten.
_BLANK = (
    "UPDATE vectors SET hash = zeroblob(length(CAST(hash AS BLOB))), vector = zeroblob(length(vector)), live = 0 WHERE "
)
_MENDS: dict[str, tuple[str, ...]] = {
    "tip": (
        "UPDATE segments AS g SET least_tip = max(coalesce(base, parent_depth, -1), "
        f"coalesce({_DEEPEST}, -1), coalesce((SELECT max(upto) FROM gaps AS p WHERE p.session = g.session "
        "AND p.segment = g.segment), -1)) WHERE session = :session AND segment = :segment",
    ),
    "number": (
        "UPDATE sessions AS s SET least_seq = max("
        "coalesce((SELECT max(m.seq) FROM messages AS m WHERE m.session = s.session), 0), coalesce((SELECT max(p.upto) "
        f"FROM gaps AS p WHERE p.session = s.session AND p.segment = {NUMBERS}), 0)) WHERE session = :session",
    ),
    "cover": ("DELETE FROM covers WHERE session = :session AND segment = :segment AND depth = :depth",),
    "vector": (
        _BLANK + "session = :session AND segment = :segment AND depth = :depth AND space = :space",
        # An index that still has it would not let it be made again.
        "DELETE FROM snapshots WHERE session = :session AND substr(CAST(name AS TEXT), 1, 8) = 'vectors/'",
    ),
    "summary": (
        "UPDATE texts SET content = zeroblob(length(CAST(content AS BLOB))) "
        "WHERE text = (SELECT text FROM summaries WHERE summary = :summary AND session = :session)",
        "DELETE FROM summaries WHERE summary = :summary AND session = :session",
    ),
    "snapshot": ("DELETE FROM snapshots WHERE session = :session AND name = :name",),
    "orphaned vectors": (_BLANK + "session = :session", "DELETE FROM vectors WHERE session = :session"),
    **{
        f"orphaned {table}": (f"DELETE FROM {table} WHERE session = :session",)
        for table in DERIVED
        if table != "vectors"
    },
}

_VECTORS = (
    "SELECT rowid, session, space, segment, depth, hash, vector, checksum FROM vectors WHERE rowid > ? AND live = 1 "
    "AND checksum IS NOT NULL ORDER BY rowid LIMIT ?"
)


class SQLiteInspector:
    """Asks one connection.

    Args:
        connection: reads texts leniently.
    """

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def ask(
        self, sql: str, session: int | None, values: Mapping[str, Any] = MappingProxyType({})
    ) -> list[tuple[Any, ...]]:
        """See `Inspector`."""
        for mark, own in _OWN.items():
            sql = sql.replace(mark, own)
        return self._connection.execute(_VALUE.sub(r":\1", sql), {"session": session, **values}).fetchall()

    def plain(self, value: str | bytes) -> str:
        """See `Inspector`."""
        return plain(value)

    def size(self) -> int:
        """See `Inspector`. The write-ahead log is not counted."""
        return int(self._connection.execute(_SIZE).fetchone()[0])

    def sizes(self) -> dict[str, dict[str, int]]:
        """See `Inspector`."""
        try:
            return {table: {table: size} for table, size in self._connection.execute(_SIZES)}
        except sqlite3.OperationalError:  # not every SQLite is built with the table dbstat
            return {}


def inspect_rows(connection: sqlite3.Connection, sessions: dict[int, SessionKey]) -> Iterator[Found]:
    """Yield what is wrong with rows that can be read, and each by itself is as it was written.

    Args:
        connection: reads texts leniently; its schema is the newest.
        sessions: those to look at.
    """
    inspector = SQLiteInspector(connection)
    for session in sessions.values():
        yield from inspect(inspector, session, (*CHECKS, *_OWN_CHECKS))
    yield from orphans(inspector, "sessions")
    yield from _changed_vectors(connection, sessions)


def _changed_vectors(connection: sqlite3.Connection, sessions: dict[int, SessionKey]) -> Iterator[Found]:
    last = 0
    while rows := connection.execute(_VECTORS, (last, _PAGE)).fetchall():
        for _, session, space, segment, depth, hash_, vector, checksum in rows:
            if checksum != vector_checksum(segment, depth, hash_, vector):
                own = sessions.get(session)
                place = f"{segment}, {depth}"
                damage = Damage("a vector", WRONG, own and own.session_id, own and own.user_id, place, derived=True)
                yield Found(damage, Mend("vector", session, {"segment": segment, "depth": depth, "space": space}))
        last = rows[-1][0]


def mend_file(path: Path, mends: list[Mend]) -> None:
    """Mend what can be, in one transaction.

    Raises:
        sqlite3.Error: the file cannot be written.
    """
    with closing(connect(path, "mode=rw")) as connection:
        read_leniently(connection)
        connection.execute("PRAGMA secure_delete = ON")
        with transaction(connection, write=True):
            for mend in mends:
                for statement in statements_of(mend, _MENDS):
                    connection.execute(statement, {"session": mend.session, **mend.values})
