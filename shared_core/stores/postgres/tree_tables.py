"""Sessions, segments, branches and refs in PostgreSQL."""

from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime
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
from shared_core.stores import row_values
from shared_core.stores.postgres.damage import damaged
from shared_core.stores.postgres.transactions import Statement, Statements
from shared_core.stores.row_values import check_row, checksum_of, position_values, read_ref, segment_values
from shared_core.stores.rows import BranchEnd, IndexedRows

_BETWEEN = "renamed"
"""Begins the names of sessions that swap their names, in between."""

_check = partial(check_row, damaged)
read_segment = partial(row_values.read_segment, damaged)
"""Return the segment in a row of `SEGMENT_COLUMNS`; StoreError if it is damaged."""

# Not IS NOT DISTINCT FROM, for which PostgreSQL uses no index.
_SESSION = "SELECT session FROM {s}.names WHERE session_id = %(name)s AND user_id = %(user)s"
_SESSION_OF_NOBODY = "SELECT session FROM {s}.names WHERE session_id = %(name)s AND user_id IS NULL"
_SESSIONS = "SELECT session, user_id, session_id FROM {s}.names "
# Sessions are looked up one by one (LIMIT 1), each in its own partition: a join may search all of every partition.
_HOLDING = (
    "SELECT session, user_id, session_id FROM {s}.names, LATERAL (SELECT 1 FROM {s}.messages AS m "
    'WHERE m.session = names.session AND m.id = %(wanted)s COLLATE "C" LIMIT 1) AS held WHERE true '
)
_OF_USERS = "AND (user_id = ANY(%(users)s::text[]) OR %(nobody)s AND user_id IS NULL) "

# Each table is given the session itself: through a join, all partitions would be looked into.
_BRANCH = (
    "LEFT JOIN {s}.branches AS b ON b.session = %(session)s AND b.name = %(branch)s "
    "LEFT JOIN {s}.segments AS g ON g.session = %(session)s AND g.segment = b.segment"
)
STATE = (
    "SELECT s.last_seq, s.epoch, s.version, b.segment, b.depth, b.checksum, g.tip "
    f"FROM {{s}}.sessions AS s {_BRANCH} WHERE s.session = %(session)s"
)
_END = (
    "SELECT s.last_seq, s.epoch, b.segment, b.depth, b.checksum, g.tip, "
    "EXISTS (SELECT 1 FROM {s}.tombstones WHERE session = %(session)s) "
    f"FROM {{s}}.sessions AS s {_BRANCH} WHERE s.session = %(session)s AND b.name IS NOT NULL"
)
_MAIN_STATES = (
    "SELECT n.session, n.user_id, n.session_id, s.last_seq, s.epoch, s.version, b.segment, coalesce(b.depth, g.tip) "
    "FROM {s}.names AS n JOIN {s}.sessions AS s USING (session) "
    "JOIN {s}.branches AS b ON b.session = n.session AND b.name = %(main)s "
    "JOIN {s}.segments AS g ON g.session = n.session AND g.segment = b.segment "
    "WHERE (b.segment, coalesce(b.depth, g.tip)) <> (%(segment)s, %(depth)s) "
)
# The oldest transaction that is still running, and which life of which server this is: a crash gives numbers out again.
_MOMENT = (
    "SELECT pg_snapshot_xmin(pg_current_snapshot())::text::bigint AS oldest, "
    "(extract(epoch FROM greatest(pg_postmaster_start_time(), (SELECT stats_reset FROM pg_stat_bgwriter))) * 1000000)"
    "::bigint AS server"
)
# What a transaction wrote that is not over yet for this one has at least the number `xmax`; so may have what was copied
# from another server. Sessions are looked up one by one, see `joint_reads`.
_CHANGED = (
    f"SELECT m.oldest, m.server, c.* FROM ({_MOMENT}) AS m LEFT JOIN ("
    "SELECT s.session, n.user_id, n.session_id, s.last_seq, s.epoch, s.version, b.segment, b.depth "
    "FROM (SELECT * FROM {s}.sessions AS o WHERE {user} AND o.changed >= %(since)s::bigint "
    "AND o.changed < pg_snapshot_xmax(pg_current_snapshot())::text::bigint OFFSET 0) AS s, "
    "LATERAL (SELECT * FROM {s}.names AS o WHERE o.session = s.session AND {named} OFFSET 0) AS n "
    "LEFT JOIN LATERAL (SELECT h.segment, coalesce(h.depth, g.tip) AS depth FROM "
    "(SELECT * FROM {s}.branches AS o WHERE o.session = s.session AND o.name = %(main)s OFFSET 0) AS h, "
    "LATERAL (SELECT tip FROM {s}.segments AS o WHERE o.session = s.session AND o.segment = h.segment OFFSET 0) AS g "
    "OFFSET 0) AS b ON true) AS c ON true ORDER BY c.session"
)
_OF_USER = {True: "o.{} IS NULL", False: "o.{} = %(user)s"}
SEGMENT_COLUMNS = (
    "g.segment, g.parent_segment, g.parent_depth, g.tip, g.merged_segment, g.merged_depth, g.base, g.turn_shift, "
    "g.checksum"
)
"""The columns that `read_segment` reads."""

