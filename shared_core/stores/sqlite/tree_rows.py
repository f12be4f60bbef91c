"""Sessions, segments, branches and refs in SQLite."""

import json
import sqlite3
from collections.abc import Collection, Mapping
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any

from shared_core.records import (
    MAIN,
    ROOT,
    Branch,
    MainChanges,
    Mark,
    Position,
    Ref,
    RefKind,
    Segment,
    SessionKey,
    SessionState,
)
from shared_core.store import ALL
from shared_core.stores.row_values import (
    check_row,
    checksum_of,
    position_values,
    read_ref,
    read_segment,
    segment_values,
)
from shared_core.stores.rows import BranchEnd, IndexedRows
from shared_core.stores.sqlite.connection import transaction
from shared_core.stores.sqlite.damage import damaged, is_undecodable, lenient

_check = partial(check_row, damaged)

_HOLDS = "EXISTS (SELECT 1 FROM messages AS m WHERE m.session = sessions.session AND m.{column} = ?)"

_STATE = (
    "SELECT last_seq, epoch, changes, (SELECT segment FROM branches WHERE session = ?1 AND name = ?2), "
    "(SELECT depth FROM heads WHERE session = ?1 AND name = ?2), "
    "(SELECT depth FROM branches WHERE session = ?1 AND name = ?2), "
    "(SELECT checksum FROM branches WHERE session = ?1 AND name = ?2), "
    "(SELECT max(seq) FROM messages WHERE session = ?1) IS (SELECT m.seq FROM messages AS m WHERE m.session = ?1 "
    "AND (m.segment, m.depth) = (SELECT n.segment, n.depth FROM messages AS n INDEXED BY messages_seq "
    "WHERE n.session = ?1 ORDER BY n.seq DESC LIMIT 1)) FROM states WHERE session = ?1"
)
"""Its last column is whether the message that the index of numbers ends with is there."""
_MAIN_STATES = (
    "SELECT session, user_id, session_id, last_seq, epoch, changes, segment, depth "
    "FROM sessions JOIN states USING (session, epoch, changes) JOIN heads USING (session) "
    "WHERE name = ? AND (segment, depth) != (?, ?)"
)
_MOMENT = "SELECT (SELECT coalesce(max(text), 0) FROM texts), (SELECT coalesce(max(changed), 0) FROM sessions)"
_CHANGED = (
    "SELECT s.session, s.user_id, s.session_id, (SELECT last_seq FROM states WHERE session = s.session), s.epoch, "
    "s.changes, (SELECT segment FROM branches WHERE session = s.session AND name = ?1), "
    "(SELECT depth FROM heads WHERE session = s.session AND name = ?1) "
    "FROM (SELECT session FROM messages INDEXED BY messages_text WHERE text > ?2 "
    "UNION SELECT session FROM sessions INDEXED BY sessions_changed WHERE changed > ?3) AS w "
    "CROSS JOIN sessions AS s ON s.session = w.session WHERE s.user_id IS ?4 ORDER BY s.session"
)
_END = (
    "SELECT segment, depth, tip, goes_on, "
    "(SELECT checksum FROM branches WHERE session = ?1 AND name = ?2), last_seq, "
    "EXISTS (SELECT 1 FROM tombstones WHERE session = ?1), "
    "(SELECT coalesce(max(text), 0) + 1 FROM texts) "
    "FROM heads JOIN states USING (session) WHERE session = ?1 AND name = ?2"
)
_SEGMENTS = (
    "SELECT g.segment, g.parent_segment, g.parent_depth, t.tip, "
    "g.merged_segment, g.merged_depth, g.base, g.turn_shift, g.checksum "
    "FROM segments AS g JOIN tips AS t ON t.session = g.session AND t.segment = g.segment WHERE g.session = ? "
)
_PUT_SEGMENT = (
    "INSERT INTO segments (session, segment, parent_segment, parent_depth, merged_segment, merged_depth, base, "
    "turn_shift, least_tip, checksum) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?) "
    "ON CONFLICT (session, segment) DO UPDATE SET least_tip = max(least_tip, excluded.least_tip)"
)
_PUT_BRANCH = (
    "INSERT INTO branches (session, name, segment, depth, ordinal, checksum) "
    "VALUES (?1, ?2, ?3, ?4, ?5, ?6) ON CONFLICT (session, name) "
    "DO UPDATE SET segment = excluded.segment, depth = excluded.depth, checksum = excluded.checksum"
)
_LAST_ORDINAL = "SELECT coalesce(max(ordinal), 0) FROM branches WHERE session = ?"
_ATTACHED = (
    "SELECT name, segment, depth FROM heads "
    "WHERE session = ? AND goes_on AND segment IN (SELECT value FROM json_each(?))"
)
_BRANCHES = (
    "SELECT b.name, b.segment, coalesce(b.depth, max(coalesce(g.least_tip, -1), coalesce((SELECT max(m.depth) "
    "FROM messages AS m WHERE m.session = b.session AND m.segment = b.segment), -1))), b.depth IS NULL, b.checksum "
    "FROM branches AS b LEFT JOIN segments AS g USING (session, segment) WHERE b.session = ? ORDER BY b.ordinal"
)
"""Without the view `heads`, which hides a branch whose segment is lost."""
_REFS = (
    "SELECT ref, kind, name, segment, depth, base_segment, base_depth, note, created_at, checksum FROM refs "
    "WHERE session = ? "
)
_INSERT_REF = (
    "INSERT INTO refs (session, kind, name, segment, depth, base_segment, base_depth, note, checksum, created_at) "
    "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, coalesce(?, CURRENT_TIMESTAMP))"
)


