"""Where the positions of a file are in a session: known ones are found, others are added segment by segment."""

import base64
import binascii
import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from shared_core.messages import Message
from shared_core.paths import Span, walk
from shared_core.records import MAIN, Newest, Position, Record, Restored, Segment, Stretch, VectorRows
from shared_core.sharing.format import MAX_NUMBER, Place, VectorValue, Wrong
from shared_core.store import Store

__all__ = ["PlaceMap", "SessionTree"]

PAGE = 500
"""Messages written at a time."""


class SessionTree:
    """Adds places to a session, inside a transaction of the store.

    Args:
        store: where the session is.
        session: its key.

    Attributes:
        empty: whether nothing has ever been in the session.
        root: the place before its first message.
        last_seq: the number of its newest message when this began.
    """

    def __init__(self, store: Store, session: int) -> None:
        self.store = store
        self.session = session
        state = store.state(session, MAIN)
        branches = store.branches(session)
        self._count = store.stats(session)["segments"]
        self.empty = state.last_seq == 0 == state.epoch and self._count == 1 == len(branches)
        self.empty = self.empty and not any(store.refs(session, kind, limit=1) for kind in ("tag", "stash", "move"))
        self.last_seq = self._seq = state.last_seq
        self._segments: dict[int, Segment] = {}
        first = next(branch.head for branch in branches if branch.name == MAIN)
        self.root = Position(walk(first, self.segment).spans[0].segment, -1)
        self._turns: dict[int, Newest] = {}
        self._grown: dict[int, Segment] = {}
        self._records: list[Record] = []
        self._covers: list[tuple[Position, Stretch]] = []
        self._vectors: dict[str, list[tuple[Position, str, bytes]]] = {}

    # Where things are

    def segment(self, segment: int) -> Segment:
        """Return a segment, with what has been added to it."""
        if segment not in self._segments:
            self._segments[segment] = self.store.segment(self.session, segment)
        return self._segments[segment]

    @property
    def segments(self) -> Iterator[Segment]:
        """All segments, in order of creation."""
        return map(self.segment, range(self._count))

    def before(self, place: Position) -> Position:
        """Return the place before one, by first parents; the root, if there is none."""
        segment = self.segment(place.segment)
        if place.depth > segment.start:
            return place._replace(depth=place.depth - 1)
        return self.real(segment.parent)

    def real(self, place: Position | None) -> Position:
        """Return a place as the place it stands for: where an empty segment ends, its parent does."""
        while place is not None:
            segment = self.segment(place.segment)
            if place.depth >= segment.start:
                return place
            place = segment.parent
        return self.root

    # Growing

    def next_to(self, place: Position, *, fork: bool) -> Position:
        """Return the place that comes after one, in its segment or, if others go on there or it is a fork, a new one.

        Raises:
            Wrong: there is no room.
        """
        segment = self.segment(place.segment)
        number = place.segment
        if fork or place.depth != segment.tip:
            number = self._open(place)
        return self.stretch(number, place.depth + 1)

    def stretch(self, number: int, tip: int) -> Position:
        """Have a segment end at a depth."""
        if tip > MAX_NUMBER:
            raise Wrong("has too many places")
        self._segments[number] = self._grown[number] = self.segment(number)._replace(tip=tip)
        return Position(number, tip)

    def _open(self, parent: Position) -> int:
        number = self._count
        self._count += 1
        self._segments[number] = self._grown[number] = Segment(number, parent, parent.depth)
        if parent.segment in self._turns and parent.depth == self.segment(parent.segment).tip:
            self._turns[number] = self._turns[parent.segment]
        return number

    def merge(self, parent: Position, merged: Position, turn_shift: int) -> Position:
        """Open a segment that begins with a merge, and return the place of the merge."""
        room = sum(span.upto - span.start + 1 for span in self._only(merged, parent))
        base = parent.depth + room + 1
        if base > MAX_NUMBER:
            raise Wrong("has too many places")
        number = self._count
        self._count += 1
        self._segments[number] = self._grown[number] = Segment(number, parent, base, merged, base, turn_shift)
        return Position(number, base)

    def _only(self, merged: Position, parent: Position) -> list[Span]:
        return walk(merged, self.segment).without(walk(parent, self.segment))

    def line(self, first: Position, last: Position) -> list[Stretch]:
        """Return the places from one to another, by first parents.

        Raises:
            Wrong: the one is not before the other.
        """
        found: list[Stretch] = []
        while first.segment != last.segment:
            segment = self.segment(last.segment)
            if segment.parent is None:
                raise Wrong("covers places that are not on one line")
            found.insert(0, Stretch(last.segment, segment.start, last.depth))
            last = segment.parent
        if first.depth > last.depth:
            raise Wrong("covers places that are not on one line")
        return [part for part in (Stretch(last.segment, first.depth, last.depth), *found) if part.start <= part.upto]

    # Messages

    def newest(self, place: Position) -> Newest:
        """Return the turn of the newest user message at a place or before it, and its number there."""
        segment = self.segment(place.segment)
        if place.depth == segment.tip and place.segment in self._turns:
            return self._turns[place.segment]
        self.flush()
        for span in reversed(walk(place, self.segment).spans):
            upto = span.upto
            while upto >= span.start:
                records = self.store.newest(self.session, Position(span.segment, upto), PAGE)
                records = [record for record in records if record.position.depth >= span.start]
                for record in records:
                    if record.message.role == "user":
                        return Newest(record.message.turn_id, record.turn_no + span.turn_shift)
                if not records:
                    break
                upto = records[-1].position.depth - 1
        return Newest(None, -1)

    def put(
        self, message: Message, place: Position, turn: Newest, newest: Newest | None, *,
        counted: tuple[str, int] | None, picked_from: str | None, covers: Sequence[Stretch],
        vectors: Sequence[VectorValue],
    ) -> None:  # fmt: skip
        """Write a message where `next_to` said; `newest`: the newest turn from there on, if it is known."""
        self._seq += 1
        counter, tokens = counted if counted is not None else (None, None)
        stored = message if message.turn_id == turn.turn_id else message.replace(turn_id=turn.turn_id)
        self._records.append(Record(stored, place, self._seq, turn.turn_no, counter, tokens, picked_from))
        self._covers += [(place, stretch) for stretch in covers]
        for value in vectors:
            row = (place, value.hash, _vector(value))
            self._vectors.setdefault(value.space, []).append(row)
        if newest is not None:
            self._turns[place.segment] = newest
        if len(self._records) >= PAGE:
            self.flush()

    def flush(self) -> None:
        """Write what has been added."""
        if not self._records and not self._grown:
            return
        grown = sorted(self._grown.values(), key=lambda segment: segment.segment)
        self.store.restore(self.session, Restored(tuple(grown), tuple(self._records), tuple(self._covers)))
        for space, rows in self._vectors.items():
            self.store.keep(self.session, VectorRows(space, rows))
        self._grown, self._records, self._covers, self._vectors = {}, [], [], {}


