"""One SQLite connection that threads share and no fork inherits: its schema is brought up to date, transactions."""

import os
import sqlite3
import threading
import time
import uuid
import weakref
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

from shared_core.errors import StoreError, StoreUnavailableError, warn
from shared_core.runtime.forks import at_fork
from shared_core.stores.sqlite.database_file import (
    APPLICATION_ID,
    connect_to_read,
    generation_of,
    generation_on_disk,
    probe,
    refuse_foreign,
    refuse_newer,
    renew,
    version_of,
)
from shared_core.stores.sqlite.sqlite_failures import SQLITE_ERRORS, advice, is_busy, read_leniently
from shared_core.stores.sqlite.sqlite_schema import MIGRATIONS
from shared_core.stores.sqlite.wal import check_log


@contextmanager
def transaction(connection: sqlite3.Connection, *, write: bool) -> Iterator[None]:
    """Enter a transaction; it is committed when the block ends, and rolled back if an exception leaves it.

    Args:
        connection: made with `isolation_level=None`.
        write: take the write lock at once, so that nothing read in the block can change before it is written.
    """
    connection.execute("BEGIN IMMEDIATE" if write else "BEGIN")
    try:
        yield
        connection.execute("COMMIT")
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")


@contextmanager
def savepoint(connection: sqlite3.Connection) -> Iterator[None]:
    """Enter a part of a transaction, which is undone alone if an exception leaves the block."""
    connection.execute("SAVEPOINT part")
    try:
        yield
    except BaseException:
        if connection.in_transaction:  # SQLite may have rolled back all of it, as when the disk is full
            connection.execute("ROLLBACK TO part")
            connection.execute("RELEASE part")
        raise
    connection.execute("RELEASE part")


def migrate(connection: sqlite3.Connection, label: str) -> None:
    """Bring the schema to the newest version; each step and its record are one transaction.

    Args:
        connection: in autocommit mode (`isolation_level=None`).
        label: names the database in errors.

    Raises:
        StoreError: the database is newer than this package. Nothing is written.
    """
    while (version := version_of(connection)) != len(MIGRATIONS):
        refuse_newer(version, len(MIGRATIONS), label)
        with transaction(connection, write=True):
            # Another process may have done this step while this one waited for the lock.
            if version_of(connection) == version:
                step = MIGRATIONS[version]
                for statement in step.statements:
                    connection.execute(statement)
                connection.execute("INSERT INTO migrations (version, name) VALUES (?, ?)", (version + 1, step.name))


_RESERVE = 2**20
"""The bytes of a file beside the database that only erasing may use, so that a full disk does not prevent it."""

_BUSY_SECONDS = 30.0
_CHECKPOINT_SECONDS = 0.5
# Held while a file is opened and while this process forks, so that neither happens in the middle of the other.
_process = threading.RLock()
_open: "weakref.WeakSet[Database]" = weakref.WeakSet()
_suspended: "list[Database]" = []
_hooked = False


