"""The two transactions that change a conversation in SQLite: append and forget."""

import hashlib
import sqlite3
from collections.abc import Iterable, Sequence
from typing import Any

from shared_core.errors import DuplicateError, UnknownReferenceError
from shared_core.messages import Message
from shared_core.records import MAIN, Appended, Draft, Newest, Position, Record, assign_turns
from shared_core.stores.rows import COLUMNS, canonical, message_row, plain, record_of, text, text_row

__all__ = ["SELECT", "append", "create_branch", "create_session", "forget", "head_of", "segment_row"]

SELECT = f"SELECT {COLUMNS} FROM messages AS m JOIN texts AS t USING (text) WHERE m.session = ? "
"""Reads rows for `record_of`; conditions on `m` follow."""

_INSERT_MESSAGE = (
    "INSERT INTO messages (session, segment, depth, seq, id, turn_id, turn_no, role, created_at, stays, counter, "
    "tokens, text) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
)


def create_session(connection: sqlite3.Connection, ident: str | bytes, user_id: Any, session_id: str) -> int:
    """Insert a session with an empty `main` at the root, if it does not exist; return its key."""
    row = connection.execute("SELECT session FROM sessions WHERE ident = ?", (ident,)).fetchone()
    if row is not None:
        return int(row[0])
    session = connection.execute(
        "INSERT INTO sessions (ident, user_id, session_id) VALUES (?, ?, ?)", (ident, user_id, text(session_id))
    ).lastrowid
    assert session is not None
    _begin(connection, session)
    return session


def append(
    connection: sqlite3.Connection,
    session: int,
    branch: str,
    drafts: Sequence[Draft],
    at: Position | None,
    turn: str | None,
) -> Appended:
    """Do what `Store.append` says, inside the caller's transaction."""
    _check_ids(drafts)
    if at is not None:
        create_branch(connection, session, branch, at)
    head = at or head_of(connection, session, branch)
    named = None if turn is None else _named_turn(connection, session, turn)
    known = _known(connection, session, drafts)
    forgotten = tuple(id_ for id_ in _tombstones(connection, session, drafts) if id_ not in known)
    skipped = known.keys() | set(forgotten)
    new = [draft for draft in drafts if draft.message.id not in skipped]
    if new:
        newest = _newest_turn(connection, session, head)
        turns = assign_turns([draft.message for draft in new], newest, named)
        start = _room(connection, session, head, len(new))
        head = Position(start.segment, start.depth + len(new))
        connection.execute(
            "UPDATE branches SET segment = ?, depth = ? WHERE session = ? AND name = ?", (*head, session, text(branch))
        )
        known |= _insert(connection, session, start, zip(new, turns, strict=True))
    records = tuple(known[id_] for draft in drafts if (id_ := draft.message.id) in known)
    return Appended(records, frozenset(str(draft.message.id) for draft in new), forgotten, head)


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


def head_of(connection: sqlite3.Connection, session: int, branch: str) -> Position:
    """Return where a branch stands; UnknownReferenceError if there is none."""
    sql = "SELECT segment, depth FROM branches WHERE session = ? AND name = ?"
    row = connection.execute(sql, (session, text(branch))).fetchone()
    if row is not None:
        return Position(*row)
    rows = connection.execute("SELECT name FROM branches WHERE session = ? ORDER BY ordinal", (session,))
    names = [plain(row[0]) for row in rows]
    raise UnknownReferenceError(f"there is no branch {branch!r}; choose one of {names}", candidates=names)


def segment_row(connection: sqlite3.Connection, session: int, segment: int) -> tuple[int | None, int | None, int]:
    """Return (parent segment, parent depth, tip); UnknownReferenceError if there is no such segment."""
    row: tuple[int | None, int | None, int] | None = connection.execute(
        "SELECT parent_segment, parent_depth, tip FROM segments WHERE session = ? AND segment = ?", (session, segment)
    ).fetchone()
    if row is None:
        raise UnknownReferenceError(f"there is no segment {segment!r} in session {session!r}")
    return row


def forget(connection: sqlite3.Connection, session: int, positions: Sequence[Position], *, branches: bool) -> None:
    """Do what `Store.forget` says, inside the caller's transaction."""
    changed = connection.execute("UPDATE sessions SET epoch = epoch + 1 WHERE session = ?", (session,))
    if changed.rowcount == 0:
        return
    secret = connection.execute("SELECT value FROM meta WHERE name = 'secret'").fetchone()[0]
    for position in positions:
        _erase(connection, session, position, secret)
    connection.execute("DELETE FROM snapshots WHERE session = ?", (session,))
    if branches:
        connection.execute("DELETE FROM branches WHERE session = ?", (session,))
        _begin(connection, session)


def _begin(connection: sqlite3.Connection, session: int) -> None:
    """Open an empty segment without a parent, and `main` on it."""
    segment = _open_segment(connection, session, None, -1)
    create_branch(connection, session, MAIN, Position(segment, -1))


def _open_segment(connection: sqlite3.Connection, session: int, parent: Position | None, tip: int) -> int:
    sql = "SELECT coalesce(max(segment), -1) + 1 FROM segments WHERE session = ?"
    segment: int = connection.execute(sql, (session,)).fetchone()[0]
    values = (session, segment, *(parent or (None, None)), tip)
    connection.execute("INSERT INTO segments VALUES (?, ?, ?, ?, ?)", values)
    return segment


def _check_ids(drafts: Sequence[Draft]) -> None:
    seen: set[str] = set()
    for draft in drafts:
        id_ = draft.message.id
        if id_ is None or draft.message.created_at is None:
            raise ValueError(f"a draft needs id and created_at; {draft.message.role} message {id_!r} lacks one")
        if id_ in seen:
            raise DuplicateError(f"message {id_!r} is given twice in one call; give each message its own id")
        seen.add(id_)


