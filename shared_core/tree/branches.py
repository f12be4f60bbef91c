"""Branches and tags of a session: create, check out, rename, delete, move and compare them; no message changes."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice
from typing import Any

from shared_core.arguments import name_text
from shared_core.errors import DuplicateError, StaleHeadError, UnknownReferenceError
from shared_core.messages import short_repr
from shared_core.records import MAIN, ROOT, Branch, Change, Create, Delete, Drop, Move, Position, Put, Rename
from shared_core.session.checkout import Checkout
from shared_core.session.paths import EARLIER, Head, Path, read, resolve, unused_branch_name
from shared_core.tree.log import Lineage, LogEntry

STASH_POP = "stash pop"
"""What the reflog says of a stash that was popped, so that taking it back stashes the copies again."""


@dataclass(frozen=True, slots=True)
class ReflogEntry:
    """A line of the reflog: a verb moved a branch, or added to it what was said elsewhere.

    Attributes:
        reference: names the position where the branch ended before, for `checkout`, `fork` and `reset`.
        branch: the branch that was moved.
        why: the verb that did it.
        before: id of the newest message there before; None: there was none.
        after: id of the newest message where the branch was moved to, before anything was added there; None: there was
            none.
        at: when.
        deleted: whether the branch was deleted.
    """

    reference: str
    branch: str
    why: str
    before: str | None
    after: str | None
    at: datetime
    deleted: bool = False

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON data."""
        return {name: getattr(self, name) for name in self.__slots__} | {"at": self.at.isoformat()}


