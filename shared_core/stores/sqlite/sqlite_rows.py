"""The rows of an SQLite database: what its statements say in another way than others, and what is erased in place."""

import json
import re
import sqlite3
from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from typing import Any, ClassVar

from shared_core.errors import DuplicateError, UnknownReferenceError
from shared_core.history.normal_form import fingerprint
from shared_core.queries import KnownVectors, Line, Query
from shared_core.records import MainChanges, Mark, Position, Record, Segment, Stretch, Summary, VectorRow
from shared_core.stores import statements as sql
from shared_core.stores.answers import ANSWERS, Answer, Answering
from shared_core.stores.row_values import (
    TEXTS,
    DamagedRow,
    checksum_of,
    erasures,
    message_values,
    read_vector,
    segment_values,
    summary_values,
    vector_checksum,
)
from shared_core.stores.rows import line_of
from shared_core.stores.sql_rows import SqlRows, read_key_and_state
from shared_core.stores.sqlite.connection import note_scrub_due, transaction
from shared_core.stores.sqlite.sqlite_failures import is_undecodable, lenient
from shared_core.stores.statements import Many, Marks, Rows, Statement, columns_of_messages, expanded, positions_of

_LAST = (
    "max({0}.least_seq, coalesce((SELECT max(d.seq) FROM main.messages AS d WHERE d.session = {0}.session), 0))"
).format
_TIP = (
    "max({0}.tip, coalesce((SELECT max(d.depth) FROM main.messages AS d "
    "WHERE d.session = {0}.session AND d.segment = {0}.segment), -1))"
).format
_WHOLE = (
    "(SELECT max(seq) FROM main.messages WHERE session = %(session)s) IS (SELECT m.seq FROM main.messages AS m "
    "WHERE m.session = %(session)s AND (m.segment, m.depth) = (SELECT n.segment, n.depth FROM main.messages AS n "
    "INDEXED BY messages_seq WHERE n.session = %(session)s ORDER BY n.seq DESC LIMIT 1))"
)
"""Whether the message that the index of numbers ends with is there."""

_SAYING = (
    "SELECT {columns} FROM {each bigint fingerprints fingerprint} CROSS JOIN {s}.messages AS m "
    "{by messages_fingerprint} {texts} WHERE m.session = %(session)s AND m.fingerprint = w.fingerprint "
    "AND m.seq IN (SELECT n.seq FROM {s}.messages AS n {by messages_fingerprint} WHERE n.session = %(session)s "
    "AND n.fingerprint = w.fingerprint ORDER BY n.seq DESC LIMIT %(limit)s) ORDER BY m.seq"
)


def _table(name: str, *columns: str) -> str:
    # One statement for many positions, given as JSON, takes half as long as one for each.
    named = ", ".join(f"json_extract(value, '$[{number}]') AS {column}" for number, column in enumerate(columns))
    return f"(SELECT {named}, key AS n FROM json_each(%({name})s)) AS w"


_MARKS: Marks = {
    "s": lambda: "main",
    "names": lambda: "main.sessions",
    "next": lambda: "NULL",
    "ordinal": lambda: "(SELECT coalesce(max(ordinal), 0) + 1 FROM main.branches WHERE session = %(session)s)",
    "in": lambda kind, name: f"IN (SELECT value FROM json_each(%({name})s))",
    "each": lambda kind, name, column: f"(SELECT value AS {column} FROM json_each(%({name})s)) AS w",
    "rows": _table,
    "by": lambda index: f"INDEXED BY {index}",
    "unindexed": lambda: "NOT INDEXED",
    "columns": lambda: columns_of_messages("t"),
    "texts": lambda: "LEFT JOIN main.texts AS t USING (text)",
    "content": lambda: "t.content",
    "live": lambda vector: f"AND {vector}.live = 1",
    "tip": _TIP,
    "last": _LAST,
    # A number counts as a change, so that a message is stored without writing the row of its session.
    "version": lambda session: f"{session}.changes + {_LAST(session)}",
    "whole": lambda session: _WHOLE,
    "saying": lambda: _SAYING,
}
_VALUE = re.compile(r"%\((\w+)\)s")


@cache
def _own(statement: str) -> str:
    """Return a statement as SQLite takes it."""
    return _VALUE.sub(r":\1", expanded(statement, _MARKS))


def _is_many(value: Any) -> bool:
    return type(value) is list or type(value) is Many


def _as_json(value: list[Any] | Many) -> str:
    """Return a list as `json_each` takes it, without texts with NUL: it cuts them there, and none is stored."""
    if isinstance(value, Many):
        return json.dumps(value.rows)
    return json.dumps([one for one in value if not (isinstance(one, str) and "\0" in one)])


