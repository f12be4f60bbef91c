"""All of a session that can be read, in pieces that another store takes; what cannot be read is told."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from itertools import chain, count, islice
from typing import ParamSpec, TypeVar, get_args

from shared_core.errors import StoreError, StoreUnavailableError, UnknownReferenceError
from shared_core.records import (
    ALL,
    MAIN,
    ROOT,
    Branch,
    Position,
    Record,
    Ref,
    RefKind,
    Restored,
    Segment,
    SessionKey,
    SessionState,
    Stretch,
    Summary,
    VectorRows,
)
from shared_core.sharing.transfer import Tree, pages, read_tree, segments_for
from shared_core.store import PAGE, Store
from shared_core.stores.gaps import runs
from shared_core.stores.row_values import WRONG, DamagedRow

Piece = Restored | Summary | VectorRows
Note = Callable[[str, str], None]
"""Called with what cannot be read, and why."""

Arguments = ParamSpec("Arguments")
Found = TypeVar("Found")


def tried(
    note: Note, what: str, read: Callable[Arguments, Found], *args: Arguments.args, **kwargs: Arguments.kwargs
) -> Found | None:
    """Return what is read; if it cannot be, note so and return None."""
    try:
        return read(*args, **kwargs)
    except StoreUnavailableError:
        raise
    except StoreError as error:
        note(*(error.what, error.why) if isinstance(error, DamagedRow) else (what, str(error)))
        return None


class Salvage:
    """Reads one session through the interface of its store, past whatever cannot be read.

    Args:
        store: the store.
        session: the session.
        note: called for what cannot be read.
    """

    def __init__(self, store: Store, session: SessionKey, note: Note) -> None:
        self._store = store
        self._session = session.key
        self._note = note
        self._newest = ROOT
        self._whole = True
        self._listed: list[Position] = []

    def pieces(self) -> Iterator[Piece]:
        """Yield what can be read, in an order in which it can be written."""
        listed = self._tried("the list of messages", self._store.stored, self._session) or []
        self._listed = [position for position, _ in listed]
        # The tree is read after them, and in one moment, since others may go on meanwhile.
        tree = self._tried("the tree", read_tree, self._store, self._session) or self._parts()
        segments = self._segments(tree.segments)
        tips: dict[int, int] = {}
        for records in self._messages(segments):
            places = {record.position for record in records}
            covers = self._tried("what messages sum up", self._covers, places) or ()
            yield Restored(segments_for(records, segments, tips), tuple(records), tuple(covers))
        branches = tuple(self._branches(segments, tree))
        yield Restored(tuple(segments[number] for number in sorted(segments)), branches=branches)
        for ref in tree.refs:
            yield Restored(refs=(ref,))
        yield from self._forgotten()
        for number, segment in segments.items():
            yield from self._summaries(Position(number, segment.tip))
        for space in reversed(self._tried("the vector spaces", self._store.spaces, self._session) or []):
            yield from self._vectors(space)

    def _tried(
        self, what: str, read: Callable[Arguments, Found], *args: Arguments.args, **kwargs: Arguments.kwargs
    ) -> Found | None:
        return tried(self._note, what, read, *args, **kwargs)

    def _as_many(self, what: str, read: Callable[[int], list[Found]]) -> list[Found]:
        """Return what is read up to a limit, the newest first: at least half of what comes before a damage."""
        if (whole := self._tried(what, read, ALL)) is not None:
            return whole
        found: list[Found] = []
        for power in range(32):
            more = self._tried(what, read, 2**power)
            if more is None:
                break
            found = more
        return found

    # The tree

    def _parts(self) -> Tree:
        """Return what can be read of the tree, part by part."""
        segments: dict[int, Segment] = {}
        while page := self._tried("the tree", self._store.segments, self._session, max(segments, default=-1), PAGE):
            segments |= {segment.segment: segment for segment in page}
        if page is None:
            self._read_one_by_one(segments)
        refs = [ref for kind in get_args(RefKind) for ref in self._refs(kind)]
        read = self._tried("the branches", self._store.branches, self._session)
        self._whole = read is not None
        branches = self._named_branches(refs) if read is None else {one.name: one.head for one in read}
        return Tree(SessionState(None, 0, 0), segments, branches, sorted(refs))

    def _segments(self, known: Mapping[int, Segment]) -> dict[int, Segment]:
        """Return the segments; one that is lost begins at the root, and is as long as its messages and others need."""
        found = dict(known)
        parents = [one for each in known.values() for one in (each.parent, each.merged) if one is not None]
        deepest = dict(sorted([ROOT, *parents, *self._listed]))
        self._lose(deepest.keys() - known.keys())
        for number, depth in deepest.items():
            own = found.setdefault(number, Segment(number, None, depth))
            found[number] = own._replace(tip=max(own.tip, depth))
        return {number: _rooted(found[number], found) for number in sorted(found)}

    def _lose(self, segments: Collection[int]) -> None:
        """Tell that segments are lost, so that nothing is left on no branch."""
        for number in sorted(segments):
            self._note(f"segment {number}", "it is lost")
        self._whole = self._whole and not segments

    def _read_one_by_one(self, found: dict[int, Segment]) -> None:
        counts = self._tried("the session", self._store.stats, self._session) or {}
        # Each segment but the first was opened for a message or by a merge: numbers are not much larger than these.
        for number in range(counts.get("segments", 0) + counts.get("messages", 0)):
            with suppress(UnknownReferenceError):
                segment = self._tried(f"segment {number}", self._store.segment, self._session, number)
                found |= {} if segment is None else {number: segment}

    def _branches(self, segments: Mapping[int, Segment], tree: Tree) -> list[Branch]:
        found, refs = dict(tree.branches), tree.refs
        self._lose({head.segment for head in found.values()} - segments.keys())
        found |= self._lost_branches(refs, found)
        # Where a branch ended that was moved or deleted, nothing is lost.
        left = [ref.position if ref.kind == "stash" else ref.base for ref in refs]
        loose = _loose_ends(segments, [*found.values(), *filter(None, left)])
        if MAIN not in found:
            self._note(f"branch {MAIN!r}", "it is lost")
            found[MAIN] = loose[-1] if loose and self._newest not in loose else self._newest
        elif self._whole:
            loose = []  # a newer file that was imported may have left them
        for end in loose:
            if end != found[MAIN]:
                found[free_name(end.segment, found)] = end
        inside = {name: _inside(head, segments) for name, head in found.items()}
        return [Branch(name, head or ROOT) for name, head in inside.items()]

    def _lost_branches(self, refs: Collection[Ref], found: Collection[str]) -> dict[str, Position]:
        """Tell of branches that were moved and not deleted, and are missing; return where they were moved to."""
        moved = {ref.name: ref.position for ref in refs if ref.kind == "move" and ref.name != MAIN}
        lost = {name: to for name, to in moved.items() if to is not None and name not in found}
        for name in lost:
            self._note(f"branch {name!r}", "it is lost")
        self._whole = self._whole and not lost
        return lost

    def _named_branches(self, refs: Collection[Ref]) -> dict[str, Position]:
        """Return the branches that can be read one by one: `main`, and those that were moved or checked out."""
        found: dict[str, Position] = {}
        for name in dict.fromkeys([MAIN, *(ref.name for ref in refs if ref.kind in ("move", "head", "stash"))]):
            state = self._tried(f"branch {name!r}", self._store.state, self._session, name)
            if state is not None and state.head is not None:
                found[name] = state.head
        return found

    def _refs(self, kind: RefKind) -> list[Ref]:
        return self._as_many(f"each {kind}", lambda limit: self._store.refs(self._session, kind, None, limit))

    # Messages

    def _messages(self, segments: Mapping[int, Segment]) -> Iterator[list[Record]]:
        """Yield all messages in order of storing: those that the store lists, and what else its segments hold."""
        known = set(self._listed)
        whole = (Position(one.segment, depth) for one in segments.values() for depth in range(one.start, one.tip + 1))
        more = list(self._at_all(position for position in whole if position not in known))
        found = self._at_all(self._listed)
        if more:  # a message must not come after one with a larger number, which would tell that it is missing
            found = iter(sorted([*found, *more], key=lambda record: record.seq))
        for records in pages(found):
            self._newest = records[-1].position
            yield records

    def _at_all(self, positions: Iterable[Position]) -> Iterator[Record]:
        """Yield the messages at some positions, and tell which cannot be read."""
        unread: dict[tuple[int, str], list[int]] = {}
        for page in pages(positions):
            yield from self._at(page, unread)
        for (number, why), depths in unread.items():
            for start, upto in runs(depths):
                self._note(f"messages {start} to {upto} of segment {number}", why)

    def _at(self, positions: list[Position], unread: dict[tuple[int, str], list[int]]) -> Iterator[Record]:
        try:
            records = self._store.get(self._session, positions)
        except StoreUnavailableError:
            raise
        except StoreError as error:
            half = len(positions) // 2
            if half:
                yield from self._at(positions[:half], unread)
                yield from self._at(positions[half:], unread)
            elif isinstance(error, DamagedRow):
                self._note(error.what, error.why)
            else:
                unread.setdefault((positions[0].segment, str(error)), []).append(positions[0].depth)
        else:
            yield from records

    def _covers(self, places: Collection[Position]) -> list[tuple[Position, Stretch]]:
        numbers = {position.segment for position in places}
        return [one for one in self._store.covers(self._session, numbers) if one[0] in places]

    # Forgotten ids, and what is derived

    def _forgotten(self) -> Iterator[Restored]:
        last: str | None = None
        while ids := self._tried("the forgotten ids", self._store.forgotten, self._session, last, PAGE):
            yield Restored(forgotten=tuple(ids))
            last = ids[-1]

    def _summaries(self, end: Position) -> Iterator[Summary]:
        read = self._as_many("summaries", lambda limit: self._store.summaries(self._session, end, limit))
        yield from reversed(read)

    def _vectors(self, space: str) -> Iterator[VectorRows]:
        rows = self._store.vectors(self._session, space)
        while page := self._tried(f"the vectors of {space!r}", list, islice(rows, PAGE)):
            whole = [row for row in page if row[1]]
            if len(whole) < len(page):
                self._note(f"a vector of {space!r}", f"{WRONG}; it is made again")
            yield VectorRows(space, whole)


def _inside(position: Position | None, segments: Mapping[int, Segment]) -> Position | None:
    """Return a position, as deep as its segment is; None if there is no such segment."""
    own = None if position is None else segments.get(position.segment)
    return None if own is None or position is None else Position(own.segment, min(position.depth, own.tip))


def free_name(number: int, taken: Collection[str]) -> str:
    """Return the name of something whose own is lost: `recovered-` and a number, or one like it that is not taken."""
    ends = chain([""], (f"-{n}" for n in count(2)))
    return next(name for end in ends if (name := f"recovered-{number}{end}") not in taken)


def _loose_ends(segments: Mapping[int, Segment], heads: Collection[Position]) -> list[Position]:
    """Return where segments end that neither a branch nor another segment reaches so far."""
    reached: dict[int, int] = {}
    for segment in segments.values():
        start = segment.parent if segment.merged is None else None
        reached[segment.segment] = max(reached.get(segment.segment, -1), -1 if start is None else start.depth)
        for number, depth in filter(None, (segment.parent, segment.merged)):
            reached[number] = max(reached.get(number, -1), depth)
    for number, depth in heads:
        reached[number] = max(reached.get(number, -1), depth)
    return [Position(number, one.tip) for number, one in segments.items() if one.tip > reached[number]]


def _rooted(segment: Segment, segments: Mapping[int, Segment]) -> Segment:
    parent, merged = _inside(segment.parent, segments), _inside(segment.merged, segments)
    if parent is None or merged is None:
        return segment._replace(parent=parent, merged=None, base=None, turn_shift=0)
    return segment._replace(parent=parent, merged=merged)