def _known(connection: sqlite3.Connection, session: int, drafts: Sequence[Draft]) -> dict[str | None, Record]:
    """Return the records of drafts that are stored already; DuplicateError if one says something else."""
    known: dict[str | None, Record] = {}
    for draft in drafts:
        message = draft.message
        row = connection.execute(SELECT + "AND m.id = ?", (session, text(str(message.id)))).fetchone()
        if row is not None:
            record = record_of(row)
            if canonical(record.message) != canonical(message):
                raise DuplicateError(f"message {message.id!r} is already stored with other content; give it a new id")
            known[message.id] = record
    return known


def _tombstones(connection: sqlite3.Connection, session: int, drafts: Sequence[Draft]) -> list[str]:
    sql = "SELECT 1 FROM tombstones WHERE session = ?"
    if connection.execute(sql + " LIMIT 1", (session,)).fetchone() is None:
        return []
    ids = [str(draft.message.id) for draft in drafts]
    return [id_ for id_ in ids if connection.execute(sql + " AND id = ?", (session, text(id_))).fetchone()]


def _named_turn(connection: sqlite3.Connection, session: int, turn: str) -> Newest:
    sql = "SELECT turn_no FROM messages WHERE session = ? AND turn_id = ? ORDER BY seq LIMIT 1"
    row = connection.execute(sql, (session, text(turn))).fetchone()
    if row is None:
        raise UnknownReferenceError(f"there is no turn {turn!r}; give the id of its user message")
    return Newest(turn, row[0])


def _newest_turn(connection: sqlite3.Connection, session: int, head: Position) -> Newest:
    """Return the turn of the newest user message on the first-parent path that ends at `head`."""
    sql = (
        "SELECT turn_id, turn_no FROM messages WHERE session = ? AND segment = ? AND depth <= ? AND role = 'user' "
        "ORDER BY depth DESC LIMIT 1"
    )
    segment: int | None = head.segment
    depth: int | None = head.depth
    while segment is not None:
        row = connection.execute(sql, (session, segment, depth)).fetchone()
        if row is not None:
            return Newest(plain(row[0]), row[1])
        segment, depth, _ = segment_row(connection, session, segment)
    return Newest(None, -1)


def _room(connection: sqlite3.Connection, session: int, head: Position, count: int) -> Position:
    """Return the place before the first of `count` new messages: `head` itself, or the same depth in a new segment."""
    extended = connection.execute(
        "UPDATE segments SET tip = tip + ? WHERE session = ? AND segment = ? AND tip = ?",
        (count, session, head.segment, head.depth),
    )
    if extended.rowcount:
        return head
    return Position(_open_segment(connection, session, head, head.depth + count), head.depth)


def _insert(
    connection: sqlite3.Connection, session: int, start: Position, drafts: Iterable[tuple[Draft, Newest]]
) -> dict[str | None, Record]:
    """Insert messages from the place after `start` on; return id -> record."""
    key: int = connection.execute("SELECT coalesce(max(text), 0) + 1 FROM texts").fetchone()[0]
    sql = "SELECT last_seq + 1 FROM sessions WHERE session = ?"
    seq: int = connection.execute(sql, (session,)).fetchone()[0]
    records = [
        Record(
            message=draft.message.replace(turn_id=turn.turn_id),
            position=Position(start.segment, start.depth + number + 1),
            seq=seq + number,
            turn_no=turn.turn_no,
            counter=draft.counter,
            tokens=draft.tokens,
        )
        for number, (draft, turn) in enumerate(drafts)
    ]
    texts = [text_row(key + number, record.message) for number, record in enumerate(records)]
    connection.executemany("INSERT INTO texts VALUES (?, ?, ?, ?)", texts)
    rows = [message_row(session, record, key + number) for number, record in enumerate(records)]
    connection.executemany(_INSERT_MESSAGE, rows)
    connection.execute("UPDATE sessions SET last_seq = ? WHERE session = ?", (seq + len(records) - 1, session))
    return {record.message.id: record for record in records}


def _erase(connection: sqlite3.Connection, session: int, position: Position, secret: bytes) -> None:
    place = (session, *position)
    sql = SELECT.replace(" FROM ", ", m.text FROM ", 1) + "AND m.segment = ? AND m.depth = ?"
    row = connection.execute(sql, place).fetchone()
    if row is None:
        return
    message = record_of(row[:-1]).message
    digest = _digest(message, secret)
    connection.execute("INSERT OR REPLACE INTO tombstones VALUES (?, ?, ?)", (session, text(str(message.id)), digest))
    connection.execute("DELETE FROM messages WHERE session = ? AND segment = ? AND depth = ?", place)
    # Zeroes of the same length are written over the very bytes; see table `texts`.
    connection.execute(
        "UPDATE vectors SET hash = zeroblob(length(CAST(hash AS BLOB))), vector = zeroblob(length(vector)), live = 0 "
        "WHERE session = ? AND segment = ? AND depth = ?",
        place,
    )
    connection.execute(
        "UPDATE texts SET name = zeroblob(length(CAST(name AS BLOB))), "
        "content = zeroblob(length(CAST(content AS BLOB))), extra = zeroblob(length(CAST(extra AS BLOB))) "
        "WHERE text = ?",
        (row[-1],),
    )


def _digest(message: Message, secret: bytes) -> bytes:
    return hashlib.blake2b(canonical(message), key=secret, digest_size=32).digest()
