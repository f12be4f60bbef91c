"""Vectors, snapshots and summaries in SQLite, and the erasing of all that belongs to a message."""

import json
from collections.abc import Collection, Sequence
from functools import partial

from shared_core.records import Forgotten, Position, Summary, VectorRow
from shared_core.stores.gaps import NUMBERS, by_segment, runs
from shared_core.stores.row_values import (
    checksum_of,
    erasures,
    read_erasures,
    read_summary,
    read_vector,
    summary_values,
    vector_checksum,
)
from shared_core.stores.rows import SummaryReach
from shared_core.stores.sqlite.connection import note_scrub_due
from shared_core.stores.sqlite.damage import damaged, note
from shared_core.stores.sqlite.tree_rows import TreeRows

_PART = 16 * 2**20
"""Bytes of a snapshot in one row; SQLite refuses values of a gigabyte, and copies a value whole."""

_PUT_SPACE = (
    "INSERT INTO spaces (session, name, written) "
    "SELECT session, ?2, (SELECT coalesce(max(written), 0) + 1 FROM spaces WHERE session = ?1) "
    "FROM sessions WHERE session = ?1 "
    "ON CONFLICT (session, name) DO UPDATE SET written = excluded.written"
)
_PUT_VECTOR = (
    "INSERT INTO vectors (session, space, segment, depth, hash, vector, checksum) "
    "SELECT m.session, s.space, m.segment, m.depth, ?5, ?6, ?7 FROM messages AS m JOIN spaces AS s "
    "ON s.session = m.session AND s.name = ?2 WHERE m.session = ?1 AND m.segment = ?3 AND m.depth = ?4 "
    "ON CONFLICT (session, segment, depth, space) "
    "DO UPDATE SET hash = excluded.hash, vector = excluded.vector, checksum = excluded.checksum, live = 1"
)
_SPACE = "(SELECT space FROM spaces WHERE session = ?1 AND name = ?2)"
_VECTORS_AT = (
    "SELECT v.segment, v.depth, v.hash, v.vector, v.checksum FROM json_each(?3) AS w CROSS JOIN vectors AS v "
    "WHERE v.session = ?1 AND v.segment = json_extract(w.value, '$[0]') AND v.depth = json_extract(w.value, '$[1]') "
    f"AND v.live = 1 AND v.space = {_SPACE} ORDER BY w.key"
)
_VECTORS_AFTER = (
    "SELECT segment, depth, hash, vector, checksum FROM vectors WHERE session = ?1 AND (segment, depth) > (?3, ?4) "
    f"AND live = 1 AND space = {_SPACE} ORDER BY segment, depth LIMIT ?5"
)
_VECTOR_OF = (
    "SELECT segment, depth, hash, vector, checksum FROM vectors WHERE hash = ?3 AND live = 1 "
    f"AND space = {_SPACE} LIMIT 1"
)
_SPACES = (
    "SELECT name FROM spaces AS s WHERE session = ? "
    "AND EXISTS (SELECT 1 FROM vectors AS v WHERE v.space = s.space AND live = 1) ORDER BY written DESC"
)

_SUMMARIES = (
    "SELECT t.content, s.segment, s.depth, s.along_segment, s.along_depth, s.last_id, s.messages, "
    "s.created_at, s.counter, s.tokens, s.checksum "
    "FROM summaries AS s LEFT JOIN texts AS t USING (text) WHERE s.session = ? AND s.segment = ? AND s.depth <= ? "
    "ORDER BY s.depth DESC, s.summary DESC LIMIT ?"
)
_INSERT_SUMMARY = (
    "INSERT INTO summaries (session, segment, depth, along_segment, along_depth, last_id, messages, created_at, "
    "counter, tokens, text, checksum) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
)

_RAISE_EPOCH = (
    "UPDATE sessions SET epoch = epoch + 1, "
    "least_seq = (SELECT last_seq FROM states AS s WHERE s.session = sessions.session) WHERE session = ?"
)
_HOLD_TIP = (
    "UPDATE segments SET least_tip = "
    "(SELECT tip FROM tips AS t WHERE t.session = segments.session AND t.segment = segments.segment) "
    "WHERE session = ? AND segment = ?"
)
_AT = "WHERE session = ? AND segment = ? AND depth = ?"

# Zeroes of the same length are written over the very bytes, because a deleted row may leave a copy; see table `texts`.
_BLANK_VECTORS = (
    "UPDATE vectors SET hash = zeroblob(length(CAST(hash AS BLOB))), vector = zeroblob(length(vector)), "
    "checksum = NULL, live = 0 " + _AT
)
_ERASED_SINCE = (
    "SELECT epoch, segment, depth, stale FROM erasures WHERE session = ? AND epoch > ? ORDER BY epoch, segment, depth"
)
_NOTE_ERASED = "INSERT INTO erasures SELECT session, epoch, ?2, ?3, ?4 FROM sessions WHERE session = ?1"

_BLANK_TEXT = (
    "UPDATE texts SET name = zeroblob(length(CAST(name AS BLOB))), "
    "content = zeroblob(length(CAST(content AS BLOB))), extra = zeroblob(length(CAST(extra AS BLOB))) WHERE text = ?"
)

_COUNTS = (
    "SELECT (SELECT count(*) FROM messages WHERE session = ?1) AS messages, "
    "(SELECT count(DISTINCT turn_id) FROM messages WHERE session = ?1 AND turn_no >= 0 AND role <> 'system') AS turns, "
    "(SELECT count(*) FROM branches WHERE session = ?1) AS branches, "
    "(SELECT count(*) FROM segments WHERE session = ?1) AS segments, "
    "(SELECT count(*) FROM vectors WHERE session = ?1 AND live = 1) AS vectors, "
    "(SELECT count(*) FROM tombstones WHERE session = ?1) AS forgotten"
)


