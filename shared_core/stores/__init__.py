"""Stores: where conversations are kept."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shared_core.display import shown
from shared_core.store import Store
from shared_core.stores.addresses import read_address, split_arguments, without_password
from shared_core.stores.sqlite import SQLiteStore

if TYPE_CHECKING:
    from shared_core.stores.postgres import PostgresStore

__all__ = [
    "PostgresStore",
    "SQLiteStore",
    "database_path",
    "open_store",
    "read_address",
    "store_exists",
    "without_password",
]


def __getattr__(name: str) -> Any:
    """Import the store for PostgreSQL when it is used, because its driver is an extra."""
    if name != "PostgresStore":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from shared_core.stores.postgres import PostgresStore

    return PostgresStore


def open_store(store: str | Path | Store | None = None, *, wait: float | None = None) -> Store:
    """Return the store at an address.

    Args:
        store: a path or `sqlite:///path`, in which a leading `~` is your home; `postgresql://…` for a `PostgresStore`,
            whose other arguments may follow, as in `?schema=chats&pool_size=4`; a `Store`, which is returned as it is;
            or None for a store in memory.
        wait: of a file, as for `SQLiteStore`.

    Raises:
        MissingExtraError: the extra that PostgreSQL needs is not installed.
        StoreError: the database cannot be opened.
        TypeError: it is neither a text, a path nor a `Store`.
        ValueError: this version does not know this kind of address.
    """
    if isinstance(store, Store):
        return store
    if store is not None and not isinstance(store, str | os.PathLike):
        raise TypeError(f"{shown('store', store)}: expected the path of a database file, a Store, or None")
    place = ":memory:" if store is None else read_address(store)
    if isinstance(place, Path) or store is None:
        return SQLiteStore(place, wait=wait)
    from shared_core.stores.postgres import PostgresStore

    address, arguments = split_arguments(place)
    return PostgresStore(address, **arguments)


def database_path(store: str | Path) -> Path:
    """Return the file at an address that `open_store` takes.

    Raises:
        ValueError: the address is empty, of a server, or of a kind that this version does not know.
    """
    place = read_address(store)
    if isinstance(place, str):
        raise ValueError(f"store={without_password(place)!r}: expected the path of a database file, not a server")
    return place


def store_exists(store: str | Path) -> bool:
    """Return whether there is a database at an address, so that asking creates none; True for a server.

    Raises:
        ValueError: as for `read_address`.
    """
    place = read_address(store)
    return isinstance(place, str) or place.exists()
