"""What a store decides about conversation trees, whatever its engine: ancestry, changes of branches, appends."""

import json
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache, partial
from typing import assert_never

from shared_core.errors import DuplicateError, StaleHeadError, UnknownReferenceError
from shared_core.messages import Message, content_of
from shared_core.queries import AreForgotten, Branches, Ids, Refs, State
from shared_core.records import (
    MAIN,
    Appended,
    Change,
    Create,
    Delete,
    Draft,
    Drop,
    Expect,
    Merge,
    Move,
    Newest,
    Position,
    Put,
    Record,
    Ref,
    Rename,
    Restored,
    Segment,
    Stretch,
)
from shared_core.session.paths import Span, beginning, walk
from shared_core.session.turns import assign_turns
from shared_core.stores.gaps import by_segment, missing
from shared_core.stores.rows import (
    BranchEnd,
    End,
    NewestQuestion,
    NextSegment,
    Reaches,
    Rows,
    SummaryReach,
    TurnNumber,
    find_segment,
    segment_at,
)


def check_position(rows: Rows, session: int, position: Position) -> None:
    """Raise UnknownReferenceError if the session has no such position."""
    segment = segment_at(rows, session, position.segment)
    if not segment.before <= position.depth <= segment.tip:
        raise UnknownReferenceError(
            f"there is no position {tuple(position)}; segment {position.segment} ends at {segment.tip}"
        )


def newest_turn(rows: Rows, session: int, head: Position) -> tuple[Newest, int]:
    """Return the turn of the newest user message on the path that ends at `head`, and its number on that path."""
    return newest_of(rows, session, _spans_back(rows, session, head))


def newest_of(rows: Rows, session: int, spans_back: Iterable[Span]) -> tuple[Newest, int]:
    """Return the turn of the newest user message of some spans, newest span first, and its number on their path."""
    for span in spans_back:
        found: Newest | None = rows.ask(session, NewestQuestion(span.stretch))
        if found is not None:
            return found, found.turn_no + span.turn_shift
    return Newest(None, -1), -1


def named_turn(rows: Rows, session: int, turn: str, head: Position) -> Newest:
    """Return a turn that has a message on the path that ends at `head`; UnknownReferenceError if there is none."""
    for end in _ancestry(rows, session, head):
        number = rows.ask(session, TurnNumber(turn, end))
        if number is not None:
            return Newest(turn, number)
    raise UnknownReferenceError(f"there is no turn {turn!r} on this branch; give the id of its user message")


def off_path(rows: Rows, session: int, head: Position, positions: Iterable[Position]) -> set[Position]:
    """Return those of some positions that do not lie on the path that ends at `head`."""
    left = set(positions)
    ends = _ancestry(rows, session, head)
    while left and (end := next(ends, None)):
        left = {position for position in left if position.segment != end.segment or position.depth > end.depth}
    return left


def _ancestry(rows: Rows, session: int, head: Position) -> Iterator[Position]:
    """Yield the newest position of each segment on the path that ends at `head`, second parents last.

    A segment that two lines of the path share may be yielded again, deeper.
    """
    seen: dict[int, int] = {}
    end: Position | None = head
    later: list[Position] = []
    while end is not None or later:
        end = later.pop() if end is None else end
        known = seen.get(end.segment)
        if known is None or known < end.depth:
            seen[end.segment] = end.depth
            yield end
        if known is not None:
            end = None
            continue
        segment = segment_at(rows, session, end.segment)
        later += [segment.merged] if segment.merged is not None else []
        end = segment.parent


def _spans_back(rows: Rows, session: int, head: Position) -> Iterator[Span]:
    """Yield the spans of the path that ends at `head`, newest first.

    The spans of single segments start at 0, because no segment has a message before its first one: so the first
    segment, which usually has the answer, need not be read.
    """
    end: Position | None = head
    while end is not None:
        yield Span(end.segment, end.depth, 0)
        segment = segment_at(rows, session, end.segment)
        if segment.merged is not None:
            yield from reversed(walk(end, partial(segment_at, rows, session)).spans[:-1])
            return
        end = segment.parent


