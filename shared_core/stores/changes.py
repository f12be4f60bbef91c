"""What becomes of branches, tags and stashes: the rules of every `Change`, decided over the rows of any engine."""

from collections.abc import Sequence
from functools import partial
from typing import assert_never

from shared_core.errors import DuplicateError, StaleHeadError, UnknownReferenceError
from shared_core.records import (
    MAIN,
    Change,
    Create,
    Delete,
    Drop,
    Expect,
    Merge,
    Move,
    Position,
    Put,
    Ref,
    Rename,
    Segment,
)
from shared_core.stores.ancestry import check_position, newest_of, newest_turn, segment_at
from shared_core.stores.rows import BranchEnd, Rows
from shared_core.tree.paths import walk

__all__ = ["begin", "change", "check_name", "create_branch", "end_of", "insert_ref"]


def begin(rows: Rows, session: int) -> None:
    """Open an empty segment without a parent, and `main` on it."""
    number = rows.next_segment(session)
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
    taken = (("branch", rows.end(session, name)), ("tag", rows.refs(session, "tag", name, 1)))
    for kind, found in taken:
        if found:
            raise DuplicateError(f"there is already a {kind} {name!r}; choose another name")


def end_of(rows: Rows, session: int, branch: str) -> BranchEnd:
    """Return the end of a branch; UnknownReferenceError if there is no such branch."""
    end = rows.end(session, branch)
    if end is not None:
        return end
    names = [other.name for other in rows.branches(session)]
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
    number = rows.next_segment(session)
    rows.put_segment(session, Segment(number, head, base, merge.source, base, newest - known))
    _note_move(rows, session, merge.branch, head, Position(number, base), merge.note)
    rows.put_branch(session, merge.branch, Position(number, base), attached=True)


def _expect(rows: Rows, session: int, expect: Expect) -> None:
    state = rows.state(session, None)
    if state is not None and state.epoch != expect.epoch:
        raise StaleHeadError("something was forgotten meanwhile; try again")
    if expect.branch is not None and end_of(rows, session, expect.branch).head != expect.head:
        raise _stale(expect.branch)
