"""What an append and a restore decide: turns, room for messages, and which messages are known or refused."""

import json
from collections.abc import Collection, Mapping, Sequence

from shared_core.errors import DuplicateError, UnknownReferenceError
from shared_core.messages import Message, content_of
from shared_core.records import Appended, Change, Draft, Newest, Position, Record, Restored, Segment
from shared_core.stores.ancestry import check_position, named_turn, newest_turn, on_path
from shared_core.stores.changes import change, create_branch, end_of, insert_ref
from shared_core.stores.rows import BranchEnd, Rows
from shared_core.turns import assign_turns

__all__ = ["append", "restore"]


def append(
    rows: Rows,
    session: int,
    branch: str,
    drafts: Sequence[Draft],
    at: Position | None,
    turn: str | None,
    changes: Sequence[Change],
) -> Appended:
    """Store messages at the end of a branch; see `Store.append`."""
    ids = _checked_ids(drafts)
    if at is not None:
        create_branch(rows, session, branch, at)
    change(rows, session, changes)
    end = end_of(rows, session, branch)
    newest, turn_no = newest_turn(rows, session, end.head)
    named = newest if turn in (None, newest.turn_id) else named_turn(rows, session, turn, end.head)
    known = _known(rows, session, drafts, ids)
    gone = rows.forgotten(session, ids) if end.forgetful else set()
    new = [draft for id_, draft in zip(ids, drafts, strict=True) if id_ not in known and id_ not in gone]
    head = end.head
    if new:
        # A turn's number is the same in all its messages; where it comes from a merge, it has another on this path.
        newest = Newest(newest.turn_id, turn_no)
        before = _turns_before(rows, session, head, known.values()) if known else {}
        added = {draft.message.id for draft in new}
        listed = [d.message for d in drafts if d.message.id in before or d.message.id in added]
        turns = dict(zip((m.id for m in listed), assign_turns(listed, newest, named, before), strict=True))
        start = head if end.attached else _room(rows, session, branch, end)
        records = _records(start, end.last_seq, new, turns)
        covers = [(record.position, one) for record, draft in zip(records, new, strict=True) for one in draft.covers]
        rows.insert_records(session, records, covers)
        head = records[-1].position
        known |= {str(record.message.id): record for record in records}
    stored = tuple(known[id_] for id_ in ids if id_ in known)
    forgotten = tuple(id_ for id_ in ids if id_ in gone)
    return Appended(stored, frozenset(str(draft.message.id) for draft in new), forgotten, head)


def _checked_ids(drafts: Sequence[Draft]) -> list[str]:
    """Return the ids of drafts, each of which must have one of its own and a time."""
    ids: dict[str, None] = {}
    for draft in drafts:
        id_ = draft.message.id
        if id_ is None or draft.message.created_at is None:
            raise ValueError(f"a draft needs id and created_at; {draft.message.role} message {id_!r} lacks one")
        if id_ in ids:
            raise DuplicateError(f"message {id_!r} is given twice in one call; give each message its own id")
        ids[id_] = None
    return list(ids)


def _known(rows: Rows, session: int, drafts: Sequence[Draft], ids: Sequence[str]) -> dict[str, Record]:
    """Return the records of drafts that are stored already; DuplicateError if one says something else."""
    known = {str(record.message.id): record for record in rows.get(session, ids)}
    for id_, draft in zip(ids, drafts, strict=True) if known else ():
        if id_ in known and _content(known[id_].message) != _content(draft.message):
            raise DuplicateError(f"message {id_!r} is already stored with other content; give it a new id")
    return known


def _content(message: Message) -> str:
    """Return a text that is equal exactly if the content is; as Python values, 1, 1.0 and True would be equal."""
    return json.dumps(content_of(message), sort_keys=True, ensure_ascii=False, separators=(",", ":"))


def _turns_before(rows: Rows, session: int, head: Position, stored: Collection[Record]) -> dict[str, Newest]:
    """Return id -> turn of those messages that stand on the path that ends at `head`."""
    records = {record.position: record for record in stored}
    before = [records[position] for position in on_path(rows, session, head, records)]
    return {str(record.message.id): Newest(record.message.turn_id, record.turn_no) for record in before}


def _room(rows: Rows, session: int, branch: str, end: BranchEnd) -> Position:
    """Let a branch go on from its head: in its segment if it stands at the tip, else in a new one."""
    number = end.head.segment
    if end.head.depth == end.tip:
        rows.detach_branches(session, number)
    else:
        number = rows.next_segment(session)
        rows.put_segment(session, Segment(number, end.head, end.head.depth))
    start = Position(number, end.head.depth)
    rows.put_branch(session, branch, start, attached=True)
    return start


def _records(
    start: Position, last_seq: int, drafts: Sequence[Draft], turns: Mapping[str | None, Newest]
) -> list[Record]:
    """Return the records of new messages, from the position after `start` on."""
    records: list[Record] = []
    for number, draft in enumerate(drafts, 1):
        turn = turns[draft.message.id]
        records.append(
            Record(
                message=draft.message.replace(turn_id=turn.turn_id),
                position=Position(start.segment, start.depth + number),
                seq=last_seq + number,
                turn_no=turn.turn_no,
                counter=draft.counter,
                tokens=draft.tokens,
                picked_from=draft.picked_from,
            )
        )
    return records


def restore(rows: Rows, session: int, restored: Restored) -> None:
    """Write parts of a session just as another store had them; see `Store.restore`."""
    if rows.state(session, None) is None:
        raise UnknownReferenceError(f"there is no session {session!r}")
    for number in {one.segment for one in restored.segments} | {one.position.segment for one in restored.records}:
        rows.detach_branches(session, number)
    for segment in restored.segments:
        for parent in (segment.parent, segment.merged):
            if parent is not None:
                check_position(rows, session, parent)
        rows.put_segment(session, segment)
    rows.insert_records(session, restored.records, restored.covers)
    for branch in restored.branches:
        if rows.end(session, branch.name) is None:
            create_branch(rows, session, branch.name, branch.head)
        else:
            check_position(rows, session, branch.head)
            rows.put_branch(session, branch.name, branch.head)
    for ref in restored.refs:
        insert_ref(rows, session, ref)
    rows.insert_tombstones(session, restored.forgotten)
