"""One session of the store, to which an import adds positions and messages."""

import base64
import binascii
import re
from collections.abc import Iterator, Sequence

import numpy as np

from shared_core.messages import Message
from shared_core.records import MAIN, Newest, Position, Record, Restored, Segment, Stretch, VectorRows
from shared_core.session.paths import Span, walk
from shared_core.sharing.ancestors import Ancestors
from shared_core.sharing.format import MAX_NUMBER, LineError, VectorValue
from shared_core.store import Store

PAGE = 500
"""Messages written at a time."""

MAX_CROSSED = 100_000
"""How often the stretches of a session of a file may go on in another branch. An export writes one for each branch."""


class SessionTree:
    """Adds positions to a session, inside a transaction of the store.

    Args:
        store: the store that holds the session.
        session: the session's key.

    Attributes:
        empty: whether the session never held anything.
        root: the position before its first message.
        last_seq: the sequence number of its newest message when the import began.
        ancestors: what leads to each of its positions.
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
        self.ancestors = Ancestors(self.segment)
        self._turns: dict[int, Newest] = {}
        self._turns_before: dict[int, Newest] = {}
        self._answers: dict[int, tuple[int, int, Newest | None]] = {}
        self._crossed = 0
        self._changed: dict[int, Segment] = {}
        self._records: list[Record] = []
        self._covers: list[tuple[Position, Stretch]] = []
        self._vectors: dict[str, list[tuple[Position, str, bytes]]] = {}

    # Reading

    def segment(self, segment: int) -> Segment:
        """Return a segment, including what was added to it here."""
        if segment not in self._segments:
            self._segments[segment] = self.store.segment(self.session, segment)
        return self._segments[segment]

    @property
    def segments(self) -> Iterator[Segment]:
        """All segments, in order of creation."""
        return map(self.segment, range(self._count))

    def is_added(self, record: Record) -> bool:
        """Return whether a message was added here."""
        return record.seq > self.last_seq

    def get(self, ids: Sequence[str]) -> list[Record]:
        """Return the messages with these ids, including those that were added here and written."""
        return self.store.get(self.session, ids)

    def count(self, stretch: Stretch) -> int:
        """Return how many messages a stretch holds."""
        return self.store.count(self.session, [stretch])

    def before(self, position: Position) -> Position:
        """Return the first parent of a position; the root if there is none."""
        segment = self.segment(position.segment)
        if position.depth > segment.start:
            return position._replace(depth=position.depth - 1)
        return self.normalized(segment.parent)

    def normalized(self, position: Position | None) -> Position:
        """Return the same position outside of empty segments: an empty segment ends where its parent ends."""
        while position is not None:
            segment = self.segment(position.segment)
            if position.depth >= segment.start:
                return position
            position = segment.parent
        return self.root

    # Adding

    def next_position(self, position: Position, *, fork: bool) -> Position:
        """Return the position after another one.

        It is in the same segment, or in a new one if it is a fork or if the segment already continues.

        Raises:
            LineError: there are too many positions.
        """
        segment = self.segment(position.segment)
        number = position.segment
        if fork or position.depth != segment.tip:
            number = self._open(position)
        return self.extend(number, position.depth + 1)

    def extend(self, number: int, tip: int) -> Position:
        """Extend a segment to a depth and return its end."""
        if tip > MAX_NUMBER:
            raise LineError("has too many positions")
        self._segments[number] = self._changed[number] = self.segment(number)._replace(tip=tip)
        return Position(number, tip)

    def _open(self, parent: Position) -> int:
        number = self._count
        self._count += 1
        self._segments[number] = self._changed[number] = Segment(number, parent, parent.depth)
        if parent.segment in self._turns and parent.depth == self.segment(parent.segment).tip:
            self._turns[number] = self._turns[parent.segment]
        return number

    def merge(self, parent: Position, merged: Position, turn_shift: int) -> Position:
        """Open a segment that begins with a merge, and return the position of the merge."""
        base = parent.depth + self.ancestors.missing(merged, parent) + 1
        if base > MAX_NUMBER:
            raise LineError("has too many positions")
        number = self._count
        self._count += 1
        self._segments[number] = self._changed[number] = Segment(number, parent, base, merged, base, turn_shift)
        return Position(number, base)

    def stretches(self, first: Position, last: Position) -> list[Stretch]:
        """Return the stretches from one position to another along first parents.

        Raises:
            LineError: `first` is not an ancestor of `last`, or the stretches of the file are too many.
        """
        found: list[Stretch] = []
        while first.segment != last.segment:
            segment = self.segment(last.segment)
            if segment.parent is None:
                raise LineError("covers positions that are not on one line")
            self._crossed += 1
            if self._crossed > MAX_CROSSED:
                raise LineError("covers the positions of too many branches")
            found.append(Stretch(last.segment, segment.start, last.depth))
            last = segment.parent
        if first.depth > last.depth:
            raise LineError("covers positions that are not on one line")
        found.append(Stretch(last.segment, first.depth, last.depth))
        return [part for part in reversed(found) if part.start <= part.upto]

    # Messages

    def newest_turn(self, position: Position) -> Newest:
        """Return the turn of the newest user message at or before a position, with its number there."""
        segment = self.segment(position.segment)
        if position.depth == segment.tip and position.segment in self._turns:
            return self._turns[position.segment]
        self.flush()
        return self._turn_at(position)

    def _turn_at(self, position: Position) -> Newest:
        """Return what `newest_turn` does. Each segment is passed once; what comes before it is noted."""
        here, found, passed = position, self._asked(position), list[int]()
        while found is None:
            passed.append(here.segment)
            found, segment = self._turns_before.get(here.segment), self.segment(here.segment)
            if found is None and segment.merged is not None:
                found = self._turn_on(walk(here, self.segment).spans[:-1])
            elif found is None and segment.parent is None:
                found = Newest(None, -1)
            elif found is None and segment.parent is not None:
                here = segment.parent
                found = self._asked(here)
        self._turns_before.update(dict.fromkeys(passed, found))
        return found

    def _turn_on(self, spans: Sequence[Span]) -> Newest:
        for span in reversed(spans):
            found = self._question(span.stretch)
            if found is not None:
                return Newest(found.message.turn_id, found.turn_no + span.turn_shift)
        return Newest(None, -1)

    def _asked(self, upto: Position) -> Newest | None:
        """Return the turn of the newest user message of a segment down from a position, None if it has none there."""
        number, depth = upto
        low, high, turn = self._answers.get(number, (0, -1, None))
        if low <= depth <= high:
            return turn
        start = self.segment(number).start
        later = depth > high >= low
        found = self._question(Stretch(number, high + 1 if later else start, depth))
        if found is not None:
            low, turn = found.position.depth, Newest(found.message.turn_id, found.turn_no)
        elif not later:
            low, turn = start, None
        self._answers[number] = (low, depth, turn)
        return turn

    def _question(self, stretch: Stretch) -> Record | None:
        """Return the newest user message of a stretch."""
        upto = stretch.upto
        while upto >= stretch.start:
            most = min(PAGE, upto - stretch.start + 1)
            records = self.store.newest(self.session, Position(stretch.segment, upto), most)
            records = [record for record in records if record.position.depth >= stretch.start]
            found = next((record for record in records if record.message.role == "user"), None)
            if found is not None or not records:
                return found
            upto = records[-1].position.depth - 1
        return None

    def put(
        self, message: Message, position: Position, turn: Newest, newest: Newest | None, *,
        counted: tuple[str, int] | None, picked_from: str | None, covers: Sequence[Stretch],
        vectors: Sequence[VectorValue],
    ) -> None:  # fmt: skip
        """Write a message at a position that `next_position` returned.

        Args:
            message: the message, with its id.
            position: where it goes.
            turn: its turn.
            newest: the newest turn from there on. None: not known.
            counted: the name of a token counter and its count. None: not counted.
            picked_from: the id of the message it is a copy of.
            covers: the stretches that it sums up.
            vectors: its vectors.
        """
        self._seq += 1
        counter, tokens = counted if counted is not None else (None, None)
        stored = message if message.turn_id == turn.turn_id else message.replace(turn_id=turn.turn_id)
        self._records.append(Record(stored, position, self._seq, turn.turn_no, counter, tokens, picked_from))
        self._covers += [(position, stretch) for stretch in covers]
        for value in vectors:
            row = (position, value.hash, _vector(value))
            self._vectors.setdefault(value.space, []).append(row)
        if newest is not None:
            self._turns[position.segment] = newest
        if len(self._records) >= PAGE:
            self.flush()

    def flush(self) -> None:
        """Write what was added since the last call."""
        if not self._records and not self._changed:
            return
        grown = sorted(self._changed.values(), key=lambda segment: segment.segment)
        self.store.restore(self.session, Restored(tuple(grown), tuple(self._records), tuple(self._covers)))
        for space, rows in self._vectors.items():
            self.store.keep(self.session, VectorRows(space, rows))
        self._changed, self._records, self._covers, self._vectors = {}, [], [], {}


def _vector(value: VectorValue) -> bytes:
    """Return the bytes of one or more vectors.

    Raises:
        LineError: they are not vectors of the space's dimension.
    """
    found = re.fullmatch(r".+/(\d{1,6})(?:#.*)?", value.space, re.DOTALL)
    try:
        data = base64.b64decode(value.data, validate=True)
    except (binascii.Error, ValueError) as error:
        raise LineError(f"has a vector that is not base64 ({error})") from None
    if found is None or not data or int(found[1]) == 0 or len(data) % (2 * int(found[1])):
        raise LineError(f"has a vector of {len(data)} bytes, which does not fit the space {value.space!r}")
    if not np.isfinite(np.frombuffer(data, dtype="<f2")).all():
        raise LineError("has a vector with a number that is NaN or infinite")
    return data
