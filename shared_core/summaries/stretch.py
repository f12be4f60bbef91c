"""What has left the window since the last summary, and how much of it one call is given; pure but for reads."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from shared_core.base import TokenCounter
from shared_core.messages import Message
from shared_core.records import Record
from shared_core.session import LiveSession
from shared_core.summaries.template import squeezed, told
from shared_core.tokens import message_tokens
from shared_core.tree.paths import Path

__all__ = ["Part", "Stretch", "first_part", "read_stretch"]

LINE_TOKENS = 4
"""What a message costs a summarizer beside its words, about: who speaks, and the line's end."""

PAGE = 64
"""Places read at a time."""

FARTHEST = 4_096
"""Places looked at for one call: where most of them are empty, few messages are enough for it."""


@dataclass(frozen=True, slots=True)
class Part:
    """One message as a summarizer is told it.

    Attributes:
        place: its place on the path.
        message: as text, with its id and turn.
        tokens: its size, by the memory's counter.
        opens: whether a turn begins with it.
    """

    place: int
    message: Message
    tokens: int
    opens: bool


@dataclass(frozen=True, slots=True)
class Stretch:
    """A stretch of a path.

    Attributes:
        parts: what is told of it, oldest first; more than fit one call, or all there is.
        upto: the last place looked at.
        ends: whether that is the last of the stretch.
    """

    parts: tuple[Part, ...]
    upto: int
    ends: bool

    @property
    def tokens(self) -> int:
        """The size of what was looked at."""
        return sum(part.tokens for part in self.parts)


def read_stretch(
    live: LiveSession, path: Path, start: int, upto: int, *, room: int, counter: TokenCounter,
    without: Collection[str | None],
) -> Stretch:  # fmt: skip
    """Return what is to be told of the places from `start` to `upto`, both included, until it is more than `room`.

    Args:
        live: the session.
        path: whose places these are.
        start: the first.
        upto: the last.
        room: tokens.
        counter: counts them.
        without: turns that are in every prompt.
    """
    parts: list[Part] = []
    calls: dict[str, str] = {}
    tokens = 0
    upto_looked = min(upto, start + FARTHEST - 1)
    for place, record in _records(live, path, start, upto_looked):
        message = record.message
        calls |= {call.id: call.name for call in message.tool_calls}
        if message.role == "system" or message.turn_id in without:
            continue
        line = told(message, calls.get(message.tool_call_id or ""))
        if not line.content.strip():
            continue
        size = _size(live, record, line, counter)
        if size > room:
            line = _fitting(line, room, counter)
            size = message_tokens(line, counter, LINE_TOKENS)
        parts.append(Part(place, line, size, message.turn_id == message.id))
        tokens += size
        if tokens > room:
            return Stretch(tuple(parts), place, place == upto)
    return Stretch(tuple(parts), upto_looked, upto_looked == upto)


def _size(live: LiveSession, record: Record, line: Message, counter: TokenCounter) -> int:
    """Return the size of a message as it is told; where that is what was stored, it is not counted again."""
    message = record.message
    if message.tool_calls or message.role == "tool":
        return message_tokens(line, counter, LINE_TOKENS)
    return live.sizer.tokens(record) - live.sizer.overhead - message.media_tokens + LINE_TOKENS


def _fitting(line: Message, room: int, counter: TokenCounter) -> Message:
    """Return a message that alone is too long for a call without its middle."""
    frame = message_tokens(line.replace(content=""), counter, LINE_TOKENS)
    return line.replace(content=squeezed(line.content, max(0, room - frame), counter))


def _records(live: LiveSession, path: Path, start: int, upto: int) -> Iterator[tuple[int, Record]]:
    assert live.key is not None
    for first in range(start, upto + 1, PAGE):
        places = range(first, min(first + PAGE, upto + 1))
        for record in live.records(live.key, [path.at(place) for place in places]):
            yield path.place(record.position), record


def first_part(stretch: Stretch, room: int) -> tuple[Sequence[Part], int]:
    """Return what the next call is given, and the last place that this covers.

    Whole turns, as many as fit. A turn that alone is too large is given in parts, at its messages; and where a reply to
    an old turn would keep turns from being whole for long, it comes without its question.
    """
    fits, used = 0, 0
    for part in stretch.parts:
        used += part.tokens
        if used > room and fits:
            break
        fits += 1
    if fits == len(stretch.parts):
        return stretch.parts, stretch.upto
    count = _whole_turns(stretch.parts, fits) or _before_an_opener(stretch.parts, fits) or fits
    return stretch.parts[:count], stretch.parts[count].place - 1


def _whole_turns(parts: Sequence[Part], most: int) -> int:
    """Return how many messages at most to give so that no turn is torn; 0 if there is no such number."""
    last = {part.message.turn_id: number for number, part in enumerate(parts)}
    best, reach = 0, -1
    for count, part in enumerate(parts[:most], start=1):
        reach = max(reach, last[part.message.turn_id])
        best = count if reach < count else best
    return best


def _before_an_opener(parts: Sequence[Part], most: int) -> int:
    return next((count for count in range(most, 0, -1) if parts[count].opens), 0)
