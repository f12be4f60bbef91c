"""The memories that a history, a chain or a search uses: a single one that was given, or one per session of a store."""

import os
import threading
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, contextmanager, suppress
from functools import partial
from pathlib import Path
from time import monotonic
from typing import Any, TypeVar

from langchain_infinite_memory.identity import Newest, named_session, named_user
from langchain_infinite_memory.settings import memory_settings
from shared_core.errors import StoreUnavailableError, UnknownReferenceError
from shared_core.memory import InfiniteMemory
from shared_core.pool import SessionPool
from shared_core.records import MAIN
from shared_core.runtime.forks import Depth, fork_safe_lock
from shared_core.runtime.threads import beside, lent_async, threads_of
from shared_core.store import Store

__all__ = ["SessionPool"]

MemoryLike = InfiniteMemory | SessionPool | Store | str | Path | None

SessionKey = tuple[str, str | None]
"""The ids of a session and of its user."""

Result = TypeVar("Result")

TURNS = 4096
"""How many turns are remembered with the moment in which they began."""

LATELY = 60.0
"""How many seconds a turn does not ask again for a store that was away; one may go on days later."""

WAIT = 2.0
"""How many seconds a turn waits in all for a file that another process holds, if it can go on without the memory."""


def open_pool(store: MemoryLike = None, *, wait: float | None = None, **settings: Any) -> SessionPool:
    """Return the memories of all sessions of a store, for an agent.

    Args:
        store: a path, a `Store`, a `SessionPool`, which is returned, or None: in memory.
        wait: as for `SessionPool`.
        settings: what `memory_settings` takes; not for a `SessionPool`.

    Raises:
        TypeError: an argument is unknown, or `store` is an `InfiniteMemory` or something else.
        ValueError, StoreError: as for `SessionPool`.
    """
    if isinstance(store, InfiniteMemory):
        raise TypeError(
            "store: an InfiniteMemory serves one session only, and an agent may need others, such as those of nested "
            "graphs; pass its store, and session_id="
        )
    # A question that does not fit must not be left out, nor what a tool has just returned.
    given = settings if isinstance(store, SessionPool) else {"on_overflow": "raise", **settings}
    return Sessions(store, wait=wait, **given).lending


def unnamed(key: str) -> str:
    """Return what to say if the configuration of a run lacks an entry."""
    return (
        f"config names no {key!r}: call with config={{'configurable': {{{key!r}: '...'}}}}, or bind it by "
        ".with_config(configurable=...)"
    )


def check_store(store: object) -> None:
    """Raise TypeError unless a store can be opened."""
    if store is None or isinstance(store, str | Path | Store | SessionPool | InfiniteMemory):
        return
    wanted = "a path, a Store, a SessionPool, an InfiniteMemory or None"
    if any(cls.__module__.startswith("langgraph.") for cls in type(store).__mro__):
        raise TypeError(
            f"store must be {wanted}, not LangGraph's {type(store).__name__}: it keeps the state of graphs or values "
            "of your own; pass it to create_agent or compile, and a path here"
        )
    raise TypeError(f"store must be {wanted}, not {store!r}")


class Locks:
    """One lock per name, such as a session's, which exists while somebody uses it.

    Under them, stores are read and other locks are taken. A fork that waited for one could be waited for in turn, so
    that a forked process has locks of its own instead, as it has connections of its own.
    """

    def __init__(self) -> None:
        self._lock = fork_safe_lock(Depth.MOMENT)
        self._held: dict[tuple[int, Hashable], tuple[threading.Lock, int]] = {}

    @contextmanager
    def hold(self, name: Hashable) -> Iterator[None]:
        """Hold the lock of this name for a block."""
        key = os.getpid(), name
        with self._lock:
            own, users = self._held.get(key, (threading.Lock(), 0))
            self._held[key] = own, users + 1
        try:
            with own:
                yield
        finally:
            with self._lock:
                _, users = self._held.pop(key)
                if users > 1:
                    self._held[key] = own, users - 1


class Outage:
    """Remembers when the store was away, so that no turn waits for it twice, nor behind another one that waits."""

    def __init__(self) -> None:
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


