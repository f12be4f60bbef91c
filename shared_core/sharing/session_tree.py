"""A session that places are added to just as a file has them: segments and messages, written some at a time."""

import base64
import binascii
import re
from collections.abc import Iterator, Sequence

import numpy as np

from shared_core.messages import Message
from shared_core.records import MAIN, Newest, Position, Record, Restored, Segment, Stretch, VectorRows
from shared_core.sharing.format import MAX_NUMBER, VectorValue, Wrong
from shared_core.store import Store
from shared_core.tree.paths import Span, walk

__all__ = ["SessionTree"]

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
