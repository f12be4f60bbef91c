"""Messages in PostgreSQL: how they are found and written."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any, assert_never

from psycopg.errors import ProgramLimitExceeded, UniqueViolation

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
    SessionInfo,
    Stretch,
    title_of,
)
from shared_core.stores.gaps import by_segment, missing, runs
from shared_core.stores.postgres.damage import damaged
from shared_core.stores.postgres.gap_tables import GapTables, holes, holes_of
from shared_core.stores.postgres.transactions import Statement, columns
from shared_core.stores.postgres.tree_tables import SEGMENTS, read_segment
from shared_core.stores.row_values import TEXTS, checksum_of, message_values, read_record, shown_record, span_of

record_of = partial(read_record, damaged)
"""Return the record in a row of `COLUMNS`; StoreError if the row is damaged."""

_NAMES = (
    "session", "segment", "depth", "seq", "id", "turn_id", "turn_no", "role", "created_at", "stays", "counter",
    "tokens", "picked_from", "name", "content", "extra", "checksum",
)  # fmt: skip
_WRITTEN = (*_NAMES, "fingerprint")
_NUMBERS = ("segment", "depth", "seq", "turn_no", "stays", "tokens", "checksum", "fingerprint")
COLUMNS = ", ".join((*(f"m.{name}" for name in _NAMES), "m.fingerprint IS NULL"))

_SELECT = f"SELECT {COLUMNS} FROM {{s}}.messages AS m WHERE m.session = %(session)s "
AT = (
    f"SELECT {COLUMNS} "
    "FROM unnest(%(segments)s::bigint[], %(depths)s::bigint[]) WITH ORDINALITY AS w (segment, depth, n) "
    "JOIN {s}.messages AS m ON m.session = %(session)s AND m.segment = w.segment AND m.depth = w.depth ORDER BY w.n"
)
_NEWEST = f"{_SELECT}AND m.segment = %(segment)s AND m.depth <= %(depth)s ORDER BY m.depth DESC LIMIT %(limit)s"
_AFTER = f"{_SELECT}AND m.seq > %(seq)s ORDER BY m.seq LIMIT %(limit)s"
_TURN = f"{_SELECT}AND m.turn_id = %(turn_id)s ORDER BY m.seq"
_PINNED = f"{_SELECT}AND m.stays = 1 ORDER BY m.seq"
BY_ID = f"{_SELECT}AND m.id = ANY(%(ids)s::text[]) "
_MADE_FROM = (
    "WITH w AS (SELECT * FROM unnest(%(segments)s::bigint[], %(depths)s::bigint[]) AS w (segment, depth)), f AS ("
    "SELECT p.segment, p.depth FROM w "
    "JOIN {s}.messages AS o ON o.session = %(session)s AND o.segment = w.segment AND o.depth = w.depth "
    "JOIN {s}.messages AS p ON p.session = %(session)s AND p.picked_from = o.id "
    "UNION SELECT c.segment, c.depth FROM w JOIN {s}.covers AS c "
    "ON c.session = %(session)s AND c.source_segment = w.segment AND c.start <= w.depth AND c.upto >= w.depth) "
    f"SELECT {COLUMNS} FROM f JOIN {{s}}.messages AS m "
    "ON m.session = %(session)s AND m.segment = f.segment AND m.depth = f.depth ORDER BY m.seq"
)
_SAYING = (
    f"SELECT {COLUMNS} FROM unnest(%(fingerprints)s::bigint[]) AS w (fingerprint), LATERAL (SELECT * "
    "FROM {s}.messages AS n WHERE n.session = %(session)s AND n.fingerprint = w.fingerprint "
    "ORDER BY n.seq DESC LIMIT %(limit)s) AS m ORDER BY m.seq"
)
_COVERS = (
    "SELECT segment, depth, source_segment, start, upto FROM {s}.covers WHERE session = %(session)s "
    "AND (segment = ANY(%(segments)s::bigint[]) OR source_segment = ANY(%(segments)s::bigint[])) "
    "ORDER BY segment, depth, ordinal"
)
_COUNT = (
    "SELECT count(*) FROM unnest(%(segments)s::bigint[], %(starts)s::bigint[], %(uptos)s::bigint[]) "
    "AS w (segment, start, upto) JOIN {s}.messages AS m ON m.session = %(session)s AND m.segment = w.segment "
    "AND m.depth BETWEEN w.start AND w.upto"
)
_NEWEST_QUESTION = (
    "SELECT turn_id, turn_no FROM {s}.messages WHERE session = %(session)s AND segment = %(segment)s "
    "AND depth BETWEEN %(start)s AND %(upto)s AND role = 'user' ORDER BY depth DESC LIMIT 1"
)
_TURN_NUMBER = (
    "SELECT turn_no FROM {s}.messages WHERE session = %(session)s AND turn_id = %(turn_id)s "
    "AND segment = %(segment)s AND depth <= %(depth)s ORDER BY seq LIMIT 1"
)

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

_OVERVIEW = (
    "SELECT n.session, n.user_id, n.session_id, "
    "(SELECT count(*) FROM {s}.messages AS m WHERE m.session = n.session), "
    "(SELECT count(*) FROM {s}.branches AS b WHERE b.session = n.session), f.created_at, l.created_at, "
    "(SELECT r.note FROM {s}.refs AS r WHERE r.session = n.session AND r.kind = 'title') "
    "FROM {s}.names AS n, "
    "LATERAL (SELECT created_at FROM {s}.messages AS m WHERE m.session = n.session ORDER BY seq LIMIT 1) AS f, "
    "LATERAL (SELECT created_at FROM {s}.messages AS m WHERE m.session = n.session ORDER BY seq DESC LIMIT 1) AS l "
    "WHERE true "
)
_TITLES = (
    f"SELECT {COLUMNS} FROM unnest(%(sessions)s::bigint[]) AS w (session), LATERAL (SELECT * FROM {{s}}.messages AS u "
    "WHERE u.session = w.session AND u.role = 'user' ORDER BY u.seq LIMIT 1) AS m"
)


class MessageTables(GapTables):
    """Messages, what they sum up, and ids that are not stored again."""

    def get(self, session: int, ids: Sequence[str]) -> list[Record]:
        return self._records(BY_ID, session, {"ids": list(ids)}) if ids else []

    def at(self, session: int, positions: Sequence[Position]) -> list[Record]:
        records = self._records(AT, session, columns(positions, ("segments", "depths")))
        if len(records) < len(positions):
            self.refuse_absence(session, positions)
        return records

    def refuse_absence(self, session: int, positions: Sequence[Position]) -> None:
        """Raise StoreError if a message was lost that was at one of some positions."""
        depths = by_segment(positions)
        # Positions and tips of one moment: a message that is added meanwhile is not missing.
        asked = Statement(AT, session, columns(positions, ("segments", "depths")))
        found, segments = self.together([asked, Statement(SEGMENTS, session, {"segments": list(depths)})])
        there = by_segment(record_of(row).position for row in found)
        own = [read_segment(session, row) for row in segments]
        absent = {one: runs({*depths[one.segment]} - {*there.get(one.segment, [])}) for one in own}
        self.refuse_loss(session, {one.segment: holes_of(one, ranges) for one, ranges in absent.items()})

    def newest(self, session: int, upto: Position, limit: int) -> list[Record]:
        values = {**upto._asdict(), "limit": max(limit, 0)}
        records = self._records(_NEWEST, session, values)
        lowest = records[-1].position.depth if records else upto.depth + 1
        if limit <= 0 or (upto.depth - lowest + 1 == len(records) and (len(records) >= limit or not lowest)):
            return records
        asked = Statement(_NEWEST, session, values), Statement(SEGMENTS, session, {"segments": [upto.segment]})
        found, segments = self.together(asked)
        depths = [record_of(row).position.depth for row in reversed(found)]
        ranges = missing(depths, depths[0] if limit <= len(depths) else 0, upto.depth)
        own = [read_segment(session, row) for row in segments]
        self.refuse_loss(session, {one.segment: holes_of(one, ranges) for one in own})
        return records

    def find(self, session: int, criterion: Criterion) -> list[Record]:
        records = list(map(record_of, self.run(*found_by(session, criterion))))
        if isinstance(criterion, After) and records:
            self.refuse_loss(session, holes(records, max(criterion.seq, 0) + 1, records[-1].seq))
        return records

    def _records(self, sql: str, session: int, values: Mapping[str, Any]) -> list[Record]:
        return list(map(record_of, self.run(sql, session, values)))

    def stored(self, session: int) -> list[tuple[Position, str]]:
        """Return what `Store.stored` returns. No checksum is looked at."""
        sql = "SELECT segment, depth, id FROM {s}.messages WHERE session = %(session)s ORDER BY seq"
        return [(Position(segment, depth), id_) for segment, depth, id_ in self.run(sql, session)]

    def covers(self, session: int, segments: Collection[int]) -> list[tuple[Position, Stretch]]:
        found = self.run(_COVERS, session, {"segments": list(segments)})
        return [(Position(segment, depth), Stretch(*source)) for segment, depth, *source in found]

    def newest_question(self, session: int, stretch: Stretch) -> Newest | None:
        found = self.run(_NEWEST_QUESTION, session, stretch._asdict())
        return Newest(found[0][0], found[0][1]) if found else None

    def count(self, session: int, stretches: Collection[Stretch]) -> int:
        """Return how many messages some stretches hold."""
        return int(self.run(_COUNT, session, columns(list(stretches), ("segments", "starts", "uptos")))[0][0])

    def turn_number(self, session: int, turn_id: str, upto: Position) -> int | None:
        found = self.run(_TURN_NUMBER, session, {**upto._asdict(), "turn_id": turn_id})
        return found[0][0] if found else None

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
            self.raise_number(session, max(record.seq for record in records))
        for part in parts_of(rows_of(session, records)):
            self._insert(session, part)
        for position, stretch in covers:
            source = {"source_segment": stretch.segment, "start": stretch.start, "upto": stretch.upto}
            if not self.count_rows(_INSERT_COVER, session, {**position._asdict(), **source}):
                raise UnknownReferenceError(f"there is no message at {tuple(position)} that could sum something up")

    def _insert(self, session: int, rows: Sequence[tuple[Any, ...]]) -> None:
        with naming_faults(rows):
            self.run(INSERTED, session, columns_of(rows))

    def are_forgotten(self, session: int, ids: Collection[str]) -> set[str]:
        sql = "SELECT id FROM {s}.tombstones WHERE session = %(session)s AND id = ANY(%(ids)s::text[])"
        return {id_ for (id_,) in self.run(sql, session, {"ids": list(ids)})} if ids else set()

    def forgotten(self, session: int, after: str | None, limit: int) -> list[str]:
        more = "" if after is None else "AND id > %(after)s "
        sql = f"SELECT id FROM {{s}}.tombstones WHERE session = %(session)s {more}ORDER BY id LIMIT %(limit)s"
        found = self.run(sql, session, {"after": after, "limit": max(limit, 0)})
        return [id_ for (id_,) in found]

    def insert_tombstones(self, session: int, ids: Sequence[str]) -> None:
        sql = (
            "INSERT INTO {s}.tombstones SELECT %(session)s, w.id FROM unnest(%(ids)s::text[]) AS w (id) "
            "WHERE NOT EXISTS (SELECT 1 FROM {s}.messages AS m WHERE m.session = %(session)s AND m.id = w.id) "
            "ON CONFLICT DO NOTHING"
        )
        if ids:
            self.run(sql, session, {"ids": list(ids)})

    def overview(self, user_ids: Collection[str | None], limit: int) -> list[SessionInfo]:
        """Return what `Store.overview` returns, in two statements."""
        found = self._of_users(_OVERVIEW, {}, user_ids or None, "n.session")
        infos = [(_info(row), row[0]) for row in found]
        page = sorted(infos, key=lambda one: (one[0].last, one[1]), reverse=True)[: max(limit, 0)]
        asked = self.run(_TITLES, None, {"sessions": [key for _, key in page]}) if page else []
        shown = {row[0]: record for row in asked if (record := shown_record(damaged, row))}
        titles = {key: title_of(record.message.content) for key, record in shown.items()}
        return [replace(info, title=info.title or titles.get(key)) for info, key in page]


def found_by(session: int, criterion: Criterion) -> Statement:
    """Return the statement that finds the messages of a criterion."""
    match criterion:
        case After():
            return Statement(_AFTER, session, {"seq": criterion.seq, "limit": max(criterion.limit, 0)})
        case InTurn():
            return Statement(_TURN, session, {"turn_id": criterion.turn_id})
        case Pinned():
            return Statement(_PINNED, session, {})
        case IdPrefix():
            low = criterion.prefix
            high = _after_all(low)
            below = "" if high is None else "AND m.id < %(high)s "
            sql = f"{_SELECT}AND m.id >= %(low)s {below}ORDER BY m.seq LIMIT %(limit)s"
            return Statement(sql, session, {"low": low, "high": high, "limit": max(criterion.limit, 0)})
        case MadeFrom():
            return Statement(_MADE_FROM, session, columns(criterion.positions, ("segments", "depths")))
        case Says():
            given = {"fingerprints": [*set(criterion.fingerprints)], "limit": max(criterion.limit, 0)}
            return Statement(_SAYING, session, given)
        case _:
            assert_never(criterion)


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


def _info(row: tuple[Any, ...]) -> SessionInfo:
    _, user_id, session_id, messages, branches, first, last, title = row
    times = span_of(first, last)
    return SessionInfo(session_id, user_id, messages, branches, *times, title)


def parts_of(rows: Sequence[tuple[Any, ...]]) -> Iterator[list[tuple[Any, ...]]]:
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


def _after_all(prefix: str) -> str | None:
    """Return the least text, by code points, that comes after all that begin with a prefix; None if there is none."""
    for end in range(len(prefix), 0, -1):
        last = ord(prefix[end - 1])
        if last < 0x10FFFF:
            return prefix[: end - 1] + chr(0xE000 if last == 0xD7FF else last + 1)
    return None
