"""A database file that may be damaged, read as it was at one moment: after each error, the reading goes on."""

import sqlite3
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

from shared_core.errors import StoreError
from shared_core.records import Record, SessionKey
from shared_core.stores.damages import MISSING, Found, lost
from shared_core.stores.sqlite.connection import migrate, plain
from shared_core.stores.sqlite.damage import read_leniently
from shared_core.stores.sqlite.database_file import connect_to_read, refuse_foreign, refuse_newer, version_of
from shared_core.stores.sqlite.message_rows import record_of
from shared_core.stores.sqlite.schema import MIGRATIONS

_SMALLEST = 40
"""Bytes that a message takes at least, which bounds how many a damaged number can make us look for."""

_HEADS = (
    "SELECT session, segment, depth, seq, id, turn_id, turn_no, role, created_at, stays, counter, tokens, picked_from, "
    "text, checksum FROM messages "
)
_FORWARD = f"{_HEADS}ORDER BY session, segment, depth"
_BACKWARD = f"{_HEADS}ORDER BY session DESC, segment DESC, depth DESC"
_BY_NUMBER = f"{_HEADS}WHERE session = ? AND seq = ?"
_OBJECTS = "SELECT name, type, sql FROM sqlite_master WHERE name <> 'sqlite_sequence' ORDER BY rowid"

_REMADE = ("index", "view", "trigger")
_AFTERWARDS = {
    # Whatever changed without the trigger has not been told.
    "sessions_news": ("UPDATE sessions SET changed = (SELECT max(changed) + 1 FROM sessions)",)
}
"""What follows from rows, and so can be made again, and what has to be done then."""

IDS, NUMBERS = "messages_id", "messages_seq"
"""The indexes that tell of messages which the table itself has lost."""


class Read(NamedTuple):
    """A row of the table of messages.

    Attributes:
        session: the number of the session.
        id: of the message, as it is stored.
        values: the values of the message, as `record_of` takes them; None if its text cannot be read.
        record: the message; None if it is not as it was written.
        why: why it is not.
    """

    session: int
    id: Any
    values: tuple[Any, ...] | None
    record: Record | None
    why: str = ""


def _shown(value: Any) -> str:
    return plain(value) if isinstance(value, str | bytes) else str(value)


