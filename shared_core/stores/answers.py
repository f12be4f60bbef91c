"""How an SQL database answers queries: each is a generator that yields statements and is sent their rows.

The statements that are yielded together see one moment. So a store that is a round trip away can answer several queries
at once, and one that asks for more, as where a message is missing, takes another round trip.
"""

from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any

from shared_core.queries import (
    After,
    AreForgotten,
    At,
    Back,
    Branches,
    Count,
    Counts,
    Covers,
    ForgottenIds,
    ForgottenSince,
    IdPrefix,
    Ids,
    InTurns,
    MadeFrom,
    Pinned,
    Refs,
    Says,
    Segments,
    SnapshotOf,
    Spaces,
    State,
    Stored,
    Summaries,
    Vectors,
)
from shared_core.records import Branch, Newest, Position, Record, Segment, SessionKey, SessionState, Stretch
from shared_core.stores import statements as sql
from shared_core.stores.gaps import NUMBERS, Range, by_segment, missing, runs, without
from shared_core.stores.row_values import (
    DamagedRow,
    check_row,
    lost_messages,
    read_erasures,
    read_record,
    read_ref,
    read_segment,
    read_summary,
    read_vector,
)
from shared_core.stores.rows import BranchEnd, End, NewestQuestion, NextSegment, Reaches, SummaryReach, TurnNumber
from shared_core.stores.statements import Many, Rows, Statement, positions_of

Answering = Generator[Sequence[Statement], Sequence[Rows], Any]
Answer = Callable[[int, Any], Answering]
"""Takes a session and a query."""

Ranges = Mapping[int, Sequence[Range]]
"""Segment, or `NUMBERS` -> ascending ranges of depths, or of numbers."""


def _rows(statement: str, session: int, **values: Any) -> Generator[Sequence[Statement], Sequence[Rows], Rows]:
    (rows,) = yield [Statement(statement, session, values)]
    return rows


def _limit(limit: int) -> int:
    return max(limit, 0)


# The tree


def read_state(session: int, branch: str | None, rows: Rows) -> SessionState | None:
    """Return the state in the rows of `STATE`; None if there are none, StoreError if the branch is damaged."""
    for last_seq, epoch, version, segment, depth, checksum, tip, whole in rows:
        if not whole:
            raise DamagedRow(f"the newest message of session number {session}", "it is missing")
        head = None if segment is None else head_of(session, branch or "", segment, depth, checksum, tip)
        return SessionState(head, last_seq, epoch, version)
    return None


def head_of(session: int, name: str, segment: int, depth: int | None, checksum: int, tip: int) -> Position:
    """Return where a branch ends, from its row and the tip of its segment; StoreError if the row is damaged."""
    check_row("branch", name, checksum, (session, name, segment, depth))
    return Position(segment, tip if depth is None else depth)


def read_key(row: tuple[Any, ...]) -> SessionKey:
    """Return the session in a row of key, user and name."""
    check_names(*row[1:])
    return SessionKey(*row)


def check_names(*names: object) -> None:
    """Raise StoreError if a name of a session, which has no checksum, is no text."""
    if not all(isinstance(name, str | None) for name in names):
        raise DamagedRow("the name of a session", f"{names!r} are no texts")


def _state(session: int, query: State) -> Answering:
    rows = yield from _rows(sql.STATE, session, branch=query.branch)
    return read_state(session, query.branch, rows)


def _end(session: int, query: End) -> Answering:
    rows = yield from _rows(sql.END, session, branch=query.branch)
    for last_seq, segment, depth, checksum, tip, forgetful in rows:
        head = head_of(session, query.branch, segment, depth, checksum, tip)
        return BranchEnd(head, tip, depth is None, last_seq, bool(forgetful))
    return None


def _segments(session: int, query: Segments) -> Answering:
    rows = yield from _rows(sql.SEGMENTS_AFTER, session, after=query.after, limit=_limit(query.limit))
    return [read_segment(session, row) for row in rows]


