"""SessionPool: memories for many sessions over one store, each used by one caller at a time."""

import threading
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

from shared_core.arguments import whole_number
from shared_core.embedders import as_embedder
from shared_core.memory import InfiniteMemory
from shared_core.store import Store
from shared_core.stores import open_store

__all__ = ["SessionPool"]

Key = tuple[str | None, str]


class SessionPool:
    """Hands out memories, and keeps those not in use for the next caller, with what they have read and indexed.

    Two callers at work on one session get an object each, so that where one stands on the tree is its own affair.
    Safe to use from several threads.

    Args:
        store: as for `InfiniteMemory`; opened once, for all sessions.
        size: memories kept while nobody uses them; the one used least recently is let go first.
        durability: as for `InfiniteMemory`.
        settings: the other arguments of `InfiniteMemory`, the same for all sessions.

    Raises:
        ValueError, StoreError: as for `InfiniteMemory`.
        TypeError: `session_id` or `user_id` is among the settings; `use` takes them.
    """

    def __init__(
        self, store: str | Path | Store | None = None, *, size: int = 64,
        durability: Literal["full", "process"] = "full", **settings: Any,
    ) -> None:  # fmt: skip
        for name in {"session_id", "user_id"} & settings.keys():
            raise TypeError(f"{name}: a pool serves all sessions; pass it to use()")
        self._size = whole_number("size", size, least=0)
        if settings.get("embedder") is not None:
            settings["embedder"] = as_embedder(settings["embedder"])  # one model for all
        self._settings = settings
        self._lock = threading.Lock()
        self._idle: OrderedDict[Key, list[InfiniteMemory]] = OrderedDict()
        self._closed = False
        self._owns_store = not isinstance(store, Store)
        self.store = open_store(store, durability=durability)
        try:
            self._new(("default", "default"))  # a wrong argument is said now, not with the first question
        except BaseException:
            self.close()
            raise

    @property
    def settings(self) -> dict[str, Any]:
        """The arguments that all memories are made with."""
        return dict(self._settings)

    @contextmanager
    def use(self, session_id: str, user_id: str | None = None) -> Iterator[InfiniteMemory]:
        """Give a memory of a session that nobody else uses meanwhile; it may stand on any branch."""
        memory = self.take(session_id, user_id)
        try:
            yield memory
        finally:
            self.give_back(memory)

    def take(self, session_id: str, user_id: str | None = None) -> InfiniteMemory:
        """Return what `use` gives; the caller gives it back."""
        key = (user_id, session_id)
        with self._lock:
            idle = self._idle.pop(key, [])
            memory = idle.pop() if idle else None
            if idle:
                self._idle[key] = idle
        return memory or self._new(key)

    def give_back(self, memory: InfiniteMemory) -> None:
        """Keep a memory for the next caller."""
        memory.close_turn()
        key = (memory.user_id, memory.session_id)
        spare: list[InfiniteMemory] = []
        with self._lock:
            if self._closed:
                return
            self._idle.setdefault(key, []).append(memory)
            self._idle.move_to_end(key)
            while sum(map(len, self._idle.values())) > self._size:
                spare.append(self._drop())
        for one in spare:
            one.close()

    def _drop(self) -> InfiniteMemory:
        key, idle = next(iter(self._idle.items()))
        memory = idle.pop(0)
        if not idle:
            del self._idle[key]
        return memory

    def _new(self, key: Key) -> InfiniteMemory:
        user_id, session_id = key
        return InfiniteMemory(self.store, session_id=session_id, user_id=user_id, **self._settings)

    def close(self) -> None:
        """Let all memories go and release the store; those in use can do no more."""
        with self._lock:
            self._closed = True
            spare = [memory for idle in self._idle.values() for memory in idle]
            self._idle.clear()
        for memory in spare:
            memory.close()
        if self._owns_store:
            self.store.close()

    def __enter__(self) -> "SessionPool":
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()
