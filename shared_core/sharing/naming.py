"""Give a session the branches, tags, stashes and moves that a file has for it; no name is taken away."""

from collections.abc import Iterator
from datetime import datetime

from shared_core.errors import InfiniteMemoryError
from shared_core.records import MAIN, Branch, Move, Position, Ref, Restored
from shared_core.sharing.adding import Adding
from shared_core.sharing.format import BranchLine, HeadLine, MoveLine, StashLine, TagLine
from shared_core.sharing.format import Place as FilePlace
from shared_core.sharing.jsonl import Wrong
from shared_core.store import Store
from shared_core.tree import EARLIER, Head, Path, walk

__all__ = ["Naming"]

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
        self._tags = {ref.name: ref.place for ref in store.refs(session, "tag")}
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
            self._store.create_branch(self._session, name, place)
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
        there = (ref for ref in alike if self._is_at(line.base, ref.base) and self._is_at(line.at, ref.place))
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