_SEGMENT = (
    f"SELECT {SEGMENT_COLUMNS} FROM {{s}}.segments AS g WHERE g.session = %(session)s AND g.segment = %(segment)s"
)
SEGMENTS = (
    f"SELECT {SEGMENT_COLUMNS} FROM {{s}}.segments AS g "
    "WHERE g.session = %(session)s AND g.segment = ANY(%(segments)s::bigint[])"
)
_SEGMENTS_AFTER = (
    f"SELECT {SEGMENT_COLUMNS} FROM {{s}}.segments AS g WHERE g.session = %(session)s AND g.segment > %(after)s "
    "ORDER BY g.segment LIMIT %(limit)s"
)
_PUT_SEGMENT = (
    "INSERT INTO {s}.segments AS g (session, segment, parent_segment, parent_depth, tip, merged_segment, merged_depth, "
    "base, turn_shift, checksum) VALUES (%(session)s, %(segment)s, %(parent_segment)s, %(parent_depth)s, %(tip)s, "
    "%(merged_segment)s, %(merged_depth)s, %(base)s, %(turn_shift)s, %(checksum)s) "
    "ON CONFLICT (session, segment) DO UPDATE SET tip = greatest(g.tip, excluded.tip)"
)
_COUNT_SEGMENT = (
    "UPDATE {s}.sessions SET next_segment = greatest(next_segment, %(segment)s + 1) WHERE session = %(session)s"
)
_INSERT_SESSION = (
    "INSERT INTO {s}.sessions (session, last_seq, epoch, next_segment, owner) VALUES (%(session)s, 0, 0, 0, %(user)s)"
)
_RAISE_VERSION = "UPDATE {s}.sessions SET version = version + 1, changed = DEFAULT WHERE session = %(session)s"
_RAISE_NUMBER = (
    "UPDATE {s}.sessions SET last_seq = greatest(last_seq, %(seq)s), version = version + 1, changed = DEFAULT "
    "WHERE session = %(session)s"
)
_PUT_BRANCH = (
    "INSERT INTO {s}.branches (session, name, segment, depth, ordinal, checksum) "
    "SELECT %(session)s, %(name)s, %(segment)s, %(depth)s, {next}, %(checksum)s "
    "FROM {s}.sessions WHERE session = %(session)s ON CONFLICT (session, name) "
    "DO UPDATE SET segment = excluded.segment, depth = excluded.depth, checksum = excluded.checksum"
)
_ATTACHED = (
    "SELECT b.name, b.segment, g.tip FROM {s}.branches AS b "
    "JOIN {s}.segments AS g ON g.session = %(session)s AND g.segment = b.segment "
    "WHERE b.session = %(session)s AND b.depth IS NULL AND b.segment = ANY(%(segments)s::bigint[])"
)
_BRANCHES = (
    "SELECT b.name, b.segment, b.depth, b.checksum, coalesce(g.tip, (SELECT max(m.depth) FROM {s}.messages AS m "
    "WHERE m.session = %(session)s AND m.segment = b.segment), -1) FROM {s}.branches AS b "
    "LEFT JOIN {s}.segments AS g ON g.session = %(session)s AND g.segment = b.segment "
    "WHERE b.session = %(session)s ORDER BY b.ordinal"
)
"""A branch whose segment is lost is among them."""
_RENAMED = (
    "SELECT session, kind, %(to)s::text, segment, depth, base_segment, base_depth, note, ref FROM {s}.refs "
    "WHERE session = %(session)s AND kind IN ('move', 'stash', 'head') AND name = %(name)s"
)
_REFS = (
    "SELECT ref, kind, name, segment, depth, base_segment, base_depth, note, created_at, checksum FROM {s}.refs "
    "WHERE session = %(session)s AND kind = %(kind)s "
)
_INSERT_REF = (
    "INSERT INTO {s}.refs (session, ref, kind, name, segment, depth, base_segment, base_depth, note, created_at, "
    "checksum) VALUES (%(session)s, {next}, %(kind)s, %(name)s, %(segment)s, %(depth)s, %(base_segment)s, "
    "%(base_depth)s, %(note)s, %(created_at)s, %(checksum)s)"
)

