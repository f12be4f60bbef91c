"""Merge one session of a file into a session of the store: known messages are found again, nothing is overwritten."""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime

from shared_core.errors import InfiniteMemoryError
from shared_core.messages import Message, content_of
from shared_core.paths import EARLIER, Head, Path, walk
from shared_core.records import MAIN, Branch, Create, Move, Newest, Position, Record, Ref, Restored
from shared_core.sharing.format import (
    BranchLine,
    ForgottenLine,
    GoneLine,
    HeadLine,
    MergeLine,
    MessageLine,
    MoveLine,
    Place,
    StashLine,
    TagLine,
    Wrong,
)
from shared_core.sharing.format import Place as FilePlace
from shared_core.sharing.position_map import PlaceMap, SessionTree
from shared_core.store import Store

__all__ = ["Adding", "Counted", "Naming", "other_id"]

Counted = Callable[[Message], tuple[str, int] | None]
"""Returns the name of a token counter and what it counts; None: not counted."""

TOMBS = 10_000
"""Forgotten ids read at a time."""


class Adding:
    """Adds the places of one session, line by line, inside a transaction of the store.

    A message is known if its id is stored with the same content after the same place. If anything else is stored under
    its id, it gets another id, made from what it says and where it stands, so that it is known the next time.

    Args:
        store: where it goes.
        session: the key of the session it goes to.
        counted: counts a message that is stored.

    Attributes:
        tree: the session, as it grows.
        where: where the places of the file are in it.
        renamed: id in the file -> id here, where it is another.
    """

    def __init__(self, store: Store, session: int, counted: Counted) -> None:
        self.tree = SessionTree(store, session)
        self.renamed: dict[str, str] = {}
        self.where = PlaceMap(store, session, self.tree, self.renamed)
        self.new = self.known = self.forgotten = 0
        self._store = store
        self._session = session
        self._counted = counted
        self._tombs = set(self._tombstones())

    def _tombstones(self) -> list[str]:
        found: list[str] = []
        while page := self._store.forgotten(self._session, found[-1] if found else None, TOMBS):
            found += page
        return found

    def forget(self, line: ForgottenLine) -> None:
        """Keep ids from being stored in a session that was empty; another one's past is its own."""
        self.tree.flush()
        stored = self._store.get(self._session, line.ids)
        if self.tree.empty:
            self._store.restore(self._session, Restored(forgotten=line.ids))
            self._tombs.update(set(line.ids) - {str(record.message.id) for record in stored})
        else:
            self.where.forgotten(stored)

    def merge(self, line: MergeLine) -> None:
        """Add a merge, if the session has none of these two places."""
        self.where.merge(line.parents, line.turn_shift, line.place)

    def gone(self, line: GoneLine) -> None:
        """Add places without a message."""
        parent = line.parents[0] if line.parents else None
        self.where.gone(line.count, parent, fork=line.fork, number=line.place)

    def look_up(self, lines: Sequence[MessageLine]) -> dict[str, Record]:
        """Return what is stored under the ids of some lines."""
        self.tree.flush()
        return {str(record.message.id): record for record in self._store.get(self._session, [one.id for one in lines])}

    def message(self, line: MessageLine, stored: Record | None) -> None:
        """Add a message; `stored` is what `look_up` found under its id.

        Raises:
            Wrong: its id was there before, or its parents are not.
        """
        where, parent = self.where, line.parents[0] if line.parents else None
        where.check(parent)
        if where.knows(line.id) or (stored is not None and where.of_this_file(stored)):
            raise Wrong(f"has the id {line.id!r}, which another line has")
        message = line.message()
        if message.created_at is None:
            raise Wrong("has no created_at")
        id_ = line.id
        if id_ in self._tombs or (stored is not None and not self._is_same(stored, message, parent)):
            id_, stored = self._renamed(line, message, parent)
        if stored is not None:
            self.known += 1
            where.see(line.id, stored)
        elif id_ in self._tombs:
            self.forgotten += 1
            where.unborn(line.id, parent, fork=line.fork)
        else:
            self.new += 1
            self._add(line, message if id_ == line.id else message.replace(id=id_), parent)

    def _renamed(self, line: MessageLine, message: Message, parent: Place | None) -> tuple[str, Record | None]:
        """Return the id that a message has here instead of its own, and what is stored under it.

        Where its own was forgotten it may be known by another one still, from when its own was taken.
        """
        id_ = other_id(message, self.renamed.get(parent, parent) if isinstance(parent, str) else parent)
        stored = next(iter(self._store.get(self._session, [id_])), None)
        fits = stored is not None and not self.where.of_this_file(stored) and self._is_same(stored, message, parent)
        if line.id in self._tombs and not fits and id_ not in self._tombs:
            return line.id, None
        if stored is not None and not fits:
            raise Wrong(f"has the id {line.id!r}, which is taken, as is {id_!r}")
        self.renamed[line.id] = id_
        return id_, stored

    def _is_same(self, stored: Record, message: Message, parent: Place | None) -> bool:
        if content_of(stored.message) != content_of(message):
            return False
        return self.where.is_at(parent, self.tree.before(stored.position))

    def _add(self, line: MessageLine, message: Message, parent: Place | None) -> None:
        before = self.where.place(parent)
        covers = [part for ends in line.covers for part in self.tree.line(*map(self.where.place, ends))]
        turn, newest = self._turns(line, message, before)
        place = self.tree.next_to(before, fork=line.fork)
        self.tree.put(
            message, place, turn, newest, counted=self._counted(message), covers=covers, vectors=line.vectors,
            picked_from=None if line.picked_from is None else self.renamed.get(line.picked_from, line.picked_from),
        )  # fmt: skip
        self.where.remember(line.id, place)

    def _turns(self, line: MessageLine, message: Message, before: Position) -> tuple[Newest, Newest | None]:
        """Return the turn of a message, and the newest one after it; None: not known.

        It is the one that the line names, or else the one that the message opens or joins where it stands.
        """
        if line.turn_no is not None:
            named = line.id if line.turn_id is None else line.turn_id
            turn = Newest(self.renamed.get(named, named), line.turn_no)
            return turn, turn if message.role == "user" else None
        newest = self.tree.newest(before)
        if message.role == "user":
            turn = Newest(message.id, newest.turn_no + 1)
            return turn, turn
        alone = message.role == "system" or newest.turn_id is None
        return Newest(message.id, newest.turn_no) if alone else newest, newest


