"""Moves of branches: one made `main`, one that ends earlier from now on, and the last move taken back."""

from collections.abc import Sequence
from itertools import islice

from shared_core.errors import DuplicateError, StaleHeadError, UnknownReferenceError
from shared_core.records import MAIN, ROOT, Change, Create, Move, Position, Put
from shared_core.session.checkout import Checkout
from shared_core.session.paths import Head, Path, unused_branch_name
from shared_core.tree.log import STASH_POP


def make_main(checkout: Checkout) -> None:
    """Do what `TreeVerbs.make_main` does."""
    live = checkout.live
    if live.head.branch == MAIN:
        return
    session = checkout.existing()
    branch, path = live.head.branch, live.path
    ended = checkout.position_of(MAIN)
    if ended != path.head:
        note = f"make {branch or 'this'} {MAIN}"
        changes: list[Move | Create] = [Move(MAIN, path.head, note, ended)]
        if branch is not None:
            changes.append(Move(branch, ended, note, path.head))
        elif not path.covers(ended):  # else all that was said on `main` is part of this line
            changes.append(Create(unused_branch_name(checkout.store, session), ended))
        _change_with_new_name(checkout, changes)
    live.head = Head(MAIN)  # the path and the open turn stay what they are


def rewind(checkout: Checkout, after: str | None) -> str:
    """Do what `TreeVerbs.rewind` does."""
    branch = checkout.live.head.branch
    if branch is None:
        raise ValueError("this memory is detached; check out the branch that is to end earlier")
    if checkout.live.key is None and after is None:
        return branch
    checkout.existing()
    path = checkout.live.path
    end = checkout.end_on_path(after) if after is not None else _root_of(path)
    if not checkout.newest_of(path.without(checkout.live.path_to(end)), 1):
        return branch
    name = unused_branch_name(checkout.store, checkout.stored(), f"{branch}-", first=2)
    _change_with_new_name(checkout, [Create(name, path.head), Move(branch, end, f"rewind, kept as {name}", path.head)])
    checkout.stand(Head(branch))
    return name


def undo(checkout: Checkout) -> str:
    """Take back the last move of the branch, or the last deletion of one; return the name of that branch."""
    session, branch = checkout.existing(), checkout.live.head.branch
    here = {one.name for one in checkout.store.branches(session)}
    deleted = (ref for ref in checkout.store.refs(session, "move") if ref.position is None and ref.name not in here)
    moved = checkout.store.refs(session, "move", branch, 1) if branch is not None else []
    last = max([*moved, *islice(deleted, 1)], key=lambda ref: ref.number, default=None)
    if last is None or last.base is None:
        where = "no branch is checked out" if branch is None else f"nothing has moved {branch!r} yet"
        raise UnknownReferenceError(f"nothing to undo: {where}")
    note, changes = f"undo {last.note}", list[Change]()
    if last.name not in here:
        changes = [Create(last.name, last.base), Move(last.name, last.base, note)]
    else:
        ended = checkout.live.path.head
        if last.note == STASH_POP:
            changes.append(Put("stash", last.name, ended, last.base, note))
        changes.append(Move(last.name, last.base, note, ended))
    checkout.store.change(session, changes)
    if last.name == branch:
        checkout.stand(Head(branch))
    return last.name


def _change_with_new_name(checkout: Checkout, changes: Sequence[Move | Create]) -> None:
    """Make changes that create a branch; StaleHeadError if another writer took its name first."""
    try:
        checkout.store.change(checkout.stored(), changes)
    except DuplicateError as error:
        raise StaleHeadError("another writer took the name of a new branch first; try again") from error


def _root_of(path: Path) -> Position:
    return Position(path.spans[0].segment, ROOT.depth)
