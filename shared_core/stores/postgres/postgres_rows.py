"""The rows of a PostgreSQL database: what its statements say in another way than others."""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from psycopg.errors import ProgramLimitExceeded, UniqueViolation

from shared_core.errors import DuplicateError, StoreError, UnknownReferenceError
from shared_core.history.normal_form import fingerprint
from shared_core.records import (
    MAIN,
    MainChanges,
    Mark,
    Position,
    Record,
    Segment,
    Snapshot,
    Stretch,
    Summary,
    VectorRow,
)
from shared_core.stores import statements as sql
from shared_core.stores.postgres.postgres_schema import MIGRATIONS, RECORD
from shared_core.stores.postgres.transactions import Statements, columns
from shared_core.stores.row_values import (
    TEXTS,
    checksum_of,
    erasures,
    message_values,
    segment_values,
    summary_values,
    vector_checksum,
)
from shared_core.stores.sql_rows import SqlRows, parts_of, read_key_and_state, whose_of
from shared_core.stores.statements import MESSAGE, Rows, Statement

# The oldest transaction that is still running, and which life of which server this is: a crash gives numbers out again.
_MOMENT = (
    "SELECT pg_snapshot_xmin(pg_current_snapshot())::text::bigint AS oldest, "
    "(extract(epoch FROM greatest(pg_postmaster_start_time(), (SELECT stats_reset FROM pg_stat_bgwriter))) * 1000000)"
    "::bigint AS server"
)
# What a transaction wrote that is not over yet for this one has at least the number `xmax`; so may have what was copied
# from another server. Sessions are looked up one by one, see `joint_reads`.
_CHANGED = (
    f"SELECT m.oldest, m.server, c.* FROM ({_MOMENT}) AS m LEFT JOIN ("
    "SELECT s.session, n.user_id, n.session_id, s.last_seq, s.epoch, s.version, b.segment, b.depth "
    "FROM (SELECT * FROM {s}.sessions AS o WHERE {user} AND o.changed >= %(since)s::bigint "
    "AND o.changed < pg_snapshot_xmax(pg_current_snapshot())::text::bigint OFFSET 0) AS s, "
    "LATERAL (SELECT * FROM {s}.names AS o WHERE o.session = s.session AND {named} OFFSET 0) AS n "
    "LEFT JOIN LATERAL (SELECT h.segment, coalesce(h.depth, g.tip) AS depth FROM "
    "(SELECT * FROM {s}.branches AS o WHERE o.session = s.session AND o.name = %(main)s OFFSET 0) AS h, "
    "LATERAL (SELECT tip FROM {s}.segments AS o WHERE o.session = s.session AND o.segment = h.segment OFFSET 0) AS g "
    "OFFSET 0) AS b ON true) AS c ON true ORDER BY c.session"
)
_OF_USER = {True: "o.{} IS NULL", False: "o.{} = %(user)s"}
_PUT_SEGMENT = (
    "INSERT INTO {s}.segments AS g (session, segment, parent_segment, parent_depth, tip, merged_segment, merged_depth, "
    "base, turn_shift, checksum) VALUES (%(session)s, %(segment)s, %(parent_segment)s, %(parent_depth)s, %(tip)s, "
    "%(merged_segment)s, %(merged_depth)s, %(base)s, %(turn_shift)s, %(checksum)s) "
    "ON CONFLICT (session, segment) DO UPDATE SET tip = greatest(g.tip, excluded.tip)"
)
_INSERT_SESSION = "INSERT INTO {s}.sessions (session, last_seq, epoch, owner) VALUES (%(session)s, 0, 0, %(user)s)"
_RAISE_VERSION = (
    "UPDATE {s}.sessions SET last_seq = greatest(last_seq, %(seq)s), version = version + 1, changed = DEFAULT "
    "WHERE session = %(session)s"
)
_WRITTEN = (*MESSAGE, "fingerprint")
_NUMBERS = ("segment", "depth", "seq", "turn_no", "stays", "tokens", "checksum", "fingerprint")
_ARRAYS = ", ".join(f"%({name})s::{'bigint' if name in _NUMBERS else 'text'}[]" for name in _WRITTEN[1:])
INSERTED = f"INSERT INTO {{s}}.messages ({', '.join(_WRITTEN)}) SELECT %(session)s, w.* FROM unnest({_ARRAYS}) AS w"
_RAISE_TIPS = (
    "UPDATE {s}.segments AS g SET tip = greatest(g.tip, w.tip) "
    "FROM unnest(%(segments)s::bigint[], %(tips)s::bigint[]) AS w (segment, tip) "
    "WHERE g.session = %(session)s AND g.segment = w.segment"
)
_INSERT_COVER = (
    "INSERT INTO {s}.covers SELECT %(session)s, m.segment, m.depth, "
    "(SELECT coalesce(max(ordinal), -1) + 1 FROM {s}.covers WHERE session = %(session)s "
    "AND segment = %(segment)s AND depth = %(depth)s), %(source_segment)s, %(start)s, %(upto)s "
    "FROM {s}.messages AS m WHERE m.session = %(session)s AND m.segment = %(segment)s AND m.depth = %(depth)s"
)

