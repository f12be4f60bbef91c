"""A copy of a database that is made without writing to the database."""

import os
import sqlite3
from contextlib import closing
from pathlib import Path

from shared_core.errors import StoreError
from shared_core.stores.sqlite.database_file import probe, renew

__all__ = ["copy_database"]


def copy_database(path: Path, target: Path) -> None:
    """Copy a database of ours, as it is at one moment, to a file that does not exist yet.

    Raises:
        StoreError: there is no such database, it is not ours, or one of the two files cannot be used.
    """
    probe(path)
    if not path.exists():
        raise StoreError(f"no store at {str(path)!r}: give the path of a database")
    try:
        # Without a write-ahead log nobody has the file open, and "immutable" makes no files beside it.
        quiet, before = not _log_of(path).exists(), _state(path)
        _backup(path, target, "mode=ro&immutable=1" if quiet else "mode=ro")
        if quiet and (_log_of(path).exists() or _state(path) != before):
            _backup(path, target, "mode=ro")
    except (OSError, sqlite3.Error) as error:
        raise StoreError(
            f"{str(path)!r} cannot be copied: {error}; check the disk space and the permissions"
        ) from error


def _backup(path: Path, target: Path, options: str) -> None:
    source = sqlite3.connect(f"{path.absolute().as_uri()}?{options}", uri=True, isolation_level=None, timeout=30)
    with closing(source), closing(sqlite3.connect(target, isolation_level=None)) as copy:
        source.backup(copy)
        renew(copy)
        copy.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def _log_of(path: Path) -> Path:
    return Path(f"{path}-wal")


def _state(path: Path) -> tuple[int, int]:
    found = os.stat(path)
    return found.st_mtime_ns, found.st_size
