"""Match a history that is a whole conversation: find the line that says just that, and what it lacks."""

from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

from shared_core.messages import Message
from shared_core.paths import beginning
from shared_core.provenance import families
from shared_core.recognition import Sent, chain_of, says_the_same, without_prompts
from shared_core.records import Position, Record
from shared_core.session import LiveSession
from shared_core.system_prompt import is_prompt

FAMILIES = 64
"""For how many messages copies are looked up at a time."""

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

    Args:
        live: the session.
        new_id: returns the id of a copy.
        added: finds the stored message that says the same right after another one, as `add` stored it.
        sent: the history, without its system prompt.
    """

    live: LiveSession
    new_id: Callable[[], str]
    added: Callable[[Record, Message], Record | None]
    sent: Sequence[Sent]
    _stored: "_Stored | None" = None

    def line(self, before: Record | None, first: int | None) -> Line:
        """Return the line of the history.

        Args:
            before: the stored message that the history continues. None: it begins the conversation.
            first: the index of the first message that is on the line; it may stand anywhere, and what the history says
                before it is not stored. None: the whole history is on the line.
        """
        if first is None:
            return self._line(before, 0, [])
        stored = self._stored_from(0)
        ids = [next((record.message.id for record in stored.at(index)), None) for index in range(first)]
        anchor = next((found for one in self.sent[first:] if (found := self._anchor(one, before)) is not None), None)
        if anchor is not None:
            return self._line(self._before(anchor), first, ids)
        new = self._new(first, set())  # what the history lacks stands before all of it
        return Line(None, None, new.messages, (*ids, *new.ids), new.copied)

    def _line(self, end: Record | None, first: int, ids: list[str | None]) -> Line:
        """Return the line of the history from a message on; `end` is the one before it on the line."""
        ahead = _Ahead(self.live)
        for index in range(first, len(self.sent)):
            found = ahead.next(end)
            if found is None or not _is_form_of(found, self.sent[index]):
                found = self._next(end, index)
            if found is not None:
                end = found
                ids.append(found.message.id)
            elif self._is_twin(end, index) or self._stored_from(index).is_forgotten(index):
                ids.append(None)
            else:
                known = {one.message.id for one in self.sent[first:index]}
                new = self._new(index, known)
                return Line(self._at(end), _turn_of(end), new.messages, (*ids, *new.ids), new.copied)
        return Line(self._at(end), _turn_of(end), (), tuple(ids), {})

    def _stored_from(self, index: int) -> "_Stored":
        """Return what is stored of the history; those before the first one that is asked for are on the line."""
        if self._stored is None:
            self._stored = _Stored(self.live, self.sent, index)
        return self._stored

    # Where it stands

    def _next(self, end: Record | None, index: int) -> Record | None:
        """Return a message of the history as it is stored directly after another one; None: it is not stored there."""
        stored = self._stored_from(index)
        found = self._directly_after(end, stored.at(index))
        if found is None or not self.live.path.covers(found.position):
            found = self._directly_after(end, stored.copies(index)) or found
        if found is None and end is not None and not stored.at(index) and not stored.is_forgotten(index):
            found = self.added(end, self.sent[index].message)
            return found if found is not None and found.message.id not in stored.known else None
        return found

    def _directly_after(self, end: Record | None, records: Iterable[Record]) -> Record | None:
        return self._best([record for record in records if self._follows(end, record)])

    def _best(self, records: Sequence[Record]) -> Record | None:
        """Return the message that is on the path that is checked out, else the newest; None: there is none."""
        return max(records, key=lambda one: (self.live.path.covers(one.position), one.seq), default=None)

    def _follows(self, end: Record | None, record: Record) -> bool:
        at = record.position
        if end is not None and end.position == Position(at.segment, at.depth - 1):
            return True
        if end is not None and not self.live.path_to(at).covers(end.position):
            return False
        before = self._before(record)
        return (before and before.position) == (end and end.position)

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

    def _is_twin(self, end: Record | None, index: int) -> bool:
        """Return whether a message is on the line already, because the history holds it twice."""
        if end is None:
            return False
        path = self.live.path_to(end.position)
        return any(path.covers(record.position) for record in self._stored_from(index).copies(index))

    def _anchor(self, one: Sent, before: Record | None) -> Record | None:
        """Return the stored form of a message that may stand anywhere: on the line of `before`, if it can be."""
        own = self._stored_from(0).known.get(one.message.id or "")
        if own is None or self.live.key is None:
            return None
        found = families(self.live.store, self.live.key, [own])[own.message.id or ""]
        if before is not None:
            found = [record for record in found if self.live.path_to(record.position).covers(before.position)] or found
        return self._best(found)

    def _at(self, end: Record | None) -> Position | None:
        if end is not None:
            return end.position
        # Nothing of the history stands anywhere. A line without what is said here begins after its system prompt.
        first, path = _Ahead(self.live).next(None), self.live.path
        return path.at(path.index_of(first.position) - 1) if first is not None else None

    # What is new

    def _new(self, first: int, before: Set[str | None]) -> "_New":
        """Return what is to be stored for the history from a message on; `before` are the ids before it."""
        messages: list[Message] = []
        copied: dict[str, Record] = {}
        ids: list[str | None] = []
        known = set(before) - {None}
        stored = self._stored_from(first)
        for index in range(first, len(self.sent)):
            message = self.sent[index].message
            if message.id in known:  # the history holds it twice
                ids.append(None)
                continue
            known |= {message.id} - {None}
            original = next(iter(stored.at(index)), None)
            id_ = stored.ids_of(index)[0] if original is None else self.new_id()
            messages.append((original.message if original else message).replace(id=id_, turn_id=None))
            # An edited message has what it was as its source: who erases that erases all that it ever said.
            source = original or stored.known.get(message.id or "")
            if source is not None:
                copied[id_] = source
            ids.append(id_)
        return _New(tuple(messages), tuple(ids), copied)


@dataclass
class _Ahead:
    """Reads the path that is checked out, message by message, and more at a time the longer it is read."""

    live: LiveSession
    _read: dict[Position, Record] = field(default_factory=dict)
    _upto: int = -1
    _size: int = FIRST_LOOK

    def next(self, after: Record | None) -> Record | None:
        """Return the message after another one, but no system prompt; `after` None: the first. None: there is none."""
        path = self.live.path
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
        return None


class _Stored:
    """What is stored of a history from one of its messages on, wherever it stands.

    Args:
        live: the session.
        sent: the history.
        first: the index of the first message that is looked up.
    """

    def __init__(self, live: LiveSession, sent: Sequence[Sent], first: int) -> None:
        self._live = live
        self._sent = sent
        self._first = first
        self._families: dict[str, list[Record]] = {}

    @cached_property
    def known(self) -> dict[str, Record]:
        """The stored messages whose id is an id or a digest of the history."""
        sent = self._sent[self._first :]
        known = self._get({id_: None for one in sent for id_ in (one.message.id, one.chain) if id_ is not None})
        edited = [one.message for one in sent if one.message.id in known]
        edited = [message for message in edited if not says_the_same(known[message.id or ""].message, message)]
        return known | self._get([_edited_id(message) for message in edited])

    def _get(self, ids: Iterable[str]) -> dict[str, Record]:
        ids = list(ids)
        if self._live.key is None or not ids:
            return {}
        return {record.message.id or "": record for record in self._live.store.get(self._live.key, ids)}

    def ids_of(self, index: int) -> list[str]:
        """Return the ids that a message of the history may be stored under, the one for a new message first."""
        message, chain = self._sent[index]
        if message.id is None:
            return [chain]
        own = self.known.get(message.id)
        return [message.id] if own is None or says_the_same(own.message, message) else [_edited_id(message), chain]

    def at(self, index: int) -> list[Record]:
        """Return the stored messages that have an id of a message of the history and say the same."""
        return self._all[index]

    @cached_property
    def _all(self) -> list[list[Record]]:
        found: list[list[Record]] = [[] for _ in range(self._first)]
        for index in range(self._first, len(self._sent)):
            message, chain = self._sent[index]
            records = [self.known[id_] for id_ in dict.fromkeys((*self.ids_of(index), chain)) if id_ in self.known]
            found.append([record for record in records if says_the_same(record.message, message)])
        return found

    def copies(self, index: int) -> list[Record]:
        """Return those messages, and all that were made from the same ones and say the same."""
        stored = self.at(index)
        if self._live.key is not None and any(record.message.id not in self._families for record in stored):
            page = [record for records in self._all[index : index + FAMILIES] for record in records]
            self._families |= families(self._live.store, self._live.key, page)
        family = [one for record in stored for one in self._families[record.message.id or ""]]
        return [one for one in family if says_the_same(one.message, self._sent[index].message)]

    def is_forgotten(self, index: int) -> bool:
        """Return whether a message of the history was forgotten, and the history goes on with others that are stored.

        At the end of a history it makes no difference: what was forgotten is not stored again.
        """
        return index < self._newest and not self.at(index) and not self._forgotten.isdisjoint(self.ids_of(index))

    @cached_property
    def _newest(self) -> int:
        """The index of the newest message that is stored; -1: there is none."""
        return max((index for index, records in enumerate(self._all) if records), default=-1)

    @cached_property
    def _forgotten(self) -> set[str]:
        """The ids of the history that were forgotten."""
        if self._live.key is None:
            return set()
        indexes = range(self._first, self._newest)
        ids = {id_ for index in indexes if not self._all[index] for id_ in self.ids_of(index)}
        return self._live.store.are_forgotten(self._live.key, ids - self.known.keys())


class _New(NamedTuple):
    """Messages to store, the id of each message of the history, and what the copies among them are made from."""

    messages: tuple[Message, ...]
    ids: tuple[str | None, ...]
    copied: Mapping[str, Record]


def _is_form_of(record: Record, one: Sent) -> bool:
    """Return whether a stored message is one of the history: itself, a copy, or as it was edited."""
    message, chain = one
    if not says_the_same(record.message, message):
        return False
    if message.id is None:
        return record.message.id == chain
    return message.id in (record.message.id, record.picked_from) or record.message.id in (chain, _edited_id(message))


def _edited_id(message: Message) -> str:
    """Return the id of a message whose own id is stored with another text; equal for equal messages, anywhere."""
    return chain_of(f"edited {message.id}", message)


def _turn_of(end: Record | None) -> str | None:
    return end.message.turn_id if end is not None else None
