"""What a question reads together: several statements that see one moment, in one round trip."""

from collections.abc import Mapping, Sequence
from typing import Any

from shared_core.records import (
    MAIN,
    After,
    Line,
    LineRead,
    MainNews,
    Position,
    Query,
    Record,
    Segment,
    SessionState,
    State,
    VectorRow,
)
from shared_core.stores.gaps import Range, by_segment, missing
from shared_core.stores.postgres.gap_tables import holes, holes_of
from shared_core.stores.postgres.message_tables import AT, COLUMNS, MessageTables, found_by, record_of
from shared_core.stores.postgres.transactions import Statement, columns
from shared_core.stores.postgres.tree_tables import SEGMENT_COLUMNS, STATE, read_segment, read_state
from shared_core.stores.row_values import read_vector
from shared_core.stores.tree_rules import segment_at

SPANS = 8
"""How many segments of a line its newest messages are read from at once; more are rarely needed."""

_BRANCH = (
    "SELECT b.segment, coalesce(b.depth, g.tip) AS depth FROM {s}.branches AS b "
    "JOIN {s}.segments AS g ON g.session = %(session)s AND g.segment = b.segment "
    "WHERE b.session = %(session)s AND b.name = %(branch)s"
)
_POSITION = "SELECT %(segment)s::integer AS segment, %(depth)s::integer AS depth"
_LINE = (
    "WITH RECURSIVE h AS ({head}), l AS ("
    f"SELECT {SEGMENT_COLUMNS} FROM h JOIN {{s}}.segments AS g ON g.session = %(session)s AND g.segment = h.segment "
    f"UNION SELECT {SEGMENT_COLUMNS} FROM l JOIN {{s}}.segments AS g "
    "ON g.session = %(session)s AND g.segment IN (l.parent_segment, l.merged_segment)) "
    "SELECT * FROM l WHERE segment <> ALL(%(known)s::bigint[])"
)
_TAIL = (
    "WITH RECURSIVE h AS ({head}), p AS (SELECT h.segment, h.depth, 1 AS n FROM h "
    "UNION ALL SELECT g.parent_segment, g.parent_depth, p.n + 1 FROM p JOIN {s}.segments AS g "
    "ON g.session = %(session)s AND g.segment = p.segment "
    f"WHERE g.merged_segment IS NULL AND g.parent_segment IS NOT NULL AND p.n < {SPANS}) "
    f"SELECT {COLUMNS} FROM p CROSS JOIN LATERAL (SELECT * FROM {{s}}.messages AS o "
    "WHERE o.session = %(session)s AND o.segment = p.segment AND o.depth <= p.depth "
    "ORDER BY o.depth DESC LIMIT %(newest)s) AS m ORDER BY p.n, m.depth DESC LIMIT %(newest)s"
)
_EPOCHS = "SELECT session, epoch FROM {s}.sessions WHERE session = ANY(%(sessions)s::bigint[])"
_SPACE = "(SELECT space FROM {s}.spaces WHERE session = %(session)s AND name = %(name)s)"
# Vectors are looked up one by one (OFFSET 0, LIMIT 1): of a table that has never been analysed, PostgreSQL takes a
# session for so small that a join would read all its vectors, for one message as for all.
_KNOWN_VECTORS = (
    "WITH k AS (SELECT w.n, w.hash AS wanted, v.segment, v.depth, v.hash, v.vector, v.checksum "
    "FROM unnest(%(segments)s::bigint[], %(depths)s::bigint[], %(hashes)s::text[]) "
    "WITH ORDINALITY AS w (segment, depth, hash, n) LEFT JOIN LATERAL (SELECT * FROM {s}.vectors AS o "
    f"WHERE o.session = %(session)s AND o.space = {_SPACE} AND o.segment = w.segment AND o.depth = w.depth "
    "AND o.hash = w.hash OFFSET 0) AS v ON true) "
    "SELECT n, segment, depth, hash, vector, checksum FROM k WHERE hash IS NOT NULL UNION ALL "
    "SELECT NULL::bigint, e.segment, e.depth, e.hash, e.vector, e.checksum "
    "FROM (SELECT DISTINCT wanted FROM k WHERE hash IS NULL) AS m, LATERAL (SELECT * FROM {s}.vectors AS o "
    f"WHERE o.session = %(session)s AND o.space = {_SPACE} AND o.hash = m.wanted LIMIT 1) AS e "
    "ORDER BY 1 NULLS LAST"
)

