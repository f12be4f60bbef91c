"""Stores: where conversations are kept."""

from pathlib import Path

from shared_core.store import Store
from shared_core.stores.sqlite import SQLiteStore

__all__ = ["SQLiteStore", "open_store"]


def open_store(store: str | Path | Store | None = None, *, durability: str = "full") -> Store:
    """Return the store that `store` names.

    Args:
        store: a path or a `sqlite:///path` (a leading `~` is your home), a `Store` (returned as it is), or None for a
            store in memory.
        durability: see `SQLiteStore`; a `Store` that is given has its own.

    Raises:
        StoreError: the database cannot be opened.
        ValueError: the address is of a kind that this version does not know, or `durability` is.
    """
    if isinstance(store, Store):
        return store
    if isinstance(store, str):
        store = store.removeprefix("sqlite:///")
        scheme, separator, _ = store.partition("://")
        if separator:
            raise ValueError(
                f"store='{scheme}://…': this version keeps conversations in SQLite only; give a path, sqlite:///path, "
                "or a Store"
            )
    return SQLiteStore(":memory:" if store is None else Path(store).expanduser(), durability=durability)