def covering(rows: Rows, session: int, positions: Sequence[Position]) -> list[int]:
    """Return the numbers of the stored summaries that cover one of some positions.

    A summary covers everything on the path to its position; the tree alone says what that is.
    """
    depths = by_segment(sorted(positions))
    segment_of = cache(partial(segment_at, rows, session))
    covered = cache(partial(_covered, segment_of))
    return [
        reach.number
        for reach in rows.ask(session, Reaches())
        if any(map(partial(_holds, depths), covered(reach._replace(number=0))))
    ]


def _covered(segment_of: Callable[[int], Segment], reach: SummaryReach) -> list[Span]:
    """Return the spans that a summary covers."""
    upto, along = reach.upto, reach.along
    # Without a path of its own, any path through `upto` shows what comes before it: the one to the tip of its segment.
    end = Position(upto.segment, segment_of(upto.segment).tip) if along == upto else along
    return beginning(walk(end, segment_of), upto)


def _holds(depths: Mapping[int, Sequence[int]], span: Span) -> bool:
    """Return whether a span holds one of some positions, given as segment -> depths in order."""
    of_segment = depths.get(span.segment, ())
    found = bisect_left(of_segment, span.start)
    return found < len(of_segment) and of_segment[found] <= span.upto


def begin(rows: Rows, session: int) -> None:
    """Open an empty segment without a parent, and `main` on it."""
    number = rows.ask(session, NextSegment())
    rows.put_segment(session, Segment(number, None, -1))
    rows.put_branch(session, MAIN, Position(number, -1))


def create_branch(rows: Rows, session: int, name: str, at: Position) -> None:
    """Create a branch.

    Raises:
        DuplicateError: the name is taken.
        UnknownReferenceError: the session has no such position.
    """
    check_name(rows, session, name)
    check_position(rows, session, at)
    rows.put_branch(session, name, at)


def check_name(rows: Rows, session: int, name: str) -> None:
    """Raise DuplicateError if a branch or a tag has this name."""
    taken = (("branch", rows.ask(session, End(name))), ("tag", rows.ask(session, Refs("tag", name, 1))))
    for kind, found in taken:
        if found:
            raise DuplicateError(f"there is already a {kind} {name!r}; choose another name")


def end_of(rows: Rows, session: int, branch: str) -> BranchEnd:
    """Return the end of a branch; UnknownReferenceError if there is no such branch."""
    end: BranchEnd | None = rows.ask(session, End(branch))
    if end is not None:
        return end
    names = [other.name for other in rows.ask(session, Branches())]
    raise UnknownReferenceError(f"there is no branch {branch!r}; choose one of {names}", candidates=names)


def insert_ref(rows: Rows, session: int, ref: Ref) -> None:
    """Insert a tag, a stash or a move.

    Raises:
        DuplicateError: the name of a tag is taken.
        UnknownReferenceError: the session has no such position.
    """
    if ref.kind == "tag":
        check_name(rows, session, ref.name)
    for position in (ref.position, ref.base):
        if position is not None:
            check_position(rows, session, position)
    rows.insert_ref(session, ref)


def change(rows: Rows, session: int, changes: Sequence[Change]) -> None:
    """Make changes, one after the other; see `Store.change`."""
    if not all(isinstance(one, Expect) for one in changes):
        rows.raise_version(session)
    for one in changes:
        _change(rows, session, one)


def _change(rows: Rows, session: int, one: Change) -> None:
    match one:
        case Create():
            create_branch(rows, session, one.branch, one.at)
        case Move():
            _move(rows, session, one)
        case Merge():
            _merge(rows, session, one)
        case Rename():
            end_of(rows, session, one.branch)
            check_name(rows, session, one.name)
            rows.rename_branch(session, one.branch, one.name)
        case Delete():
            head = end_of(rows, session, one.branch).head
            _note_move(rows, session, one.branch, head, None, "delete")
            rows.drop_branch(session, one.branch)
        case Put():
            insert_ref(rows, session, Ref(0, one.kind, one.name, one.position, one.base, one.note, ""))
        case Drop():
            if not rows.drop_ref(session, one.number):
                raise UnknownReferenceError(f"there is no tag or stash of number {one.number!r}")
        case Expect():
            _expect(rows, session, one)
        case _:
            assert_never(one)


def _note_move(rows: Rows, session: int, branch: str, old: Position, new: Position | None, note: str) -> None:
    rows.insert_ref(session, Ref(0, "move", branch, new, old, note, ""))


