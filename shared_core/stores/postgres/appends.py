"""Storing messages in one round trip: the statement that stores them first checks that what the caller knows holds."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import psycopg

from shared_core.records import (
    Appended,
    Draft,
    Expect,
    KnownBranch,
    Newest,
    Position,
    Record,
    Segment,
    SessionState,
    VectorRows,
)
from shared_core.session.turns import assign_turns
from shared_core.stores.answers import head_of
from shared_core.stores.postgres.postgres_failures import is_broken
from shared_core.stores.postgres.postgres_rows import (
    INSERTED,
    PUT_SPACE,
    PUT_VECTORS,
    PostgresTables,
    batches_of,
    columns_of,
    naming_faults,
    rows_of,
    vector_columns,
)
from shared_core.stores.postgres.transactions import columns
from shared_core.stores.row_values import checksum_of, read_record, segment_values
from shared_core.stores.sql_rows import branch_row
from shared_core.stores.statements import BY_ID, Statement
from shared_core.stores.tree_rules import check_unmoved, new_records, refuse_other_content

ATTEMPTS = 3
"""How often it is tried; if others moved the session each time, it is locked and read."""

# The row of the session is changed only if it has the version expected, also after waiting for another writer: then
# nothing of the session has changed since, and what the caller knows gives the numbers. Everything else hangs on that.
_APPEND = (
    "WITH u AS (UPDATE {s}.sessions AS s SET version = s.version + 1, last_seq = %(last_seq)s, "
    "changed = DEFAULT "
    "WHERE s.session = %(session)s AND s.version = %(version)s AND s.last_seq = %(seq_before)s "
    "AND EXISTS (SELECT 1 FROM {s}.branches AS b WHERE b.session = %(session)s AND b.name = %(branch)s "
    "AND b.segment = %(head_segment)s AND b.depth IS NOT DISTINCT FROM %(branch_depth)s::bigint) "
    "AND EXISTS (SELECT 1 FROM {s}.segments AS g WHERE g.session = %(session)s "
    "AND g.segment = %(head_segment)s AND g.tip = %(tip)s) "
    "AND NOT EXISTS (SELECT 1 FROM {s}.messages AS m WHERE m.session = %(session)s AND m.id = ANY(%(ids)s::text[])) "
    "AND NOT EXISTS (SELECT 1 FROM {s}.tombstones AS t WHERE t.session = %(session)s AND t.id = ANY(%(ids)s::text[])) "
    "RETURNING 1), "
    "n AS (INSERT INTO {s}.segments (session, segment, parent_segment, parent_depth, tip, turn_shift, checksum) "
    "SELECT %(session)s, %(to_segment)s, %(head_segment)s, %(head_depth)s, %(to_tip)s, 0, %(opened)s::bigint "
    "FROM u WHERE %(opened)s::bigint IS NOT NULL), "
    "g AS (UPDATE {s}.segments AS g SET tip = %(to_tip)s FROM u "
    "WHERE g.session = %(session)s AND g.segment = %(to_segment)s), "
    "b AS (UPDATE {s}.branches AS b SET segment = w.segment, depth = w.depth, checksum = w.checksum FROM u, unnest("
    "%(b_names)s::text[], %(b_segments)s::bigint[], %(b_depths)s::bigint[], %(b_checksums)s::bigint[]) "
    "AS w (name, segment, depth, checksum) WHERE b.session = %(session)s AND b.name = w.name), "
    f"m AS ({INSERTED.replace(' FROM ', ' FROM u, ')}) "
)
_AND_VECTORS = (
    f", p AS ({PUT_SPACE.replace('FROM {s}.sessions WHERE session = %(session)s', 'FROM u')}), "
    f"v AS ({PUT_VECTORS.replace('%(space)s', 'p.space').replace('FROM unnest', 'FROM p, unnest')}) "
)
_DONE = "SELECT count(*) FROM u"
_UNLESS_STORED = (
    "AND NOT EXISTS (SELECT 1 FROM {s}.sessions AS d WHERE d.session = %(session)s "
    "AND d.xmin = pg_current_xact_id_if_assigned()::xid)"
)
"""What was sent along with `_APPEND` is not read if that has stored the messages."""

_GROUND = (
    "SELECT s.last_seq, s.epoch, s.version, "
    "(SELECT max(o.segment) + 1 FROM {s}.segments AS o WHERE o.session = %(session)s), "
    "b.segment, b.depth, b.checksum, g.tip, "
    "g.parent_segment IS NULL AND g.merged_segment IS NULL, q.turn_id, q.turn_no, n.turn_no, "
    "ARRAY(SELECT o.name FROM {s}.branches AS o WHERE o.session = %(session)s AND o.segment = b.segment "
    "AND o.depth IS NULL AND o.name <> b.name), "
    "ARRAY(SELECT t.id FROM {s}.tombstones AS t WHERE t.session = %(session)s AND t.id = ANY(%(ids)s::text[])) "
    "FROM {s}.sessions AS s JOIN {s}.branches AS b ON b.session = %(session)s AND b.name = %(branch)s "
    "JOIN {s}.segments AS g ON g.session = %(session)s AND g.segment = b.segment "
    "LEFT JOIN LATERAL (SELECT o.turn_id, o.turn_no FROM {s}.messages AS o WHERE o.session = %(session)s "
    "AND o.segment = b.segment AND o.depth <= coalesce(b.depth, g.tip) AND o.role = 'user' "
    "ORDER BY o.depth DESC LIMIT 1) AS q ON true "
    "LEFT JOIN LATERAL (SELECT o.turn_no FROM {s}.messages AS o WHERE o.session = %(session)s "
    "AND o.turn_id = %(turn)s AND o.segment = b.segment AND o.depth <= coalesce(b.depth, g.tip) "
    "ORDER BY o.seq LIMIT 1) AS n ON true "
    f"WHERE s.session = %(session)s {_UNLESS_STORED}"
)
_STORED = f"{BY_ID} {_UNLESS_STORED}"


@dataclass
class AppendCall:
    """A call of `append`, which is repeated until an answer arrives.

    Attributes:
        branch: an existing branch.
        drafts: messages without `covers`.
        ids: those of the drafts.
        turn: as for `Store.append`.
        known: as for `Store.append`; None once it has been tried.
        vectors, epoch: as for `Store.append`; `rows` is no iterator.
        expect: the only change among `changes` of `Store.append`, about this branch; None: there are no changes.
        tried: the messages that were sent to be stored, by id. What is found stored just like that was stored by an
            attempt whose answer got lost.
        unanswered: whether the answer to an attempt got lost, and it is not known yet whether it happened.
    """

    branch: str
    drafts: Sequence[Draft]
    ids: Sequence[str]
    turn: str | None
    known: KnownBranch | None
    vectors: VectorRows | None
    epoch: int | None
    expect: Expect | None = None
    tried: dict[str, Record] = field(default_factory=dict)
    unanswered: bool = False

    @contextmanager
    def noting_silence(self) -> Iterator[None]:
        """Enter a block in which an attempt is sent and answered."""
        try:
            yield
        except psycopg.OperationalError as error:
            self.unanswered |= is_broken(error)
            raise


class Ground(NamedTuple):
    """What an append builds on.

    Attributes:
        state: the session's, with the head of the branch.
        turn: the newest turn of the branch.
        named: the turn that the first replies join.
        tip: the depth at which the segment of the head ends.
        attached: whether the branch goes on with that segment.
        next_segment: the number of the next segment.
        others: other branches that go on with that segment.
        stored: those of the messages that are stored already, by id.
        gone: the ids of those that were forgotten.
    """

    state: SessionState
    turn: Newest
    named: Newest
    tip: int
    attached: bool
    next_segment: int
    others: Sequence[str]
    stored: Mapping[str, Record]
    gone: frozenset[str]

    @property
    def head(self) -> Position:
        """Where the branch ends."""
        assert self.state.head is not None
        return self.state.head


def assumed(call: AppendCall) -> Ground | None:
    """Return what a caller's knowledge comes to if nothing has moved; None if it is not enough."""
    known, call.known = call.known, None
    if known is None or known.state.head is None or call.turn not in (None, known.turn.turn_id):
        return None
    depth = known.state.head.depth
    return Ground(known.state, known.turn, known.turn, depth, True, 0, (), {}, frozenset())


