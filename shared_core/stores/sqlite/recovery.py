"""Write what can be read of a damaged database to a new one, a page of messages at a time."""

import pickle
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

from shared_core.errors import DuplicateError, StoreError, UnknownReferenceError
from shared_core.records import ROOT, Branch, Position, Record, Ref, Restored, Segment, SessionKey, Stretch, Summary
from shared_core.stores.growth import parents_first, segments_for
from shared_core.stores.row_values import checksum_of
from shared_core.stores.sqlite.connection import plain
from shared_core.stores.sqlite.damaged_file import DamagedFile, Read, reading
from shared_core.stores.sqlite.message_rows import record_of
from shared_core.stores.sqlite.sqlite_store import SQLiteStore

KINDS = ("tag", "stash", "move", "head")

_PAGE = 1_000
Item = TypeVar("Item")

_SEGMENTS = (
    "SELECT segment, parent_segment, parent_depth, merged_segment, merged_depth, base, turn_shift, least_tip "
    "FROM segments WHERE session = ?"
)
_BRANCHES = "SELECT name, segment, depth FROM branches WHERE session = ? ORDER BY ordinal"
_REFS = (
    "SELECT kind, name, segment, depth, base_segment, base_depth, note, created_at FROM refs WHERE session = ? "
    "ORDER BY ref"
)
_COVERS = (
    "SELECT segment, depth, source_segment, start, upto FROM covers WHERE session = ? ORDER BY segment, depth, ordinal"
)
_SUMMARIES = (
    "SELECT checksum, t.content, s.segment, s.depth, s.along_segment, s.along_depth, s.last_id, s.messages, "
    "s.created_at, s.counter, s.tokens FROM summaries AS s LEFT JOIN texts AS t USING (text) WHERE s.session = ? "
    "ORDER BY summary"
)


def recover(source: Path, path: Path) -> None:
    """Write everything that can be read to a new database: messages, branches, tags, summaries, and forgotten ids.

    Vectors and indexes are made again when they are needed. A branch that leads through something that cannot be read
    keeps the messages that can.

    Raises:
        StoreError: the new file exists already, or cannot be written; or the damaged one cannot be opened at all.
    """
    if path.exists():
        raise StoreError(f"{str(path)!r} exists already; give the path of a new file")
    try:
        with reading(source) as file, closing(_Readable(file)) as readable, closing(SQLiteStore(path)) as store:
            keys = file.sessions()
            for number in sorted({*keys, *readable.sessions()}):
                key = keys.get(number, SessionKey(number, None, f"recovered-{number}"))
                with store.transaction():
                    _Session(file, readable, store, key).recover()
    except sqlite3.Error as error:
        raise StoreError(f"{str(source)!r} cannot be recovered: {error}; restore it from a backup") from error


class _Readable:
    """The messages that can be read, in a temporary file, because a damaged one does not give them in their order.

    Args:
        file: the damaged database.
    """

    def __init__(self, file: DamagedFile) -> None:
        self._rows = sqlite3.connect("", isolation_level=None)
        self._rows.execute(
            "CREATE TABLE messages (session INTEGER, seq INTEGER, segment INTEGER, depth INTEGER, row BLOB, "
            "PRIMARY KEY (session, seq)) WITHOUT ROWID"
        )
        self._rows.execute("BEGIN")
        found = (self._row(read, read.record) for read in file.messages() if read.record is not None)
        self._rows.executemany("INSERT OR IGNORE INTO messages VALUES (?, ?, ?, ?, ?)", found)
        self._rows.execute("COMMIT")

    def _row(self, read: Read, record: Record) -> tuple[Any, ...]:
        # Texts may be of bytes that SQLite does not take as such.
        return (read.session, record.seq, *record.position, pickle.dumps(read.values))

    def close(self) -> None:
        """Remove the temporary file."""
        self._rows.close()

    def sessions(self) -> list[int]:
        """Return the sessions that have messages."""
        return [row[0] for row in self._rows.execute("SELECT DISTINCT session FROM messages")]

    def deepest(self, session: int) -> dict[int, int]:
        """Return segment -> the largest depth of its messages."""
        sql = "SELECT segment, max(depth) FROM messages WHERE session = ? GROUP BY segment"
        return dict(self._rows.execute(sql, (session,)))

    def pages(self, session: int) -> Iterator[list[Record]]:
        """Yield the messages of a session in order of their numbers."""
        rows = self._rows.execute("SELECT row FROM messages WHERE session = ? ORDER BY seq", (session,))
        yield from _pages(record_of(pickle.loads(row[0])) for row in rows)