def _next_segment(session: int, query: NextSegment) -> Answering:
    rows = yield from _rows(sql.NEXT_SEGMENT, session)
    return rows[0][0]


def _branches(session: int, query: Branches) -> Answering:
    rows = yield from _rows(sql.BRANCHES, session)
    return [Branch(name, head_of(session, name, *columns)) for name, *columns in rows]


def _refs(session: int, query: Refs) -> Answering:
    named = "" if query.name is None else "AND name = %(name)s "
    values = {"kind": query.kind, "name": query.name, "limit": _limit(query.limit)}
    rows = yield from _rows(f"{sql.REFS}{named}ORDER BY ref DESC LIMIT %(limit)s", session, **values)
    return [read_ref(session, row) for row in rows]


def _counts(session: int, query: Counts) -> Answering:
    rows = yield from _rows(sql.COUNTS, session)
    return dict(zip(sql.COUNTED, rows[0], strict=True))


# Messages


def _records(rows: Rows) -> list[Record]:
    return list(map(read_record, rows))


def _finding(statement: str, values: Callable[[Any], Mapping[str, Any]]) -> Answer:
    """Return what answers with the messages that one statement finds."""

    def find(session: int, query: Any) -> Answering:
        return _records((yield from _rows(statement, session, **values(query))))

    return find


def _ids(session: int, query: Ids) -> Answering:
    rows = (yield from _rows(sql.BY_ID, session, ids=list(query.ids))) if query.ids else []
    found = {record.message.id: record for record in _records(rows)}
    return [found[id_] for id_ in query.ids if id_ in found]


def _at(session: int, query: At) -> Answering:
    records = _records((yield from _rows(sql.AT, session, **positions_of(query.positions))))
    if len(records) < len(query.positions):
        yield from refuse_absence(session, query.positions)
    return records


def refuse_absence(session: int, positions: Sequence[Position]) -> Answering:
    """Raise StoreError if a message was lost that was at one of some positions."""
    depths = by_segment(positions)
    # Positions and tips of one moment: a message that is added meanwhile is not missing.
    found, segments = yield [
        Statement(sql.AT, session, positions_of(positions)),
        Statement(sql.SEGMENTS_OF, session, {"segments": list(depths)}),
    ]
    there = by_segment(record.position for record in _records(found))
    own = [read_segment(session, row) for row in segments]
    absent = {one: runs({*depths[one.segment]} - {*there.get(one.segment, [])}) for one in own}
    yield from refuse_loss(session, {one.segment: _held(one, ranges) for one, ranges in absent.items()})


def _back(session: int, query: Back) -> Answering:
    upto, limit = query.upto, _limit(query.limit)
    values = {**upto._asdict(), "limit": limit}
    records = _records((yield from _rows(sql.BACK, session, **values)))
    lowest = records[-1].position.depth if records else upto.depth + 1
    if not limit or (upto.depth - lowest + 1 == len(records) and (len(records) >= limit or not lowest)):
        return records
    found, segments = yield [
        Statement(sql.BACK, session, values), Statement(sql.SEGMENTS_OF, session, {"segments": [upto.segment]})
    ]  # fmt: skip
    depths = [record.position.depth for record in reversed(_records(found))]
    ranges = missing(depths, depths[0] if limit <= len(depths) else 0, upto.depth)
    own = [read_segment(session, row) for row in segments]
    yield from refuse_loss(session, {one.segment: _held(one, ranges) for one in own})
    return records


def after(session: int, query: After, branch: str | None) -> Answering:
    """Answer what comes after a number; `branch`: the one whose state is asked for along with it."""
    limit, first = _limit(query.limit), max(query.seq, 0) + 1
    found, states = yield [
        Statement(sql.AFTER, session, {"seq": query.seq, "limit": limit}),
        Statement(sql.STATE, session, {"branch": branch}),
    ]
    records = _records(found)
    state = read_state(session, branch, states)
    last = records[-1].seq if records and len(records) == limit else state.last_seq if state is not None else 0
    if limit:
        yield from refuse_loss(session, {NUMBERS: missing((record.seq for record in records), first, last)})
    return records


