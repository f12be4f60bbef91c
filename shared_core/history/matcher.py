"""Match a history that a client sends again with what is stored: which messages are known, and which are new."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice, takewhile
from typing import Literal, NamedTuple

from shared_core.errors import StaleHeadError
from shared_core.history.followed_history import Followed
from shared_core.history.followed_history import FollowedHistory as FollowedHistory
from shared_core.history.normal_form import fingerprint, normal_form, normal_forms, says_the_same
from shared_core.history.recognition import REPEATED, asked_at, longest_match, overlap, said_of, without_prompts
from shared_core.history.stored_forms import saying
from shared_core.history.whole_history import WholeHistory, forgotten_first
from shared_core.messages import Message
from shared_core.records import MAIN, After, InTurn, Position, Record
from shared_core.session.checkout import Checkout, if_unmoved, no_changes
from shared_core.session.live import LiveSession
from shared_core.session.paths import Path
from shared_core.session.system_prompt import is_prompt, kept_of
from shared_core.session.turns import Entry

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

CANDIDATES = 8
"""How many messages that say the same are compared with what a history says before it."""

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
    stored = checkout.writer.add(followed.new, None, followed.prompt_id, followed.copied, unmoved, followed.alone)
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
        path: the path to the newest message of the history that is known; None: there is none.
        new: the indexes of the messages that must be stored.
        ids: the id of each message, as in `FollowedHistory`.
    """

    at: Record | None = None
    fork: Position | None = None
    diverged: bool = False
    path: Path | None = None
    new: list[int] = field(default_factory=list)
    ids: list[str | None] = field(default_factory=list)
    copied: dict[str, Record] = field(default_factory=dict)


class _Known(NamedTuple):
    """What is stored of the end of a history.

    Attributes:
        own: the messages whose id is an id of the history.
        forms: for the indexes of messages up to the newest known one, those that say the same there.
        newest: the index of that message; -1: none is known.
        whole: whether the history was found to say all that is stored before that message.
    """

    own: Mapping[str, Record]
    forms: Mapping[int, Record] = {}
    newest: int = -1
    whole: bool = False


