"""Follow a history that a client sends again: which of it is stored, where it leads, and what of it is new."""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from shared_core.live import LiveSession
from shared_core.messages import Message
from shared_core.records import Position, Record

__all__ = ["Followed", "Follower", "History"]

CHECKED = 64
"""Known messages before the new ones whose text is compared, where the history was not followed before."""

FIRST_LOOK = 8
"""Messages looked up at first, from the end of the history backwards; then twice as many, and so on."""


@dataclass(frozen=True, slots=True)
class History:
    """A client's history, as far as it was followed.

    Attributes:
        ids: of each message, the id it is stored under; None: it is not, because it was forgotten, or put before what
            was stored earlier.
        chains: for each message, a digest of all that the history says up to it.
    """

    ids: tuple[str | None, ...] = ()
    chains: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.ids)

    def upto(self, count: int) -> "History":
        """Return the first `count` messages; ValueError if there are not so many."""
        if not 0 <= count <= len(self):
            raise ValueError(f"count={count!r}: this history has {len(self)} messages")
        return History(self.ids[:count], self.chains[:count])


@dataclass(frozen=True, slots=True)
class _Sent:
    """A message of the history, and the digest of what the history says up to it."""

    message: Message
    chain: str


@dataclass(frozen=True, slots=True)
class Followed:
    """Where a history leads.

    Attributes:
        at: the place of its newest stored message; None: it goes on where the conversation stands.
        turn: the turn of that message, for the replies that come next; None if it belongs to none.
        new: what is to be stored there, in order, with ids.
        history: all of it.
    """

    at: Position | None
    turn: str | None
    new: tuple[Message, ...]
    history: History


@dataclass
class _Line:
    """The part of a history that has been matched so far."""

    at: Record | None = None
    place: Position | None = None
    apart: bool = False
    new: list[int] = field(default_factory=list)
    ids: list[str | None] = field(default_factory=list)


class Follower:
    """Finds the place of a history.

    A message goes by its own id. If it has none, or its id is stored with another text, it goes by a digest of all that
    the history says up to it: sent again, it is found again, and changed, it is another message.

    Args:
        live: the session it is stored in.
    """

    def __init__(self, live: LiveSession) -> None:
        self.live = live

    def follow(self, messages: Sequence[Message], after: History) -> Followed:
        """Return where a history leads; `messages` are those that come `after` what was followed before."""
        sent = list(_chained(messages, after.chains[-1] if after else ""))
        followed = self._place(sent, self._newest_of(after.ids))
        chains = after.chains + tuple(one.chain for one in sent)
        return replace(followed, history=History(after.ids + followed.history.ids, chains))

    def _place(self, sent: Sequence[_Sent], before: Record | None) -> Followed:
        known, newest = self._known(sent)
        start = max(0, newest + 1 - CHECKED)
        known |= self._stored(sent[start : newest + 1], without=known)
        line = _Line(before, ids=[one.message.id for one in sent[:start]])
        for place in range(start, len(sent)):
            self._step(line, sent[place], known, place, inside=place < newest)
        if line.at is None and line.place is None:
            overlap = self._overlap(sent)
            line.ids[:overlap] = [entry.message.id for entry in self.live.last(overlap)]
            line.new = [place for place in line.new if place >= overlap]
        new = tuple(sent[place].message.replace(id=line.ids[place], turn_id=None) for place in line.new)
        turn = line.at.message.turn_id if line.at is not None and line.place is None else None
        at = line.place or (line.at.position if line.at is not None else None)
        return Followed(at, turn, new, History(tuple(line.ids)))

    def _step(self, line: _Line, one: _Sent, known: Mapping[str, Record], place: int, *, inside: bool) -> None:
        """Take one more message: it is stored on this line, or new."""
        own = known.get(one.message.id or "")
        record = known.get(one.chain)
        if record is None and not line.apart and own is not None and _says(own.message) == _says(one.message):
            record = own
        if record is not None and self._continues(line.at, record):
            # What stands before a stored message and is not stored was forgotten, or put there for show.
            for unknown in line.new:
                line.ids[unknown] = None
            line.at, line.place, line.new = record, None, []
            line.ids.append(record.message.id)
            return
        if own is not None:
            if line.at is None and not line.new:
                line.place = self._before(own)
            line.apart = True
        elif inside and not line.apart:
            line.ids.append(None)
            return
        line.new.append(place)
        line.ids.append(one.chain if own is not None or one.message.id is None else one.message.id)

    def _known(self, sent: Sequence[_Sent]) -> tuple[dict[str, Record], int]:
        """Return stored messages near the end of the history, by id, and the place of the newest; -1: none is."""
        end, size = len(sent), FIRST_LOOK
        while end > 0:
            part = sent[max(0, end - size) : end]
            known = self._stored(part)
            for place in range(end - 1, end - 1 - len(part), -1):
                if sent[place].chain in known or sent[place].message.id in known:
                    return known, place
            end, size = end - len(part), 2 * size
        return {}, -1

    def _stored(self, sent: Sequence[_Sent], without: Mapping[str, Record] = {}) -> dict[str, Record]:
        ids = [id_ for one in sent for id_ in (one.message.id, one.chain) if id_ is not None and id_ not in without]
        if self.live.key is None or not ids:
            return {}
        return {record.message.id or "": record for record in self.live.store.get(self.live.key, ids)}

    def _newest_of(self, ids: Sequence[str | None]) -> Record | None:
        """Return the newest message of what was followed before that is still stored."""
        end, size = len(ids), 1
        while end > 0 and self.live.key is not None:
            part = [id_ for id_ in ids[max(0, end - size) : end] if id_ is not None]
            records = self.live.store.get(self.live.key, part)
            if records:
                return records[-1]
            end, size = end - size, 2 * size
        return None

    def _continues(self, at: Record | None, record: Record) -> bool:
        """Return whether a stored message stands on the line that leads on from another."""
        if at is None or (at.position.segment == record.position.segment and at.position < record.position):
            return True
        return at.position != record.position and self.live.path_to(record.position).covers(at.position)

    def _before(self, record: Record) -> Position:
        return self.live.path_to(record.position).at(record.position.depth - 1)

    def _overlap(self, sent: Sequence[_Sent]) -> int:
        """Return how many messages at the beginning of the history are the newest of the conversation.

        So it is with a client that sends no ids and only the end of its history.
        """
        self.live.sync()
        tail = [_says(entry.message) for entry in self.live.last(min(len(sent), CHECKED))]
        said = [_says(one.message) for one in sent[: len(tail)]]
        return next((count for count in range(len(tail), 0, -1) if tail[-count:] == said[:count]), 0)


def _says(message: Message) -> Mapping[str, Any]:
    """Return what makes a message of a history the same one sent again; clients lose the rest on the way."""
    return message.model_dump(include={"role", "content", "tool_calls", "tool_call_id"})


def _chained(messages: Sequence[Message], chain: str) -> Iterator[_Sent]:
    for message in messages:
        said = json.dumps([chain, _says(message)], sort_keys=True, ensure_ascii=True)
        chain = hashlib.blake2b(said.encode(), digest_size=16).hexdigest()
        yield _Sent(message, chain)