def _vector(value: VectorValue) -> bytes:
    """Return the bytes of a vector.

    Raises:
        Wrong: they are not vectors of the space's dimension.
    """
    found = re.fullmatch(r".+/(\d{1,6})(?:#.*)?", value.space, re.DOTALL)
    try:
        data = base64.b64decode(value.data, validate=True)
    except (binascii.Error, ValueError) as error:
        raise Wrong(f"has a vector that is not base64 ({error})") from None
    if found is None or not data or int(found[1]) == 0 or len(data) % (2 * int(found[1])):
        raise Wrong(f"has a vector of {len(data)} bytes, which does not fit the space {value.space!r}")
    if not np.isfinite(np.frombuffer(data, dtype="<f2")).all():
        raise Wrong("has a vector with numbers that are none")
    return data


NEAR = 4_096
"""Messages of the file whose places are remembered, the first leaving first; others are looked up."""

MAX_EMPTY = 2**24
"""Places without a message that a session of a file may have."""


class _Run(NamedTuple):
    """Places of the file without a message: the first one's number, how many, what is before it, and for a merge how.

    Of a merge `parents` has two, of others one.
    """

    number: int
    size: int
    parents: tuple[Place | None, ...]
    fork: bool = False
    turn_shift: int = 0

    @property
    def merge(self) -> bool:
        return len(self.parents) == 2


