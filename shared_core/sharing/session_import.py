"""One session of a file, added to a session of the store: as it is, or beside what that holds already."""

import hashlib
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import get_args

from shared_core.errors import InfiniteMemoryError
from shared_core.messages import Message, content_of, storable
from shared_core.records import (
    MAIN,
    ROOT,
    Branch,
    Create,
    Draft,
    Move,
    Position,
    Record,
    Ref,
    RefKind,
    Restored,
    Segment,
    Stretch,
    VectorRow,
    VectorRows,
)
from shared_core.session.paths import EARLIER, Head, walk
from shared_core.sharing.format import MAX_NUMBER, LineError
from shared_core.sharing.transfer import Page, forgotten_of, read_tree, write_page
from shared_core.store import Store

MAX_EMPTY = 2**24
"""The number of positions without a message that a session of a file may have; one short line can ask for them."""

IMPORTED = "imported/"
"""The prefix of an imported branch or tag whose name is taken."""


class SessionImport:
    """Adds the segments, messages and names of one session of a file, inside a transaction of the store.

    A session that never held anything gets them as they are. In any other, a message is known if its id is stored with
    the same content after the same message. If its id is stored with anything else, the message gets another id. That
    id is a digest of its content and the message before it, so the message is known the next time.

    Positions are those of the file. A message that is left out, as it was forgotten here, leaves a position that means
    the same as the one before it.

    Args:
        store: the store to import into.
        session: the key of the session to import into.
        note: the note in the reflog for each branch that is moved.
        draft: returns a message ready to be stored, with or without a token count.

    Attributes:
        empty: whether the session never held anything.
        renamed: id in the file -> id here, where the two differ.
        branches: branch in the file -> branch here.
        head: what the exporting memory had checked out. None: not known, or the session was not empty.
        new: how many messages were stored.
        known: how many messages were stored before.
        forgotten: how many messages were left out because they had been forgotten here.
    """

    def __init__(self, store: Store, session: int, note: str, draft: Callable[[Message], Draft]) -> None:
        self._store = store
        self._session = session
        self._note = storable(note)
        self._draft = draft
        there = read_tree(store, session)
        state, branches = there.state, there.branches
        self._segments = dict(there.segments)
        self._written = {number: one.tip for number, one in self._segments.items()}
        self._next = max(self._segments) + 1
        self._seq = state.last_seq
        self._heads = dict(branches)
        self._refs = {kind: [ref for ref in there.refs if ref.kind == kind] for kind in get_args(RefKind)}
        self._tags = {ref.name: ref.position for ref in self._refs["tag"]}
        untouched = state.last_seq == 0 == state.epoch and len(self._segments) == 1 == len(branches)
        self.empty = untouched and not (self._refs["tag"] or self._refs["stash"] or self._refs["move"])
        self._forgotten_ids = {id_ for page in forgotten_of(store, session) for id_ in page}
        self._file: dict[int, Segment] = {}
        self._last: dict[int, int] = {}
        self._depths: dict[int, list[int]] = {}
        self._places: dict[Position, Position] = {}
        self._merges: dict[int, Position] = {}
        self._seen: set[str] = set()
        self._ids: dict[Position, str] = {}
        self._gone: dict[int, list[int]] = {}
        self._records: list[Record] = []
        self._covers: list[tuple[Position, Stretch]] = []
        self._rows: dict[str, list[VectorRow]] = {}
        main = self._heads.get(MAIN, ROOT)
        self._root = Position(walk(main, self._segments.__getitem__).spans[0].segment, ROOT.depth)
        self._names: list[Create | Move | Branch | Ref] = []
        self.renamed: dict[str, str] = {}
        self.branches: dict[str, str] = {}
        self.head: Head | None = None
        self.new = self.known = self.forgotten = 0

    # What the file says

    def segment(self, segment: Segment) -> None:
        """Declare a segment; the messages follow later."""
        if segment.segment in self._file:
            raise LineError(f"is a second segment {segment.segment}")
        for parent in (segment.parent, segment.merged):
            if parent is not None:
                self._check(parent)
                if parent.segment >= segment.segment:
                    raise LineError(f"grows out of segment {parent.segment}, which is not an earlier one")
        if (segment.merged is None) != (segment.base is None) or (segment.merged and not segment.parent):
            raise LineError("is a merge without all of parent, merged and base")
        above = -1 if segment.parent is None else segment.parent.depth
        if (segment.base is not None and segment.base <= above) or segment.tip < segment.before:
            raise LineError("ends before it begins")
        self._file[segment.segment] = segment
        if self.empty:
            self._segments[segment.segment] = segment

    def forget(self, ids: Sequence[str]) -> None:
        """Add forgotten ids to a session that was empty. Any other session keeps its own list."""
        if self.empty:
            self._store.restore(self._session, Restored(forgotten=tuple(ids)))
            self._forgotten_ids.update(ids)

    def look_up(self, ids: Sequence[str]) -> dict[str, Record]:
        """Return the messages that are stored under some ids, once those so far are written."""
        self._flush()
        return {} if self.empty else {str(one.message.id): one for one in self._store.get(self._session, ids)}

    def message(
        self, record: Record, covers: Sequence[Stretch], vectors: Mapping[str, VectorRow], stored: Record | None
    ) -> None:
        """Add a message. `stored` is the message that `look_up` found under its id.

        Raises:
            LineError: an earlier line has its id, or it stands where it cannot.
        """
        message, (number, depth) = record.message, record.position
        id_ = str(message.id)
        if id_ in self._seen:
            raise LineError(f"has the id {id_!r}, which an earlier line has")
        self._check(record.position)
        segment = self._file[number]
        if depth <= max(self._last.get(number, -2), segment.before):
            raise LineError(f"stands at {[number, depth]}, where no message can")
        for part in covers:
            self._check(Position(part.segment, part.start))
            self._check(Position(part.segment, part.upto))
            if part.start > part.upto:
                raise LineError("covers positions backwards")
        self._seen.add(id_)
        self._last[number] = depth
        before = record.position._replace(depth=depth - 1)
        if before.depth < segment.start and segment.parent is not None:
            before = segment.parent
        here, known = self._recognized(message, before, stored)
        if here != id_:
            self.renamed[id_] = here
        if not self.empty:
            self._ids[record.position] = here
        if known is not None:
            self.known += 1
            self._remember(record.position, known.position)
        elif here in self._forgotten_ids or self._tells_of_forgotten(record, covers):
            self.forgotten += 1
            self._forgotten_ids.add(here)
            self._gone.setdefault(number, []).append(depth)
        else:
            self.new += 1
            self._put(record, here, before, covers, vectors)

    def _tells_of_forgotten(self, record: Record, covers: Sequence[Stretch]) -> bool:
        """Return whether a message is a copy of one that was forgotten here, or sums one up."""
        picked = record.picked_from
        if picked is not None and self.renamed.get(picked, picked) in self._forgotten_ids:
            return True
        gone = ((part, self._gone.get(part.segment, ())) for part in covers)
        return any(bisect_left(depths, part.start) < bisect_right(depths, part.upto) for part, depths in gone)

    def _recognized(self, message: Message, before: Position, stored: Record | None) -> tuple[str, Record | None]:
        """Return the id that a message has here, and the message if it is stored already.

        A message whose own id was forgotten may still be known under the other id: an earlier import gave it that one
        while its own was taken.
        """
        id_ = str(message.id)
        if stored is not None and self._is_same(stored, message, before):
            return id_, stored
        gone = id_ in self._forgotten_ids
        if self.empty or (stored is None and not gone):
            return id_, None
        other = other_id(message, self._ids.get(before))
        there = next(iter(self._store.get(self._session, [other])), None)
        if there is not None and other not in self._seen and self._is_same(there, message, before):
            return other, there
        if other in self._forgotten_ids:
            return other, None
        if gone:
            return id_, None
        if there is not None:
            raise LineError(f"has the id {id_!r}, which is taken, as is its replacement {other!r}")
        return other, None

    def _is_same(self, stored: Record, message: Message, before: Position) -> bool:
        """Return whether a stored message has the same content, after the same message as far as that can be told."""
        if content_of(stored.message) != content_of(message):
            return False
        there = stored.position._replace(depth=stored.position.depth - 1)
        known = self._places.get(before)  # of what the file or this session has forgotten, nothing is known
        return known is None or known == there or self._is_at(there, before)

    def _put(
        self, record: Record, id_: str, before: Position, covers: Sequence[Stretch], vectors: Mapping[str, VectorRow]
    ) -> None:
        message = record.message
        draft = self._draft(message)
        turn_id, picked = message.turn_id or id_, record.picked_from
        at = record.position if self.empty else self._after(self._here(before))
        self._seq += 1
        self._records.append(
            replace(
                record, message=message.replace(id=id_, turn_id=self.renamed.get(turn_id, turn_id)), position=at,
                seq=self._seq, counter=draft.counter, tokens=draft.tokens,
                picked_from=None if picked is None else self.renamed.get(picked, picked),
            )
        )  # fmt: skip
        self._covers += [(at, part) for one in covers for part in self._parts(one)]
        for space, (_, hash_, data) in vectors.items():
            self._rows.setdefault(space, []).append((at, hash_, data))
        self._remember(record.position, at)

    # Positions

    def _check(self, position: Position) -> None:
        segment = self._file.get(position.segment)
        if segment is None or not segment.before <= position.depth <= segment.tip:
            raise LineError(f"refers to position {list(position)}, which no earlier line has")

    def _remember(self, position: Position, here: Position) -> None:
        """Note where a message of the file is here."""
        if not self.empty:
            self._depths.setdefault(position.segment, []).append(position.depth)
            self._places[position] = here

    def _resolved(self, position: Position) -> Position | Segment:
        """Return where the last message up to a position of the file is here, or the merge of the file after it."""
        while True:
            depths, segment = self._depths.get(position.segment, []), self._file[position.segment]
            known = bisect_right(depths, position.depth)
            if known:
                return self._places[Position(position.segment, depths[known - 1])]
            if segment.base is not None:
                return segment
            if segment.parent is None:
                return self._root
            position = segment.parent

    def _here(self, position: Position) -> Position:
        """Return the position here that one of the file means."""
        if self.empty:
            return position
        found = self._resolved(position)
        return self._merged(found) if isinstance(found, Segment) else found

    def _merged(self, wanted: Segment) -> Position:
        """Return the position here of a merge of the file; it is made, after those that it grows out of."""
        needed = [wanted]
        for one in needed:
            found = [self._resolved(parent) for parent in (one.parent, one.merged) if parent is not None]
            above = (merge for merge in found if isinstance(merge, Segment) and merge.segment not in self._merges)
            needed += [merge for merge in dict.fromkeys(above) if merge not in needed]
        for one in sorted(needed):
            if one.segment not in self._merges and one.parent is not None and one.merged is not None:
                self._merges[one.segment] = self._merge(self._here(one.parent), self._here(one.merged), one.turn_shift)
        return self._merges[wanted.segment]

    def _merge(self, parent: Position, merged: Position, turn_shift: int) -> Position:
        """Return a new merge of two positions."""
        ours, theirs = (walk(one, self._segments.__getitem__) for one in (parent, merged))
        new = theirs.without(ours)
        if not new:
            return parent
        base = parent.depth + sum(span.upto - span.start + 1 for span in new) + 1
        self._open(Segment(self._next, parent, base, merged, base, turn_shift))
        return Position(self._next - 1, base)

    def _ends(self, position: Position) -> frozenset[Position]:
        """Return the last messages here that lead to a position: several, if it is that of a merge."""
        found: set[Position] = set()
        waiting: list[Position | None] = [position]
        for at in waiting:  # it grows meanwhile
            if at is None:
                continue
            segment = self._segments[at.segment]
            if at.depth > self._written.get(at.segment, -2):
                self._flush()
            upto = min(at.depth, self._written.get(at.segment, -2))
            last = self._store.newest(self._session, at._replace(depth=upto), 1) if upto > segment.before else []
            found.update(record.position for record in last)
            if not last:
                waiting += [one for one in (segment.parent, segment.merged) if one not in waiting]
        return frozenset(found)

    def _ends_there(self, position: Position) -> frozenset[Position]:
        """Return the last messages that lead to a position of the file, as their positions here."""
        if self.empty:
            return frozenset([position])
        waiting = [self._resolved(position)]
        for one in waiting:
            if isinstance(one, Segment):
                above = [self._resolved(parent) for parent in (one.parent, one.merged) if parent is not None]
                waiting += [more for more in above if more not in waiting]
        return frozenset(one for one in waiting if isinstance(one, Position) and one != self._root)

    def _lead_to(self, ends: Collection[Position], others: Collection[Position]) -> bool:
        """Return whether all of some messages are on the paths to others."""
        paths = [walk(one, self._segments.__getitem__) for one in others]
        return all(any(path.covers(end) for path in paths) for end in ends)

    def _is_at(self, here: Position, there: Position) -> bool:
        """Return whether the same messages lead to a position here and to one of the file."""
        if self.empty:
            return here == there
        own, wanted = self._ends(here), self._ends_there(there)
        return own == wanted or (self._lead_to(own, wanted) and self._lead_to(wanted, own))

    def _open(self, segment: Segment) -> None:
        """Note a new segment, or that one has grown."""
        if segment.tip >= MAX_NUMBER:
            raise LineError("has too many positions")
        self._segments[segment.segment] = segment
        self._next = max(self._next, segment.segment + 1)

    def _after(self, position: Position) -> Position:
        """Return a new position after another one: in its segment if it ends there, else in a new one."""
        number = position.segment
        if position.depth != self._segments[number].tip:
            number = self._next
            self._open(Segment(number, position, position.depth))
        self._open(self._segments[number]._replace(tip=position.depth + 1))
        return Position(number, position.depth + 1)

    def _parts(self, stretch: Stretch) -> list[Stretch]:
        """Return where the messages of a stretch of the file are here."""
        if self.empty:
            return [stretch]
        depths, parts = self._depths.get(stretch.segment, []), list[Stretch]()
        for depth in depths[bisect_left(depths, stretch.start) : bisect_right(depths, stretch.upto)]:
            number, here = self._places[Position(stretch.segment, depth)]
            if parts and (parts[-1].segment, parts[-1].upto) == (number, here - 1):
                parts[-1] = parts[-1]._replace(upto=here)
            else:
                parts.append(Stretch(number, here, here))
        return parts

    def _flush(self) -> None:
        """Write the messages that were added since the last call."""
        if self._records:
            vectors = [VectorRows(space, rows) for space, rows in self._rows.items()]
            page = Page(self._records, self._covers, vectors)
            write_page(self._store, self._session, page, self._segments, self._written)
            self._records, self._covers, self._rows = [], [], {}

    # Names

    def branch(self, name: str, at: Position) -> None:
        """Move a branch to where the file has it, unless it already ends there or later."""
        if _checked_name(name) in self.branches:
            raise LineError(f"has the name {name!r}, which an earlier line has")
        self._check(at)
        if self.empty:
            self._names.append(Branch(name, at))
            self._heads[name], self.branches[name] = at, name
            return
        free = (here for here in self._candidates(name) if here not in self._tags)
        self.branches[name] = next(here for here in free if self._advance(here, at))

    def _candidates(self, name: str) -> Iterator[str]:
        """Yield the names a branch or a tag may get: its own, then others in case that is taken."""
        yield name
        yield IMPORTED + name
        yield from (f"{IMPORTED}{name}-{number}" for number in range(2, len(self._heads) + len(self._tags) + 3))

    def _advance(self, name: str, at: Position) -> bool:
        """Create a branch or move it forward to a position of the file; False if that would drop messages from it."""
        head, wanted = self._heads.get(name), self._ends_there(at)
        if head is None:
            self._heads[name] = self._here(at)
            self._names.append(Create(name, self._heads[name]))
            return True
        ends = self._ends(head)
        if not self._lead_to(wanted, ends):
            if not self._lead_to(ends, wanted):
                return False
            self._heads[name] = self._here(at)
            self._names.append(Move(name, self._heads[name], self._note, head))
        return True

    def ref(self, ref: Ref) -> None:
        """Store a tag, a stash, an entry of the reflog or the title, unless it is here already."""
        _checked_time(ref.created_at)
        for position in (ref.position, ref.base):
            if position is not None:
                self._check(position)
        if (ref.position is None and ref.kind != "move") or (ref.base is None and ref.kind in ("stash", "move")):
            raise LineError(f"is a {ref.kind} without its positions")
        if ref.kind == "tag":
            self._tag(ref)
        elif ref.kind == "stash":
            if not any(self._is_like(own, ref) for own in self._refs["stash"]):
                self._add_ref(ref)
        elif self.empty or (ref.kind == "title" and not self._refs["title"]):
            self._add_ref(ref)

    def _add_ref(self, ref: Ref) -> None:
        position, base = (None if one is None else self._here(one) for one in (ref.position, ref.base))
        self._names.append(ref._replace(position=position, base=base))

    def _is_like(self, own: Ref, there: Ref) -> bool:
        """Return whether a stash here says the same as one of the file."""
        pairs = ((own.position, there.position), (own.base, there.base))
        return (own.name, own.note, own.created_at) == (there.name, there.note, there.created_at) and all(
            one is not None and other is not None and self._is_at(one, other) for one, other in pairs
        )

    def _tag(self, ref: Ref) -> None:
        """Add a tag, under another name if its own is taken by another position."""
        assert ref.position is not None
        for name in self._candidates(_checked_name(ref.name)):
            known = self._tags.get(name)
            if known is not None and self._is_at(known, ref.position):
                return
            if known is None and name not in self._heads:
                self._tags[name] = self._here(ref.position)
                self._add_ref(ref._replace(name=name))
                return

    def set_head(self, branch: str | None, at: Position | None) -> None:
        """Note what the exporting memory had checked out."""
        if branch is not None:
            if branch not in self.branches:
                raise LineError(f"refers to the branch {branch!r}, which no earlier line has")
            self.head = Head(self.branches[branch])
        elif at is not None:
            self._check(at)
            self.head = Head(None, at) if self.empty else None

    def finish(self, spaces: Sequence[str] = ()) -> None:
        """Write what was added, and the names. `spaces`: the vector spaces, the one used last at the end.

        A file of another branch alone has no `main`. In a session that was empty, that branch is the main one, too,
        because a memory that is opened later has `main` checked out.
        """
        if sum(one.tip - one.before for one in self._file.values()) - len(self._seen) > MAX_EMPTY:
            raise LineError(f"ends a session with more than {MAX_EMPTY:,} positions without a message")
        if self.empty and MAIN not in self.branches and self.head is not None and self.head.branch:
            self._names.append(Branch(MAIN, self._heads[self.head.branch]))
        self._flush()
        grown = {number: one for number, one in self._segments.items() if self._written.get(number) != one.tip}
        self._store.restore(self._session, Restored(tuple(grown[number] for number in sorted(grown))))
        changes = [one for one in self._names if isinstance(one, Create | Move)]
        branches = tuple(one for one in self._names if isinstance(one, Branch))
        refs = tuple(one for one in self._names if isinstance(one, Ref))
        try:
            if changes:
                self._store.change(self._session, changes)
            self._store.restore(self._session, Restored(branches=branches, refs=refs))
        except (ValueError, LookupError) as error:
            if not isinstance(error, InfiniteMemoryError):
                raise
            raise LineError(f"cannot be stored: {error}") from None
        for space in spaces:
            self._store.keep(self._session, VectorRows(space, []))  # the one written last is in use


def other_id(message: Message, after: str | None) -> str:
    """Return another id for a message: a digest of its id, its content and the id of the message before it."""
    said = repr((message.id, after, sorted(content_of(message).items()))).encode()
    return f"{message.id}~{hashlib.blake2b(said, digest_size=8).hexdigest()}"


def _checked_name(name: str) -> str:
    if not name.strip() or EARLIER.fullmatch(name):
        raise LineError(f"has the name {name!r}, which no branch or tag may have")
    return name


def _checked_time(text: str) -> None:
    try:
        datetime.fromisoformat(text)
    except ValueError:
        raise LineError(f"created_at: {text[:40]!r} is not ISO 8601") from None
