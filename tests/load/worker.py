"""A worker under load: a process that does what those of a service do, one call after the other in each of its threads.

What it calls is chosen by chance. It goes on until there is a file `stop`, and notes each call in a journal.
"""

import logging
import os
import random
import re
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from threading import Thread
from typing import Any

from shared_core import Context, InfiniteMemory, Message, SessionPool
from shared_core.errors import StoreUnavailableError
from shared_core.records import MAIN
from shared_core.testing.hashing_embedder import HashingEmbedder
from tests.load.journal import Journal, calls_in

THREADS = 2
"""How many threads of a process call verbs, with one store and one pool."""

SHARES = {"add": 44, "context": 32, "messages": 4, "search": 4, "branches": 2, "fork": 4, "forget": 10}
"""How often each verb is chosen, of a hundred calls."""

ELSEWHERE = 0.25
"""How often a call is on another branch than main, if the worker knows of one."""

TOPICS = ("garden", "bicycle", "locker", "passport", "recipe", "piano", "invoice", "umbrella", "harbour", "telescope")

Work = Callable[[], Iterable[str]]
"""Calls a memory, and returns the ids or names that this shows."""

_MARK = re.compile(r"\[\[([^\[\]]*)\]\]")


def text_of(id_: str) -> str:
    """Return what a message says: its own id between marks, so that it is seen wherever its words are."""
    return f"[[{id_}]] The {TOPICS[_hash(id_) % len(TOPICS)]} of {id_} is where we left it last summer, I believe."


def marks_in(text: str) -> list[str]:
    """Return the ids of the messages whose words are in a text."""
    return _MARK.findall(text)


def user_of(session: str) -> str:
    """Return the user whom a session belongs to."""
    return f"user {_hash(session) % 20}"


def _hash(text: str) -> int:
    return sum(text.encode())


def _shown(context: Context) -> Iterator[str]:
    yield from marks_in("\n".join(message.content for message in context.messages))


