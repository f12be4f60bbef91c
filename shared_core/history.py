"""Follow a history that a client sends again: which of it is stored, where it leads, and what of it is new."""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from shared_core.messages import Message
from shared_core.paths import Path
from shared_core.records import After, Position, Record
from shared_core.session import LiveSession

__all__ = ["Followed", "FollowedHistory", "Follower", "resent_fields"]

CHECKED = 64
"""Known messages whose text is compared, where the history was not followed before."""

FIRST_LOOK = 8
"""Messages looked up at first, from the end of the history backwards; then twice as many, and so on."""


@dataclass(frozen=True, slots=True)
class FollowedHistory:
    """A client's history, as far as it was followed.

    Attributes:
        ids: of each message, the id it is stored under; None: it is not, because it was forgotten, or put before what
            was stored earlier.
        chains: for each message, a digest of all that the history says up to it.
        branch: on whose end it stood, if who followed it says so: the reply that ends its turn is stored there,
            whatever others have said there since. Otherwise such a reply opens a branch.
    """

    ids: tuple[str | None, ...] = ()
    chains: tuple[str, ...] = ()
    branch: str | None = None

    def __len__(self) -> int:
        return len(self.ids)

    def upto(self, count: int) -> "FollowedHistory":
        """Return the first `count` messages; ValueError if there are not so many."""
        if not 0 <= count <= len(self):
            raise ValueError(f"count={count!r}: this history has {len(self)} messages")
        return self if count == len(self) else FollowedHistory(self.ids[:count], self.chains[:count])