_FEW = 1_000
_FEW_EACH = 16
"""Changes that are looked through rather than the states of all sessions: so many, and so many more for each session of
the user. A state takes 5 µs; a change, of whoever, 0.05 to 0.2, the more the more sessions have changed."""


class TreeRows(IndexedRows):
    """Sessions and the tree of each; a base of all other rows.

    Args:
        connection: in a transaction if anything is written.
    """

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.connection = connection
        self._text_key: int | None = None
        self._ordinals: dict[int, int] = {}

    def take_text_keys(self, count: int) -> int:
        """Return the first of so many free keys of table `texts`."""
        first = self._text_key
        if first is None:
            first = int(self.connection.execute("SELECT coalesce(max(text), 0) + 1 FROM texts").fetchone()[0])
        self._text_key = first + count
        return first

    def fetch(self, sql: str, values: tuple[Any, ...]) -> list[tuple[Any, ...]]:
        """Return the rows of one SELECT; texts that are not UTF-8 come with escapes, so that checksums find them."""
        try:
            return self.connection.execute(sql, values).fetchall()
        except sqlite3.OperationalError as error:
            if not is_undecodable(error):
                raise
        with lenient(self.connection):
            return self.connection.execute(sql, values).fetchall()

    def one_moment(self) -> AbstractContextManager[None]:
        """Enter a block in which several SELECTs see the same moment, as they do in any transaction."""
        if self.connection.in_transaction:
            return nullcontext()
        return transaction(self.connection, write=False)

    def session(self, user_id: str | None, session_id: str) -> int | None:
        sql = "SELECT session FROM sessions WHERE ident = ?"
        row = self.connection.execute(sql, (ident_of(user_id, session_id),)).fetchone()
        return None if row is None else int(row[0])

    def sessions(self, user_ids: Collection[str | None] | None, after: int = 0, limit: int = 2**31) -> list[SessionKey]:
        sql = "SELECT session, user_id, session_id FROM sessions WHERE session > ?"
        found = self._of_users(sql, (after,), user_ids, max(limit, 0))
        return [_session_key(*row) for row in found]

    def users(self, after: str | None = None, limit: int = ALL) -> list[str]:
        more = "user_id > ?2" if after is not None else "user_id NOT NULL"
        sql = f"SELECT DISTINCT user_id FROM sessions WHERE {more} ORDER BY user_id LIMIT ?1"
        values = (max(limit, 0), *(() if after is None else (after,)))
        return [row[0] for row in self.connection.execute(sql, values)]

    def sessions_named(self, session_id: str) -> list[SessionKey]:
        sql = "SELECT session, user_id, session_id FROM sessions WHERE session_id = ? ORDER BY session"
        return [_session_key(*row) for row in self.connection.execute(sql, (session_id,))]

    def sessions_with(self, user_id: str | None, message: str | int) -> list[SessionKey]:
        column, value = ("fingerprint", message) if isinstance(message, int) else ("id", message)
        sql = f"SELECT session, user_id, session_id FROM sessions WHERE {_HOLDS.format(column=column)}"
        return [_session_key(*row) for row in self._of_users(sql, (value,), [user_id])]

    def main_changes(self, user_id: str | None, since: Mark | None = None) -> MainChanges:
        """See `Rows`. A mark is the newest text, the newest change of a session's row, and how many states were read.

        What a transaction has seen of itself may be undone, and the numbers be used again: it gets no mark.
        """
        undoable = self.connection.in_transaction
        with self.one_moment():
            text_key, changed = self.connection.execute(_MOMENT).fetchone()
            if undoable or since is None or not _few(text_key - since[0], changed - since[1], since[2]):
                found = self._of_users(_MAIN_STATES, (MAIN, *ROOT), [user_id])
                states = [(_session_key(*row[:3]), _state(Position(*row[6:]), *row[3:6])) for row in found]
                return MainChanges(states, None if undoable else (text_key, changed, len(states)), True)
            values = (MAIN, *since[:2], user_id)
            rows = self.connection.execute(_CHANGED, values).fetchall()
        heads = (None if row[6] is None else Position(*row[6:]) for row in rows)
        states = [(_session_key(*row[:3]), _state(head, *row[3:6])) for row, head in zip(rows, heads, strict=True)]
        return MainChanges(states, (text_key, changed, since[2]), False)

    def _of_users(
        self, sql: str, values: tuple[Any, ...], user_ids: Collection[str | None] | None, limit: int = 2**31
    ) -> list[Any]:
        """Return the rows of a query on sessions that belong to some users, oldest first; None: everybody's."""
        end = "ORDER BY session LIMIT ?"
        if user_ids is None:
            return self.connection.execute(f"{sql} {end}", (*values, limit)).fetchall()
        users = list(user_ids)
        rows = (self.connection.execute(f"{sql} AND user_id IS ? {end}", (*values, user, limit)) for user in users)
        with self.one_moment():
            return sorted({row[0]: row for some in rows for row in some}.values())[:limit]

    def session_keys(self) -> list[int]:
        sql = "SELECT session FROM segments UNION SELECT session FROM messages ORDER BY session"
        return [row[0] for row in self.connection.execute(sql)]

    def insert_session(self, user_id: str | None, session_id: str) -> int | None:
        values = (ident_of(user_id, session_id), user_id, session_id)
        sql = (
            "INSERT INTO sessions (ident, user_id, session_id) VALUES (?, ?, ?) ON CONFLICT DO NOTHING "
            "RETURNING session"
        )
        row = self.connection.execute(sql, values).fetchone()
        return None if row is None else int(row[0])

    def session_key(self, session: int) -> SessionKey | None:
        sql = "SELECT user_id, session_id FROM sessions WHERE session = ?"
        row = self.connection.execute(sql, (session,)).fetchone()
        return None if row is None else _session_key(session, *row)

    def rename_sessions(self, names: Mapping[int, str]) -> None:
        keys = [self.session_key(session) for session in names]
        rows = [(ident_of(one.user_id, names[one.key]), names[one.key], one.key) for one in keys if one is not None]
        # No `ident` is a bare number: two sessions may swap their names, and none meets the other's on the way.
        self.connection.executemany("UPDATE sessions SET ident = session WHERE session = ?", [row[2:] for row in rows])
        self.connection.executemany("UPDATE sessions SET ident = ?, session_id = ? WHERE session = ?", rows)

    def state(self, session: int, branch: str | None) -> SessionState | None:
        row = self.connection.execute(_STATE, (session, branch)).fetchone()
        if row is None:
            return None
        last_seq, epoch, changes, segment, depth, own_depth, checksum, whole = row
        if not whole:
            raise damaged(f"the newest message of session number {session}", "it is missing")
        if segment is not None:
            _check("branch", branch, checksum, (session, branch or "", segment, own_depth))
        return _state(None if segment is None else Position(segment, depth), last_seq, epoch, changes)

    def raise_version(self, session: int) -> None:
        self.connection.execute("UPDATE sessions SET changes = changes + 1 WHERE session = ?", (session,))

    def segment(self, session: int, segment: int) -> Segment | None:
        row = self.connection.execute(f"{_SEGMENTS}AND g.segment = ?", (session, segment)).fetchone()
        return None if row is None else read_segment(damaged, session, row)

    def segments(self, session: int, after: int, limit: int) -> list[Segment]:
        sql = f"{_SEGMENTS}AND g.segment > ? ORDER BY g.segment LIMIT ?"
        return [read_segment(damaged, session, row) for row in self.fetch(sql, (session, after, max(limit, 0)))]

    def raise_number(self, session: int, seq: int) -> None:
        sql = "UPDATE sessions SET least_seq = max(least_seq, ?2) WHERE session = ?1"
        self.connection.execute(sql, (session, seq))

    def next_segment(self, session: int) -> int:
        sql = "SELECT coalesce(max(segment), -1) + 1 FROM segments WHERE session = ?"
        return int(self.connection.execute(sql, (session,)).fetchone()[0])

    def put_segment(self, session: int, segment: Segment) -> None:
        values = segment_values(session, segment)
        self.connection.execute(_PUT_SEGMENT, (*values, segment.tip, checksum_of(values)))

    def end(self, session: int, branch: str) -> BranchEnd | None:
        row = self.connection.execute(_END, (session, branch)).fetchone()
        if row is None:
            return None
        segment, depth, tip, attached, checksum, last_seq, forgetful, self._text_key = row
        _check("branch", branch, checksum, (session, branch, segment, None if attached else depth))
        return BranchEnd(Position(segment, depth), tip, bool(attached), last_seq, bool(forgetful))

    def branches(self, session: int) -> list[Branch]:
        found = []
        for name, segment, depth, attached, checksum in self.fetch(_BRANCHES, (session,)):
            _check("branch", name, checksum, (session, name, segment, None if attached else depth))
            found.append(Branch(name, Position(segment, depth)))
        return found

    def put_branch(self, session: int, name: str, head: Position, *, attached: bool = False) -> None:
        depth = None if attached else head.depth
        # The largest is looked up once a transaction, because that takes as long as there are branches.
        if session not in self._ordinals:
            self._ordinals[session] = int(self.connection.execute(_LAST_ORDINAL, (session,)).fetchone()[0])
        self._ordinals[session] += 1
        row = (session, name, head.segment, depth)
        self.connection.execute(_PUT_BRANCH, (*row, self._ordinals[session], checksum_of(row)))

    def detach_branches(self, session: int, segments: Collection[int]) -> None:
        wanted = (session, json.dumps(list(segments)))
        for name, segment, depth in self.connection.execute(_ATTACHED, wanted).fetchall():
            self.put_branch(session, name, Position(segment, depth))

    def rename_branch(self, session: int, name: str, to: str) -> None:
        found = "SELECT session, ?3, segment, depth FROM branches WHERE session = ?1 AND name = ?2"
        for row in self.fetch(found, (session, name, to)):
            sql = "UPDATE branches SET name = ?, checksum = ? WHERE session = ? AND name = ?"
            self.connection.execute(sql, (row[1], checksum_of(row), session, name))
        found = (
            "SELECT session, kind, ?3, segment, depth, base_segment, base_depth, note, ref FROM refs "
            "WHERE session = ?1 AND name = ?2 AND kind IN ('move', 'stash', 'head')"
        )
        rows = self.fetch(found, (session, name, to))
        values = [(row[2], checksum_of(row[:-1]), row[-1]) for row in rows]
        self.connection.executemany("UPDATE refs SET name = ?, checksum = ? WHERE ref = ?", values)

    def drop_branch(self, session: int, name: str) -> None:
        self.connection.execute("DELETE FROM branches WHERE session = ? AND name = ?", (session, name))

    def refs(self, session: int, kind: RefKind, name: str | None = None, limit: int = ALL) -> list[Ref]:
        wanted = "AND kind = ? " if name is None else "AND kind = ? AND name = ? "
        values = (session, kind, *(() if name is None else (name,)), max(limit, 0))
        rows = self.fetch(f"{_REFS}{wanted}ORDER BY ref DESC LIMIT ?", values)
        return [read_ref(damaged, session, row) for row in rows]

    def insert_ref(self, session: int, ref: Ref) -> None:
        positions = (*position_values(ref.position), *position_values(ref.base))
        created_at = ref.created_at or None
        values = (session, ref.kind, ref.name, *positions, ref.note)
        self.connection.execute(_INSERT_REF, (*values, checksum_of(values), created_at))

    def drop_ref(self, session: int, number: int) -> bool:
        sql = "DELETE FROM refs WHERE session = ? AND ref = ?"
        return bool(self.connection.execute(sql, (session, number)).rowcount)


def ident_of(user_id: str | None, session_id: str) -> str:
    """Return a text that no other (user_id, session_id) has."""
    return json.dumps([user_id, session_id], ensure_ascii=False)


def _state(head: Position | None, last_seq: int, epoch: int, changes: int) -> SessionState:
    # A number counts as a change, so that a message is stored without writing the row of its session.
    return SessionState(head, last_seq, epoch, last_seq + changes)


def _few(texts: int, changes: int, sessions: int) -> bool:
    """Return whether to look through what is new; fewer than none is new in a file that was put back."""
    return min(texts, changes) >= 0 and texts + changes <= _FEW + _FEW_EACH * sessions


def _session_key(session: int, user: str | None, session_id: str) -> SessionKey:
    check_names(user, session_id)
    return SessionKey(session, user, session_id)


def check_names(*names: object) -> None:
    """Raise StoreError if a name of a session, which has no checksum, is no text."""
    if not all(isinstance(name, str | None) for name in names):
        raise damaged("the name of a session", f"{names!r} are no texts")
