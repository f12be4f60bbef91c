"""Vectors, snapshots and summaries in PostgreSQL, and the erasing of all that belongs to a message."""

from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import Any

from shared_core.records import Forgotten, Position, Snapshot, Summary, VectorRow
from shared_core.stores.gaps import NUMBERS, by_segment, runs
from shared_core.stores.postgres.damage import damaged
from shared_core.stores.postgres.gap_tables import GapTables
from shared_core.stores.postgres.transactions import Statement, columns
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

_PART = 16 * 2**20
"""Bytes of a snapshot in one row; PostgreSQL takes a gigabyte, and copies a value whole."""

PUT_SPACE = (
    "INSERT INTO {s}.spaces (session, space, name, written) SELECT %(session)s, {next}, %(space_name)s, {next} "
    "FROM {s}.sessions WHERE session = %(session)s "
    "ON CONFLICT (session, name) DO UPDATE SET written = excluded.written RETURNING space"
)
PUT_VECTORS = (
    "INSERT INTO {s}.vectors (session, space, segment, depth, hash, vector, checksum) "
    "SELECT %(session)s, %(space)s, w.segment, w.depth, w.hash, w.vector, w.checksum "
    "FROM unnest(%(segments)s::integer[], %(depths)s::integer[], %(hashes)s::text[], %(vectors)b::bytea[], "
    "%(checksums)s::bigint[]) AS w (segment, depth, hash, vector, checksum) "
    "WHERE EXISTS (SELECT 1 FROM {s}.messages AS m "
    "WHERE m.session = %(session)s AND m.segment = w.segment AND m.depth = w.depth) "
    "ON CONFLICT (session, space, segment, depth) "
    "DO UPDATE SET hash = excluded.hash, vector = excluded.vector, checksum = excluded.checksum"
)
# Of several sessions, whose rows are locked: what is put in belongs to those that have forgotten nothing. Each is
# looked up by itself (OFFSET 0), so that only its own partition is read.
_LOCK_THESE = (
    "SELECT 1 FROM {s}.sessions WHERE session = ANY(%(sessions)s::bigint[]) ORDER BY session FOR NO KEY UPDATE"
)
_UNFORGOTTEN = (
    "unnest(%(sessions)s::bigint[], %(epochs)s::bigint[]) AS w (session, epoch) CROSS JOIN LATERAL (SELECT 1 "
    "FROM {s}.sessions AS o WHERE o.session = w.session AND o.epoch = coalesce(w.epoch, o.epoch) OFFSET 0) AS s"
)
_PUT_SPACES = (
    "INSERT INTO {s}.spaces (session, space, name, written) "
    f"SELECT w.session, {{next}}, %(space_name)s, {{next}} FROM {_UNFORGOTTEN} "
    "ON CONFLICT (session, name) DO UPDATE SET written = excluded.written RETURNING session"
)
_PUT_VECTORS_OF = (
    "INSERT INTO {s}.vectors (session, space, segment, depth, hash, vector, checksum) "
    "SELECT v.session, p.space, v.segment, v.depth, v.hash, v.vector, v.checksum "
    "FROM unnest(%(owners)s::bigint[], %(segments)s::integer[], %(depths)s::integer[], %(hashes)s::text[], "
    "%(vectors)b::bytea[], %(checksums)s::bigint[]) AS v (session, segment, depth, hash, vector, checksum) "
    f"JOIN ({_UNFORGOTTEN}) ON w.session = v.session, "
    "LATERAL (SELECT * FROM {s}.spaces AS o WHERE o.session = v.session AND o.name = %(space_name)s OFFSET 0) AS p, "
    "LATERAL (SELECT 1 FROM {s}.messages AS o WHERE o.session = v.session AND o.segment = v.segment "
    "AND o.depth = v.depth OFFSET 0) AS m ON CONFLICT (session, space, segment, depth) "
    "DO UPDATE SET hash = excluded.hash, vector = excluded.vector, checksum = excluded.checksum"
)
_IF_UNFORGOTTEN = (
    "FROM {s}.sessions AS s WHERE s.session = %(session)s AND s.epoch = coalesce(%(epoch)s::bigint, s.epoch)"
)
_DELETE_SNAPSHOT = (
    "DELETE FROM {s}.snapshots WHERE session = %(session)s AND name = %(name)s "
    f"AND EXISTS (SELECT 1 {_IF_UNFORGOTTEN})"
)
_INSERT_PART = (
    f"INSERT INTO {{s}}.snapshots SELECT %(session)s, %(name)s, %(part)s, %(data)b {_IF_UNFORGOTTEN} RETURNING 1"
)
_SPACE = "(SELECT space FROM {s}.spaces WHERE session = %(session)s AND name = %(name)s)"
_VECTORS_AT = (
    "SELECT v.segment, v.depth, v.hash, v.vector, v.checksum "
    "FROM unnest(%(segments)s::bigint[], %(depths)s::bigint[]) WITH ORDINALITY AS w (segment, depth, n) "
    f"JOIN {{s}}.vectors AS v ON v.session = %(session)s AND v.space = {_SPACE} "
    "AND v.segment = w.segment AND v.depth = w.depth ORDER BY w.n"
)
_VECTORS_AFTER = (
    "SELECT segment, depth, hash, vector, checksum FROM {s}.vectors "
    f"WHERE session = %(session)s AND space = {_SPACE} "
    "AND (segment, depth) > (%(segment)s, %(depth)s) ORDER BY segment, depth LIMIT %(limit)s"
)
# One by one, as in `joint_reads`: of a table that was never analysed, a session would be read whole for one text.
_VECTORS_OF = (
    "SELECT v.segment, v.depth, v.hash, v.vector, v.checksum "
    "FROM (SELECT DISTINCT hash FROM unnest(%(hashes)s::text[]) AS w (hash)) AS w, LATERAL (SELECT * FROM {s}.vectors "
    f"AS o WHERE o.session = %(session)s AND o.space = {_SPACE} AND o.hash = w.hash LIMIT 1) AS v"
)
_SPACES = (
    "SELECT name FROM {s}.spaces AS s WHERE s.session = %(session)s AND EXISTS (SELECT 1 FROM {s}.vectors AS v "
    "WHERE v.session = %(session)s AND v.space = s.space) ORDER BY s.written DESC"
)
_SUMMARIES = (
    "SELECT content, segment, depth, along_segment, along_depth, last_id, messages, created_at, counter, tokens, "
    "checksum FROM {s}.summaries WHERE session = %(session)s AND segment = %(segment)s AND depth <= %(depth)s "
    "ORDER BY depth DESC, summary DESC LIMIT %(limit)s"
)
_SUMMARY = (
    "content", "segment", "depth", "along_segment", "along_depth", "last_id", "messages", "created_at", "counter",
    "tokens",
)  # fmt: skip
_INSERT_SUMMARY = (
    f"INSERT INTO {{s}}.summaries (session, summary, {', '.join(_SUMMARY)}, checksum) "
    f"VALUES (%(session)s, {{next}}, {', '.join(f'%({name})s' for name in _SUMMARY)}, %(checksum)s)"
)
_RAISE_EPOCH = "UPDATE {s}.sessions SET epoch = epoch + 1, changed = DEFAULT WHERE session = %(session)s"
_THESE = "unnest(%(segments)s::bigint[], %(depths)s::bigint[]) AS w (segment, depth)"
_ERASE = (
    f"WITH gone AS (DELETE FROM {{s}}.messages AS m USING {_THESE} "
    "WHERE m.session = %(session)s AND m.segment = w.segment AND m.depth = w.depth "
    "RETURNING m.id, m.segment, m.depth, m.seq), "
    "noted AS (INSERT INTO {s}.tombstones SELECT %(session)s, id FROM gone ON CONFLICT DO NOTHING) "
    "SELECT segment, depth, seq FROM gone"
)
_ERASE_FROM = (
    f"DELETE FROM {{s}}.{{table}} AS t USING {_THESE} "
    "WHERE t.session = %(session)s AND t.segment = w.segment AND t.depth = w.depth"
)
_NOTE_ERASED = (
    "INSERT INTO {s}.erasures SELECT s.session, s.epoch, w.segment, w.depth, w.stale FROM {s}.sessions AS s, "
    "unnest(%(segments)s::bigint[], %(depths)s::bigint[], %(stale)s::bigint[]) AS w (segment, depth, stale) "
    "WHERE s.session = %(session)s"
)
_ERASED_SINCE = (
    "SELECT s.epoch, e.epoch, e.segment, e.depth, e.stale FROM {s}.sessions AS s "
    "LEFT JOIN {s}.erasures AS e ON e.session = %(session)s AND e.epoch > %(epoch)s "
    "WHERE s.session = %(session)s ORDER BY e.epoch, e.segment, e.depth"
)
_SCRUB_DUE = (
    "INSERT INTO {s}.scrubs SELECT session, epoch FROM {s}.sessions WHERE session = %(session)s "
    "ON CONFLICT (session) DO UPDATE SET epoch = excluded.epoch"
)
_TO_SCRUB = "SELECT s.session, s.epoch, c.relname FROM {s}.scrubs AS s JOIN pg_class AS c ON c.oid = s.tableoid"
_SCRUBBED = (
    "DELETE FROM {s}.scrubs AS s USING unnest(%(sessions)s::bigint[], %(epochs)s::bigint[]) AS w (session, epoch) "
    "WHERE s.session = w.session AND s.epoch = w.epoch"
)
_COUNTS = (
    "SELECT (SELECT count(*) FROM {s}.messages WHERE session = %(session)s), "
    "(SELECT count(DISTINCT turn_id) FROM {s}.messages "
    "WHERE session = %(session)s AND turn_no >= 0 AND role <> 'system'), "
    "(SELECT count(*) FROM {s}.branches WHERE session = %(session)s), "
    "(SELECT count(*) FROM {s}.segments WHERE session = %(session)s), "
    "(SELECT count(*) FROM {s}.vectors WHERE session = %(session)s), "
    "(SELECT count(*) FROM {s}.tombstones WHERE session = %(session)s)"
)
_COUNTED = ("messages", "turns", "branches", "segments", "vectors", "forgotten")

