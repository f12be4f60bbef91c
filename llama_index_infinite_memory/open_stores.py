"""Open stores: what conversations of this process share, so that a file is opened once however many use it."""

import os
import uuid
import weakref
from pathlib import Path

from shared_core.errors import StoreError
from shared_core.runtime.forks import Depth, fork_safe_lock
from shared_core.runtime.threads import companion
from shared_core.store import Store
from shared_core.stores import open_store, read_address, store_exists

StoreLike = Store | str | Path | None

MEMORY = Path(":memory:")

NAMED = "open:"
"""What the address of a store begins with that only this process can find."""

_open: "weakref.WeakValueDictionary[str, OpenStore]" = weakref.WeakValueDictionary()
"""Stores in use, by their addresses."""

_lock = fork_safe_lock(Depth.OPENING)


class OpenStore:
    """A store in use. One that was opened here is closed when the last conversation lets go of this object.

    Args:
        store: the store.
        place: where it was opened: a file, `MEMORY`, or a server's address. None: its caller opened it, and closes it.

    Attributes:
        address: the path of its file, or a name that only this process knows.
        in_memory: whether its messages are lost when it is closed.
    """

    def __init__(self, store: Store, place: Path | str | None = None) -> None:
        self.store = store
        self.in_memory = place == MEMORY
        is_file = isinstance(place, Path) and not self.in_memory
        self.address = os.path.realpath(place or "") if is_file else NAMED + uuid.uuid4().hex
        self._file = os.stat(self.address) if is_file else None
        _open[self.address] = self
        if place is not None:
            weakref.finalize(self, store.close)

    @property
    def is_there(self) -> bool:
        """Whether its file is still the one at its address."""
        try:
            return self._file is None or os.path.samestat(self._file, os.stat(self.address))
        except OSError:
            return False


def shared_store(store: "StoreLike | OpenStore") -> OpenStore:
    """Return a store for a conversation; for a file that is open in this process, the store that is open.

    Raises:
        StoreError, TypeError, ValueError: as for `open_store`.
    """
    if isinstance(store, OpenStore):
        return store
    if isinstance(store, Store):
        return companion(store, OpenStore, lambda: OpenStore(store))
    place = read_address(store) if isinstance(store, str | os.PathLike) else MEMORY
    with _lock:
        found = _open.get(os.path.realpath(place))
        return found if found is not None and found.is_there else OpenStore(open_store(store), place)


def reopened_store(store: StoreLike, *, may_be_new: bool = False) -> OpenStore:
    """Return the store that data names by its address.

    Raises:
        StoreError: it is a file that is not there, or is no longer open, and may not be created; or it cannot be
            opened.
    """
    if isinstance(store, str) and store.startswith(NAMED):
        found = _open.get(store)
        if found is None and not may_be_new:
            raise StoreError(
                "what is to be restored has no file, and its store is closed: pass from_dict(data, store=...)"
            )
        return found or shared_store(None)
    if isinstance(store, str | Path) and not may_be_new and not store_exists(store):
        raise StoreError(
            f"{str(store)!r} is gone, which holds what is to be restored; if it was moved, pass its path: "
            "from_dict(data, store=...)"
        )
    return shared_store(store)
