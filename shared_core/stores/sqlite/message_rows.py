"""Messages as rows of the SQLite database: how they are encoded, read and written."""

import json
import sqlite3
from collections.abc import Collection, Iterable, Sequence
from functools import partial
from typing import Any, assert_never

from shared_core.errors import DuplicateError, StoreError, UnknownReferenceError
from shared_core.history.normal_form import fingerprint
from shared_core.records import (
    After,
    Criterion,
    IdPrefix,
    InTurn,
    MadeFrom,
    Newest,
    Pinned,
    Position,
    Record,
    Says,
    Stretch,
)
from shared_core.stores.gaps import NUMBERS, Range, by_segment, missing, runs
from shared_core.stores.row_values import TEXTS, checksum_of, lost_messages, message_values, read_record
from shared_core.stores.sqlite.damage import damaged, lenient, note, unexplained
from shared_core.stores.sqlite.tree_rows import TreeRows

COLUMNS = (
    "m.session, m.segment, m.depth, m.seq, m.id, m.turn_id, m.turn_no, m.role, m.created_at, m.stays, m.counter, "
    "m.tokens, m.picked_from, t.name, t.content, t.extra, m.checksum, m.fingerprint IS NULL"
)
"""The columns that `record_of` reads, of `messages AS m` left-joined with `texts AS t`."""

record_of = partial(read_record, damaged)
"""Return the record in a row of `COLUMNS`; StoreError if the row is damaged."""


