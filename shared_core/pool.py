"""SessionPool: memories for the sessions of one store, each used by one caller at a time."""

import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shared_core.arguments import whole_number
from shared_core.errors import StoreError
from shared_core.events import as_hook
from shared_core.index.cache import IndexCache
from shared_core.memory import InfiniteMemory
from shared_core.plugins.embedders import as_embedder
from shared_core.records import ALL, SessionInfo
from shared_core.store import Store
from shared_core.stores import open_store

Key = tuple[str | None, str]


class SessionPool:
    """Lends memories, and keeps those not in use for the next caller, with everything they have read and indexed.

    Two callers that use one session at the same time get an object each, so each can check out a branch of its own. A
    pool may be used from several threads.

    Args:
        store: the store, as for `InfiniteMemory`. It is opened once, for all sessions.
        size: how many unused memories are kept. Those used least recently are closed first.
        wait: how many seconds to wait while another process holds the file; None: 30. For a path only.
        settings: the other arguments of `InfiniteMemory`, the same for all sessions.

    Raises:
        ValueError, StoreError: as for `InfiniteMemory`.
        TypeError: `session_id` or `user_id` is among the settings; `use` takes them.
    """

    def __init__(
        self, store: str | Path | Store | None = None, *, size: int = 64, wait: float | None = None, **settings: Any
    ) -> None:  # fmt: skip
        for name in {"session_id", "user_id"} & settings.keys():
            raise TypeError(f"{name}: a pool serves all sessions; pass it to use()")
        self._size = whole_number("size", size, least=0)
        if settings.get("embedder") not in (None, "words"):
            settings["embedder"] = as_embedder(settings["embedder"])  # one model for all
        if settings.get("on_event") is not None:
            settings["on_event"] = as_hook(settings["on_event"])  # what it raises is logged once for all
        # In memory, so that an invalid argument fails here, and neither creates a file nor leaves one open.
        InfiniteMemory(session_id="default", user_id="default", **settings).close()
        self._settings = settings
        self._lock = threading.Lock()
        self._idle: list[tuple[Key, InfiniteMemory]] = []  # the one used last comes last
        self._sharing: weakref.WeakSet[SessionPool] = weakref.WeakSet()
        self._closed = False
        self._owns_store = not isinstance(store, Store)
        self.store = open_store(store, wait=wait)

    @property
    def settings(self) -> dict[str, Any]:
        """The arguments that all memories of the pool share."""
        return dict(self._settings)

    @contextmanager
    def use(self, session_id: str, user_id: str | None = None) -> Iterator[InfiniteMemory]:
        """Lend a memory of a session for a block. Nobody else uses it then. It may have any branch checked out."""
        memory = self.take(session_id, user_id)
        try:
            yield memory
        finally:
            self.give_back(memory)

    def take(self, session_id: str, user_id: str | None = None) -> InfiniteMemory:
        """Return a memory, as `use` does. The caller must return it with `give_back`."""
        key = (user_id, session_id)
        while (memory := self._idle_one(key)) is not None:
            try:
                renamed = memory._is_renamed()
            except StoreError:  # the store is away, and the memory is as good as before
                self._keep(memory)
                raise
            if not renamed:
                return memory
            memory.close()
        return self._new(key)

    def _idle_one(self, key: Key) -> InfiniteMemory | None:
        """Return the memory of a session that was used last, which is then no longer idle."""
        with self._lock:
            newest = next((at for at in reversed(range(len(self._idle))) if self._idle[at][0] == key), None)
            return None if newest is None else self._idle.pop(newest)[1]

    def give_back(self, memory: InfiniteMemory) -> None:
        """Return a memory to the pool, for the next caller. One that holds many images is closed instead."""
        memory._rest()
        if memory._checkout.live.is_heavy:
            memory.close()
        else:
            self._keep(memory)

    def _keep(self, memory: InfiniteMemory) -> None:
        """Put a memory among those that nobody uses, and close those that are too many."""
        with self._lock:
            self._idle.append(((memory.user_id, memory.session_id), memory))
            spare = self._idle[: max(0, len(self._idle) - (0 if self._closed else self._size))]
            del self._idle[: len(spare)]
        for _, one in spare:
            one.close()

    def sessions(self, user_id: str | None = None, limit: int | None = None) -> list[SessionInfo]:
        """Return the sessions of a user that hold messages, as `InfiniteMemory.sessions` does. None: of no user."""
        return self.store.for_user(user_id).overview(
            user_id, limit=ALL if limit is None else whole_number("limit", limit, least=0)
        )

    def sharing(self, **settings: Any) -> "SessionPool":
        """Return a pool over the same store with other settings, which is closed with this one."""
        pool = SessionPool(self.store, **settings)
        with self._lock:
            self._sharing.add(pool)
        return pool

    def _new(self, key: Key) -> InfiniteMemory:
        user_id, session_id = key
        return InfiniteMemory(self.store, session_id=session_id, user_id=user_id, **self._settings)

    def close(self) -> None:
        """Close all unused memories and release the store. Memories that are still in use stop working."""
        with self._lock:
            self._closed = True
            sharing = [*self._sharing]
            spare, self._idle = self._idle, []
        for pool in sharing:
            pool.close()
        for _, memory in spare:
            memory.close()
        if self._owns_store:
            IndexCache.of(self.store).release()
            self.store.close()

    if not TYPE_CHECKING:

        def __getattr__(self, name):
            write = f"; write `with pool.use(session_id) as memory: memory.{name}(…)`"
            hint = write if hasattr(InfiniteMemory, name) else ""
            raise AttributeError(f"SessionPool has no attribute {name!r}{hint}")

    def __enter__(self) -> "SessionPool":
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()
