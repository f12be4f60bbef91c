"""Match a history that is a whole conversation: find the line that says just that, and what it lacks."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple

from shared_core.history.normal_form import says_the_same
from shared_core.history.recognition import asked_at, families, without_prompts
from shared_core.history.stored_forms import StoredForms, is_form_of
from shared_core.messages import Message
from shared_core.records import Position, Record
from shared_core.session.live import LiveSession
from shared_core.session.paths import beginning
from shared_core.session.system_prompt import is_prompt

FIRST_LOOK = 4
"""How many messages are read first, next to another one on its path; then twice as many, and so on."""

LONGEST_LOOK = 512
"""How many messages are read at a time, at most."""


@dataclass(frozen=True, slots=True)
class Line:
    """The line of a history.

    Attributes:
        at: the position after which the new messages come. None: the end of what is checked out.
        turn: the turn of the message there. None: there is none.
        new: the messages to store, with ids.
        ids: the id of each message of the history. None: it is not stored.
        copied: for the id of each new message that is stored elsewhere, what it is a copy of, or an edited form.
    """

    at: Position | None
    turn: str | None
    new: tuple[Message, ...]
    ids: tuple[str | None, ...]
    copied: Mapping[str, Record]


@dataclass
class WholeHistory:
    """Finds the line of one history.

    A message is on the line if it comes directly after the one before it in the history: nothing that is still stored,
    except a system prompt, stands between them. What stands elsewhere is copied: a copy is known by its original, so
    that the line is found again by the ids that the client knows.

    Several lines may say the beginning of the history. The one that says most of it is continued; of equals, the one
    that is checked out. What is checked out is read first, because it usually says all that is stored of the history;
    copies are looked up only where it does not.

    Args:
        live: the session.
        new_id: returns the id of a copy.
        added: finds the stored message that says the same right after another one, as `add` stored it.
        sent: the history, without its system prompt.
    """

    live: LiveSession
    new_id: Callable[[], str]
    added: Callable[[Record, Message], Record | None]
    sent: Sequence[Message]
    _start: Record | None = field(default=None, init=False)
    _looked_up: StoredForms | None = field(default=None, init=False)

    def line(self, before: Record | None, first: int | None) -> Line:
        """Return the line of the history.

        Args:
            before: the stored message that the history continues. None: it begins the conversation.
            first: the index of the first message that is on the line; it may stand anywhere, and what the history says
                before it is not stored. None: the whole history is on the line.
        """
        if first is None:
            return self._line(before)
        left, rest = self.sent[:first], replace(self, sent=self.sent[first:])
        line = rest._line_anywhere(before)
        stored = StoredForms(self.live, left)
        ids = [next((record.message.id for record in stored.at(index)), None) for index in range(first)]
        return replace(line, ids=(*ids, *line.ids))

    def _line_anywhere(self, before: Record | None) -> Line:
        """Return the line of a history that may begin anywhere: where the first of its messages that is stored stands.

        If none is stored, it continues what is checked out.
        """
        self._look_up([])
        anchor = next((found for one in self.sent if (found := self._anchor(one, before)) is not None), None)
        if anchor is not None:
            return self._line(self._before(anchor))
        new = self._new(0)
        return Line(None, None, new.messages, new.ids, new.copied)

    def _line(self, start: Record | None) -> Line:
        """Return the line of the history; `start` is the message before it on the line."""
        self._start = start
        end, index = self._along_what_is_checked_out()
        goes_on = index < len(self.sent) and self._may_go_on_elsewhere(index)
        if goes_on or self._is_guessed(end):
            # Of two readings, the one that recognizes more of the history is right.
            end, index = max((end, index), self._along_all_lines(), key=lambda one: one[0].recognized())
        new = self._new(index)
        return Line(self._at(end), _turn_of(end.record), new.messages, (*end.ids(), *new.ids), new.copied)

    def _is_guessed(self, end: "_End") -> bool:
        """Return whether messages are left out only for the places where they stand, and may stand on another line."""
        without = (message.id is None for message, id_ in zip(self.sent, end.ids(), strict=False) if id_ is None)
        return any(without) and self.live.key is not None and len(self.live.store.branches(self.live.key)) > 1

    def _look_up(self, matched: Sequence[Record]) -> None:
        """Look up what is stored of the history; `matched` are the stored forms of its first messages."""
        if self._looked_up is None:
            self._looked_up = StoredForms(self.live, self.sent, matched)

    @property
    def _stored(self) -> StoredForms:
        assert self._looked_up is not None
        return self._looked_up

    # How far a line says what the history says

    def _may_go_on_elsewhere(self, index: int) -> bool:
        """Return whether a message of the history is stored, and follows what the history says before it."""
        forms, message = self._stored.copies(index), self.sent[index]
        if message.id is not None or not index:
            return bool(forms)
        before = (self._before(form) for form in forms)
        return any(one is not None and says_the_same(one.message, self.sent[index - 1]) for one in before)

    def _along_what_is_checked_out(self) -> tuple["_End", int]:
        """Return up to where the path that is checked out says the history, and the index of the message after that."""
        ahead, end, matched = _Ahead(self.live), _End(self._start), list[Record]()
        left = 0
        for index, one in enumerate(self.sent):
            found = ahead.next(end.record)
            left = left or (
                self._left_out_at(index, found, ahead.gap - end.left_out, matched) if self._start is None else 0
            )
            if left or found is None or not is_form_of(found, one):
                self._look_up(matched)
                found = None if left else self._added_after(end, index)
            if found is not None:
                end = end.then(found)
                matched.append(found)
            elif left or self._is_left_out(index):
                end, left = end.without_the_next(), max(0, left - 1)
            else:
                return end, index
        return end, len(self.sent)

    def _left_out_at(self, index: int, found: Record | None, gap: int, matched: Sequence[Record]) -> int:
        """Return how many messages of the history, from one on, were forgotten.

        Those without ids are told by where they stand: `gap` messages were forgotten before `found`, or at the end.
        """
        message, old = self.sent[index], asked_at(self.sent) - index
        if message.id is not None or (not gap and found is not None and is_form_of(found, message)):
            return 0
        if not index:
            gap = min(forgotten_first(self.live, gap), old if found is None else len(self.sent))
        last = min(gap, len(self.sent) - 1 - index) if found is not None else -1
        for count in range(last, -1, -1):
            if found is not None and is_form_of(found, self.sent[index + count]):
                return count
        self._look_up(matched)
        if found is not None and self._may_go_on_elsewhere(index):
            return 0
        return min(gap, max(old, 0)) if len(self.sent) - index >= gap else 0  # it goes back to before `found`

    def _along_all_lines(self) -> tuple["_End", int]:
        """Return up to where any line says the history, and the index of the message after that."""
        ends = [_End(self._start)]
        for index in range(len(self.sent)):
            longer = self._longer(ends, index)
            if not longer and not self._is_left_out(index) and not self._may_be_forgotten(index):
                return self._best_end(ends), index
            ends = longer or [end.without_the_next() for end in ends]
        end, index = self._best_end(ends), len(self.sent)
        while end.before is not None and end.id is None and self._may_be_forgotten(index - 1):
            end, index = end.before, index - 1  # nothing after it says that it was forgotten
        return end, index

    def _may_be_forgotten(self, index: int) -> bool:
        """Return whether a message without an id may be left out, if what follows it says so."""
        return self.sent[index].id is None and self.live.epoch > 0

    def _longer(self, ends: Sequence["_End"], index: int) -> list["_End"]:
        """Return the ends of the lines on which a message of the history comes directly after one of some ends."""
        at = {end.position: end for end in ends}
        pairs = [(self._end_before(record, at), record) for record in self._stored.copies(index)]
        longer = [end.then(record) for end, record in pairs if end is not None and self._has_room(end, record, index)]
        return longer or [end.then(found) for end in ends if (found := self._added_after(end, index)) is not None]

    def _has_room(self, end: "_End", record: Record, index: int) -> bool:
        """Return whether as many messages were forgotten before a message as the history has there, at least."""
        left = end.left_out if index and self.sent[index - 1].id is None else 0
        if not left:
            return True
        path = self.live.path_to(record.position)
        last = path.index_of(end.position) if end.position is not None else -1
        return left < path.index_of(record.position) - last

    def _end_before(self, record: Record, at: Mapping[Position | None, "_End"]) -> "_End | None":
        """Return the end that a message comes directly after; `at` holds the ends by their positions."""
        segment, depth = record.position
        neighbour = at.get(Position(segment, depth - 1))
        if neighbour is not None:
            return neighbour
        path = self.live.path_to(record.position)
        if not any(position is None or path.covers(position) for position in at):
            return None
        before = self._before(record)
        return at.get(before.position if before is not None else None)

    def _added_after(self, end: "_End", index: int) -> Record | None:
        """Return a message that is stored right after an end, but not as any of the history: `add` stored it."""
        if end.record is None or self._stored.at(index) or self._stored.is_forgotten(index):
            return None
        found = self.added(end.record, self.sent[index])
        if found is None or self.sent[index].id is None:
            return found
        if found.picked_from is not None or found.message.id in self._stored.known:
            return None  # a copy, or known by its id: it is another message, which says the same
        return found

    def _is_left_out(self, index: int) -> bool:
        """Return whether a message is not to be on the line: it was forgotten, or the history holds it twice."""
        return self._stored.is_forgotten(index) or self._is_twin(index)

    def _is_twin(self, index: int) -> bool:
        """Return whether a message stands in the history before, or on the line that the history continues."""
        if index in self._twins:
            return True
        if self._start is None or self.sent[index].id is None:
            return False
        path = self.live.path_to(self._start.position)
        return any(path.covers(record.position) for record in self._stored.copies(index))

    @cached_property
    def _twins(self) -> set[int]:
        """The indexes of the messages whose id is that of an earlier one."""
        first: dict[str | None, int] = {}
        return {
            index
            for index, message in enumerate(self.sent)
            if message.id is not None and first.setdefault(message.id, index) != index
        }

    # Where it stands

    def _before(self, record: Record) -> Record | None:
        """Return the newest message before another one on its path, but no system prompt; None: it is the first."""
        assert self.live.key is not None
        path = self.live.path_to(record.position)
        upto = path.at(path.index_of(record.position) - 1)
        for span in reversed(beginning(path, upto)):
            depth, limit = span.upto, FIRST_LOOK
            while depth >= span.start:
                records = self.live.store.newest(self.live.key, Position(span.segment, depth), limit)
                records = [one for one in records if one.position.depth >= span.start]
                talk = without_prompts(records)
                if talk:
                    return talk[0]
                if not records:
                    break
                depth, limit = records[-1].position.depth - 1, min(2 * limit, LONGEST_LOOK)
        return None

    def _best(self, records: Sequence[Record]) -> Record | None:
        """Return the message that is on the path that is checked out, else the newest; None: there is none."""
        return max(records, key=lambda one: (self.live.path.covers(one.position), one.seq), default=None)

    def _best_end(self, ends: Sequence["_End"]) -> "_End":
        best = self._best([end.record for end in ends if end.record is not None])
        return next(end for end in ends if best is None or end.record is best)

    def _anchor(self, one: Message, before: Record | None) -> Record | None:
        """Return the stored form of a message that may stand anywhere: on the line of `before`, if it can be."""
        own = self._stored.known.get(one.id or "")
        if own is None or self.live.key is None:
            return None
        found = families(self.live.store, self.live.key, [own])[own.message.id or ""]
        if before is not None:
            found = [record for record in found if self.live.path_to(record.position).covers(before.position)] or found
        return self._best(found)

    def _at(self, end: "_End") -> Position | None:
        ahead, path = _Ahead(self.live), self.live.path
        if end.record is not None and end.left_out and path.covers(end.record.position):
            # A new line holds the gap of what was forgotten, too, so that it tells the same when it is matched again.
            ahead.next(end.record)
            return path.at(path.index_of(end.record.position) + min(ahead.gap, end.left_out))
        if end.record is not None:
            return end.position
        # Nothing of the history stands anywhere. A line without what is said here begins after its system prompt.
        first = ahead.next(None)
        return path.at(path.index_of(first.position) - 1) if first is not None else None

    # What is new

    def _new(self, first: int) -> "_New":
        """Return what is to be stored for the history from a message on."""
        messages: list[Message] = []
        copied: dict[str, Record] = {}
        ids: list[str | None] = []
        for index in range(first, len(self.sent)):
            if self._is_twin(index):
                ids.append(None)
                continue
            message = self.sent[index]
            original = next(iter(self._stored.at(index)), None)
            # An edited message has what it was as its source: who erases that erases all that it ever said.
            source = original or self._stored.known.get(message.id or "")
            id_ = self.new_id() if source is not None or message.id is None else message.id
            messages.append((original.message if original else message).replace(id=id_, turn_id=None))
            if source is not None:
                copied[id_] = source
            ids.append(id_)
        return _New(tuple(messages), tuple(ids), copied)


class _End(NamedTuple):
    """Where a line ends that says the beginning of the history.

    Attributes:
        record: the newest message there. None: nothing is said yet.
        id: the id of the newest message of the history, as it is stored there. None: it is left out.
        before: where the line ended before that message. None: the history begins there.
    """

    record: Record | None
    id: str | None = None
    before: "_End | None" = None

    @property
    def position(self) -> Position | None:
        return self.record.position if self.record is not None else None

    @property
    def left_out(self) -> int:
        """How many messages of the history are left out since the newest one there."""
        count, end = 0, self
        while end.before is not None and end.id is None:
            count, end = count + 1, end.before
        return count

    def recognized(self) -> int:
        """Return how many messages of the history are known."""
        return sum(id_ is not None for id_ in self.ids())

    def then(self, record: Record) -> "_End":
        """Return the end after the next message of the history."""
        return _End(record, record.message.id, self)

    def without_the_next(self) -> "_End":
        """Return the end after the next message of the history, which is left out."""
        return _End(self.record, None, self)

    def ids(self) -> list[str | None]:
        """Return the ids of all messages of the history up to here."""
        ids: list[str | None] = []
        end = self
        while end.before is not None:
            ids.append(end.id)
            end = end.before
        return ids[::-1]


@dataclass
class _Ahead:
    """Reads the path that is checked out, message by message, and more at a time the longer it is read.

    Attributes:
        gap: how many messages were forgotten before the one that was read last.
    """

    live: LiveSession
    gap: int = field(default=0, init=False)
    _read: dict[Position, Record] = field(default_factory=dict)
    _upto: int = -1
    _size: int = FIRST_LOOK

    def next(self, after: Record | None) -> Record | None:
        """Return the message after another one, but no system prompt; `after` None: the first. None: there is none."""
        path, self.gap = self.live.path, 0
        if self.live.key is None or (after is not None and not path.covers(after.position)):
            return None
        for index in range(path.index_of(after.position) + 1 if after else 0, path.spans[-1].last + 1):
            if index > self._upto:
                self._upto = min(index + self._size, path.spans[-1].last + 1) - 1
                self._size = min(2 * self._size, LONGEST_LOOK)
                positions = [path.at(at) for at in range(index, self._upto + 1)]
                self._read = {one.position: one for one in self.live.store.get(self.live.key, positions)}
            record = self._read.get(path.at(index))
            if record is not None and not is_prompt(record.message):
                return record
            self.gap += record is None
        return None


class _New(NamedTuple):
    """Messages to store, the id of each message of the history, and what the copies among them are made from."""

    messages: tuple[Message, ...]
    ids: tuple[str | None, ...]
    copied: Mapping[str, Record]


def forgotten_first(live: LiveSession, gap: int) -> int:
    """Return how many messages were forgotten before the first one of a session; `gap` says where it stands.

    If the whole session was forgotten, what is said since begins elsewhere.
    """
    if live.key is None or live.epoch <= 0:
        return gap
    return max(gap, live.store.stats(live.key)["forgotten"])


def _turn_of(end: Record | None) -> str | None:
    return end.message.turn_id if end is not None else None