class Follower:
    """Matches histories with a session.

    A message is recognized by its own id. If it has none, or if its id is stored with another text, it is recognized by
    what it says, and by what is said before it: as much of it as is stored, or `CHECKED` messages. What was forgotten
    says nothing any more: as many messages as are missing there are left out, but for a question that ends the history.
    System messages are not part of what is said: all those in a history are its system prompt, which is stored again
    when it changes.

    Args:
        live: the session.
        new_id: returns an id for a new message.
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
        said = said_of(messages)
        if removed == "leave_out":
            followed = self._whole(messages, after, since)
        elif not after and self._repeats_a_question(said):
            followed = self._continue(said, *self._active_path())
        else:
            followed = self._part(said, after)
        if after.branch is not None and followed.turn is not None and _ends_turn(followed.new) and not followed.copied:
            end = self._end_of(after.branch, followed.at)
            if end is not None and not self._is_answered(followed.turn, after, end):
                followed = replace(followed, at=end)
        followed = self._with_prompt(messages, followed, after)
        prompts = after.prompts + tuple(map(is_prompt, messages))
        own_ids = (after.own_ids or (None,) * len(after)) + tuple(message.id for message in messages)
        return replace(followed, history=FollowedHistory(after.ids + followed.history.ids, prompts, own_ids=own_ids))

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

    def _whole(self, messages: Sequence[Message], after: FollowedHistory, since: str | None) -> Followed:
        """Match a history that is the whole conversation."""
        known, _ = after.split()
        kept = next((n for n, message in enumerate(messages) if since is not None and message.id == since), None)
        first = None if kept is None else len(said_of(messages[:kept]))
        whole = WholeHistory(self.live, self.new_id, self._added_after, said_of(messages))
        line = whole.line(self._newest_of(known), first)
        return Followed(line.at, line.turn, line.new, FollowedHistory(line.ids), copied=line.copied)

    def _part(self, said: Sequence[Message], after: FollowedHistory) -> Followed:
        """Match a history of which the client may have left out the beginning."""
        ids, _ = after.split()
        before = self._newest_of(ids)
        known = self._known(said, before)
        followed = self._match(said, before, known, after)
        if after or not self._may_be_an_end(said, followed):
            return followed
        path, tail = self._active_path()
        old, sent = normal_forms(record.message for record in without_prompts(tail)), normal_forms(said)
        # Of two readings, the one that recognizes more of the history is right.
        if overlap(old, sent) >= max(REPEATED, len(said) - len(followed.new) + known.whole):
            return self._continue(said, path, tail)
        return followed

    # The system prompt

    def _with_prompt(self, messages: Sequence[Message], followed: Followed, after: FollowedHistory) -> Followed:
        """Add the system messages of a history to what its other messages were matched with."""
        current = self._prompt_at(followed.at)
        earlier = self._prompt_of(after, current)
        own = [message for message in messages if is_prompt(message)]
        if not own and not earlier:
            return followed
        kept = kept_of([entry.message for entry in current], [*earlier, *own])
        # What was sent before is stored again if the prompt changes as a whole.
        again = [message.replace(id=self.new_id()) for message in earlier] if kept < len(earlier) else []
        ids = [entry.message.id for entry in current[len(earlier) : kept]]
        fresh = self._with_new_ids(own[len(ids) :])
        prompt = iter([*ids, *(message.id for message in fresh)])
        said = iter(followed.history.ids)
        woven = tuple(next(prompt) if is_prompt(message) else next(said) for message in messages)
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

    def _may_be_an_end(self, said: Sequence[Message], followed: Followed) -> bool:
        """Return whether what looks like a history that went back may be the end of one that goes on.

        A client that keeps only the end of its history may begin it with words that began the conversation, or send
        the same words as some time ago.
        """
        if not said or said[0].id is not None or followed.at is None:
            return False
        return len(followed.new) > 1 or not self.live.ends_at(followed.at)

    def _match(self, said: Sequence[Message], before: Record | None, known: _Known, after: FollowedHistory) -> Followed:
        start = max(0, known.newest + 1 - CHECKED)
        match = _Match(before, ids=[message.id for message in said[:start]])
        if known.newest >= 0:
            found = known.forms.get(known.newest) or known.own[said[known.newest].id or ""]
            match.path = self.live.path_to(found.position)
        for index in range(start, len(said)):
            self._step(match, said[index], known, index)
        if match.at is None and match.fork is None:
            return self._continue(said, *self._active_path())
        if not after:  # what comes after a part that was followed before is new
            self._leave_out_forgotten(match, said)
        return self._followed(match, said)

    def _followed(self, match: _Match, said: Sequence[Message]) -> Followed:
        new = tuple(said[index].replace(id=match.ids[index], turn_id=None) for index in match.new)
        turn = match.at.message.turn_id if match.at is not None and match.fork is None else None
        at = match.fork or (match.at.position if match.at is not None else None)
        return Followed(at, turn, new, FollowedHistory(tuple(match.ids)), copied=match.copied)

    def _leave_out_forgotten(self, match: _Match, said: Sequence[Message]) -> None:
        """Leave out new messages that were forgotten: as many as are missing after the newest known one."""
        old = [index for index in match.new if index < asked_at(said)]
        if not old or match.diverged or match.at is None:
            return
        gap = self._gap_after(match.at.position)
        if not gap or len(gap) > len(match.new):
            return
        for index in old[: len(gap)]:
            if said[index].id is None:
                match.new.remove(index)
                match.ids[index] = None
        if not self.live.ends_at(match.at.position):
            match.fork = gap[-1]  # a new line holds the gap, too, so that it tells the same when it is matched again

    def _gap_after(self, position: Position) -> list[Position]:
        """Return where messages are missing between a position and the next message on its path, or the end."""
        end = self._end_of(self.live.head.branch or MAIN, position) if self.live.epoch > 0 else None
        if end is None:
            return []
        path = self.live.path_to(end)
        first, last = path.index_of(position) + 1, path.spans[-1].last
        positions = [path.at(index) for index in range(first, min(last + 1, first + CHECKED))]
        found = self.live.records(self.live.key, positions) if self.live.key is not None and positions else []
        there = {one.position: is_prompt(one.message) for one in found}
        upto = takewhile(lambda position: there.get(position, True), positions)
        return [position for position in upto if position not in there]

    def _step(self, match: _Match, message: Message, known: _Known, index: int) -> None:
        """Match one more message: it is stored on the same path, or it is new."""
        own = known.own.get(message.id or "")
        record = known.forms.get(index) if known.whole or not match.diverged else None
        inside = index < known.newest
        if (
            own is not None
            and not match.diverged
            and (record is None or self._continues(match.at, own))
            and says_the_same(own.message, message)
        ):
            record = own  # its id tells more than its words, which may have been said twice
        if record is None and own is None and not match.new and not match.diverged and not (inside and known.whole):
            record = self._added_after(match.at, message, match.path)
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
        id_ = self.new_id() if own is not None or message.id is None else message.id
        match.ids.append(id_)
        if own is not None:
            match.copied[id_] = own

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
        says = normal_form(message)
        for one in self._paths_through(at.position, path, branches=message.role != "user"):
            record = self._next_said(one, at.position)
            if record is not None and normal_form(record.message) == says:
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

    def _known(self, said: Sequence[Message], before: Record | None) -> _Known:
        """Return what is stored of the end of a history; `before` is the message that it comes after."""
        own: dict[str, Record] = {}
        end, size = len(said), FIRST_LOOK
        while end > 0 and self.live.key is not None:
            start = max(0, end - size)
            own |= self._stored(said[max(0, start - CHECKED) : end], without=own)
            plain = {
                n for n, one in enumerate(said[:end]) if one.id in own and says_the_same(own[one.id or ""].message, one)
            }
            # Of messages with ids, the words are looked up only if some are edited: then later ids prove nothing.
            by_words = [one for one in said[start:end] if one.id is None or one.id in own]
            edited = any(one.id in own for n, one in enumerate(said[:end]) if n not in plain)
            words = saying(self.live, [one for one in by_words if one.id is None or edited])
            for index in range(end - 1, start - 1, -1):
                message = said[index]
                mine = own.get(message.id or "") if index in plain else None
                if mine is not None and plain.issuperset(range(max(0, index - CHECKED), index)):
                    return _Known(own, {}, index)
                found = words.get(fingerprint(message), []) if message.id is None or message.id in own else []
                for record in islice(self._nearest(found, index, before), CANDIDATES):
                    forms, whole = self._aligned(record, said, index, before, own)
                    if whole:
                        return _Known(own, forms, index, True)
                if mine is not None:
                    return _Known(own, self._aligned(mine, said, index, before, own)[0], index)
                if message.id in own:
                    return _Known(own, {}, index)
            end, size = start, 2 * size
        return _Known(own)

    def _nearest(self, records: Sequence[Record], index: int, before: Record | None) -> list[Record]:
        """Return stored messages by how near they are to where a message of the history would stand, newest first."""

        def distance(record: Record) -> tuple[int, bool, int]:
            path = self.live.path_to(record.position)
            first = path.index_of(before.position) + 1 if before and path.covers(before.position) else 0
            at = path.index_of(record.position) - self.live.prompts_before(record.position, path)
            return abs(at - first - index), not self.live.path.covers(record.position), -record.seq

        return sorted(records, key=distance) if len(records) > 1 else [*records]

    def _aligned(
        self, record: Record, said: Sequence[Message], index: int, before: Record | None, own: Mapping[str, Record]
    ) -> tuple[dict[int, Record], bool]:
        """Return what is stored of a history up to a message, and whether it says all that is stored before that."""
        path, forms, left, gap = self.live.path_to(record.position), {index: record}, index, 0
        if before is not None and not path.covers(before.position):
            return forms, False
        first = -1 if before is None else path.index_of(before.position)
        for one in self._backwards(path, path.index_of(record.position) - 1, first):
            if len(forms) >= CHECKED:
                return forms, True
            if one is None:
                gap += 1
                continue
            # As many as are missing were forgotten; a client may have left them out, too.
            counts = range(min(gap, left - 1), -1, -1)
            fits = (n for n in counts if self._fits(one, said[left - 1 - n], own))
            count = next(fits, None)
            if count is None:
                return forms, False
            left, gap = left - 1 - count, 0
            forms[left] = one
        return forms, left <= (gap if before is not None or not left else forgotten_first(self.live, gap))

    def _fits(self, record: Record, message: Message, own: Mapping[str, Record]) -> bool:
        return (message.id is None or message.id in own) and says_the_same(record.message, message)

    def _backwards(self, path: Path, last: int, first: int) -> Iterator[Record | None]:
        """Yield the messages of a path before an index, the newest first, without system prompts; None: it is gone."""
        size = NEXT_LOOK
        while last > first and self.live.key is not None:
            positions = [path.at(at) for at in range(max(first + 1, last + 1 - size), last + 1)]
            found = {one.position: one for one in self.live.records(self.live.key, positions)}
            for position in reversed(positions):
                record = found.get(position)
                if record is None or not is_prompt(record.message):
                    yield record
            last, size = last - len(positions), min(2 * size, CHECKED)

    def _stored(self, said: Sequence[Message], without: Mapping[str, Record] = {}) -> dict[str, Record]:
        ids = [one.id for one in said if one.id is not None and one.id not in without]
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

    def _continue(self, said: Sequence[Message], path: Path, tail: Sequence[Record]) -> Followed:
        """Match a history that continues a path, and may repeat messages of its end.

        Such histories come from clients that send no ids and only what is new, or only the end of their history. If the
        user went back, its beginning stands before the end of the path.
        """
        tail = without_prompts(tail)
        old, sent = normal_forms(record.message for record in tail), normal_forms(said)
        count = overlap(old, sent)
        first, count = (len(tail) - count, count) if count else longest_match(old, sent)
        if not count:
            match = _Match(new=[*range(len(said))], ids=[one.id or self.new_id() for one in said])
            if not tail:
                self._leave_out_all_forgotten(match, said)
            followed = self._followed(match, said)
            return replace(followed, at=None if path is self.live.path else path.head, alone=bool(tail))
        same = tail[first : first + count]
        match = _Match(same[-1], ids=[record.message.id for record in same])
        for index in range(count, len(said)):
            self._step(match, said[index], _Known({}), index)
        followed = replace(self._followed(match, said), alone=True)
        # The newest message may be before the head, because the message at the head may have been forgotten.
        return replace(followed, at=path.head) if match.at is tail[-1] else followed

    def _leave_out_all_forgotten(self, match: _Match, said: Sequence[Message]) -> None:
        """Leave out what was said before the newest question, as far as so much was forgotten and nothing is left."""
        old = [index for index in range(asked_at(said)) if said[index].id is None]
        for index in old[: forgotten_first(self.live, 0)] if len(old) < len(said) else ():
            match.new.remove(index)
            match.ids[index] = None

    def _repeats_a_question(self, said: Sequence[Message]) -> bool:
        """Return whether a client that sends only new messages repeats an old question.

        Such a list looks like a whole history that went back to the old question. The next question tells the two
        apart: only if the client sends its whole history, it is recognized by that. Without a next one, a client that
        sends its whole history has said nothing before the question. If it is not answered, it is sent once more.
        """
        if not said or said[0].id is not None or [message.role for message in said].count("user") != 1:
            return False
        path, _ = self._active_path()
        own = saying(self.live, said[:1]).get(fingerprint(said[0]), ()) if said[0].role == "user" else ()
        own = [record for record in own if path.covers(record.position)]
        first = next((one for one in own if self._aligned(one, said, 0, None, {})[1]), None)
        if first is None:
            return False
        answered = False
        for record in without_prompts(self._records_from(path, path.index_of(first.position) + 1)):
            if record.message.role == "user":
                next_ones = saying(self.live, [record.message]).get(fingerprint(record.message), [])
                return record.position not in {one.position for one in next_ones}
            answered = _ends_turn([record.message])
        begins = [record.message.id for record in without_prompts(self._records_from(path, 0))]
        return answered and begins[:1] != [first.message.id]


def _ends_turn(messages: Sequence[Message]) -> bool:
    return bool(messages) and all(message.role == "assistant" and not message.tool_calls for message in messages)
