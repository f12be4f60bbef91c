"""A process that goes on writing to a store until its input ends: `busy_writer.py ADDRESS SEED`.

In the sessions `talk 0` and `talk 1` anything happens. In the session `s0`, which may be large, turns are added, some
of them to branches, and older messages are forgotten. In the end it prints how many steps it took.
"""

import sys
import threading
from contextlib import closing, suppress
from itertools import count
from random import Random

from shared_core import InfiniteMemory, Message
from shared_core.errors import UnknownReferenceError
from shared_core.records import MAIN
from shared_core.store import Store
from shared_core.stores import SQLiteStore, open_store
from shared_core.testing import HashingEmbedder
from tests.support.random_talk import RandomTalk

LARGE = "s0"


class LargeSession:
    """Goes on with a session of many messages, whose ids are m0, m1, ...

    Args:
        store: where it is kept.
        random: decides.
        name: begins the ids of what is added.
    """

    def __init__(self, store: Store, random: Random, name: str) -> None:
        self.memory = InfiniteMemory(store, session_id=LARGE, embedder=HashingEmbedder())
        self._random = random
        self._name = name
        self._turns = count()

    def step(self) -> None:
        turn = next(self._turns)
        if turn % 5 == 2:
            self.memory.fork(f"{self._name}-{turn}")
        elif turn % 5 == 3:
            self.memory.checkout(MAIN)
        elif turn % 5 == 4:
            with suppress(UnknownReferenceError):  # it may be forgotten already
                self.memory.forget(ids=[f"m{self._random.randrange(1_000)}"])
        question = Message.user(f"What of {turn}, {self._name}?", id=f"{self._name} u{turn}")
        self.memory.add([question, Message.assistant("Nothing.", id=f"{self._name} a{turn}")])
        if turn % 20 == 0:
            self.memory.index()


def opened(address: str) -> Store:
    return open_store(address) if address.startswith("postgresql:") else SQLiteStore(address, durability="process")


def main(address: str, seed: int) -> None:
    """Write until the input ends."""
    ended = threading.Event()

    def wait() -> None:
        sys.stdin.read()
        ended.set()

    threading.Thread(target=wait, daemon=True).start()
    with closing(opened(address)) as store:
        random = Random(seed)
        talks = [RandomTalk(store, random, f"talk {number}") for number in range(2)]
        large = LargeSession(store, random, f"w{seed}")
        steps = 0
        while not ended.is_set():
            for talk in talks:
                talk.steps(1)
            large.step()
            steps += 1
            if steps == 1:
                sys.stdout.write("writing\n")
                sys.stdout.flush()
        sys.stdout.write(f"{steps}\n")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
