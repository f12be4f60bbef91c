"""What a summarizer is given: its settings, the messages of a call, and an answer from many calls."""

from collections import deque
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from shared_core.arguments import whole_number
from shared_core.messages import Message
from shared_core.plugins.base import AnySummarizer, SummarizerModel, TokenCounter
from shared_core.plugins.calls import Failure, Request, Steps
from shared_core.records import Record
from shared_core.session.live import LiveSession
from shared_core.session.paths import Path
from shared_core.summaries.wording import as_plain_text, shortened, without_middle
from shared_core.tokens import body_tokens

LINE_TOKENS = 4
"""The approximate tokens that a message takes in a summarizer's prompt beside its text: the speaker and line end."""

PAGE = 64
"""Messages read at a time."""

FARTHEST = 4_096
"""Positions read for one call at most. If most of them are empty, the call is given few messages."""


@dataclass(frozen=True, slots=True)
class SummaryInput:
    """A message as given to a summarizer.

    Attributes:
        index: its index on the path.
        message: the message as plain text, with its id and turn.
        tokens: its size, by the memory's counter.
        begins_turn: whether a turn begins with it.
    """

    index: int
    message: Message
    tokens: int
    begins_turn: bool


@dataclass(frozen=True, slots=True)
class Backlog:
    """Messages that wait to be summed up.

    Attributes:
        inputs: the messages, oldest first: more than fit one call, or all there are.
        upto: the last index read.
        ends: whether everything that waits was read.
    """

    inputs: tuple[SummaryInput, ...]
    upto: int
    ends: bool

    @property
    def tokens(self) -> int:
        """The size of the messages read."""
        return sum(item.tokens for item in self.inputs)


def read_backlog(
    live: LiveSession, path: Path, start: int, upto: int, *, room: int, counter: TokenCounter,
    without: Collection[str | None],
) -> Backlog:  # fmt: skip
    """Read the messages between two indices, inclusive, until they take more than `room`.

    Args:
        live: the session.
        path: the path to read.
        start: the first index.
        upto: the last index.
        room: tokens that one call may be given.
        counter: counts tokens.
        without: turns to leave out, because every prompt contains them.
    """
    inputs: list[SummaryInput] = []
    calls: dict[str, str] = {}
    tokens = 0
    upto_looked = min(upto, start + FARTHEST - 1)
    for index, record in _records(live, path, start, upto_looked):
        message = record.message
        # A tool's result names its call by id only, which tells a summarizer nothing.
        calls |= {call.id: call.name for call in message.tool_calls}
        # Every prompt contains these, so a summary need not repeat them.
        if message.role == "system" or message.turn_id in without:
            continue
        line = as_plain_text(message, calls.get(message.tool_call_id or ""))
        if not line.content.strip():
            continue
        size = _size(live, record, line, counter)
        if size > room:
            line = _fitting(line, room, counter)
            size = _line_tokens(line, counter)
        inputs.append(SummaryInput(index, line, size, message.turn_id == message.id))
        tokens += size
        if tokens > room:
            return Backlog(tuple(inputs), index, index == upto)
    return Backlog(tuple(inputs), upto_looked, upto_looked == upto)


def _size(live: LiveSession, record: Record, line: Message, counter: TokenCounter) -> int:
    """Return the size of a message as given to a summarizer. If its text is unchanged, the stored size is used."""
    message = record.message
    if message.tool_calls or message.role == "tool":
        return _line_tokens(line, counter)
    return live.sizer.tokens(record) - counter.overhead - message.media_tokens + LINE_TOKENS


def _line_tokens(line: Message, counter: TokenCounter) -> int:
    return LINE_TOKENS + body_tokens(line, counter)


def _fitting(line: Message, room: int, counter: TokenCounter) -> Message:
    """Return a message that is too long for a call by itself, without its middle."""
    frame = _line_tokens(line.replace(content=""), counter)
    return line.replace(content=without_middle(line.content, max(0, room - frame), counter))


def _records(live: LiveSession, path: Path, start: int, upto: int) -> Iterator[tuple[int, Record]]:
    assert live.key is not None
    for first in range(start, upto + 1, PAGE):
        indices = range(first, min(first + PAGE, upto + 1))
        for record in live.records(live.key, [path.at(index) for index in indices]):
            yield path.index_of(record.position), record


