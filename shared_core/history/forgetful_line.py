"""The line of a history in a session that has forgotten messages: the history may still hold them, or lack them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import takewhile
from typing import NamedTuple

from shared_core.history.followed import Followed
from shared_core.history.line import CHECKED, Anchor, Line
from shared_core.history.normal_form import KEPT_WORDS, likeness
from shared_core.records import Position, Record
from shared_core.session.paths import Path

FORGOTTEN = 1 - KEPT_WORDS
"""What it costs to take a message for a forgotten one: as much as to take it for an answer that kept so many words."""


@dataclass(frozen=True, slots=True)
class Reading:
    """A history as far as it was read along a line, up to a message that is stored.

    Attributes:
        upto: how many of its messages were read.
        cost: how far they are from what is stored: the share of words that answers written anew do not have in common
            with the stored ones, and `FORGOTTEN` for each message that was forgotten.
        record: the newest of them, as it is stored. None: nothing of them is known.
        before: the reading up to the stored message before. None: nothing before is known.
    """

    upto: int
    cost: float = 0
    record: Record | None = None
    before: "Reading | None" = None


class Front(NamedTuple):
    """The readings up to a spot of a line.

    Attributes:
        readings: those up to the newest message that is stored there; of those that have read as much the cheapest.
        gap: what was forgotten since.
    """

    readings: Sequence[Reading]
    gap: tuple[Position, ...] = ()


class Ended(NamedTuple):
    """A reading of a whole history.

    Attributes:
        rank: how many of its messages are neither known nor forgotten, but for the newest question; the cost; and how
            many were read along the line. The least is the best.
        reading: what was read along the line.
        forgotten: the indexes of what was forgotten after that.
        gap: where that stood.
    """

    rank: tuple[int, float, int]
    reading: Reading
    forgotten: Sequence[int]
    gap: tuple[Position, ...]


class ForgetfulLine(Line):
    """Finds the line of a history of which messages without ids may have been forgotten.

    Only the place of a forgotten message is known. So the history is read along each line, message by message, in every
    way that its messages can be stored ones, or forgotten ones where some are missing. The cheapest reading is right.
    """

    def followed(self) -> Followed | None:
        """Return the result for the history; None: nothing tells where it stands."""
        if self.whole or self.start is not None:
            at = self.before_all() if self.start is None else None
            return self._result(self._best(Reading(0)), [], at)
        anchor = self._anchor()
        if anchor is not None:
            return self._result(self._best(Reading(anchor.index + 1, 0, anchor.record)), self._ids(anchor))
        begun = self._best(Reading(0))
        return self._result(begun, []) if self._is_history(begun) else None

    def _is_history(self, begun: Ended) -> bool:
        """Return whether a reading from the beginning tells that a trimmed history has it: part of it is known.

        Or all of it was forgotten but the newest question, and an answer stands before that.
        """
        if begun.reading.record is not None:
            return True
        answered = any(one.role == "assistant" for one in self.said[: self._asked])
        return not begun.rank[0] and answered and self._asked < len(self.said)

    def after(self, record: Record | None, ids: Sequence[str | None], at: Position | None = None) -> Followed:
        """Return the result for a history that is known up to a message; see `Line.after`."""
        if record is None and not self.whole:  # it need not be the beginning
            return self.ended(None, ids, at)
        return self._result(self._best(Reading(len(ids), 0, record)), ids, at)

    def _result(self, ended: Ended, ids: Sequence[str | None], at: Position | None = None) -> Followed:
        """Return the result for a reading; a new line holds what was forgotten before it, too."""
        found = dict(takewhile(lambda pair: pair[0] >= len(ids), _forms(ended.reading)))
        forms = (found.get(index) for index in range(len(ids), ended.reading.upto))
        ids = [*ids, *(None if one is None else one.message.id for one in forms)]
        record = ended.reading.record or self.start
        if ended.forgotten and ended.gap and (record is None or not self.live.ends_at(record.position)):
            at = ended.gap[min(len(ended.forgotten), len(ended.gap)) - 1]
        elif record is not None:
            at = record.position
        return self.ended(record, ids, at, ended.forgotten)

    # Reading

    def _best(self, reading: Reading) -> Ended:
        """Return the best reading of the history that goes on after another one."""
        record = reading.record or self.start
        fronts, best = dict[Position, Front](), Ended((len(self.said) + 1, 0, 0), reading, (), ())
        for path in self.lines():
            if record is None or path.covers(record.position):
                first = 0 if record is None else path.index_of(record.position) + 1
                best = min([best, *self._read(path, first, Front([reading]), fronts)], key=lambda ended: ended.rank)
                if best.rank <= (0, 0, -len(self.said)):
                    break
        return best

    def _read(self, path: Path, first: int, front: Front, fronts: dict[Position, Front]) -> Iterator[Ended]:
        """Yield the readings that end on a path; `fronts` are those on the lines that were read before."""
        shared = (at for at in range(path.spans[-1].last, first - 1, -1) if path.at(at) in fronts)
        if (last := next(shared, None)) is not None:
            front, first = fronts[path.at(last)], last + 1
        for position, record in self.along(path, first) if front.readings else ():
            if record is not None:
                yield from self._ended(front)
            following = fronts[position] = self._step(front, position, record)
            if not following.readings:
                break
            front = following
        yield from self._ended(front)

    def _step(self, front: Front, position: Position, record: Record | None) -> Front:
        """Return the readings after one more position of a line; None: the message there was forgotten."""
        if record is None:
            return Front(front.readings, (*front.gap, position))
        found = dict[int, Reading]()
        for reading in front.readings:
            for index, cost in self._next(reading, front.gap):
                if not self.stands_for(index, record):
                    continue
                if record.message.role == "assistant":
                    cost += 1 - likeness(self.said[index], record.message)
                if index not in found or cost < found[index].cost:
                    found[index] = Reading(index + 1, cost, record, reading)
        return Front([*found.values()])

    def _next(self, reading: Reading, gap: Sequence[Position]) -> Iterator[tuple[int, float]]:
        """Yield which messages may be the next stored one, with the cost of what is left out before."""
        missing, cost = self._missing(reading, gap), reading.cost
        for index in range(reading.upto, len(self.said)):
            yield index, cost
            if self.is_left_out(index):
                continue
            if not missing or self.said[index].id is not None:
                return
            missing, cost = missing - 1, cost + FORGOTTEN

    def _missing(self, reading: Reading, gap: Sequence[Position]) -> int:
        """Return how many messages were forgotten after a reading. Of a whole session, they leave no gap."""
        if reading.record is not None or self.start is not None or not self.live.path.spans[0].segment:
            return len(gap)
        return max(len(gap), self._forgotten_in_all)

    @cached_property
    def _forgotten_in_all(self) -> int:
        return self.live.store.stats(self.live.key)["forgotten"] if self.live.key is not None else 0

    def _ended(self, front: Front) -> Iterator[Ended]:
        """Yield the readings that end at the newest stored message of a spot."""
        for reading in front.readings:
            old = range(reading.upto, self._asked)
            forgotten = self._forgotten_among(old, reading, front.gap)
            cost = reading.cost + (len(self.said) - reading.upto) * FORGOTTEN
            rank = len(old) - len(forgotten), cost, -reading.upto
            yield Ended(rank, reading, forgotten, front.gap)

    def _forgotten_among(self, old: range, reading: Reading, gap: Sequence[Position]) -> Sequence[int]:
        """Return which messages after a reading were forgotten.

        They are as many as are missing there. Fewer may be new instead, but for answers to a question that is stored,
        and but for a client that writes answers anew: all that it was answered has been stored.
        """
        if self.start is not None:
            return ()
        count = self._missing(reading, gap)
        may_be_new = reading.record is not None and count > len(self.said) - reading.upto and not self.rewritten
        among = takewhile(lambda index: self.said[index].role != "user", old) if may_be_new else old[:count]
        return [index for index in among if self.said[index].id is None]

    @cached_property
    def _asked(self) -> int:
        """The index of the question that the history ends with, calls and results after it included, or its length.

        It may be asked again though it was forgotten.
        """
        said = self.said
        index = next((n for n in range(len(said) - 1, -1, -1) if said[n].role == "user"), len(said))
        return len(said) if any(one.role == "assistant" and not one.tool_calls for one in said[index:]) else index

    # Of a trimmed history

    def _anchor(self) -> Anchor | None:
        """Return the newest message of a trimmed history that tells where it stands, though it has no beginning."""
        for index in reversed(range(len(self.said))):
            anchor = self._known_by_id(index)
            others = self.candidates(index) if index + 1 >= CHECKED else ()
            records = others if anchor is None else [anchor.record]
            found = [(one, record) for record in records if (one := self._up_to(index, record)) is not None]
            if found:
                reading, record = min(found, key=lambda pair: pair[0].cost)
                return Anchor(index, record, dict(_forms(reading)), whole=True)
            if anchor is not None:
                return anchor
        return None

    def _up_to(self, index: int, record: Record) -> Reading | None:
        """Return the reading up to a message that is a stored one, begun anywhere before; None: there is none."""
        path, first = self.live.path_to(record.position), max(0, index + 1 - CHECKED)
        before, wanted = list[tuple[Position, Record | None]](), index - first
        for position, one in self.along(path, path.index_of(record.position) - 1, -1):
            if one is not None and not wanted:
                break
            wanted -= one is not None
            before.append((position, one))
        front = Front([Reading(first)])
        for position, one in before[::-1]:
            front = self._step(front, position, one)
            front = front if one is None else Front([*front.readings, Reading(first)])
        last = self._step(front, record.position, record)
        return next((reading for reading in last.readings if reading.upto == index + 1), None)


def _forms(reading: Reading) -> Iterator[tuple[int, Record]]:
    """Yield the messages that are known, with their indexes, the newest first."""
    known: Reading | None = reading
    while known is not None and known.record is not None:
        yield known.upto - 1, known.record
        known = known.before