class Appends(PostgresTables):
    """Stores messages at the end of a branch, together with the check that it still ends where they are to go."""

    def append_at_once(self, session: int, call: AppendCall) -> Appended | None:
        """Store messages as `Store.append` does, in one round trip, or two if the session has moved.

        Returns:
            None, and nothing is stored, if more has to be read than the end of the branch.
        """
        ground = assumed(call) or self._ground(session, call, self.statements.together(_reads(session, call)))
        for _ in range(ATTEMPTS):
            if ground is None:
                return None
            absent = (*ground.stored, *ground.gone)
            new = [draft for id_, draft in zip(call.ids, call.drafts, strict=True) if id_ not in absent]
            if call.expect is not None and (new or not call.tried):  # a lost attempt has moved the branch itself
                check_unmoved(call.expect, ground.state.epoch, ground.head)
            if ground.stored and (new or not _are_at_end(call, ground)):
                return None  # has to be read: which turns the new ones join, and whether the branch holds the others
            if not new:
                return _appended(call, ground, ())
            records = _records(ground, new)
            call.tried |= {str(record.message.id): record for record in records}
            rows = rows_of(session, records)
            if len(list(batches_of(rows))) > 1:
                return None
            values = _values(session, call, ground, records) | columns_of(rows)
            statement = _with_vectors(call, ground, Statement(_APPEND, session, values))
            with call.noting_silence(), naming_faults(rows):
                done, *read = self.statements.at_once([statement, *_reads(session, call)])
            if done[0][0]:
                return _appended(call, ground, records)
            ground = self._ground(session, call, read)
        return None

    def _ground(self, session: int, call: AppendCall, read: Sequence[Sequence[tuple[Any, ...]]]) -> Ground | None:
        """Return what was read of the end of a branch; None if there is no such branch, or more has to be read."""
        call.unanswered = False
        ends, rows = read
        if not ends:
            return None
        last_seq, epoch, version, next_segment, *branch = ends[0]
        segment, depth, checksum, tip, alone, turn_id, turn_no, named_no, others, gone = branch
        head = head_of(session, call.branch, segment, depth, checksum, tip)
        if turn_id is None and not alone:
            return None
        turn = Newest(None, -1) if turn_id is None else Newest(turn_id, turn_no)
        if call.turn in (None, turn.turn_id):
            named = turn
        elif named_no is None:
            return None
        else:
            named = Newest(call.turn, named_no)
        stored = {str(record.message.id): record for record in map(read_record, rows)}
        refuse_other_content(stored, call.drafts, call.ids)
        state = SessionState(head, last_seq, epoch, version)
        return Ground(state, turn, named, tip, depth is None, next_segment, others, stored, frozenset(gone))


