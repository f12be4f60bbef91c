"""Merge one session of a file into a session of the store. Known messages are recognized; nothing is overwritten."""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from typing import TypeAlias

from shared_core.errors import InfiniteMemoryError
from shared_core.messages import Message, content_of
from shared_core.records import MAIN, Branch, Create, Move, Newest, Position, Record, Ref, Restored
from shared_core.session.paths import EARLIER, Head
from shared_core.session.turns import is_prompt, prompt_joined
from shared_core.sharing.format import (
    BranchLine,
    FileRef,
    ForgottenLine,
    GoneLine,
    HeadLine,
    LineError,
    MergeLine,
    MessageLine,
    MoveLine,
    StashLine,
    TagLine,
)
from shared_core.sharing.position_map import PositionMap
from shared_core.sharing.session_tree import SessionTree
from shared_core.store import Store

CountTokens = Callable[[Message], tuple[str, int] | None]
"""Returns the name of a token counter and its count of a message. None: not counted."""

FORGOTTEN_PAGE = 10_000
"""Forgotten ids read at a time."""


class SessionMerger:
    """Adds the messages and merges of one session, line by line: in a transaction of the store.

    A message is known if its id is stored with the same content after the same position. If its id is stored with
    anything else, the message gets another id. That id is a digest of its content and its parent, so the message is
    known the next time.

    Args:
        store: the store to import into.
        session: the key of the session to import into.
        count_tokens: counts the tokens of a message that is stored.

    Attributes:
        tree: the session, as it grows.
        positions: maps the positions of the file to those of the session.
        renamed: id in the file -> id here, where the two differ.
        new: how many messages were stored.
        known: how many messages were stored before.
        forgotten: how many messages were left out because they had been forgotten here.
    """

    def __init__(self, store: Store, session: int, count_tokens: CountTokens) -> None:
        self.tree = SessionTree(store, session)
        self.renamed: dict[str, str] = {}
        self.positions = PositionMap(self.tree, self.renamed)
        self.new = self.known = self.forgotten = 0
        self._store = store
        self._session = session
        self._count_tokens = count_tokens
        self._forgotten_ids = set(self._read_forgotten())
        self._prompts: dict[FileRef | None, Message] = {}

    def _read_forgotten(self) -> list[str]:
        found: list[str] = []
        while page := self._store.forgotten(self._session, found[-1] if found else None, FORGOTTEN_PAGE):
            found += page
        return found

    def forget(self, line: ForgottenLine) -> None:
        """Add forgotten ids to a session that was empty. Any other session keeps its own list."""
        self.tree.flush()
        stored = self.tree.get(line.ids)
        if self.tree.empty:
            self._store.restore(self._session, Restored(forgotten=line.ids))
            self._forgotten_ids.update(set(line.ids) - {str(record.message.id) for record in stored})
        else:
            self.positions.add_forgotten(stored)

    def merge(self, line: MergeLine) -> None:
        """Add a merge, unless the session already has a merge of these two positions."""
        self.positions.add_merge(line.parents, line.turn_shift, line.place)

    def gone(self, line: GoneLine) -> None:
        """Add empty positions."""
        parent = line.parents[0] if line.parents else None
        self.positions.add_gone(line.count, parent, fork=line.fork, number=line.place)

    def look_up(self, lines: Sequence[MessageLine]) -> dict[str, Record]:
        """Return the messages that are stored under the ids of some lines."""
        self.tree.flush()
        return {str(record.message.id): record for record in self.tree.get([one.id for one in lines])}

    def message(self, line: MessageLine, stored: Record | None) -> None:
        """Add a message. `stored` is the message that `look_up` found under its id.

        Raises:
            LineError: an earlier line has its id, or no earlier line is its parent.
        """
        positions, parent = self.positions, line.parents[0] if line.parents else None
        positions.check(parent)
        if positions.has_id(line.id) or (stored is not None and positions.is_in_file(stored)):
            raise LineError(f"has the id {line.id!r}, which an earlier line has")
        message = line.message()
        if message.created_at is None:
            raise LineError("has no created_at")
        id_ = line.id
        if id_ in self._forgotten_ids or (stored is not None and not self._is_same(stored, message, parent)):
            id_, stored = self._renamed(line, message, parent)
        if stored is not None:
            self.known += 1
            positions.mark_known(line.id, stored)
            self._remember_prompt(line, stored.message)
        elif id_ in self._forgotten_ids:
            self.forgotten += 1
            positions.add_skipped(line.id, parent, fork=line.fork)
        else:
            self.new += 1
            self._add(line, message if id_ == line.id else message.replace(id=id_), parent)

    def _renamed(self, line: MessageLine, message: Message, parent: FileRef | None) -> tuple[str, Record | None]:
        """Return the id that a message has here instead of its own, and the message stored under it.

        A message whose own id was forgotten may still be known under the other id: an earlier import gave it that one
        while its own was taken.
        """
        id_ = other_id(message, self.renamed.get(parent, parent) if isinstance(parent, str) else parent)
        stored = next(iter(self.tree.get([id_])), None)
        fits = stored is not None and not self.positions.is_in_file(stored) and self._is_same(stored, message, parent)
        if line.id in self._forgotten_ids and not fits and id_ not in self._forgotten_ids:
            return line.id, None
        if stored is not None and not fits:
            raise LineError(f"has the id {line.id!r}, which is taken, as is its replacement {id_!r}")
        self.renamed[line.id] = id_
        return id_, stored

    def _is_same(self, stored: Record, message: Message, parent: FileRef | None) -> bool:
        if content_of(stored.message) != content_of(message):
            return False
        return self.positions.is_at(parent, self.tree.before(stored.position))

    def _add(self, line: MessageLine, message: Message, parent: FileRef | None) -> None:
        before = self.positions.position(parent)
        covers = [part for ends in line.covers for part in self.tree.stretches(*map(self.positions.position, ends))]
        turn, newest = self._turns(line, message, before)
        self._remember_prompt(line, message.replace(turn_id=turn.turn_id))
        position = self.tree.next_position(before, fork=line.fork)
        self.tree.put(
            message, position, turn, newest, counted=self._count_tokens(message), covers=covers, vectors=line.vectors,
            picked_from=None if line.picked_from is None else self.renamed.get(line.picked_from, line.picked_from),
        )  # fmt: skip
        self.positions.remember(line.id, position)

    def _turns(self, line: MessageLine, message: Message, before: Position) -> tuple[Newest, Newest | None]:
        """Return the turn of a message, and the newest turn from there on (None: not known).

        If the line names no turn, the message opens or joins one, as it would if it were added there.
        """
        if line.turn_no is not None:
            named = line.id if line.turn_id is None else line.turn_id
            turn = Newest(self.renamed.get(named, named), line.turn_no)
            return turn, turn if message.role == "user" else None
        newest = self.tree.newest_turn(before)
        if message.role == "user":
            turn = Newest(message.id, newest.turn_no + 1)
            return turn, turn
        alone = message.role == "system" or newest.turn_id is None
        prompt = prompt_joined(message, self._prompts.get(line.parents[0] if line.parents else None))
        return Newest(prompt or message.id, newest.turn_no) if alone else newest, newest

    def _remember_prompt(self, line: MessageLine, stored: Message) -> None:
        """Note a message of a system prompt of a list, which the next line may join."""
        if line.turn_no is None and is_prompt(stored):
            self._prompts[line.id] = stored