class _Session:
    """Recovers one session.

    Args:
        file: the damaged database.
        readable: the messages of it that can be read.
        store: where to write them.
        key: the number of the session there, and its name here.
    """

    def __init__(self, file: DamagedFile, readable: _Readable, store: SQLiteStore, key: SessionKey) -> None:
        self._file = file
        self._readable = readable
        self._store = store
        self._number = key.key
        self._session = store.create_session(key.user_id, key.session_id)

    def recover(self) -> None:
        """Write everything."""
        segments = self._segments()
        tips: dict[int, int] = {}
        for records in self._readable.pages(self._number):
            self._restore(Restored(segments_for(records, segments, tips), tuple(records)))
        whole = tuple(segments[number] for number in parents_first(segments, segments))
        self._restore(Restored(whole, branches=tuple(self._branches(segments))))
        self._restore_covers()
        for ids in _pages(plain(row[0]) for row in self._rows("SELECT id FROM tombstones WHERE session = ?")):
            self._restore(Restored(forgotten=tuple(ids)))
        for ref in self._refs():
            self._try(Restored(refs=(ref,)))
        for summary in self._summaries():
            self._store.keep(self._session, summary)

    def _rows(self, sql: str) -> Iterator[tuple[Any, ...]]:
        return self._file.scan(sql, (self._number,))

    def _restore(self, restored: Restored) -> None:
        self._store.restore(self._session, restored)

    def _try(self, restored: Restored) -> None:
        """Write something that may refer to what is lost; then it is left out."""
        try:
            self._restore(restored)
        except (UnknownReferenceError, DuplicateError):
            return

    def _restore_covers(self) -> None:
        for rows in _pages(self._rows(_COVERS)):
            covers = [(Position(*row[:2]), Stretch(*row[2:])) for row in rows]
            there = {record.position for record in self._store.get(self._session, [one for one, _ in covers])}
            self._restore(Restored(covers=tuple(one for one in covers if one[0] in there)))

    def _segments(self) -> dict[int, Segment]:
        """Return the segments; one that grows out of what is lost begins at the root."""
        deepest = self._readable.deepest(self._number)
        rows = {row[0]: row[1:] for row in self._rows(_SEGMENTS)}
        segments: dict[int, Segment] = {}
        for one in sorted({0, *rows, *deepest}):
            *parents, base, shift, least_tip = rows.get(one, (None, None, None, None, None, 0, -1))
            parent, merged = _position(segments, *parents[:2]), _position(segments, *parents[2:])
            if merged is None or parent is None:
                merged, base, shift = None, None, 0
            tip = max(deepest.get(one, -1), least_tip, -1 if parent is None else parent.depth)
            segments[one] = Segment(one, parent, tip, merged, base, shift)
        return segments

    def _branches(self, segments: Mapping[int, Segment]) -> Iterable[Branch]:
        branches = {}
        for name, segment, depth in self._rows(_BRANCHES):
            own = segments.get(segment)
            head = ROOT if own is None else Position(segment, own.tip if depth is None else min(depth, own.tip))
            branches[plain(name)] = Branch(plain(name), head)
        return branches.values()

    def _refs(self) -> Iterator[Ref]:
        for kind, name, segment, depth, base_segment, base_depth, note, created_at in self._rows(_REFS):
            if kind in KINDS:
                at = None if segment is None else Position(segment, depth)
                base = None if base_segment is None else Position(base_segment, base_depth)
                yield Ref(0, kind, plain(name), at, base, plain(note), created_at)

    def _summaries(self) -> Iterator[Summary]:
        for checksum, *row in self._rows(_SUMMARIES):
            if checksum in (None, checksum_of(row)):
                said, segment, depth, along_segment, along_depth, last_id, messages, created_at, counter, tokens = row
                yield Summary(
                    plain(said), Position(segment, depth), Position(along_segment, along_depth), plain(last_id),
                    messages, datetime.fromisoformat(created_at), None if counter is None else plain(counter), tokens,
                )  # fmt: skip


def _position(segments: Mapping[int, Segment], segment: int | None, depth: int | None) -> Position | None:
    """Return a position of an earlier segment, as deep as that one is; None if there is none."""
    if segment not in segments or depth is None or segment is None:
        return None
    return Position(segment, min(depth, segments[segment].tip))


def _pages(items: Iterable[Item]) -> Iterator[list[Item]]:
    rest = iter(items)
    while page := list(islice(rest, _PAGE)):
        yield page
