"""The line of a history: where the conversation says what the history says, and which messages are new there."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

from shared_core.history.followed import Followed, FollowedHistory
from shared_core.history.forms import Forms
from shared_core.history.normal_form import (
    KEPT_WORDS,
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

SURE = 2
"""The trust in a reading of a history in which all that is old is known, or was forgotten, beyond doubt."""

READINGS = 256
"""How many readings of a history in which messages were forgotten are compared, at most."""

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


class Reading(NamedTuple):
    """What is known of a history after a message.

    Attributes:
        known: the indexes of messages, and what is stored.
        trust: how good the reading is, up to `SURE`.
    """

    known: list[tuple[int, Record]]
    trust: int


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
            ids = self._ids(anchor)
            reading = self._read(anchor.record, len(ids))
            return self.begun(reading.trust) or self.after(anchor.record, ids, reading=reading)
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
            if at is None and not gap and self._asked_otherwise(left - 1, one, forms[left]):
                at = left - 1
            if at is None:
                return differs
            forms[at], left, gap = one, at, 0
        gap = gap if self.start is not None or not left else forgotten_first(self.live, path, gap)
        return replace(differs, whole=self._first_left(left, gap) == 0)

    def _index_of(self, record: Record, upto: int, gap: int) -> int | None:
        """Return which message before one of the history a stored one is. What stands between is left out.

        As many messages without ids as are missing in the store were forgotten; a client may lack them, too.
        """
        if upto and (not gap or self.said[upto - 1].id is not None) and self._stands_for(upto - 1, record):
            return upto - 1
        first = max(0, self._first_left(upto, gap) - 1)
        at = next((at for at in range(first, upto) if self.forms.is_one(at, record)), None)
        return first if at is None and first < upto and self._stands_for(first, record) else at

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

    def _asked_otherwise(self, index: int, record: Record, answer: Record) -> bool:
        """Return whether a message of a history is a stored question in other words, as the answer to it follows.

        Some clients add a reminder to the newest question, and leave it out when they send the question again.
        """
        if not self.rewritten or index < 0 or self.said[index].id is not None:
            return False
        if not self.said[index].role == record.message.role == "user" or answer.message.role != "assistant":
            return False
        return answer.message.turn_id == record.message.turn_id and self.forms.is_one(index + 1, answer)

    def _is_likest(self, index: int, record: Record) -> bool:
        """Return whether no other answer of a turn shares more words with one that was written anew.

        An answer that was asked for again stands beside the first one, and the client may go on after either.
        """
        message, turn_id = self.said[index], record.message.turn_id
        if turn_id is None or not self._is_forked or words_of(message) <= words_of(record.message):
            return True
        assert self.live.key is not None
        form = whatever_is_answered(normal_form(record.message))
        found = self.live.store.find(self.live.key, InTurns([turn_id]))
        others = [one for one in found if whatever_is_answered(normal_form(one.message)) == form]
        return all(likeness(message, one.message) <= likeness(message, record.message) for one in others)

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

    def begun(self, trust: int = 0) -> Followed | None:
        """Return the result for a history that begins with forgotten messages, and in which all else is known.

        Args:
            trust: that of another reading; this one has to be better.
        """
        goes_on = self._asked < len(self.said) and any(one.role == "assistant" for one in self.said[: self._asked])
        if not self._is_forgetful or trust == SURE or not goes_on:
            return None
        line = Line(self.live, self.new_id, self.said, None, whole=True, rewritten=self.rewritten)
        reading = line._read(None, 0)
        return line.after(None, [], reading=reading) if reading.trust > trust else None

    def after(
        self, record: Record | None, ids: Sequence[str | None], at: Position | None = None,
        reading: Reading | None = None,
    ) -> Followed:  # fmt: skip
        """Return the result for a history that is known up to a message.

        Args:
            record: the newest message that is known. None: none is.
            ids: the ids of the messages up to there.
            at: the position where the new ones come, if that is another one.
            reading: what is known after that message. None: it is read.
        """
        ids = [*ids]
        known = (reading or self._read(record, len(ids))).known
        for index, found in known:
            ids += [*[None] * (index - len(ids)), found.message.id]
        record = known[-1][1] if known else record
        new = [n for n in range(len(ids), len(self.said)) if not (self.whole and self._is_twin(n))]
        left_out, gap_end = self._forgotten_among(new, record)
        messages: dict[int, Message] = {}
        copied: dict[str, Record] = {}
        for index in new:
            if index not in left_out:
                messages[index], source = self._to_store(index)
                copied |= {} if source is None else {messages[index].id or "": source}
        ids += [messages[index].id if index in messages else None for index in range(len(ids), len(self.said))]
        at = gap_end or (record.position if record is not None else at)
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

        They are as many as are missing there on a line, but for the question that ends the history: it may be asked
        again. A new line holds the gap, too, so that it tells the same when it is matched again. Fewer may be new, but
        for a client that writes answers anew, whose answers have all been stored.
        """
        old = [index for index in new if index < self._asked]
        if not old or self.start is not None or self.live.epoch <= 0:
            return (), None
        if not (self.whole or record is not None or self._nothing_left):
            return (), None  # it need not be the beginning
        gap = max((gap for gap, _ in self._ahead(record)), key=len, default=[])
        count = len(gap)
        if record is None:  # of a session that was forgotten as a whole, the history may hold less
            count = min(forgotten_first(self.live, self.live.path, count), len(old))
        if not count or (count > len(new) and not self.rewritten):
            return (), None
        left_out = [index for index in old[:count] if self.said[index].id is None]
        elsewhere = left_out and gap and not (record is not None and self.live.ends_at(record.position))
        return left_out, gap[min(len(left_out), len(gap)) - 1] if elsewhere else None

    @cached_property
    def _asked(self) -> int:
        """The index of the question that the history ends with, calls and results after it included, or its length."""
        said = self.said
        index = next((n for n in range(len(said) - 1, -1, -1) if said[n].role == "user"), len(said))
        return len(said) if any(one.role == "assistant" and not one.tool_calls for one in said[index:]) else index

    def _read(self, record: Record | None, index: int) -> Reading:
        """Return what is known of the history after a message: of several readings the best, or the first of equals."""
        known, best = list[tuple[int, Record]](), Reading([], -1)
        waiting = [self._next_known(record, index)]
        for _ in range(READINGS):
            while (step := next(waiting[-1], None)) is not None:
                known.append(step)
                waiting.append(self._next_known(step[1], step[0] + 1))
            if not self._is_forgetful:
                return Reading(known, SURE)
            trust = self._trust(known, known[-1] if known else (index - 1, record))
            best = Reading([*known], trust) if trust > best.trust else best
            waiting.pop()
            if best.trust == SURE or not known:
                break
            known.pop()
        return best

    def _trust(self, known: Sequence[tuple[int, Record]], end: tuple[int, Record | None]) -> int:
        """Return how good a reading is: 0 if anything but the newest question is neither known nor forgotten.

        It is `SURE` if answers that were written anew have kept their words, and else between.
        """
        old = range(end[0] + 1, self._asked)
        if len(self._forgotten_among(old, end[1])[0]) < len(old):
            return 0
        return SURE - any(likeness(self.said[at], one.message) < KEPT_WORDS for at, one in known)

    @cached_property
    def _nothing_left(self) -> bool:
        """Whether all that was said on the line that was stored last was forgotten."""
        return not any(one is not None for _, one in self.along(newest_path(self.live), 0))

    @cached_property
    def _is_forgetful(self) -> bool:
        """Whether messages of the history may have been forgotten, and answers written anew beside them."""
        return self.rewritten and self.start is None and self.live.epoch > 0

    def _next_known(self, record: Record | None, index: int) -> Iterator[tuple[int, Record]]:
        """Yield what may be the next known message of the history after another one, and its index.

        An answer is looked for on other lines, too; a question without an id is found there by its words. What was
        written anew is found behind as many messages as were forgotten there.
        """
        message = self.said[index] if index < len(self.said) else None
        if message is None or (message.role == "user" and message.id is not None):
            return
        if record is None and not self.whole:
            return  # it need not be the beginning
        forgetful = self._is_forgetful and index < self._asked
        most = ALL if forgetful else 0 if message.role == "user" else BRANCHES_SEARCHED
        alike, longest, seen = list[tuple[float, int, Record]](), 0, set[tuple[int, Position]]()
        for gap, one in self._ahead(record, most):
            longest = max(longest, len(gap))
            if one is None or (len(gap), one.position) in seen:
                continue
            seen.add((len(gap), one.position))
            known = self.forms.is_one if gap or forgetful else self._stands_for
            if record is not None and known(index, one):
                yield index, one
            elif forgetful and message.id is None:
                count = len(gap) if record is not None else forgotten_first(self.live, self.live.path, len(gap))
                alike += [(share, at, one) for at, share in self._alike(index, count, one)]
        # What shares few words with an answer may be another one, if one was forgotten there.
        alike = [found for found in alike if found[0] >= KEPT_WORDS or index + longest <= found[1]]
        for _, at, one in sorted(alike, key=lambda found: (found[0] < KEPT_WORDS, -found[1], -found[0])):
            yield at, one

    def _alike(self, index: int, gap: int, record: Record) -> Iterator[tuple[int, float]]:
        """Yield which messages from one on may be an answer behind a gap, with their likeness.

        Of what was forgotten there, the client has all, or lacks some: then the two share words.
        """
        for at in range(index, min(index + gap + 1, len(self.said))):
            alike = likeness(self.said[at], record.message)
            if (at == index + gap or alike >= KEPT_WORDS) and self._stands_for(at, record):
                yield at, alike

    def _ahead(self, record: Record | None, most: int = ALL) -> Iterator[tuple[list[Position], Record | None]]:
        """Yield, for each line that a message is on, what was forgotten right after it, and the next message.

        Args:
            record: the message. None: the beginning.
            most: how many of the newest branches are looked at, beside the line that is checked out.
        """
        if self.live.key is None:
            return
        yield from self._ahead_on(self.live.path, record)
        for branch in self.live.store.branches(self.live.key)[::-1][:most] if most else ():
            yield from self._ahead_on(self.live.path_to(branch.head), record)

    def _ahead_on(self, path: Path, record: Record | None) -> Iterator[tuple[list[Position], Record | None]]:
        if record is None or path.covers(record.position):
            gap = list[Position]()
            for position, one in self.along(path, 0 if record is None else path.index_of(record.position) + 1):
                if one is not None:
                    yield gap, one
                    return
                gap.append(position)
            yield gap, None

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


def forgotten_first(live: LiveSession, path: Path, gap: int) -> int:
    """Return how many messages were forgotten before the first one of a path; `gap` says where it stands.

    If the whole session was forgotten, what is said since begins in another segment.
    """
    if live.key is None or live.epoch <= 0 or not path.spans[0].segment:
        return gap
    return max(gap, live.store.stats(live.key)["forgotten"])
