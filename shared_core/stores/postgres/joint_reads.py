"""What a question reads together: several statements that see one moment, in one round trip."""

from collections.abc import Mapping, Sequence
from itertools import count
from typing import Any, ClassVar

from shared_core.errors import UnknownReferenceError
from shared_core.queries import Back, KnownVectors, Line, LineRead, Query, State
from shared_core.records import MAIN, MainNews, Position, Record, Segment
from shared_core.stores import statements as sql
from shared_core.stores.answers import ANSWERS, Answer, Answering, read_state, refuse_absence, refuse_lost_end
from shared_core.stores.postgres.postgres_rows import PostgresTables
from shared_core.stores.postgres.transactions import columns
from shared_core.stores.row_values import read_record, read_segment, read_vector
from shared_core.stores.statements import Statement, positions_of

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
    f"SELECT {sql.SEGMENT_COLUMNS} FROM h JOIN {{s}}.segments AS g "
    "ON g.session = %(session)s AND g.segment = h.segment "
    f"UNION SELECT {sql.SEGMENT_COLUMNS} FROM l JOIN {{s}}.segments AS g "
    "ON g.session = %(session)s AND g.segment IN (l.parent_segment, l.merged_segment)) "
    "SELECT * FROM l WHERE segment <> ALL(%(known)s::bigint[])"
)
_TAIL = (
    "WITH RECURSIVE h AS ({head}), p AS (SELECT h.segment, h.depth, 1 AS n FROM h "
    "UNION ALL SELECT g.parent_segment, g.parent_depth, p.n + 1 FROM p JOIN {s}.segments AS g "
    "ON g.session = %(session)s AND g.segment = p.segment "
    f"WHERE g.merged_segment IS NULL AND g.parent_segment IS NOT NULL AND p.n < {SPANS}) "
    f"SELECT {{columns}} FROM p CROSS JOIN LATERAL (SELECT * FROM {{s}}.messages AS o "
    "WHERE o.session = %(session)s AND o.segment = p.segment AND o.depth <= p.depth "
    "ORDER BY o.depth DESC LIMIT %(newest)s) AS m ORDER BY p.n, m.depth DESC LIMIT %(newest)s"
)
_EPOCHS = "SELECT session, epoch FROM {s}.sessions WHERE session = ANY(%(sessions)s::bigint[])"
# Vectors are looked up one by one (OFFSET 0, LIMIT 1): of a table that has never been analysed, PostgreSQL takes a
# session for so small that a join would read all its vectors, for one message as for all.
_KNOWN_VECTORS = (
    "WITH k AS (SELECT w.n, w.hash AS wanted, v.segment, v.depth, v.hash, v.vector, v.checksum "
    "FROM unnest(%(segments)s::bigint[], %(depths)s::bigint[], %(hashes)s::text[]) "
    "WITH ORDINALITY AS w (segment, depth, hash, n) LEFT JOIN LATERAL (SELECT * FROM {s}.vectors AS o "
    f"WHERE o.session = %(session)s AND o.space = {sql.SPACE} AND o.segment = w.segment AND o.depth = w.depth "
    "AND o.hash = w.hash OFFSET 0) AS v ON true) "
    "SELECT n, segment, depth, hash, vector, checksum FROM k WHERE hash IS NOT NULL UNION ALL "
    "SELECT NULL::bigint, e.segment, e.depth, e.hash, e.vector, e.checksum "
    "FROM (SELECT DISTINCT wanted FROM k WHERE hash IS NULL) AS m, LATERAL (SELECT * FROM {s}.vectors AS o "
    f"WHERE o.session = %(session)s AND o.space = {sql.SPACE} AND o.hash = m.wanted LIMIT 1) AS e "
    "ORDER BY 1 NULLS LAST"
)

# Sessions are looked up one by one (OFFSET 0), so that each is looked for in its own partition alone.
_EACH = "FROM unnest(%(sessions)s::bigint[], %(afters)s::bigint[], %(uptos)s::bigint[]) AS w (session, after, upto)"
_NEW_OF_EACH = (
    f"{_EACH}, LATERAL (SELECT * FROM {{s}}.messages AS o WHERE o.session = w.session "
    "AND o.seq > w.after AND o.seq <= w.upto OFFSET 0) AS m"
)
_MAIN_RECORDS = f"SELECT {{columns}} {_NEW_OF_EACH} ORDER BY m.session, m.seq"
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
    "SELECT w.session, s.last_seq, s.epoch, s.version, b.segment, b.depth, b.checksum, g.tip, true "
    f"{_EACH}, LATERAL (SELECT * FROM {{s}}.sessions AS o WHERE o.session = w.session OFFSET 0) AS s, "
    "LATERAL (SELECT * FROM {s}.branches AS o WHERE o.session = w.session AND o.name = %(main)s OFFSET 0) AS b, "
    "LATERAL (SELECT tip FROM {s}.segments AS o WHERE o.session = w.session AND o.segment = b.segment OFFSET 0) AS g"
)
_MAIN_LINES = (
    f"WITH RECURSIVE l AS (SELECT w.session, {sql.SEGMENT_COLUMNS} {_EACH}, "
    "LATERAL (SELECT * FROM {s}.branches AS o WHERE o.session = w.session AND o.name = %(main)s OFFSET 0) AS b, "
    "LATERAL (SELECT * FROM {s}.segments AS o WHERE o.session = w.session AND o.segment = b.segment OFFSET 0) AS g "
    f"UNION SELECT l.session, {sql.SEGMENT_COLUMNS} FROM l, LATERAL (SELECT * FROM {{s}}.segments AS o "
    "WHERE o.session = l.session AND o.segment IN (l.parent_segment, l.merged_segment) OFFSET 0) AS g) "
    "SELECT * FROM l"
)


