"""What is damaged in a database file: one row at a time is read, and the file is not written to."""

import sqlite3
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from shared_core.errors import StoreError
from shared_core.records import SessionKey
from shared_core.stores.damages import Damage, Mend
from shared_core.stores.gaps import NUMBERS
from shared_core.stores.row_values import checksum_of
from shared_core.stores.sqlite.connection import plain
from shared_core.stores.sqlite.damaged_file import DamagedFile, reading
from shared_core.stores.sqlite.inspection import inspect_rows
from shared_core.stores.sqlite.wal import look_into

STRUCTURE = "the structure of the file"
"""What is damaged where nothing in the file can be mended."""

Progress = Callable[[int, int], None]
"""Called with the number of messages that were read, and of all."""

_LISTED = 20
"""Findings of SQLite about the structure of the file that are listed."""

_PAGE = 1_000
"""After how many messages progress is told."""


@dataclass(frozen=True, slots=True)
class _Sealed:
    """A table whose rows have a checksum.

    Attributes:
        what: what a row is.
        sql: reads the session, what the checksum is of, and last the checksum.
        name: the column to name a row by.
        first: the first column that the checksum is of.
    """

    what: str
    sql: str
    name: int = 1
    first: int = 0


_SEALED = (
    _Sealed(
        "a segment",
        "SELECT session, segment, parent_segment, parent_depth, merged_segment, merged_depth, base, turn_shift, "
        "checksum FROM segments",
    ),
    _Sealed("a branch", "SELECT session, name, segment, depth, checksum FROM branches"),
    _Sealed(
        "a tag, stash or move",
        "SELECT session, kind, name, segment, depth, base_segment, base_depth, note, checksum FROM refs",
        name=2,
    ),
)
_SUMMARIES = _Sealed(
    "a summary",
    "SELECT s.session, s.summary, t.content, s.segment, s.depth, s.along_segment, s.along_depth, s.last_id, "
    "s.messages, s.created_at, s.counter, s.tokens, checksum FROM summaries AS s LEFT JOIN texts AS t USING (text)",
    name=7, first=2,
)  # fmt: skip
_OTHERS = (
    "SELECT session, segment, depth, ordinal, source_segment, start, upto FROM covers",
    "SELECT session, id FROM tombstones",
)
"""Reads tables whose rows have no checksums, only to see whether they can be read."""

_GAPS = "SELECT start, upto FROM gaps WHERE session = ? AND segment = ? ORDER BY start"
_IN_GAP = "SELECT count(*) FROM messages WHERE session = ? AND seq BETWEEN ? AND ?"


@dataclass
class Findings:
    """What a database holds, as far as it can be read.

    Attributes:
        damages: what is damaged.
        mends: how to mend what can be made again from messages.
        sessions: the sessions by number.
        counts: how many messages of each session are as they were written.
    """

    damages: list[Damage] = field(default_factory=list)
    mends: list[Mend] = field(default_factory=list)
    sessions: dict[int, SessionKey] = field(default_factory=dict)
    counts: Counter[int] = field(default_factory=Counter)

    @property
    def messages(self) -> int:
        """How many messages can be read."""
        return self.counts.total()

    def add(
        self, what: str, why: str, session: int | None = None, id_: object = None, mend: Mend | None = None
    ) -> None:
        """Note a damage."""
        own = self.sessions.get(session) if session is not None else None
        told = plain(id_) if isinstance(id_, str | bytes) else None if id_ is None else str(id_)
        derived = mend is not None
        self.damages.append(Damage(what, why, own and own.session_id, own and own.user_id, told, derived))
        self.mends += [mend] if mend is not None else []