_MAIN_VALUES = {"main": MAIN, "segment": ROOT.segment, "depth": ROOT.depth}


class TreeTables(IndexedRows):
    """Sessions and the tree of each; a base of all other tables.

    Args:
        statements: runs statements, in a transaction if anything is written.
    """

    def __init__(self, statements: Statements) -> None:
        self.statements = statements
        self.run = statements.run
        self.count_rows = statements.count
        self.together = statements.together
        self.at_once = statements.at_once

    def session(self, user_id: str | None, session_id: str) -> int | None:
        sql = _SESSION_OF_NOBODY if user_id is None else _SESSION
        found = self.run(sql, None, {"user": user_id, "name": session_id})
        return found[0][0] if found else None

    def sessions(self, user_ids: Collection[str | None] | None, after: int = 0, limit: int = 2**31) -> list[SessionKey]:
        sql = f"{_SESSIONS}WHERE session > %(after)s "
        found = self._of_users(sql, {"after": after, "limit": max(limit, 0)}, user_ids, "session LIMIT %(limit)s")
        return [_session_key(row) for row in found]

    def users(self, after: str | None = None, limit: int = ALL) -> list[str]:
        more = "user_id > %(after)s" if after is not None else "user_id IS NOT NULL"
        sql = f"SELECT DISTINCT user_id FROM {{s}}.names WHERE {more} ORDER BY user_id LIMIT %(limit)s"
        found = self.run(sql, None, {"after": after, "limit": max(limit, 0)})
        return [user for (user,) in found]

    def sessions_named(self, session_id: str) -> list[SessionKey]:
        found = self.run(f"{_SESSIONS}WHERE session_id = %(name)s ORDER BY session", None, {"name": session_id})
        return [_session_key(row) for row in found]

    def sessions_with(self, user_id: str | None, message: str | int) -> list[SessionKey]:
        by_words = isinstance(message, int)
        sql = _HOLDING.replace('m.id = %(wanted)s COLLATE "C"', "m.fingerprint = %(wanted)s") if by_words else _HOLDING
        values = {"wanted": message}
        found = self._of_users(sql, values, [user_id], "session")
        return [_session_key(row) for row in found]

    def main_changes(self, user_id: str | None, since: Mark | None = None) -> MainChanges:
        """See `Rows`. A mark is the oldest transaction that was running, and the time when the server was started."""
        if since is not None:
            given = {"user": user_id, "since": since[0], "main": MAIN}
            whose = _OF_USER[user_id is None]  # `names` tells; the other narrows the search
            sql = _CHANGED.replace("{user}", whose.format("owner")).replace("{named}", whose.format("user_id"))
            rows = self.run(sql, None, given)
            oldest, server = rows[0][:2]
            if server == since[1]:
                found = [_session_state(row[2:]) for row in rows if row[2] is not None]
                return MainChanges(found, (oldest, server), False)
        return self._all_of(user_id)

    def _all_of(self, user_id: str | None) -> MainChanges:
        users = {"users": [user_id] if user_id is not None else [], "nobody": user_id is None}
        asked = Statement(f"{_MAIN_STATES}{_OF_USERS}ORDER BY n.session", None, _MAIN_VALUES | users)
        (moment,), rows = self.together([Statement(_MOMENT, None, {}), asked])
        return MainChanges([_session_state(row) for row in rows], moment, True)

    def _of_users(
        self, sql: str, values: Mapping[str, Any], user_ids: Collection[str | None] | None, order: str
    ) -> list[tuple[Any, ...]]:
        """Return the rows of a query on sessions that belong to some users, oldest first; None: everybody's."""
        if user_ids is None:
            return self.run(f"{sql}ORDER BY {order}", None, values)
        named = {"users": [one for one in user_ids if one is not None], "nobody": None in user_ids}
        return self.run(f"{sql}{_OF_USERS}ORDER BY {order}", None, {**values, **named})

    def session_keys(self) -> list[int]:
        sql = "SELECT session FROM {s}.segments UNION SELECT session FROM {s}.messages ORDER BY session"
        return [session for (session,) in self.run(sql, None)]

    def insert_session(self, user_id: str | None, session_id: str) -> int | None:
        sql = "INSERT INTO {s}.names VALUES ({next}, %(user)s, %(name)s) ON CONFLICT DO NOTHING RETURNING session"
        found = self.run(sql, None, {"user": user_id, "name": session_id})
        for (session,) in found:
            self.run(_INSERT_SESSION, session, {"user": user_id})
            return int(session)
        return None

    def session_key(self, session: int) -> SessionKey | None:
        found = self.run("SELECT session, user_id, session_id FROM {s}.names WHERE session = %(session)s", session)
        return _session_key(found[0]) if found else None

    def rename_sessions(self, names: Mapping[int, str]) -> None:
        sql = "UPDATE {s}.names SET session_id = %(name)s WHERE session = %(session)s"
        for session in names if len(names) > 1 else ():
            self.run(sql, session, {"name": f"{_BETWEEN} {session}"})
        for session, name in names.items():
            self.run(sql, session, {"name": name})

    def state(self, session: int, branch: str | None) -> SessionState | None:
        return read_state(session, branch, self.run(STATE, session, {"branch": branch}))

    def raise_version(self, session: int) -> None:
        self.run(_RAISE_VERSION, session)

    def segment(self, session: int, segment: int) -> Segment | None:
        found = self.run(_SEGMENT, session, {"segment": segment})
        return read_segment(session, found[0]) if found else None

    def segments(self, session: int, after: int, limit: int) -> list[Segment]:
        values = {"after": after, "limit": max(limit, 0)}
        return [read_segment(session, row) for row in self.run(_SEGMENTS_AFTER, session, values)]

    def raise_number(self, session: int, seq: int) -> None:
        self.run(_RAISE_NUMBER, session, {"seq": seq})

    def next_segment(self, session: int) -> int:
        found = self.run("SELECT next_segment FROM {s}.sessions WHERE session = %(session)s", session)
        return found[0][0] if found else 0

    def put_segment(self, session: int, segment: Segment) -> None:
        sealed = segment_values(session, segment)
        names = ("segment", "parent_segment", "parent_depth", "merged_segment", "merged_depth", "base", "turn_shift")
        values = dict(zip(names, sealed[1:], strict=True))
        self.run(_PUT_SEGMENT, session, {**values, "tip": segment.tip, "checksum": checksum_of(sealed)})
        self.run(_COUNT_SEGMENT, session, {"segment": segment.segment})

    def end(self, session: int, branch: str) -> BranchEnd | None:
        found = self.run(_END, session, {"branch": branch})
        if not found:
            return None
        last_seq, _, segment, depth, checksum, tip, forgetful = found[0]
        head = head_of(session, branch, segment, depth, checksum, tip)
        return BranchEnd(head, tip, depth is None, last_seq, forgetful)

    def branches(self, session: int) -> list[Branch]:
        found = self.run(_BRANCHES, session)
        return [Branch(name, head_of(session, name, *columns)) for name, *columns in found]

    def put_branch(self, session: int, name: str, head: Position, *, attached: bool = False) -> None:
        row = branch_row(session, name, head.segment, None if attached else head.depth)
        self.run(_PUT_BRANCH, session, dict(zip(("name", "segment", "depth", "checksum"), row[1:], strict=True)))

    def detach_branches(self, session: int, segments: Collection[int]) -> None:
        for name, segment, depth in self.run(_ATTACHED, session, {"segments": list(segments)}):
            self.put_branch(session, name, Position(segment, depth))

    def rename_branch(self, session: int, name: str, to: str) -> None:
        names = {"name": name, "to": to}
        where = "WHERE session = %(session)s AND name = %(name)s"
        for row in self.run(
            f"SELECT session, %(to)s::text, segment, depth FROM {{s}}.branches {where}", session, names
        ):
            sql = f"UPDATE {{s}}.branches SET name = %(to)s, checksum = %(checksum)s {where}"
            self.run(sql, session, {**names, "checksum": checksum_of(row)})
        for *own, ref in self.run(_RENAMED, session, names):
            sql = (
                "UPDATE {s}.refs SET name = %(to)s, checksum = %(checksum)s "
                "WHERE session = %(session)s AND ref = %(ref)s"
            )
            self.run(sql, session, {"to": to, "ref": ref, "checksum": checksum_of(own)})

    def drop_branch(self, session: int, name: str) -> None:
        sql = "DELETE FROM {s}.branches WHERE session = %(session)s AND name = %(name)s"
        self.run(sql, session, {"name": name})

    def refs(self, session: int, kind: RefKind, name: str | None = None, limit: int = ALL) -> list[Ref]:
        named = "" if name is None else "AND name = %(name)s "
        values = {"kind": kind, "limit": max(limit, 0), "name": name}
        found = self.run(f"{_REFS}{named}ORDER BY ref DESC LIMIT %(limit)s", session, values)
        return [read_ref(damaged, session, row) for row in found]

    def insert_ref(self, session: int, ref: Ref) -> None:
        positions = (*position_values(ref.position), *position_values(ref.base))
        row = (session, ref.kind, ref.name, *positions, ref.note)
        names = ("kind", "name", "segment", "depth", "base_segment", "base_depth", "note")
        values = dict(zip(names, row[1:], strict=True))
        created_at = ref.created_at or f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S}"
        self.run(_INSERT_REF, session, {**values, "created_at": created_at, "checksum": checksum_of(row)})

    def drop_ref(self, session: int, number: int) -> bool:
        sql = "DELETE FROM {s}.refs WHERE session = %(session)s AND ref = %(ref)s"
        return bool(self.count_rows(sql, session, {"ref": number}))


