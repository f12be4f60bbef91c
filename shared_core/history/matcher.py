"""Match a history that a client sends again with what is stored: which messages are known, and which are new."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import takewhile
from typing import Literal
from uuid import uuid4

from shared_core.errors import DuplicateError, StaleHeadError
from shared_core.history.followed import Followed, FollowedHistory
from shared_core.history.forgetful_line import ForgetfulLine
from shared_core.history.forms import families, saying
from shared_core.history.line import CHECKED, Line, newest_path
from shared_core.history.normal_form import NormalForm, fingerprint, normal_forms, whatever_is_answered
from shared_core.messages import Message
from shared_core.queries import InTurns
from shared_core.records import MAIN, Position, Record
from shared_core.session.checkout import Checkout, if_unmoved, no_changes
from shared_core.session.live import LiveSession
from shared_core.session.paths import Path
from shared_core.session.turns import Entry, is_prompt, kept_of, said_of

Removed = Literal["keep", "leave_out"]
"""What happens to stored messages that a history lacks."""

REPEATED = 3
"""The fewest messages that tell a history that went back from one whose words happen to be the same."""


def follow(
    checkout: Checkout, messages: Sequence[Message], after: FollowedHistory, removed: Removed, since: str | None,
    rewritten: bool,
) -> tuple[FollowedHistory, list[Message]]:  # fmt: skip
    """Store what is new in a history and check out its end; see `InfiniteMemory.follow`.

    Returns:
        The whole history, and the messages that were given to the store, as stored.
    """
    refused = set[str | None]()
    while True:
        try:
            return _follow(checkout, messages, after, removed, since, rewritten)
        except StaleHeadError:  # another process added to the branch since the history was matched with it
            continue
        except DuplicateError as error:  # it stored one of the messages on a branch of its own
            if error.id in refused:
                raise
            refused.add(error.id)


def _follow(
    checkout: Checkout, messages: Sequence[Message], after: FollowedHistory, removed: Removed, since: str | None,
    rewritten: bool,
) -> tuple[FollowedHistory, list[Message]]:  # fmt: skip
    """Do it once; StaleHeadError if the branch moved meanwhile: what others said there may belong to another branch."""
    live = checkout.live
    live.sync()
    followed = Matcher(live, checkout.writer.stamps.id, rewritten=rewritten).follow(messages, after, removed, since)
    if followed.at is not None:
        checkout.stand_at(followed.at)
        checkout.writer.open_turn = followed.turn
        if live.head.branch is not None and not live.ends_at(followed.at):
            raise StaleHeadError("the branch grew while it was checked out")
    # A session that is not there yet has epoch 0. Without a branch, the messages open one, and come after nobody's.
    unmoved = no_changes if live.head.branch is None else if_unmoved(max(0, live.epoch), live.path.head)
    stored = checkout.writer.add(followed.new, None, followed.prompt_id, followed.copied, unmoved, followed.alone)
    gone = {message.id for message in followed.new} - {message.id for message in stored}
    ids = tuple(None if id_ in gone else id_ for id_ in followed.history.ids) if gone else followed.history.ids
    return replace(followed.history, ids=ids), stored


def forgotten_in(live: LiveSession, messages: Iterable[Message]) -> set[int]:
    """Return which messages of a history without ids were forgotten; `messages` are the whole conversation.

    Only where they stood is known, so messages that are not stored count as forgotten only before one that is, or if
    the history has nothing new.
    """
    live.sync()
    if live.epoch <= 0:
        return set()
    followed = Matcher(live, lambda: uuid4().hex).follow([*messages], FollowedHistory(), "leave_out")
    new = {message.id for message in followed.new}
    ids = followed.history.ids
    known = [n for n, id_ in enumerate(ids) if id_ is not None and id_ not in new]
    upto = max(known, default=0) if new else len(ids)
    return {n for n, id_ in enumerate(ids[:upto]) if id_ is None}


class Matcher:
    """Matches histories with a session.

    The rules, by what a history has at a spot:

    | the history has | it is |
    |---|---|
    | a message with a stored id and text | the stored one, if what is said before it is, too |
    | one without an id | the stored one that says the same (`normal_form`), if all before it does |
    | an answer without an id that nothing says, and more after it; `rewritten` | the stored answer that stands there |
    | a question without an id that nothing says, before the stored answer to it; `rewritten` | the stored question |
    | an answer with an unknown id | the stored one that says the same there: `add` stored it |
    | a stored id with another text | an edited message: a branch, with copies of what comes after it |
    | a forgotten id; as many messages without ids as are missing there | left out, but for the newest question |
    | nothing, where a message is stored; `keep` | trimmed: the stored one stays |
    | nothing, where a message is stored; `leave_out` | taken back: a branch without it |
    | an unknown message before a stored one; `keep` | inserted by the client, as a summary: not stored |
    | an unknown message before a stored one; `leave_out` | inserted: a branch that has it |
    | an id twice; `leave_out` | one message, where it is first |
    | system messages | the system prompt, stored again when it changes |

    "All before it" is the whole line with `leave_out`, and the last `CHECKED` messages with `keep`. A trimmed history
    in which nothing tells where it begins continues the line that was stored last, and may repeat its end. Without ids,
    what is missing or unknown in its middle is not told from another line: it is a branch with `keep`, too.

    Args:
        live: the session.
        new_id: returns an id for a new message.
        rewritten: whether the client may have written answers anew. Then all of them are stored as they came.
    """

    def __init__(self, live: LiveSession, new_id: Callable[[], str], *, rewritten: bool = False) -> None:
        self.live = live
        self.new_id = new_id
        self.rewritten = rewritten

    def follow(
        self, messages: Sequence[Message], after: FollowedHistory, removed: Removed = "keep", since: str | None = None
    ) -> Followed:
        """Match a history. `messages` are those that follow `after`, the part that was followed before."""
        if not isinstance(after, FollowedHistory):
            raise TypeError(f"after={after!r}: expected what an earlier follow() returned")
        followed = self._whole(messages, after, since) if removed == "leave_out" else self._part(messages, after)
        if after.branch is not None and followed.turn is not None and _ends_turn(followed.new) and not followed.copied:
            end = end_of(self.live, after.branch, followed.at)
            if end is not None and not self._is_answered(followed.turn, after, end):
                followed = replace(followed, at=end)
        followed = self._with_prompt(messages, followed, after)
        prompts = after.prompts + tuple(map(is_prompt, messages))
        return replace(followed, history=FollowedHistory(after.ids + followed.history.ids, prompts))

    def _whole(self, messages: Sequence[Message], after: FollowedHistory, since: str | None) -> Followed:
        """Match a history that is the whole conversation, from `since` on."""
        said, known = said_of(messages), self._newest_of(after.split()[0])
        kept = next((n for n, message in enumerate(messages) if since is not None and message.id == since), None)
        if kept is None:
            return self._followed(said, known)
        first = len(said_of(messages[:kept]))
        replaced = self._line(said[:first], None).forms
        ids = [next((one.message.id for one in replaced.of(n) if said[n].id), None) for n in range(first)]
        rest = self._line(said[first:], None)
        anchored = next((one for n in range(len(rest.said)) if (one := self._form_beside(rest, n, known))), None)
        followed = rest.after(None, []) if anchored is None else self._followed(rest.said, rest.before(anchored))
        return replace(followed, history=FollowedHistory((*ids, *followed.history.ids)))

    def _line(self, said: Sequence[Message], start: Record | None, *, whole: bool = True) -> Line:
        forgetful = self.live.epoch > 0 and any(one.id is None for one in said)
        kind = ForgetfulLine if forgetful else Line
        return kind(self.live, self.new_id, said, start, whole=whole, rewritten=self.rewritten)

    def _followed(self, said: Sequence[Message], start: Record | None) -> Followed:
        line = self._line(said, start)
        followed = line.followed()
        assert followed is not None  # a whole history begins the conversation
        return followed

    def _form_beside(self, line: Line, index: int, known: Record | None) -> Record | None:
        """Return a stored form of a message that may stand anywhere: on the line of `known`, if it can be.

        Of several, the one that is on the path that is checked out, else the newest.
        """
        own = line.forms.own(index)
        if own is None or self.live.key is None:
            return None
        found = families(self.live.store, self.live.key, [own])[own.message.id or ""]
        if known is not None:
            found = [one for one in found if self.live.path_to(one.position).covers(known.position)] or found
        return max(found, key=lambda one: (self.live.path.covers(one.position), one.seq))

    def _part(self, messages: Sequence[Message], after: FollowedHistory) -> Followed:
        """Match a history of which the client may have left out the beginning."""
        said = said_of(messages)
        line = self._line(said, self._newest_of(after.split()[0]), whole=False)
        if not after and self._repeats_a_question(line):
            return self._continue(line, *self._active_path())
        followed = line.followed()
        if followed is not None and (after or said[0].id is not None or self._continues_here(followed)):
            return followed
        path, tail = self._active_path()
        if followed is not None:
            # It looks like a history that went back, but may be the end of one that goes on, and begin with words that
            # began the conversation. Of two readings, the one that recognizes more of the history is right.
            again = overlap(normal_forms(record.message for record in tail), normal_forms(said))
            # If it lacks messages that were forgotten, the user may have begun anew and said their words again.
            anew = None in followed.history.ids and said[-1].role == "user"
            if again < (len(said) - 1 if anew else max(REPEATED, len(said) - len(followed.new))):
                return followed
        return self._continue(line, path, tail)

    def _continues_here(self, followed: Followed) -> bool:
        return followed.at is None or self.live.ends_at(followed.at)

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
            return self.live.system_prompt()
        return self.live.system_prompt_of(self.live.path_to(position))

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

    def _is_answered(self, turn: str, after: FollowedHistory, end: Position) -> bool:
        """Return whether a line holds an answer that ends a turn, and that is not part of a history.

        A client that was cut off asks again, and the answer that it did not wait for may be stored meanwhile.
        """
        assert self.live.key is not None
        path, known = self.live.path_to(end), set(after.ids)
        return any(
            _ends_turn([record.message]) and record.message.id not in known and path.covers(record.position)
            for record in self.live.store.find(self.live.key, InTurns([turn]))
        )

    def _continue(self, line: Line, path: Path, tail: Sequence[Record]) -> Followed:
        """Match a history that continues a path, and may repeat messages of its end.

        Such histories come from clients that send no ids and only what is new, or only the end of their history. If the
        user went back, its beginning stands before the end of the path.
        """
        old, sent = normal_forms(record.message for record in tail), normal_forms(line.said)
        count = overlap(old, sent)
        if not count and self.rewritten and line.said[-1:] and line.said[-1].role != "assistant":
            count = overlap([*map(whatever_is_answered, old)], [*map(whatever_is_answered, sent)])
        first, count = (len(tail) - count, count) if count else longest_match(old, sent)
        if not count:
            at = None if path is self.live.path else path.head
            return replace(line.after(None, []), at=at, alone=bool(tail))
        same = tail[first : first + count]
        followed = replace(line.after(same[-1], [record.message.id for record in same]), alone=True)
        # The newest message may be before the head, because the message at the head may have been forgotten.
        return replace(followed, at=path.head) if followed.at == tail[-1].position else followed

    def _active_path(self) -> tuple[Path, list[Record]]:
        """Return the path of the message that was stored last, and what is said at its end.

        What this object has checked out is preferred only if it holds that message: a client may be served by another
        object, or another process, each time.
        """
        path = newest_path(self.live)
        last = path.spans[-1].last
        positions = [path.at(index) for index in range(max(0, last + 1 - CHECKED), last + 1)]
        records = self.live.records(self.live.key, positions) if self.live.key is not None else []
        return path, [record for record in records if not is_prompt(record.message)]

    def _repeats_a_question(self, line: Line) -> bool:
        """Return whether a client that sends only new messages repeats an old question.

        Such a list looks like a whole history that went back to the old question. The next question tells the two
        apart: only if the client sends its whole history, it is recognized by that.
        """
        said = line.said
        if not said or said[0].id is not None or [message.role for message in said].count("user") != 1:
            return False
        path = newest_path(self.live)
        own = [one for one in line.forms.of(0) if one.message.role == "user" and path.covers(one.position)]
        first = next((one for one in own if line.aligned(0, one).whole), None)
        if first is None:
            return False
        after = (one for _, one in line.along(path, path.index_of(first.position) + 1) if one is not None)
        following = next((one for one in after if one.message.role == "user"), None)
        if following is None:
            return False
        known = saying(self.live, [following.message]).get(fingerprint(following.message), [])
        return following.position not in {one.position for one in known}


def end_of(live: LiveSession, branch: str, position: Position | None) -> Position | None:
    """Return where a branch ends, if a position is on its path; else where another such branch does, or None.

    The branch may have another name by now, because another line was made `main`.
    """
    if live.key is None or position is None:
        return None
    end = live.store.state(live.key, branch).head
    if end is not None and live.path_to(end).covers(position):
        return end
    ends = {other.name: other.head for other in live.store.branches(live.key)}
    heads = [ends.pop(MAIN), *reversed(ends.values())]
    return next((head for head in heads if live.path_to(head).covers(position)), None)


def overlap(old: Sequence[NormalForm], said: Sequence[NormalForm]) -> int:
    """Return how many messages at the end of `old` are the beginning of `said`."""
    return next((count for count in range(min(len(old), len(said)), 0, -1) if old[-count:] == said[:count]), 0)


def longest_match(old: Sequence[NormalForm], said: Sequence[NormalForm]) -> tuple[int, int]:
    """Return where the longest beginning of `said` stands among `old`, the newest of equals, and its length, or 0."""
    best = (len(old), 0)
    for first in range(len(old) - 1, -1, -1):
        pairs = zip(old[first:], said, strict=False)
        count = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
        if count >= REPEATED and count > best[1]:
            best = (first, count)
    return best


def _ends_turn(messages: Sequence[Message]) -> bool:
    return bool(messages) and all(message.role == "assistant" and not message.tool_calls for message in messages)