def other_id(message: Message, after: Place | None) -> str:
    """Return another id for a message, always the same for what it says after the same one."""
    said = repr((message.id, after, sorted(content_of(message).items()))).encode("utf-8", "surrogatepass")
    return f"{message.id}~{hashlib.blake2b(said, digest_size=8).hexdigest()}"


IMPORTED = "imported/"
"""What is put before a name that is taken."""


class Naming:
    """Names places of one session, once all of its messages are there.

    Args:
        store: where the session is.
        session: its key.
        adding: where the places of the file are.
        note: told by the moves that this makes.
    """

    def __init__(self, store: Store, session: int, adding: Adding, note: str) -> None:
        self._store = store
        self._session = session
        self._adding = adding
        self._note = note
        self._heads = {branch.name: branch.head for branch in store.branches(session)}
        self._tags = {ref.name: ref.position for ref in store.refs(session, "tag")}
        self._stashes = [] if adding.tree.empty else store.refs(session, "stash")
        self._given: set[str] = set()
        self.branches: dict[str, str] = {}
        self.head: Head | None = None

    def branch(self, line: BranchLine) -> None:
        """Have a branch end where the file says, if it does not already end there or further on."""
        name = _a_name(line.name)
        if name in self._given:
            raise Wrong(f"has the name {name!r}, which another line has")
        self._given.add(name)
        if self._adding.tree.empty:
            place = self._place(line.at)
            self._restore(Restored(branches=(Branch(name, place),)))
            self._heads[name], self.branches[name] = place, name
            return
        # Of several empty places that nothing tells apart, the one is meant where the branch is already.
        known = (here for here in self._names_for(name) if here in self._heads)
        there = next((here for here in known if self._is_at(line.at, self._heads[here])), None)
        if there is None:
            place = self._place(line.at)
            path = self._path(place)
            free = (here for here in self._names_for(name) if here not in self._tags)
            there = next(here for here in free if self._take(here, place, path))
        self.branches[name] = there

    def _names_for(self, name: str) -> Iterator[str]:
        """Yield what a branch or a tag may be called: by its own name, or if that is taken, by another."""
        yield name
        yield IMPORTED + name
        yield from (f"{IMPORTED}{name}-{number}" for number in range(2, len(self._heads) + len(self._tags) + 3))

    def _is_at(self, ref: FilePlace | None, place: Position | None) -> bool:
        self._adding.where.check(ref)
        return self._adding.where.is_at(ref, self._real(place))

    def _take(self, name: str, place: Position, path: Path) -> bool:
        """Have a branch end at a place or further on, without leaving what it has; False if it leads elsewhere."""
        head = self._heads.get(name)
        if head is None:
            self._store.change(self._session, [Create(name, place)])
            self._heads[name] = place
            return True
        if not path.without(self._path(head)):
            return True
        if self._path(head).without(path):
            return False
        self._store.change(self._session, [Move(name, place, self._note, head)])
        self._heads[name] = place
        return True

    def tag(self, line: TagLine) -> None:
        """Keep a tag; under another name, if its own is taken for another place."""
        name, when = _a_name(line.name), _a_time(line.created_at)
        for here in self._names_for(name):
            if here in self._tags and self._is_at(line.at, self._tags[here]):
                return
            if here not in self._tags and here not in self._heads:
                place = self._place(line.at)
                self._put(Ref(0, "tag", here, place, None, line.note, when))
                self._tags[here] = place
                return

    def stash(self, line: StashLine) -> None:
        """Keep a stash, if it is not kept already."""
        about = (line.branch, line.note, _a_time(line.created_at))
        alike = (ref for ref in self._stashes if (ref.name, ref.note, ref.created_at) == about)
        there = (ref for ref in alike if self._is_at(line.base, ref.base) and self._is_at(line.at, ref.position))
        known = next(there, None)
        if known is not None:
            self._stashes.remove(known)  # two may be alike
            return
        at, base = self._place(line.at), self._place(line.base)
        self._put(Ref(0, "stash", line.branch, at, base, line.note, line.created_at))

    def move(self, line: MoveLine) -> None:
        """Keep a line of the reflog in a session that was empty; another one has its own past."""
        when = _a_time(line.created_at)
        for ref in (line.base, line.at):
            self._adding.where.check(ref)
        if self._adding.tree.empty:
            base, place = self._place(line.base), None if line.deleted else self._place(line.at)
            self._put(Ref(0, "move", line.branch, place, base, line.note, when))

    def stand(self, line: HeadLine) -> None:
        """Note where whoever wrote the file stood."""
        if line.branch is None:
            self._adding.where.check(line.at)
            self.head = Head(None, self._place(line.at)) if self._adding.tree.empty else None
        elif line.branch in self.branches:
            self.head = Head(self.branches[line.branch])
        else:
            raise Wrong(f"names the branch {line.branch!r}, which no line before has")

    def finish(self) -> None:
        """Write what has been added, and see that there is a main branch."""
        if MAIN not in self._heads:
            raise Wrong(f"ends without a branch {MAIN!r}")
        self._adding.tree.flush()

    def _place(self, ref: str | int | None) -> Position:
        self._adding.where.check(ref)
        place = self._adding.where.place(ref)
        self._adding.tree.flush()
        return place

    def _real(self, place: Position | None) -> Position:
        return self._adding.tree.real(place)

    def _path(self, place: Position) -> Path:
        return walk(place, self._adding.tree.segment)

    def _put(self, ref: Ref) -> None:
        self._restore(Restored(refs=(ref,)))

    def _restore(self, restored: Restored) -> None:
        try:
            self._store.restore(self._session, restored)
        except (ValueError, LookupError) as error:
            if not isinstance(error, InfiniteMemoryError):
                raise
            raise Wrong(f"cannot be kept: {error}") from None


def _a_name(name: str) -> str:
    if not name.strip() or EARLIER.fullmatch(name):
        raise Wrong(f"has the name {name!r}, which no branch or tag may have")
    return name


def _a_time(text: str) -> str:
    try:
        datetime.fromisoformat(text)
    except ValueError:
        raise Wrong(f"created_at: {text[:40]!r} is not ISO 8601") from None
    return text
