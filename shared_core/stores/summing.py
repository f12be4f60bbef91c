"""Summaries in SQLite, kept and erased inside a transaction."""

import sqlite3
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import cache, partial

from shared_core.errors import UnknownReferenceError
from shared_core.records import Position, Segment, Summary
from shared_core.stores.places import check_place, segment_at
from shared_core.stores.rows import plain, text
from shared_core.tree.paths import Path, Span, beginning, walk

__all__ = ["BLANK_TEXT", "drop_summaries", "put_summary", "summaries"]

BLANK_TEXT = (
    "UPDATE texts SET name = zeroblob(length(CAST(name AS BLOB))), "
    "content = zeroblob(length(CAST(content AS BLOB))), extra = zeroblob(length(CAST(extra AS BLOB))) WHERE text = ?"
)
"""Writes zeroes of the same length over the very bytes; see table `texts`."""

_SELECT = (
    "SELECT t.content, s.segment, s.depth, s.along_segment, s.along_depth, s.last_id, s.messages, "
    "s.created_at, s.counter, s.tokens "
    "FROM summaries AS s JOIN texts AS t USING (text) WHERE s.session = ? AND s.segment = ? AND s.depth <= ? "
    "ORDER BY s.depth DESC, s.summary DESC LIMIT ?"
)
_INSERT = (
    "INSERT INTO summaries (session, segment, depth, along_segment, along_depth, last_id, messages, created_at, "
    "counter, tokens, text) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
)


def put_summary(connection: sqlite3.Connection, session: int, summary: Summary, epoch: int) -> bool:
    """Do what `Store.put_summary` says."""
    row = connection.execute("SELECT epoch FROM sessions WHERE session = ?", (session,)).fetchone()
    if row is None or row[0] != epoch:
        return False
    try:
        for place in (summary.upto, summary.along):
            check_place(connection, session, place)
    except UnknownReferenceError:
        return False
    key = connection.execute("SELECT coalesce(max(text), 0) + 1 FROM texts").fetchone()[0]
    connection.execute("INSERT INTO texts VALUES (?, NULL, ?, NULL)", (key, text(summary.text)))
    counter = None if summary.counter is None else text(summary.counter)
    made = (summary.messages, summary.created_at.isoformat(), counter, summary.tokens)
    connection.execute(_INSERT, (session, *summary.upto, *summary.along, text(summary.last_id), *made, key))
    return True


def summaries(connection: sqlite3.Connection, session: int, upto: Position, limit: int) -> list[Summary]:
    """Do what `Store.summaries` says."""
    rows = connection.execute(_SELECT, (session, *upto, max(limit, 0)))
    return [
        Summary(
            plain(said), Position(segment, depth), Position(along_segment, along_depth), plain(last_id), messages,
            datetime.fromisoformat(created_at), None if counter is None else plain(counter), tokens,
        )
        for said, segment, depth, along_segment, along_depth, last_id, messages, created_at, counter, tokens in rows
    ]  # fmt: skip


def drop_summaries(connection: sqlite3.Connection, session: int, positions: Sequence[Position] | None) -> None:
    """Erase the summaries that cover one of some places; None: all of the session."""
    rows = connection.execute(
        "SELECT summary, text, segment, depth, along_segment, along_depth FROM summaries WHERE session = ?", (session,)
    )
    going = [(number, key, Position(*places[:2]), Position(*places[2:])) for number, key, *places in rows]
    if positions is not None:
        gone: dict[int, list[int]] = {}
        for segment, depth in sorted(positions):
            gone.setdefault(segment, []).append(depth)
        path_of = cache(partial(_path, cache(partial(segment_at, connection, session))))
        going = [one for one in going if any(map(partial(_holds, gone), beginning(path_of(*_way(*one[2:])), one[2])))]
    connection.executemany("DELETE FROM summaries WHERE summary = ?", [(number,) for number, *_ in going])
    connection.executemany(BLANK_TEXT, [(key,) for _, key, *_ in going])


def _way(upto: Position, along: Position) -> tuple[int, int | None]:
    """Return the segment and the depth to which a path leads that shows what a summary covers; None: to its tip."""
    return (upto.segment, None) if along == upto else along


def _path(segment_of: Callable[[int], Segment], segment: int, depth: int | None) -> Path:
    return walk(Position(segment, segment_of(segment).tip if depth is None else depth), segment_of)


def _holds(gone: Mapping[int, Sequence[int]], span: Span) -> bool:
    """Return whether a span holds one of some places, given as segment -> depths in order."""
    depths = gone.get(span.segment, ())
    found = bisect_left(depths, span.start)
    return found < len(depths) and depths[found] <= span.upto