def _stale(branch: str) -> StaleHeadError:
    return StaleHeadError(f"another writer moved {branch!r} meanwhile; try again")


def _move(rows: Rows, session: int, move: Move) -> None:
    head = end_of(rows, session, move.branch).head
    if move.expect is not None and head != move.expect:
        raise _stale(move.branch)
    check_position(rows, session, move.to)
    _note_move(rows, session, move.branch, head, move.to, move.note)
    rows.put_branch(session, move.branch, move.to)


def _merge(rows: Rows, session: int, merge: Merge) -> None:
    head = end_of(rows, session, merge.branch).head
    check_position(rows, session, merge.source)
    segment_of = partial(segment_at, rows, session)
    source = walk(merge.source, segment_of)
    new = source.without(walk(head, segment_of))
    if not new:
        return
    # The turns that the merge brings in are numbered after ours: by as much as ours are ahead where the paths part.
    before = [span for span in source.spans if span.last < new[0].start + new[0].shift]
    partly = next(span for span in source.spans if span.segment == new[0].segment and span.upto >= new[0].start)
    if partly.start < new[0].start:
        before.append(partly._replace(upto=new[0].start - 1))
    _, known = newest_of(rows, session, reversed(before))
    _, newest = newest_turn(rows, session, head)
    room = sum(span.upto - span.start + 1 for span in new)
    base = head.depth + room + 1
    number = rows.ask(session, NextSegment())
    rows.put_segment(session, Segment(number, head, base, merge.source, base, newest - known))
    _note_move(rows, session, merge.branch, head, Position(number, base), merge.note)
    rows.put_branch(session, merge.branch, Position(number, base), attached=True)


def _expect(rows: Rows, session: int, expect: Expect) -> None:
    state = rows.ask(session, State())
    head = expect.head if expect.branch is None else end_of(rows, session, expect.branch).head
    check_unmoved(expect, expect.epoch if state is None else state.epoch, head)


def check_unmoved(expect: Expect, epoch: int, head: Position | None) -> None:
    """Raise StaleHeadError if a session's epoch, or the head of the branch, is another one than expected."""
    if epoch != expect.epoch:
        raise StaleHeadError("something was forgotten meanwhile; try again")
    if expect.branch is not None and head != expect.head:
        raise _stale(expect.branch)


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
    ids = checked_ids(drafts)
    if at is not None:
        create_branch(rows, session, branch, at)
        rows.raise_version(session)
    change(rows, session, changes)
    end = end_of(rows, session, branch)
    newest, turn_no = newest_turn(rows, session, end.head)
    named = newest if turn in (None, newest.turn_id) else named_turn(rows, session, turn, end.head)
    known = _known(rows, session, drafts, ids)
    before = _turns_before(rows, session, branch, end.head, known)
    gone = rows.ask(session, AreForgotten(ids)) if end.forgetful else set()
    new = [draft for id_, draft in zip(ids, drafts, strict=True) if id_ not in known and id_ not in gone]
    head = end.head
    if new:
        # A turn's number is the same in all its messages; where it comes from a merge, it has another on this path.
        newest = Newest(newest.turn_id, turn_no)
        listed = [draft.message for id_, draft in zip(ids, drafts, strict=True) if id_ not in gone]
        turns = dict(zip((m.id for m in listed), assign_turns(listed, newest, named, before), strict=True))
        start = head if end.attached else _room(rows, session, branch, end)
        records = new_records(start, end.last_seq, new, turns)
        covers = [(record.position, one) for record, draft in zip(records, new, strict=True) for one in draft.covers]
        rows.insert_records(session, records, covers)
        head = records[-1].position
        known |= {str(record.message.id): record for record in records}
    stored = tuple(known[id_] for id_ in ids if id_ in known)
    forgotten = tuple(id_ for id_ in ids if id_ in gone)
    return Appended(stored, frozenset(str(draft.message.id) for draft in new), forgotten, head)


def checked_ids(drafts: Sequence[Draft]) -> list[str]:
    """Return the ids of drafts, each of which must have one of its own and a time."""
    ids: dict[str, None] = {}
    for draft in drafts:
        id_ = draft.message.id
        if id_ is None or draft.message.created_at is None:
            raise ValueError(f"a draft needs id and created_at; {draft.message.role} message {id_!r} lacks one")
        if id_ in ids:
            raise DuplicateError(f"message {id_!r} is given twice in one call; give each message its own id", id=id_)
        ids[id_] = None
    return list(ids)


