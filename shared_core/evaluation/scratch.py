"""A copy of a store to measure with, so that the store itself stays as it is."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from shared_core.sharing.files import export_sessions, import_sessions
from shared_core.store import Store
from shared_core.stores import SQLiteStore, database_path, read_address
from shared_core.stores.sqlite.unopened_copy import copy_database

__all__ = ["scratch"]


@contextmanager
def scratch(store: str | Path | Store) -> Iterator[Store]:
    """Provide a copy of a store, in the folder for temporary files. It is deleted when the block ends.

    Args:
        store: the path of an SQLite database, whose file is only read; or the address of a server, or a `Store`, whose
            sessions are exported.

    Raises:
        StoreError: the store cannot be read, or the copy cannot be written.
    """
    with TemporaryDirectory(prefix="infinite-memory-", ignore_cleanup_errors=True) as folder:
        path = Path(folder) / "copy.db"
        if isinstance(store, Store) or isinstance(read_address(store), str):
            exported = Path(folder) / "sessions.jsonl"
            if export_sessions(store, exported, vectors=True):
                import_sessions(path, exported)
            exported.unlink()
        else:
            copy_database(database_path(store), path)
        copy = SQLiteStore(path, durability="process")
        try:
            yield copy
        finally:
            copy.close()