_TOGETHER = 2**24
"""Characters that are written in one statement; PostgreSQL takes a gigabyte."""

_LARGEST = 2**28
"""The most bytes of a message's text, and of its other fields; what is sent back with it has to fit in a gigabyte."""

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
_SCRUB_DUE = (
    "INSERT INTO {s}.scrubs SELECT session, epoch FROM {s}.sessions WHERE session = %(session)s "
    "ON CONFLICT (session) DO UPDATE SET epoch = excluded.epoch"
)
_TO_SCRUB = "SELECT s.session, s.epoch, c.relname FROM {s}.scrubs AS s JOIN pg_class AS c ON c.oid = s.tableoid"
_SCRUBBED = (
    "DELETE FROM {s}.scrubs AS s USING unnest(%(sessions)s::bigint[], %(epochs)s::bigint[]) AS w (session, epoch) "
    "WHERE s.session = w.session AND s.epoch = w.epoch"
)
_VALID = (
    "SELECT c.relname::text FROM pg_index AS i JOIN pg_class AS c ON c.oid = i.indexrelid "
    "WHERE i.indisvalid AND c.relnamespace = "
    f"(SELECT relnamespace FROM pg_class WHERE oid = (SELECT tableoid FROM {{s}}.{RECORD} LIMIT 1))"
)
_INDEXES = re.findall(r"CREATE (?:UNIQUE )?INDEX (\w+) ", "\n".join(s for step in MIGRATIONS for s in step.statements))
VECTOR_COLUMNS = ("segments", "depths", "hashes", "vectors", "checksums")


def vector_columns(vectors: Sequence[VectorRow]) -> dict[str, list[Any]]:
    """Return the values of `PUT_VECTORS` for some vectors, of those of one message the last."""
    newest = {position: (*position, hash_, vector) for position, hash_, vector in vectors}
    rows = [(*row, vector_checksum(*row)) for row in newest.values()]
    return columns(rows, VECTOR_COLUMNS)


