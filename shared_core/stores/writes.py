"""The transaction that adds messages to SQLite."""

import sqlite3
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from shared_core.errors import DuplicateError, UnknownReferenceError
from shared_core.records import Appended, Change, Draft, Newest, Position, Record
from shared_core.stores.changing import change
from shared_core.stores.places import create_branch, named_turn, newest_turn, on_path, open_segment
from shared_core.stores.rows import COLUMNS, canonical, message_row, plain, record_of, text, text_row
from shared_core.turns import assign_turns

__all__ = ["SELECT", "SELECT_AT", "append", "insert_records"]

SELECT = f"SELECT {COLUMNS} FROM messages AS m JOIN texts AS t USING (text) WHERE m.session = ? "
"""Reads rows for `record_of`; conditions on `m` follow."""

SELECT_AT = (
    f"SELECT {COLUMNS} FROM json_each(?) AS w CROSS JOIN messages AS m JOIN texts AS t USING (text) "
    "WHERE m.session = ? AND m.segment = json_extract(w.value, '$[0]') "
    "AND m.depth = json_extract(w.value, '$[1]') ORDER BY w.key"
)
"""The same for many positions, given as JSON: one statement takes half as long as one for each."""

_INSERT_MESSAGE = (
    "INSERT INTO messages (session, segment, depth, seq, id, turn_id, turn_no, role, created_at, stays, counter, "
    "tokens, picked_from, text) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
)

_END = (
    "SELECT segment, depth, tip, goes_on, last_seq + 1, (SELECT coalesce(max(text), 0) + 1 FROM texts), "
    "EXISTS (SELECT 1 FROM tombstones WHERE session = ?1) "
    "FROM heads JOIN states USING (session) WHERE session = ?1 AND name = ?2"
)

_BY_ID = SELECT.replace("messages AS m", "messages AS m INDEXED BY messages_id")
"""Told the index, or SQLite reads all of the session where several ids are asked for at once."""

_LOOKED_UP = 100
"""Ids looked up in one statement, which takes a fifth of what one for each does."""


class _End(NamedTuple):
    """The end of a branch, and what comes next there.

    `goes_on`: the branch is at the tip of its segment and moves with it. `seq`, `key`: of the next message and text.
    `forgetful`: whether any id was forgotten.
    """

    head: Position
    tip: int
    goes_on: bool
    seq: int
    key: int
    forgetful: bool


def append(
    connection: sqlite3.Connection,
    session: int,
    branch: str,
    drafts: Sequence[Draft],
    at: Position | None,
    turn: str | None,
    changes: Sequence[Change],
) -> Appended:
    """Do what `Store.append` says, inside the caller's transaction."""
    _check_ids(drafts)
    if at is not None:
        create_branch(connection, session, branch, at)
    change(connection, session, changes)
    end = _end(connection, session, branch)
    head = end.head
    newest, turn_no = newest_turn(connection, session, head)
    named = newest if turn in (None, newest.turn_id) else named_turn(connection, session, turn, head)
    known = _known(connection, session, drafts)
    forgotten = _tombstones(connection, session, drafts) if end.forgetful else ()
    skipped = known.keys() | set(forgotten)
    new = [draft for draft in drafts if draft.message.id not in skipped]
    if new:
        # A turn's number is the same in all its messages; where it comes from a merge, it has another on this path.
        newest = Newest(newest.turn_id, turn_no)
        before = _joined(connection, session, head, known.values()) if known else {}
        listed = [d.message for d in drafts if d.message.id in before or d.message.id not in skipped]
        turns = dict(zip((m.id for m in listed), assign_turns(listed, newest, named, before), strict=True))
        start = head if end.goes_on else _room(connection, session, branch, end)
        head = Position(start.segment, start.depth + len(new))
        known |= _insert(connection, session, start, end, new, turns)
    records = tuple(known[id_] for draft in drafts if (id_ := draft.message.id) in known)
    return Appended(records, frozenset(str(draft.message.id) for draft in new), forgotten, head)