class Database:
    """An SQLite database of ours. It is created if it does not exist; any other file is refused and left untouched.

    `with database as connection` lends the connection, as a lock does.

    Args:
        path: the file, or `":memory:"`.
        synchronous: the pragma of that name, `"FULL"` or `"NORMAL"`.
        to_check: read a file that may be damaged, as it is at this moment, and write nothing.
        wait: how many seconds to wait while another connection holds it; None: 30.

    Raises:
        StoreError: the file cannot be used; the message says why and what to do.
        StoreUnavailableError: here and in every method, another connection held it for longer.
    """

    def __init__(
        self, path: str | Path, *, synchronous: str, to_check: bool = False, wait: float | None = None
    ) -> None:  # fmt: skip
        self._memory = str(path) == ":memory:"
        self._path = Path(path) if self._memory else Path(path).absolute()
        self._label = "the in-memory database" if self._memory else f"{str(path)!r}"
        self._synchronous = synchronous
        self._wait = _BUSY_SECONDS if wait is None else wait
        self._lock = threading.RLock()
        self._connection: sqlite3.Connection | None = None
        self._file: tuple[int, int] | None = None
        self._generation, self._written_at = 0, 0
        self._pid = os.getpid()
        self._key = uuid.uuid4()
        self._closed = False
        self._joined = False
        self._to_check = to_check
        with _process:
            if not self._memory and not to_check:
                probe(self._path)
                self._make_file()
                here = _identity(self._path)
                if not any(one._connection and (one._path == self._path or one._file == here) for one in _open):
                    check_log(self._path, self._label)
            with self:  # which opens it
                pass
            self._keep_reserve()
            _open.add(self)
            _hook_forks()

    def __enter__(self) -> sqlite3.Connection:
        """Return the connection, which no other thread uses until the block ends; SQLite's errors leave it as ours.

        Raises:
            StoreError: it is closed, or cannot be opened.
        """
        self._lock.acquire()
        try:
            return self._ready()
        except BaseException as error:
            self.__exit__(type(error), error)
            raise

    def __exit__(self, _: type[BaseException] | None, error: BaseException | None, *traceback: object) -> None:
        self._lock.release()
        if isinstance(error, SQLITE_ERRORS):
            kind = StoreUnavailableError if is_busy(error) else StoreError
            raise kind(f"{self._label} cannot be read or written: {error}; {advice(error)}") from error

    def query(self, sql: str, values: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
        """Return the rows of one SELECT."""
        with self as connection:
            return connection.execute(sql, values).fetchall()

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """Enter a transaction that holds the write lock; it is rolled back if an exception leaves the block.

        Within `joining`, it is a part of that transaction.
        """
        with self as connection, savepoint(connection) if self._joined else transaction(connection, write=True):
            yield connection
            self._refuse_replaced(self._ready())

    @contextmanager
    def joining(self) -> Iterator[None]:
        """Enter a transaction that all reads and writes of this thread join until it ends."""
        with self.writing():
            joined, self._joined = self._joined, True
            try:
                yield
            finally:
                self._joined = joined

    def checkpoint(self) -> str | None:
        """Move the write-ahead log into the file and empty it; return None, or why that cannot be done now."""
        if self._memory:
            return None
        with self as connection:
            self._refuse_replaced(connection)
            reason = _scrub(connection, self._label, _CHECKPOINT_SECONDS)
            self._keep_reserve()
            return reason

    def spend_reserve(self) -> None:
        """Let a transaction that erases have the reserve; the next `checkpoint` makes another."""
        if not self._memory:
            Path(f"{self._path}-reserve").unlink(missing_ok=True)

    def _keep_reserve(self) -> None:
        reserve = Path(f"{self._path}-reserve")
        with suppress(OSError):  # the disk is full, or the folder cannot be written
            if not self._memory and not self._to_check and not reserve.exists():
                with open(os.open(reserve, os.O_CREAT | os.O_WRONLY, 0o600), "wb") as file:
                    file.writelines([bytes(_RESERVE // 64)] * 64)

    def changes(self) -> tuple[int, int, int]:
        """Return numbers that differ after any change to the database, whoever made it."""
        with self as connection:
            (version,) = connection.execute("PRAGMA data_version").fetchone()
            return int(version), connection.total_changes, id(connection)

    def has_written(self, since: tuple[int, int, int]) -> bool:
        """Return whether this connection has changed the database since `changes` returned these numbers."""
        connection = self._connection
        return connection is None or (connection.total_changes, id(connection)) != since[1:]

    @contextmanager
    def reader(self) -> Iterator[sqlite3.Connection]:
        """Enter a block with a connection of its own that reads the file; in memory, there is only the one.

        While the block runs, other threads can use the database, unless it is in memory.
        """
        if self._memory:
            with self as connection:
                yield connection
            return
        with self:
            own = connect_to_read(self._path)
        with closing(own):
            yield own

    @property
    def path(self) -> Path | None:
        """The file; None in memory."""
        return None if self._memory else self._path

    @property
    def identity(self) -> str:
        """A text that tells this database from all others."""
        if self._memory:
            return f"memory {self._key}"
        device, number = _identity(self._path) or (0, 0)
        return f"file {device} {number} {self._generation}"

    def size(self) -> int:
        """Return the bytes that the database takes, its write-ahead log included."""
        if self._memory:
            return int(self.query("SELECT page_count * page_size FROM pragma_page_count, pragma_page_size")[0][0])
        files = (self._path, Path(f"{self._path}-wal"))
        return sum(file.stat().st_size for file in files if file.exists())

    def close(self) -> None:
        """Close the connection; closing twice is fine."""
        with self._lock:
            self._closed = True
            if self._connection is not None and not self._inherited:
                self._let_go(self._connection)
                self._connection = None

    def suspend(self) -> None:
        """Before a fork: wait for the running transaction, hold the lock, and let go of the file.

        SQLite notes once per process which locks it holds on a file. A forked child inherits the note but not the
        locks, and a connection opened there would believe that it holds them: so none may exist while forking.
        """
        self._lock.acquire()
        if self._connection is not None and not self._memory:
            self._let_go(self._connection)
            self._connection = None

    def resume(self) -> None:
        """After a fork, in parent and child: release the lock. The file is opened again when it is next used."""
        self._lock.release()

    def _ready(self) -> sqlite3.Connection:
        if self._closed:
            raise StoreError(f"{self._label} is closed; open a new store")
        if self._inherited:
            raise StoreError("an in-memory database does not reach into a forked process; give a path instead")
        if self._connection is None and self._joined:
            raise StoreError("this process forked in the middle of a transaction, which is undone; begin it again")
        if self._connection is None:
            self._connection = self._connect()
        return self._connection

    @property
    def _inherited(self) -> bool:
        """Whether the connection was made before this process was forked off, as only one in memory can be."""
        return self._memory and self._pid != os.getpid()

    def _refuse_replaced(self, connection: sqlite3.Connection) -> None:
        """Raise StoreError if the file at the path is not what was opened.

        Nobody would find what is written, or it would destroy what is there. This is called before a transaction is
        committed, which is then undone.
        """
        same = self._memory or (self._file == _identity(self._path) and not self._is_copied_over())
        if same and generation_of(connection) == self._generation:
            return
        raise StoreError(
            f"{self._label} was moved, deleted or replaced while it was open, so nothing was written: "
            "put the file back, or open the memory again"
        )

    def _is_copied_over(self) -> bool:
        """Return whether the file has the bytes of another one now. It is looked into if it was written to."""
        written_at = os.stat(self._path).st_mtime_ns
        if written_at != self._written_at:
            if generation_on_disk(self._path) != self._generation:
                return True
            self._written_at = written_at
        return False

    def _let_go(self, connection: sqlite3.Connection) -> None:
        """Close a connection. Of a file that was copied over, the log is emptied, or SQLite would write it there."""
        with suppress(OSError, sqlite3.Error):
            here = not self._memory and not self._to_check and self._file == _identity(self._path)
            if here and generation_on_disk(self._path) != self._generation:
                os.truncate(f"{self._path}-wal", 0)
        connection.close()

    def _make_file(self) -> None:
        """Create the file, readable by its owner only; SQLite would follow the umask."""
        try:
            os.close(os.open(self._path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
        except FileExistsError:
            return
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) and error.strerror else error
            folder = self._path.parent
            exists = os.path.isdir(folder)
            advice = "check the permissions of its folder" if exists else f"make the folder {str(folder)!r} first"
            raise StoreError(f"{self._label} cannot be created: {reason}; {advice}") from error

    def _connect(self) -> sqlite3.Connection:
        if self._to_check:
            return self._connect_to_check()
        address = ":memory:" if self._memory else f"{self._path.as_uri()}?mode=rw"
        connection = sqlite3.connect(
            address, uri=not self._memory, isolation_level=None, check_same_thread=False, timeout=self._wait
        )
        self._file = _identity(self._path)
        try:
            connection.execute("PRAGMA foreign_keys = ON")
            connection.execute("PRAGMA secure_delete = ON")
            connection.execute("PRAGMA synchronous = " + self._synchronous)
            _claim(connection, self._label)
            if not self._memory:
                _switch_to_wal(connection, self._label)
            migrate(connection, self._label)
            self._generation = generation_of(connection)
            if not self._memory:
                _resume_scrub(connection, self._label)
        except BaseException:
            connection.close()
            raise
        return connection

    def _connect_to_check(self) -> sqlite3.Connection:
        if not self._path.is_file():
            raise StoreError(f"there is no file {self._label}; give the path of a database file")
        connection = connect_to_read(self._path)
        try:
            read_leniently(connection)
            connection.execute("PRAGMA writable_schema = ON")  # what is wrong with one definition hides no other table
            refuse_foreign(connection, self._label)
            refuse_newer(version_of(connection), len(MIGRATIONS), self._label)
            self._generation = generation_of(connection)
            connection.execute("BEGIN")
            connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
        except BaseException:
            connection.close()
            raise
        return connection


def _identity(path: Path) -> tuple[int, int] | None:
    """Return what tells one file from another at the same path; None if there is none."""
    try:
        found = path.stat()
    except (OSError, ValueError):
        return None
    return found.st_dev, found.st_ino


def _claim(connection: sqlite3.Connection, label: str) -> None:
    """Set our mark in an empty database, before the switch to WAL, so that the mark is in the file at once."""
    if refuse_foreign(connection, label):
        return
    with transaction(connection, write=True):
        # Another process may have claimed it while this one waited for the lock.
        if not refuse_foreign(connection, label):
            connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            renew(connection)


def _switch_to_wal(connection: sqlite3.Connection, label: str) -> None:
    deadline = time.monotonic() + _BUSY_SECONDS
    while True:
        try:
            mode = connection.execute("PRAGMA journal_mode = WAL").fetchone()[0]
        except sqlite3.OperationalError as error:
            # SQLite does not wait here when two processes switch a new file at the same moment.
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                raise
            time.sleep(0.01)
        else:
            if mode != "wal":
                raise StoreError(f"{label} is on a file system that SQLite cannot share; put it on a local disk")
            return


def note_scrub_due(connection: sqlite3.Connection) -> None:
    """Note that erased bytes are still in the files, in the transaction that erases them.

    The note is the lowest byte of the header's user version: how often something was erased since all such bytes were
    removed.
    """
    number = int(connection.execute("PRAGMA user_version").fetchone()[0])
    connection.execute(f"PRAGMA user_version = {number - (number & 0xFF) + (number & 0xFF) % 0xFF + 1}")


def _scrub(connection: sqlite3.Connection, label: str, seconds: float) -> str | None:
    """Empty the write-ahead log and take back the note; return None, or why that cannot be done now."""
    due = connection.execute("PRAGMA user_version").fetchone()[0]
    usual = connection.execute("PRAGMA busy_timeout").fetchone()[0] / 1000
    try:
        _wait_at_most(connection, seconds)
        busy = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]
    finally:
        _wait_at_most(connection, usual)
    if busy:
        return f"{label} is being read or written by another connection; call scrub() again when it is done"
    if due & 0xFF:
        with transaction(connection, write=True):
            # Another process may have erased more meanwhile, whose bytes are in the log now.
            if connection.execute("PRAGMA user_version").fetchone()[0] == due:
                connection.execute(f"PRAGMA user_version = {due - (due & 0xFF)}")
    return None


def _resume_scrub(connection: sqlite3.Connection, label: str) -> None:
    """Remove the erased bytes that a killed process, or a reader, left in the files; warn if that is not possible."""
    if not connection.execute("PRAGMA user_version").fetchone()[0] & 0xFF:
        return
    try:
        reason = _scrub(connection, label, 0)
    except sqlite3.OperationalError as error:
        reason = f"{label}: {error}; call scrub()"
    if reason is not None:
        warn(f"messages were forgotten, and their bytes are still in the files: {reason}")


def _wait_at_most(connection: sqlite3.Connection, seconds: float) -> None:
    connection.execute(f"PRAGMA busy_timeout = {int(seconds * 1000)}")


def _hook_forks() -> None:
    global _hooked
    if not _hooked:
        at_fork(_before_fork, _after_fork)
    _hooked = True


def _before_fork() -> None:
    _process.acquire()
    for database in list(_open):
        database.suspend()
        _suspended.append(database)


def _after_fork() -> None:
    while _suspended:
        _suspended.pop().resume()
    _process.release()