class _Made(NamedTuple):
    """The places of a run that have been made, from a number to its end: where the first of them is."""

    number: int
    first: Position


class PlaceMap:
    """Finds the places of one session of a file in a session of the store.

    Args:
        store: where it is.
        session: its key.
        tree: the same session, to be added to.
        renamed: id in the file -> id here.
    """

    def __init__(self, store: Store, session: int, tree: SessionTree, renamed: dict[str, str]) -> None:
        self._store = store
        self._session = session
        self._tree = tree
        self._renamed = renamed
        self._seen = bytearray(tree.last_seq + 1)
        self._near: dict[str, Position] = {}
        self._unborn: dict[str, int] = {}
        self._runs: list[_Run] = []
        self._found: dict[int, Position] = {}
        self._made: dict[int, _Made] = {}
        self._used: set[Position] = set()
        self._numbers = 0
        self._gone_there: set[Position] = set()
        self._children: dict[tuple[Position, Position | None], list[int]] | None = None

    # What the file has

    def knows(self, id_: str) -> bool:
        """Return whether a line before had this id, as far as that is remembered."""
        return id_ in self._near or id_ in self._unborn

    def of_this_file(self, record: Record) -> bool:
        """Return whether a line before was this message."""
        return record.seq > self._tree.last_seq or bool(self._seen[record.seq])

    def see(self, id_: str, record: Record) -> None:
        """Note that a message of the file is there already."""
        self._seen[record.seq] = 1
        self.remember(id_, record.position)

    def remember(self, id_: str, place: Position) -> None:
        """Note where a message of the file is."""
        self._near[id_] = place
        while len(self._near) > NEAR:
            self._near.pop(next(iter(self._near)))

    def gone(self, count: int, parent: Place | None, *, fork: bool, number: int | None = None) -> None:
        """Note places without a message; they are made when something is to come after them."""
        self._note(_Run(self._numbers, count, (parent,), fork), number)

    def merge(self, parents: Sequence[Place | None], turn_shift: int, number: int) -> None:
        """Note a merge."""
        self._note(_Run(self._numbers, 1, tuple(parents), True, turn_shift), number)

    def unborn(self, id_: str, parent: Place | None, *, fork: bool) -> None:
        """Note a message that is not to be stored, so that its place stays empty."""
        self._unborn[id_] = self._numbers
        self.gone(1, parent, fork=fork)

    def forgotten(self, records: Sequence[Record]) -> None:
        """Note messages that were forgotten where the file comes from: there, their places are empty."""
        self._gone_there.update(record.position for record in records)

    def _note(self, run: _Run, number: int | None) -> None:
        if number is not None and number != run.number:
            raise Wrong(f"place: the next number is {run.number}, not {number}")
        if run.number + run.size > MAX_EMPTY:
            raise Wrong("has too many places without a message")
        for parent in run.parents:
            self.check(parent)
        self._runs.append(run)
        self._numbers += run.size
        if self._tree.empty:
            self.place(run.number)

    def check(self, ref: Place | None) -> None:
        """Raise Wrong if no line before has a place; nothing is made."""
        if isinstance(ref, int):
            self._run_of(ref)
        elif ref is not None and ref not in self._unborn:
            self._of_message(ref)

    def _run_of(self, number: int) -> _Run:
        if number >= self._numbers:
            raise Wrong(f"names the place {number}, which no line before has")
        return self._runs[bisect_right(self._runs, number, key=lambda run: run.number) - 1]

    # Where it is

    def place(self, ref: Place | None) -> Position:
        """Return where something of the file is in the session; what has no message there is made, if need be.

        Raises:
            Wrong: no line before has it.
        """
        waiting = [ref]
        while waiting:
            top = self._numbered(waiting[-1])
            if not isinstance(top, int) or self._known(top) is not None:
                waiting.pop()
                continue
            run = self._run_of(top)
            before = [one for one in map(self._numbered, run.parents) if isinstance(one, int)]
            missing = [one for one in before if self._known(one) is None]
            if missing:
                waiting += missing
            elif run.merge:
                self._found[top] = self._merge(run)
            else:
                self._make(run)
        return self._of(ref)

    def is_at(self, ref: Place | None, place: Position) -> bool:
        """Return whether something of the file is at a place; what has no message is taken to be where it can be."""
        waiting, matched = [(ref, place)], dict[int, Position]()
        while waiting:
            what, here = waiting.pop()
            number = self._numbered(what)
            if not isinstance(number, int) or self._known(number) is not None or number in matched:
                if (matched[number] if isinstance(number, int) and number in matched else self._of(what)) != here:
                    return False
                continue
            run, segment = self._run_of(number), self._tree.segment(here.segment)
            if here == self._tree.root or run.merge != (here.depth == segment.base):
                return False
            matched[number] = here
            first = run.parents[0] if number == run.number else number - 1
            waiting.append((first, self._tree.before(here)))
            if run.merge:
                waiting.append((run.parents[1], self._tree.real(segment.merged)))
        self._found |= matched
        self._used.update(matched.values())
        return True

    def _numbered(self, ref: Place | None) -> Place | None:
        return self._unborn.get(ref, ref) if isinstance(ref, str) else ref

    def _of(self, ref: Place | None) -> Position:
        ref = self._numbered(ref)
        if ref is None:
            return self._tree.root
        if isinstance(ref, str):
            return self._of_message(ref)
        known = self._known(ref)
        assert known is not None
        return known

    def _known(self, number: int) -> Position | None:
        if number in self._found:
            return self._found[number]
        made = self._made.get(self._run_of(number).number)
        if made is None or number < made.number:
            return None
        return made.first._replace(depth=made.first.depth + number - made.number)

    def _of_message(self, id_: str) -> Position:
        if id_ not in self._near:
            self._tree.flush()
            records = self._store.get(self._session, [self._renamed.get(id_, id_)])
            if not records or not self.of_this_file(records[0]):
                raise Wrong(f"names the message {id_!r}, which no line before has")
            self.remember(id_, records[0].position)
        return self._near[id_]

    # Making

    def _make(self, run: _Run) -> None:
        """Find or make the places of a run."""
        place = self._of(run.parents[0])
        for number in range(run.number, run.number + run.size):
            found = self._found.get(number) or self._empty_after(place)
            if found is None:
                first = self._tree.next_to(place, fork=run.fork and number == run.number)
                self._tree.stretch(first.segment, first.depth + run.number + run.size - 1 - number)
                self._made[run.number] = _Made(number, first)
                self._note_child(first.segment)
                return
            self._found[number] = place = found
            self._used.add(found)

    def _merge(self, run: _Run) -> Position:
        parent, merged = map(self._of, run.parents)
        for number in self._born_of(parent, merged):
            segment = self._tree.segment(number)
            known = Position(number, segment.start)
            if known not in self._used:
                self._used.add(known)
                return known
        made = self._tree.merge(parent, merged, run.turn_shift)
        self._note_child(made.segment)
        return made

    def _empty_after(self, before: Position) -> Position | None:
        """Return a place after one that is there and has no message, or one forgotten where the file is from."""
        if self._tree.empty:
            return None
        starts = [Position(one, self._tree.segment(one).start) for one in self._born_of(before, None)]
        for place in [before._replace(depth=before.depth + 1), *starts]:
            if place.depth <= self._tree.segment(place.segment).tip and place not in self._used:
                self._tree.flush()
                if place in self._gone_there or not self._store.get(self._session, [place]):
                    return place
        return None

    def _born_of(self, parent: Position, merged: Position | None) -> list[int]:
        """Return the segments of the session that grow out of a place, or are the merge of two."""
        if self._tree.empty:
            return []
        if self._children is None:
            self._children = {}
            for one in list(self._tree.segments):
                self._note_child(one.segment)
        return self._children.get((parent, merged), [])

    def _note_child(self, number: int) -> None:
        if self._children is not None:
            segment = self._tree.segment(number)
            merged = None if segment.merged is None else self._tree.real(segment.merged)
            known = self._children.setdefault((self._tree.real(segment.parent), merged), [])
            if number not in known:
                known.append(number)