# Sessions are looked up one by one (OFFSET 0), so that each is looked for in its own partition alone.
_EACH = "FROM unnest(%(sessions)s::bigint[], %(afters)s::bigint[], %(uptos)s::bigint[]) AS w (session, after, upto)"
_NEW_OF_EACH = (
    f"{_EACH}, LATERAL (SELECT * FROM {{s}}.messages AS o WHERE o.session = w.session "
    "AND o.seq > w.after AND o.seq <= w.upto OFFSET 0) AS m"
)
_MAIN_RECORDS = f"SELECT {COLUMNS} {_NEW_OF_EACH} ORDER BY m.session, m.seq"
_MAIN_VECTORS = (
    f"SELECT w.session, v.segment, v.depth, v.hash, v.vector, v.checksum {_NEW_OF_EACH}, "
    "LATERAL (SELECT * FROM {s}.spaces AS o WHERE o.session = w.session AND o.name = %(name)s OFFSET 0) AS s, "
    "LATERAL (SELECT * FROM {s}.vectors AS o WHERE o.session = w.session AND o.space = s.space "
    "AND o.segment = m.segment AND o.depth = m.depth OFFSET 0) AS v"
)
_MAIN_SPACES = (
    f"SELECT w.session, s.name {_EACH}, LATERAL (SELECT * FROM {{s}}.spaces AS o WHERE o.session = w.session "
    "AND EXISTS (SELECT 1 FROM {s}.vectors AS v WHERE v.session = w.session AND v.space = o.space) OFFSET 0) AS s "
    "ORDER BY w.session, s.written DESC"
)
_MAIN_HEADS = (
    "SELECT w.session, s.last_seq, s.epoch, s.version, b.segment, b.depth, b.checksum, g.tip "
    f"{_EACH}, LATERAL (SELECT * FROM {{s}}.sessions AS o WHERE o.session = w.session OFFSET 0) AS s, "
    "LATERAL (SELECT * FROM {s}.branches AS o WHERE o.session = w.session AND o.name = %(main)s OFFSET 0) AS b, "
    "LATERAL (SELECT tip FROM {s}.segments AS o WHERE o.session = w.session AND o.segment = b.segment OFFSET 0) AS g"
)
_MAIN_LINES = (
    f"WITH RECURSIVE l AS (SELECT w.session, {SEGMENT_COLUMNS} {_EACH}, "
    "LATERAL (SELECT * FROM {s}.branches AS o WHERE o.session = w.session AND o.name = %(main)s OFFSET 0) AS b, "
    "LATERAL (SELECT * FROM {s}.segments AS o WHERE o.session = w.session AND o.segment = b.segment OFFSET 0) AS g "
    f"UNION SELECT l.session, {SEGMENT_COLUMNS} FROM l, LATERAL (SELECT * FROM {{s}}.segments AS o "
    "WHERE o.session = l.session AND o.segment IN (l.parent_segment, l.merged_segment) OFFSET 0) AS g) "
    "SELECT * FROM l"
)

_NOTHING = SessionState(None, 0, 0)


