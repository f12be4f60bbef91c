"""Whose memory it is: one conversation that was given, or any of a store's."""

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

from langchain_infinite_memory.settings import engine_settings
from shared_core.memory import InfiniteMemory
from shared_core.pool import SessionPool
from shared_core.records import MAIN
from shared_core.store import Store

__all__ = ["MemoryLike", "Sessions", "Whose"]

MemoryLike = InfiniteMemory | SessionPool | Store | str | Path | None

Whose = tuple[str, str | None]
"""Session and user."""


class Sessions:
    """Hands out memories, each to one caller at a time.

    Args:
        memory: an `InfiniteMemory`, which serves its own session only and is handed out to all callers; a
            `SessionPool`; or a store as for `InfiniteMemory`, opened at first use.
        size: as for `SessionPool`, for a store.
        settings: what `engine_settings` takes, for a store.

    Raises:
        TypeError: an argument is unknown, or `memory` has its settings already.
    """

    def __init__(self, memory: MemoryLike = None, *, size: int = 64, **settings: Any) -> None:
        self._one = memory if isinstance(memory, InfiniteMemory) else None
        self._pool = memory if isinstance(memory, SessionPool) else None
        self._owns_pool = self._one is None and self._pool is None
        if settings and not self._owns_pool:
            names = ", ".join(sorted(settings))
            raise TypeError(f"{names}: the memory given has its own settings; pass them where it is made")
        if isinstance(memory, InfiniteMemory | SessionPool):
            memory = None
        elif memory is not None and not isinstance(memory, str | Path | Store):
            raise TypeError(f"memory must be a path, a Store, a SessionPool or an InfiniteMemory, not {memory!r}")
        self._store: str | Path | Store | None = memory
        self._size = size
        self._settings = engine_settings(**settings)
        self._lock = threading.Lock()

    @property
    def only(self) -> InfiniteMemory | None:
        """The one memory there is; None: one for every session."""
        return self._one

    def check(self, session_id: str | None, user_id: str | None) -> None:
        """Raise ValueError if this is another session than the only one there is."""
        if self._one is not None and (session_id, user_id) != (self._one.session_id, self._one.user_id):
            raise ValueError(
                f"session_id={session_id!r}, user_id={user_id!r}: the memory given is that of session "
                f"{self._one.session_id!r} of user {self._one.user_id!r}; pass a SessionPool to serve several"
            )

    def whose(self, entries: Mapping[str, Any], session_keys: Sequence[str], user_key: str | None) -> Whose:
        """Return session and user as the configuration of a run names them, else those of the only memory there is.

        Args:
            entries: `config["configurable"]`.
            session_keys: the first of these that is there names the session.
            user_key: names the user; None: there are no users.

        Raises:
            ValueError: one is not there, or names another than the only one there is.
        """
        only = self._one
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
        """Open the store, if that is not done yet.

        Raises:
            ValueError, StoreError: as for `SessionPool`.
        """
        with self._lock:
            if self._pool is None:
                self._pool = SessionPool(self._store, size=self._size, **self._settings)
            return self._pool

    @contextmanager
    def use(self, session_id: str, user_id: str | None = None) -> Iterator[InfiniteMemory]:
        """Give a session's memory: one that was given as it stands, one of a store on the branch `main`."""
        memory = self._take(session_id, user_id)
        try:
            yield memory
        finally:
            self._give_back(memory)

    @asynccontextmanager
    async def ause(self, session_id: str, user_id: str | None = None) -> AsyncIterator[InfiniteMemory]:
        """Do the same without blocking the event loop."""
        memory = await asyncio.to_thread(self._take, session_id, user_id)
        try:
            yield memory
        finally:
            await asyncio.shield(asyncio.to_thread(self._give_back, memory))

    def _take(self, session_id: str, user_id: str | None) -> InfiniteMemory:
        if self._one is not None:
            return self._one
        memory = self.open().take(session_id, user_id)
        if memory.branch != MAIN:
            memory.checkout(MAIN)
        return memory

    def _give_back(self, memory: InfiniteMemory) -> None:
        if self._one is None:
            self.open().give_back(memory)

    def close(self) -> None:
        """Release the store, if it was opened here; what was given stays open."""
        with self._lock:
            if self._owns_pool and self._pool is not None:
                self._pool.close()