def next_batch(backlog: Backlog, room: int) -> tuple[Sequence[SummaryInput], int]:
    """Return the messages of the next call, and the last index that they cover.

    A call is given as many whole turns as fit. A turn that is too large by itself is split between its messages. If a
    late reply to an old turn would keep all turns from being whole for long, it comes without its question.
    """
    fits, used = 0, 0
    for item in backlog.inputs:
        used += item.tokens
        if used > room and fits:
            break
        fits += 1
    if fits == len(backlog.inputs):
        return backlog.inputs, backlog.upto
    count = _whole_turns(backlog.inputs, fits) or _before_an_opener(backlog.inputs, fits) or fits
    return backlog.inputs[:count], backlog.inputs[count].index - 1


def _whole_turns(inputs: Sequence[SummaryInput], most: int) -> int:
    """Return the largest number of messages, up to `most`, that splits no turn; 0 if there is none."""
    last = {item.message.turn_id: number for number, item in enumerate(inputs)}
    best, reach = 0, -1
    for count, item in enumerate(inputs[:most], start=1):
        reach = max(reach, last[item.message.turn_id])
        best = count if reach < count else best
    return best


def _before_an_opener(inputs: Sequence[SummaryInput], most: int) -> int:
    return next((count for count in range(most, 0, -1) if inputs[count].begins_turn), 0)


@dataclass(frozen=True)
class SummaryRules:
    """Settings of summaries; see the arguments of `InfiniteMemory`. `call_tokens` is `summarizer_tokens`.

    Raises:
        TypeError: the summarizer cannot be called.
        ValueError: a value is out of range.
    """

    summarizer: AnySummarizer | None = None
    tokens: int = 500
    call_tokens: int = 4_000

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
                f"summarizer_tokens={self.call_tokens!r}: a call is given the previous summary and at least as many "
                f"tokens of new messages; with summary_tokens={self.tokens!r} that is {2 * self.tokens!r}"
            )


def summary_request(summarizer: AnySummarizer, previous: str | None, messages: Sequence[Message]) -> Request[str]:
    """Return a request to sum up messages, for which a question waits as long as it takes.

    Args:
        summarizer: what sums up.
        previous: the summary of earlier messages; None: there is none.
        messages: the messages, oldest first.
    """
    awaited = summarizer.summarize if isinstance(summarizer, SummarizerModel) else None
    return Request(
        "summarizer", partial(summarizer, previous, messages), _checked, texts=len(messages),
        afunction=partial(awaited, previous, messages) if awaited is not None else None,
    )  # fmt: skip


def _checked(reply: Any) -> str:
    if not isinstance(reply, str):
        raise TypeError(f"the summarizer returned {type(reply).__name__}, not text")
    if not reply.strip():
        raise ValueError("the summarizer returned nothing")
    return reply


def answer_steps(
    summarizer: AnySummarizer, messages: Sequence[Message], question: str, rules: SummaryRules, counter: TokenCounter
) -> Steps[str]:
    """Yield requests for an answer to a question, from all messages, and return it.

    A request has the answer so far, as many messages as fit beside it, and the question as its last message. Every
    message is in one request; the middle of one that is too long for it is left out.

    Raises:
        ValueError: the question leaves no room for messages, or the summarizer returned nothing.
        Exception: whatever the summarizer raises.
    """
    asked = Message.user(question)
    room = rules.call_tokens - _line_tokens(asked, counter)
    if room - rules.tokens <= LINE_TOKENS:
        raise ValueError(
            f"the question leaves no room for messages in a call of summarizer_tokens={rules.call_tokens!r}, of which "
            f"summary_tokens={rules.tokens!r} are for the answer so far: shorten the prompt, or raise summarizer_tokens"
        )
    lines, before = deque(_plain_lines(messages)), ""
    while True:
        batch = _batch(lines, room - (counter(before) if before else 0), counter)
        reply: str | Failure = yield summary_request(summarizer, before or None, (*batch, asked))
        if isinstance(reply, Failure):
            raise reply.error
        if not lines:
            return reply
        before = shortened(reply, rules.tokens, counter)


def _plain_lines(messages: Sequence[Message]) -> Iterator[Message]:
    calls: dict[str, str] = {}
    for message in messages:
        calls |= {call.id: call.name for call in message.tool_calls}
        line = as_plain_text(message, calls.get(message.tool_call_id or ""))
        if line.content.strip():
            yield line


def _batch(lines: deque[Message], room: int, counter: TokenCounter) -> list[Message]:
    """Take the messages of one call off the left: as many as fit, and at least one."""
    batch: list[Message] = []
    while lines:
        size = _line_tokens(lines[0], counter)
        if size > room and batch:
            break
        batch.append(lines.popleft() if size <= room else _fitting(lines.popleft(), room, counter))
        room -= size
    return batch
