"""What a summarizer is given: its settings, the messages of a call, and an answer from many calls."""

from collections import deque
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import tee
from typing import Any

from shared_core.arguments import whole_number
from shared_core.messages import Message
from shared_core.plugins.base import INPUT_TOKENS, Summarizer, SummarizerModel, TokenCounter
from shared_core.plugins.calls import Failure, Request, Steps
from shared_core.records import Record
from shared_core.session.live import LiveSession
from shared_core.session.paths import Path
from shared_core.summaries.wording import plain_lines, shortened, without_middle
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
    """

    index: int
    message: Message
    tokens: int


@dataclass(frozen=True, slots=True)
class Waiting:
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


def read_waiting(
    live: LiveSession, path: Path, start: int, upto: int, *, room: int, counter: TokenCounter,
    without: Collection[str | None],
) -> Waiting:  # fmt: skip
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
    tokens = 0
    upto_looked = min(upto, start + FARTHEST - 1)
    found, again = tee(_records(live, path, start, upto_looked))
    lines = plain_lines(record.message for _, record in again)
    for (index, record), line in zip(found, lines, strict=True):
        # Every prompt contains these, so a summary need not repeat them.
        if line.role == "system" or line.turn_id in without or not line.content.strip():
            continue
        size = _size(live, record, line, counter)
        if size > room:
            line = _fitting(line, room, counter)
            size = _line_tokens(line, counter)
        inputs.append(SummaryInput(index, line, size))
        tokens += size
        if tokens > room:
            return Waiting(tuple(inputs), index, index == upto)
    return Waiting(tuple(inputs), upto_looked, upto_looked == upto)


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


def next_batch(waiting: Waiting, room: int) -> tuple[Sequence[SummaryInput], int]:
    """Return the messages of the next call, and the last index that they cover.

    A call is given as many whole turns as fit. If not even one does, it is split between its messages.
    """
    fits, used = 0, 0
    for item in waiting.inputs:
        used += item.tokens
        if used > room and fits:
            break
        fits += 1
    if fits == len(waiting.inputs):
        return waiting.inputs, waiting.upto
    count = _whole_turns(waiting.inputs, fits) or fits
    return waiting.inputs[:count], waiting.inputs[count].index - 1


def _whole_turns(inputs: Sequence[SummaryInput], most: int) -> int:
    """Return the largest number of messages, up to `most`, that splits no turn; 0 if there is none."""
    last = {item.message.turn_id: number for number, item in enumerate(inputs)}
    best, reach = 0, -1
    for count, item in enumerate(inputs[:most], start=1):
        reach = max(reach, last[item.message.turn_id])
        best = count if reach < count else best
    return best


SUMMARY_SHARE = 8
"""The summary may take an eighth of the input of a call: 500 tokens by default."""


def as_summarizer(value: Summarizer | None) -> Summarizer | None:
    """Return a summarizer.

    Raises:
        TypeError: it cannot be called.
        ValueError: a call is too small for it.
    """
    if value is not None and (isinstance(value, type) or not callable(value)):
        raise TypeError(
            f"summarizer={value!r}: expected a callable(previous_summary, messages) -> str; "
            "as_summarizer of the LangChain or LlamaIndex package makes one of a model"
        )
    if isinstance(value, SummarizerModel):
        whole_number("input_tokens", value.input_tokens, least=SUMMARY_SHARE)
    return value


def input_tokens(summarizer: Summarizer | None) -> int:
    """Return the largest input of one call."""
    return summarizer.input_tokens if isinstance(summarizer, SummarizerModel) else INPUT_TOKENS


def summary_tokens(summarizer: Summarizer | None) -> int:
    """Return the largest size of a summary."""
    return input_tokens(summarizer) // SUMMARY_SHARE


def summary_request(summarizer: Summarizer, previous: str | None, messages: Sequence[Message]) -> Request[str]:
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
    summarizer: Summarizer, messages: Sequence[Message], question: str, counter: TokenCounter
) -> Steps[str]:
    """Yield requests for an answer to a question, from all messages, and return it.

    A request has the answer so far, as many messages as fit beside it, and the question as its last message. Every
    message is in one request; the middle of one that is too long for it is left out.

    Raises:
        ValueError: the question leaves no room for messages, or the summarizer returned nothing.
        Exception: whatever the summarizer raises.
    """
    asked = Message.user(question)
    most, answer = input_tokens(summarizer), summary_tokens(summarizer)
    room = most - _line_tokens(asked, counter)
    if room - answer <= LINE_TOKENS:
        raise ValueError(
            f"the question leaves no room for messages in a call of input_tokens={most!r}, of which {answer!r} are "
            "for the answer so far: shorten the prompt, or raise the summarizer's input_tokens"
        )
    lines, before = deque(line for line in plain_lines(messages) if line.content.strip()), ""
    while True:
        batch = _batch(lines, room - (counter(before) if before else 0), counter)
        reply: str | Failure = yield summary_request(summarizer, before or None, (*batch, asked))
        if isinstance(reply, Failure):
            raise reply.error
        if not lines:
            return reply
        before = shortened(reply, answer, counter)


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
