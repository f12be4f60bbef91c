"""The memories that a history, a chain or a search uses: a single one that was given, or one per session of a store."""

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

from langchain_infinite_memory.settings import memory_settings
from shared_core.memory import InfiniteMemory
from shared_core.pool import SessionPool
from shared_core.records import MAIN
from shared_core.store import Store

MemoryLike = InfiniteMemory | SessionPool | Store | str | Path | None

SessionKey = tuple[str, str | None]
"""The ids of a session and of its user."""


class Sessions:
    """Hands out memories, each to one caller at a time.

    Args:
        store: an `InfiniteMemory`, which only serves its own session and is shared by all callers; a `SessionPool`; or
            a store as for `InfiniteMemory`, which is opened when it is first used.
        size: as for `SessionPool`, for a store.
        settings: what `memory_settings` takes, for a store.

    Raises:
        TypeError: an argument is unknown, or `store` has its settings already.
    """

    def __init__(self, store: MemoryLike = None, *, size: int = 64, **settings: Any) -> None:
        self._only = store if isinstance(store, InfiniteMemory) else None
        self._pool = store if isinstance(store, SessionPool) else None
        if "memory" in settings:
            raise TypeError("memory= is called store= here: pass store=")
        self._owns_pool = self._only is None and self._pool is None
        if settings and not self._owns_pool:
            names = ", ".join(sorted(settings))
            raise TypeError(f"{names}: the memory given has its own settings; pass them where it is made")
        if isinstance(store, InfiniteMemory | SessionPool):
            store = None
        elif store is not None and not isinstance(store, str | Path | Store):
            raise TypeError(f"store must be a path, a Store, a SessionPool or an InfiniteMemory, not {store!r}")
        self._store: str | Path | Store | None = store
        self._size = size
        self._settings = memory_settings(**settings)
        self._lock = threading.Lock()

    @property
    def only(self) -> InfiniteMemory | None:
        """The memory that was given; None if there is one for every session."""
        return self._only

    def check(self, session_id: str | None, user_id: str | None) -> None:
        """Raise ValueError if the memory given is that of another session."""
        if self._only is not None and (session_id, user_id) != (self._only.session_id, self._only.user_id):
            raise ValueError(
                f"session_id={session_id!r}, user_id={user_id!r}: the memory given is that of session "
                f"{self._only.session_id!r} of user {self._only.user_id!r}; pass a SessionPool to serve several"
            )

    def key(self, entries: Mapping[str, Any], session_keys: Sequence[str], user_key: str | None) -> SessionKey:
        """Return the session and the user that the configuration of a run names, else those of the memory given.

        Args:
            entries: `config["configurable"]`.
            session_keys: the first of these entries that is set names the session.
            user_key: the entry that names the user; None: there are no users.

        Raises:
            ValueError: an entry is missing, or names another session or user than those of the memory given.
        """
        only = self._only
        named = next((entries[key] for key in session_keys if entries.get(key) is not None), None)
        session = only.session_id if named is None and only else named
        user = only.user_id if only else None
        if user_key is not None:
            user = entries.get(user_key, user)
        session, user = (None if name is None else str(name) for name in (session, user))
        for key, value in ((session_keys[0], session), (user_key, user)):
            if key is not None and value is None:
                raise ValueError(
                    f"config names no {key!r}: call with config={{'configurable': {{{key!r}: '...'}}}}, or bind it by "
                    ".with_config(configurable=...)"
                )
        self.check(session, user)
        return str(session), user

    def open(self) -> SessionPool:
        """Return the pool; the first call opens the store.

        Raises:
            ValueError, StoreError: as for `SessionPool`.
        """
        with self._lock:
            if self._pool is None:
                self._pool = SessionPool(self._store, size=self._size, **self._settings)
            return self._pool

    @contextmanager
    def use(self, session_id: str, user_id: str | None = None) -> Iterator[InfiniteMemory]:
        """Provide a session's memory: the one given as it stands, one of a store on the branch `main`."""
        memory = self._take(session_id, user_id)
        try:
            yield memory
        finally:
            self._give_back(memory)

    @asynccontextmanager
    async def ause(self, session_id: str, user_id: str | None = None) -> AsyncIterator[InfiniteMemory]:
        """Do what `use` does without blocking the event loop."""
        memory = await asyncio.to_thread(self._take, session_id, user_id)
        try:
            yield memory
        finally:
            await asyncio.shield(asyncio.to_thread(self._give_back, memory))

    def _take(self, session_id: str, user_id: str | None) -> InfiniteMemory:
        if self._only is not None:
            return self._only
        memory = self.open().take(session_id, user_id)
        if memory.branch != MAIN:
            memory.checkout(MAIN)
        return memory

    def _give_back(self, memory: InfiniteMemory) -> None:
        if self._only is None:
            self.open().give_back(memory)

    def close(self) -> None:
        """Release the store, if it was opened here; a memory or pool that was given stays open."""
        with self._lock:
            if self._owns_pool and self._pool is not None:
                self._pool.close()
