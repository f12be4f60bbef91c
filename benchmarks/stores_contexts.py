"""How long prompts take among many sessions and in a long one: warm, with a cold cache, and in a fresh process.

Run as a script, it is such a process: it answers one question and prints how long that took.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from random import Random

from latency_clock import Figures, Span, summary, timed
from stores_load import Sessions
from stores_turns import questions

from shared_core import IndexCache, InfiniteMemory, Store
from shared_core.stores import open_store

__all__ = ["Asked", "ask_large", "ask_many", "in_processes"]

BATCH = 20
"""Memories that are open at a time while they are asked."""


@dataclass(frozen=True, slots=True)
class Asked:
    """How long questions took.

    Attributes:
        cold: the first of a memory whose index is not in the cache.
        warm: another one, with the session open.
        process: the first of a process that has loaded its libraries and the embedder.
    """

    cold: Sequence[Span]
    warm: Sequence[Span]
    process: Sequence[Span]

    def figures(self) -> Figures:
        """Return the median and the 95th percentile of each."""
        return summary("cold", self.cold) | summary("warm", self.warm) | summary("process", self.process)


def ask_many(store: Store, sessions: Sessions, count: int) -> tuple[list[Span], list[Span]]:
    """Return how long the first and another question takes in each of some sessions, chosen at random."""
    chosen = Random(5).sample(range(sessions.count), min(count, sessions.count))
    asked = iter(questions(2 * len(chosen)))
    IndexCache.of(store).release()
    cold, warm = list[Span](), list[Span]()
    for first in range(0, len(chosen), BATCH):
        memories = list(_opened(store, sessions, chosen[first : first + BATCH]))
        cold += [timed(partial(memory.context, next(asked))) for memory in memories]
        warm += [timed(partial(memory.context, next(asked))) for memory in memories]
        for memory in memories:
            memory.close()
    return cold, warm


def _opened(store: Store, sessions: Sessions, numbers: Sequence[int]) -> Iterator[InfiniteMemory]:
    for number in numbers:
        user, session = sessions.key(number)
        yield InfiniteMemory(store, session_id=session, user_id=user)


def ask_large(store: Store, sessions: Sessions, count: int, openings: int) -> tuple[list[Span], list[Span]]:
    """Return how long the first question takes in each of several cold openings of one session, and others after it."""
    asked = iter(questions(count + openings, 12))
    cold, warm = list[Span](), list[Span]()
    for opening in range(openings):
        IndexCache.of(store).release()
        (memory,) = _opened(store, sessions, [0])
        with memory:
            cold.append(timed(partial(memory.context, next(asked))))
            if opening == openings - 1:
                memory.index()  # what an opening makes in the background is made
                warm = [timed(partial(memory.context, next(asked))) for _ in range(count)]
    return cold, warm


def in_processes(address: str | Path, sessions: Sessions, count: int) -> list[Span]:
    """Return how long the first question takes in each of several new processes, in the first sessions."""
    root = str(Path(__file__).parent.parent)
    spans = []
    for number in range(count):
        command = [sys.executable, __file__, str(address), *sessions.key(number % sessions.count), str(number)]
        environment = {**os.environ, "PYTHONPATH": root}
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, env=environment)
        spans.append(Span(*json.loads(done.stdout)))
    return spans


def main(address: str, user: str, session: str, seed: str) -> None:
    """Ask one question, from the address to the prompt."""
    question, hello = questions(2, 100 + int(seed))
    with InfiniteMemory(":memory:") as memory:  # loads the libraries and the embedder
        memory.add(list(memory.context(hello).messages))
        memory.search(hello)
    if "://" in address:
        import psycopg  # noqa: F401

    def first() -> None:
        with closing(open_store(address)) as store:
            InfiniteMemory(store, session_id=session, user_id=user).context(question)

    print(json.dumps(timed(first)))


if __name__ == "__main__":
    main(*sys.argv[1:])
