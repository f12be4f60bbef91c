"""A look into a file, without writing a byte: is it a database of ours, or may it become one?"""

import sqlite3
from contextlib import closing
from pathlib import Path

from shared_core.errors import StoreError
from shared_core.stores.sqlite.schema import MIGRATIONS, refuse_newer, version_of

__all__ = ["APPLICATION_ID", "is_database", "probe", "refuse_foreign"]

APPLICATION_ID = 0x696D656D
"""The bytes "imem", at offset 68 of each of our files, which tell whose file it is."""

_SHORTEST = 512

_BESIDE = ("-wal", "-shm", "-journal")
"""The endings of the files that SQLite keeps beside a database."""


def probe(path: Path) -> None:
    """Return if `path` does not exist, is empty, or is a database that this package can read.

    Raises:
        StoreError: it is something else. Nothing has been written.
    """
    label = f"{str(path)!r}"
    try:
        if not path.exists():
            return
        if not path.is_file():
            raise StoreError(f"{label} is not a file; give the path of a database file")
        size = path.stat().st_size
        if 0 < size < _SHORTEST:
            # SQLite takes a file of one byte for an empty one.
            raise sqlite3.DatabaseError("it is shorter than any database")
        if size:
            _look_into(path, label)
    except (OSError, ValueError) as error:
        raise StoreError(f"{label} cannot be opened: {error}; check the path and its permissions") from error
    except sqlite3.Error as error:
        raise StoreError(
            f"{label} is not a readable SQLite database ({error}); nothing was written to it: "
            "restore it from a backup, or give another path"
        ) from error


def refuse_foreign(connection: sqlite3.Connection, label: str) -> bool:
    """Return whether a database bears our mark; False if it is empty and has no mark.

    Raises:
        StoreError: it belongs to another program.
    """
    application = connection.execute("PRAGMA application_id").fetchone()[0]
    if application == APPLICATION_ID:
        return True
    if application or connection.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchone():
        raise StoreError(f"{label} is a database of another program; nothing was written to it: give another path")
    return False


def is_database(path: Path) -> bool:
    """Return whether a path is any SQLite database, or a file beside one, which must not be overwritten."""
    try:
        known = next((path.with_name(path.name.removesuffix(end)) for end in _BESIDE if path.name.endswith(end)), path)
        if not known.is_file() or known.stat().st_size < _SHORTEST:
            return False
        with closing(_connect(known, "mode=ro&immutable=1")) as connection:
            connection.execute("PRAGMA schema_version")
    except (OSError, ValueError, sqlite3.Error):
        return False
    return True


def _look_into(path: Path, label: str) -> None:
    # Reading through SQLite and not with open(): closing a file drops every POSIX lock that this process holds on it,
    # also those of other connections. "immutable" takes no locks and makes no -wal and -shm files. A checkpoint running
    # elsewhere may just be writing page 1 before the file has grown; writable_schema lifts the check of its length.
    with closing(_connect(path, "mode=ro&immutable=1")) as connection:
        connection.execute("PRAGMA writable_schema = ON")
        ours = refuse_foreign(connection, label)
        if ours and not _pending(path):
            refuse_newer(version_of(connection), len(MIGRATIONS), label)
    if ours and _pending(path):
        # The newest schema may still be in the WAL. A read-only connection does not write the WAL back on closing.
        with closing(_connect(path, "mode=ro")) as connection:
            refuse_newer(version_of(connection), len(MIGRATIONS), label)


def _pending(path: Path) -> bool:
    wal = Path(f"{path}-wal")
    return wal.exists() and wal.stat().st_size > 0


def _connect(path: Path, options: str) -> sqlite3.Connection:
    return sqlite3.connect(f"{path.absolute().as_uri()}?{options}", uri=True, isolation_level=None, timeout=30)