_MOMENT = "SELECT (SELECT coalesce(max(text), 0) FROM texts), (SELECT coalesce(max(changed), 0) FROM sessions)"
_CHANGED = (
    "SELECT s.session, s.user_id, s.session_id, {last s}, s.epoch, {version s}, b.segment, coalesce(b.depth, {tip g}) "
    "FROM (SELECT session FROM messages INDEXED BY messages_text WHERE text > %(text)s "
    "UNION SELECT session FROM sessions INDEXED BY sessions_changed WHERE changed > %(changed)s) AS w "
    "CROSS JOIN sessions AS s ON s.session = w.session LEFT JOIN branches AS b ON b.session = s.session "
    "AND b.name = %(main)s LEFT JOIN segments AS g ON g.session = s.session AND g.segment = b.segment "
    "WHERE s.user_id IS %(user)s ORDER BY s.session"
)
_FEW = 1_000
_FEW_EACH = 16
"""Changes that are looked through rather than the states of all sessions: so many, and so many more for each session of
the user. A state takes 5 µs; a change, of whoever, 0.05 to 0.2, the more the more sessions have changed."""

# A column that no index has keeps SQLite to the table itself, which NOT INDEXED alone does not. The index of ids, in
# turn, still has the id of a row that a damaged page has lost.
_LEFT_OF = (
    "SELECT id, role FROM messages NOT INDEXED WHERE session = %(session)s AND +id {in text ids} LIMIT 1",
    "SELECT id FROM messages INDEXED BY messages_id WHERE session = %(session)s AND id {in text ids} LIMIT 1",
)
_RAISE_VERSION = (
    "UPDATE sessions SET changes = changes + 1, least_seq = max(least_seq, %(seq)s) WHERE session = %(session)s"
)
_PUT_SEGMENT = (
    "INSERT INTO segments (session, segment, parent_segment, parent_depth, merged_segment, merged_depth, base, "
    "turn_shift, tip, checksum) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?) "
    "ON CONFLICT (session, segment) DO UPDATE SET tip = max(tip, excluded.tip)"
)
_INSERT_MESSAGE = (
    f"INSERT INTO messages ({', '.join(sql.MESSAGE[: -TEXTS - 1])}, text, checksum, fingerprint) "
    f"VALUES ({', '.join('?' * (len(sql.MESSAGE) - TEXTS + 2))})"
)
_INSERT_COVER = (
    "INSERT INTO covers SELECT ?1, ?2, ?3, coalesce(max(ordinal), -1) + 1, ?4, ?5, ?6 FROM covers "
    "WHERE session = ?1 AND segment = ?2 AND depth = ?3"
)
_PUT_SPACE = (
    "INSERT INTO spaces (session, name, written) "
    "SELECT session, ?2, (SELECT coalesce(max(written), 0) + 1 FROM spaces WHERE session = ?1) "
    "FROM sessions WHERE session = ?1 "
    "ON CONFLICT (session, name) DO UPDATE SET written = excluded.written"
)
_PUT_VECTOR = (
    "INSERT INTO vectors (session, space, segment, depth, hash, vector, checksum) "
    "SELECT m.session, s.space, m.segment, m.depth, ?5, ?6, ?7 FROM messages AS m JOIN spaces AS s "
    "ON s.session = m.session AND s.name = ?2 WHERE m.session = ?1 AND m.segment = ?3 AND m.depth = ?4 "
    "ON CONFLICT (session, segment, depth, space) "
    "DO UPDATE SET hash = excluded.hash, vector = excluded.vector, checksum = excluded.checksum, live = 1"
)
_VECTORS_OF = (
    "SELECT v.segment, v.depth, v.hash, v.vector, v.checksum FROM {each text hashes hash} CROSS JOIN vectors AS v "
    "WHERE v.rowid = (SELECT o.rowid FROM vectors AS o INDEXED BY vectors_hash WHERE o.hash = w.hash {live o} "
    f"AND o.space = {sql.SPACE} LIMIT 1)"
)
_INSERT_SUMMARY = (
    "INSERT INTO summaries (session, segment, depth, along_segment, along_depth, last_id, messages, created_at, "
    "counter, tokens, text, checksum) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
)

_RAISE_EPOCH = f"UPDATE sessions SET epoch = epoch + 1, least_seq = {_LAST('sessions')} WHERE session = %(session)s"
_HOLD_TIP = f"UPDATE segments SET tip = {_TIP('segments')} WHERE session = ? AND segment = ?"
_AT = "WHERE session = ? AND segment = ? AND depth = ?"

