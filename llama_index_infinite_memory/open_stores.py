"""Open stores: what conversations of this process share, so that a file is opened once however many use it."""

import os
import weakref
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path

from llama_index_infinite_memory.settings import Settings
from shared_core.memory import InfiniteMemory
from shared_core.pool import SessionPool
from shared_core.runtime.forks import Depth, fork_safe_lock
from shared_core.store import Store
from shared_core.stores import open_store, read_address

StoreLike = SessionPool | Store | str | Path | None

_open: "weakref.WeakValueDictionary[tuple[int, int], OpenStore]" = weakref.WeakValueDictionary()
"""Device and inode of a file, to the store that is open on it."""

POOLS = 8
"""The number of pools over one that was given, those used last, that stay open: one for each of so many settings."""

_pools: "weakref.WeakKeyDictionary[SessionPool, OrderedDict[object, tuple[Settings, SessionPool]]]" = (
    weakref.WeakKeyDictionary()
)
"""A pool that was given, to the pools over its store that have the settings of buffers."""

_lock = fork_safe_lock(Depth.OPENING)


class OpenStore:
    """A store in use. One that was opened here is closed when the last conversation lets go of this object.

    Attributes:
        store: the store.
        path: of its file, absolute. None: it has no file, or was opened by the caller.
        pool: the caller's pool that it belongs to; None: there is none.
        in_memory: whether its messages are lost when it is closed.
        rebuilt: whether its messages were read from data, because the store that held them is gone.
    """

    def __init__(self, store: Store, *, path: str | None = None, pool: SessionPool | None = None, ours: bool) -> None:
        self.store = store
        self.path = path
        self.pool = pool
        self.in_memory = ours and path is None
        self.rebuilt = False
        if ours:
            weakref.finalize(self, store.close)

    def memory(
        self, session_id: str, user_id: str | None, settings: Settings
    ) -> tuple[InfiniteMemory, Callable[[], None]]:
        """Return a memory of a session, and what ends its use: a pool keeps it for the next conversation."""
        if self.pool is None:
            memory = InfiniteMemory(self.store, session_id=session_id, user_id=user_id, **settings.arguments())
            return memory, memory.close
        pool = _pool_with(self.pool, settings)
        memory = pool.take(session_id, user_id)
        return memory, lambda: pool.give_back(memory)


def shared_store(store: "StoreLike | OpenStore") -> OpenStore:
    """Return a store for a conversation; for a file that is open in this process, the store that is open.

    Raises:
        StoreError, TypeError, ValueError: as for `open_store`.
    """
    if isinstance(store, OpenStore):
        return store
    if isinstance(store, SessionPool):
        return OpenStore(store.store, pool=store, ours=False)
    if isinstance(store, Store):
        return OpenStore(store, ours=False)
    path = _file(store)
    if path is None:
        return OpenStore(open_store(store), ours=True)
    with _lock:
        found = _open.get(_identity(path)) if os.path.exists(path) else None
        if found is None:
            found = OpenStore(open_store(path), path=path, ours=True)
            _open[_identity(path)] = found
        return found


def _identity(path: str) -> tuple[int, int]:
    status = os.stat(path)
    return status.st_dev, status.st_ino


def _file(store: str | Path | None) -> str | None:
    """Return the absolute path of the file that an address names; None if it names none."""
    if store is None or not isinstance(store, str | os.PathLike) or not str(store):
        return None
    place = read_address(store)
    return None if isinstance(place, str) or str(place) == ":memory:" else str(place.absolute())


def _pool_with(pool: SessionPool, settings: Settings) -> SessionPool:
    """Return a pool over the store of another one, with these settings; the same one for the same settings."""
    with _lock:
        known = _pools.setdefault(pool, OrderedDict())
        if settings.key not in known:  # the settings are kept, because the key holds ids of their objects
            known[settings.key] = settings, pool.sharing(**settings.arguments())
        known.move_to_end(settings.key)
        found = known[settings.key][1]
        unused = known.popitem(last=False)[1][1] if len(known) > POOLS else None
    if unused is not None:
        unused.close()
    return found