def _reads(session: int, call: AppendCall) -> list[Statement]:
    given = {"branch": call.branch, "turn": call.turn, "ids": list(call.ids)}
    return [Statement(_GROUND, session, given), Statement(_STORED, session, given)]


def _appended(call: AppendCall, ground: Ground, records: Sequence[Record]) -> Appended:
    """Return what the append comes to, with the records that are new."""
    stored = {**ground.stored, **{str(record.message.id): record for record in records}}
    ours = frozenset(id_ for id_, record in stored.items() if call.tried.get(id_) == record)
    gone = tuple(id_ for id_ in call.ids if id_ in ground.gone)
    state, turn, kept = ground.state, ground.turn, call.vectors is None
    if records:
        asked = [record for record in records if record.message.role == "user"]
        turn = Newest(asked[-1].message.turn_id, asked[-1].turn_no) if asked else turn
        kept = kept or call.epoch == state.epoch
        state = SessionState(records[-1].position, records[-1].seq, state.epoch, state.version + 1)
    found = tuple(stored[id_] for id_ in call.ids if id_ in stored)
    return Appended(found, ours, gone, state.head or ground.head, KnownBranch(state, turn), kept)


def _are_at_end(call: AppendCall, ground: Ground) -> bool:
    """Return whether all stored messages are of the branch's last segment, or were stored by this call."""
    return all(
        call.tried.get(id_) == record
        or (record.position.segment == ground.head.segment and record.position <= ground.head)
        for id_, record in ground.stored.items()
    )


def _records(ground: Ground, new: Sequence[Draft]) -> list[Record]:
    messages = [draft.message for draft in new]
    joined = assign_turns(messages, ground.turn, ground.named)
    turns = {message.id: turn for message, turn in zip(messages, joined, strict=True)}
    head = ground.head
    segment = head.segment if ground.attached or head.depth == ground.tip else ground.next_segment
    return new_records(Position(segment, head.depth), ground.state.last_seq, new, turns)


def _with_vectors(call: AppendCall, ground: Ground, statement: Statement) -> Statement:
    """Return a statement that also stores the vectors, if nothing was forgotten since they were made."""
    sql, session, values = statement
    if call.vectors is None or call.epoch != ground.state.epoch:
        return Statement(f"{sql}{_DONE}", session, values)
    vectors = vector_columns(list(call.vectors.rows))
    return Statement(f"{sql}{_AND_VECTORS}{_DONE}", session, {**values, **vectors, "space_name": call.vectors.space})


def _values(session: int, call: AppendCall, ground: Ground, records: Sequence[Record]) -> dict[str, Any]:
    """Return the values of `_APPEND`."""
    head, end = ground.head, records[-1].position
    opened = (
        checksum_of(segment_values(session, Segment(end.segment, head, 0))) if end.segment != head.segment else None
    )
    branches = [] if ground.attached else [branch_row(session, call.branch, end.segment, None)]
    if not ground.attached and opened is None:
        branches += [branch_row(session, name, head.segment, head.depth) for name in ground.others]
    return {
        "version": ground.state.version,
        "seq_before": ground.state.last_seq,
        "last_seq": records[-1].seq,
        "branch": call.branch,
        "branch_depth": None if ground.attached else head.depth,
        "head_segment": head.segment,
        "head_depth": head.depth,
        "tip": ground.tip,
        "to_segment": end.segment,
        "to_tip": end.depth,
        "opened": opened,
        "ids": list(call.ids),
        **columns([row[1:] for row in branches], ("b_names", "b_segments", "b_depths", "b_checksums")),
    }
