"""How long the verbs on branches take in a large session: `python benchmarks/tree.py`.

One session of 10,000 messages in a line, 200 forks and 50 merges stacked on one branch; then a fork of a longer one.
`context` is timed before there is a tree and after, and for the first question after a merge. Absolute times hold for
one machine only; the processor's time is what its other work does not disturb, and leaves out waiting for the disk.
Prints a Markdown table; `--json FILE` writes the figures too.
"""

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

from latency import conversation

from shared_core import InfiniteMemory, Message

QUESTIONS = 20

Times = dict[str, list[tuple[float, float]]]
"""What was done -> how long it took, each time, in milliseconds: by the clock, and of the processor."""


def timed(action: Callable[[], object], times: int = 1) -> list[tuple[float, float]]:
    """Return how long each call took."""
    taken = []
    for _ in range(times):
        start, worked = time.perf_counter(), time.process_time()
        action()
        taken.append(((time.perf_counter() - start) * 1000, (time.process_time() - worked) * 1000))
    return taken


class Session:
    """A session that grows a tree; `side` is a branch that parted from the newest message before the merges."""

    def __init__(self, path: Path, messages: int) -> None:
        self.memory = InfiniteMemory(path, embedder="static")
        self.numbers = count()
        said = list(conversation(messages))
        for first in range(0, messages, 1000):
            self.memory.add(said[first : first + 1000])
        self.memory.index()

    def say(self, branch: str) -> list[str]:
        """Add an exchange to a branch, stand on main again, and return its ids."""
        number = next(self.numbers)
        self.memory.checkout(branch)
        added = self.memory.add([Message.user(f"what of part {number}?"), Message.assistant(f"part {number} is fine")])
        self.memory.checkout("main")
        return [message.id or "" for message in added]

    def opened(self, at: str | None = None) -> str:
        """Open a branch, say something there, and stand on main again."""
        name = f"branch {next(self.numbers)}"
        self.memory.fork(name, at)
        self.say(name)
        return name

    def put_aside(self) -> None:
        """Put an exchange aside."""
        self.say("main")
        self.memory.stash()

    def grow(self, messages: int, forks: int, merges: int) -> None:
        """Fork everywhere, and merge one branch after the other."""
        self.memory.fork("side")
        for number in range(forks):
            self.memory.fork(f"fork {number}", at=f"m{number * messages // forks}")
        for _ in range(merges):
            name = self.opened("main")
            self.say("main")
            self.memory.merge(name, "full")

    def asked(self) -> Callable[[], object]:
        """Return a call that asks another question each time."""
        questions = iter([" ".join(message.content.split()[:9]) + "?" for message in conversation(999, seed=11)])
        return lambda: self.memory.context(next(questions))


def newest_on(memory: InfiniteMemory, branch: str) -> list[Message]:
    """Go to a branch and read its end."""
    memory.checkout(branch)
    return memory.newest(10)


Prepare = Callable[[Session], Any]
Act = Callable[[InfiniteMemory, Any], object]

