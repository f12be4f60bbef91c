"""The line of a history: where the conversation says what the history says, and which messages are new there."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice, takewhile

from shared_core.history.followed import Followed, FollowedHistory
from shared_core.history.forms import Forms
from shared_core.history.normal_form import normal_form, says_the_same, whatever_is_answered
from shared_core.messages import Message
from shared_core.queries import InTurn
from shared_core.records import MAIN, Branch, Position, Record
from shared_core.session.live import LiveSession
from shared_core.session.paths import Path
from shared_core.session.turns import is_prompt

CHECKED = 64
"""How many messages of a trimmed history are compared with what is stored, before the newest one that is known."""

FIRST_LOOK = 4
"""How many messages are read first next to another one on its path; then twice as many, and so on."""

LONGEST_LOOK = 512
"""How many messages are read at a time, at most."""

BRANCHES_SEARCHED = 16
"""How many of the newest branches are searched for an answer that another branch holds."""


@dataclass(frozen=True)
class Anchor:
    """A stored message that a message of a history may be, with what stands before it.

    Attributes:
        index: the index of the message in the history.
        record: the message as it is stored.
        forms: the stored forms of the messages of the history up to there, by their indexes.
        whole: whether the history says all that is stored before it.
    """

    index: int
    record: Record
    forms: Mapping[int, Record]
    whole: bool


class Line:
    """Finds the line of one history, by the rules of `Matcher`.

    Args:
        live: the session.
        new_id: returns an id for a new message.
        said: the history, without its system prompt.
        start: the stored message that the history continues. None: it begins the conversation.
        whole: whether the history is the whole conversation.
        rewritten: whether the client may have written answers anew.
    """

    def __init__(
        self, live: LiveSession, new_id: Callable[[], str], said: Sequence[Message], start: Record | None,
        *, whole: bool, rewritten: bool = False,
    ) -> None:  # fmt: skip
        self.live = live
        self.new_id = new_id
        self.said = said
        self.start = start
        self.whole = whole
        self.rewritten = rewritten
        self.forms = Forms(live, said, 0 if whole else CHECKED)

    def followed(self, anchor: Anchor | None) -> Followed | None:
        """Return the result for a history of which an anchor is known; None: nothing tells where the history stands."""
        if anchor is not None:
            return self.after(anchor.record, self._ids(anchor))
        if self.start is not None:
            return self.after(self.start, [])
        own = self.forms.own(0) if self.said and not self.whole else None
        if own is None and not self.whole:
            return None
        first = own or next((one for _, one in self.along(self.live.path, 0) if one is not None), None)
        return self.after(None, [], None if first is None else self._position_before(first))

    def _ids(self, anchor: Anchor) -> list[str | None]:
        """Return the ids up to an anchor. What a trimmed history says long before it is not compared."""
        unchecked = 0 if self.whole else max(0, anchor.index + 1 - CHECKED)
        ids = [one.id for one in self.said[:unchecked]]
        forms = (anchor.forms.get(index) for index in range(unchecked, anchor.index + 1))
        return [*ids, *(None if one is None else one.message.id for one in forms)]

    # What is known

    def anchor(self) -> Anchor | None:
        """Return the newest message of the history that is stored where the history has it; None: there is none."""
        refuted = set[tuple[int, Position]]()
        for index in reversed(range(len(self.said))):
            found = None if self.whole else self._known_by_id(index)
            for record in () if found is not None else self._candidates(index):
                if (index, record.position) in refuted:
                    continue
                one = self.aligned(index, record)
                if not one.whole:
                    refuted |= {(at, form.position) for at, form in one.forms.items()}
                elif found is None or len(one.forms) > len(found.forms):
                    found = one  # of two readings, the one that recognizes more of the history is right
                if found is not None and len(found.forms) >= min(index + 1, CHECKED):
                    break
            if found is not None:
                return found
        return None

    @cached_property
    def _end(self) -> Record | None:
        """The newest message on the path that is checked out; None: there is none after the start."""
        path, start = self.live.path, self.start
        first = path.index_of(start.position) if start is not None and path.covers(start.position) else -1
        return next((one for _, one in self.along(path, path.spans[-1].last, first) if one is not None), None)

    def _candidates(self, index: int) -> Iterator[Record]:
        """Yield what a message of the history may be: first what is checked out, then the newest."""
        # The end of the path that is checked out usually says all that is stored of the history.
        if self.whole and self._end is not None and self.forms.is_one(index, self._end):
            yield self._end
        forms = self.forms.of(index)
        yield from sorted(forms, key=lambda one: (self.live.path.covers(one.position), one.seq), reverse=True)

    def _known_by_id(self, index: int) -> Anchor | None:
        """Return a message of a trimmed history that is known by its id; None if the messages before it deny that."""
        record = self.forms.own(index)
        if record is None or not says_the_same(record.message, self.said[index]):
            return None
        path = self.live.path_to(record.position)
        window = range(max(0, index + 1 - CHECKED), index)
        known = {at: one for at in window if (one := self.forms.own(at)) is not None}
        before = [*known.values(), *([self.start] if self.start is not None else [])]
        if not all(path.covers(one.position) for one in before):
            return None
        if not all(says_the_same(one.message, self.said[at]) for at, one in known.items()):
            return None
        near = self.aligned(index, record).forms if len(known) < len(window) else {}
        return Anchor(index, record, {**near, **known, index: record}, whole=False)

    def aligned(self, index: int, record: Record) -> Anchor:
        """Return what stands before a stored message, compared with what the history says before it."""
        path, forms, left, gap = self.live.path_to(record.position), {index: record}, index, 0
        differs = Anchor(index, record, forms, whole=False)
        if self.start is not None and (record == self.start or not path.covers(self.start.position)):
            return differs
        first = -1 if self.start is None else path.index_of(self.start.position)
        for _, one in self.along(path, path.index_of(record.position) - 1, first):
            if not self.whole and len(forms) >= CHECKED:
                return replace(differs, whole=True)
            if one is None:
                gap += 1
                continue
            at = self._index_of(one, left, gap)
            if at is None:
                return differs
            forms[at], left, gap = one, at, 0
        gap = gap if self.start is not None or not left else forgotten_first(self.live, gap)
        return replace(differs, whole=self._first_left(left, gap) == 0)

    def _index_of(self, record: Record, upto: int, gap: int) -> int | None:
        """Return which message before one of the history a stored one is. What stands between is left out.

        As many messages without ids as are missing in the store were forgotten; a client may lack them, too.
        """
        if upto and (not gap or self.said[upto - 1].id is not None) and self._stands_for(upto - 1, record):
            return upto - 1
        first = max(0, self._first_left(upto, gap) - 1)
        return next((at for at in range(first, upto) if self.forms.is_one(at, record)), None)

    def _stands_for(self, index: int, record: Record) -> bool:
        """Return whether a message of a history is the stored one that stands there, or an answer written anew.

        The history goes on after an answer that is known. One that says what another answer of the turn says is that.
        """
        if self.forms.is_one(index, record):
            return True
        message, stored = self.said[index], record.message
        if not self.rewritten or message.id is not None or message.role != "assistant" or index + 1 == len(self.said):
            return False
        if whatever_is_answered(normal_form(message)) != whatever_is_answered(normal_form(stored)):
            return False
        if any(one.message.turn_id == stored.turn_id for one in self.forms.of(index)):
            return False
        return self._is_likest(index, record)

    def _is_likest(self, index: int, record: Record) -> bool:
        """Return whether no other answer of a turn shares more words with one that was written anew.

        An answer that was asked for again stands beside the first one, and the client may go on after either.
        """
        words, turn_id = set(normal_form(self.said[index])[1].split()), record.message.turn_id
        if turn_id is None or not self._is_forked or words <= _words(record):
            return True
        assert self.live.key is not None
        form = whatever_is_answered(normal_form(record.message))
        found = self.live.store.find(self.live.key, InTurn(turn_id))
        others = [one for one in found if whatever_is_answered(normal_form(one.message)) == form]
        return all(_likeness(words, _words(one)) <= _likeness(words, _words(record)) for one in others)

    @cached_property
    def _is_forked(self) -> bool:
        """Whether the session has more than one line."""
        return self.live.key is not None and len(self.live.store.branches(self.live.key)) > 1

    def _first_left(self, upto: int, gap: int) -> int:
        """Return the index of the first of the messages before one of the history that may all be left out."""
        for at in range(upto - 1, -1, -1):
            if self.said[at].id is None:
                gap -= 1
            if gap < 0 or (self.said[at].id is not None and not self._is_left_out(at)):
                return at + 1
        return 0

    def _is_left_out(self, index: int) -> bool:
        """Return whether a message with an id is not to be on the line.

        It was forgotten; the whole history has it twice; or a trimmed one has it inserted before what is stored.
        """
        if not self.whole:
            return self.forms.own(index) is None
        return self.forms.is_forgotten(index) or self._is_twin(index)

    def _is_twin(self, index: int) -> bool:
        """Return whether a message stands in the history before, or on the line that the history continues."""
        if self.forms.is_twin(index) or self.start is None or self.said[index].id is None:
            return self.forms.is_twin(index)
        path = self.live.path_to(self.start.position)
        return any(path.covers(record.position) for record in self.forms.of(index))

    # What is new

    def after(self, record: Record | None, ids: Sequence[str | None], at: Position | None = None) -> Followed:
        """Return the result for a history that is known up to a message.

        Args:
            record: the newest message that is known. None: none is.
            ids: the ids of the messages up to there.
            at: the position where the new ones come, if that is another one.
        """
        ids = [*ids]
        while len(ids) < len(self.said) and (found := self._known_after(record, len(ids))):
            index, record = found
            ids += [*[None] * (index - len(ids)), record.message.id]
        new = [n for n in range(len(ids), len(self.said)) if not (self.whole and self._is_twin(n))]
        left_out, gap_end = self._forgotten_among(new, record)
        messages: dict[int, Message] = {}
        copied: dict[str, Record] = {}
        for index in new:
            if index not in left_out:
                messages[index], source = self._to_store(index)
                copied |= {} if source is None else {messages[index].id or "": source}
        ids += [messages[index].id if index in messages else None for index in range(len(ids), len(self.said))]
        at = at or gap_end or (record.position if record is not None else None)
        turn = record.message.turn_id if record is not None else None
        return Followed(at, turn, tuple(messages.values()), FollowedHistory(tuple(ids)), copied=copied)

    def _to_store(self, index: int) -> tuple[Message, Record | None]:
        """Return a message to store, and what it is a copy of.

        An edited message has what it was as its source: who erases that erases all that it ever said.
        """
        message, own = self.said[index], self.forms.own(index)
        if own is None:
            return message.replace(id=message.id or self.new_id(), turn_id=None), None
        copied = own.message if says_the_same(own.message, message) else message
        return copied.replace(id=self.new_id(), turn_id=None), own

    def _forgotten_among(self, new: Sequence[int], record: Record | None) -> tuple[Sequence[int], Position | None]:
        """Return which new messages were forgotten, and where the gap ends that they have left after a message.

        They are as many as are missing there, but for the question that ends the history: it may be asked again. A new
        line holds the gap, too, so that it tells the same when it is matched again.
        """
        old = [index for index in new if index < asked_at(self.said)]
        if not old or self.start is not None or self.live.epoch <= 0:
            return (), None
        path, first = self.live.path if self.whole else newest_path(self.live), 0
        if record is None and not self.whole and any(one is not None for _, one in self.along(path, 0)):
            return (), None
        if record is not None:
            end = end_of(self.live, self.live.head.branch or MAIN, record.position)
            if end is None:
                return (), None
            path = self.live.path_to(end)
            first = path.index_of(record.position) + 1
        gap = [position for position, _ in takewhile(lambda pair: pair[1] is None, self.along(path, first))]
        count = len(gap) if record is not None else min(forgotten_first(self.live, len(gap)), len(old))
        if not count or count > len(new):
            return (), None
        left_out = [index for index in old[:count] if self.said[index].id is None]
        elsewhere = left_out and record is not None and not self.live.ends_at(record.position)
        return left_out, gap[-1] if elsewhere else None

    def _known_after(self, record: Record | None, index: int) -> tuple[int, Record] | None:
        """Return the next known message of the history after another one, and its index; None: that one is the last.

        An answer that was written anew is found behind a forgotten question, too.
        """
        if record is not None and (found := self._added_after(record, index)):
            return index, found
        if not self.rewritten or self.start is not None or self.live.epoch <= 0:
            return None
        path = self.live.path if self.whole else newest_path(self.live)
        if record is not None and not path.covers(record.position):
            return None
        ahead = self.along(path, 0 if record is None else path.index_of(record.position) + 1)
        stored = enumerate(islice(ahead, len(self.said)))
        gap, found = next(((gap, one) for gap, (_, one) in stored if one is not None), (0, None))
        at = index + (gap if record is not None else forgotten_first(self.live, gap))
        if found is None or not index < at < len(self.said) or self.said[index].id is not None:
            return None
        return (at, found) if self._stands_for(at, found) else None

    def _added_after(self, record: Record, index: int) -> Record | None:
        """Return the message that is stored right after another one, if `add` stored it for one of the history.

        An answer is looked for on other branches, too. A question without an id is found there by its words.
        """
        question, branches = self.said[index].role == "user", list[Branch]()
        if question and self.said[index].id is not None:
            return None
        if not question and self.live.key is not None:
            branches = self.live.store.branches(self.live.key)[::-1][:BRANCHES_SEARCHED]
        for path in (self.live.path, *(self.live.path_to(branch.head) for branch in branches)):
            ahead = self.along(path, path.index_of(record.position) + 1) if path.covers(record.position) else ()
            found = next((one for _, one in ahead if one is not None), None)
            if found is not None and self._stands_for(index, found):
                return found
        return None

    # What is read

    def along(self, path: Path, first: int, stop: int | None = None) -> Iterator[tuple[Position, Record | None]]:
        """Yield what stands on a path from an index on, without system prompts; None: it was forgotten.

        Args:
            path: the path.
            first: the index that is read first.
            stop: read backwards, down to this index, which is excluded. None: read up to the end of the path.
        """
        indexes = range(first, path.spans[-1].last + 1) if stop is None else range(first, stop, -1)
        size = FIRST_LOOK
        while indexes and self.live.key is not None:
            page = [path.at(index) for index in indexes[:size]]
            found = {one.position: one for one in self.live.records(self.live.key, page)}
            for position in page:
                record = found.get(position)
                if record is None or not is_prompt(record.message):
                    yield position, record
            indexes, size = indexes[size:], min(2 * size, LONGEST_LOOK)

    def before(self, record: Record) -> Record | None:
        """Return the newest message before another one on its path; None: it is the first."""
        path = self.live.path_to(record.position)
        behind = self.along(path, path.index_of(record.position) - 1, -1)
        return next((one for _, one in behind if one is not None), None)

    def _position_before(self, record: Record) -> Position:
        path = self.live.path_to(record.position)
        return path.at(path.index_of(record.position) - 1)


def _words(record: Record) -> set[str]:
    return {*normal_form(record.message)[1].split()}


def _likeness(one: set[str], other: set[str]) -> float:
    """Return the share of the words of two texts that are in both."""
    return len(one & other) / (len(one | other) or 1)


def asked_at(said: Sequence[Message]) -> int:
    """Return the index of the question that a history ends with, calls and results after it included, or its length."""
    index = next((n for n in range(len(said) - 1, -1, -1) if said[n].role == "user"), len(said))
    return len(said) if any(one.role == "assistant" and not one.tool_calls for one in said[index:]) else index


def newest_path(live: LiveSession) -> Path:
    """Return the path of the message that was stored last; if that is on the path that is checked out, this one."""
    newest = live.stored_last(1)
    if not newest or live.key is None or live.path.covers(newest[0].position):
        return live.path
    segment, depth = newest[0].position
    ends = [branch.head for branch in live.store.branches(live.key)]
    # What is later on its line was forgotten.
    return live.path_to(
        next((end for end in ends if end.segment == segment and end.depth >= depth), newest[0].position)
    )


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


def forgotten_first(live: LiveSession, gap: int) -> int:
    """Return how many messages were forgotten before the first one of a session; `gap` says where it stands.

    If the whole session was forgotten, what is said since begins elsewhere.
    """
    if live.key is None or live.epoch <= 0:
        return gap
    return max(gap, live.store.stats(live.key)["forgotten"])