class Sessions:
    """Hands out memories, each to one caller at a time.

    Args:
        store: an `InfiniteMemory`, which only serves its own session and is shared by all callers; a `SessionPool`; or
            a store as for `InfiniteMemory`, which is opened when it is first used.
        size: as for `SessionPool`, for a store.
        wait: as for `SessionPool`, for a store.
        settings: what `memory_settings` takes, for a store.

    Attributes:
        only: the memory that was given; None if there is one for every session.

    Raises:
        TypeError: an argument is unknown, or `store` is something else or has its settings already.
        ValueError, StoreError: as for `SessionPool`.
    """

    def __init__(
        self, store: MemoryLike = None, *, size: int = 64, wait: float | None = None, **settings: Any
    ) -> None:  # fmt: skip
        check_store(store)
        self.only = store if isinstance(store, InfiniteMemory) else None
        self._owns_pool = not isinstance(store, InfiniteMemory | SessionPool)
        if settings and not self._owns_pool:
            names = ", ".join(sorted(settings))
            raise TypeError(f"{names}: the store given has its own settings; pass them where it is made")
        for name in sorted({"session_id", "user_id"} & settings.keys()):
            raise TypeError(
                f"{name}: one store serves all sessions and users; name them in each run: "
                f"config={{'configurable': {{{name!r}: '...'}}}}"
            )
        self._settings = memory_settings(**settings)
        self._pool = store if isinstance(store, SessionPool) else None
        given: Any = store
        self._opened = partial(SessionPool, given, size=size, wait=wait, **self._settings)
        self._lock = threading.Lock()

    @property
    def lending(self) -> SessionPool:
        """The pool, where no single memory was given; the store is opened when this is first read."""
        with self._lock:
            if self._pool is None:
                self._pool = self._opened()
            return self._pool

    @property
    def settings(self) -> Mapping[str, Any]:
        """The settings of the memories, as far as they were given; of a memory that was given, none are known."""
        return self._settings if self._pool is None else self._pool.settings

    def check(self, session_id: str | None, user_id: str | None) -> None:
        """Raise ValueError if the memory given is that of another session."""
        if self.only is not None and (session_id, user_id) != (self.only.session_id, self.only.user_id):
            raise ValueError(
                f"session_id={session_id!r}, user_id={user_id!r}: the memory given is that of session "
                f"{self.only.session_id!r} of user {self.only.user_id!r}; pass a SessionPool to serve several"
            )

    def key(self, entries: Mapping[str, Any], session_keys: Sequence[str], user_key: str | None) -> SessionKey:
        """Return the session and the user that the configuration of a run names, else those of the memory given.

        Args:
            entries: `config["configurable"]`.
            session_keys: the first of these entries that is set names the session.
            user_key: the entry that names the user; without it, there is none. None: there are no users.

        Raises:
            ValueError: no entry names the session, or one names another than that of the memory given, or another user.
        """
        named = next((entries[key] for key in session_keys if entries.get(key) is not None), None)
        session = self.only.session_id if named is None and self.only else named
        if session is None:
            raise ValueError(unnamed(session_keys[0]))
        session = str(named_session(session_keys[0], session))
        user = None if user_key is None else named_user(entries.get(user_key))
        if user is None and self.only is not None:
            user = self.only.user_id
        self.check(session, user)
        return session, user

    @contextmanager
    def use(
        self, session_id: str, user_id: str | None = None, newest: str | None = None
    ) -> Iterator[InfiniteMemory]:  # fmt: skip
        """Provide a session's memory: the one given as it stands, one of a store on `main` or at its newest message."""
        memory = self._take(session_id, user_id, newest)
        try:
            yield memory
        finally:
            self._give_back(memory)

    def ause(
        self, session_id: str, user_id: str | None = None, newest: str | None = None
    ) -> AbstractAsyncContextManager[InfiniteMemory]:  # fmt: skip
        """Do what `use` does without blocking the event loop."""
        close = self._give_back if self.only is not None else InfiniteMemory.close
        return lent_async(self.call, partial(self._take, session_id, user_id, newest), self._give_back, close)

    async def call(self, function: Callable[..., Result], /, *given: Any) -> Result:
        """Call a function in a thread of the store's own, and do not block the event loop meanwhile."""
        if self.only is not None:
            return await threads_of(self.only._store).run(function, *given)
        pool = self._pool if self._pool is not None else await beside(lambda: self.lending)
        return await threads_of(pool.store).run(function, *given)

    def _take(self, session_id: str, user_id: str | None, newest: str | None) -> InfiniteMemory:
        if self.only is not None:
            return self.only
        memory = self.lending.take(session_id, user_id)
        if newest is not None:
            with suppress(UnknownReferenceError):  # forgotten since, or of another store
                memory.checkout(newest)
                return memory
        if memory.branch != MAIN:
            memory.checkout(MAIN)
        return memory

    def _give_back(self, memory: InfiniteMemory) -> None:
        if self.only is None:
            self.lending.give_back(memory)

    def close(self) -> None:
        """Release the store, if it was opened here; a memory or pool that was given stays open."""
        if self._pool is not None and self._owns_pool:
            self._pool.close()
