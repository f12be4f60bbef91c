"""Where things stand in SQLite: sessions, segments, branches and turns, looked up and opened inside a transaction."""

import sqlite3
from collections.abc import Collection, Iterator
from functools import partial
from typing import Any

from shared_core.errors import DuplicateError, UnknownReferenceError
from shared_core.records import MAIN, Newest, Position, Segment
from shared_core.stores.rows import plain, text
from shared_core.tree.paths import Span, walk

__all__ = [
    "begin",
    "check_name",
    "check_place",
    "create_branch",
    "create_session",
    "named_turn",
    "newest_on",
    "newest_turn",
    "on_path",
    "open_segment",
    "segment_at",
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


def open_segment(
    connection: sqlite3.Connection,
    session: int,
    parent: Position | None,
    *,
    merged: Position | None = None,
    base: int | None = None,
    turn_shift: int = 0,
) -> int:
    """Insert a segment that grows out of `parent` and has no message yet; return its number; see `Segment`."""
    sql = "SELECT coalesce(max(segment), -1) + 1 FROM segments WHERE session = ?"
    segment: int = connection.execute(sql, (session,)).fetchone()[0]
    tip = base if base is not None else parent.depth if parent else -1
    connection.execute(
        "INSERT INTO segments (session, segment, parent_segment, parent_depth, least_tip, merged_segment, "
        "merged_depth, base, turn_shift) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (session, segment, *(parent or (None, None)), tip, *(merged or (None, None)), base, turn_shift),
    )
    return segment


def create_branch(connection: sqlite3.Connection, session: int, name: str, at: Position) -> None:
    """Insert a branch.

    Raises:
        DuplicateError: the name is taken.
        UnknownReferenceError: `at` is not a place of this session.
    """
    check_name(connection, session, name)
    check_place(connection, session, at)
    connection.execute(
        "INSERT INTO branches (session, name, segment, depth, ordinal) "
        "SELECT ?1, ?2, ?3, ?4, coalesce(max(ordinal), 0) + 1 FROM branches WHERE session = ?1",
        (session, text(name), *at),
    )


def check_name(connection: sqlite3.Connection, session: int, name: str) -> None:
    """Raise DuplicateError if a branch or a tag has this name."""
    for kind, sql in (
        ("branch", "SELECT 1 FROM branches WHERE session = ? AND name = ?"),
        ("tag", "SELECT 1 FROM refs WHERE session = ? AND kind = 'tag' AND name = ?"),
    ):
        if connection.execute(sql, (session, text(name))).fetchone():
            raise DuplicateError(f"there is already a {kind} {name!r}; choose another name")


def check_place(connection: sqlite3.Connection, session: int, at: Position) -> None:
    """Raise UnknownReferenceError if the session has no such place."""
    segment = segment_at(connection, session, at.segment)
    first = segment.base if segment.base is not None else segment.start - 1
    if not first <= at.depth <= segment.tip:
        raise UnknownReferenceError(f"there is no place {tuple(at)}; segment {at.segment} ends at {segment.tip}")


def segment_at(connection: sqlite3.Connection, session: int, segment: int) -> Segment:
    """Return a segment; UnknownReferenceError if there is none of this number."""
    row = connection.execute(
        "SELECT g.parent_segment, g.parent_depth, t.tip, g.merged_segment, g.merged_depth, g.base, g.turn_shift "
        "FROM segments AS g JOIN tips AS t ON t.session = g.session AND t.segment = g.segment "
        "WHERE g.session = ? AND g.segment = ?",
        (session, segment),
    ).fetchone()
    if row is None:
        raise UnknownReferenceError(f"there is no segment {segment!r} in session {session!r}")
    parent = None if row[0] is None else Position(*row[:2])
    return Segment(segment, parent, row[2], None if row[3] is None else Position(*row[3:5]), *row[5:])


def named_turn(connection: sqlite3.Connection, session: int, turn: str, head: Position) -> Newest:
    """Return a turn that has a message on the path that ends at `head`; UnknownReferenceError if there is none."""
    # The + keeps SQLite to the index of turns: by place, it would look at the whole segment.
    sql = (
        "SELECT turn_no FROM messages WHERE session = ? AND turn_id = ? AND +segment = ? AND +depth <= ? "
        "ORDER BY seq LIMIT 1"
    )
    for place in _ancestry(connection, session, head):
        row = connection.execute(sql, (session, text(turn), *place)).fetchone()
        if row is not None:
            return Newest(turn, row[0])
    raise UnknownReferenceError(f"there is no turn {turn!r} on this branch; give the id of its user message")


def newest_turn(connection: sqlite3.Connection, session: int, head: Position) -> tuple[Newest, int]:
    """Return the turn of the newest user message on the path that ends at `head`, and its number on that path."""
    return newest_on(connection, session, _spans_back(connection, session, head))


def newest_on(connection: sqlite3.Connection, session: int, spans_back: Iterator[Span]) -> tuple[Newest, int]:
    """Return the turn of the newest user message of some spans, newest span first, and its number on their path."""
    sql = (
        "SELECT turn_id, turn_no FROM messages WHERE session = ? AND segment = ? AND depth BETWEEN ? AND ? "
        "AND role = 'user' ORDER BY depth DESC LIMIT 1"
    )
    for span in spans_back:
        row = connection.execute(sql, (session, *span.stretch)).fetchone()
        if row is not None:
            return Newest(plain(row[0]), row[1]), row[1] + span.turn_shift
    return Newest(None, -1), -1


def on_path(
    connection: sqlite3.Connection, session: int, head: Position, places: Collection[Position]
) -> Iterator[Position]:
    """Yield those of some places that lie on the path that ends at `head`."""
    left = set(places)
    spans = _ancestry(connection, session, head)
    while left and (span := next(spans, None)):
        found = {place for place in left if place.segment == span.segment and place.depth <= span.depth}
        yield from found
        left -= found


def _ancestry(connection: sqlite3.Connection, session: int, head: Position) -> Iterator[Position]:
    """Yield the newest place of each segment on the path that ends at `head`, second parents last.

    A segment that two lines of it share may be yielded again, deeper.
    """
    seen: dict[int, int] = {}
    place: Position | None = head
    later: list[Position] = []
    while place is not None or later:
        place = later.pop() if place is None else place
        known = seen.get(place.segment)
        if known is None or known < place.depth:
            seen[place.segment] = place.depth
            yield place
        if known is not None:
            place = None
            continue
        segment = segment_at(connection, session, place.segment)
        later += [segment.merged] if segment.merged is not None else []
        place = segment.parent


def _spans_back(connection: sqlite3.Connection, session: int, head: Position) -> Iterator[Span]:
    """Yield the spans of the path that ends at `head`, newest first, reading no more segments than are asked for.

    The spans of single segments start at 0, before which no segment has a message, so that none is read for the first.
    """
    place: Position | None = head
    while place is not None:
        yield Span(place.segment, place.depth, 0)
        segment = segment_at(connection, session, place.segment)
        if segment.merged is not None:
            yield from reversed(walk(place, partial(segment_at, connection, session)).spans[:-1])
            return
        place = segment.parent
