"""The default store: one SQLite file, or a database in memory."""

import os
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from shared_core.arguments import one_of
from shared_core.records import Position
from shared_core.stores.sql_rows import Result, SqlStore
from shared_core.stores.sqlite.backup import Progress, back_up
from shared_core.stores.sqlite.connection import Database
from shared_core.stores.sqlite.faults import faults_of
from shared_core.stores.sqlite.sqlite_rows import SQLiteRows

_SYNCHRONOUS = {"full": "FULL", "process": "NORMAL"}


_UNSEEN = 1e-4
"""Seconds for which what another connection writes may go unseen by `watch`; to forget takes several times as long."""


class SQLiteStore(SqlStore):
    """Keeps sessions in one SQLite file that threads and processes may share.

    Args:
        path: the file; created, readable by its owner only, if it does not exist. `":memory:"`: gone when closed.
        durability: `"full"`: what is acknowledged survives power loss, at one disk flush a call. `"process"`: it
            survives a killed process; power loss may take the last calls, never half of one.
        wait: how many seconds a method waits while another process holds the file; None: 30.

    Raises:
        StoreError: the file is not ours, corrupt or newer than this package; it is left as it was.
        StoreUnavailableError: another process held the file for longer; every method raises it, too. Try again.
        ValueError: an argument is out of range.
    """

    def __init__(self, path: str | Path, *, durability: str = "full", wait: float | None = None) -> None:
        synchronous = _SYNCHRONOUS[one_of("durability", durability, tuple(_SYNCHRONOUS))]
        self._db = Database(path, synchronous=synchronous, wait=wait)

    @classmethod
    def to_check(cls, path: str | Path) -> "SQLiteStore":
        """Return a store that reads a file, which may be damaged, as it is at this moment, and writes nothing to it."""
        store = cls.__new__(cls)
        store._db = Database(path, synchronous="FULL", to_check=True)
        return store

    @property
    def path(self) -> Path | None:
        """The file; None in memory."""
        return self._db.path

    def check_absent(self, session: int, ids: Collection[str]) -> None:
        self._read(lambda rows: rows.check_absent(session, ids))

    def watch(self, session: int) -> Callable[[], bool]:
        seen, looked, has_forgotten = self._db.changes(), time.perf_counter(), super().watch(session)

        def look() -> bool:
            nonlocal seen, looked
            now = time.perf_counter()
            if now - looked < _UNSEEN and not self._db.has_written(seen):
                return False
            changes, looked = self._db.changes(), now
            if changes != seen and has_forgotten():
                return True
            seen = changes
            return False

        return look

    def transaction(self) -> AbstractContextManager[None]:
        return self._db.joining()

    def forget(
        self, session: int, positions: Sequence[Position], *, stale: Sequence[Position] = (), branches: bool = False
    ) -> None:
        """Erase messages; if the disk is full, there are still the bytes kept for this."""
        self._db.spend_reserve()
        super().forget(session, positions, stale=stale, branches=branches)

    def scrub(self) -> str | None:
        return self._db.checkpoint()

    @contextmanager
    def inspecting(self) -> Iterator[SQLiteRows]:
        with self._db.reader() as connection:
            yield SQLiteRows(connection)

    def faults(self) -> list[str]:
        return self._read(lambda rows: list(faults_of(rows.connection, self.path)))

    def identity(self) -> str:
        """Return the identity of the file, not of the path: two names of one file are one database."""
        return self._db.identity

    def backup(self, path: str | os.PathLike[str], progress: Progress | None = None) -> None:
        with self._db.reader() as connection:
            back_up(connection, path, progress)

    def close(self) -> None:
        self._db.close()

    def _read(self, ask: Callable[[SQLiteRows], Result]) -> Result:
        # Without a transaction, which SQLite begins and ends with the statement.
        with self._db as connection:
            return ask(SQLiteRows(connection))

    def _write(self, act: Callable[[SQLiteRows], Result]) -> Result:
        with self._db.writing() as connection:
            return act(SQLiteRows(connection))

    def size(self) -> int:
        return self._db.size()
