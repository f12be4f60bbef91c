"""What messages in SQLite were made from: copies of one, summaries of many."""

import sqlite3
from collections.abc import Collection, Sequence

from shared_core.records import Position, Record, Stretch
from shared_core.stores.rows import record_of
from shared_core.stores.writes import SELECT

__all__ = ["covered", "covers", "made_from"]

# Without being told, SQLite takes a session for so small that it looks at all of its messages; and it does so too where
# an inner SELECT takes the session from the outer one.
_COPIES = SELECT.replace("messages AS m", "messages AS m INDEXED BY messages_picked") + (
    "AND m.picked_from IS NOT NULL "
    "AND m.picked_from = (SELECT o.id FROM messages AS o WHERE o.session = ?1 AND o.segment = ?2 AND o.depth = ?3)"
)
_SUMMARIES = SELECT + (
    "AND (m.segment, m.depth) IN (SELECT c.segment, c.depth FROM covers AS c "
    "WHERE c.session = ?1 AND c.source_segment = ?2 AND c.start <= ?3 AND c.upto >= ?3)"
)


def made_from(connection: sqlite3.Connection, session: int, positions: Sequence[Position]) -> list[Record]:
    """Do what `Store.made_from` says."""
    found: dict[Position, Record] = {}
    for segment, depth in positions:
        rows = [
            *connection.execute(_COPIES, (session, segment, depth)),
            *connection.execute(_SUMMARIES, (session, segment, depth)),
        ]
        found |= {record.position: record for record in map(record_of, rows)}
    return sorted(found.values(), key=lambda record: record.seq)


def covers(connection: sqlite3.Connection, session: int, segments: Collection[int]) -> list[tuple[Position, Stretch]]:
    """Do what `Store.covers` says."""
    sql = (
        "SELECT segment, depth, source_segment, start, upto FROM covers WHERE session = ? AND source_segment = ? "
        "ORDER BY start, segment, depth"
    )
    rows = [row for segment in sorted(segments) for row in connection.execute(sql, (session, segment))]
    return [(Position(*row[:2]), Stretch(*row[2:])) for row in rows]


def covered(connection: sqlite3.Connection, session: int, position: Position) -> list[Stretch]:
    """Do what `Store.covered` says."""
    sql = (
        "SELECT source_segment, start, upto FROM covers WHERE session = ? AND segment = ? AND depth = ? "
        "ORDER BY ordinal"
    )
    return [Stretch(*row) for row in connection.execute(sql, (session, *position))]
