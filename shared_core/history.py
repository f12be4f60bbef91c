"""Match a history that a client sends again with what is stored: which messages are known, and which are new."""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from shared_core.messages import Message
from shared_core.paths import Path
from shared_core.records import After, Position, Record
from shared_core.session import LiveSession

CHECKED = 64
"""How many known messages are compared with what is stored, if the history was not followed before."""

FIRST_LOOK = 8
"""How many messages are looked up first, from the end of the history backwards; then twice as many, and so on.

Most histories differ from the last one only at their end, so one small read is usually enough.
"""


@dataclass(frozen=True, slots=True)
class FollowedHistory:
    """A client's history, as far as it was followed.

    Attributes:
        ids: for each message, the id it is stored under. None: it is not stored, because it was forgotten, or because
            the client inserted it before messages that were stored earlier.
        chains: for each message, a digest of everything the history says up to it.
        branch: the branch at whose end the history was, if the caller sets it. The reply that ends the turn is then
            added to this branch, even if others have added messages to it since. Otherwise, it opens a branch.
    """

    ids: tuple[str | None, ...] = ()
    chains: tuple[str, ...] = ()
    branch: str | None = None

    def __len__(self) -> int:
        return len(self.ids)

    def upto(self, count: int) -> "FollowedHistory":
        """Return the first `count` messages; ValueError if the history is shorter."""
        if not 0 <= count <= len(self):
            raise ValueError(f"count={count!r}: this history has {len(self)} messages")
        return self if count == len(self) else FollowedHistory(self.ids[:count], self.chains[:count])


class _Sent(NamedTuple):
    """A message of the history, and a digest of everything the history says up to it."""

    message: Message
    chain: str


@dataclass(frozen=True, slots=True)
class Followed:
    """The result of matching a history.

    Attributes:
        at: the position of its newest stored message. None: the history continues what is checked out.
        turn: the turn of that message, which the next replies join. None: they join none in particular.
        new: the messages to store after that position, in order, with ids.
        history: the whole history.
    """

    at: Position | None
    turn: str | None
    new: tuple[Message, ...]
    history: FollowedHistory


@dataclass
class _Match:
    """The part of a history that has been matched so far.

    Attributes:
        at: the newest stored message of the history.
        fork: the position where the new messages begin, if that is not after `at`.
        diverged: whether a message differs from the one stored under its id, so that later ids prove nothing.
        new: the indexes of the messages that must be stored.
        ids: the id of each message, as in `FollowedHistory`.
    """

    at: Record | None = None
    fork: Position | None = None
    diverged: bool = False
    new: list[int] = field(default_factory=list)
    ids: list[str | None] = field(default_factory=list)


