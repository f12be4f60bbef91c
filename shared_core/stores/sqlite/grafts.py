"""Stages whose messages become a part of another session, in one transaction that is as short as possible."""

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from shared_core.errors import DuplicateError
from shared_core.records import STAGED, Position, Segment, Stretch
from shared_core.stores.gaps import Range
from shared_core.stores.grafts import Graft, mover, number_segments, renumbered
from shared_core.stores.row_values import checksum_of
from shared_core.stores.sqlite.damage import note
from shared_core.stores.sqlite.message_rows import MessageRows
from shared_core.stores.sqlite.stages import mark_moved

_PLACE = (
    "?1, ?2, m.depth + ?5, m.seq + ?6, m.id, m.turn_id, m.turn_no + ?7, m.role, m.created_at, m.stays, m.counter, "
    "m.tokens, m.picked_from"
)

# One statement for each segment: its number is the same in all of its messages.
_MOVE = (
    "INSERT INTO messages (session, segment, depth, seq, id, turn_id, turn_no, role, created_at, stays, counter, "
    f"tokens, picked_from, text, checksum, fingerprint) SELECT {_PLACE}, m.text, "
    f"row_checksum({_PLACE}, t.name, t.content, t.extra), m.fingerprint "
    "FROM messages AS m LEFT JOIN texts AS t USING (text) WHERE m.session = ?3 AND m.segment = ?4 ORDER BY m.depth"
)
_COVERS = "SELECT segment, depth, ordinal, source_segment, start, upto FROM covers WHERE session = ?"
_GAPS = "SELECT start, upto FROM gaps WHERE session = ? AND segment = ? ORDER BY start"

CACHE = 131_072
"""The KiB of pages that are kept in memory at most while messages are moved. SQLite's default is 2,000."""

_TAKEN = (sqlite3.SQLITE_CONSTRAINT_UNIQUE, sqlite3.SQLITE_CONSTRAINT_PRIMARYKEY)


def graft(rows: MessageRows, stage: int, session: int, given: Graft) -> dict[int, int]:
    """Move the messages of a stage to a session; see `Store.graft`. Call it in a transaction."""
    mark_moved(rows.connection, stage)
    with _large_cache(rows.connection):
        return _moved_rows(rows, stage, session, given)


@contextmanager
def _large_cache(connection: sqlite3.Connection) -> Iterator[None]:
    """Enter a block in which all pages of the indexes fit in memory.

    Ids come in any order, so that most of these pages are written again and again: to the file, if they do not fit.
    """
    (before,) = connection.execute("PRAGMA cache_size").fetchone()
    connection.execute(f"PRAGMA cache_size = -{CACHE}")
    try:
        yield
    finally:
        connection.execute(f"PRAGMA cache_size = {before}")


def _moved_rows(rows: MessageRows, stage: int, session: int, given: Graft) -> dict[int, int]:
    state = rows.state(session, None)
    seq = 0 if state is None else state.last_seq
    rows.raise_version(session)
    numbers = number_segments(rows, session, given)
    rows.connection.create_function("row_checksum", -1, _row_checksum, deterministic=True)
    for one in given.segments:
        number = numbers[one.segment]
        rows.put_segment(session, renumbered(one, numbers))
        values = (session, number, stage, one.segment - STAGED, given.depth, seq, given.turns)
        try:
            rows.connection.execute(_MOVE, values)
        except sqlite3.IntegrityError as error:
            if error.sqlite_errorcode not in _TAKEN:
                raise
            raise DuplicateError(f"an id of a message is taken ({error})") from error
        _copy_gaps(rows, stage, session, one, number, given.depth)
    _copy_covers(rows, stage, session, mover(numbers, given.depth))
    return numbers


def _row_checksum(*values: Any) -> int:
    return checksum_of(values)


def _copy_gaps(rows: MessageRows, stage: int, session: int, own: Segment, number: int, depth: int) -> None:
    """Note the positions that hold no message; before its first position, a segment has none."""
    first = own.start if own.base is None else own.base + 1
    found = rows.connection.execute(_GAPS, (stage, own.segment - STAGED)).fetchall()
    gaps: list[Range] = [(max(start + depth, first), upto + depth) for start, upto in found]
    note(rows.connection, session, number, [gap for gap in gaps if gap[0] <= gap[1]])


def _copy_covers(rows: MessageRows, stage: int, session: int, moved: Callable[[Position], Position]) -> None:
    for segment, at, ordinal, *source in rows.connection.execute(_COVERS, (stage,)).fetchall():
        place, whole = moved(Position(segment + STAGED, at)), Stretch(*source)
        start, end = moved(Position(whole.segment, whole.start)), moved(Position(whole.segment, whole.upto))
        row = (session, *place, ordinal, start.segment, start.depth, end.depth)
        rows.connection.execute("INSERT INTO covers VALUES (?, ?, ?, ?, ?, ?, ?)", row)
