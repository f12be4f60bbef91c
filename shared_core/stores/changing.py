"""Changes of branches, tags and stashes in SQLite, inside a transaction."""

import sqlite3
from collections.abc import Sequence
from functools import partial
from typing import assert_never

from shared_core.errors import StaleHeadError, UnknownReferenceError
from shared_core.records import Change, Delete, Drop, Expect, Merge, Move, Position, Put, Ref, Rename
from shared_core.stores.places import check_name, check_place, newest_on, newest_turn, open_segment, segment_at
from shared_core.stores.rows import plain, text
from shared_core.tree.paths import walk

__all__ = ["REFS", "change", "ref_of"]

REFS = "SELECT ref, kind, name, segment, depth, base_segment, base_depth, note, created_at FROM refs WHERE session = ? "
"""Reads rows for `ref_of`."""

_PUT = (
    "INSERT INTO refs (session, kind, name, segment, depth, base_segment, base_depth, note) "
    "VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
)


def ref_of(row: tuple[int, str, str, int | None, int | None, int | None, int | None, str, str]) -> Ref:
    """Return the ref that a row holds."""
    number, kind, name, segment, depth, base_segment, base_depth, note, created_at = row
    place = None if segment is None or depth is None else Position(segment, depth)
    base = None if base_segment is None or base_depth is None else Position(base_segment, base_depth)
    return Ref(number, kind, plain(name), place, base, plain(note), created_at)  # type: ignore[arg-type]


def change(connection: sqlite3.Connection, session: int, changes: Sequence[Change]) -> None:
    """Do what `Store.change` says."""
    for one in changes:
        match one:
            case Move():
                _move(connection, session, one)
            case Merge():
                _merge(connection, session, one)
            case Rename():
                _rename(connection, session, one)
            case Delete():
                head = _head(connection, session, one.branch)
                _log(connection, session, one.branch, head, None, "delete")
                connection.execute("DELETE FROM branches WHERE session = ? AND name = ?", (session, text(one.branch)))
            case Put():
                _put(connection, session, one)
            case Drop():
                _drop(connection, session, one)
            case Expect():
                _expect(connection, session, one)
            case _:
                assert_never(one)


def _head(connection: sqlite3.Connection, session: int, branch: str) -> Position:
    row = connection.execute(
        "SELECT segment, depth FROM heads WHERE session = ? AND name = ?", (session, text(branch))
    ).fetchone()
    if row is not None:
        return Position(*row)
    rows = connection.execute("SELECT name FROM branches WHERE session = ? ORDER BY ordinal", (session,))
    names = [plain(row[0]) for row in rows]
    raise UnknownReferenceError(f"there is no branch {branch!r}; choose one of {names}", candidates=names)


def _log(
    connection: sqlite3.Connection, session: int, branch: str, old: Position, new: Position | None, note: str
) -> None:
    values = (session, "move", text(branch), *(new or (None, None)), *old, text(note))
    connection.execute(_PUT, values)


def _point(connection: sqlite3.Connection, session: int, branch: str, segment: int, depth: int | None) -> None:
    sql = "UPDATE branches SET segment = ?, depth = ? WHERE session = ? AND name = ?"
    connection.execute(sql, (segment, depth, session, text(branch)))


def _stale(branch: str) -> StaleHeadError:
    return StaleHeadError(f"another writer moved {branch!r} meanwhile; try again")


def _move(connection: sqlite3.Connection, session: int, move: Move) -> None:
    head = _head(connection, session, move.branch)
    if move.expect is not None and head != move.expect:
        raise _stale(move.branch)
    check_place(connection, session, move.to)
    _log(connection, session, move.branch, head, move.to, move.note)
    _point(connection, session, move.branch, *move.to)


def _merge(connection: sqlite3.Connection, session: int, merge: Merge) -> None:
    head = _head(connection, session, merge.branch)
    check_place(connection, session, merge.source)
    segment_of = partial(segment_at, connection, session)
    source = walk(merge.source, segment_of)
    new = source.without(walk(head, segment_of))
    if not new:
        return
    before = [span for span in source.spans if span.last < new[0].start + new[0].shift]
    partly = next(span for span in source.spans if span.segment == new[0].segment and span.upto >= new[0].start)
    if partly.start < new[0].start:
        before.append(partly._replace(upto=new[0].start - 1))
    _, known = newest_on(connection, session, reversed(before))
    _, newest = newest_turn(connection, session, head)
    room = sum(span.upto - span.start + 1 for span in new)
    base = head.depth + room + 1
    segment = open_segment(connection, session, head, merged=merge.source, base=base, turn_shift=newest - known)
    _log(connection, session, merge.branch, head, Position(segment, base), merge.note)
    _point(connection, session, merge.branch, segment, None)


def _rename(connection: sqlite3.Connection, session: int, rename: Rename) -> None:
    _head(connection, session, rename.branch)
    check_name(connection, session, rename.name)
    values = (text(rename.name), session, text(rename.branch))
    connection.execute("UPDATE branches SET name = ? WHERE session = ? AND name = ?", values)
    connection.execute("UPDATE refs SET name = ? WHERE session = ? AND name = ? AND kind IN ('move', 'stash')", values)


def _put(connection: sqlite3.Connection, session: int, put: Put) -> None:
    if put.kind == "tag":
        check_name(connection, session, put.name)
    for place in (put.place, put.base):
        if place is not None:
            check_place(connection, session, place)
    values = (session, put.kind, text(put.name), *put.place, *(put.base or (None, None)), text(put.note))
    connection.execute(_PUT, values)


def _drop(connection: sqlite3.Connection, session: int, drop: Drop) -> None:
    gone = connection.execute("DELETE FROM refs WHERE session = ? AND ref = ?", (session, drop.number))
    if not gone.rowcount:
        raise UnknownReferenceError(f"there is no tag or stash of number {drop.number!r}")


def _expect(connection: sqlite3.Connection, session: int, expect: Expect) -> None:
    row = connection.execute("SELECT epoch FROM sessions WHERE session = ?", (session,)).fetchone()
    if row is not None and row[0] != expect.epoch:
        raise StaleHeadError("something was forgotten meanwhile; try again")
    if expect.branch is not None and _head(connection, session, expect.branch) != expect.head:
        raise _stale(expect.branch)