class PostgresTables(SqlRows):
    """All tables of a database.

    Args:
        statements: runs statements, in a transaction if anything is written.
    """

    def __init__(self, statements: Statements) -> None:
        self.statements = statements

    def run(self, statement: str, session: int | None, values: Mapping[str, Any] | None = None) -> Rows:
        return self.statements.run(statement, session, values)

    def count_rows(self, statement: str, session: int | None, values: Mapping[str, Any] | None = None) -> int:
        return self.statements.count(statement, session, values)

    def together(self, statements: Sequence[Statement]) -> list[Rows]:
        if len(statements) == 1:
            return [self.run(*statements[0])]
        return self.statements.together(statements)

    def faults(self) -> list[str]:
        """Return in words which indexes are missing or broken."""
        valid = {name for (name,) in self.run(_VALID, None)}
        return [f"index {name} is missing or broken" for name in _INDEXES if name not in valid]

    # Sessions and the tree

    def main_changes(self, user_id: str | None, since: Mark | None = None) -> MainChanges:
        """Return what `Store.main_changes` does.

        A mark is the oldest transaction that was running, and the time when the server was started.
        """
        if since is not None:
            given = {"user": user_id, "since": since[0], "main": MAIN}
            whose = _OF_USER[user_id is None]  # `names` tells; the other narrows the search
            statement = _CHANGED.replace("{user}", whose.format("owner")).replace("{named}", whose.format("user_id"))
            rows = self.run(statement, None, given)
            oldest, server = rows[0][:2]
            if server == since[1]:
                found = [read_key_and_state(row[2:]) for row in rows if row[2] is not None]
                return MainChanges(found, (oldest, server), False)
        users = {"users": [] if user_id is None else [user_id]}
        asked = Statement(f"{sql.MAIN_STATES}{whose_of([user_id])} ORDER BY n.session", None, sql.MAIN_VALUES | users)
        (moment,), rows = self.statements.together([Statement(_MOMENT, None, {}), asked])
        return MainChanges(list(map(read_key_and_state, rows)), moment, True)

    def insert_session(self, user_id: str | None, session_id: str) -> int | None:
        session = super().insert_session(user_id, session_id)
        if session is not None:
            self.run(_INSERT_SESSION, session, {"user": user_id})
        return session

    def raise_version(self, session: int, seq: int = 0) -> None:
        self.run(_RAISE_VERSION, session, {"seq": seq})

    def put_segment(self, session: int, segment: Segment) -> None:
        sealed = segment_values(session, segment)
        names = ("segment", "parent_segment", "parent_depth", "merged_segment", "merged_depth", "base", "turn_shift")
        values = dict(zip(names, sealed[1:], strict=True))
        self.run(_PUT_SEGMENT, session, {**values, "tip": segment.tip, "checksum": checksum_of(sealed)})

    # Messages

    def insert_records(
        self, session: int, records: Sequence[Record], covers: Sequence[tuple[Position, Stretch]] = ()
    ) -> None:
        tips: dict[int, int] = {}
        for record in records:
            segment, depth = record.position
            tips[segment] = max(depth, tips.get(segment, depth))
        if tips:
            raised = self.count_rows(_RAISE_TIPS, session, columns(list(tips.items()), ("segments", "tips")))
            if raised < len(tips):
                raise UnknownReferenceError("a message stands in a segment that does not exist")
            self.raise_version(session, max(record.seq for record in records))
        for part in batches_of(rows_of(session, records)):
            self._insert(session, part)
        for position, stretch in covers:
            source = {"source_segment": stretch.segment, "start": stretch.start, "upto": stretch.upto}
            if not self.count_rows(_INSERT_COVER, session, {**position._asdict(), **source}):
                raise UnknownReferenceError(f"there is no message at {tuple(position)} that could sum something up")

    def _insert(self, session: int, rows: Sequence[tuple[Any, ...]]) -> None:
        with naming_faults(rows):
            self.run(INSERTED, session, columns_of(rows))

    # What is derived

    def put_vectors(self, session: int, space: str, vectors: Sequence[VectorRow]) -> None:
        self.put_vectors_of(space, {session: vectors}, {session: None})

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
        return frozenset(session for (session,) in self.statements.at_once(statements)[1])

    def put_snapshot_at(self, session: int, snapshot: Snapshot, epoch: int | None) -> bool:
        """Do what `Store.keep` does with a snapshot, in one round trip."""
        given = {"name": snapshot.name, "epoch": epoch, "sessions": [session]}
        parts = [
            Statement(_INSERT_PART, session, {**given, "part": part, "data": data})
            for part, data in enumerate(parts_of(snapshot.data))
        ]
        deleted = Statement(_DELETE_SNAPSHOT, session, given)
        return bool(self.statements.at_once([Statement(_LOCK_THESE, None, given), deleted, *parts])[-1])

    def insert_summary(self, session: int, summary: Summary) -> None:
        values = summary_values(summary)
        named = dict(zip(_SUMMARY, values, strict=True))
        self.run(_INSERT_SUMMARY, session, {**named, "checksum": checksum_of(values)})

    # Forgetting

    def erase(
        self, session: int, positions: Sequence[Position], stale: Sequence[Position], summaries: Collection[int]
    ) -> bool:
        if not self.count_rows(_RAISE_EPOCH, session):
            return False
        gone = columns(positions, ("segments", "depths"))
        if positions:
            self.note_erased(session, self.run(_ERASE, session, gone))
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

    def to_scrub(self) -> list[tuple[int, int, str]]:
        """Return the sessions of which something was erased since they were scrubbed: key, epoch, and end of the names.

        With that end, the names of the tables are those of the partition that holds the session.
        """
        return [(session, epoch, name.removeprefix("scrubs")) for session, epoch, name in self.run(_TO_SCRUB, None)]

    def note_scrubbed(self, sessions: Sequence[tuple[int, int]]) -> None:
        """Note that nothing is left of what was erased of sessions up to an epoch."""
        self.run(_SCRUBBED, None, columns(sessions, ("sessions", "epochs")))


def rows_of(session: int, records: Sequence[Record]) -> list[tuple[Any, ...]]:
    """Return the rows of messages, all columns in order."""
    rows = [message_values(session, record) for record in records]
    prints = [None if record.alone else fingerprint(record.message) for record in records]
    return [(*row, checksum_of(row), found_by) for row, found_by in zip(rows, prints, strict=True)]


def columns_of(rows: Sequence[tuple[Any, ...]]) -> dict[str, list[Any]]:
    """Return the values of `INSERTED` for some rows."""
    return columns([row[1:] for row in rows], _WRITTEN[1:])


@contextmanager
def naming_faults(rows: Sequence[tuple[Any, ...]]) -> Iterator[None]:
    """Enter a block that stores rows of messages; what the database refuses is raised as one of our errors."""
    try:
        yield
    except UniqueViolation as error:
        raise DuplicateError(
            f"an id, a position or a number of a message is taken ({error.diag.message_detail})"
        ) from error
    except ProgramLimitExceeded as error:
        longest = max((row[4] for row in rows), key=len)
        raise StoreError(
            f"message {longest[:100]!r} cannot be stored: its id is too long: {error.diag.message_primary}"
        ) from error


def batches_of(rows: Sequence[tuple[Any, ...]]) -> Iterator[list[tuple[Any, ...]]]:
    """Yield rows of messages in parts that one statement can take; StoreError if one is too large for any."""
    part: list[tuple[Any, ...]] = []
    size = 0
    for row in rows:
        own = sum(len(value or "") for value in row[-TEXTS - 2 : -2])
        if own > _LARGEST // 4 and any(len((value or "").encode()) > _LARGEST for value in row[-TEXTS - 2 : -2]):
            raise StoreError(f"message {row[4][:100]!r} cannot be stored: a text may have {_LARGEST:,} bytes at most")
        if part and size + own > _TOGETHER:
            yield part
            part, size = [], 0
        part.append(row)
        size += own
    if part:
        yield part