class Follower:
    """Matches histories with a session.

    A message is recognized by its own id. If it has none, or if its id is stored with another text, its id is a digest
    of everything the history says up to it. The same message sent again is therefore found again, and an edited one is
    another message.

    Args:
        live: the session.
    """

    def __init__(self, live: LiveSession) -> None:
        self.live = live

    def follow(self, messages: Sequence[Message], after: FollowedHistory) -> Followed:
        """Match a history. `messages` are those that follow `after`, the part that was followed before."""
        if not isinstance(after, FollowedHistory):
            raise TypeError(f"after={after!r}: expected what an earlier follow() returned")
        sent = list(_chained(messages, after.chains[-1] if after else ""))
        if not after and self._repeats_a_question(sent):
            path, tail = self._active_path()
            # The digests of these messages are taken by the earlier ones, and digests of the whole conversation so far
            # would look like those of a client that sends all of it.
            sent = list(_chained(messages, f"after {path.head}"))
            followed = self._continue(sent, path, tail)
        else:
            followed = self._match(sent, self._newest_of(after.ids))
            if after.branch is not None and followed.turn is not None and _ends_turn(followed.new):
                followed = replace(followed, at=self._end_of(after.branch) or followed.at)
        chains = after.chains + tuple(one.chain for one in sent)
        return replace(followed, history=FollowedHistory(after.ids + followed.history.ids, chains))

    def _match(self, sent: Sequence[_Sent], before: Record | None) -> Followed:
        known, newest = self._known(sent)
        start = max(0, newest + 1 - CHECKED)
        known |= self._stored(sent[start : newest + 1], without=known)
        match = _Match(before, ids=[one.message.id for one in sent[:start]])
        for index in range(start, len(sent)):
            self._step(match, sent[index], known, index, inside=index < newest)
        if match.at is None and match.fork is None:
            return self._continue(sent, *self._active_path())
        new = tuple(sent[index].message.replace(id=match.ids[index], turn_id=None) for index in match.new)
        turn = match.at.message.turn_id if match.at is not None and match.fork is None else None
        at = match.fork or (match.at.position if match.at is not None else None)
        return Followed(at, turn, new, FollowedHistory(tuple(match.ids)))

    def _step(self, match: _Match, one: _Sent, known: Mapping[str, Record], index: int, *, inside: bool) -> None:
        """Match one more message: it is stored on the same path, or it is new.

        `inside` says whether a later message of the history is stored.
        """
        own = known.get(one.message.id or "")
        record = known.get(one.chain)
        if (
            record is None
            and not match.diverged
            and own is not None
            and recognized_fields(own.message) == recognized_fields(one.message)
        ):
            record = own
        if record is not None and self._continues(match.at, record):
            # Messages before a stored one that are not stored themselves were forgotten, or inserted by the client.
            for unknown in match.new:
                match.ids[unknown] = None
            match.at, match.fork, match.new = record, None, []
            match.ids.append(record.message.id)
            return
        if own is not None:
            if match.at is None and not match.new:
                match.fork = self._before(own)
            match.diverged = True
        elif inside and not match.diverged:
            match.ids.append(None)
            return
        match.new.append(index)
        match.ids.append(one.chain if own is not None or one.message.id is None else one.message.id)

    def _known(self, sent: Sequence[_Sent]) -> tuple[dict[str, Record], int]:
        """Return the stored messages near the end of the history by id, and the index of the newest (-1: none)."""
        end, size = len(sent), FIRST_LOOK
        while end > 0:
            part = sent[max(0, end - size) : end]
            known = self._stored(part)
            for index in range(end - 1, end - 1 - len(part), -1):
                if sent[index].chain in known or sent[index].message.id in known:
                    return known, index
            end, size = end - len(part), 2 * size
        return {}, -1

    def _stored(self, sent: Sequence[_Sent], without: Mapping[str, Record] = {}) -> dict[str, Record]:
        ids = [id_ for one in sent for id_ in (one.message.id, one.chain) if id_ is not None and id_ not in without]
        if self.live.key is None or not ids:
            return {}
        return {record.message.id or "": record for record in self.live.store.get(self.live.key, ids)}

    def _newest_of(self, ids: Sequence[str | None]) -> Record | None:
        """Return the newest message that was followed before and is still stored."""
        end, size = len(ids), 1
        while end > 0 and self.live.key is not None:
            part = [id_ for id_ in ids[max(0, end - size) : end] if id_ is not None]
            records = self.live.store.get(self.live.key, part)
            if records:
                return records[-1]
            end, size = end - size, 2 * size
        return None

    def _continues(self, at: Record | None, record: Record) -> bool:
        """Return whether a stored message comes after another one on the same path."""
        if at is None or (at.position.segment == record.position.segment and at.position < record.position):
            return True
        return at.position != record.position and self.live.path_to(record.position).covers(at.position)

    def _before(self, record: Record) -> Position:
        return self.live.path_to(record.position).at(record.position.depth - 1)

    def _end_of(self, branch: str) -> Position | None:
        return self.live.store.state(self.live.key, branch).head if self.live.key is not None else None

    def _active_path(self) -> tuple[Path, list[Record]]:
        """Return the path of the message that was stored last, and its newest messages.

        What this object has checked out is preferred only if it holds that message: a client may be served by another
        object, or another process, each time.
        """
        state = self.live.sync()
        path = self.live.path
        newest = self.live.store.find(self.live.key, After(state.last_seq - 1, 1)) if self.live.key is not None else []
        if newest and not path.covers(newest[0].position):
            path = self.live.path_to(newest[0].position)
        return path, self._records_from(path, path.head.depth + 1 - CHECKED)

    def _records_from(self, path: Path, depth: int) -> list[Record]:
        """Return the messages of a path from a depth on, at most `CHECKED`."""
        end = min(depth + CHECKED, path.head.depth + 1)
        positions = [path.at(at) for at in range(max(0, depth), end)]
        return self.live.records(self.live.key, positions) if self.live.key is not None else []

    def _continue(self, sent: Sequence[_Sent], path: Path, tail: Sequence[Record]) -> Followed:
        """Match a history that continues a path, and may repeat messages of its end.

        Such histories come from clients that send no ids and only what is new, or only the end of their history.
        """
        old = [recognized_fields(record.message) for record in tail]
        said = [recognized_fields(one.message) for one in sent]
        most = min(len(old), len(said))
        overlap = next((count for count in range(most, 0, -1) if old[-count:] == said[:count]), 0)
        same = tail[len(tail) - overlap :]
        new = tuple(one.message.replace(id=one.message.id or one.chain, turn_id=None) for one in sent[overlap:])
        ids = (*(record.message.id for record in same), *(message.id for message in new))
        stays = path is self.live.path and not same
        turn = same[-1].message.turn_id if same else None
        return Followed(None if stays else path.head, turn, new, FollowedHistory(ids))

    def _repeats_a_question(self, sent: Sequence[_Sent]) -> bool:
        """Return whether a client that sends only new messages repeats an old question.

        Such a list looks like a whole history that went back to the old question. The message after that question
        tells the two apart: only if the client sends its whole history, its id is a digest of both questions.
        """
        if not sent or sent[0].message.id is not None or [one.message.role for one in sent].count("user") != 1:
            return False
        chain = sent[0].chain
        first = self._stored(sent[:1]).get(chain)
        if first is None or first.message.role != "user":
            return False
        path, _ = self._active_path()
        if not path.covers(first.position):
            return False
        for record in self._records_from(path, first.position.depth + 1):
            chain = _chain(chain, record.message)
            if record.message.role == "user":
                return record.message.id != chain
        return False


def _ends_turn(messages: Sequence[Message]) -> bool:
    return bool(messages) and all(message.role == "assistant" and not message.tool_calls for message in messages)


def recognized_fields(message: Message) -> Mapping[str, Any]:
    """Return the fields by which a message that was sent again is recognized. Clients often lose the others."""
    return message.model_dump(include={"role", "content", "tool_calls", "tool_call_id"})


def _chain(chain: str, message: Message) -> str:
    # Stored ids are digests of the JSON of [chain, recognized_fields(message)] with sorted keys. Composing that JSON
    # here takes less than half the time of `json.dumps`, and all messages that a client sends again are digested again.
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
