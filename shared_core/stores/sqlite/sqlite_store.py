"""The default store: one SQLite file, or a database in memory."""

import os
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

from shared_core.arguments import one_of
from shared_core.records import Position, Query, SessionInfo
from shared_core.stores.sqlite.backup import Progress, back_up
from shared_core.stores.sqlite.connection import Database
from shared_core.stores.sqlite.derived_rows import DerivedRows
from shared_core.stores.sqlite.message_rows import MessageRows
from shared_core.stores.sqlite.session_rows import overview
from shared_core.stores.sqlite.sqlite_inspector import SQLiteInspector, faults_of
from shared_core.stores.tree_store import IndexedStore, Result, asking

_SYNCHRONOUS = {"full": "FULL", "process": "NORMAL"}


_UNSEEN = 1e-4
"""Seconds for which what another connection writes may go unseen by `watch`; to forget takes several times as long."""


class SQLiteRows(MessageRows, DerivedRows):
    """All rows of a database."""

    def overview(self, user_ids: Collection[str | None], limit: int) -> list[SessionInfo]:
        with self.one_moment():
            return overview(self, user_ids, limit)


class SQLiteStore(IndexedStore):
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

    check_absent = asking(MessageRows.check_absent)

    def read(self, session: int, *queries: Query) -> Any:
        with self._db.one_moment():
            return super().read(session, *queries)

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
        """See `Store`. If the disk is full, there are still the bytes kept for this."""
        self._db.spend_reserve()
        super().forget(session, positions, stale=stale, branches=branches)

    def scrub(self) -> str | None:
        return self._db.checkpoint()

    @contextmanager
    def inspecting(self) -> Iterator[SQLiteInspector]:
        """Enter a block in which the rows may be counted, while others write."""
        with self._db.reader() as connection:
            yield SQLiteInspector(connection)

    def faults(self) -> list[str]:
        return self._read(lambda rows: list(faults_of(rows.connection, self.path)))

    def identity(self) -> str:
        """See `Store`. It is the file's, not the path's: two names of one file are one database."""
        return self._db.identity

    def backup(self, path: str | os.PathLike[str], progress: Progress | None = None) -> None:
        with self._db.reader() as connection:
            back_up(connection, path, progress)

    def close(self) -> None:
        self._db.close()

    def _read(self, ask: Callable[[SQLiteRows], Result]) -> Result:
        # Without a transaction, which SQLite begins and ends with the statement.
        connection = self._db.acquire()
        try:
            found = ask(SQLiteRows(connection))
        except BaseException as error:
            self._db.release(error)
            raise
        self._db.release(None)
        return found

    def _write(self, act: Callable[[SQLiteRows], Result]) -> Result:
        with self._db.writing() as connection:
            return act(SQLiteRows(connection))

    def _size(self) -> int:
        return self._db.size()
