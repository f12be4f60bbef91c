"""Match a history that a client sends again with what is stored: which messages are known, and which are new."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from shared_core.checkout import Checkout, if_unmoved, no_changes
from shared_core.errors import StaleHeadError
from shared_core.followed_history import Followed
from shared_core.followed_history import FollowedHistory as FollowedHistory
from shared_core.messages import Message
from shared_core.paths import Path
from shared_core.recognition import (
    REPEATED,
    Sent,
    chain_of,
    chained,
    chained_again,
    longest_match,
    overlap,
    recognized_fields,
    said_of,
    without_prompts,
)
from shared_core.records import MAIN, After, InTurn, Position, Record
from shared_core.session import LiveSession
from shared_core.system_prompt import is_prompt, kept_of
from shared_core.turns import Entry
from shared_core.whole_history import WholeHistory

Removed = Literal["keep", "leave_out"]
"""What happens to stored messages that a history lacks."""

CHECKED = 64
"""How many known messages are compared with what is stored, if the history was not followed before."""

FIRST_LOOK = 8
"""How many messages are looked up first, from the end of the history backwards; then twice as many, and so on.

Most histories differ from the last one only at their end, so one small read is usually enough.
"""

NEXT_LOOK = 4
"""How many messages are read to find the one that follows another: a system prompt may lie between them."""

BRANCHES_SEARCHED = 16
"""How many of the newest branches are searched for an answer that another branch holds."""


def follow(
    checkout: Checkout, messages: Sequence[Message], after: FollowedHistory, removed: Removed, since: str | None
) -> tuple[FollowedHistory, list[Message]]:
    """Store what is new in a history and check out its end; see `InfiniteMemory.follow`.

    Returns:
        The whole history, and the messages that were given to the store, as stored.
    """
    while True:
        try:
            return _follow(checkout, messages, after, removed, since)
        except StaleHeadError:  # another process added to the branch since the history was matched with it
            continue


def _follow(
    checkout: Checkout, messages: Sequence[Message], after: FollowedHistory, removed: Removed, since: str | None
) -> tuple[FollowedHistory, list[Message]]:
    """Do it once; StaleHeadError if the branch moved meanwhile: what others said there may belong to another branch."""
    live = checkout.live
    live.sync()
    followed = Follower(live, checkout.writer.stamps.id).follow(messages, after, removed, since)
    if followed.at is not None:
        checkout.stand_at(followed.at)
        checkout.writer.open_turn = followed.turn
        if live.head.branch is not None and not live.ends_at(followed.at):
            raise StaleHeadError("the branch grew while it was checked out")
    # A session that is not there yet has epoch 0. Without a branch, the messages open one, and come after nobody's.
    unmoved = no_changes if live.head.branch is None else if_unmoved(max(0, live.epoch), live.path.head)
    stored = checkout.writer.add(followed.new, None, followed.prompt_id, followed.copied, unmoved)
    gone = {message.id for message in followed.new} - {message.id for message in stored}
    ids = tuple(None if id_ in gone else id_ for id_ in followed.history.ids)
    return replace(followed.history, ids=ids), stored


@dataclass
class _Match:
    """The part of a history that has been matched so far.

    Attributes:
        at: the newest stored message of the history.
        fork: the position where the new messages begin, if that is not after `at`.
        diverged: whether a message differs from the one stored under its id, so that later ids prove nothing.
        path: the path to the newest message of the history that its digest or id finds; None: there is none.
        new: the indexes of the messages that must be stored.
        ids: the id of each message, as in `FollowedHistory`.
    """

    at: Record | None = None
    fork: Position | None = None
    diverged: bool = False
    path: Path | None = None
    new: list[int] = field(default_factory=list)
    ids: list[str | None] = field(default_factory=list)


class Follower:
    """Matches histories with a session.

    A message is recognized by its own id. If it has none, or if its id is stored with another text, its id is a digest
    of everything the history says up to it. The same message sent again is therefore found again, and an edited one is
    another message. An erased message is left out, unless the history ends with it: then the user asks it again, and it
    is stored under another digest. System messages are not part of what is said: all those in a history are its system
    prompt, which is stored again when it changes.

    Args:
        live: the session.
        new_id: returns an id for a changed system prompt.
    """

    def __init__(self, live: LiveSession, new_id: Callable[[], str]) -> None:
        self.live = live
        self.new_id = new_id

    def follow(
        self, messages: Sequence[Message], after: FollowedHistory, removed: Removed = "keep", since: str | None = None
    ) -> Followed:
        """Match a history. `messages` are those that follow `after`, the part that was followed before."""
        if not isinstance(after, FollowedHistory):
            raise TypeError(f"after={after!r}: expected what an earlier follow() returned")
        if removed == "leave_out":
            messages, after = self._reopened(messages, after)
        sent = self._sent(messages, after.chains[-1] if after else "")
        if removed == "leave_out":
            followed = self._whole(sent, after, since)
        elif not after and self._repeats_a_question(said_of(sent)):
            path, tail = self._active_path()
            # The digests of these messages are taken by the earlier ones, and digests of the whole conversation so far
            # would look like those of a client that sends all of it.
            sent = self._sent(messages, f"after {path.head}")
            followed = self._continue(said_of(sent), path, tail)
        else:
            followed = self._part(said_of(sent), after)
        if after.branch is not None and followed.turn is not None and _ends_turn(followed.new) and not followed.copied:
            end = self._end_of(after.branch, followed.at)
            if end is not None and not self._is_answered(followed.turn, after, end):
                followed = replace(followed, at=end)
        followed = self._with_prompt(sent, followed, after)
        chains = after.chains + tuple(one.chain for one in sent)
        own_ids = (after.own_ids or (None,) * len(after)) + tuple(message.id for message in messages)
        return replace(followed, history=FollowedHistory(after.ids + followed.history.ids, chains, own_ids=own_ids))

    def _sent(self, messages: Sequence[Message], chain: str) -> list[Sent]:
        """Return messages with their digests; `chain` is the digest of what comes before them."""
        store, key = self.live.store, self.live.key
        if key is None or not store.forgotten(key, None, 1):
            return list(chained(messages, chain))
        return chained_again(store, key, messages, chain)

    def _reopened(
        self, messages: Sequence[Message], after: FollowedHistory
    ) -> tuple[Sequence[Message], FollowedHistory]:
        """Return a history that is matched again from where a stored message stood for another one.

        A message that says the same as one that `add` stored is taken for it. If the client sends the stored one
        itself later, under its own id, the two are two.
        """
        sent = {message.id for message in messages}
        pairs = enumerate(zip(after.ids, after.own_ids, strict=False))
        start = next((index for index, (id_, own) in pairs if id_ in sent and own not in (None, id_)), None)
        if start is None or self.live.key is None:
            return messages, after
        ids = [id_ for id_ in after.ids[start:] if id_ is not None]
        records = self.live.store.get(self.live.key, ids)
        if len(records) < len(after) - start:
            return messages, after  # some were forgotten or left out, and nothing tells what they said
        again = [
            record.message.replace(id=own or record.message.id, turn_id=None)
            for record, own in zip(records, after.own_ids[start:], strict=True)
        ]
        return [*again, *messages], replace(after.upto(start), branch=after.branch)

    def _whole(self, sent: Sequence[Sent], after: FollowedHistory, since: str | None) -> Followed:
        """Match a history that is the whole conversation."""
        known, _ = after.split()
        kept = next((n for n, one in enumerate(sent) if since is not None and one.message.id == since), None)
        first = None if kept is None else len(said_of(sent[:kept]))
        whole = WholeHistory(self.live, self.new_id, self._added_after, said_of(sent))
        line = whole.line(self._newest_of(known), first)
        return Followed(line.at, line.turn, line.new, FollowedHistory(line.ids), copied=line.copied)

    def _part(self, sent: Sequence[Sent], after: FollowedHistory) -> Followed:
        """Match a history of which the client may have left out the beginning."""
        known, _ = after.split()
        followed = self._match(sent, self._newest_of(known))
        if after or not self._may_be_an_end(sent, followed):
            return followed
        path, tail = self._active_path()
        old = [recognized_fields(record.message) for record in without_prompts(tail)]
        said = [recognized_fields(one.message) for one in sent]
        # Of two readings, the one that recognizes more of the history is right.
        if overlap(old, said) >= max(REPEATED, len(said) - len(followed.new)):
            return self._continue(sent, path, tail)
        return followed

    # The system prompt

    def _with_prompt(self, sent: Sequence[Sent], followed: Followed, after: FollowedHistory) -> Followed:
        """Add the system messages of a history to what its other messages were matched with."""
        current = self._prompt_at(followed.at)
        earlier = self._prompt_of(after, current)
        own = [one.message for one in sent if is_prompt(one.message)]
        if not own and not earlier:
            return followed
        kept = kept_of([entry.message for entry in current], [*earlier, *own])
        # What was sent before is stored again if the prompt changes as a whole.
        again = [message.replace(id=self.new_id()) for message in earlier] if kept < len(earlier) else []
        ids = [entry.message.id for entry in current[len(earlier) : kept]]
        fresh = self._with_new_ids(own[len(ids) :])
        prompt = iter([*ids, *(message.id for message in fresh)])
        said = iter(followed.history.ids)
        woven = tuple(next(prompt) if is_prompt(one.message) else next(said) for one in sent)
        new = {message.id: message for message in (*followed.new, *fresh)}
        return replace(
            followed,
            new=(*again, *(new[id_] for id_ in woven if id_ in new)),
            history=FollowedHistory(woven),
            prompt_id=current[0].message.turn_id if kept else None,
        )

    def _prompt_at(self, position: Position | None) -> list[Entry]:
        """Return the system prompt at a position, None for what is checked out."""
        if position is None or self.live.ends_at(position):
            return self.live.prompt()
        return self.live.prompt_of(self.live.path_to(position))

    def _prompt_of(self, after: FollowedHistory, current: Sequence[Entry]) -> list[Message]:
        """Return the system messages of the part of a history that was followed before."""
        _, ids = after.split()
        known = {entry.message.id: entry.message for entry in current}
        if ids and self.live.key is not None and not known.keys() >= set(ids):
            known |= {record.message.id: record.message for record in self.live.store.get(self.live.key, ids)}
        return [known[id_] for id_ in ids if id_ in known]

    def _with_new_ids(self, prompt: Sequence[Message]) -> list[Message]:
        """Return system messages with ids that are not taken, each with its own."""
        ids = [message.id for message in prompt if message.id is not None]
        stored = self.live.store.get(self.live.key, ids) if ids and self.live.key is not None else ()
        taken = {None, *(record.message.id for record in stored)}
        fresh = []
        for message in prompt:
            fresh.append(message.replace(id=self.new_id()) if message.id in taken else message)
            taken.add(message.id)
        return fresh

    # What is said

    def _may_be_an_end(self, sent: Sequence[Sent], followed: Followed) -> bool:
        """Return whether what looks like a history that went back may be the end of one that goes on.

        A client that keeps only the end of its history may begin it with words that began the conversation, or send
        the same words as some time ago.
        """
        if not sent or sent[0].message.id is not None or followed.at is None:
            return False
        return len(followed.new) > 1 or (not self.live.ends_at(followed.at) and not self._stored(sent[:1]))

    def _match(self, sent: Sequence[Sent], before: Record | None) -> Followed:
        known, newest = self._known(sent)
        start = max(0, newest + 1 - CHECKED)
        known |= self._stored(sent[start : newest + 1], without=known)
        match = _Match(before, ids=[one.message.id for one in sent[:start]])
        if newest >= 0:
            found = known.get(sent[newest].chain) or known[sent[newest].message.id or ""]
            match.path = self.live.path_to(found.position)
        for index in range(start, len(sent)):
            self._step(match, sent[index], known, index, inside=index < newest)
        if match.at is None and match.fork is None:
            return self._continue(sent, *self._active_path())
        return self._followed(match, sent)

    def _followed(self, match: _Match, sent: Sequence[Sent]) -> Followed:
        self._leave_out_repeated(match)
        new = tuple(sent[index].message.replace(id=match.ids[index], turn_id=None) for index in match.new)
        turn = match.at.message.turn_id if match.at is not None and match.fork is None else None
        at = match.fork or (match.at.position if match.at is not None else None)
        return Followed(at, turn, new, FollowedHistory(tuple(match.ids)))

    def _leave_out_repeated(self, match: _Match) -> None:
        """Leave out what would be stored twice: what was erased and is said once more has one digest for both."""
        ids = {id for index, id in enumerate(match.ids) if index not in match.new}
        for index in tuple(match.new):
            if match.ids[index] in ids:
                match.new.remove(index)
                match.ids[index] = None
            ids.add(match.ids[index])

    def _step(self, match: _Match, one: Sent, known: Mapping[str, Record], index: int, *, inside: bool) -> None:
        """Match one more message: it is stored on the same path, or it is new.

        `inside` says whether a later message of the history is stored.
        """
        own = known.get(one.message.id or "")
        record = known.get(one.chain)
        if (
            own is not None
            and not match.diverged
            and (record is None or self._continues(match.at, own))
            and recognized_fields(own.message) == recognized_fields(one.message)
        ):
            record = own  # its id tells more than its words, which may have been said twice
        if record is None and own is None and not match.new and not match.diverged:
            record = self._added_after(match.at, one.message, match.path)
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

    def _added_after(self, at: Record | None, message: Message, path: Path | None = None) -> Record | None:
        """Return the stored message that says the same right after another one, as one that `add` stored.

        A user message with an id of its own is another one: two callers may ask the same at the same time.

        Args:
            at: the message before it.
            message: what is said.
            path: the path that is searched first. None: the one that is checked out.
        """
        if at is None or (message.role == "user" and message.id is not None):
            return None
        says = recognized_fields(message)
        for one in self._paths_through(at.position, path, branches=message.role != "user"):
            record = self._next_said(one, at.position)
            if record is not None and recognized_fields(record.message) == says:
                return record
        return None

    def _paths_through(self, position: Position, first: Path | None, *, branches: bool) -> Iterator[Path]:
        """Yield paths that may go on after a position: first those that are in use, then those of other branches."""
        if first is not None and first.head != position and first.covers(position):
            yield first
        for path in (self.live.path, self._newest_path()):
            if path.covers(position):
                yield path
        if branches and self.live.key is not None:
            newest = self.live.store.branches(self.live.key)[::-1][:BRANCHES_SEARCHED]
            paths = (self.live.path_to(branch.head) for branch in newest)
            yield from (path for path in paths if path.covers(position))

    def _next_said(self, path: Path, position: Position) -> Record | None:
        """Return the next message on a path that is not part of a system prompt."""
        assert self.live.key is not None
        first, last = path.index_of(position) + 1, path.spans[-1].last
        for start in range(first, min(last + 1, first + CHECKED), NEXT_LOOK):
            positions = [path.at(index) for index in range(start, min(last + 1, start + NEXT_LOOK))]
            for record in self.live.records(self.live.key, positions):
                if not is_prompt(record.message):
                    return record
        return None

    def _known(self, sent: Sequence[Sent]) -> tuple[dict[str, Record], int]:
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

    def _stored(self, sent: Sequence[Sent], without: Mapping[str, Record] = {}) -> dict[str, Record]:
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

    def _end_of(self, branch: str, position: Position | None) -> Position | None:
        """Return where a branch ends, if a position is on its path; else where another such branch does, or None.

        The branch may have another name by now, because another line was made `main`.
        """
        if self.live.key is None or position is None:
            return None
        end = self.live.store.state(self.live.key, branch).head
        if end is not None and self.live.path_to(end).covers(position):
            return end
        ends = {other.name: other.head for other in self.live.store.branches(self.live.key)}
        heads = [ends.pop(MAIN), *reversed(ends.values())]
        return next((head for head in heads if self.live.path_to(head).covers(position)), None)

    def _is_answered(self, turn: str, after: FollowedHistory, end: Position) -> bool:
        """Return whether a line holds an answer that ends a turn, and that is not part of a history.

        A client that was cut off asks again, and the answer that it did not wait for may be stored meanwhile.
        """
        assert self.live.key is not None
        path, known = self.live.path_to(end), set(after.ids)
        return any(
            _ends_turn([record.message]) and record.message.id not in known and path.covers(record.position)
            for record in self.live.store.find(self.live.key, InTurn(turn))
        )

    def _active_path(self) -> tuple[Path, list[Record]]:
        """Return the path of the message that was stored last, and its newest messages.

        What this object has checked out is preferred only if it holds that message: a client may be served by another
        object, or another process, each time.
        """
        path = self._newest_path()
        return path, self._records_from(path, path.head.depth + 1 - CHECKED)

    def _newest_path(self) -> Path:
        """Return the path of the message that was stored last."""
        state = self.live.sync()
        newest = self.live.store.find(self.live.key, After(state.last_seq - 1, 1)) if self.live.key is not None else []
        if newest and not self.live.path.covers(newest[0].position):
            return self.live.path_to(newest[0].position)
        return self.live.path

    def _records_from(self, path: Path, depth: int) -> list[Record]:
        """Return the messages of a path from a depth on, at most `CHECKED`."""
        end = min(depth + CHECKED, path.head.depth + 1)
        positions = [path.at(at) for at in range(max(0, depth), end)]
        return self.live.records(self.live.key, positions) if self.live.key is not None else []

    def _continue(self, sent: Sequence[Sent], path: Path, tail: Sequence[Record]) -> Followed:
        """Match a history that continues a path, and may repeat messages of its end.

        Such histories come from clients that send no ids and only what is new, or only the end of their history. If the
        user went back, its beginning stands before the end of the path.
        """
        tail = without_prompts(tail)
        old, said = [recognized_fields(r.message) for r in tail], [recognized_fields(one.message) for one in sent]
        count = overlap(old, said)
        first, count = (len(tail) - count, count) if count else longest_match(old, said)
        if not count:
            ids = tuple(one.message.id or one.chain for one in sent)
            new = tuple(one.message.replace(id=id_, turn_id=None) for one, id_ in zip(sent, ids, strict=True))
            return Followed(None if path is self.live.path else path.head, None, new, FollowedHistory(ids))
        same = tail[first : first + count]
        match = _Match(same[-1], ids=[record.message.id for record in same])
        for index in range(count, len(sent)):
            self._step(match, sent[index], {}, index, inside=False)
        followed = self._followed(match, sent)
        # The newest message may be before the head, because the message at the head may have been forgotten.
        return replace(followed, at=path.head) if match.at is tail[-1] else followed

    def _repeats_a_question(self, sent: Sequence[Sent]) -> bool:
        """Return whether a client that sends only new messages repeats an old question.

        Such a list looks like a whole history that went back to the old question. The next question tells the two
        apart: only if the client sends its whole history, its id is a digest of both. Without a next one, a client that
        sends its whole history has said nothing before the question. If it is not answered, it is sent once more.
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
        answered = False
        for record in self._records_from(path, first.position.depth + 1):
            if is_prompt(record.message):
                continue
            chain = chain_of(chain, record.message)
            if record.message.role == "user":
                return record.message.id != chain
            answered = _ends_turn([record.message])
        begins = [record.message.id for record in without_prompts(self._records_from(path, 0))]
        return answered and begins[:1] != [first.message.id]


def _ends_turn(messages: Sequence[Message]) -> bool:
    return bool(messages) and all(message.role == "assistant" and not message.tool_calls for message in messages)