def _line(session: int, line: Line) -> Answering:
    head_sql, head_values = (_BRANCH, {"branch": line.head}) if isinstance(line.head, str) else (
        _POSITION, line.head._asdict()
    )  # fmt: skip
    values = {"known": list(line.known), "newest": max(line.newest, 0), **head_values}
    asked = [Statement(one.replace("{head}", head_sql), session, values) for one in (_LINE, _TAIL)]
    if isinstance(line.head, str):
        found, tail, states = yield [*asked, Statement(sql.STATE, session, head_values)]
        state = read_state(session, line.head, states)
        head = None if state is None else state.head
    else:
        found, tail = yield asked
        head = line.head
    segments = [read_segment(session, row) for row in found]
    on_line = {**line.known, **{segment.segment: segment for segment in segments}}
    newest = yield from _rest(session, head, on_line, list(map(read_record, tail)), line.newest)
    yield from refuse_lost_end(session, head, on_line, newest, line.newest)
    return LineRead(segments, newest)


def _rest(
    session: int, head: Position | None, segments: Mapping[int, Segment], tail: list[Record], newest: int
) -> Answering:
    """Return the newest messages of a line whose first `SPANS` segments have been read."""
    for number in count():
        if head is None or (number < SPANS and len(tail) >= newest):
            return tail
        if head.segment not in segments:
            raise UnknownReferenceError(f"there is no segment {head.segment!r} in session {session!r}")
        if number >= SPANS and len(tail) < newest:
            tail += yield from ANSWERS[Back](session, Back(head, newest - len(tail)))
        segment = segments[head.segment]
        head = segment.parent if segment.merged is None else None


def _known_vectors(session: int, query: KnownVectors) -> Answering:
    rows = [(*position, hash_) for position, hash_ in query.hashes.items()]
    values = {**columns(rows, ("segments", "depths", "hashes")), "name": query.space}
    (found,) = yield [Statement(_KNOWN_VECTORS, session, values)]
    texts = set(query.hashes.values())
    return [row for row in (read_vector(one[1:]) for one in found) if row[1] in texts]


class JointReads(PostgresTables):
    """What several tables tell at one moment."""

    ANSWERS: ClassVar[Mapping[type, Answer]] = {**ANSWERS, Line: _line, KnownVectors: _known_vectors}

    def ask_all(self, session: int, queries: Sequence[Query]) -> list[Any]:
        """Return the answers to several queries; another round trip only where one asks for more."""
        branch = next((one.branch for one in queries if isinstance(one, State)), None)
        answering = [self.answering(session, query, branch) for query in queries]
        answers: list[Any] = [None] * len(queries)
        sent: dict[int, Any] = dict.fromkeys(range(len(queries)))
        while sent:
            asked: dict[int, Sequence[Statement]] = {}
            for number, found in sent.items():
                try:
                    asked[number] = answering[number].send(found)
                except StopIteration as end:
                    answers[number] = end.value
            statements: list[Statement] = []
            for one in (one for some in asked.values() for one in some):
                statements += [one] if one not in statements else []
            rows = self.together(statements) if statements else []
            sent = {number: [rows[statements.index(one)] for one in some] for number, some in asked.items()}
        return answers

    def main_news(self, wanted: Mapping[int, tuple[int, int]], space: str | None = None) -> dict[int, MainNews]:
        """Return what `Store.main_news` returns."""
        ranges = columns([(session, *numbers) for session, numbers in wanted.items()], ("sessions", "afters", "uptos"))
        given = {**ranges, "main": MAIN, "name": space}
        asked = (_MAIN_HEADS, _MAIN_LINES, _MAIN_SPACES, _MAIN_RECORDS, *(() if space is None else (_MAIN_VECTORS,)))
        heads, *others = self.statements.together([Statement(sql, None, given) for sql in asked])
        lines, spaces, records, vectors = (by_session(rows) for rows in (*others, *([[]] if space is None else [])))
        found: dict[int, MainNews] = {}
        for session, *state in heads:
            read = read_state(session, MAIN, [tuple(state)])
            assert read is not None
            found[session] = MainNews(
                read,
                [read_segment(session, row[1:]) for row in lines.get(session, ())],
                [name for _, name in spaces.get(session, ())],
                list(map(read_record, records.get(session, ()))),
                [read_vector(row[1:]) for row in vectors.get(session, ())],
            )
        return found

    def at_epochs(
        self, wanted: Mapping[int, Sequence[Position]], epochs: Mapping[int, int]
    ) -> dict[int, list[Record]] | None:
        """Return what `Store.at` returns."""
        sessions = list(wanted)
        asked = [Statement(sql.AT, one, positions_of(wanted[one])) for one in sessions]
        *found, now = self.statements.together([*asked, Statement(_EPOCHS, None, {"sessions": list(epochs)})])
        there: dict[int, int] = dict(now)
        if any(there.get(session, 0) != epoch for session, epoch in epochs.items()):
            return None
        for session, rows in zip(sessions, found, strict=True):
            if len(rows) < len(wanted[session]):
                self.answered(refuse_absence(session, wanted[session]))
        return {session: list(map(read_record, rows)) for session, rows in zip(sessions, found, strict=True)}


def by_session(rows: Sequence[tuple[Any, ...]]) -> dict[int, list[tuple[Any, ...]]]:
    """Return rows by the session in their first column, in the order given."""
    found: dict[int, list[tuple[Any, ...]]] = {}
    for row in rows:
        found.setdefault(row[0], []).append(row)
    return found
