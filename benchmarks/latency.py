"""How long a question and an addition take as the history grows: `python benchmarks/latency.py [sizes …]`.

One run, one machine, the default settings with static word vectors. Absolute times hold for that machine only; what
carries over are the ratios between sizes. Prints a Markdown table; `--json FILE` writes the figures too.
"""

import argparse
import json
import os
import random
import statistics
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from shared_core import InfiniteMemory, Message

SAMPLE = Path(__file__).parent.parent / "examples" / "data" / "conversation.json"
QUESTIONS = 40
ADDITIONS = 400


def conversation(count: int, seed: int = 7) -> Iterator[Message]:
    """Yield messages made of the sample conversation's words, as often as they occur there, in sittings."""
    words = Counter(word for message in json.loads(SAMPLE.read_text()) for word in (message["content"] or "").split())
    vocabulary, weights = list(words), list(words.values())
    chance = random.Random(seed)
    moment = datetime(2020, 1, 1, 9, tzinfo=UTC)
    for number in range(count):
        moment += timedelta(hours=12) if number % 40 == 0 else timedelta(seconds=30)
        size = max(3, int(chance.lognormvariate(3, 0.7)))
        text = " ".join(chance.choices(vocabulary, weights, k=size)) + f" ref{number}"
        yield Message(role="assistant" if number % 2 else "user", content=text, id=f"m{number}", created_at=moment)


def timed(action: Callable[[], Any], times: int) -> list[float]:
    """Return how long each call took, in milliseconds."""
    taken = []
    for _ in range(times):
        start = time.perf_counter()
        action()
        taken.append((time.perf_counter() - start) * 1000)
    return taken


def p50(values: list[float]) -> float:
    """Return the median."""
    return statistics.median(values)


def p95(values: list[float]) -> float:
    """Return the 95th percentile."""
    return statistics.quantiles(values, n=20)[-1]


def fsyncs_per_second(folder: Path) -> float:
    """Return how often a second the disk can make 4 KB durable, appending to one file."""
    with (folder / "fsync").open("wb", buffering=0) as file:

        def write() -> None:
            file.write(b"x" * 4096)
            os.fsync(file.fileno())

        return 1000 / p50(timed(write, 200))


def measure(count: int, folder: Path) -> dict[str, float]:
    """Return the figures for a history of `count` messages."""
    path = folder / f"{count}.db"
    figures: dict[str, float] = {"messages": count}
    with InfiniteMemory(path, durability="process") as memory:
        messages = list(conversation(count))
        start = time.perf_counter()
        for first in range(0, count, 1000):
            memory.add(messages[first : first + 1000])
        figures["bulk add/s"] = count / (time.perf_counter() - start)
        start = time.perf_counter()
        memory.index()
        figures["index/s"] = count / (time.perf_counter() - start)
    questions = iter([" ".join(message.content.split()[:9]) + "?" for message in conversation(4 * QUESTIONS, seed=11)])
    with InfiniteMemory(path) as memory:
        start = time.perf_counter()
        memory.context("what did we say first?")
        figures["first context ms"] = (time.perf_counter() - start) * 1000
        taken = timed(lambda: memory.context(next(questions)), QUESTIONS)
        figures["context p50 ms"], figures["context p95 ms"] = p50(taken), p95(taken)
    with InfiniteMemory(path, recall_tokens=0) as memory:
        memory.context("warm up")
        taken = timed(lambda: memory.context(next(questions)), QUESTIONS)
        figures["no recall p50 ms"], figures["no recall p95 ms"] = p50(taken), p95(taken)
    numbers = iter(range(10**9, 2 * 10**9))
    for durability in ("full", "process"):
        with InfiniteMemory(path, durability=durability) as memory:
            memory.add(Message.user("warm up"))
            taken = timed(lambda: memory.add(Message.user(f"one more, number {next(numbers)}")), ADDITIONS)
            figures[f"add {durability}/s"] = 1000 / p50(taken)
    return figures


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("sizes", nargs="*", type=int, default=[1_000, 10_000, 100_000])
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        disk = fsyncs_per_second(folder)
        rows = [measure(size, folder) | {"fsync/s": disk} for size in arguments.sizes]
    columns = list(rows[0])
    print("| " + " | ".join(columns) + " |")
    print("|" + " ---: |" * len(columns))
    for row in rows:
        print(
            "| "
            + " | ".join(f"{row[column]:,.2f}" if row[column] < 100 else f"{row[column]:,.0f}" for column in columns)
            + " |"
        )
    if arguments.json:
        arguments.json.write_text(json.dumps(rows, indent=2) + "\n")


if __name__ == "__main__":
    main()
