"""Add one session of a file to a session of the store: what is there already is known again, nothing is overwritten."""

import hashlib
from collections.abc import Callable, Sequence

from shared_core.messages import Message, content_of
from shared_core.records import Newest, Position, Record, Restored
from shared_core.sharing.format import ForgottenLine, GoneLine, MergeLine, MessageLine, Place
from shared_core.sharing.jsonl import Wrong
from shared_core.sharing.place_map import PlaceMap
from shared_core.sharing.session_tree import SessionTree
from shared_core.store import Store

__all__ = ["Adding", "Counted", "other_id"]

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