class _Sent(NamedTuple):
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
    history: FollowedHistory


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

    def follow(self, messages: Sequence[Message], after: FollowedHistory) -> Followed:
        """Return where a history leads; `messages` are those that come `after` what was followed before."""
        sent = list(_chained(messages, after.chains[-1] if after else ""))
        if not after and self._is_said_once_more(sent):
            path, tail = self._line_in_use()
            # Its digests are taken, and those of a whole history up to here would look like one.
            sent = list(_chained(messages, f"after {path.head}"))
            followed = self._go_on(sent, path, tail)
        else:
            followed = self._place(sent, self._newest_of(after.ids))
            if after.branch is not None and followed.turn is not None and _ends_turn(followed.new):
                followed = replace(followed, at=self._end_of(after.branch) or followed.at)
        chains = after.chains + tuple(one.chain for one in sent)
        return replace(followed, history=FollowedHistory(after.ids + followed.history.ids, chains))

    def _place(self, sent: Sequence[_Sent], before: Record | None) -> Followed:
        known, newest = self._known(sent)
        start = max(0, newest + 1 - CHECKED)
        known |= self._stored(sent[start : newest + 1], without=known)
        line = _Line(before, ids=[one.message.id for one in sent[:start]])
        for place in range(start, len(sent)):
            self._step(line, sent[place], known, place, inside=place < newest)
        if line.at is None and line.place is None:
            return self._go_on(sent, *self._line_in_use())
        new = tuple(sent[place].message.replace(id=line.ids[place], turn_id=None) for place in line.new)
        turn = line.at.message.turn_id if line.at is not None and line.place is None else None
        at = line.place or (line.at.position if line.at is not None else None)
        return Followed(at, turn, new, FollowedHistory(tuple(line.ids)))

    def _step(self, line: _Line, one: _Sent, known: Mapping[str, Record], place: int, *, inside: bool) -> None:
        """Take one more message: it is stored on this line, or new."""
        own = known.get(one.message.id or "")
        record = known.get(one.chain)
        if (
            record is None
            and not line.apart
            and own is not None
            and resent_fields(own.message) == resent_fields(one.message)
        ):
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

    def _end_of(self, branch: str) -> Position | None:
        return self.live.store.state(self.live.key, branch).head if self.live.key is not None else None

    def _line_in_use(self) -> tuple[Path, list[Record]]:
        """Return the line of what was stored last, and its newest messages; where this object stands, if it is there.

        Where an object stands is of no meaning to a client that is served by one today and by another tomorrow.
        """
        state = self.live.sync()
        path = self.live.path
        newest = self.live.store.find(self.live.key, After(state.last_seq - 1, 1)) if self.live.key is not None else []
        if newest and not path.covers(newest[0].position):
            path = self.live.path_to(newest[0].position)
        return path, self._along(path, path.head.depth + 1 - CHECKED)

    def _along(self, path: Path, depth: int) -> list[Record]:
        """Return the messages of a line from a depth on, at most `CHECKED`."""
        end = min(depth + CHECKED, path.head.depth + 1)
        positions = [path.at(at) for at in range(max(0, depth), end)]
        return self.live.records(self.live.key, positions) if self.live.key is not None else []

    def _go_on(self, sent: Sequence[_Sent], path: Path, tail: Sequence[Record]) -> Followed:
        """Return that a history goes on where the conversation is, from which it has the end at most.

        So it is with a client that sends no ids and only what is new, or only the end of its history.
        """
        old, said = [resent_fields(record.message) for record in tail], [resent_fields(one.message) for one in sent]
        most = min(len(old), len(said))
        overlap = next((count for count in range(most, 0, -1) if old[-count:] == said[:count]), 0)
        same = tail[len(tail) - overlap :]
        new = tuple(one.message.replace(id=one.message.id or one.chain, turn_id=None) for one in sent[overlap:])
        ids = (*(record.message.id for record in same), *(message.id for message in new))
        stays = path is self.live.path and not same
        turn = same[-1].message.turn_id if same else None
        return Followed(None if stays else path.head, turn, new, FollowedHistory(ids))

    def _is_said_once_more(self, sent: Sequence[_Sent]) -> bool:
        """Return whether a client that sends only what is new says what it said before.

        Such a list looks like one that goes back to an old question. Of a client that sends all of its history, the
        question after that is known by a digest of both; of this one, it is not.
        """
        if not sent or sent[0].message.id is not None or [one.message.role for one in sent].count("user") != 1:
            return False
        chain = sent[0].chain
        first = self._stored(sent[:1]).get(chain)
        if first is None or first.message.role != "user":
            return False
        path, _ = self._line_in_use()
        if not path.covers(first.position):
            return False
        for record in self._along(path, first.position.depth + 1):
            chain = _chain(chain, record.message)
            if record.message.role == "user":
                return record.message.id != chain
        return False


def _ends_turn(messages: Sequence[Message]) -> bool:
    return bool(messages) and all(message.role == "assistant" and not message.tool_calls for message in messages)


def _is_resent(stored: Message, sent: Message) -> bool:
    return resent_fields(stored) == resent_fields(sent)


def resent_fields(message: Message) -> Mapping[str, Any]:
    """Return what makes a message of a history the same one sent again; clients lose the rest on the way."""
    return message.model_dump(include={"role", "content", "tool_calls", "tool_call_id"})


def _chain(chain: str, message: Message) -> str:
    # Stored ids are digests of the JSON of [chain, resent_fields(message)] with sorted keys, put together from its
    # parts in less than half of the time, because every message that a client sends again is digested again.
    calls = (
        json.dumps([call.model_dump() for call in message.tool_calls], sort_keys=True) if message.tool_calls else "[]"
    )
    answered = "null" if message.tool_call_id is None else json.dumps(message.tool_call_id)
    said = (
        f'[{json.dumps(chain)}, {{"content": {json.dumps(message.content)}, "role": "{message.role}", '
        f'"tool_call_id": {answered}, "tool_calls": {calls}}}]'
    )
    return hashlib.blake2b(said.encode(), digest_size=16).hexdigest()


def _chained(messages: Sequence[Message], chain: str) -> Iterator[_Sent]:
    for message in messages:
        chain = _chain(chain, message)
        yield _Sent(message, chain)