VECTOR_COLUMNS = ("segments", "depths", "hashes", "vectors", "checksums")

_summary = partial(read_summary, damaged)


def vector_columns(vectors: Sequence[VectorRow]) -> dict[str, list[Any]]:
    """Return the values of `PUT_VECTORS` for some vectors, of those of one message the last."""
    newest = {position: (*position, hash_, vector) for position, hash_, vector in vectors}
    rows = [(*row, vector_checksum(*row)) for row in newest.values()]
    return columns(rows, VECTOR_COLUMNS)


def _parts(data: bytes) -> list[bytes]:
    """Return a snapshot in parts: at least one, so that an empty one is not taken for none."""
    return [data[start : start + _PART] for start in range(0, len(data) + 1, _PART)]


class DerivedTables(GapTables):
    """What is made from messages and goes with them."""

    def put_vectors(self, session: int, space: str, vectors: Sequence[VectorRow]) -> None:
        found = self.run(PUT_SPACE, session, {"space_name": space})
        if found and vectors:
            self.run(PUT_VECTORS, session, {**vector_columns(vectors), "space": found[0][0]})

    def put_vectors_of(
        self, space: str, rows: Mapping[int, Sequence[VectorRow]], epochs: Mapping[int, int | None]
    ) -> frozenset[int]:
        """Do what `Store.keep_vectors` does, in one round trip; of a session without an epoch in any case."""
        given = columns([(session, epochs[session]) for session in rows], ("sessions", "epochs"))
        parts = {session: vector_columns(some) for session, some in rows.items()}
        vectors = {name: [one for part in parts.values() for one in part[name]] for name in VECTOR_COLUMNS}
        owners = [session for session, part in parts.items() for _ in part["depths"]]
        values = {**given, **vectors, "owners": owners, "space_name": space}
        statements = [Statement(sql, None, values) for sql in (_LOCK_THESE, _PUT_SPACES, _PUT_VECTORS_OF)]
        return frozenset(session for (session,) in self.at_once(statements)[1])

    def vectors_at(self, session: int, space: str, positions: Sequence[Position]) -> list[VectorRow]:
        values = {**columns(positions, ("segments", "depths")), "name": space}
        return list(map(read_vector, self.run(_VECTORS_AT, session, values)))

    def vectors_after(self, session: int, space: str, after: Position, limit: int) -> list[VectorRow]:
        values = {**after._asdict(), "name": space, "limit": max(limit, 0)}
        return list(map(read_vector, self.run(_VECTORS_AFTER, session, values)))

    def vectors_of(self, session: int, space: str, hashes: Collection[str]) -> list[VectorRow]:
        values = {"hashes": list(hashes), "name": space}
        found = map(read_vector, self.run(_VECTORS_OF, session, values))
        return [row for row in found if row[1] in hashes]

    def spaces(self, session: int) -> list[str]:
        return [name for (name,) in self.run(_SPACES, session)]

    def put_snapshot(self, session: int, name: str, data: bytes) -> None:
        key = {"name": name}
        self.run("DELETE FROM {s}.snapshots WHERE session = %(session)s AND name = %(name)s", session, key)
        sql = "INSERT INTO {s}.snapshots VALUES (%(session)s, %(name)s, %(part)s, %(data)b)"
        for part, some in enumerate(_parts(data)):
            self.run(sql, session, {**key, "part": part, "data": some})

    def put_snapshot_at(self, session: int, snapshot: Snapshot, epoch: int | None) -> bool:
        """Do what `Store.keep` does with a snapshot, in one round trip."""
        given = {"name": snapshot.name, "epoch": epoch, "sessions": [session]}
        parts = [
            Statement(_INSERT_PART, session, {**given, "part": part, "data": data})
            for part, data in enumerate(_parts(snapshot.data))
        ]
        deleted = Statement(_DELETE_SNAPSHOT, session, given)
        return bool(self.at_once([Statement(_LOCK_THESE, None, given), deleted, *parts])[-1])

    def snapshot(self, session: int, name: str) -> bytes | None:
        sql = "SELECT data FROM {s}.snapshots WHERE session = %(session)s AND name = %(name)s ORDER BY part"
        parts = [row[0] for row in self.run(sql, session, {"name": name})]
        return b"".join(parts) if parts else None

    def insert_summary(self, session: int, summary: Summary) -> None:
        values = summary_values(summary)
        named = dict(zip(_SUMMARY, values, strict=True))
        self.run(_INSERT_SUMMARY, session, {**named, "checksum": checksum_of(values)})

    def summaries(self, session: int, upto: Position, limit: int) -> list[Summary]:
        return list(map(_summary, self.run(_SUMMARIES, session, {**upto._asdict(), "limit": max(limit, 0)})))

    def summary_reaches(self, session: int) -> list[SummaryReach]:
        sql = (
            "SELECT summary, segment, depth, along_segment, along_depth FROM {s}.summaries "
            "WHERE session = %(session)s ORDER BY summary"
        )
        return [SummaryReach(one, Position(*ends[:2]), Position(*ends[2:])) for one, *ends in self.run(sql, session)]

    def erase(
        self, session: int, positions: Sequence[Position], stale: Sequence[Position], summaries: Collection[int]
    ) -> bool:
        if not self.count_rows(_RAISE_EPOCH, session):
            return False
        gone = columns(positions, ("segments", "depths"))
        if positions:
            self._note_erased(session, self.run(_ERASE, session, gone))
            self.run(_ERASE_FROM.replace("{table}", "covers"), session, gone)
        if positions or stale:
            all_of_them = columns([*positions, *stale], ("segments", "depths"))
            self.run(_ERASE_FROM.replace("{table}", "vectors"), session, all_of_them)
        if summaries:
            sql = "DELETE FROM {s}.summaries WHERE session = %(session)s AND summary = ANY(%(numbers)s::bigint[])"
            self.run(sql, session, {"numbers": list(summaries)})
        self.run("DELETE FROM {s}.snapshots WHERE session = %(session)s", session)
        self.run(_SCRUB_DUE, session)
        noted = erasures(positions, stale)
        if noted:
            self.run(_NOTE_ERASED, session, columns(noted, ("segments", "depths", "stale")))
        return True

    def _note_erased(self, session: int, rows: Sequence[tuple[int, int, int]]) -> None:
        depths = by_segment(Position(*row[:2]) for row in rows)
        ranges = {segment: runs(own) for segment, own in depths.items()}
        self.note_gaps(session, {**ranges, NUMBERS: runs(row[2] for row in rows)})

    def forgotten_since(self, session: int, epoch: int) -> Forgotten | None:
        """Return what `Store.forgotten_since` returns."""
        rows = self.run(_ERASED_SINCE, session, {"epoch": epoch})
        return read_erasures([row[1:] for row in rows if row[1] is not None], rows[0][0] - epoch if rows else 0)

    def to_scrub(self) -> list[tuple[int, int, str]]:
        """Return the sessions of which something was erased since they were scrubbed: key, epoch, and end of the names.

        With that end, the names of the tables are those of the partition that holds the session.
        """
        return [(session, epoch, name.removeprefix("scrubs")) for session, epoch, name in self.run(_TO_SCRUB, None)]

    def note_scrubbed(self, sessions: Sequence[tuple[int, int]]) -> None:
        """Note that nothing is left of what was erased of sessions up to an epoch."""
        self.run(_SCRUBBED, None, columns(sessions, ("sessions", "epochs")))

    def counts(self, session: int) -> dict[str, int]:
        return dict(zip(_COUNTED, self.run(_COUNTS, session)[0], strict=True))