def _known(rows: Rows, session: int, drafts: Sequence[Draft], ids: Sequence[str]) -> dict[str, Record]:
    """Return the records of drafts that are stored already; DuplicateError if one says something else."""
    known = {str(record.message.id): record for record in rows.ask(session, Ids(ids))}
    refuse_other_content(known, drafts, ids)
    return known


def refuse_other_content(known: Mapping[str, Record], drafts: Sequence[Draft], ids: Sequence[str]) -> None:
    """Raise DuplicateError if a draft says something else than what is stored under its id."""
    for id_, draft in zip(ids, drafts, strict=True) if known else ():
        if id_ in known and _content(known[id_].message) != _content(draft.message):
            raise DuplicateError(f"message {id_!r} is already stored with other content; give it a new id", id=id_)


def _content(message: Message) -> str:
    """Return a text that is equal exactly if the content is; as Python values, 1, 1.0 and True would be equal."""
    return json.dumps(content_of(message), sort_keys=True, ensure_ascii=False, separators=(",", ":"))


def _turns_before(
    rows: Rows, session: int, branch: str, head: Position, stored: Mapping[str, Record]
) -> dict[str, Newest]:
    """Return id -> turn of stored messages; DuplicateError if one is not on the path of the branch."""
    elsewhere = off_path(rows, session, head, [record.position for record in stored.values()])
    for id_, record in stored.items():
        if record.position in elsewhere:
            raise DuplicateError(
                f"message {id_!r} is stored, but not on branch {branch!r}; cherry_pick() it, or give it a new id",
                id=id_,
            )
    return {id_: Newest(record.message.turn_id, record.turn_no) for id_, record in stored.items()}


def _room(rows: Rows, session: int, branch: str, end: BranchEnd) -> Position:
    """Let a branch go on from its head: in its segment if it stands at the tip, else in a new one."""
    number = end.head.segment
    if end.head.depth == end.tip:
        rows.detach_branches(session, [number])
    else:
        number = rows.ask(session, NextSegment())
        rows.put_segment(session, Segment(number, end.head, end.head.depth))
    start = Position(number, end.head.depth)
    rows.put_branch(session, branch, start, attached=True)
    return start


def new_records(
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
                alone=draft.alone,
            )
        )
    return records


def restore(rows: Rows, session: int, restored: Restored) -> None:
    """Write parts of a session just as another store had them; see `Store.restore`."""
    state = rows.ask(session, State())
    if state is None:
        raise UnknownReferenceError(f"there is no session {session!r}")
    rows.raise_version(session)
    touched = {one.segment for one in restored.segments} | {one.position.segment for one in restored.records}
    before = {number: find_segment(rows, session, number) for number in touched}
    rows.detach_branches(session, touched)
    for segment in restored.segments:
        for parent in (segment.parent, segment.merged):
            if parent is not None:
                check_position(rows, session, parent)
        rows.put_segment(session, segment)
    rows.insert_records(session, restored.records, restored.covers)
    if restored.last_seq > state.last_seq:
        rows.raise_version(session, restored.last_seq)
    _note_empty(rows, session, restored, before, state.last_seq)
    for branch in restored.branches:
        if rows.ask(session, End(branch.name)) is None:
            create_branch(rows, session, branch.name, branch.head)
        else:
            check_position(rows, session, branch.head)
            rows.put_branch(session, branch.name, branch.head)
    for ref in restored.refs:
        insert_ref(rows, session, ref)
    rows.insert_tombstones(session, restored.forgotten)


def _note_empty(
    rows: Rows, session: int, restored: Restored, before: Mapping[int, Segment | None], last_seq: int
) -> None:
    """Note the positions and numbers that parts of a session pass over."""
    depths = by_segment(record.position for record in restored.records)
    empty: list[Stretch] = []
    for number, own in before.items():
        now = segment_at(rows, session, number)
        first = (own.tip if own is not None else now.before) + 1
        empty += [Stretch(number, *one) for one in missing(sorted(depths.get(number, ())), first, now.tip)]
    seqs = sorted(record.seq for record in restored.records)
    passed = missing(seqs, last_seq + 1, max([*seqs, restored.last_seq]))
    if empty or passed:
        rows.note_empty(session, empty, passed)
