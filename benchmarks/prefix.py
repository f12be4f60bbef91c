"""What a provider's prompt cache keeps: `python benchmarks/prefix.py [FILE …] [--windows N …]`.

A chat goes through the proxy's code, turn by turn, from a client that sends what is new. Each prompt is compared with
the one before it:

- Is everything that stood before the former question still there, byte for byte, at the beginning? If not, why?
- Which share of its tokens stands at the beginning of the prompt before it, and of one of the ten before it? Providers
  bill these tokens at a fraction of the price, and keep them for some minutes, in prompts of 1,024 tokens and more.

Files are those of `recall_talks.read_talks`, each one chat of all its conversations; without files, a chat with
short and one with long turns are made up. What fills the window is stored first. `--recall` is
`recall_tokens`, and `--summarize` adds a summarizer that copies beginnings. Prints a Markdown table.
"""

import argparse
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import groupby, pairwise, takewhile
from pathlib import Path
from statistics import fmean
from typing import Any

from latency_talk import conversation
from recall_talks import NO_TIME, read_talks

from shared_core import Message
from shared_core.doors.openai_proxy.chat_request import read_chat_request
from shared_core.doors.openai_proxy.prompts import Prompts
from shared_core.plugins.base import TokenCounter
from shared_core.pool import SessionPool
from shared_core.tokens import as_counter

WINDOWS = (4_096, 16_384, 32_768, 128_000)
TURNS = 200
RECENT = 10

FILLED = 1.25
"""How much is stored before the first question, in windows."""

SYSTEM = {"role": "system", "content": "You are a helpful assistant. Answer briefly and say so if you do not know."}

Turn = tuple[Message, Message]
"""What a user says, and the answer."""


@dataclass
class Kept:
    """What the cache keeps of a chat's prompts.

    Attributes:
        causes: why prompts do not begin as the one before, with how often; the empty one: they do.
        cached: the share of each prompt that stands in the one before.
        recently: the share that stands in one of the ten before.
        sizes: the tokens of the prompts.
        newest: the tokens of their windows.
    """

    causes: Counter[str] = field(default_factory=Counter)
    cached: list[float] = field(default_factory=list)
    recently: list[float] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)
    newest: list[int] = field(default_factory=list)

    def cells(self) -> list[str]:
        """Return the cells of a row."""
        why = ", ".join(f"{cause} {count}" for cause, count in self.causes.most_common() if cause)
        means = [f"{fmean(values):,.0f}" for values in (self.sizes, self.newest)]
        same = self.causes[""] / self.causes.total()
        return [*means, *(f"{share:.0%}" for share in (same, fmean(self.cached), fmean(self.recently))), why]


def turns_of(messages: Iterable[Message]) -> Iterator[Turn]:
    """Yield the turns of a conversation; of two people, the first to speak is the user."""
    said = list(messages)

    def asks(message: Message) -> bool:
        return message.role == "user" and message.name == said[0].name

    blocks = [(by_user, list(block)) for by_user, block in groupby(said, asks)]
    for (by_user, question), (_, reply) in pairwise(blocks):
        if by_user:
            moments = question[0].created_at, reply[0].created_at
            yield (
                Message.user(_text(question), created_at=moments[0]),
                Message.assistant(_text(reply), created_at=moments[1]),
            )


def _text(messages: Iterable[Message]) -> str:
    return "\n".join(message.content for message in messages)


def made_up(count: int, replies: int) -> list[Turn]:
    """Return turns; each reply is as long as so many messages."""
    said = list(conversation(count * (replies + 1)))
    starts = range(0, len(said), replies + 1)
    return [
        (
            said[start],
            Message.assistant(_text(said[start + 1 : start + replies + 1]), created_at=said[start].created_at),
        )
        for start in starts
    ]


