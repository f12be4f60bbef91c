"""Open stores: what conversations of this process share, so that a file is opened once however many use it."""

import os
import weakref
from pathlib import Path

from shared_core.errors import StoreError
from shared_core.runtime.forks import Depth, fork_safe_lock
from shared_core.store import Store
from shared_core.stores import open_store, read_address, store_exists

StoreLike = Store | str | Path | None

_open: "weakref.WeakValueDictionary[tuple[int, int], OpenStore]" = weakref.WeakValueDictionary()
"""Device and inode of a file, to the store that is open on it."""

_lock = fork_safe_lock(Depth.OPENING)


class OpenStore:
    """A store in use. One that was opened here is closed when the last conversation lets go of this object.

    Attributes:
        store: the store.
        path: of its file, absolute. None: it has no file, or was opened by the caller.
        in_memory: whether its messages are lost when it is closed.
    """

    def __init__(self, store: Store, *, path: str | None = None, ours: bool) -> None:
        self.store = store
        self.path = path
        self.in_memory = ours and path is None
        if ours:
            weakref.finalize(self, store.close)


def shared_store(store: "StoreLike | OpenStore") -> OpenStore:
    """Return a store for a conversation; for a file that is open in this process, the store that is open.

    Raises:
        StoreError, TypeError, ValueError: as for `open_store`.
    """
    if isinstance(store, OpenStore):
        return store
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


def reopened_store(store: StoreLike, *, may_be_new: bool = False) -> OpenStore:
    """Return the store that data names.

    Raises:
        StoreError: it is a file that is not there, and may not be created; or it cannot be opened.
    """
    if isinstance(store, str | Path) and not may_be_new and not store_exists(store):
        raise StoreError(
            f"{str(store)!r} is gone, which holds what is to be restored; if it was moved, pass its path: "
            "from_dict(data, store=...)"
        )
    return shared_store(store)


def _identity(path: str) -> tuple[int, int]:
    status = os.stat(path)
    return status.st_dev, status.st_ino


def _file(store: str | Path | None) -> str | None:
    """Return the absolute path of the file that an address names; None if it names none."""
    if store is None or not isinstance(store, str | os.PathLike) or not str(store):
        return None
    place = read_address(store)
    return None if isinstance(place, str) or str(place) == ":memory:" else str(place.absolute())
