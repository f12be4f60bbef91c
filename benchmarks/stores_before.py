"""SQLite as it is beside another checkout of this project: turns taken alternately in two processes.

Run as a script, it is one of the two: it stores a session in a file, and then does what each line of its input says.
"""

import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial, wraps
from itertools import count
from pathlib import Path
from statistics import median
from subprocess import PIPE, Popen
from typing import Any

from latency_talk import conversation, in_chunks, turns

from shared_core import InfiniteMemory, Message
from shared_core.stores import SQLiteStore

__all__ = ["KINDS", "beside"]

KINDS = (
    "a turn",
    "a turn without recall",
    "what a turn does in the store",
    "adding 100 messages",
    "opening and asking",
)
"""What is compared."""

Times = list[float]


def beside(other: Path, folder: Path, messages: int, rounds: int) -> dict[str, tuple[Times, Times]]:
    """Return the processor's milliseconds of each kind in each round, here and in another checkout.

    Args:
        other: the checkout.
        folder: for the two files.
        messages: in the session.
        rounds: how often each takes its turn, the one first or the other.
    """
    found: dict[str, tuple[Times, Times]] = {kind: ([], []) for kind in KINDS}
    here = Path(__file__).parent.parent
    with _child(here, folder / "now.db", messages) as now, _child(other, folder / "before.db", messages) as before:
        for number in range(rounds + 1):
            for kind in KINDS:
                times = found[kind]
                pair = [(now, times[0]), (before, times[1])]
                for ask, taken in pair if number % 2 else reversed(pair):
                    value = ask(kind)
                    if number:  # the first round warms up
                        taken.append(value)
    return found


@contextmanager
def _child(root: Path, file: Path, messages: int) -> Iterator[Callable[[str], float]]:
    """Start a process with the code of a checkout, and yield what asks it for a measurement."""
    command = [sys.executable, __file__, str(file), str(messages)]
    environment = {**os.environ, "PYTHONPATH": str(root)}
    with Popen(command, stdin=PIPE, stdout=PIPE, text=True, env=environment) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        stdin, stdout = child.stdin, child.stdout
        started = json.loads(stdout.readline())
        assert Path(started).is_relative_to(root), f"{started} is not of {root}"

        def ask(kind: str) -> float:
            print(kind, file=stdin, flush=True)
            return float(stdout.readline())

        yield ask
        stdin.close()


class Measured:
    """One of the two: a session in a file.

    Args:
        file: a new one.
        messages: how many are stored first.
    """

    def __init__(self, file: Path, messages: int) -> None:
        self.file = file
        self.store = SQLiteStore(file)
        self.memory = self._open()
        for chunk in in_chunks(conversation(messages)):
            self.memory.add(chunk)
        self.memory.index()
        self.plain = self._open(recall_tokens=0)
        self.turns = iter(turns(10_000))
        self.numbers = count()
        self.in_store = 0.0

    def _open(self, **arguments: Any) -> InfiniteMemory:
        return InfiniteMemory(self.store, **arguments)

    def measure(self, kind: str) -> float:
        """Return the processor's milliseconds of one of `KINDS`, the median of a few."""
        kinds: dict[str, Callable[[], float]] = dict(
            zip(
                KINDS,
                (
                    partial(self.turn, self.memory), partial(self.turn, self.plain), self.stored,
                    partial(processor_ms, self.add), partial(processor_ms, self.first),
                ),
                strict=True,
            )
        )  # fmt: skip
        return median(kinds[kind]() for _ in range(5))

    def turn(self, memory: InfiniteMemory) -> float:
        """Take a turn."""
        asked, replied = next(self.turns)

        def take() -> None:
            memory.add(asked)
            memory.context()
            memory.add(replied)

        return processor_ms(take)

    def stored(self) -> float:
        """Take a turn, and return how much of it the store's methods took."""
        with self.timed_store():
            self.turn(self.memory)
        return self.in_store

    @contextmanager
    def timed_store(self) -> Iterator[None]:
        """Time what the store does in this thread, calls within its own calls once."""
        self.in_store, depth = 0.0, 0
        kept = {name: method for name, method in vars(SQLiteStore).items() if _is_verb(name, method)}
        inherited = {name: getattr(SQLiteStore, name) for base in SQLiteStore.__mro__[1:] for name in vars(base)}
        verbs = {name: method for name, method in {**inherited, **kept}.items() if _is_verb(name, method)}

        def clocked(method: Callable[..., Any]) -> Callable[..., Any]:
            @wraps(method)
            def call(*args: Any, **kwargs: Any) -> Any:
                nonlocal depth
                depth += 1
                began = time.thread_time()
                try:
                    return method(*args, **kwargs)
                finally:
                    depth -= 1
                    if not depth:
                        self.in_store += 1_000 * (time.thread_time() - began)

            return call

        for name, method in verbs.items():
            setattr(SQLiteStore, name, clocked(method))
        try:
            yield
        finally:
            for name in verbs:
                delattr(SQLiteStore, name)
            for name, method in kept.items():
                setattr(SQLiteStore, name, method)

    def add(self) -> None:
        """Add messages to a session of their own."""
        number = next(self.numbers)
        with InfiniteMemory(self.store, session_id=f"added {number}") as memory:
            memory.add([Message.user(f"one more, the {each}th") for each in range(100)])

    def first(self) -> None:
        """Open a memory of the session, and ask it."""
        with InfiniteMemory(self.file) as memory:
            memory.context(f"what did we say {next(self.numbers)} times?")


def _is_verb(name: str, method: object) -> bool:
    return not name.startswith("_") and callable(method) and name not in ("transaction", "close", "for_user", "reading")


def processor_ms(call: Callable[[], object]) -> float:
    """Return the processor's milliseconds that a call takes, in all threads."""
    began = time.process_time()
    call()
    return 1_000 * (time.process_time() - began)


def ratio(times: tuple[Sequence[float], Sequence[float]]) -> float:
    """Return how many times the other's time ours is, the median of the rounds."""
    return median(ours / max(theirs, 1e-9) for ours, theirs in zip(*times, strict=True))


def main(file: str, messages: str) -> None:
    """Say which code this is, and measure what is asked for."""
    import shared_core

    measured = Measured(Path(file), int(messages))
    print(json.dumps(shared_core.__file__), flush=True)
    for line in sys.stdin:
        print(measured.measure(line.strip()), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