class DamagedFile:
    """Reads one file.

    Args:
        connection: reads texts leniently.
        path: of the file.

    Attributes:
        errors: what SQLite said of the structure of the file, each once.
    """

    def __init__(self, connection: sqlite3.Connection, path: Path) -> None:
        self.connection = connection
        self.errors: list[str] = []
        self._failures = 0
        refuse_newer(version_of(connection), len(MIGRATIONS), repr(str(path)))
        self._most = path.stat().st_size // _SMALLEST
        self._expected = _expected_objects()
        self._there = {row[0]: row[1:] for row in self.scan(_OBJECTS)}

    def scan(self, sql: str, values: Sequence[Any] = ()) -> Iterator[tuple[Any, ...]]:
        """Yield the rows of a statement up to the first that cannot be read."""
        count = 0
        try:
            for row in self.connection.execute(sql, values):
                count += 1
                yield row
        except (sqlite3.Error, OverflowError) as error:
            self._failures += 1
            if str(error) not in self.errors:
                self.errors.append(str(error))
        else:
            return
        if sql.startswith("SELECT"):  # Python's driver reads one row ahead, and drops the last one before an error
            with suppress(sqlite3.Error, OverflowError):
                yield from self.connection.execute(f"{sql} LIMIT 1 OFFSET {count}", values)

    def value(self, sql: str, *values: Any) -> int:
        """Return the number that a statement finds; 0 if it cannot be read."""
        found = next(self.scan(sql, values), (0,))[0]
        return found if isinstance(found, int) else 0

    def changed_objects(self) -> Iterator[tuple[str, str]]:
        """Yield the tables, indexes, views and triggers that are not as we make them, and what is wrong with each."""
        for name, (kind, sql) in self._expected.items():
            there = self._there.get(name)
            if there is None and (kind not in _REMADE or sql is None):
                yield f"{kind} {name}", MISSING
            elif there is not None and (there[0], _words(there[1])) != (kind, _words(sql)):
                yield f"{kind} {name}", "it is not defined as it was made"

    def lost_objects(self, sessions: Mapping[int, SessionKey]) -> Iterator[Found]:
        """Yield the indexes, views and triggers that are missing, and how to make them; `sessions`: to name these."""
        for name, (kind, sql) in self._expected.items():
            if name not in self._there and kind in _REMADE and sql is not None:
                statements = (sql, *_AFTERWARDS.get(name, ()))
                yield from lost(kind, name, statements, ask=self.scan, shown=_shown, sessions=sessions)

    def sessions(self) -> dict[int, SessionKey]:
        """Return the sessions by number, but for those whose names cannot be read."""
        found = {}
        for number, user, name in self.scan("SELECT session, user_id, session_id FROM sessions"):
            if isinstance(name, str | bytes) and isinstance(user, str | bytes | None):
                found[number] = SessionKey(number, None if user is None else plain(user), plain(name))
        return found

    # Messages

    def messages(self) -> Iterator[Read]:
        """Yield each message of all sessions once, one at a time, as far as they can be read."""
        for *row, key, checksum in self._heads():
            said = next(self.scan("SELECT name, content, extra FROM texts WHERE text = ?", (key,)), None)
            if said is None:
                yield Read(row[0], row[4], None, None, "its text cannot be read")
                continue
            values = (*row, *said, checksum)
            try:
                yield Read(row[0], row[4], values, record_of(values))
            except StoreError as error:
                yield Read(row[0], row[4], values, None, str(error).partition(": ")[2].partition("; ")[0] or str(error))

    def _heads(self) -> Iterator[tuple[Any, ...]]:
        """Yield the rows of messages: from both ends up to what cannot be read, and what an index tells of the rest."""
        first: tuple[int, ...] = (-1,)  # what comes last before an error may be damaged: the next row confirms it
        forward: deque[tuple[int, ...]] = deque(maxlen=2)
        before = self._failures
        for row in self.scan(_FORWARD):
            place = _place(row)
            if place is not None:
                first = forward[-1] if forward and place > forward[-1] else first
                forward.append(place)
            yield row
        if self._failures == before:
            return
        last: tuple[int, ...] | None = None
        backward: deque[tuple[int, ...]] = deque(maxlen=2)
        for row in self.scan(_BACKWARD):
            place = _place(row)
            if place is not None and place <= first:
                break  # also if this one is damaged: what is between is looked up
            if place in forward:
                continue
            if place is not None:
                last = backward[-1] if backward and place < backward[-1] else last
                backward.append(place)
            yield row
        for session in sorted(self._known_sessions()):
            if first[0] <= session and (last is None or session <= last[0]):
                between = self._between(session, first, last)
                yield from (row for row in between if _place(row) not in (*forward, *backward))

    def _known_sessions(self) -> set[int]:
        found = {row[0] for row in self.scan("SELECT session FROM sessions")}
        for index in {IDS, NUMBERS} & self._there.keys():
            found |= {row[0] for row in self.scan(f"SELECT DISTINCT session FROM messages INDEXED BY {index}")}
        return {session for session in found if isinstance(session, int)}

    def _between(self, session: int, first: tuple[int, ...], last: tuple[int, ...] | None) -> Iterator[tuple[Any, ...]]:
        """Look up the messages of a session one by one by their numbers, and yield those between two positions."""
        if NUMBERS not in self._there:
            return
        newest = self.value(f"SELECT max(seq) FROM messages INDEXED BY {NUMBERS} WHERE session = ?", session)
        for seq in range(1, min(newest, self._most) + 1):
            for row in self.scan(_BY_NUMBER, (session, seq)):
                place = _place(row)
                if place is not None and first < place and (last is None or place < last):
                    yield row

    def lost_ids(self) -> Iterator[tuple[int, Any]]:
        """Yield the session and the id of each message that an index has and the table has not."""
        unfound = dict.fromkeys(self._unfound_ids())
        for row in self._heads() if unfound else ():  # a damaged key leads a search astray, but not a reading
            unfound.pop((row[0], row[4]), None)
        yield from unfound

    def _unfound_ids(self) -> Iterator[tuple[int, Any]]:
        if IDS not in self._there:
            return
        known = f"SELECT session, id, segment, depth FROM messages INDEXED BY {IDS} ORDER BY session, id"
        for session, id_, *position in self.scan(known):
            sql = "SELECT 1 FROM messages WHERE session = ? AND segment = ? AND depth = ?"
            if next(self.scan(sql, (session, *position)), None) is None:
                yield session, id_


@contextmanager
def reading(path: Path) -> Iterator[DamagedFile]:
    """Enter a block in which a file is read as it was when the block began; nothing is written to it.

    Raises:
        StoreError: it is not ours, or of a newer version.
        sqlite3.Error: it cannot be opened at all.
    """
    with closing(connect_to_read(path)) as connection:
        read_leniently(connection)
        connection.execute("PRAGMA writable_schema = ON")  # what is wrong with one definition hides no other table
        refuse_foreign(connection, repr(str(path)))
        connection.execute("BEGIN")
        yield DamagedFile(connection, path)


def _place(row: tuple[Any, ...]) -> tuple[int, ...] | None:
    """Return where a message stands; None if that is damaged."""
    return row[:3] if all(isinstance(one, int) for one in row[:3]) else None


def _expected_objects() -> dict[str, tuple[str, str | None]]:
    """Return the name, kind and definition of everything in the schema."""
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        migrate(connection, "an empty database")
        return {name: (kind, sql) for name, kind, sql in connection.execute(_OBJECTS)}


def _words(sql: Any) -> list[str] | None:
    """Return the words of a definition, however they are laid out."""
    return None if sql is None else str(sql).split()
