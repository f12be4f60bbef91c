"""Stages whose messages become a part of another session, in one transaction."""

import uuid
from collections.abc import Mapping
from dataclasses import replace

from shared_core.errors import UnknownReferenceError
from shared_core.records import STAGED, After, Position, Record, Segment
from shared_core.stores.grafts import Graft, mover, number_segments, renumbered
from shared_core.stores.postgres.message_tables import MessageTables
from shared_core.stores.postgres.texts import MARK

_MOVED = (
    "UPDATE {s}.names SET session_id = %(moved)s "
    "WHERE session = %(session)s AND NOT listed AND session_id LIKE %(stages)s"
)
_GAPS = "SELECT start, upto FROM {s}.gaps WHERE session = %(session)s AND segment = %(segment)s ORDER BY start"
_COVERS = (
    "SELECT segment, depth, source_segment, start, upto FROM {s}.covers WHERE session = %(session)s "
    "ORDER BY segment, depth, ordinal"
)
_COPY_COVER = (
    "INSERT INTO {s}.covers SELECT %(session)s, %(segment)s, %(depth)s, coalesce(max(ordinal), -1) + 1, "
    "%(source_segment)s, %(start)s, %(upto)s FROM {s}.covers "
    "WHERE session = %(session)s AND segment = %(segment)s AND depth = %(depth)s"
)

_PAGE = 1_000
"""Messages that are moved at a time: they pass through here, because a checksum says where its message stands."""


def graft(rows: MessageTables, stage: int, session: int, given: Graft) -> dict[int, int]:
    """Copy the messages of a stage to a session; see `Store.graft`. Call it in a transaction."""
    names = {"moved": f"{MARK} moved {uuid.uuid4()}", "stages": f"{MARK} import %"}
    if not rows.count_rows(_MOVED, stage, names):
        raise UnknownReferenceError(f"there is no stage {stage!r}; import again")
    state = rows.state(session, None)
    before = 0 if state is None else state.last_seq
    rows.raise_version(session)
    numbers = number_segments(rows, session, given)
    for one in given.segments:
        rows.put_segment(session, renumbered(one, numbers))
        _copy_gaps(rows, stage, session, one, numbers, given.depth)
    moved = mover(numbers, given.depth)

    def copied(record: Record) -> Record:
        position = moved(Position(record.position.segment + STAGED, record.position.depth))
        return replace(record, position=position, seq=record.seq + before, turn_no=record.turn_no + given.turns)

    seq = 0
    while records := rows.find(stage, After(seq, _PAGE)):
        rows.insert_records(session, list(map(copied, records)))
        seq = records[-1].seq
    for segment, depth, source, start, upto in rows.run(_COVERS, stage):
        at = moved(Position(segment + STAGED, depth))
        first, last = moved(Position(source, start)), moved(Position(source, upto))
        values = {"source_segment": first.segment, "start": first.depth, "upto": last.depth}
        rows.run(_COPY_COVER, session, {**at._asdict(), **values})
    return numbers


def _copy_gaps(
    rows: MessageTables, stage: int, session: int, own: Segment, numbers: Mapping[int, int], depth: int
) -> None:
    """Note the positions that hold no message; before its first position, a segment has none."""
    first = own.start if own.base is None else own.base + 1
    found = rows.run(_GAPS, stage, {"segment": own.segment - STAGED})
    gaps = [(max(start + depth, first), upto + depth) for start, upto in found]
    rows.note_gaps(session, {numbers[own.segment]: [gap for gap in gaps if gap[0] <= gap[1]]})
