"""What a turn of a conversation costs: a question is added, the prompt is built, the reply is added."""

import os
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Timer
from typing import Any

from latency_clock import Figures, Span, summary, summed, timed
from latency_talk import turns

from shared_core import Message

__all__ = ["FRAMING", "MAX_TOKENS", "PROMPT_TOKENS", "STOPPED", "TOKENIZER", "Plan", "Way", "limited", "take_turns"]

TOKENIZER = "o200k_base"
MAX_TOKENS, PROMPT_TOKENS = 4_096, 3_596
"""The model's limit, and what of it our default leaves for the prompt; everybody else is given that."""

FRAMING = 4
"""Tokens of framing per message, where they can be counted at all."""

STOPPED = 75
"""What a process exits with that took too long."""


@dataclass(frozen=True, slots=True)
class Plan:
    """How much is measured.

    Attributes:
        turns: how many are taken at most.
        seconds: after how many no new one is begun.
        limit: after how many the process is stopped, or None: never.
        loading: how many the messages may take before, or None.
        sample: how many messages are ingested to compare embedders.
        adds: how many messages are added to compare with the disk.
    """

    turns: int = 60
    seconds: float = 15
    limit: float | None = 120
    loading: float | None = 1_800
    sample: int = 5_000
    adds: int = 200


class Way(ABC):
    """One way to keep a conversation and to build its prompts; the messages are loaded by its constructor."""

    def made(self, message: Message) -> Any:
        """Return the message in its own form; this is not timed."""
        return message

    @abstractmethod
    def add(self, made: Any) -> None:
        """Add a message."""

    @abstractmethod
    def prompt(self) -> int:
        """Build the prompt for the newest message, and return how many messages are in it."""

    def settle(self) -> None:
        """Wait until nothing is made in the background any more."""
        return

    def close(self) -> None:
        """Release what it holds."""
        return


def take_turns(way: Way, plan: Plan) -> Figures:
    """Return what a turn costs, its prompt alone, and the same prompt once more, as each round of a tool loop needs it.

    The first turn is left out, unless there is time for no other.
    """
    until = time.perf_counter() + plan.seconds
    counts, whole, prompts, again = list[int](), list[Span](), list[Span](), list[Span]()
    prompt = lambda: counts.append(way.prompt())  # noqa: E731
    with limited(plan.limit):
        for asked, replied in turns(plan.turns):
            question, reply = way.made(asked), way.made(replied)
            before = timed(lambda made=question: way.add(made))  # type: ignore[misc]
            prompts.append(timed(prompt))
            whole.append(summed([before, prompts[-1], timed(lambda made=reply: way.add(made))]))  # type: ignore[misc]
            if time.perf_counter() > until:
                break
        while len(again) < len(whole) and time.perf_counter() < until:
            again.append(timed(prompt))
    skip = 1 if len(whole) > 1 else 0
    figures = {"turns": float(len(whole) - skip), "messages in the prompt": float(counts[-1])}
    figures |= summary("turn", whole[skip:]) | summary("prompt", prompts[skip:])
    return figures | (summary("prompt again", again[skip:]) if again[skip:] else {})


@contextmanager
def limited(seconds: float | None) -> Iterator[None]:
    """End this process if what is done inside takes longer; a call into another language cannot prevent it."""
    timer = Timer(seconds, os._exit, [STOPPED]) if seconds is not None else None
    if timer is not None:
        timer.daemon = True
        timer.start()
    try:
        yield
    finally:
        if timer is not None:
            timer.cancel()
