"""Conversations of any length, made of the sample conversation's words; the same ones every time."""

import json
import random
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from functools import cache
from itertools import accumulate, islice, pairwise
from pathlib import Path

from shared_core import Message

__all__ = ["conversation", "in_chunks", "turns"]

SAMPLE = Path(__file__).parent.parent / "examples" / "data" / "conversation.json"


def conversation(count: int, seed: int = 7) -> Iterator[Message]:
    """Yield messages made of the sample conversation's words, as often as they occur there, in sittings."""
    vocabulary, shares = _vocabulary()
    chance = random.Random(seed)
    moment = datetime(2020, 1, 1, 9, tzinfo=UTC)
    for number in range(count):
        moment += timedelta(hours=12) if number % 40 == 0 else timedelta(seconds=30)
        size = max(3, int(chance.lognormvariate(3, 0.7)))
        text = " ".join(chance.choices(vocabulary, cum_weights=shares, k=size)) + f" ref{number}"
        yield Message(role="assistant" if number % 2 else "user", content=text, id=f"m{number}", created_at=moment)


@cache
def _vocabulary() -> tuple[list[str], list[int]]:
    """Return the words of the sample conversation, and how often each and those before it occur together."""
    words = Counter(word for message in json.loads(SAMPLE.read_text()) for word in (message["content"] or "").split())
    return list(words), list(accumulate(words.values()))


def turns(count: int, seed: int = 11) -> list[tuple[Message, Message]]:
    """Return new questions, each with its reply; they have no ids and no time yet."""
    said = list(conversation(2 * count, seed))
    return [
        (Message.user(" ".join(asked.content.split()[:9]) + "?"), Message.assistant(replied.content))
        for asked, replied in list(pairwise(said))[::2]
    ]


def in_chunks(messages: Iterable[Message], size: int = 1_000) -> Iterator[Sequence[Message]]:
    """Yield the messages in lists, so that never all of them are in memory for the benchmark's sake."""
    iterator = iter(messages)
    while chunk := list(islice(iterator, size)):
        yield chunk
