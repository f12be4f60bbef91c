"""Match a history that is a whole conversation: find the line that says just that, and what it lacks."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

from shared_core.messages import Message
from shared_core.paths import beginning
from shared_core.provenance import families
from shared_core.recognition import Sent, says_the_same, without_prompts
from shared_core.records import ROOT, Position, Record
from shared_core.session import LiveSession
from shared_core.system_prompt import is_prompt

FAMILIES = 64
"""For how many messages copies are looked up at a time."""

FIRST_LOOK = 4
"""How many messages are read first to find the one before another: a system prompt may lie between them."""


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
    _families: dict[str, list[Record]] = field(default_factory=dict)

    def line(self, before: Record | None, since: str | None) -> Line:
        """Return the line of the history.

        Args:
            before: the stored message that the history continues. None: it begins the conversation.
            since: the id of the first message of the history that is not to follow directly on the one before it.
        """
        first = next((n for n, one in enumerate(self.sent) if since is not None and one.message.id == since), None)
        if first is None:
            return self._line(before, 0, [])
        ids = [next((record.message.id for record in records), None) for records in self._stored[:first]]
        anchor = next((found for one in self.sent[first:] if (found := self._anchor(one, before)) is not None), None)
        if anchor is not None:
            return self._line(self._before(anchor), first, ids)
        new = self._new(first, {})  # what the history lacks stands before all of it
        return Line(None, None, new.messages, (*ids, *new.ids), new.copied)

    def _line(self, end: Record | None, first: int, ids: list[str | None]) -> Line:
        """Return the line of the history from a message on; `end` is the one before it on the line."""
        known: dict[str, str] = {}
        for index in range(first, len(self.sent)):
            one = self.sent[index]
            found = self._next(end, index)
            if found is not None:
                end = found
                ids.append(found.message.id)
            elif (twin := self._twin(end, index)) is not None or self._is_forgotten(index):
                ids.append(twin)
            else:
                new = self._new(index, known)
                return Line(self._at(end), _turn_of(end), new.messages, (*ids, *new.ids), new.copied)
            if one.message.id is not None and ids[-1] is not None:
                known[one.message.id] = ids[-1]
        return Line(self._at(end), _turn_of(end), (), tuple(ids), {})

    # What is stored

    @cached_property
    def _known(self) -> dict[str, Record]:
        """The stored messages that have an id or a digest of the history as their id."""
        ids = {id_: None for one in self.sent for id_ in (one.message.id, one.chain) if id_ is not None}
        if self.live.key is None or not ids:
            return {}
        return {record.message.id or "": record for record in self.live.store.get(self.live.key, list(ids))}

    @cached_property
    def _stored(self) -> list[list[Record]]:
        """For each message of the history, the stored messages that have its id or its digest and say the same."""
        found = []
        for message, chain in self.sent:
            own, edited = self._known.get(message.id or ""), self._known.get(chain)
            same = own is not None and says_the_same(own.message, message)
            found.append([record for record in (own if same else None, edited) if record is not None])
        return found

    def _copies(self, index: int) -> list[Record]:
        """Return all stored messages that say the same as one of the history and were made from the same message."""
        stored = self._stored[index]
        if self.live.key is not None and any(record.message.id not in self._families for record in stored):
            page = [record for records in self._stored[index : index + FAMILIES] for record in records]
            self._families |= families(self.live.store, self.live.key, page)
        family = [one for record in stored for one in self._families[record.message.id or ""]]
        return [one for one in family if says_the_same(one.message, self.sent[index].message)]

    def _is_forgotten(self, index: int) -> bool:
        """Return whether a message of the history was forgotten, and the history goes on with others that are stored.

        At the end of a history it makes no difference: what was forgotten is not stored again.
        """
        return index < self._newest and not self._stored[index] and not self._forgotten.isdisjoint(self._ids_of(index))

    @cached_property
    def _newest(self) -> int:
        """The index of the newest message that is stored; -1: there is none."""
        return max((index for index, records in enumerate(self._stored) if records), default=-1)

    @cached_property
    def _forgotten(self) -> frozenset[str]:
        """The ids of the history that were forgotten."""
        if self.live.key is None:
            return frozenset()
        ids = {id_ for index in range(self._newest) if not self._stored[index] for id_ in self._ids_of(index)}
        return frozenset(self.live.store.are_forgotten(self.live.key, ids - self._known.keys()))

    def _ids_of(self, index: int) -> list[str]:
        message, chain = self.sent[index]
        return [chain] if message.id is None else [message.id, chain]

    # Where it stands

    def _next(self, end: Record | None, index: int) -> Record | None:
        """Return a message of the history as it is stored directly after another one; None: it is not stored there."""
        stored = self._stored[index]
        found = self._directly_after(end, stored)
        if found is None or not self.live.path.covers(found.position):
            found = self._directly_after(end, self._copies(index)) or found
        if found is None and not stored and end is not None and not self._is_forgotten(index):
            found = self.added(end, self.sent[index].message)
            return found if found is not None and found.message.id not in self._known else None
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
        path = self.live.path_to(at)
        if end is not None and not path.covers(end.position):
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
                depth, limit = records[-1].position.depth - 1, 2 * limit
        return None

    def _twin(self, end: Record | None, index: int) -> str | None:
        """Return the id of a message that is on the line already, because the history holds it twice."""
        if end is None:
            return None
        path = self.live.path_to(end.position)
        there = (record for record in self._copies(index) if path.covers(record.position))
        return next((record.message.id for record in there), None)

    def _anchor(self, one: Sent, before: Record | None) -> Record | None:
        """Return the stored form of a message that may stand anywhere: on the line of `before`, if it can be."""
        own = self._known.get(one.message.id or "")
        if own is None or self.live.key is None:
            return None
        found = families(self.live.store, self.live.key, [own])[own.message.id or ""]
        if before is not None:
            found = [record for record in found if self.live.path_to(record.position).covers(before.position)] or found
        return self._best(found)

    def _at(self, end: Record | None) -> Position | None:
        if end is not None:
            return end.position
        return Position(self.live.path.spans[0].segment, ROOT.depth) if self._is_said() else None

    def _is_said(self) -> bool:
        """Return whether anything is said on the path that is checked out: a system prompt may stand on it."""
        count = FIRST_LOOK
        while True:
            entries = self.live.last(count)
            if any(not is_prompt(entry.message) for entry in entries):
                return True
            if len(entries) < count:
                return False
            count *= 2

    # What is new

    def _new(self, first: int, known: Mapping[str, str]) -> "_New":
        """Return what is to be stored for the history from a message on; `known` are the ids of those before it."""
        messages: list[Message] = []
        copied: dict[str, Record] = {}
        ids: list[str] = []
        known = dict(known)
        for one, stored in zip(self.sent[first:], self._stored[first:], strict=True):
            own = one.message.id
            if own is not None and own in known:
                ids.append(known[own])
                continue
            if stored:
                id_ = self.new_id()
                copied[id_] = stored[0]
                messages.append(stored[0].message.replace(id=id_, turn_id=None))
            else:
                edited = self._known.get(own or "")
                id_ = one.chain if own is None or edited is not None else own
                if edited is not None:  # who erases the message erases all that it ever said
                    copied[id_] = edited
                messages.append(one.message.replace(id=id_, turn_id=None))
            ids.append(id_)
            if own is not None:
                known[own] = id_
        return _New(tuple(messages), tuple(ids), copied)


class _New(NamedTuple):
    """Messages to store, the id of each message of the history, and what the copies among them are made from."""

    messages: tuple[Message, ...]
    ids: tuple[str, ...]
    copied: Mapping[str, Record]


def _turn_of(end: Record | None) -> str | None:
    return end.message.turn_id if end is not None else None
