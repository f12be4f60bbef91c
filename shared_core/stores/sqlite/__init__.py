"""The default store: one SQLite file, or a database in memory."""

from shared_core.stores.sqlite.sqlite_store import SQLiteStore

__all__ = ["SQLiteStore"]
