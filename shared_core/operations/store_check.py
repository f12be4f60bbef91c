"""What is wrong with a store of any kind, and what of it can be mended."""

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from shared_core.errors import StoreError
from shared_core.index.arrays import is_damaged
from shared_core.operations.session_copy import MARK
from shared_core.records import SessionKey
from shared_core.store import Store
from shared_core.stores import SQLiteStore, open_store, read_address
from shared_core.stores.damages import Damage, Found, Inspector, Mend
from shared_core.stores.row_values import WRONG
from shared_core.stores.sqlite.damage import read_leniently
from shared_core.stores.sqlite.database_file import connect_to_read
from shared_core.stores.sqlite.doctor import STRUCTURE, Findings, Progress, examine
from shared_core.stores.sqlite.inspection import SQLiteInspector, mend_file

if TYPE_CHECKING:
    from shared_core.stores.postgres import PostgresStore

_NAMES = "SELECT DISTINCT name FROM {s}.snapshots WHERE session = %(session)s"
_PARTS = "SELECT data FROM {s}.snapshots WHERE session = %(session)s AND name = %(name)s ORDER BY part"


@dataclass(frozen=True, slots=True)
class StoreCheck:
    """What a check found.

    Attributes:
        messages: how many messages can be read.
        sessions: how many sessions there are.
        damages: what is damaged, or was.
        mended: which of these are mended now.
        file: the file, of which the rest can be recovered; None for a server.
    """

    messages: int
    sessions: int
    damages: Sequence[Damage]
    mended: Sequence[Damage] = ()
    file: Path | None = None

    @property
    def left(self) -> list[Damage]:
        """What is damaged still."""
        return [damage for damage in self.damages if damage not in self.mended]

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON data."""
        return {
            "messages": self.messages,
            "sessions": self.sessions,
            "damages": [asdict(damage) for damage in self.damages],
            "mended": [asdict(damage) for damage in self.mended],
        }


def check_store(store: str | Path | Store, *, repair: bool = False, progress: Progress | None = None) -> StoreCheck:
    """Read everything in a store, and find what is damaged or does not fit together.

    Without `repair`, nothing is written, and a file is not even brought up to date. Messages, branches and tags that
    are damaged cannot be mended: restore a backup, or recover the rest of a file.

    Args:
        store: a path or an address; or a store on a file or a server.
        repair: remove what is damaged and was made from messages: vectors, search indexes, and summaries whose source
            is gone. They are made again when they are needed. Counts that are wrong are corrected. Indexes and
            triggers that are missing, and views of a file, are made anew.
        progress: called with the number of messages that were read, and of all.

    Raises:
        StoreError: it cannot be opened at all, or is not ours; or it is damaged so that nothing can be mended.
        ValueError: the store is in memory, or of another kind.
    """
    if isinstance(store, Store):
        place = store.path if isinstance(store, SQLiteStore) else None
        return _checked(
            _FileCheck(place, progress) if place is not None else _ServerCheck(_server(store), progress), repair
        )
    found = read_address(store)
    if isinstance(found, Path):
        return _checked(_FileCheck(found, progress), repair)
    with closing(open_store(store)) as opened:
        return _checked(_ServerCheck(_server(opened), progress), repair)


class _Check(Protocol):
    """Reads one store, and mends it."""

    def read(self) -> tuple[StoreCheck, list[Mend]]:
        """Return what is there, and how to mend what can be."""

    def mend(self, mends: list[Mend]) -> None:
        """Mend something."""


def _checked(check: _Check, repair: bool) -> StoreCheck:
    found, mends = check.read()
    if not repair or not mends:
        return found
    check.mend(mends)
    # What looked damaged may have been a consequence of what is mended now.
    left, _ = check.read()
    mended = tuple(damage for damage in found.damages if damage not in left.damages)
    return replace(left, damages=(*mended, *left.damages), mended=mended)


def _server(store: Store) -> "PostgresStore":
    from shared_core.stores.postgres import PostgresStore

    if not isinstance(store, PostgresStore):
        raise ValueError(f"this {type(store).__name__} cannot be checked: give a store on a file or a server")
    return store


class _FileCheck:
    """Checks a file, which is not opened as a store: it may be damaged, or old.

    Args:
        path: the file.
        progress: see `check_store`.
    """

    def __init__(self, path: Path, progress: Progress | None) -> None:
        self._path = path
        self._progress = progress
        self._broken = False

    def read(self) -> tuple[StoreCheck, list[Mend]]:
        """See `_Check`."""
        found = examine(self._path, self._progress)
        self._broken = any(damage.what == STRUCTURE for damage in found.damages)
        indexes = [] if self._broken else self._indexes(found)
        damages = (*found.damages, *(one.damage for one in indexes))
        mends = [*found.mends, *(one.mend for one in indexes if one.mend is not None)]
        return StoreCheck(found.messages, len(found.sessions), damages, file=self._path), mends

    def _indexes(self, found: Findings) -> list[Found]:
        with closing(connect_to_read(self._path)) as connection:
            read_leniently(connection)
            inspector = SQLiteInspector(connection)
            return [one for session in found.sessions.values() for one in _indexes(inspector, session)]

    def mend(self, mends: list[Mend]) -> None:
        """See `_Check`."""
        name = repr(str(self._path))
        if self._broken:
            raise StoreError(f"{name} is damaged itself, so nothing was mended; recover what can be read")
        try:
            mend_file(self._path, mends)
        except sqlite3.Error as error:
            raise StoreError(f"{name} cannot be mended: {error}; nothing was changed") from error


class _ServerCheck:
    """Checks a PostgreSQL database, a page of one table at a time.

    Args:
        store: the store.
        progress: see `check_store`.
    """

    def __init__(self, store: "PostgresStore", progress: Progress | None) -> None:
        self._store = store
        self._progress = progress
        self._inspector = store.inspector()

    def read(self) -> tuple[StoreCheck, list[Mend]]:
        """See `_Check`."""
        sessions = self._store.sessions()
        total = 0
        if self._progress is not None:
            total = sum(self._store.stats(session.key)["messages"] for session in sessions)
        found: list[Found] = [*self._inspector.lost_objects({one.key: one for one in sessions})]
        done = messages = 0
        for session in sessions:
            for page in self._inspector.messages(session):
                damages = [damage for damage in page if damage is not None]
                found += map(Found, damages)
                done, messages = done + len(page), messages + len(page) - len(damages)
                if self._progress is not None:
                    self._progress(done, max(total, done))
            found += self._inspector.changed(session)
            found += self._inspector.rows(session)
            found += _indexes(self._inspector, session)
        found += self._inspector.orphans()
        damages = [one.damage for one in found]
        return StoreCheck(messages, len(sessions), tuple(damages)), [one.mend for one in found if one.mend is not None]

    def mend(self, mends: list[Mend]) -> None:
        """See `_Check`."""
        self._store.mend(mends)


# Search indexes


def _indexes(inspector: Inspector, session: SessionKey) -> Iterator[Found]:
    """Yield the search indexes of a session whose bytes have changed."""
    for (name,) in inspector.ask(_NAMES, session.key):
        shown = inspector.plain(name)
        data = b"".join(part for (part,) in inspector.ask(_PARTS, session.key, {"name": name}))
        if shown != MARK and is_damaged(data):
            damage = Damage("a search index", WRONG, session.session_id, session.user_id, shown, derived=True)
            yield Found(damage, Mend("snapshot", session.key, {"name": name}))
