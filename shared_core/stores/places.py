"""Where things stand in SQLite: sessions, segments, branches and turns, looked up and opened inside a transaction."""

import sqlite3
from collections.abc import Collection, Iterator
from typing import Any

from shared_core.errors import DuplicateError, UnknownReferenceError
from shared_core.records import MAIN, Newest, Position
from shared_core.stores.rows import plain, text

__all__ = [
    "begin",
    "create_branch",
    "create_session",
    "named_turn",
    "newest_turn",
    "on_path",
    "open_segment",
    "segment_row",
]


def create_session(connection: sqlite3.Connection, ident: str | bytes, user_id: Any, session_id: str) -> int:
    """Insert a session with an empty `main` at the root, if it does not exist; return its key."""
    row = connection.execute("SELECT session FROM sessions WHERE ident = ?", (ident,)).fetchone()
    if row is not None:
        return int(row[0])
    session = connection.execute(
        "INSERT INTO sessions (ident, user_id, session_id) VALUES (?, ?, ?)", (ident, user_id, text(session_id))
    ).lastrowid
    assert session is not None
    begin(connection, session)
    return session


def begin(connection: sqlite3.Connection, session: int) -> None:
    """Open an empty segment without a parent, and `main` on it."""
    segment = open_segment(connection, session, None)
    create_branch(connection, session, MAIN, Position(segment, -1))


def open_segment(connection: sqlite3.Connection, session: int, parent: Position | None) -> int:
    """Insert a segment that grows out of `parent` and has no message yet; return its number."""
    sql = "SELECT coalesce(max(segment), -1) + 1 FROM segments WHERE session = ?"
    segment: int = connection.execute(sql, (session,)).fetchone()[0]
    values = (session, segment, *(parent or (None, None)), parent.depth if parent else -1)
    connection.execute("INSERT INTO segments VALUES (?, ?, ?, ?, ?)", values)
    return segment


def create_branch(connection: sqlite3.Connection, session: int, name: str, at: Position) -> None:
    """Insert a branch.

    Raises:
        DuplicateError: the name is taken.
        UnknownReferenceError: `at` is not a place of this session.
    """
    taken = connection.execute("SELECT 1 FROM branches WHERE session = ? AND name = ?", (session, text(name)))
    if taken.fetchone():
        raise DuplicateError(f"there is already a branch {name!r}; choose another name")
    _, parent_depth, tip = segment_row(connection, session, at.segment)
    if not (-1 if parent_depth is None else parent_depth) <= at.depth <= tip:
        raise UnknownReferenceError(f"there is no place {tuple(at)}; depths of segment {at.segment} end at {tip}")
    connection.execute(
        "INSERT INTO branches (session, name, segment, depth, ordinal) "
        "SELECT ?1, ?2, ?3, ?4, coalesce(max(ordinal), 0) + 1 FROM branches WHERE session = ?1",
        (session, text(name), *at),
    )


def segment_row(connection: sqlite3.Connection, session: int, segment: int) -> tuple[int | None, int | None, int]:
    """Return (parent segment, parent depth, tip); UnknownReferenceError if there is no such segment."""
    row: tuple[int | None, int | None, int] | None = connection.execute(
        "SELECT parent_segment, parent_depth, tip FROM tips WHERE session = ? AND segment = ?", (session, segment)
    ).fetchone()
    if row is None:
        raise UnknownReferenceError(f"there is no segment {segment!r} in session {session!r}")
    return row


def named_turn(connection: sqlite3.Connection, session: int, turn: str, head: Position) -> Newest:
    """Return a turn that has a message on the path that ends at `head`; UnknownReferenceError if there is none."""
    # The + keeps SQLite to the index of turns: by place, it would look at the whole segment.
    sql = (
        "SELECT turn_no FROM messages WHERE session = ? AND turn_id = ? AND +segment = ? AND +depth <= ? "
        "ORDER BY seq LIMIT 1"
    )
    for segment, depth in _spans(connection, session, head):
        row = connection.execute(sql, (session, text(turn), segment, depth)).fetchone()
        if row is not None:
            return Newest(turn, row[0])
    raise UnknownReferenceError(f"there is no turn {turn!r} on this branch; give the id of its user message")


def newest_turn(connection: sqlite3.Connection, session: int, head: Position) -> Newest:
    """Return the turn of the newest user message on the first-parent path that ends at `head`."""
    sql = (
        "SELECT turn_id, turn_no FROM messages WHERE session = ? AND segment = ? AND depth <= ? AND role = 'user' "
        "ORDER BY depth DESC LIMIT 1"
    )
    for segment, depth in _spans(connection, session, head):
        row = connection.execute(sql, (session, segment, depth)).fetchone()
        if row is not None:
            return Newest(plain(row[0]), row[1])
    return Newest(None, -1)


def on_path(
    connection: sqlite3.Connection, session: int, head: Position, places: Collection[Position]
) -> Iterator[Position]:
    """Yield those of some places that lie on the path that ends at `head`."""
    left = set(places)
    spans = _spans(connection, session, head)
    while left and (span := next(spans, None)):
        inside = {place for place in left if place.segment == span.segment}
        yield from (place for place in inside if place.depth <= span.depth)
        left -= inside


def _spans(connection: sqlite3.Connection, session: int, head: Position) -> Iterator[Position]:
    """Yield the newest place of each segment on the first-parent path that ends at `head`, newest segment first."""
    segment: int | None = head.segment
    depth: int | None = head.depth
    while segment is not None and depth is not None:
        yield Position(segment, depth)
        segment, depth, _ = segment_row(connection, session, segment)
