"""The mapping from the positions of a file to those of a session: known ones are found, others are added."""

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
from shared_core.sharing.format import MAX_NUMBER, FileRef, LineError, VectorValue
from shared_core.store import Store

PAGE = 500
"""Messages written at a time."""


class SessionTree:
    """Adds positions to a session, inside a transaction of the store.

    Args:
        store: the store that holds the session.
        session: the session's key.

    Attributes:
        empty: whether the session never held anything.
        root: the position before its first message.
        last_seq: the sequence number of its newest message when the import began.
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
        room = sum(span.upto - span.start + 1 for span in self._missing_from(merged, parent))
        base = parent.depth + room + 1
        if base > MAX_NUMBER:
            raise LineError("has too many positions")
        number = self._count
        self._count += 1
        self._segments[number] = self._changed[number] = Segment(number, parent, base, merged, base, turn_shift)
        return Position(number, base)

    def _missing_from(self, merged: Position, parent: Position) -> list[Span]:
        return walk(merged, self.segment).without(walk(parent, self.segment))

    def stretches(self, first: Position, last: Position) -> list[Stretch]:
        """Return the stretches from one position to another along first parents.

        Raises:
            LineError: `first` is not an ancestor of `last`.
        """
        found: list[Stretch] = []
        while first.segment != last.segment:
            segment = self.segment(last.segment)
            if segment.parent is None:
                raise LineError("covers positions that are not on one line")
            found.insert(0, Stretch(last.segment, segment.start, last.depth))
            last = segment.parent
        if first.depth > last.depth:
            raise LineError("covers positions that are not on one line")
        return [part for part in (Stretch(last.segment, first.depth, last.depth), *found) if part.start <= part.upto]

    # Messages

    def newest_turn(self, position: Position) -> Newest:
        """Return the turn of the newest user message at or before a position, with its number there."""
        segment = self.segment(position.segment)
        if position.depth == segment.tip and position.segment in self._turns:
            return self._turns[position.segment]
        self.flush()
        for span in reversed(walk(position, self.segment).spans):
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


MAX_REMEMBERED = 4_096
"""The number of recent messages whose positions are kept in memory. Older ones are looked up in the store."""

MAX_EMPTY = 2**24
"""The number of empty positions that a session of a file may have. It bounds what one short line can create."""


class _EmptyRun(NamedTuple):
    """Consecutive positions of the file that hold no message: empty ones, or one merge.

    `number` is that of the first position, `size` their count. A merge has two parents, any other run has one.
    """

    number: int
    size: int
    parents: tuple[FileRef | None, ...]
    fork: bool = False
    turn_shift: int = 0

    @property
    def merge(self) -> bool:
        return len(self.parents) == 2


class _CreatedRun(NamedTuple):
    """The part of a run that was created here: from `number` to its end, beginning at the position `first`."""

    number: int
    first: Position


class PositionMap:
    """Finds the positions of one session of a file in a session of the store.

    Args:
        store: the store that holds the session.
        session: the session's key.
        tree: adds positions to the same session.
        renamed: id in the file -> id here.
    """

    def __init__(self, store: Store, session: int, tree: SessionTree, renamed: dict[str, str]) -> None:
        self._store = store
        self._session = session
        self._tree = tree
        self._renamed = renamed
        self._seen = bytearray(tree.last_seq + 1)
        self._remembered: dict[str, Position] = {}
        self._skipped: dict[str, int] = {}
        self._runs: list[_EmptyRun] = []
        self._found: dict[int, Position] = {}
        self._created: dict[int, _CreatedRun] = {}
        self._used: set[Position] = set()
        self._numbers = 0
        self._forgotten_positions: set[Position] = set()
        self._children: dict[tuple[Position, Position | None], list[int]] | None = None

    # What the file holds

    def has_id(self, id_: str) -> bool:
        """Return whether an earlier line had this id, as far as that is still in memory."""
        return id_ in self._remembered or id_ in self._skipped

    def is_in_file(self, record: Record) -> bool:
        """Return whether an earlier line was this message."""
        return record.seq > self._tree.last_seq or bool(self._seen[record.seq])

    def mark_known(self, id_: str, record: Record) -> None:
        """Note that a message of the file is already stored."""
        self._seen[record.seq] = 1
        self.remember(id_, record.position)

    def remember(self, id_: str, position: Position) -> None:
        """Note the position of a message of the file."""
        self._remembered[id_] = position
        while len(self._remembered) > MAX_REMEMBERED:
            self._remembered.pop(next(iter(self._remembered)))

    def add_gone(self, count: int, parent: FileRef | None, *, fork: bool, number: int | None = None) -> None:
        """Note empty positions. They are created when something follows them."""
        self._add_run(_EmptyRun(self._numbers, count, (parent,), fork), number)

    def add_merge(self, parents: Sequence[FileRef | None], turn_shift: int, number: int) -> None:
        """Note a merge."""
        self._add_run(_EmptyRun(self._numbers, 1, tuple(parents), True, turn_shift), number)

    def add_skipped(self, id_: str, parent: FileRef | None, *, fork: bool) -> None:
        """Note a message that must not be stored, so that its position stays empty."""
        self._skipped[id_] = self._numbers
        self.add_gone(1, parent, fork=fork)

    def add_forgotten(self, records: Sequence[Record]) -> None:
        """Note messages that were forgotten in the store the file comes from: the file has empty positions for them."""
        self._forgotten_positions.update(record.position for record in records)

    def _add_run(self, run: _EmptyRun, number: int | None) -> None:
        if number is not None and number != run.number:
            raise LineError(f"place: the next number is {run.number}, not {number}")
        if run.number + run.size > MAX_EMPTY:
            raise LineError("has too many positions without a message")
        for parent in run.parents:
            self.check(parent)
        self._runs.append(run)
        self._numbers += run.size
        if self._tree.empty:
            self.position(run.number)

    def check(self, ref: FileRef | None) -> None:
        """Raise `LineError` if no earlier line has this position. Nothing is created."""
        if isinstance(ref, int):
            self._run_of(ref)
        elif ref is not None and ref not in self._skipped:
            self._message_position(ref)

    def _run_of(self, number: int) -> _EmptyRun:
        if number >= self._numbers:
            raise LineError(f"refers to position {number}, which no earlier line has")
        return self._runs[bisect_right(self._runs, number, key=lambda run: run.number) - 1]

    # Finding

    def position(self, ref: FileRef | None) -> Position:
        """Return the position in the session that a reference of the file means. Empty positions are created if needed.

        The walk uses a list instead of recursion, because runs may follow each other thousands of times.

        Raises:
            LineError: no earlier line has it.
        """
        waiting = [ref]
        while waiting:
            top = self._as_number(waiting[-1])
            if not isinstance(top, int) or self._known_position(top) is not None:
                waiting.pop()
                continue
            run = self._run_of(top)
            before = [one for one in map(self._as_number, run.parents) if isinstance(one, int)]
            missing = [one for one in before if self._known_position(one) is None]
            if missing:
                waiting += missing
            elif run.merge:
                self._found[top] = self._find_or_merge(run)
            else:
                self._create(run)
        return self._resolved(ref)

    def is_at(self, ref: FileRef | None, position: Position) -> bool:
        """Return whether a reference of the file may mean a position. Empty positions match wherever they can be."""
        waiting, matched = [(ref, position)], dict[int, Position]()
        while waiting:
            what, here = waiting.pop()
            number = self._as_number(what)
            if not isinstance(number, int) or self._known_position(number) is not None or number in matched:
                if (matched[number] if isinstance(number, int) and number in matched else self._resolved(what)) != here:
                    return False
                continue
            run, segment = self._run_of(number), self._tree.segment(here.segment)
            if here == self._tree.root or run.merge != (here.depth == segment.base):
                return False
            matched[number] = here
            first = run.parents[0] if number == run.number else number - 1
            waiting.append((first, self._tree.before(here)))
            if run.merge:
                waiting.append((run.parents[1], self._tree.normalized(segment.merged)))
        self._found |= matched
        self._used.update(matched.values())
        return True

    def _as_number(self, ref: FileRef | None) -> FileRef | None:
        return self._skipped.get(ref, ref) if isinstance(ref, str) else ref

    def _resolved(self, ref: FileRef | None) -> Position:
        ref = self._as_number(ref)
        if ref is None:
            return self._tree.root
        if isinstance(ref, str):
            return self._message_position(ref)
        known = self._known_position(ref)
        assert known is not None
        return known

    def _known_position(self, number: int) -> Position | None:
        if number in self._found:
            return self._found[number]
        made = self._created.get(self._run_of(number).number)
        if made is None or number < made.number:
            return None
        return made.first._replace(depth=made.first.depth + number - made.number)

    def _message_position(self, id_: str) -> Position:
        if id_ not in self._remembered:
            self._tree.flush()
            records = self._store.get(self._session, [self._renamed.get(id_, id_)])
            if not records or not self.is_in_file(records[0]):
                raise LineError(f"refers to the message {id_!r}, which no earlier line has")
            self.remember(id_, records[0].position)
        return self._remembered[id_]

    # Creating

    def _create(self, run: _EmptyRun) -> None:
        """Find or create the positions of a run."""
        position = self._resolved(run.parents[0])
        for number in range(run.number, run.number + run.size):
            found = self._found.get(number) or self._empty_child(position)
            if found is None:
                first = self._tree.next_position(position, fork=run.fork and number == run.number)
                self._tree.extend(first.segment, first.depth + run.number + run.size - 1 - number)
                self._created[run.number] = _CreatedRun(number, first)
                self._add_child(first.segment)
                return
            self._found[number] = position = found
            self._used.add(found)

    def _find_or_merge(self, run: _EmptyRun) -> Position:
        parent, merged = map(self._resolved, run.parents)
        for number in self._segments_from(parent, merged):
            segment = self._tree.segment(number)
            known = Position(number, segment.start)
            if known not in self._used:
                self._used.add(known)
                return known
        made = self._tree.merge(parent, merged, run.turn_shift)
        self._add_child(made.segment)
        return made

    def _empty_child(self, before: Position) -> Position | None:
        """Return an existing position after another one that is empty, or whose message the file lists as forgotten."""
        if self._tree.empty:
            return None
        starts = [Position(one, self._tree.segment(one).start) for one in self._segments_from(before, None)]
        for position in [before._replace(depth=before.depth + 1), *starts]:
            if position.depth <= self._tree.segment(position.segment).tip and position not in self._used:
                self._tree.flush()
                if position in self._forgotten_positions or not self._store.get(self._session, [position]):
                    return position
        return None

    def _segments_from(self, parent: Position, merged: Position | None) -> list[int]:
        """Return the segments of the session that begin after a position, or with the merge of two positions."""
        if self._tree.empty:
            return []
        if self._children is None:
            self._children = {}
            for one in list(self._tree.segments):
                self._add_child(one.segment)
        return self._children.get((parent, merged), [])

    def _add_child(self, number: int) -> None:
        if self._children is not None:
            segment = self._tree.segment(number)
            merged = None if segment.merged is None else self._tree.normalized(segment.merged)
            known = self._children.setdefault((self._tree.normalized(segment.parent), merged), [])
            if number not in known:
                known.append(number)