class JointReads(MessageTables):
    """What several tables tell at one moment."""

    def read(self, session: int, *queries: Query) -> list[Any]:
        """Return what `Store.read` returns; another round trip or more if a line has many short segments."""
        asked = [_asked(session, query) for query in queries]
        statements: list[Statement] = []
        for one in (one for some in asked for one in some):
            statements += [one] if one not in statements else []
        rows = self.together(statements)
        found = [[rows[statements.index(one)] for one in some] for some in asked]
        answers = [self._answered(session, *one) for one in zip(queries, found, strict=True)]
        state = next((one for one in answers if isinstance(one, SessionState)), None)
        for query, answer in zip(queries, answers, strict=True):
            if isinstance(query, After):
                self._refuse_lost_numbers(session, answer, query, state)
        return answers

    def _answered(self, session: int, query: Query, found: Sequence[Sequence[tuple[Any, ...]]]) -> Any:
        match query:
            case State():
                return read_state(session, query.branch, found[0]) or _NOTHING
            case Line():
                return self._line(session, query, *found)
            case _:
                return list(map(record_of, found[0]))

    def _refuse_lost_numbers(
        self, session: int, records: Sequence[Record], after: After, state: SessionState | None
    ) -> None:
        whole = state is None or 0 < after.limit <= len(records)  # nothing is known of what comes after them
        last = (records[-1].seq if records else 0) if whole else 0 if state is None else state.last_seq
        if after.limit > 0:
            self.refuse_loss(session, holes(records, max(after.seq, 0) + 1, last))

    def _line(self, session: int, line: Line, *found: Sequence[tuple[Any, ...]]) -> LineRead:
        head: Position | None
        if isinstance(line.head, str):
            state = read_state(session, line.head, found[2])
            head = None if state is None else state.head
        else:
            head = line.head
        segments = [read_segment(session, row) for row in found[0]]
        on_line = {**line.known, **{segment.segment: segment for segment in segments}}
        newest = self._rest(session, head, on_line, list(map(record_of, found[1])), line.newest)
        self._refuse_lost_end(session, head, on_line, newest, line.newest)
        return LineRead(segments, newest)

    def _rest(
        self, session: int, head: Position | None, segments: Mapping[int, Segment], tail: list[Record], newest: int
    ) -> list[Record]:
        """Return the newest messages of a line whose first `SPANS` segments have been read."""
        read = 0
        tail = list(tail)
        while head is not None:
            segment = segments.get(head.segment) or segment_at(self, session, head.segment)
            if read >= SPANS and len(tail) < newest:
                tail += self.newest(session, head, newest - len(tail))
            elif len(tail) >= newest:
                break
            read += 1
            head = segment.parent if segment.merged is None else None
        return tail

    def _refuse_lost_end(
        self, session: int, head: Position | None, segments: Mapping[int, Segment], tail: Sequence[Record], newest: int
    ) -> None:
        """Raise StoreError if one of the newest messages of a line was lost."""
        depths = by_segment(record.position for record in reversed(tail))
        ranges: dict[int, list[Range]] = {}
        while head is not None and newest > 0:
            segment = segments.get(head.segment) or segment_at(self, session, head.segment)
            ends = len(tail) >= newest and head.segment == tail[-1].position.segment
            own = depths.get(head.segment, [])
            ranges[head.segment] = holes_of(segment, missing(own, own[0] if ends else 0, head.depth))
            head = None if ends or segment.merged is not None else segment.parent
        self.refuse_loss(session, ranges)

    def main_news(self, wanted: Mapping[int, tuple[int, int]], space: str | None = None) -> dict[int, MainNews]:
        """Return what `Store.main_news` returns."""
        ranges = columns([(session, *numbers) for session, numbers in wanted.items()], ("sessions", "afters", "uptos"))
        given = {**ranges, "main": MAIN, "name": space}
        asked = (_MAIN_HEADS, _MAIN_LINES, _MAIN_SPACES, _MAIN_RECORDS, *(() if space is None else (_MAIN_VECTORS,)))
        heads, *others = self.together([Statement(sql, None, given) for sql in asked])
        lines, spaces, records, vectors = (by_session(rows) for rows in (*others, *([[]] if space is None else [])))
        found: dict[int, MainNews] = {}
        for session, *state in heads:
            read = read_state(session, MAIN, [tuple(state)])
            assert read is not None
            found[session] = MainNews(
                read,
                [read_segment(session, row[1:]) for row in lines.get(session, ())],
                [name for _, name in spaces.get(session, ())],
                list(map(record_of, records.get(session, ()))),
                [read_vector(row[1:]) for row in vectors.get(session, ())],
            )
        return found

    def at_epochs(
        self, wanted: Mapping[int, Sequence[Position]], epochs: Mapping[int, int]
    ) -> dict[int, list[Record]] | None:
        """Return what `Store.at` returns."""
        sessions = list(wanted)
        asked = [Statement(AT, one, columns(wanted[one], ("segments", "depths"))) for one in sessions]
        *found, now = self.together([*asked, Statement(_EPOCHS, None, {"sessions": list(epochs)})])
        there: dict[int, int] = dict(now)
        if any(there.get(session, 0) != epoch for session, epoch in epochs.items()):
            return None
        for session, rows in zip(sessions, found, strict=True):
            if len(rows) < len(wanted[session]):
                self.refuse_absence(session, wanted[session])
        return {session: list(map(record_of, rows)) for session, rows in zip(sessions, found, strict=True)}

    def known_vectors(self, session: int, space: str, hashes: Mapping[Position, str]) -> list[VectorRow]:
        """Return what `Store.known_vectors` returns."""
        rows = [(*position, hash_) for position, hash_ in hashes.items()]
        values = {**columns(rows, ("segments", "depths", "hashes")), "name": space}
        found = [read_vector(row[1:]) for row in self.run(_KNOWN_VECTORS, session, values)]
        texts = set(hashes.values())
        return [row for row in found if row[1] in texts]


def _asked(session: int, query: Query) -> list[Statement]:
    """Return the statements that a query needs."""
    match query:
        case State():
            return [_state_of(session, query.branch)]
        case Line():
            named = isinstance(query.head, str)
            head = {"branch": str(query.head)} if isinstance(query.head, str) else query.head._asdict()
            values = {"known": list(query.known), "newest": max(query.newest, 0), **head}
            head_sql = _BRANCH if named else _POSITION
            asked = [Statement(sql.replace("{head}", head_sql), session, values) for sql in (_LINE, _TAIL)]
            return [*asked, _state_of(session, str(query.head))] if named else asked
        case _:
            return [found_by(session, query)]


def _state_of(session: int, branch: str | None) -> Statement:
    return Statement(STATE, session, {"branch": branch})


def by_session(rows: Sequence[tuple[Any, ...]]) -> dict[int, list[tuple[Any, ...]]]:
    """Return rows by the session in their first column, in the order given."""
    found: dict[int, list[tuple[Any, ...]]] = {}
    for row in rows:
        found.setdefault(row[0], []).append(row)
    return found