def _by_prefix(session: int, query: IdPrefix) -> Answering:
    low = query.prefix
    high = _after_all(low)
    below = "" if high is None else "AND m.id < %(high)s "
    values = {"low": low, "high": high, "limit": _limit(query.limit)}
    return _records((yield from _rows(f"{sql.BY_PREFIX}{below}ORDER BY m.seq LIMIT %(limit)s", session, **values)))


def _after_all(prefix: str) -> str | None:
    """Return the least text, by code points, that comes after all that begin with a prefix; None if there is none."""
    for end in range(len(prefix), 0, -1):
        last = ord(prefix[end - 1])
        if last < 0x10FFFF:
            return prefix[: end - 1] + chr(0xE000 if last == 0xD7FF else last + 1)
    return None


def _stored(session: int, query: Stored) -> Answering:
    rows = yield from _rows(sql.STORED, session)
    return [(Position(segment, depth), id_) for segment, depth, id_ in rows]


def _count(session: int, query: Count) -> Answering:
    rows = yield from _rows(sql.COUNT, session, stretches=Many(list(query.stretches), 3))
    return int(rows[0][0])


def _covers(session: int, query: Covers) -> Answering:
    rows = yield from _rows(sql.COVERS, session, segments=list(query.segments))
    return [(Position(segment, depth), Stretch(*source)) for segment, depth, _, *source in rows]


def _newest_question(session: int, query: NewestQuestion) -> Answering:
    rows = yield from _rows(sql.NEWEST_QUESTION, session, **query.stretch._asdict())
    return Newest(rows[0][0], rows[0][1]) if rows else None


def _turn_number(session: int, query: TurnNumber) -> Answering:
    rows = yield from _rows(sql.TURN_NUMBER, session, turn_id=query.turn_id, **query.upto._asdict())
    return rows[0][0] if rows else None


# What was lost: a message that is missing without a gap that says so.


def unexplained(session: int, ranges: Ranges) -> Generator[Sequence[Statement], Sequence[Rows], dict[int, list[Range]]]:
    """Return which of some ranges are not noted as gaps."""
    wanted = {segment: own for segment, own in ranges.items() if own}
    if not wanted:
        return {}
    spans = [(segment, own[0][0], own[-1][1]) for segment, own in wanted.items()]
    noted: dict[int, list[Range]] = {}
    for segment, start, upto in (yield from _rows(sql.GAPS, session, stretches=Many(spans, 3))):
        noted.setdefault(segment, []).append((start, upto))
    left = {segment: without(own, noted.get(segment, [])) for segment, own in wanted.items()}
    return {segment: own for segment, own in left.items() if own}


def refuse_loss(session: int, ranges: Ranges) -> Answering:
    """Raise StoreError if there should be a message in one of some ranges, which hold none."""
    for segment, lost in (yield from unexplained(session, ranges)).items():
        before, keys = yield [
            Statement(sql.BEFORE_LOSS[segment == NUMBERS], session, {"segment": segment, "start": lost[0][0]}),
            Statement(f"{sql.SESSIONS}session = %(session)s", session, {}),
        ]
        raise lost_messages(read_key(keys[0]) if keys else None, before[0][0] if before else None)


def _held(segment: Segment, ranges: Sequence[Range]) -> list[Range]:
    """Return the parts of some ranges at which a segment has held messages."""
    inside = [(max(start, segment.before + 1), min(upto, segment.tip)) for start, upto in ranges]
    return [one for one in inside if one[0] <= one[1]]