def _end(connection: sqlite3.Connection, session: int, branch: str) -> _End:
    """Return the end of a branch; UnknownReferenceError if there is no such branch."""
    row = connection.execute(_END, (session, text(branch))).fetchone()
    if row is not None:
        return _End(Position(*row[:2]), *row[2:])
    rows = connection.execute("SELECT name FROM branches WHERE session = ? ORDER BY ordinal", (session,))
    names = [plain(row[0]) for row in rows]
    raise UnknownReferenceError(f"there is no branch {branch!r}; choose one of {names}", candidates=names)


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
    ids = [text(str(draft.message.id)) for draft in drafts]
    known: dict[str | None, Record] = {}
    for start in range(0, len(ids), _LOOKED_UP):
        part = ids[start : start + _LOOKED_UP]
        marks = ", ".join("?" * len(part))
        for row in connection.execute(f"{_BY_ID}AND m.id IN ({marks})", (session, *part)):
            record = record_of(row)
            known[record.message.id] = record
    for message in (draft.message for draft in drafts if draft.message.id in known):
        if canonical(known[message.id].message) != canonical(message):
            raise DuplicateError(f"message {message.id!r} is already stored with other content; give it a new id")
    return known


def _tombstones(connection: sqlite3.Connection, session: int, drafts: Sequence[Draft]) -> tuple[str, ...]:
    """Return the ids that have been forgotten."""
    sql = "SELECT 1 FROM tombstones WHERE session = ? AND id = ?"
    ids = [str(draft.message.id) for draft in drafts]
    return tuple(id_ for id_ in ids if connection.execute(sql, (session, text(id_))).fetchone())


def _joined(
    connection: sqlite3.Connection, session: int, head: Position, stored: Collection[Record]
) -> dict[str, Newest]:
    """Return id -> turn of those messages that stand on the path of `head`."""
    places = {record.position: record for record in stored}
    before = [places[place] for place in on_path(connection, session, head, places)]
    return {str(record.message.id): Newest(record.message.turn_id, record.turn_no) for record in before}


def _room(connection: sqlite3.Connection, session: int, branch: str, end: _End) -> Position:
    """Let a branch go on from its head: in its segment if it stands at the tip, else in a new one."""
    segment = end.head.segment
    if end.head.depth == end.tip:
        sql = "UPDATE branches SET depth = ? WHERE session = ? AND segment = ? AND depth IS NULL"
        connection.execute(sql, (end.tip, session, segment))
    else:
        segment = open_segment(connection, session, end.head)
    sql = "UPDATE branches SET segment = ?, depth = NULL WHERE session = ? AND name = ?"
    connection.execute(sql, (segment, session, text(branch)))
    return Position(segment, end.head.depth)


def _insert(
    connection: sqlite3.Connection,
    session: int,
    start: Position,
    end: _End,
    drafts: Sequence[Draft],
    turns: Mapping[str | None, Newest],
) -> dict[str | None, Record]:
    """Insert messages from the place after `start` on; return id -> record."""
    records: dict[str | None, Record] = {}
    for number, draft in enumerate(drafts):
        turn = turns[draft.message.id]
        records[draft.message.id] = Record(
            message=draft.message.replace(turn_id=turn.turn_id),
            position=Position(start.segment, start.depth + 1 + number),
            seq=end.seq + number,
            turn_no=turn.turn_no,
            counter=draft.counter,
            tokens=draft.tokens,
            picked_from=draft.picked_from,
        )
    insert_records(connection, session, end.key, list(records.values()))
    covered = [
        (session, *records[draft.message.id].position, ordinal, *stretch)
        for draft in drafts
        for ordinal, stretch in enumerate(draft.covers)
    ]
    if covered:
        connection.executemany("INSERT INTO covers VALUES (?, ?, ?, ?, ?, ?, ?)", covered)
    return records


def insert_records(connection: sqlite3.Connection, session: int, key: int, records: Sequence[Record]) -> None:
    """Insert messages just as they are; `key` is that of the first one's text."""
    texts = [text_row(number, record.message) for number, record in enumerate(records, key)]
    connection.executemany("INSERT INTO texts VALUES (?, ?, ?, ?)", texts)
    rows = [message_row(session, record, number) for number, record in enumerate(records, key)]
    connection.executemany(_INSERT_MESSAGE, rows)