def other_id(message: Message, after: FileRef | None) -> str:
    """Return another id for a message: a digest of its id, its content and its parent."""
    said = repr((message.id, after, sorted(content_of(message).items()))).encode("utf-8", "surrogatepass")
    return f"{message.id}~{hashlib.blake2b(said, digest_size=8).hexdigest()}"


TOGETHER = 1_000
"""Branches and refs that are written in one call, which takes as long as there are branches."""

IMPORTED = "imported/"
"""The prefix of an imported branch or tag whose name is taken."""


_Name: TypeAlias = Create | Move | Branch | Ref


class RefMerger:
    """Merges the branches, tags, stashes and the reflog of one session, once all of its messages are stored.

    Args:
        store: the store that holds the session.
        session: the session's key.
        merger: the merger that added the messages.
        note: the note in the reflog for each branch that is moved.

    Attributes:
        branches: branch in the file -> branch here.
        head: what the exporting memory had checked out. None: not known, or the session was not empty.
    """

    def __init__(self, store: Store, session: int, merger: SessionMerger, note: str) -> None:
        self._store = store
        self._session = session
        self._merger = merger
        self._note = note
        self._heads = {branch.name: branch.head for branch in store.branches(session)}
        self._tags = {ref.name: ref.position for ref in store.refs(session, "tag")}
        self._stashes: dict[tuple[str, str, str], list[Ref]] = {}
        for ref in reversed(store.refs(session, "stash")):
            self._stashes.setdefault((ref.name, ref.note, ref.created_at), []).append(ref)
        self._named: set[str] = set()
        self._named_tags: set[str] = set()
        self._pending: list[_Name] = []
        self.branches: dict[str, str] = {}
        self.head: Head | None = None

    def branch(self, line: BranchLine) -> None:
        """Move a branch to where the file has it, unless it already ends there or later."""
        name = _checked_name(line.name)
        if name in self._named:
            raise LineError(f"has the name {name!r}, which an earlier line has")
        self._named.add(name)
        if self._merger.tree.empty:
            if name in self._tags:
                raise LineError(f"has the name {name!r}, which a tag has")
            position = self._position(line.at)
            self._put(Branch(name, position))
            self._heads[name], self.branches[name] = position, name
            return
        # Empty positions can look the same. If one of them is the end of the branch already, that one is meant.
        known = (here for here in self._candidate_names(name) if here in self._heads)
        there = next((here for here in known if self._is_at(line.at, self._heads[here])), None)
        if there is None:
            position = self._position(line.at)
            free = (here for here in self._candidate_names(name) if here not in self._tags)
            there = next(here for here in free if self._advance(here, position))
        self.branches[name] = there

    def _candidate_names(self, name: str) -> Iterator[str]:
        """Yield the names a branch or a tag may get: its own, then others in case that is taken."""
        yield name
        yield IMPORTED + name
        yield from (f"{IMPORTED}{name}-{number}" for number in range(2, len(self._heads) + len(self._tags) + 3))

    def _is_at(self, ref: FileRef | None, position: Position | None) -> bool:
        self._merger.positions.check(ref)
        return self._merger.positions.is_at(ref, self._normalized(position))

    def _advance(self, name: str, position: Position) -> bool:
        """Create a branch or move it forward to a position; return False if that would drop messages from it."""
        head = self._heads.get(name)
        if head is None:
            self._put(Create(name, position))
            self._heads[name] = position
            return True
        leads_to = self._merger.tree.ancestors.leads_to
        if leads_to(position, head):
            return True
        if not leads_to(head, position):
            return False
        self._put(Move(name, position, self._note, head))
        self._heads[name] = position
        return True

    def tag(self, line: TagLine) -> None:
        """Store a tag, under another name if its own is taken by another position."""
        name, when = _checked_name(line.name), _checked_time(line.created_at)
        if name in self._named_tags:
            raise LineError(f"has the name {name!r}, which an earlier line has")
        self._named_tags.add(name)
        for here in self._candidate_names(name):
            if here in self._tags and self._is_at(line.at, self._tags[here]):
                return
            if here not in self._tags and here not in self._heads:
                position = self._position(line.at)
                self._put(Ref(0, "tag", here, position, None, line.note, when))
                self._tags[here] = position
                return

    def stash(self, line: StashLine) -> None:
        """Store a stash, unless it is stored already."""
        about = (line.branch, line.note, _checked_time(line.created_at))
        alike = [] if self._merger.tree.empty else self._stashes.get(about, [])
        there = (ref for ref in alike if self._is_at(line.base, ref.base) and self._is_at(line.at, ref.position))
        known = next(there, None)
        if known is not None:
            alike.remove(known)  # a second stash that looks the same must not match this one again
            return
        at, base = self._position(line.at), self._position(line.base)
        self._put(Ref(0, "stash", line.branch, at, base, line.note, line.created_at))

    def move(self, line: MoveLine) -> None:
        """Store an entry of the reflog in a session that was empty. Any other session keeps its own reflog."""
        when = _checked_time(line.created_at)
        for ref in (line.base, line.at):
            self._merger.positions.check(ref)
        if self._merger.tree.empty:
            base, position = self._position(line.base), None if line.deleted else self._position(line.at)
            self._put(Ref(0, "move", line.branch, position, base, line.note, when))

    def set_head(self, line: HeadLine) -> None:
        """Note what the exporting memory had checked out."""
        if line.branch is None:
            self._merger.positions.check(line.at)
            self.head = Head(None, self._position(line.at)) if self._merger.tree.empty else None
        elif line.branch in self.branches:
            self.head = Head(self.branches[line.branch])
        else:
            raise LineError(f"refers to the branch {line.branch!r}, which no earlier line has")

    def finish(self) -> None:
        """Write what was added, and check that there is a main branch.

        A file of another branch alone has none. In a session that was empty, that branch is the main one, too, because
        a memory that is opened later has `main` checked out.
        """
        if MAIN not in self._heads:
            raise LineError(f"ends without a branch {MAIN!r}")
        if self._merger.tree.empty and MAIN not in self._named and self.head is not None and self.head.branch:
            self._put(Branch(MAIN, self._heads[self.head.branch]))
        self._write()
        self._merger.tree.flush()

    def _position(self, ref: str | int | None) -> Position:
        self._merger.positions.check(ref)
        position = self._merger.positions.position(ref)
        self._merger.tree.flush()
        return position

    def _normalized(self, position: Position | None) -> Position:
        return self._merger.tree.normalized(position)

    def _put(self, one: _Name) -> None:
        """Write a branch or a ref, together with the next ones of its kind."""
        if self._pending and (len(self._pending) >= TOGETHER or type(one) is not type(self._pending[0])):
            self._write()
        self._pending.append(one)

    def _write(self) -> None:
        pending, self._pending = self._pending, []
        branches = tuple(one for one in pending if isinstance(one, Branch))
        refs = tuple(one for one in pending if isinstance(one, Ref))
        changes = [one for one in pending if isinstance(one, Create | Move)]
        try:
            if changes:
                self._store.change(self._session, changes)
            elif pending:
                self._store.restore(self._session, Restored(branches=branches, refs=refs))
        except (ValueError, LookupError) as error:
            if not isinstance(error, InfiniteMemoryError):
                raise
            raise LineError(f"cannot be stored: {error}") from None


def _checked_name(name: str) -> str:
    if not name.strip() or EARLIER.fullmatch(name):
        raise LineError(f"has the name {name!r}, which no branch or tag may have")
    return name


def _checked_time(text: str) -> str:
    try:
        datetime.fromisoformat(text)
    except ValueError:
        raise LineError(f"created_at: {text[:40]!r} is not ISO 8601") from None
    return text
