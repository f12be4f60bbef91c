"""What a file is before it is opened: whether it is a database, whether it is ours, which version its schema has.

The user version in its header holds two numbers: above the lowest byte the generation, which each file and each copy of
it has of its own, and in that byte how often something was erased since the write-ahead log was emptied.
"""

import os
import secrets
import sqlite3
from contextlib import closing
from pathlib import Path

from shared_core.errors import StoreError
from shared_core.stores.sqlite.sqlite_schema import MIGRATIONS

APPLICATION_ID = 0x696D656D
"""The bytes "imem", at offset 68 of each of our files, which tell whose file it is."""

_SHORTEST = 512

_BESIDE = ("-wal", "-shm", "-journal", "-reserve")
"""The endings of the files that SQLite, and we, keep beside a database."""


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
            what = "a folder" if path.is_dir() else "not a file"
            raise StoreError(f"{label} is {what}; give the path of a database file")
        size = path.stat().st_size
        if 0 < size < _SHORTEST:
            # SQLite takes a file of one byte for an empty one.
            raise sqlite3.DatabaseError("it is shorter than any database")
        if size:
            _read_header(path, label)
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
    for _ in range(2):  # another process may set our mark, and then make tables, between the two reads
        application = connection.execute("PRAGMA application_id").fetchone()[0]
        if application == APPLICATION_ID:
            return True
        if not application and connection.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchone() is None:
            return False
    raise StoreError(f"{label} is a database of another program; nothing was written to it: give another path")


def generation_of(connection: sqlite3.Connection) -> int:
    """Return the number that tells a database from others that were at the same path."""
    return int(connection.execute("PRAGMA user_version").fetchone()[0]) >> 8


def generation_on_disk(path: Path) -> int:
    """Return the generation of a file without its write-ahead log, which may belong to another one."""
    with closing(_header_of(path)) as connection:
        return generation_of(connection)


def renew(connection: sqlite3.Connection) -> None:
    """Give a new database, or a copy, a generation of its own."""
    erased = int(connection.execute("PRAGMA user_version").fetchone()[0]) & 0xFF
    connection.execute(f"PRAGMA user_version = {secrets.randbits(23) << 8 | erased}")


def is_database(path: Path) -> bool:
    """Return whether a path is any SQLite database, or a file beside one, which must not be overwritten."""
    try:
        known = next((path.with_name(path.name.removesuffix(end)) for end in _BESIDE if path.name.endswith(end)), path)
        if not known.is_file() or known.stat().st_size < _SHORTEST:
            return False
        with closing(connect(known, "mode=ro&immutable=1")) as connection:
            connection.execute("PRAGMA schema_version")
    except (OSError, ValueError, sqlite3.Error):
        return False
    return True


def _read_header(path: Path, label: str) -> None:
    # Reading through SQLite and not with open(): closing a file drops every POSIX lock that this process holds on it,
    # also those of other connections.
    with closing(_header_of(path)) as connection:
        ours, generation = refuse_foreign(connection, label), generation_of(connection)
        if ours and not _pending(path):
            refuse_newer(version_of(connection), len(MIGRATIONS), label)
    if ours and _pending(path):
        # The newest schema may still be in the WAL. A read-only connection does not write the WAL back on closing.
        with closing(connect_to_read(path)) as connection:
            refuse_newer(version_of(connection), len(MIGRATIONS), label)
            if generation_of(connection) != generation:
                raise StoreError(
                    f"{label} was copied over another database, whose last changes are still in {f'{path}-wal'!r}; "
                    "delete that file if you do not need them (`infinite-memory restore` leaves nothing behind)"
                )


def _header_of(path: Path) -> sqlite3.Connection:
    # A checkpoint running elsewhere may just be writing page 1 before the file has grown; writable_schema lifts the
    # check of its length. "immutable" takes no locks and makes no -wal and -shm files.
    connection = connect(path, "mode=ro&immutable=1")
    connection.execute("PRAGMA writable_schema = ON")
    return connection


def _pending(path: Path) -> bool:
    wal = Path(f"{path}-wal")
    return wal.exists() and wal.stat().st_size > 0


def connect_to_read(path: Path) -> sqlite3.Connection:
    """Return a connection that reads a database, with its write-ahead log, and cannot write to it."""
    # SQLite makes files beside the database, which only a connection that could write removes again. Where none can be
    # made, nobody writes to it either.
    quiet = not _pending(path)
    fixed = quiet and not os.access(path.absolute().parent, os.W_OK)
    connection = connect(path, "mode=ro&immutable=1" if fixed else "mode=rw" if quiet else "mode=ro")
    connection.execute("PRAGMA query_only = ON")
    return connection


def connect(path: Path, options: str) -> sqlite3.Connection:
    """Return a connection to a file, with options of its URI."""
    return sqlite3.connect(f"{path.absolute().as_uri()}?{options}", uri=True, isolation_level=None, timeout=30)


def version_of(connection: sqlite3.Connection) -> int:
    """Return the version of the schema, 0 before the first migration; writes nothing."""
    if connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'migrations'").fetchone() is None:
        return 0
    row = connection.execute("SELECT coalesce(max(version), 0) FROM migrations").fetchone()
    return int(row[0])


def refuse_newer(version: int, known: int, label: str) -> None:
    """Raise StoreError if a database has a newer schema than is known."""
    if version > known:
        raise StoreError(
            f"{label} was written by a newer version of this package (schema {version}, known here: {known}); "
            "upgrade infinite-memory to open it"
        )