# Zeroes of the same length are written over the very bytes, because a deleted row may leave a copy; see table `texts`.
_BLANK_VECTORS = (
    "UPDATE vectors SET hash = zeroblob(length(CAST(hash AS BLOB))), vector = zeroblob(length(vector)), "
    "checksum = NULL, live = 0 " + _AT
)
_BLANK_TEXT = (
    "UPDATE texts SET name = zeroblob(length(CAST(name AS BLOB))), "
    "content = zeroblob(length(CAST(content AS BLOB))), extra = zeroblob(length(CAST(extra AS BLOB))) WHERE text = ?"
)
_NOTE_ERASED = "INSERT INTO erasures SELECT session, epoch, ?2, ?3, ?4 FROM sessions WHERE session = ?1"


def _known_vectors(session: int, query: KnownVectors) -> Answering:
    space = {"name": query.space}
    (rows,) = yield [Statement(sql.VECTORS_AT, session, {**space, **positions_of(list(query.hashes))})]
    own = [row for row in map(read_vector, rows) if query.hashes[row[0]] == row[1]]
    left = {query.hashes[one] for one in query.hashes.keys() - {row[0] for row in own}}
    if left:
        (rows,) = yield [Statement(_VECTORS_OF, session, {**space, "hashes": list(left)})]
        own += [row for row in map(read_vector, rows) if row[1] in left]
    return own


