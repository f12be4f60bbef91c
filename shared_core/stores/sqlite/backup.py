"""A copy of a database that is in use: whole, of one moment, and made while others read and write; and the way back."""

import os
import sqlite3
import tempfile
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path

from shared_core.errors import StoreError, StoreUnavailableError
from shared_core.stores.sqlite.connection import Database
from shared_core.stores.sqlite.database_file import connect, is_database, probe, renew

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
        raise StoreError(f"{os.fspath(path)!r} exists already, and a backup never replaces a file; choose another name")
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
            renew(copy)
            copy.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    finally:
        if not joined:
            source.execute("ROLLBACK")


def restore(source: Path, path: Path, progress: Progress | None = None) -> None:
    """Put what a backup holds in the place of a database, which programs may have open.

    They notice it when they write next: nothing is written, and they have to open it again.

    Raises:
        StoreError: the backup is none, the database is not ours, or one of them cannot be read or written.
        StoreUnavailableError: it is restored, but another program still reads what was there before.
    """
    if source.is_file() and not is_database(source):
        raise StoreError(f"{str(source)!r} is no backup, and nothing was restored; an export is brought in with import")
    probe(path)
    report = None if progress is None else lambda _, left, total: progress(total - left, total)
    try:
        with tempfile.TemporaryDirectory(dir=path.absolute().parent, prefix=".restored-") as folder:
            with closing(Database(source, synchronous="FULL", to_check=True)) as opened, opened.reader() as reader:
                back_up(reader, Path(folder, "part"), None)
            os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
            with closing(connect(Path(folder, "part"), "mode=ro")) as copy, closing(connect(path, "mode=rw")) as target:
                copy.backup(target, pages=STEP, progress=report)
                busy = target.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]
    except (OSError, sqlite3.Error) as error:
        raise StoreError(f"{str(path)!r} cannot be restored: {error}; check the disk space") from error
    if busy:
        raise StoreUnavailableError(f"{str(path)!r} is being read by another program: stop it, and restore once more")
