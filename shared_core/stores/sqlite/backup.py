"""A copy of a database that is in use: whole, of one moment, and made while others read and write."""

import os
import sqlite3
import tempfile
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path

from shared_core.errors import StoreError

Progress = Callable[[int, int], None]
"""Called with how many pages are copied and how many there are."""

STEP = 1_000
"""Pages copied between two calls of `progress`."""


def back_up(source: sqlite3.Connection, path: str | os.PathLike[str], progress: Progress | None) -> None:
    """Copy a database to a new file, which appears when it is complete, readable by its owner only.

    It holds what the source held when the copy began. In WAL mode, others may write meanwhile.

    Raises:
        StoreError: the file exists already, or cannot be written.
    """
    target = Path(path)
    if target.is_dir():
        raise StoreError(f"{os.fspath(path)!r} is a folder; give the path of a file in it")
    if target.exists():
        raise StoreError(f"{os.fspath(path)!r} exists already, and a backup replaces nothing; choose another name")
    try:
        handle, part = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name[:50]}.", suffix=".part")
        os.close(handle)
    except (OSError, ValueError) as error:
        raise StoreError(f"{os.fspath(path)!r} cannot be written: {error}; check its folder") from error
    try:
        _copy(source, part, progress)
        os.link(part, target)  # unlike a rename, it replaces nothing
    except FileExistsError as error:
        raise StoreError(f"{os.fspath(path)!r} appeared meanwhile; choose another name") from error
    except (OSError, sqlite3.Error) as error:
        raise StoreError(f"{os.fspath(path)!r} cannot be written: {error}; check the disk space") from error
    finally:
        for end in ("", "-journal", "-wal", "-shm"):
            with suppress(FileNotFoundError):
                os.unlink(f"{part}{end}")


def _copy(source: sqlite3.Connection, part: str, progress: Progress | None) -> None:
    report = None if progress is None else lambda _, left, total: progress(total - left, total)
    joined = source.in_transaction
    if not joined:
        source.execute("BEGIN")  # every page is then of the same moment, even if others write
    try:
        source.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchone()
        with closing(sqlite3.connect(part, isolation_level=None)) as copy:
            source.backup(copy, pages=STEP, progress=report)
            copy.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    finally:
        if not joined:
            source.execute("ROLLBACK")