@dataclass(frozen=True, slots=True)
class Diff:
    """What two positions of the tree do not share.

    Attributes:
        base: id of the newest message that both have; None: they share none.
        only_a: ids of the messages that only the first has, in order.
        only_b: ids of the messages that only the second has, in order.
    """

    base: str | None
    only_a: tuple[str, ...]
    only_b: tuple[str, ...]

    def __repr__(self) -> str:
        return short_repr(self)

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON data."""
        return {"base": self.base, "only_a": list(self.only_a), "only_b": list(self.only_b)}


# Names


def branches(checkout: Checkout) -> list[Branch]:
    """Return all branches of the session, in order of creation."""
    session = checkout.live.key
    return checkout.store.branches(session) if session is not None else []


def fork(checkout: Checkout, name: str, at: str | None) -> None:
    """Create a branch at a position, by default here, and check it out."""
    _check_name(name)
    with checkout.lock:
        if at not in (None, MAIN) and checkout.live.key is None:
            raise UnknownReferenceError(f"no branch or message {at!r}: nothing is stored yet")
        position = checkout.position_of(at)
        with _names_in_error(checkout, name):
            checkout.store.change(checkout.live.create(), [Create(name, position)])
        checkout.stand(Head(name))


def check_out(checkout: Checkout, reference: str) -> None:
    """Check out a branch, or detach the head at any other position."""
    with checkout.lock:
        session = checkout.live.key
        if session is None and reference != MAIN:
            raise UnknownReferenceError(f"no branch or message {reference!r}: nothing is stored yet")
        checkout.stand(Head(MAIN) if session is None else resolve(checkout.store, session, reference))


def rename(checkout: Checkout, name: str, to: str) -> None:
    """Rename a branch; its reflog goes along."""
    _check_name(to)
    _refuse_main(name, "renamed")
    with checkout.lock:
        with _names_in_error(checkout, to):
            checkout.store.change(checkout.existing(), [Rename(name, to)])
        if checkout.live.head.branch == name:
            checkout.live.head = Head(to)


def delete_branch(checkout: Checkout, name: str) -> None:
    """Delete a branch; its messages stay until they are forgotten."""
    _refuse_main(name, "deleted")
    with checkout.lock:
        if checkout.live.head.branch == name:
            raise ValueError(f"this memory stands on {name!r}; check out another branch before you delete it")
        checkout.store.change(checkout.existing(), [Delete(name)])


def tag(checkout: Checkout, name: str, at: str | None) -> None:
    """Name a position, by default here."""
    _check_name(name)
    with checkout.lock, _names_in_error(checkout, name):
        # Where nothing is stored, only the beginning can be tagged; a refused reference must not create a session.
        session = checkout.live.create() if at in (None, MAIN) else checkout.stored()
        checkout.store.change(session, [Put("tag", name, checkout.position_of(at))])


def tags(checkout: Checkout) -> list[Branch]:
    """Return all tags, in order of creation, as pairs of name and position."""
    session = checkout.live.key
    refs = checkout.store.refs(session, "tag") if session is not None else []
    return [Branch(ref.name, ref.position) for ref in reversed(refs) if ref.position is not None]


def delete_tag(checkout: Checkout, name: str) -> None:
    """Delete a tag; UnknownReferenceError if there is none of this name."""
    with checkout.lock:
        session = checkout.existing()
        refs = checkout.store.refs(session, "tag")
        number = next((ref.number for ref in refs if ref.name == name), None)
        if number is None:
            names = [ref.name for ref in reversed(refs)]
            known = ", ".join(map(repr, names)) or "none yet"
            raise UnknownReferenceError(f"no tag {name!r}; tags: {known}", candidates=names)
        checkout.store.change(session, [Drop(number)])


def _check_name(name: str) -> None:
    if not name_text("name", name).strip():
        raise ValueError(f"name={name!r}: a branch or a tag needs a name")
    if EARLIER.fullmatch(name):
        raise ValueError(f"name={name!r}: this is how an earlier end of a branch is written; choose another name")


def _refuse_main(name: str, done: str) -> None:
    if name_text("name", name) == MAIN:
        raise ValueError(
            f"{MAIN!r} is where every memory begins and cannot be {done}; make another branch main, or rewind it"
        )


@contextmanager
def _names_in_error(checkout: Checkout, name: str) -> Iterator[None]:
    """List the names that are taken in the error for one of them."""
    try:
        yield
    except DuplicateError as error:
        used = [tag.name for tag in tags(checkout)]
        taken = ", ".join(map(repr, [*(branch.name for branch in branches(checkout)), *used]))
        kind = "tag" if name in used else "branch"
        raise DuplicateError(f"there is already a {kind} {name!r}; choose a name other than {taken}") from error


# Moves


def reset(checkout: Checkout, to: str) -> None:
    """Let the branch end at another position; a detached head just goes there."""
    with checkout.lock:
        session = checkout.existing()
        position = checkout.position_of(to)
        branch = checkout.live.head.branch
        if branch is None:
            checkout.stand(Head(None, position))
            return
        checkout.store.change(session, [Move(branch, position, f"reset to {to}")])
        checkout.stand(Head(branch))


def make_main(checkout: Checkout) -> None:
    """Let `main` end here, and keep where it ended under the other name."""
    checkout.until_fresh(lambda: _make_main(checkout))


def _make_main(checkout: Checkout) -> None:
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
    """Let the branch end after a message, None: before the first; return the branch that keeps what came later."""
    return checkout.until_fresh(lambda: _rewind(checkout, after))


def _rewind(checkout: Checkout, after: str | None) -> str:
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


def _change_with_new_name(checkout: Checkout, changes: Sequence[Move | Create]) -> None:
    """Make changes that create a branch; StaleHeadError if another writer took its name first."""
    try:
        checkout.store.change(checkout.stored(), changes)
    except DuplicateError as error:
        raise StaleHeadError("another writer took the name of a new branch first; try again") from error


def _root_of(path: Path) -> Position:
    return Position(path.spans[0].segment, ROOT.depth)


def reflog(checkout: Checkout, branch: str | None, limit: int) -> list[ReflogEntry]:
    """Return how branches were moved other than by adding to them, the newest move first."""
    with checkout.lock:
        session = checkout.live.key
        refs = checkout.store.refs(session, "move", branch, limit) if session is not None else []
        known = lineage(checkout)
        numbers: dict[str, int] = {}
        lines = []
        for ref in refs:
            number = numbers[ref.name] = numbers.get(ref.name, 0) + 1
            before, after = (known.message_at(position) for position in (ref.base, ref.position))
            lines.append(
                ReflogEntry(
                    f"{ref.name}@{{{number}}}", ref.name, ref.note,
                    before.message.id if before else None, after.message.id if after else None,
                    datetime.fromisoformat(ref.created_at).replace(tzinfo=UTC), ref.position is None,
                )
            )  # fmt: skip
        return lines


def undo(checkout: Checkout) -> ReflogEntry:
    """Take back the last verb that moved the branch, or the last deletion of one."""
    with checkout.lock:
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
    return reflog(checkout, last.name, 1)[0]


# Views


def lineage(checkout: Checkout) -> Lineage:
    """Return the lookup of what stands at the positions of the session."""
    session = checkout.live.key
    return Lineage(checkout.store, session if session is not None else -1, checkout.live.segment)


def log(checkout: Checkout, limit: int) -> list[LogEntry]:
    """Return the newest messages of all branches as nodes with their parents, newest first."""
    with checkout.lock:
        session = checkout.live.key
        if session is None:
            return []
        records = checkout.live.stored_last(limit)
        heads = {branch.name: branch.head for branch in checkout.store.branches(session)}
        return lineage(checkout).log(records, heads, dict(tags(checkout)))


def diff(checkout: Checkout, a: str, b: str | None) -> Diff:
    """Return what two positions do not share, and the newest message they do."""
    with checkout.lock:
        session = checkout.existing()
        paths = [checkout.live.path_to(checkout.position_of(reference)) for reference in (a, b)]
        ids = [
            tuple(record.message.id or "" for record in read(checkout.store, session, one.without(other)))
            for one, other in (paths, paths[::-1])
        ]
        return Diff(checkout.newest_shared(*paths), *ids)