class LoadWorker:
    """A thread that calls verbs on the sessions of a store.

    Args:
        pool: of the store.
        journal: where calls are noted.
        stop: a file that ends the work once it is there.
        number: of the thread, from 0.
        of: how many threads there are in all processes. Each message may be forgotten by one of them: two would not
            know what to expect.
        life: how many of this number were killed before.
        spared: messages that one of them may have forgotten.
    """

    def __init__(
        self, pool: SessionPool, journal: Journal, stop: Path, number: int, of: int, life: int, spared: Iterable[str]
    ) -> None:
        self._pool = pool
        self._journal = journal
        self._stop = stop
        self._number = number
        self._of = of
        self._name = f"w{number}x{life}"
        self._chance = random.Random(self._name)
        self._spared = set(spared)
        self._count = 0
        self._said: dict[str, list[str]] = {}
        self._known_branches: dict[str, list[str]] = {}

    def run(self, sessions: int) -> None:
        """Call verbs on sessions, on some more often than on others."""
        verbs = {verb: getattr(self, f"_{verb}") for verb in SHARES}
        while not self._stop.exists():
            session = f"s{int(sessions * self._chance.random() ** 3)}"
            (verb,) = self._chance.choices(list(SHARES), list(SHARES.values()))
            with suppress(StoreUnavailableError), self._pool.use(session, user_of(session)) as memory:
                known = self._known_branches.get(session)
                elsewhere = bool(known) and self._chance.random() < ELSEWHERE
                verbs[verb](memory, self._chance.choice(known) if known and elsewhere else MAIN)

    def _next(self) -> str:
        self._count += 1
        return f"{self._name}n{self._count}"

    def _call(
        self, verb: str, memory: InfiniteMemory, branch: str, ids: list[str], work: Work, *, on: str | None = None
    ) -> tuple[str, ...] | None:
        def there() -> Iterable[str]:
            where = branch if on is None else on
            if memory.branch != where:
                memory.checkout(where)
            return work()

        return self._journal.call(verb, memory.session_id, branch, ids, there)

    def _add(self, memory: InfiniteMemory, branch: str) -> None:
        ids = [f"{self._next()}u", f"{self._name}n{self._count}a"]
        roles = ("user", "assistant")
        said = [
            Message.model_validate({"role": role, "content": text_of(id_), "id": id_})
            for role, id_ in zip(roles, ids, strict=True)
        ]
        done = None
        while done is None and not self._stop.exists():
            done = self._call("add", memory, branch, ids, lambda: [message.id or "" for message in memory.add(said)])
        self._said.setdefault(memory.session_id, []).extend(ids)

    def _context(self, memory: InfiniteMemory, branch: str) -> None:
        asked = self._known(memory)
        question = f"What of the {self._chance.choice(TOPICS)}, {' '.join(asked)}?"
        self._call("context", memory, branch, asked, lambda: _shown(memory.context(question)))

    def _search(self, memory: InfiniteMemory, branch: str) -> None:
        if asked := self._known(memory):
            self._call(
                "search", memory, branch, asked, lambda: [hit.message.id or "" for hit in memory.search(asked[0], 5)]
            )

    def _known(self, memory: InfiniteMemory) -> list[str]:
        """Return a message that this worker has stored here, and that may have been forgotten since."""
        said = self._said.get(memory.session_id)
        return [self._chance.choice(said)] if said else []

    def _messages(self, memory: InfiniteMemory, branch: str) -> tuple[str, ...] | None:
        return self._call("messages", memory, branch, [], lambda: [one.id or "" for one in memory.messages()])

    def _branches(self, memory: InfiniteMemory, branch: str) -> None:
        names = self._call("branches", memory, branch, [], lambda: [one.name for one in memory.branches()])
        self._known_branches[memory.session_id] = [name for name in names or () if name != MAIN]

    def _fork(self, memory: InfiniteMemory, _: str) -> None:
        name = self._next()

        def work() -> list[str]:
            memory.fork(name)
            return [one.id or "" for one in memory.messages()]

        if self._call("fork", memory, name, [], work, on=MAIN) is not None:
            self._known_branches.setdefault(memory.session_id, []).append(name)

    def _forget(self, memory: InfiniteMemory, branch: str) -> None:
        there = self._messages(memory, branch) or ()
        own = [id_ for id_ in there if _hash(id_) % self._of == self._number and id_ not in self._spared]
        if own:
            ids = self._chance.sample(own, min(len(own), self._chance.randint(1, 3)))
            self._spared |= set(ids)
            self._call("forget", memory, branch, ids, lambda: memory.forget(ids=ids).ids)


def opened(address: str) -> SessionPool:
    """Open a store, again and again while it is away: a service would start its worker again."""
    budget: dict[str, Any] = {"max_tokens": 1_200, "reserve_tokens": 200, "token_counter": lambda text: len(text) // 4}
    while True:
        try:
            return SessionPool(address, embedder=HashingEmbedder(), recall="thorough", **budget)
        except StoreUnavailableError:
            time.sleep(0.1)


def work(address: str, folder: Path, process: int, of: int, life: int, sessions: int) -> None:
    """Work until the end: what a process does.

    Args:
        address: of the store.
        folder: for journals, the file `stop`, and what the process complains of.
        process: its number, from 0.
        of: how many processes there are at a time.
        life: how many of this number were killed before.
        sessions: how many sessions there are.
    """
    os.dup2(os.open(folder / "complaints", os.O_WRONLY | os.O_APPEND | os.O_CREAT), 2)
    logging.getLogger("psycopg").setLevel(logging.ERROR)  # it warns of each connection that breaks
    # Who opens a file whose words wait to be scrubbed is told so, while others are reading it.
    warnings.filterwarnings("ignore", "messages were forgotten", RuntimeWarning)
    with opened(address) as pool:

        def call(number: int) -> None:
            earlier = [call for path in folder.glob(f"w{number}x*.journal") for call in calls_in(path)]
            spared = [id_ for call in earlier if call.verb == "forget" for id_ in call.ids]
            journal = Journal(folder / f"w{number}x{life}.journal", number)
            LoadWorker(pool, journal, folder / "stop", number, THREADS * of, life, spared).run(sessions)

        threads = [Thread(target=call, args=(THREADS * process + number,)) for number in range(THREADS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
