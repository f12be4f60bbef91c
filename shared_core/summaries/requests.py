"""What is asked of a summarizer: under which settings, over which stretch of messages, and how it answers."""

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias, get_args

from shared_core.arguments import one_of, whole_number
from shared_core.base import SummarizerModel, TokenCounter
from shared_core.messages import Message
from shared_core.prompt.frame import SummaryPlacement
from shared_core.records import Record
from shared_core.session import LiveSession
from shared_core.summaries.wording import SummaryTemplate, squeezed, told
from shared_core.tokens import message_tokens
from shared_core.tree.paths import Path

__all__ = [
    "AnySummarizer",
    "Part",
    "Stretch",
    "SummaryFailure",
    "SummaryReply",
    "SummaryRequest",
    "SummaryRules",
    "first_part",
    "read_stretch",
]

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


AnySummarizer = Callable[[str | None, Sequence[Message]], str | Awaitable[str]]
"""A `Summarizer`, or for the async face an `AsyncSummarizer`."""


@dataclass(frozen=True)
class SummaryRules:
    """See the arguments of `InfiniteMemory`; `call_tokens` is `summarizer_tokens`.

    Raises:
        TypeError: the summarizer cannot be called.
        ValueError: a value is out of range.
    """

    summarizer: AnySummarizer | None = None
    tokens: int = 500
    call_tokens: int = 4_000
    placement: SummaryPlacement = "system"
    template: SummaryTemplate = field(default_factory=SummaryTemplate)

    def __post_init__(self) -> None:
        if self.summarizer is not None and (isinstance(self.summarizer, type) or not callable(self.summarizer)):
            raise TypeError(
                f"summarizer={self.summarizer!r}: expected a callable(previous_summary, messages) -> str; "
                "as_summarizer of the LangChain or LlamaIndex package makes one of a model"
            )
        whole_number("summary_tokens", self.tokens, least=1)
        whole_number("summarizer_tokens", self.call_tokens, least=1)
        if self.call_tokens < 2 * self.tokens:
            raise ValueError(
                f"summarizer_tokens={self.call_tokens!r}: a call is given the summary so far and at least as much of "
                f"what came since; with summary_tokens={self.tokens!r} that is {2 * self.tokens!r}"
            )
        one_of("summary_placement", self.placement, get_args(SummaryPlacement))


@dataclass(frozen=True, slots=True)
class SummaryFailure:
    """Why there is no new summary."""

    error: Exception

    def __str__(self) -> str:
        return f"{type(self.error).__name__}: {self.error}"


SummaryReply: TypeAlias = str | SummaryFailure


@dataclass(frozen=True, slots=True)
class SummaryRequest:
    """Messages to sum up, and the summary of what came before them; None: nothing did."""

    summarizer: AnySummarizer
    previous: str | None
    messages: tuple[Message, ...]

    def answer(self) -> SummaryReply:
        """Return the new summary, or why there is none; the chat goes on without."""
        try:
            reply: Any = self.summarizer(self.previous, self.messages)
        except Exception as error:  # whatever a plug-in raises must not end a chat; the report names it
            return SummaryFailure(error)
        if inspect.iscoroutine(reply):
            reply.close()
            return SummaryFailure(
                TypeError("an async summarizer needs AsyncInfiniteMemory; pass a plain function here")
            )
        return _checked(reply)

    async def aanswer(self) -> SummaryReply:
        """Do the same without blocking the event loop."""
        summarizer = self.summarizer
        try:
            if isinstance(summarizer, SummarizerModel):
                reply: Any = await summarizer.summarize(self.previous, self.messages)
            else:
                # In a thread, a coroutine function only makes its coroutine, which is awaited here.
                reply = await asyncio.to_thread(summarizer, self.previous, self.messages)
                reply = await reply if isinstance(reply, Awaitable) else reply
        except Exception as error:  # as above
            return SummaryFailure(error)
        return _checked(reply)


def _checked(reply: Any) -> SummaryReply:
    if not isinstance(reply, str):
        return SummaryFailure(TypeError(f"the summarizer returned {type(reply).__name__}, not text"))
    return reply if reply.strip() else SummaryFailure(ValueError("the summarizer returned nothing"))
