"""The transaction that writes parts of a session into SQLite just as another store had them."""

import sqlite3
from collections.abc import Collection, Sequence

from shared_core.errors import DuplicateError, UnknownReferenceError
from shared_core.records import Branch, Ref, Restored, Segment
from shared_core.stores.places import check_name, check_place, create_branch
from shared_core.stores.rows import text
from shared_core.stores.writes import insert_records

__all__ = ["restore"]


def restore(connection: sqlite3.Connection, session: int, restored: Restored) -> None:
    """Do what `Store.restore` says, inside the caller's transaction."""
    if connection.execute("SELECT 1 FROM sessions WHERE session = ?", (session,)).fetchone() is None:
        raise UnknownReferenceError(f"there is no session {session!r}")
    grown = {segment.segment for segment in restored.segments}
    _hold_branches(connection, session, grown | {record.position.segment for record in restored.records})
    try:
        for segment in restored.segments:
            _put_segment(connection, session, segment)
        _put_messages(connection, session, restored)
    except sqlite3.IntegrityError as error:
        if error.sqlite_errorcode == sqlite3.SQLITE_CONSTRAINT_FOREIGNKEY:
            raise UnknownReferenceError("a message or a summary stands in a segment that does not exist") from error
        raise DuplicateError(f"an id, a place or a number of a message is taken ({error})") from error
    for branch in restored.branches:
        _put_branch(connection, session, branch)
    _put_refs(connection, session, restored.refs)
    _put_forgotten(connection, session, restored.forgotten)


def _hold_branches(connection: sqlite3.Connection, session: int, segments: Collection[int]) -> None:
    """Have branches that go on with their segments stay where they are."""
    connection.executemany(
        "UPDATE branches SET depth = (SELECT tip FROM tips AS t WHERE t.session = ?1 AND t.segment = ?2) "
        "WHERE session = ?1 AND segment = ?2 AND depth IS NULL",
        [(session, segment) for segment in segments],
    )


def _put_segment(connection: sqlite3.Connection, session: int, segment: Segment) -> None:
    for place in (segment.parent, segment.merged):
        if place is not None:
            check_place(connection, session, place)
    none = (None, None)
    connection.execute(
        "INSERT INTO segments (session, segment, parent_segment, parent_depth, least_tip, merged_segment, "
        "merged_depth, base, turn_shift) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) "
        "ON CONFLICT (session, segment) DO UPDATE SET least_tip = max(least_tip, excluded.least_tip)",
        (
            session, segment.segment, *(segment.parent or none), segment.tip, *(segment.merged or none), segment.base,
            segment.turn_shift,
        ),
    )  # fmt: skip


def _put_messages(connection: sqlite3.Connection, session: int, restored: Restored) -> None:
    key = connection.execute("SELECT coalesce(max(text), 0) + 1 FROM texts").fetchone()[0]
    insert_records(connection, session, key, restored.records)
    connection.executemany(
        "INSERT INTO covers SELECT ?1, ?2, ?3, coalesce(max(ordinal), -1) + 1, ?4, ?5, ?6 FROM covers "
        "WHERE session = ?1 AND segment = ?2 AND depth = ?3",
        [(session, *position, *stretch) for position, stretch in restored.covers],
    )


def _put_branch(connection: sqlite3.Connection, session: int, branch: Branch) -> None:
    check_place(connection, session, branch.head)
    sql = "UPDATE branches SET segment = ?, depth = ? WHERE session = ? AND name = ?"
    if not connection.execute(sql, (*branch.head, session, text(branch.name))).rowcount:
        create_branch(connection, session, branch.name, branch.head)


def _put_refs(connection: sqlite3.Connection, session: int, refs: Sequence[Ref]) -> None:
    none = (None, None)
    for ref in refs:
        if ref.kind == "tag":
            check_name(connection, session, ref.name)
        for place in (ref.place, ref.base):
            if place is not None:
                check_place(connection, session, place)
        connection.execute(
            "INSERT INTO refs (session, kind, name, segment, depth, base_segment, base_depth, note, created_at) "
            "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                session, ref.kind, text(ref.name), *(ref.place or none), *(ref.base or none), text(ref.note),
                text(ref.created_at),
            ),
        )  # fmt: skip


def _put_forgotten(connection: sqlite3.Connection, session: int, ids: Sequence[str]) -> None:
    connection.executemany(
        "INSERT INTO tombstones SELECT ?1, ?2 WHERE NOT EXISTS "
        "(SELECT 1 FROM messages WHERE session = ?1 AND id = ?2) ON CONFLICT DO NOTHING",
        [(session, text(id_)) for id_ in ids],
    )
