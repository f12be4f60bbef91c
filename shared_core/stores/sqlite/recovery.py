"""Write what can be read of a damaged database to a new one."""

from collections.abc import Iterable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

from shared_core.errors import DuplicateError, StoreError, UnknownReferenceError
from shared_core.records import ROOT, Branch, Position, Ref, Restored, Segment, Stretch, Summary
from shared_core.stores.sqlite.connection import plain
from shared_core.stores.sqlite.doctor import Findings
from shared_core.stores.sqlite.sqlite_store import SQLiteStore

KINDS = ("tag", "stash", "move", "head")


def recover(found: Findings, path: Path) -> None:
    """Write everything that can be read to a new database: messages, branches, tags, summaries, and forgotten ids.

    Vectors and indexes are made again when they are needed. A branch that leads through something that cannot be read
    keeps the messages that can.

    Raises:
        StoreError: the file exists already, or cannot be written.
    """
    if path.exists():
        raise StoreError(f"{str(path)!r} exists already; give the path of a new file")
    store = SQLiteStore(path)
    try:
        for number in sorted(found.records):
            with store.transaction():
                _recover_session(found, number, store)
    finally:
        store.close()


def _recover_session(found: Findings, number: int, store: SQLiteStore) -> None:
    own = found.sessions.get(number)
    name, user = (f"recovered-{number}", None) if own is None else (own.session_id, own.user_id)
    session = store.create_session(user, name)
    records = found.records[number]
    segments = _segments(found, number)
    places = {record.position for record in records}
    covers = [(Position(*row[1:3]), Stretch(*row[3:])) for row in _of(found, "covers", number)]
    store.restore(
        session,
        Restored(
            tuple(segments.values()),
            tuple(records),
            tuple(one for one in covers if one[0] in places),
            tuple(_branches(found, number, segments)),
            forgotten=tuple(plain(row[1]) for row in _of(found, "tombstones", number)),
        ),
    )
    for ref in _refs(found, number):
        _try(store, session, Restored(refs=(ref,)))
    for row in _of(found, "summaries", number):
        store.keep(session, _summary(row))


def _try(store: SQLiteStore, session: int, restored: Restored) -> None:
    """Write something that may refer to what is lost; then it is left out."""
    try:
        store.restore(session, restored)
    except (UnknownReferenceError, DuplicateError):
        return


def _of(found: Findings, table: str, number: int) -> Iterator[tuple[Any, ...]]:
    return (row for row in found.rows.get(table, ()) if row[0] == number)


def _segments(found: Findings, number: int) -> dict[int, Segment]:
    """Return the segments of a session; one that grows out of what is lost begins at the root."""
    deepest: dict[int, int] = {}
    for record in found.records[number]:
        segment, depth = record.position
        deepest[segment] = max(depth, deepest.get(segment, -1))
    rows = {row[1]: row for row in _of(found, "segments", number)}
    segments: dict[int, Segment] = {}
    for one in sorted({0, *rows, *deepest}):
        _, _, *parents, base, shift, least_tip = rows.get(one, (number, one, None, None, None, None, None, 0, -1))
        parent, merged = _position(segments, *parents[:2]), _position(segments, *parents[2:])
        if merged is None or parent is None:
            merged, base, shift = None, None, 0
        tip = max(deepest.get(one, -1), least_tip, -1 if parent is None else parent.depth)
        segments[one] = Segment(one, parent, tip, merged, base, shift)
    return segments


def _position(segments: dict[int, Segment], segment: int | None, depth: int | None) -> Position | None:
    """Return a position of an earlier segment, as deep as that one is; None if there is none."""
    if segment not in segments or depth is None or segment is None:
        return None
    return Position(segment, min(depth, segments[segment].tip))


def _branches(found: Findings, number: int, segments: dict[int, Segment]) -> Iterable[Branch]:
    branches = {}
    for _, name, segment, depth in _of(found, "branches", number):
        own = segments.get(segment)
        head = ROOT if own is None else Position(segment, own.tip if depth is None else min(depth, own.tip))
        branches[plain(name)] = Branch(plain(name), head)
    return branches.values()


def _refs(found: Findings, number: int) -> Iterator[Ref]:
    for _, kind, name, segment, depth, base_segment, base_depth, note, created_at in _of(found, "refs", number):
        if kind in KINDS:
            at = None if segment is None else Position(segment, depth)
            base = None if base_segment is None else Position(base_segment, base_depth)
            yield Ref(0, kind, plain(name), at, base, plain(note), created_at)


def _summary(row: tuple[Any, ...]) -> Summary:
    _, said, segment, depth, along_segment, along_depth, last_id, messages, created_at, counter, tokens = row
    return Summary(
        plain(said), Position(segment, depth), Position(along_segment, along_depth), plain(last_id), messages,
        datetime.fromisoformat(created_at), None if counter is None else plain(counter), tokens,
    )  # fmt: skip