class SQLiteRows(SqlRows):
    """All rows of a database.

    Args:
        connection: in a transaction if anything is written.
    """

    ANSWERS: ClassVar[Mapping[type, Answer]] = {**ANSWERS, KnownVectors: _known_vectors}

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.connection = connection
        self._text_key: int | None = None

    def run(self, statement: str, session: int | None, values: Mapping[str, Any] | None = None) -> Rows:
        """Return the rows of a statement; texts that are not UTF-8 come with escapes, so that checksums find them."""
        own, given = _own(statement), self._given(session, values)
        try:
            return self.connection.execute(own, given).fetchall()
        except sqlite3.OperationalError as error:
            if not is_undecodable(error):
                raise
        with lenient(self.connection):
            return self.connection.execute(own, given).fetchall()

    def count_rows(self, statement: str, session: int | None, values: Mapping[str, Any] | None = None) -> int:
        return self.connection.execute(_own(statement), self._given(session, values)).rowcount

    @staticmethod
    def _given(session: int | None, values: Mapping[str, Any] | None) -> dict[str, Any]:
        given: dict[str, Any] = {"session": session}
        for name, value in (values or {}).items():
            given[name] = _as_json(value) if _is_many(value) else value
        return given

    def together(self, statements: Sequence[Statement]) -> list[Rows]:
        if len(statements) == 1:
            return [self.run(*statements[0])]
        with self.one_moment():
            return [self.run(*statement) for statement in statements]

    def one_moment(self) -> AbstractContextManager[None]:
        """Enter a block in which several SELECTs see the same moment, as they do in any transaction."""
        if self.connection.in_transaction:
            return nullcontext()
        return transaction(self.connection, write=False)

    def ask_all(self, session: int, queries: Sequence[Query]) -> list[Any]:
        if len(queries) == 1 and not isinstance(queries[0], Line):
            return [self.ask(session, queries[0])]
        with self.one_moment():
            return [line_of(self, session, one) if isinstance(one, Line) else self.ask(session, one) for one in queries]

    # Sessions and the tree

    def main_changes(self, user_id: str | None, since: Mark | None = None) -> MainChanges:
        """Return what `Store.main_changes` does.

        A mark is the newest text, the newest change of a session's row, and how many states were read. What a
        transaction has seen of itself may be undone, and the numbers be used again: it gets no mark.
        """
        undoable = self.connection.in_transaction
        with self.one_moment():
            text_key, changed = self.connection.execute(_MOMENT).fetchone()
            if undoable or since is None or not _few(text_key - since[0], changed - since[1], since[2]):
                states = self.main_states(user_id)
                return MainChanges(states, None if undoable else (text_key, changed, len(states)), True)
            values = {"text": since[0], "changed": since[1], "user": user_id, **sql.MAIN_VALUES}
            rows = self.run(_CHANGED, None, values)
        return MainChanges(list(map(read_key_and_state, rows)), (text_key, changed, since[2]), False)

    def check_absent(self, session: int, ids: Collection[str]) -> None:
        """Do what `Store.check_absent` does."""
        wanted = {"ids": list(ids)}
        for statement, why in zip(_LEFT_OF, ("it is missing in an index", "only an index still has it"), strict=True):
            for row in self.run(statement, session, wanted):
                raise DamagedRow(f"message {row[0]!r}", why)

    def raise_version(self, session: int, seq: int = 0) -> None:
        self.run(_RAISE_VERSION, session, {"seq": seq})

    def put_segment(self, session: int, segment: Segment) -> None:
        values = segment_values(session, segment)
        self.connection.execute(_PUT_SEGMENT, (*values, segment.tip, checksum_of(values)))

    # Messages

    def insert_records(
        self, session: int, records: Sequence[Record], covers: Sequence[tuple[Position, Stretch]] = ()
    ) -> None:
        key = self._take_text_keys(len(records))
        rows = [message_values(session, record) for record in records]
        texts = [(number, *row[-TEXTS:]) for number, row in enumerate(rows, key)]
        prints = [None if record.alone else fingerprint(record.message) for record in records]
        messages = [
            (*row[:-TEXTS], number, checksum_of(row), found_by)
            for number, (row, found_by) in enumerate(zip(rows, prints, strict=True), key)
        ]
        try:
            self.connection.executemany("INSERT INTO texts VALUES (?, ?, ?, ?)", texts)
            self.connection.executemany(_INSERT_MESSAGE, messages)
            if covers:
                values = [(session, *position, *stretch) for position, stretch in covers]
                self.connection.executemany(_INSERT_COVER, values)
        except sqlite3.IntegrityError as error:
            if error.sqlite_errorcode == sqlite3.SQLITE_CONSTRAINT_FOREIGNKEY:
                raise UnknownReferenceError("a message or a summary stands in a segment that does not exist") from error
            raise DuplicateError(f"an id, a position or a number of a message is taken ({error})") from error

    def _take_text_keys(self, count: int) -> int:
        """Return the first of so many free keys of table `texts`."""
        first = self._text_key
        if first is None:
            first = int(self.connection.execute("SELECT coalesce(max(text), 0) + 1 FROM texts").fetchone()[0])
        self._text_key = first + count
        return first

    # What is derived

    def put_vectors(self, session: int, space: str, vectors: Sequence[VectorRow]) -> None:
        name = space
        self.connection.execute(_PUT_SPACE, (session, name))
        rows = [(*position, hash_, vector) for position, hash_, vector in vectors]
        self.connection.executemany(_PUT_VECTOR, [(session, name, *row, vector_checksum(*row)) for row in rows])

    def insert_summary(self, session: int, summary: Summary) -> None:
        key = self._take_text_keys(1)
        self.connection.execute("INSERT INTO texts VALUES (?, NULL, ?, NULL)", (key, summary.text))
        values = summary_values(summary)
        self.connection.execute(_INSERT_SUMMARY, (session, *values[1:], key, checksum_of(values)))

    # Forgetting

    def erase(
        self, session: int, positions: Sequence[Position], stale: Sequence[Position], summaries: Collection[int]
    ) -> bool:
        if not self.count_rows(_RAISE_EPOCH, session):
            return False
        note_scrub_due(self.connection)
        self.connection.executemany(_HOLD_TIP, {(session, position.segment) for position in positions})
        for number in summaries:
            found = self.connection.execute("DELETE FROM summaries WHERE summary = ? RETURNING text", (number,))
            self.connection.executemany(_BLANK_TEXT, found.fetchall())
        self.note_erased(session, [row for one in positions if (row := self._erase_message(session, one)) is not None])
        self.connection.executemany(_BLANK_VECTORS, [(session, *position) for position in stale])
        self.connection.execute("DELETE FROM snapshots WHERE session = ?", (session,))
        self.connection.executemany(_NOTE_ERASED, [(session, *row) for row in erasures(positions, stale)])
        return True

    def _erase_message(self, session: int, position: Position) -> tuple[int, int, int] | None:
        """Erase a message; return its position and its number, None if there is none."""
        key = (session, *position)
        row = self.connection.execute("SELECT text, seq FROM messages " + _AT, key).fetchone()
        if row is None:
            return None
        # Its id is not read, because it may be erased for being damaged.
        self.connection.execute("INSERT INTO tombstones SELECT session, id FROM messages " + _AT, key)
        self.connection.execute("DELETE FROM messages " + _AT, key)
        self.connection.execute(_BLANK_VECTORS, key)
        self.connection.execute(_BLANK_TEXT, (row[0],))
        return (*position, row[1])


def _few(texts: int, changes: int, sessions: int) -> bool:
    """Return whether to look through what is new; fewer than none is new in a file that was put back."""
    return min(texts, changes) >= 0 and texts + changes <= _FEW + _FEW_EACH * sessions
