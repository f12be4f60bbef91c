"""What is damaged in a database file, and what of it can still be read: the file is not written to."""

import sqlite3
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from shared_core.errors import StoreError
from shared_core.records import Position, Record, SessionKey
from shared_core.stores.damages import Damage, Mend
from shared_core.stores.gaps import NUMBERS, missing, without
from shared_core.stores.row_values import checksum_of
from shared_core.stores.sqlite.connection import plain
from shared_core.stores.sqlite.damage import read_leniently
from shared_core.stores.sqlite.database_file import SEALED, connect_to_read, refuse_foreign, version_of
from shared_core.stores.sqlite.inspection import inspect_rows
from shared_core.stores.sqlite.message_rows import record_of
from shared_core.stores.sqlite.stages import IS_STAGE
from shared_core.stores.sqlite.wal import look_into

STRUCTURE = 20
"""Findings of SQLite about the structure of the file that are listed."""

_SMALLEST = 40
"""Bytes that a message takes at least, which bounds how many a damaged number can make us look for."""

_HEADS = (
    "SELECT session, segment, depth, seq, id, turn_id, turn_no, role, created_at, stays, counter, tokens, picked_from, "
    "text, {checksum} FROM messages "
)
_WORDS = {"segments": "a segment", "branches": "a branch", "refs": "a tag, stash or move", "summaries": "a summary"}
_LENGTHS = {"summaries": 11}
"""How many columns of a table are kept, where not all are."""

_TABLES = {
    "sessions": "SELECT session, user_id, session_id FROM sessions",
    "segments": "SELECT session, segment, parent_segment, parent_depth, merged_segment, merged_depth, base, "
    "turn_shift, least_tip, {checksum} FROM segments",
    "branches": "SELECT session, name, segment, depth, {checksum} FROM branches ORDER BY session, ordinal",
    "refs": "SELECT session, kind, name, segment, depth, base_segment, base_depth, note, created_at, {checksum} "
    "FROM refs ORDER BY ref",
    "covers": "SELECT session, segment, depth, source_segment, start, upto FROM covers "
    "ORDER BY session, segment, depth, ordinal",
    "summaries": "SELECT s.session, t.content, s.segment, s.depth, s.along_segment, s.along_depth, s.last_id, "
    "s.messages, s.created_at, s.counter, s.tokens, s.summary, {checksum} FROM summaries AS s "
    "LEFT JOIN texts AS t USING (text) ORDER BY summary",
    "tombstones": "SELECT session, id FROM tombstones",
    "gaps": "SELECT session, segment, start, upto FROM gaps ORDER BY session, segment, start",
}