_summary = partial(read_summary, damaged)


class DerivedRows(TreeRows):
    """What is made from messages and goes with them."""

    def put_vectors(self, session: int, space: str, vectors: Sequence[VectorRow]) -> None:
        self.connection.execute(_PUT_SPACE, (session, space))
        rows = [(*position, hash_, vector) for position, hash_, vector in vectors]
        self.connection.executemany(_PUT_VECTOR, [(session, space, *row, vector_checksum(*row)) for row in rows])

    def vectors_at(self, session: int, space: str, positions: Sequence[Position]) -> list[VectorRow]:
        return list(map(read_vector, self.fetch(_VECTORS_AT, (session, space, json.dumps(positions)))))

    def vectors_after(self, session: int, space: str, after: Position, limit: int) -> list[VectorRow]:
        return list(map(read_vector, self.fetch(_VECTORS_AFTER, (session, space, *after, max(limit, 0)))))

    def vectors_of(self, session: int, space: str, hashes: Collection[str]) -> list[VectorRow]:
        found: list[VectorRow] = []
        with self.one_moment():
            for hash_ in hashes:
                rows = map(read_vector, self.fetch(_VECTOR_OF, (session, space, hash_)))
                found += [row for row in rows if row[1] == hash_]
        return found

    def spaces(self, session: int) -> list[str]:
        return [row[0] for row in self.connection.execute(_SPACES, (session,))]

    def put_snapshot(self, session: int, name: str, data: bytes) -> None:
        view = memoryview(data)
        # At least one part, so that an empty snapshot is not taken for none.
        parts = [(session, name, n, view[n * _PART : (n + 1) * _PART]) for n in range(len(data) // _PART + 1)]
        self.connection.execute("DELETE FROM snapshots WHERE session = ? AND name = ?", (session, name))
        self.connection.executemany("INSERT INTO snapshots VALUES (?, ?, ?, ?)", parts)

    def snapshot(self, session: int, name: str) -> bytes | None:
        sql = "SELECT data FROM snapshots WHERE session = ? AND name = ? ORDER BY part"
        parts = [row[0] for row in self.connection.execute(sql, (session, name))]
        return b"".join(parts) if parts else None

    def insert_summary(self, session: int, summary: Summary) -> None:
        key = self.take_text_keys(1)
        self.connection.execute("INSERT INTO texts VALUES (?, NULL, ?, NULL)", (key, summary.text))
        values = summary_values(summary)
        self.connection.execute(_INSERT_SUMMARY, (session, *values[1:], key, checksum_of(values)))

    def summaries(self, session: int, upto: Position, limit: int) -> list[Summary]:
        return list(map(_summary, self.fetch(_SUMMARIES, (session, *upto, max(limit, 0)))))

    def summary_reaches(self, session: int) -> list[SummaryReach]:
        sql = "SELECT summary, segment, depth, along_segment, along_depth FROM summaries WHERE session = ?"
        rows = self.connection.execute(sql, (session,))
        return [SummaryReach(number, Position(*ends[:2]), Position(*ends[2:])) for number, *ends in rows]

    def erase(
        self, session: int, positions: Sequence[Position], stale: Sequence[Position], summaries: Collection[int]
    ) -> bool:
        if not self.connection.execute(_RAISE_EPOCH, (session,)).rowcount:
            return False
        note_scrub_due(self.connection)
        self.connection.executemany(_HOLD_TIP, {(session, position.segment) for position in positions})
        self._erase_summaries(summaries)
        self._note_erased(session, [row for one in positions if (row := self._erase_message(session, one)) is not None])
        self.connection.executemany(_BLANK_VECTORS, [(session, *position) for position in stale])
        self.connection.execute("DELETE FROM snapshots WHERE session = ?", (session,))
        self.connection.executemany(_NOTE_ERASED, [(session, *row) for row in erasures(positions, stale)])
        return True

    def forgotten_since(self, session: int, epoch: int) -> Forgotten | None:
        with self.one_moment():
            state = self.state(session, None)
            rows = self.connection.execute(_ERASED_SINCE, (session, epoch)).fetchall()
        return read_erasures(rows, 0 if state is None else state.epoch - epoch)

    def _erase_summaries(self, numbers: Collection[int]) -> None:
        for number in numbers:
            sql = "DELETE FROM summaries WHERE summary = ? RETURNING text"
            keys = self.connection.execute(sql, (number,)).fetchall()
            self.connection.executemany(_BLANK_TEXT, keys)

    def _erase_message(self, session: int, position: Position) -> tuple[Position, int] | None:
        """Erase a message; return its position and its number, None if there is none."""
        key = (session, *position)
        row = self.connection.execute("SELECT text, seq FROM messages " + _AT, key).fetchone()
        if row is None:
            return None
        # Its id is not read, because it may be erased for being damaged.
        self.connection.execute("INSERT INTO tombstones SELECT session, id FROM messages " + _AT, key)
        self.connection.execute("DELETE FROM messages " + _AT, key)
        self.connection.execute(_BLANK_VECTORS, key)
        self.connection.execute(_BLANK_TEXT, (row[0],))
        return position, row[1]

    def _note_erased(self, session: int, erased: Sequence[tuple[Position, int]]) -> None:
        for segment, depths in by_segment(position for position, _ in erased).items():
            note(self.connection, session, segment, runs(depths))
        note(self.connection, session, NUMBERS, runs(number for _, number in erased))

    def counts(self, session: int) -> dict[str, int]:
        found = self.connection.execute(_COUNTS, (session,))
        names = [column[0] for column in found.description]
        return dict(zip(names, found.fetchone(), strict=True))