def examine(path: str | Path, progress: Progress | None = None) -> Findings:
    """Read everything in a database file, and find what is damaged.

    Every message is read, about 20,000 a second, and none is kept. The file is seen as it is at the beginning; others
    may write to it meanwhile.

    Raises:
        StoreError: it cannot be opened at all, is not ours, or is of a newer version.
    """
    path = Path(path)
    found = Findings()
    try:
        log = look_into(Path(f"{path}-wal"))
        with reading(path) as file:
            if log.dropped:
                why = f"it cannot be read from frame {log.frames + 1} on, and holds what was stored last"
                found.add("the write-ahead log", why)
            _Reader(file, found, progress).read()
    except (OSError, sqlite3.Error) as error:
        raise StoreError(f"{str(path)!r} cannot be opened: {error}; restore it from a backup") from error
    return found


class _Reader:
    """Reads all tables of a database.

    Args:
        file: the database.
        found: where to put what is found.
        progress: see `examine`.
    """

    def __init__(self, file: DamagedFile, found: Findings, progress: Progress | None) -> None:
        self._file = file
        self._found = found
        self._progress = progress
        self._without_view = False

    def read(self) -> None:
        """Read everything."""
        found = self._found
        found.sessions = self._file.sessions()
        self._check_structure()
        for sealed in (*_SEALED, _SUMMARIES):
            self._check(sealed)
        for sql in _OTHERS:
            for _ in self._file.scan(sql):
                pass
        self._read_messages()
        if not self._without_view:  # otherwise, it can be asked once the view is made again
            self._inspect()
        for error in self._file.errors:
            found.add(STRUCTURE, error)

    def _inspect(self) -> None:
        """Note which rows do not fit together."""
        try:
            for damage, mend in inspect_rows(self._file.connection, self._found.sessions):
                self._found.damages.append(damage)
                self._found.mends += [mend] if mend is not None else []
        except sqlite3.Error as error:
            if str(error) not in self._file.errors:
                self._file.errors.append(str(error))

    def _check_structure(self) -> None:
        # SQLite does not miss an index whose definition is gone, nor a trigger or a view.
        for name, why in self._file.changed_objects():
            self._found.add(STRUCTURE, f"{name}: {why}")
        for damage, mend in self._file.lost_objects(self._found.sessions):
            self._found.damages.append(damage)
            self._found.mends += [mend] if mend is not None else []
            self._without_view |= damage.what == "view"
        lines = [str(row[0]) for row in self._file.scan(f"PRAGMA integrity_check({_LISTED})")]
        for line in lines if lines != ["ok"] else ():
            self._found.add(STRUCTURE, line)

    def _check(self, sealed: _Sealed) -> None:
        """Note which rows of a table are damaged."""
        for *row, checksum in self._file.scan(sealed.sql):
            if checksum is not None and checksum != checksum_of(row[sealed.first :]):
                mend = Mend("summary", row[0], {"summary": row[1]}) if sealed is _SUMMARIES else None
                self._found.add(sealed.what, "its checksum is wrong", row[0], row[sealed.name], mend)

    # Messages

    def _read_messages(self) -> None:
        total = self._file.value("SELECT count(*) FROM messages") if self._progress is not None else 0
        newest: dict[int, int] = {}
        listed: Counter[int] = Counter()
        for number, read in enumerate(self._file.messages(), 1):
            if read.record is None:
                self._found.add("message", read.why, read.session, read.id)
                listed[read.session] += 1
            else:
                self._found.counts[read.session] += 1
                newest[read.session] = max(newest.get(read.session, 0), read.record.seq)
            if self._progress is not None and number % _PAGE == 0:
                self._progress(number, max(total, number))
        for session, id_ in self._file.lost_ids():
            self._found.add("message", "it is missing", session, id_)
            listed[session] += 1
        for session, last in newest.items():
            more = last - self._passed_over(session, last) - self._found.counts[session] - listed[session]
            if more > 0:
                self._found.add("messages", f"{more} more are missing, and nothing else is known of them", session)

    def _passed_over(self, session: int, last: int) -> int:
        """Return how many numbers up to the last one hold no message on purpose."""
        passed, upto = 0, 0
        for first, end in self._file.scan(_GAPS, (session, NUMBERS)):
            first, end = max(first, upto + 1), min(end, last)
            if first <= end:
                passed += end - first + 1 - self._file.value(_IN_GAP, session, first, end)
                upto = end
        return passed