@dataclass
class Findings:
    """What a database holds, as far as it can be read.

    Attributes:
        damages: what is damaged.
        sessions: the sessions by number.
        rows: the rows of each table that could be read, without their checksums; of messages, see `records`.
        records: the messages that are as they were written, by session.
        mends: how to mend what can be made again from messages.
    """

    damages: list[Damage] = field(default_factory=list)
    mends: list[Mend] = field(default_factory=list)
    sessions: dict[int, SessionKey] = field(default_factory=dict)
    rows: dict[str, list[tuple[Any, ...]]] = field(default_factory=dict)
    records: dict[int, list[Record]] = field(default_factory=dict)

    @property
    def messages(self) -> int:
        """How many messages can be read."""
        return sum(map(len, self.records.values()))

    def add(
        self, what: str, why: str, session: int | None = None, id_: object = None, mend: Mend | None = None
    ) -> None:
        """Note a damage."""
        own = self.sessions.get(session) if session is not None else None
        told = plain(id_) if isinstance(id_, str | bytes) else None if id_ is None else str(id_)
        derived = mend is not None
        self.damages.append(Damage(what, why, own and own.session_id, own and own.user_id, told, derived))
        self.mends += [mend] if mend is not None else []

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON data."""
        return {
            "messages": self.messages,
            "sessions": len(self.sessions),
            "damages": [asdict(damage) for damage in self.damages],
        }


def examine(path: str | Path) -> Findings:
    """Read everything in a database file, and find what is damaged.

    Every message is read, so it takes about a second for 20,000.

    Raises:
        StoreError: it cannot be opened at all, or is not ours.
    """
    path = Path(path)
    found = Findings()
    try:
        log = look_into(Path(f"{path}-wal"))
        with closing(connect_to_read(path)) as connection:
            read_leniently(connection)
            refuse_foreign(connection, repr(str(path)))
            if log.dropped:
                why = f"it cannot be read from frame {log.frames + 1} on, and holds what was stored last"
                found.add("the write-ahead log", why)
            _Reader(connection, found, path.stat().st_size).read()
    except (OSError, sqlite3.Error) as error:
        raise StoreError(f"{str(path)!r} cannot be opened: {error}; restore it from a backup") from error
    return found


class _Reader:
    """Reads all tables of a database, going on after each error.

    Args:
        connection: reads texts leniently.
        found: where to put what is read.
        size: of the file, in bytes.
    """

    def __init__(self, connection: sqlite3.Connection, found: Findings, size: int) -> None:
        self.connection = connection
        self.found = found
        self.most = size // _SMALLEST
        self.sealed = version_of(connection) >= SEALED
        self._structure: set[str] = set()

    def read(self) -> None:
        """Read everything."""
        self._check_structure()
        for table, sql in _TABLES.items():
            if table == "gaps" and not self.sealed:
                continue
            self.found.rows[table] = list(self._scan(sql))
            if table == "sessions":
                self._name_sessions()
        for table in ("segments", "branches", "refs", "summaries"):
            self._check(table)
        self._read_messages()
        self._leave_out_stages()
        if self.sealed:
            self._inspect()

    def _leave_out_stages(self) -> None:
        """Leave out what an import that was killed, or is running, keeps in stages."""
        stages = {row[0] for row in self._scan(f"SELECT session FROM sessions WHERE {IS_STAGE}")}
        for number in stages:
            self.found.sessions.pop(number, None)
            self.found.records.pop(number, None)

    def _inspect(self) -> None:
        """Note which rows do not fit together."""
        try:
            for damage, mend in inspect_rows(self.connection, self.found.sessions):
                self.found.damages.append(damage)
                self.found.mends += [mend] if mend is not None else []
        except sqlite3.Error as error:
            self._note_structure(error)

    def _check_structure(self) -> None:
        lines = [str(row[0]) for row in self._scan(f"PRAGMA integrity_check({STRUCTURE})")]
        for line in lines if lines != ["ok"] else ():
            self.found.add("the structure of the file", line)

    def _scan(self, sql: str, values: Sequence[Any] = ()) -> Iterator[tuple[Any, ...]]:
        """Yield the rows of a statement up to the first that cannot be read."""
        sql = sql.replace("{checksum}", "checksum" if self.sealed else "NULL")  # an older schema has no such column
        try:
            yield from self.connection.execute(sql, values)
        except (sqlite3.Error, OverflowError) as error:
            self._note_structure(error)

    def _note_structure(self, error: Exception) -> None:
        if str(error) not in self._structure:
            self._structure.add(str(error))
            self.found.add("the structure of the file", str(error))

    def _name_sessions(self) -> None:
        for number, user, name in self.found.rows["sessions"]:
            if isinstance(name, str | bytes) and isinstance(user, str | bytes | None):
                own = SessionKey(number, None if user is None else plain(user), plain(name))
                self.found.sessions[number] = own

    def _check(self, table: str) -> None:
        """Note which rows of a table are damaged; they are used as far as they make sense, but for summaries."""
        kept = []
        for *row, checksum in self.found.rows[table]:
            sealed = {"segments": row[:8], "refs": row[:8], "summaries": row[1:-1]}.get(table, row)
            if checksum is not None and checksum != checksum_of(sealed):
                self._note_row(table, row)
                if table == "summaries":
                    continue
            kept.append(tuple(row[: _LENGTHS.get(table)]))
        self.found.rows[table] = kept

    def _note_row(self, table: str, row: Sequence[Any]) -> None:
        mend = Mend("summary", row[0], {"summary": row[-1]}) if table == "summaries" else None
        name = row[{"refs": 2, "summaries": 6}.get(table, 1)]
        self.found.add(_WORDS[table], "its checksum is wrong", row[0], name, mend)

    # Messages

    def _read_messages(self) -> None:
        heads: dict[tuple[int, Position], tuple[Any, ...]] = {}
        for order in ("", "ORDER BY session DESC, segment DESC, depth DESC"):
            before = len(self._structure)
            heads |= {(row[0], Position(row[1], row[2])): row for row in self._scan(_HEADS + order)}
            if len(self._structure) == before:
                break
        known = self._known_ids()
        seqs: dict[int, set[int]] = {number: set() for number in (*self.found.sessions, *(row[0] for row in known))}
        for (session, _), row in heads.items():
            seqs.setdefault(session, set()).add(row[3])
        for number, there in seqs.items():
            self.found.records[number] = []
            self._look_up(number, there, heads)
        for row in heads.values():
            self._take(row)
        for session, id_, segment, depth in known:
            if (session, Position(segment, depth)) not in heads:
                self.found.add("message", "it is missing", session, id_)
        self._count_missing()
        for records in self.found.records.values():
            records.sort(key=lambda record: record.seq)

    def _known_ids(self) -> list[tuple[Any, ...]]:
        return list(self._scan("SELECT session, id, segment, depth FROM messages INDEXED BY messages_id"))

    def _look_up(self, session: int, seqs: Collection[int], heads: dict[tuple[int, Position], tuple[Any, ...]]) -> None:
        """Look up the messages of a session one by one that the scans have not found."""
        last = self._number("SELECT max(seq) FROM messages INDEXED BY messages_seq WHERE session = ?", session)
        for seq in range(1, min(last, self.most) + 1):
            if seq not in seqs:
                for row in self._scan(f"{_HEADS}WHERE session = ? AND seq = ?", (session, seq)):
                    heads[session, Position(row[1], row[2])] = row

    def _number(self, sql: str, session: int) -> int:
        found = next(self._scan(sql, (session,)), (0,))[0]
        return found if isinstance(found, int) else 0

    def _take(self, head: tuple[Any, ...]) -> None:
        """Read the text of a message, and take it if it is as it was written."""
        *row, key, checksum = head
        said = next(self._scan("SELECT name, content, extra FROM texts WHERE text = ?", (key,)), None)
        try:
            if said is None:
                raise StoreError("its text cannot be read")
            full = (*row, *said)
            record = record_of((*full, checksum_of(full) if checksum is None and not self.sealed else checksum))
        except StoreError as error:
            why = str(error).partition(": ")[2].partition("; ")[0] or str(error)
            self.found.add("message", why, row[0], row[4])
        else:
            self.found.records[row[0]].append(record)

    def _count_missing(self) -> None:
        """Note how many messages are missing whose ids no index has."""
        if not self.sealed:
            return
        listed = Counter((one.session, one.user) for one in self.found.damages if one.what == "message")
        for number, records in self.found.records.items():
            there = sorted({row.seq for row in records})
            noted = [row[2:] for row in self.found.rows["gaps"] if row[:2] == (number, NUMBERS)]
            lost = without(missing(there, 1, there[-1] if there else 0), noted)
            own = self.found.sessions.get(number)
            more = sum(upto - start + 1 for start, upto in lost) - listed[own and own.session_id, own and own.user_id]
            if more > 0:
                self.found.add("messages", f"{more} more are missing, and nothing else is known of them", number)
