"""The memories of all sessions of a store: how they are opened and lent, and what to do while the store is away."""

import os
import threading
from collections.abc import AsyncIterator, Hashable, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path
from time import monotonic
from typing import Any

from langchain_infinite_memory.identity import Newest
from langchain_infinite_memory.settings import memory_settings
from shared_core.errors import StoreUnavailableError, UnknownReferenceError
from shared_core.memory import InfiniteMemory
from shared_core.pool import SessionPool
from shared_core.records import MAIN
from shared_core.runtime.forks import Depth, fork_safe_lock
from shared_core.runtime.threads import lent_async, threads_of
from shared_core.store import Store
from shared_core.stores import SQLiteStore

__all__ = ["SessionPool"]

StoreLike = SessionPool | Store | str | Path | None

SessionKey = tuple[str, str | None]
"""The ids of a session and of its user."""

LOCKS = 64
"""How many locks there are for all names."""

TURNS = 4096
"""How many turns are remembered with the moment in which they began."""

LATELY = 60.0
"""How many seconds a turn does not ask again for a store that was away; one may go on days later."""

WAIT = 2.0
"""How many seconds a turn waits in all for a file that another process holds, if it can go on without the memory."""


def open_pool(store: StoreLike = None, *, size: int = 64, wait: float | None = None, **settings: Any) -> SessionPool:
    """Return the memories of all sessions of a store.

    Args:
        store: a path, a `Store`, a `SessionPool`, which is returned, or None: in memory.
        size: as for `SessionPool`.
        wait: as for `SessionPool`.
        settings: what `memory_settings` takes; not for a `SessionPool`.

    Raises:
        TypeError: an argument is unknown, or `store` is something else or has its settings already.
        ValueError, StoreError: as for `SessionPool`.
    """
    for name in sorted({"session_id", "user_id"} & settings.keys()):
        raise TypeError(
            f"{name}: one store serves all sessions and users; name them in each run: "
            f"config={{'configurable': {{{name!r}: '...'}}}}"
        )
    if store is None or isinstance(store, str | Path | Store):
        return SessionPool(store, size=size, wait=wait, **memory_settings(**settings))
    if not isinstance(store, SessionPool):
        raise TypeError(
            f"store must be a path, a Store, a SessionPool or None, not {store!r}: an InfiniteMemory serves one "
            "session only, and LangGraph's own savers and stores go to create_agent or compile"
        )
    if settings:
        names = ", ".join(sorted(settings))
        raise TypeError(f"{names}: the store given has its own settings; pass them where it is made")
    return store


@contextmanager
def lent(pool: SessionPool, session_id: str, user_id: str | None = None) -> Iterator[InfiniteMemory]:
    """Lend a session's memory, which stands on `main`."""
    with pool.use(session_id, user_id) as memory:
        _stand_on_main(memory)
        yield memory


@asynccontextmanager
async def alent(pool: SessionPool, session_id: str, user_id: str | None = None) -> AsyncIterator[InfiniteMemory]:
    """Do what `lent` does without blocking the event loop."""
    call, take = threads_of(pool.store).run, partial(pool.take, session_id, user_id)
    async with lent_async(call, take, pool.give_back, InfiniteMemory.close) as memory:
        await call(_stand_on_main, memory)
        yield memory


def _stand_on_main(memory: InfiniteMemory) -> None:
    if memory.branch != MAIN:
        memory.checkout(MAIN)


def is_stored(memory: InfiniteMemory, id_: str | None) -> bool:
    """Return whether a message is stored under an id."""
    try:
        return id_ is not None and memory.get(id_).id == id_
    except UnknownReferenceError:
        return False


class Locks:
    """Locks for names, such as those of sessions. A few names have one together.

    A thread may take a lock that it holds, as a hook on events does that erases what was just stored.

    Under them, stores are read and other locks are taken. A fork that waited for one could be waited for in turn, so
    that a forked process has locks of its own instead, as it has connections of its own.
    """

    def __init__(self) -> None:
        self._made: dict[tuple[int, int], threading.RLock] = {}

    def hold(self, name: Hashable) -> threading.RLock:
        """Return the lock of a name, to be held for a block."""
        return self._made.setdefault((os.getpid(), hash(name) % LOCKS), threading.RLock())


class Outage:
    """Remembers when a store was away, so that no turn waits for it twice, nor behind another one that waits."""

    def __init__(self, store: Store) -> None:
        self._is_file = isinstance(store, SQLiteStore)
        self._locks = Locks()
        self._turns: Newest[Hashable, float] = Newest(TURNS)
        self._failed_at, self._reason = 0.0, ""
        self._lock = fork_safe_lock(Depth.MOMENT)

    def begin(self, turn: Hashable) -> None:
        """Note that a turn begins."""
        with self._lock:
            self._turns[turn] = monotonic()

    def asked(self, turn: Hashable) -> float:
        """Return when a turn began; now, if that is not known."""
        with self._lock:
            return self._turns.get(turn, monotonic())

    def check(self, asked: float) -> None:
        """Raise StoreUnavailableError if the store was away since this moment, and not long ago."""
        if self._reason and asked < self._failed_at > monotonic() - LATELY:
            raise StoreUnavailableError(self._reason)

    @contextmanager
    def watch(self) -> Iterator[None]:
        """Note if the store is away in a block."""
        try:
            yield
        except StoreUnavailableError as error:
            self._failed_at, self._reason = monotonic(), str(error)
            raise

    @contextmanager
    def storing(self, session: SessionKey, asked: float) -> Iterator[None]:
        """Let one caller at a time store in a session, so that the second sees the first; `asked` as for `check`.

        A file serves one at a time, and who waits behind another that waits for it in vain should not do so, too.
        """
        with self._locks.hold("file" if self._is_file else session):
            self.check(asked)
            with self.watch():
                yield