def text_row(key: int, values: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the row of table `texts`, with everything that a forgotten message must not leave behind."""
    return (key, *values[-TEXTS:])


def message_row(key: int, values: tuple[Any, ...], record: Record) -> tuple[Any, ...]:
    """Return the row of table `messages`, all columns in order, whose text has this key."""
    return (*values[:-TEXTS], key, checksum_of(values), None if record.alone else fingerprint(record.message))


_SELECT = f"SELECT {COLUMNS} FROM messages AS m LEFT JOIN texts AS t USING (text) WHERE m.session = ? "
"""Reads rows for `record_of`; conditions on `m` follow."""

# One statement for many positions, given as JSON, takes half as long as one for each.
_AT = (
    f"SELECT {COLUMNS} FROM json_each(?) AS w CROSS JOIN messages AS m LEFT JOIN texts AS t USING (text) "
    "WHERE m.session = ? AND m.segment = json_extract(w.value, '$[0]') "
    "AND m.depth = json_extract(w.value, '$[1]') ORDER BY w.key"
)
_NEWEST = _SELECT + "AND m.segment = ? AND m.depth <= ? ORDER BY m.depth DESC LIMIT ?"
_AFTER = _SELECT + "AND m.seq > ? ORDER BY m.seq LIMIT ?"
_TURN = _SELECT + "AND m.turn_id = ? ORDER BY m.seq"
_PINNED = _SELECT + "AND m.stays = 1 ORDER BY m.seq"

_BY_ID = _SELECT.replace("messages AS m", "messages AS m INDEXED BY messages_id")
"""Told the index, or SQLite reads all of the session where several ids are asked for at once."""

_LOOKED_UP = 100
"""Ids looked up in one statement, which takes a fifth of what one for each does."""

# A range instead of LIKE: nothing is a wildcard, and the index is used. No UTF-8 has a byte 0xFF.
_BY_PREFIX = (
    f"SELECT {COLUMNS} FROM messages AS m LEFT JOIN texts AS t USING (text) WHERE m.session = ?1 AND m.id IN "
    "(SELECT id FROM messages WHERE session = ?1 AND id >= CAST(?2 AS TEXT) AND id < CAST(?3 AS TEXT)) "
    "ORDER BY m.seq LIMIT ?4"
)

# Without being told, SQLite takes a session for so small that it looks at all of its messages; and it does so too where
# an inner SELECT takes the session from the outer one.
_COPIES = _SELECT.replace("messages AS m", "messages AS m INDEXED BY messages_picked") + (
    "AND m.picked_from IS NOT NULL "
    "AND m.picked_from = (SELECT o.id FROM messages AS o WHERE o.session = ?1 AND o.segment = ?2 AND o.depth = ?3)"
)
_SAYING = (
    f"SELECT {COLUMNS} FROM json_each(?2) AS w CROSS JOIN messages AS m INDEXED BY messages_fingerprint "
    "LEFT JOIN texts AS t USING (text) WHERE m.session = ?1 AND m.fingerprint = w.value AND m.seq IN (SELECT n.seq "
    "FROM messages AS n INDEXED BY messages_fingerprint WHERE n.session = ?1 AND n.fingerprint = w.value "
    "ORDER BY n.seq DESC LIMIT ?3) ORDER BY m.seq"
)
_SUMMING_UP = _SELECT + (
    "AND (m.segment, m.depth) IN (SELECT c.segment, c.depth FROM covers AS c "
    "WHERE c.session = ?1 AND c.source_segment = ?2 AND c.start <= ?3 AND c.upto >= ?3)"
)

_COVERS = "SELECT segment, depth, ordinal, source_segment, start, upto FROM covers WHERE session = ?1 AND "
_COVERS = f"{_COVERS}source_segment = ?2 UNION {_COVERS}segment = ?2"

_NEWEST_QUESTION = (
    "SELECT turn_id, turn_no FROM messages WHERE session = ? AND segment = ? AND depth BETWEEN ? AND ? "
    "AND role = 'user' ORDER BY depth DESC LIMIT 1"
)

# The + keeps SQLite to the index of turns: by position, it would look at the whole segment.
_COUNT = "SELECT count(*) FROM messages WHERE session = ? AND segment = ? AND depth BETWEEN ? AND ?"
_TURN_NUMBER = (
    "SELECT turn_no FROM messages WHERE session = ? AND turn_id = ? AND +segment = ? AND +depth <= ? "
    "ORDER BY seq LIMIT 1"
)

# A column that no index has keeps SQLite to the table itself, which NOT INDEXED alone does not. The index of ids, in
# turn, still has the id of a row that a damaged page has lost.
_LEFT_OF = (
    "SELECT id, role FROM messages NOT INDEXED WHERE session = ? AND +id IN (SELECT value FROM json_each(?)) LIMIT 1",
    "SELECT id FROM messages INDEXED BY messages_id WHERE session = ? AND id IN (SELECT value FROM json_each(?)) "
    "LIMIT 1",
)

_STORED = "SELECT segment, depth, id FROM messages NOT INDEXED WHERE session = ? ORDER BY seq"

_BEFORE_LOSS = (
    "SELECT id FROM messages WHERE session = ?1 AND segment = ?2 AND depth < ?3 ORDER BY depth DESC LIMIT 1",
    "SELECT id FROM messages WHERE session = ?1 AND ?2 AND seq < ?3 ORDER BY seq DESC LIMIT 1",
)

_INSERT_MESSAGE = (
    "INSERT INTO messages (session, segment, depth, seq, id, turn_id, turn_no, role, created_at, stays, counter, "
    "tokens, picked_from, text, checksum, fingerprint) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
)
_INSERT_COVER = (
    "INSERT INTO covers SELECT ?1, ?2, ?3, coalesce(max(ordinal), -1) + 1, ?4, ?5, ?6 FROM covers "
    "WHERE session = ?1 AND segment = ?2 AND depth = ?3"
)


class MessageRows(TreeRows):
    """Messages, with their texts and what they sum up."""

    def get(self, session: int, ids: Sequence[str]) -> list[Record]:
        if len(ids) <= _LOOKED_UP:
            return self._looked_up(session, ids)
        parts = (ids[start : start + _LOOKED_UP] for start in range(0, len(ids), _LOOKED_UP))
        with self.one_moment():
            return [record for part in parts for record in self._looked_up(session, part)]

    def _looked_up(self, session: int, ids: Sequence[str]) -> list[Record]:
        marks = ", ".join("?" * len(ids))
        return self._records(f"{_BY_ID}AND m.id IN ({marks})", (session, *ids))

    def stored(self, session: int) -> list[tuple[Position, str]]:
        """See `Store`. No checksum is looked at."""
        with lenient(self.connection):
            rows = self.connection.execute(_STORED, (session,)).fetchall()
        return [(Position(segment, depth), id_) for segment, depth, id_ in rows]

    def check_absent(self, session: int, ids: Collection[str]) -> None:
        wanted = json.dumps(list(ids))
        for sql, why in zip(_LEFT_OF, ("it is missing in an index", "only an index still has it"), strict=True):
            row = self.connection.execute(sql, (session, wanted)).fetchone()
            if row is not None:
                raise damaged(f"message {row[0]!r}", why)

    def at(self, session: int, positions: Sequence[Position]) -> list[Record]:
        values = (json.dumps(positions), session)
        records = self._records(_AT, values)
        if len(records) == len(positions):
            return records
        with self.one_moment():
            records = self._records(_AT, values)
            absent = set(positions) - {record.position for record in records}
            for segment, depths in by_segment(absent).items():
                self._refuse_loss(session, segment, runs(depths))
        return records

    def newest(self, session: int, upto: Position, limit: int) -> list[Record]:
        values = (session, *upto, max(limit, 0))
        records = self._records(_NEWEST, values)
        lowest = records[-1].position.depth if records else upto.depth + 1
        if upto.depth - lowest + 1 == len(records) and (len(records) >= limit or not lowest):
            return records
        with self.one_moment():
            records = self._records(_NEWEST, values)
            lowest = records[-1].position.depth if 0 < limit <= len(records) else 0
            depths = [record.position.depth for record in reversed(records)]
            self._refuse_loss(session, upto.segment, missing(depths, lowest, upto.depth) if limit > 0 else [])
        return records

    def find(self, session: int, criterion: Criterion) -> list[Record]:
        match criterion:
            case After():
                return self._after(session, criterion.seq, criterion.limit)
            case InTurn():
                return self._records(_TURN, (session, criterion.turn_id))
            case Pinned():
                return self._records(_PINNED, (session,))
            case IdPrefix():
                low = criterion.prefix.encode()
                return self._records(_BY_PREFIX, (session, low, low + b"\xff", max(criterion.limit, 0)))
            case MadeFrom():
                return self._made_from(session, criterion.positions)
            case Says():
                wanted = json.dumps(sorted(set(criterion.fingerprints)))
                return self._records(_SAYING, (session, wanted, max(criterion.limit, 0)))
            case _:
                assert_never(criterion)

    def _after(self, session: int, seq: int, limit: int) -> list[Record]:
        values = (session, seq, max(limit, 0))
        of_one_moment = self.connection.in_transaction  # as in `Store.read`, with which every question begins
        records = self._records(_AFTER, values)
        if limit <= 0 or (len(records) == limit and records[-1].seq == max(seq, 0) + limit):
            return records
        with self.one_moment():
            records = records if of_one_moment else self._records(_AFTER, values)
            state = self.state(session, None)
            last = records[-1].seq if len(records) == limit else state.last_seq if state is not None else 0
            ranges = missing((record.seq for record in records), max(seq, 0) + 1, last)
            self._refuse_loss(session, NUMBERS, ranges)
        return records

    def _refuse_loss(self, session: int, segment: int, ranges: Sequence[Range]) -> None:
        """Raise StoreError if a segment should hold a message in one of some ascending ranges, which hold none."""
        if segment != NUMBERS and ranges:
            own = self.segment(session, segment)
            if own is None:
                return
            first = own.start if own.base is None else own.base + 1
            ranges = [(max(start, first), min(upto, own.tip)) for start, upto in ranges]
            ranges = [one for one in ranges if one[0] <= one[1]]
        lost = unexplained(self.connection, session, segment, ranges)
        if lost:
            raise self._loss(session, segment, lost)

    def _loss(self, session: int, segment: int, lost: Sequence[Range]) -> StoreError:
        row = self.connection.execute(_BEFORE_LOSS[segment == NUMBERS], (session, segment, lost[0][0])).fetchone()
        return lost_messages(damaged, self.session_key(session), row and row[0])

    def _made_from(self, session: int, positions: Sequence[Position]) -> list[Record]:
        found: dict[Position, Record] = {}
        with self.one_moment():
            for position in positions:
                values = (session, *position)
                records = self._records(_COPIES, values) + self._records(_SUMMING_UP, values)
                found |= {record.position: record for record in records}
        return sorted(found.values(), key=lambda record: record.seq)

    def _records(self, sql: str, values: tuple[Any, ...]) -> list[Record]:
        return list(map(record_of, self.fetch(sql, values)))

    def covers(self, session: int, segments: Collection[int]) -> list[tuple[Position, Stretch]]:
        with self.one_moment():
            found = {row for segment in segments for row in self.connection.execute(_COVERS, (session, segment))}
        return [(Position(segment, depth), Stretch(*source)) for segment, depth, _, *source in sorted(found)]

    def newest_question(self, session: int, stretch: Stretch) -> Newest | None:
        row = self.connection.execute(_NEWEST_QUESTION, (session, *stretch)).fetchone()
        return None if row is None else Newest(row[0], row[1])

    def count(self, session: int, stretches: Collection[Stretch]) -> int:
        """See `Rows`. No text is read."""
        with self.one_moment():
            return sum(int(self.connection.execute(_COUNT, (session, *one)).fetchone()[0]) for one in stretches)

    def turn_number(self, session: int, turn_id: str, upto: Position) -> int | None:
        row = self.connection.execute(_TURN_NUMBER, (session, turn_id, *upto)).fetchone()
        return None if row is None else int(row[0])

    def insert_records(
        self, session: int, records: Sequence[Record], covers: Sequence[tuple[Position, Stretch]] = ()
    ) -> None:
        key = self.take_text_keys(len(records))
        rows = [message_values(session, record) for record in records]
        texts = [text_row(number, row) for number, row in enumerate(rows, key)]
        pairs = enumerate(zip(rows, records, strict=True), key)
        messages = [message_row(number, row, record) for number, (row, record) in pairs]
        try:
            self.connection.executemany("INSERT INTO texts VALUES (?, ?, ?, ?)", texts)
            self.connection.executemany(_INSERT_MESSAGE, messages)
            if covers:
                values = [(session, *position, *stretch) for position, stretch in covers]
                self.connection.executemany(_INSERT_COVER, values)
        except sqlite3.IntegrityError as error:
            if error.sqlite_errorcode == sqlite3.SQLITE_CONSTRAINT_FOREIGNKEY:
                raise UnknownReferenceError("a message or a summary stands in a segment that does not exist") from error
            raise DuplicateError(f"an id, a position or a number of a message is taken ({error})") from error

    def note_empty(self, session: int, stretches: Sequence[Stretch], numbers: Sequence[range]) -> None:
        for stretch in stretches:
            note(self.connection, session, stretch.segment, [stretch[1:]])
        note(self.connection, session, NUMBERS, [(one.start, one.stop - 1) for one in numbers])

    def are_forgotten(self, session: int, ids: Collection[str]) -> set[str]:
        sql = "SELECT 1 FROM tombstones WHERE session = ? AND id = ?"
        return {id_ for id_ in ids if self.connection.execute(sql, (session, id_)).fetchone()}

    def forgotten(self, session: int, after: str | None, limit: int) -> list[str]:
        more = "" if after is None else "AND id > ?2 "
        sql = f"SELECT id FROM tombstones WHERE session = ?1 {more}ORDER BY id LIMIT ?3"
        values = (session, after, max(limit, 0))
        return [row[0] for row in self.connection.execute(sql, values)]

    def insert_tombstones(self, session: int, ids: Iterable[str]) -> None:
        self.connection.executemany(
            "INSERT INTO tombstones SELECT ?1, ?2 WHERE NOT EXISTS "
            "(SELECT 1 FROM messages WHERE session = ?1 AND id = ?2) ON CONFLICT DO NOTHING",
            [(session, id_) for id_ in ids],
        )
