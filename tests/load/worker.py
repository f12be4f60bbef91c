"""A worker under load: a process that does what one of a service does, until it is killed or there is a file `stop`.

It notes each change in a journal, a line before the call and one after it, so that all that it was told outlives it.
"""

import logging
import os
import re
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

from shared_core import InfiniteMemory, Message, SessionPool
from shared_core.errors import StoreUnavailableError
from shared_core.testing.hashing_embedder import HashingEmbedder

SESSIONS = 100
TOPICS = ("garden", "bicycle", "locker", "passport", "recipe", "piano", "invoice", "umbrella")
_MARK = re.compile(r"\[\[([^\[\]]*)\]\]")


def text_of(id_: str) -> str:
    """Return what a message says: its own id between marks, so that it is seen wherever its words are."""
    return f"[[{id_}]] The {TOPICS[sum(id_.encode()) % len(TOPICS)]} of {id_} is where we left it, I believe."


def marks_in(text: str) -> list[str]:
    """Return the ids of the messages whose words are in a text."""
    return _MARK.findall(text)


def changes_in(path: Path) -> Iterator[tuple[str, list[str], bool]]:
    """Yield the changes of a journal: `add` or `forget`, the messages, and whether it was acknowledged."""
    lines = path.read_text(encoding="utf-8").split("\n")[:-1]
    for line, after in zip(lines, [*lines, ""][1:], strict=True):
        if line != "done":
            verb, *ids = line.split()
            yield verb, ids, after == "done"


class Worker:
    """Calls verbs by chance, and checks that it sees what it was told is stored, and nothing that it has forgotten.

    Args:
        journal: the file of its changes.
        name: begins the ids of its messages, which nobody else forgets.
    """

    def __init__(self, journal: Path, name: str) -> None:
        self._journal = os.open(journal, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL)
        self._name = name
        self._chance = Random(name)
        self._count = 0
        self._stored: dict[str, list[str]] = {}
        self._forgotten: set[str] = set()

    def step(self, pool: SessionPool) -> None:
        """Do one thing in some session; a few of them are everybody's."""
        session = f"s{int(SESSIONS * self._chance.random() ** 3)}"
        verbs = (self._add, self._add, self._add, self._ask, self._ask, self._read, self._forget)
        with pool.use(session, f"user {sum(session.encode()) % 20}") as memory:
            self._chance.choice(verbs)(memory, self._stored.setdefault(session, []))

    def _change(self, verb: str, ids: list[str], work: Callable[[], object]) -> None:
        os.write(self._journal, f"{verb} {' '.join(ids)}\n".encode())
        work()
        os.write(self._journal, b"done\n")

    def _add(self, memory: InfiniteMemory, own: list[str]) -> None:
        self._count += 1
        question, answer = (f"{self._name}n{self._count}{part}" for part in "ua")
        said = [Message.user(text_of(question), id=question), Message.assistant(text_of(answer), id=answer)]
        self._change("add", [question, answer], lambda: memory.add(said))
        own += [question, answer]

    def _forget(self, memory: InfiniteMemory, own: list[str]) -> None:
        ids = self._chance.sample(own, min(len(own), 2))
        own[:] = [id_ for id_ in own if id_ not in ids]
        if ids:
            self._change("forget", ids, lambda: memory.forget(ids=ids))
            self._forgotten |= set(ids)

    def _ask(self, memory: InfiniteMemory, own: list[str]) -> None:
        asked = self._chance.choice(own or ["nothing"])
        shown = "\n".join(message.content for message in memory.context(f"What of {asked}?").messages)
        assert not self._forgotten & set(marks_in(shown)), "a prompt holds what was forgotten"

    def _read(self, memory: InfiniteMemory, own: list[str]) -> None:
        seen = [message.id for message in memory.messages()]
        assert [id_ for id_ in seen if id_ in own] == own, "a reader misses what was stored"
        assert not self._forgotten & set(seen), "a reader sees what was forgotten"


def work(address: str, folder: Path, number: int, life: int) -> None:
    """Work until the end: what a process does."""
    os.dup2(os.open(folder / "complaints", os.O_WRONLY | os.O_APPEND | os.O_CREAT), 2)
    logging.getLogger("psycopg").setLevel(logging.ERROR)  # it warns of each connection that breaks
    # Who opens a file whose words wait to be scrubbed is told so, while others are reading it.
    warnings.filterwarnings("ignore", "messages were forgotten", RuntimeWarning)
    worker, pool = Worker(folder / f"w{number}x{life}.journal", f"w{number}x{life}"), None
    while not (folder / "stop").exists():
        try:
            pool = pool or SessionPool(address, embedder=HashingEmbedder(), max_tokens=1_200, reserve_tokens=200)
            worker.step(pool)
        except StoreUnavailableError:
            time.sleep(0.1)
    if pool is not None:
        pool.close()