VERBS: dict[str, tuple[Prepare, Act]] = {
    "add": (lambda session: None, lambda memory, _: memory.add(Message.user("one more"))),
    "fork": (lambda session: next(session.numbers), lambda memory, number: memory.fork(f"new {number}")),
    "checkout, and the newest 10": (lambda session: None, lambda memory, _: newest_on(memory, "side")),
    "merge fast-forward": (lambda session: session.opened(), lambda memory, name: memory.merge(name, "fast-forward")),
    "merge full": (lambda session: session.say("side"), lambda memory, _: memory.merge("side", "full")),
    "merge squash": (lambda session: session.say("side"), lambda memory, _: memory.merge("side", "squash")),
    "merge three-way": (lambda session: session.say("side"), lambda memory, _: memory.merge("side", "three-way")),
    "cherry-pick": (lambda session: session.say("side"), lambda memory, ids: memory.cherry_pick(ids)),
    "rebase": (
        lambda session: session.memory.checkout(session.opened("side")), lambda memory, _: memory.rebase("main")
    ),
    "stash": (lambda session: session.say("main"), lambda memory, _: memory.stash()),
    "stash list": (lambda session: None, lambda memory, _: memory.stashes()),
    "stash apply": (lambda session: session.put_aside(), lambda memory, _: memory.stash_pop(keep=True)),
    "stash pop": (lambda session: session.put_aside(), lambda memory, _: memory.stash_pop()),
    "stash drop": (lambda session: session.put_aside(), lambda memory, _: memory.stash_drop()),
    "diff": (lambda session: None, lambda memory, _: memory.diff("side")),
    "tag": (lambda session: next(session.numbers), lambda memory, number: memory.tag(f"tag {number}")),
    "reset": (lambda session: session.say("main"), lambda memory, ids: memory.reset(ids[0])),
    "rename": (
        lambda session: session.opened(), lambda memory, name: memory.rename_branch(name, f"renamed {name}")
    ),
    "delete": (lambda session: session.opened(), lambda memory, name: memory.delete_branch(name)),
    "log of 50": (lambda session: None, lambda memory, _: memory.log(50)),
    "reflog of 50": (lambda session: None, lambda memory, _: memory.reflog(limit=50)),
    "forget": (lambda session: session.say("main"), lambda memory, ids: memory.forget(ids=ids)),
}  # fmt: skip


def measure(folder: Path, messages: int, forks: int, merges: int, times: int) -> Times:
    """Return how long each verb took in a large tree, and questions before and after it grew."""
    session = Session(folder / "tree.db", messages)
    memory, ask = session.memory, session.asked()
    ask()
    found: Times = {"context before": timed(ask, QUESTIONS)}
    session.grow(messages, forks, merges)
    memory.checkout("main")
    ask()
    found["context after"] = timed(ask, QUESTIONS)
    for name, (prepare, act) in VERBS.items():
        found[name] = []
        for _ in range(times):
            memory.checkout("main")
            call = partial(act, memory, prepare(session))
            memory.newest(1)
            found[name] += timed(call)
    memory.close()
    return found


def measure_long(folder: Path, messages: int, times: int) -> Times:
    """Return how long a fork of a longer conversation takes, and the first question after a merge in it."""
    session = Session(folder / "long.db", messages)
    memory, ask = session.memory, session.asked()
    ask()
    found: Times = {f"context at {messages:,}": timed(ask, QUESTIONS)}
    numbers = count()
    memory.newest(1)
    found[f"fork at {messages:,}"] = timed(lambda: memory.fork(f"new {next(numbers)}", "main"), times)
    memory.fork("side", "main")
    taken = []
    for _ in range(times):
        session.say("side")
        session.say("main")
        ask()
        memory.merge("side", "full")
        taken += timed(ask)
    found[f"first context after a merge at {messages:,}"] = taken
    memory.close()
    return found


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=10_000)
    parser.add_argument("--forks", type=int, default=200)
    parser.add_argument("--merges", type=int, default=50)
    parser.add_argument("--long", type=int, default=100_000, help="messages of the longer session")
    parser.add_argument("--times", type=int, default=20, help="how often each verb is done")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as name:
        times = measure(Path(name), given.messages, given.forks, given.merges, given.times)
        times |= measure_long(Path(name), given.long, given.times)
    figures = {
        what: {
            "p50 ms": statistics.median(clock for clock, _ in taken),
            "max ms": max(clock for clock, _ in taken),
            "p50 ms of processor": statistics.median(worked for _, worked in taken),
        }
        for what, taken in times.items()
    }
    print(f"{given.messages:,} messages, {given.forks} forks, {given.merges} merges\n")
    print("| verb | p50 ms | max ms | p50 ms of processor |\n| --- | ---: | ---: | ---: |")
    for what, figure in figures.items():
        print(f"| {what} | " + " | ".join(f"{value:.2f}" for value in figure.values()) + " |")
    if given.json:
        given.json.write_text(json.dumps(figures, indent=2) + "\n")


if __name__ == "__main__":
    main()
