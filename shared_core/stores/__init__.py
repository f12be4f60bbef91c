"""Stores: where conversations are kept."""

import os
from pathlib import Path

from shared_core.field_errors import shown
from shared_core.store import Store
from shared_core.stores.sqlite import SQLiteStore

__all__ = ["SQLiteStore", "database_path", "open_store", "store_exists"]


def open_store(store: str | Path | Store | None = None, *, durability: str = "full") -> Store:
    """Return the store at an address.

    Args:
        store: a path or `sqlite:///path`, in which a leading `~` is your home; a `Store`, which is returned as it is;
            or None for a store in memory.
        durability: see `SQLiteStore`; a `Store` that is given keeps its own.

    Raises:
        StoreError: the database cannot be opened.
        TypeError: it is neither a text, a path nor a `Store`.
        ValueError: this version does not know this kind of address, or this `durability`.
    """
    if isinstance(store, Store):
        return store
    if store is not None and not isinstance(store, str | os.PathLike):
        raise TypeError(f"{shown('store', store)}: expected the path of a database file, a Store, or None")
    return SQLiteStore(":memory:" if store is None else database_path(store), durability=durability)


def database_path(store: str | Path) -> Path:
    """Return the file at an address that `open_store` takes.

    Raises:
        ValueError: the address is empty, or of a kind that this version does not know.
    """
    if isinstance(store, str):
        if not store:
            raise ValueError("store='': expected the path of a database file; None keeps everything in memory")
        store = store.removeprefix("sqlite:///")
        scheme, separator, _ = store.partition("://")
        if separator:
            raise ValueError(
                f"store='{scheme}://…': this version keeps conversations in SQLite only; give a path, sqlite:///path, "
                "or a Store"
            )
    return Path(store).expanduser()


def store_exists(store: str | Path) -> bool:
    """Return whether there is a database at an address that `open_store` takes, so that asking creates none."""
    path = str(store).removeprefix("sqlite:///")
    return "://" in path or Path(path).expanduser().exists()