def branch_row(session: int, name: str, segment: int, depth: int | None) -> tuple[Any, ...]:
    """Return the session, name, segment, depth and checksum of a branch, as they are stored."""
    row = (session, name, segment, depth)
    return (*row, checksum_of(row))


def read_state(session: int, branch: str | None, rows: Sequence[tuple[Any, ...]]) -> SessionState | None:
    """Return the state in the rows of `STATE`; None if there are none, StoreError if the branch is damaged."""
    for last_seq, epoch, version, segment, depth, checksum, tip in rows:
        head = None if segment is None else head_of(session, branch or "", segment, depth, checksum, tip)
        return SessionState(head, last_seq, epoch, version)
    return None


def head_of(session: int, name: str, segment: int, depth: int | None, checksum: int, tip: int) -> Position:
    """Return where a branch ends, from its row and the tip of its segment; StoreError if the row is damaged."""
    _check("branch", name, checksum, (session, name, segment, depth))
    return Position(segment, tip if depth is None else depth)


def _session_key(row: tuple[Any, ...]) -> SessionKey:
    session, user_id, session_id = row
    return SessionKey(session, user_id, session_id)


def _session_state(row: tuple[Any, ...]) -> tuple[SessionKey, SessionState]:
    head = None if row[6] is None else Position(*row[6:])
    return _session_key(row[:3]), SessionState(head, *row[3:6])