def measure(turns: Sequence[Turn], window: int, count: int, settings: Mapping[str, Any]) -> Kept:
    """Return what is kept of the prompts of so many turns, after those that fill the window."""
    counter, filled, total = as_counter(None), 0, 0
    while filled < len(turns) - count and total < FILLED * window:
        total += sum(counter(message.content) for message in turns[filled])
        filled += 1
    clock = _Clock()
    with SessionPool(max_tokens=window, clock=clock.time, **settings) as pool:
        with pool.use("chat") as memory:
            memory.add([message for turn in turns[:filled] for message in turn])
            memory.index()
        return _kept(Prompts(pool), turns[filled : filled + count], clock, counter)


@dataclass
class _Clock:
    now: datetime = NO_TIME

    def time(self) -> datetime:
        return self.now


def _kept(prompts: Prompts, turns: Sequence[Turn], clock: _Clock, counter: TokenCounter) -> Kept:
    kept, before, sizes = Kept(), list[list[str]](), dict[str, int]()
    for asked, reply in turns:
        clock.now = asked.created_at or clock.now
        body = {"messages": [SYSTEM, {"role": "user", "content": asked.content}]}
        prompted = prompts.prompt(read_chat_request(body), user=None, session="chat", report=True)
        prompts.keep(prompted, [reply])
        sent = [json.dumps(message, sort_keys=True) for message in (prompted.messages or ())]
        sizes |= {text: counter(text) for text in sent if text not in sizes}
        if before:
            size = sum(sizes[text] for text in sent)
            shares = [sum(sizes[text] for text in common(one, sent)) / size for one in before]
            kept.causes[cause_of_break(before[-1][:-1], sent)] += 1
            kept.cached.append(shares[-1])
            kept.recently.append(max(shares))
            kept.sizes.append(size)
            kept.newest.append((prompted.report or {})["totals"]["window"])
        before = [*before, sent][-RECENT:]
    return kept


def common(one: Sequence[str], other: Sequence[str]) -> list[str]:
    """Return the messages with which both begin."""
    return [ours for ours, _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False))]


def cause_of_break(before: Sequence[str], after: Sequence[str]) -> str:
    """Return why a prompt does not begin as another did before its question; empty if it does."""
    same = len(common(before, after))
    if same == len(before):
        return ""
    if "system" in (json.loads(before[same])["role"], json.loads(after[same])["role"]):
        return "system prompt or summary changed"
    if after[same] in before[same:]:
        return "start moved on"
    if before[same] in after[same:]:
        return "start moved back"
    return "message changed" if set(before[same:]) & set(after) else "nothing left of the window"


def copied(previous: str | None, messages: Sequence[Message]) -> str:
    """Return a summary: how long the former one was, and the beginnings of messages."""
    return f"{len(previous or '')} " + "; ".join(message.content[:40] for message in messages)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("files", nargs="*", type=Path)
    parser.add_argument("--windows", nargs="+", type=int, default=WINDOWS)
    parser.add_argument("--turns", type=int, default=TURNS)
    parser.add_argument("--recall", type=float)
    parser.add_argument("--summarize", action="store_true")
    options = parser.parse_args()
    settings = {"recall_tokens": options.recall, "summarizer": copied if options.summarize else None}
    counter = as_counter(None)
    chats = {
        path.name.split(".")[0]: [turn for talk in read_talks(path, counter) for turn in turns_of(talk.messages)]
        for path in options.files
    } or {"short turns": made_up(4_000, 1), "long turns": made_up(800, 20)}
    print("| chat | tokens a turn | window | prompt | newest | same | cached | of ten | why not |")
    print("|---|---|---|---|---|---|---|---|---|")
    for name, turns in chats.items():
        each = fmean(counter(asked.content) + counter(reply.content) for asked, reply in turns[:TURNS])
        for window in options.windows:
            kept = measure(turns, window, options.turns, settings)
            print(f"| {' | '.join([name, f'{each:,.0f}', f'{window:,}', *kept.cells()])} |", flush=True)


if __name__ == "__main__":
    main()
