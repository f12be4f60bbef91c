"""Gaps: which positions and numbers hold no message on purpose, so that any other that is missing is noticed."""

import sqlite3
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence

from shared_core.records import Position

Range = tuple[int, int]
"""A first and a last number, both included."""

NUMBERS = -1
"""Stands for a segment where the gaps are in the numbers of a session's messages, not in the depths of a segment."""

# Gaps of one segment never overlap, so at most one begins before a range and reaches into it.
_GAPS_IN = (
    "SELECT start, upto FROM gaps WHERE session = ?1 AND segment = ?2 AND start <= ?4 AND start >= coalesce("
    "(SELECT max(start) FROM gaps WHERE session = ?1 AND segment = ?2 AND start <= ?3), ?3) ORDER BY start"
)

# What is missing when the checksums are introduced has been forgotten, as far as anybody can know.
_FOUND = (
    "INSERT INTO gaps SELECT session, -1, prior + 1, seq - 1 FROM (SELECT session, seq, "
    "lag(seq, 1, 0) OVER (PARTITION BY session ORDER BY seq) AS prior FROM messages) WHERE seq > prior + 1",
    "INSERT INTO gaps SELECT session, -1, newest + 1, least_seq FROM (SELECT session, least_seq, coalesce("
    "(SELECT max(seq) FROM messages AS m WHERE m.session = s.session), 0) AS newest FROM sessions AS s) "
    "WHERE least_seq > newest",
    "INSERT INTO gaps SELECT session, segment, prior + 1, depth - 1 FROM (SELECT session, segment, depth, "
    "lag(depth, 1, coalesce(base, parent_depth, -1)) OVER (PARTITION BY session, segment ORDER BY depth) AS prior "
    "FROM messages JOIN segments USING (session, segment)) WHERE depth > prior + 1",
    "INSERT INTO gaps SELECT session, segment, deepest + 1, least_tip FROM (SELECT session, segment, least_tip, "
    "coalesce((SELECT max(depth) FROM messages AS m WHERE m.session = g.session AND m.segment = g.segment), "
    "base, parent_depth, -1) AS deepest FROM segments AS g) WHERE least_tip > deepest",
)


def missing(found: Iterable[int], first: int, last: int) -> list[Range]:
    """Return the ranges from `first` to `last` that hold none of some ascending numbers."""
    ranges = []
    for number in found:
        if number > first:
            ranges.append((first, min(number - 1, last)))
        first = max(first, number + 1)
    if first <= last:
        ranges.append((first, last))
    return ranges


def runs(numbers: Iterable[int]) -> list[Range]:
    """Return some numbers as ranges, in order."""
    ranges: list[Range] = []
    for number in sorted(set(numbers)):
        if ranges and ranges[-1][1] == number - 1:
            ranges[-1] = ranges[-1][0], number
        else:
            ranges.append((number, number))
    return ranges


def by_segment(positions: Iterable[Position]) -> dict[int, list[int]]:
    """Return the depths of positions by segment."""
    depths: dict[int, list[int]] = {}
    for segment, depth in positions:
        depths.setdefault(segment, []).append(depth)
    return depths


def without(ranges: Sequence[Range], gaps: Sequence[Range]) -> list[Range]:
    """Return what is left of ranges where there is no gap; the gaps are ascending and do not overlap."""
    starts, ends = [start for start, _ in gaps], [upto for _, upto in gaps]
    left: list[Range] = []
    for first, last in ranges:
        for start, upto in gaps[bisect_left(ends, first) : bisect_right(starts, last)]:
            if start > first:
                left.append((first, start - 1))
            first = max(first, upto + 1)
        if first <= last:
            left.append((first, last))
    return left


def unexplained(connection: sqlite3.Connection, session: int, segment: int, ranges: Sequence[Range]) -> list[Range]:
    """Return which of some ascending ranges without messages are not noted as gaps."""
    if not ranges:
        return []
    found = connection.execute(_GAPS_IN, (session, segment, ranges[0][0], ranges[-1][1])).fetchall()
    return without(ranges, found)


def note(connection: sqlite3.Connection, session: int, segment: int, ranges: Sequence[Range]) -> None:
    """Note ascending ranges as gaps."""
    rows = [(session, segment, *one) for one in unexplained(connection, session, segment, ranges)]
    connection.executemany("INSERT INTO gaps VALUES (?, ?, ?, ?)", rows)


def note_gaps(connection: sqlite3.Connection) -> None:
    """Note all gaps of a database that has none noted yet, in a transaction of the caller's."""
    for statement in _FOUND:
        connection.execute(statement)
