"""The line of a history: where the conversation says what the history says, and which messages are new there."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from shared_core.history.followed import Followed, FollowedHistory
from shared_core.history.forms import Forms
from shared_core.history.normal_form import (
    likeness,
    normal_form,
    says_the_same,
    whatever_is_answered,
    words_of,
)
from shared_core.messages import Message
from shared_core.queries import InTurns
from shared_core.records import ALL, Position, Record
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
        self._turns: dict[str, Sequence[Record]] = {}  # read once: an answer is compared with many messages

    def followed(self) -> Followed | None:
        """Return the result for the history; None: nothing tells where it stands."""
        anchor = self._anchor()
        if anchor is not None:
            return self.after(anchor.record, self._ids(anchor))
        if self.start is not None:
            return self.after(self.start, [])
        own = self.forms.own(0) if self.said and not self.whole else None
        return self.after(None, [], self.before_all(own)) if own is not None or self.whole else None

    def _ids(self, anchor: Anchor) -> list[str | None]:
        """Return the ids up to an anchor. What a trimmed history says long before it is not compared."""
        unchecked = 0 if self.whole else max(0, anchor.index + 1 - CHECKED)
        ids = [one.id for one in self.said[:unchecked]]
        forms = (anchor.forms.get(index) for index in range(unchecked, anchor.index + 1))
        return [*ids, *(None if one is None else one.message.id for one in forms)]

    # What is known

    def _anchor(self) -> Anchor | None:
        """Return the newest message of the history that is stored where the history has it; None: there is none."""
        refuted = set[tuple[int, Position]]()
        for index in reversed(range(len(self.said))):
            found = None if self.whole else self._known_by_id(index)
            for record in () if found is not None else self.candidates(index):
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

    def candidates(self, index: int) -> Iterator[Record]:
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
        path, forms, left = self.live.path_to(record.position), {index: record}, index
        differs = Anchor(index, record, forms, whole=False)
        if self.start is not None and (record == self.start or not path.covers(self.start.position)):
            return differs
        first = -1 if self.start is None else path.index_of(self.start.position)
        for _, one in self.along(path, path.index_of(record.position) - 1, first):
            if not self.whole and len(forms) >= CHECKED:
                return replace(differs, whole=True)
            if one is None:
                continue
            at = self._index_of(one, left)
            if at is None:
                return differs
            forms[at], left = one, at
        return replace(differs, whole=self._first_left(left) == 0)

    def _index_of(self, record: Record, upto: int) -> int | None:
        """Return which message before one of the history a stored one is. What stands between is left out."""
        if upto and self.stands_for(upto - 1, record):
            return upto - 1
        first = max(0, self._first_left(upto) - 1)
        return next((at for at in range(first, upto) if self.forms.is_one(at, record)), None)

    def stands_for(self, index: int, record: Record) -> bool:
        """Return whether a message of a history is the stored one that stands there, or that one in other words.

        The history goes on after what is in other words. An answer that says what another one of its turn says is that.
        """
        if self.forms.is_one(index, record):
            return True
        message, stored = self.said[index], record.message
        if not self.rewritten or message.id is not None or index + 1 == len(self.said):
            return False
        if message.role != "assistant":
            return self._asked_otherwise(index, record)
        if whatever_is_answered(normal_form(message)) != whatever_is_answered(normal_form(stored)):
            return False
        if any(one.message.turn_id == stored.turn_id for one in self.forms.of(index)):
            return False
        return self._is_likest(index, record)

    def _asked_otherwise(self, index: int, record: Record) -> bool:
        """Return whether a message of a history is a stored question in other words, as the answer to it follows.

        Some clients add a reminder to the newest question, and leave it out when they send the question again.
        """
        if not self.said[index].role == record.message.role == "user":
            return False
        answers = (one.message for one in self.forms.of(index + 1))
        return any(one.role == "assistant" and one.turn_id == record.message.turn_id for one in answers)

    def _is_likest(self, index: int, record: Record) -> bool:
        """Return whether no other answer of a turn shares more words with one that was written anew.

        An answer that was asked for again stands beside the first one, and the client may go on after either.
        """
        message, turn_id = self.said[index], record.message.turn_id
        if turn_id is None or not self._is_forked or words_of(message) <= words_of(record.message):
            return True
        if turn_id not in self._turns:
            assert self.live.key is not None
            self._turns[turn_id] = self.live.store.find(self.live.key, InTurns([turn_id]))
        form = whatever_is_answered(normal_form(record.message))
        others = [one for one in self._turns[turn_id] if whatever_is_answered(normal_form(one.message)) == form]
        return all(likeness(message, one.message) <= likeness(message, record.message) for one in others)

    @cached_property
    def _is_forked(self) -> bool:
        """Whether the session has more than one line."""
        return self.live.key is not None and len(self.live.store.branches(self.live.key)) > 1

    def _first_left(self, upto: int) -> int:
        """Return the index of the first of the messages before one of the history that may all be left out."""
        return next((at + 1 for at in range(upto - 1, -1, -1) if not self.is_left_out(at)), 0)

    def is_left_out(self, index: int) -> bool:
        """Return whether a message has an id, but is not to be on the line.

        It was forgotten; the whole history has it twice; or a trimmed one has it inserted before what is stored.
        """
        if self.said[index].id is None:
            return False
        if not self.whole:
            return self.forms.own(index) is None
        return self.forms.is_forgotten(index) or self.is_twin(index)

    def is_twin(self, index: int) -> bool:
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
        while record is not None and len(ids) < len(self.said) and (found := self._added_after(record, len(ids))):
            record = found
            ids.append(found.message.id)
        return self.ended(record, ids, at)

    def ended(
        self, record: Record | None, ids: Sequence[str | None], at: Position | None, forgotten: Collection[int] = ()
    ) -> Followed:  # fmt: skip
        """Return the result for a history of which nothing more is known than up to a message; see `after`.

        Args:
            record: the newest message that is known.
            ids: the ids of the messages up to there.
            at: the position where the new ones come, if that is another one.
            forgotten: the indexes of messages that were forgotten.
        """
        messages: dict[int, Message] = {}
        copied: dict[str, Record] = {}
        for index in range(len(ids), len(self.said)):
            if index not in forgotten and not (self.whole and self.is_twin(index)):
                messages[index], source = self._to_store(index)
                copied |= {} if source is None else {messages[index].id or "": source}
        new = [messages[index].id if index in messages else None for index in range(len(ids), len(self.said))]
        at = at or (record.position if record is not None else None)
        turn = record.message.turn_id if record is not None else None
        return Followed(at, turn, tuple(messages.values()), FollowedHistory((*ids, *new)), copied=copied)

    def _to_store(self, index: int) -> tuple[Message, Record | None]:
        """Return a message to store, and what it is a copy of.

        An edited message has what it was as its source: who erases that erases all that it ever said.
        """
        message, own = self.said[index], self.forms.own(index)
        if own is None:
            return message.replace(id=message.id or self.new_id(), turn_id=None), None
        copied = own.message if says_the_same(own.message, message) else message
        return copied.replace(id=self.new_id(), turn_id=None), own

    def _added_after(self, record: Record, index: int) -> Record | None:
        """Return the message that is stored right after another one, if `add` stored it for one of the history.

        An answer is looked for on other lines, too. A question without an id is found by its words.
        """
        question = self.said[index].role == "user"
        if question and self.said[index].id is not None:
            return None
        for path in self.lines(0 if question else BRANCHES_SEARCHED):
            ahead = self.along(path, path.index_of(record.position) + 1) if path.covers(record.position) else ()
            found = next((one for _, one in ahead if one is not None), None)
            if found is not None and self.stands_for(index, found):
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

    def lines(self, most: int = ALL) -> Iterator[Path]:
        """Yield the path that is checked out, and those of the newest branches, at most so many."""
        yield self.live.path
        branches = self.live.store.branches(self.live.key) if most and self.live.key is not None else []
        yield from (self.live.path_to(branch.head) for branch in branches[::-1][:most])

    def before(self, record: Record) -> Record | None:
        """Return the newest message before another one on its path; None: it is the first."""
        path = self.live.path_to(record.position)
        behind = self.along(path, path.index_of(record.position) - 1, -1)
        return next((one for _, one in behind if one is not None), None)

    def before_all(self, first: Record | None = None) -> Position | None:
        """Return the position before the first message of the conversation, or before another one."""
        first = first or next((one for _, one in self.along(self.live.path, 0) if one is not None), None)
        path = self.live.path_to(first.position) if first is not None else self.live.path
        return path.at(path.index_of(first.position) - 1) if first is not None else None


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
