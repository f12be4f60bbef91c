"""Put a summary into a frame, and into its prompt; pure."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import takewhile
from typing import Literal

from shared_core.messages import Message
from shared_core.prompt.frame import Frame, FramedSummary
from shared_core.prompt.grounding import join, with_grounding
from shared_core.prompt.turns import Entry, chronological

__all__ = ["SummaryPlacement", "asked_with", "insert_summary", "with_summary"]

SummaryPlacement = Literal["system", "grounding"]


def with_summary(frame: Frame, summary: FramedSummary, size: Callable[[Message], int]) -> Frame:
    """Return the frame with a summary, at what it adds there; without it, if it does not fit beside what must be sent.

    Args:
        frame: with or without one.
        summary: its `tokens` are counted anew.
        size: counts a message as sent.
    """
    bare = replace(frame, summary=None)
    if summary.beside and frame.question is not None:
        tokens = size(asked_with(replace(frame, summary=summary), "")) - frame.bare - frame.grounding_tokens
    elif (after := _system(frame.stays)) is not None:
        tokens = size(_appended(after.message, summary.text)) - after.tokens
    else:
        tokens = size(Message.system(summary.text))
    summed = replace(frame, summary=replace(summary, tokens=tokens))
    return summed if summed.room >= 0 else bare


def asked_with(frame: Frame, recalled: str) -> Message:
    """Return the question as it is sent: after the summary, if that goes there, what is recalled, and its grounding."""
    assert frame.question is not None
    summary = frame.summary.text if frame.summary is not None and frame.summary.beside else ""
    return with_grounding(frame.question.message, join(summary, recalled, frame.grounding.text))


def insert_summary(frame: Frame, messages: list[Message]) -> list[Message]:
    """Return a prompt with the summary in its system message, or in one of its own where there is none."""
    if frame.summary is None or frame.summary.beside:
        return messages
    after = _system(frame.stays)
    if after is None:
        return [Message.system(frame.summary.text), *messages]
    place = next(n for n, message in enumerate(messages) if message.id == after.message.id)
    return [*messages[:place], _appended(messages[place], frame.summary.text), *messages[place + 1 :]]


def _appended(message: Message, text: str) -> Message:
    return message.replace(content=join(message.content, text))


def _system(stays: Sequence[Entry]) -> Entry | None:
    """Return the last of the system messages that every prompt begins with."""
    first = takewhile(lambda entry: entry.message.role == "system" and entry.turn_no < 0, chronological(stays))
    return next(reversed(list(first)), None)