def refuse_lost_end(
    session: int, head: Position | None, segments: Mapping[int, Segment], tail: Sequence[Record], newest: int
) -> Answering:
    """Raise StoreError if one of the newest messages of a line was lost."""
    depths = by_segment(record.position for record in reversed(tail))
    ranges: dict[int, list[Range]] = {}
    while head is not None and newest > 0:
        segment = segments[head.segment]
        ends = len(tail) >= newest and head.segment == tail[-1].position.segment
        own = depths.get(head.segment, [])
        ranges[head.segment] = _held(segment, missing(own, own[0] if ends else 0, head.depth))
        head = None if ends or segment.merged is not None else segment.parent
    yield from refuse_loss(session, ranges)


# What was forgotten, and what is derived


def _forgotten_ids(session: int, query: ForgottenIds) -> Answering:
    more = "" if query.after is None else "AND id > %(after)s "
    values = {"after": query.after, "limit": _limit(query.limit)}
    rows = yield from _rows(f"{sql.FORGOTTEN}{more}ORDER BY id LIMIT %(limit)s", session, **values)
    return [id_ for (id_,) in rows]


def _are_forgotten(session: int, query: AreForgotten) -> Answering:
    rows = (yield from _rows(sql.ARE_FORGOTTEN, session, ids=list(query.ids))) if query.ids else []
    return {id_ for (id_,) in rows}


def _forgotten_since(session: int, query: ForgottenSince) -> Answering:
    rows = yield from _rows(sql.ERASED_SINCE, session, epoch=query.epoch)
    return read_erasures([row[1:] for row in rows if row[1] is not None], rows[0][0] - query.epoch if rows else 0)


def _vectors(session: int, query: Vectors) -> Answering:
    space = {"name": query.space}
    if query.positions is not None:
        rows = yield from _rows(sql.VECTORS_AT, session, **space, **positions_of(query.positions))
    else:
        values = {**query.after._asdict(), "limit": _limit(query.limit)}
        rows = yield from _rows(sql.VECTORS_AFTER, session, **space, **values)
    return list(map(read_vector, rows))


def _spaces(session: int, query: Spaces) -> Answering:
    return [name for (name,) in (yield from _rows(sql.SPACES, session))]


def _snapshot(session: int, query: SnapshotOf) -> Answering:
    parts = [data for (data,) in (yield from _rows(sql.SNAPSHOT, session, name=query.name))]
    return b"".join(parts) if parts else None


def _summaries(session: int, query: Summaries) -> Answering:
    values = {**query.upto._asdict(), "limit": _limit(query.limit)}
    return list(map(read_summary, (yield from _rows(sql.SUMMARIES, session, **values))))


def _reaches(session: int, query: Reaches) -> Answering:
    rows = yield from _rows(sql.REACHES, session)
    return [SummaryReach(number, Position(*ends[:2]), Position(*ends[2:])) for number, *ends in rows]


ANSWERS: Mapping[type, Answer] = {
    State: _state, End: _end, Segments: _segments, NextSegment: _next_segment, Branches: _branches, Refs: _refs,
    Counts: _counts, Ids: _ids, At: _at, Back: _back, IdPrefix: _by_prefix, Stored: _stored,
    Count: _count, Covers: _covers, NewestQuestion: _newest_question, TurnNumber: _turn_number,
    ForgottenIds: _forgotten_ids, AreForgotten: _are_forgotten, ForgottenSince: _forgotten_since, Vectors: _vectors,
    Spaces: _spaces, SnapshotOf: _snapshot, Summaries: _summaries, Reaches: _reaches,
    InTurns: _finding(sql.TURNS, lambda query: {"turn_ids": [*set(query.turn_ids)]}),
    Pinned: _finding(sql.PINNED, lambda query: {}),
    MadeFrom: _finding(sql.MADE_FROM, lambda query: positions_of(query.positions)),
    Says: _finding(
        "{saying}", lambda query: {"fingerprints": [*set(query.fingerprints)], "limit": _limit(query.limit)}
    ),
}  # fmt: skip
"""How a query is answered; but for `After`, and for `Line` and `KnownVectors`, which each database answers its way."""
