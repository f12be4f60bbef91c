"""The indexes of a store in this process, which all memories on it share, bounded in bytes; and those one has open."""

import os
import time
import weakref
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future, wait
from contextlib import suppress
from typing import Any, TypeAlias

import numpy as np

from shared_core.errors import StoreError
from shared_core.index.session import SNAPSHOT_ROWS, SessionIndex
from shared_core.index.session_vectors import SessionVectors, vectors_in
from shared_core.index.user import UserIndex
from shared_core.records import ROOT, Position, SessionState
from shared_core.runtime.forks import Depth, fork_safe_lock
from shared_core.runtime.threads import companion, in_background
from shared_core.session.live import LiveSession
from shared_core.store import Store

MAX_BYTES = 2**30
"""What the indexes of a store may take by default: twelve sessions of 100,000 messages, or 30,000 of 20."""

Saved: TypeAlias = Callable[[int, float], None]
Key: TypeAlias = int | tuple[str | None, str]
"""A session's key; or the user whose sessions an index holds together, and the space of their vectors."""


class SharedIndex:
    """The index of one session that all memories on a store share.

    Attributes:
        rows: the index as it is now. It is replaced when too much of it was forgotten.
        users: those who hold it open. It stays in the cache as long as one of them exists.
        nbytes: about how many bytes of memory it takes, as the cache counts it.

    Args:
        rows: an empty index.
        key: the cache's key for it; None: it is in none.
    """

    def __init__(self, rows: SessionIndex, key: Key | None = None) -> None:
        self.rows = rows
        self.key = key
        self.users: weakref.WeakSet[object] = weakref.WeakSet()
        self.nbytes = 0
        self._guard = fork_safe_lock(Depth.MOMENT)

    def refreshed(self, refresh: Callable[[Any], bool]) -> Any:
        """Return the rows once `refresh` has brought them up to date; while it returns False, they are read anew."""
        while not refresh(rows := self.rows):
            anew = rows.anew()
            with self._guard:
                if self.rows is rows:  # else another thread has begun
                    self.rows = anew
        return rows

    @property
    def vectors(self) -> list[SessionVectors]:
        """Its vectors in all spaces."""
        return list(self.rows.vectors.values())

    def due(self, least: int = SNAPSHOT_ROWS) -> list[SessionIndex | SessionVectors]:
        """Return the parts of which a snapshot is due: with so much that is new, or all of them after a damage."""
        parts: list[SessionIndex | SessionVectors] = [self.rows, *self.vectors]
        if not self.rows.may_be_saved:
            return []
        return [one for one in parts if self.rows.needs_rewrite or one.snapshot_due(least)]

    def save_snapshots(self, saved: Saved | None = None, least: int = SNAPSHOT_ROWS) -> None:
        """Save the snapshots that are due.

        Args:
            saved: called if some were, with the number of messages and the seconds it took.
            least: see `SessionIndex.snapshot_due`.

        Raises:
            StoreError: a snapshot cannot be stored.
        """
        due, rows, began = self.due(least), len(self.rows), time.perf_counter()
        for one in due:
            one.save_snapshot()
        self.rows.needs_rewrite = False
        if due and saved is not None:
            saved(rows, time.perf_counter() - began)

    def rest(self) -> None:
        """Stop background work, and let the rows take less memory. It can still be used."""
        for one in self.vectors:
            one.vectors.stop()
        self.rows.fold()


class IndexCache:
    """The indexes of the sessions that are asked in this process, which all memories on a store share.

    Two memories of one session, also on different branches and in different threads, use one index. One that no open
    memory uses stays for the next, until the bound is reached: then those used least recently go first. The memories
    that a pool keeps for later do not count as open, so they cost next to nothing.

    Every store has one; `IndexCache.of(store)` returns it.

    Attributes:
        max_bytes: about how many bytes of memory the indexes may take together. Assign it to choose another bound.
            Indexes in use are never dropped, so they may take more.
    """

    @staticmethod
    def of(store: Store) -> "IndexCache":
        """Return the cache that belongs to a store; it exists as long as the store."""
        return companion(store, IndexCache, IndexCache)

    def __init__(self) -> None:
        self.max_bytes = MAX_BYTES
        self._lock = fork_safe_lock(Depth.CACHE)
        self._kept: OrderedDict[Key, SharedIndex] = OrderedDict()
        self._nbytes = 0
        self._saving: dict[Key, tuple[Future[None], int]] = {}

    @property
    def nbytes(self) -> int:
        """About how many bytes the indexes take now."""
        return self._nbytes

    def __len__(self) -> int:
        """Return how many indexes are kept."""
        return len(self._kept)

    def __repr__(self) -> str:
        return f"<IndexCache: {len(self)} indexes, {self.nbytes:,} of {self.max_bytes:,} bytes>"

    def __contains__(self, key: Key) -> bool:
        """Return whether there is an index."""
        return key in self._kept

    def open(self, key: Key, make: Callable[[], SessionIndex], user: object) -> SharedIndex:
        """Return an index, which stays as long as its user exists; `make` makes an empty one if there is none."""
        with self._lock:
            if key not in self._kept:
                self._kept[key] = SharedIndex(make(), key)
            self._kept.move_to_end(key)
            self._kept[key].users.add(user)
            return self._kept[key]

    def note(self, used: SharedIndex) -> None:
        """Note that an index may have grown, and drop others if they take too much together."""
        size = used.rows.nbytes
        if size != used.nbytes:
            with self._lock:
                if used.key is not None and self._kept.get(used.key) is used:  # else it was dropped
                    self._nbytes += size - used.nbytes
                    used.nbytes = size
        if self._nbytes > self.max_bytes:
            self._evict()

    def _evict(self) -> None:
        with self._lock:
            for key, one in list(self._kept.items()):
                if self._nbytes <= self.max_bytes:
                    break
                if not one.users and key not in self._saving:
                    del self._kept[key]
                    self._nbytes -= one.nbytes

    def save_later(self, shared: SharedIndex, saved: Saved | None = None) -> None:
        """Bring the index of a session up to date and save the snapshots that are due, in the background.

        Args:
            shared: the index.
            saved: see `SharedIndex.save_snapshots`.
        """
        session = shared.rows.session

        def save() -> None:
            try:
                with suppress(StoreError):  # the next one tries again; until then, the messages are read instead
                    shared.refreshed(lambda rows: rows.refresh(rows.state()))
                    shared.save_snapshots(saved)
            finally:
                with self._lock:
                    self._saving.pop(session, None)

        with self._lock:
            known = self._saving.get(session)
            if known is None or known[1] != os.getpid():  # a fork copies no threads
                self._saving[session] = in_background(save, "infinite-memory snapshot"), os.getpid()

    def release(self) -> None:
        """Wait until the snapshots are saved, and drop the indexes: their store is going to be closed."""
        with self._lock:
            saving = [future for future, pid in self._saving.values() if pid == os.getpid()]
        wait(saving)
        with self._lock:
            kept = list(self._kept.values())
            self._kept.clear()
            self._nbytes = 0
        for one in kept:
            one.rest()


class OpenIndexes:
    """The indexes that one memory holds open. They are in the cache that it shares with others.

    Args:
        live: the session.

    Attributes:
        saved: called when snapshots were saved; see `SharedIndex.save_snapshots`.
    """

    def __init__(self, live: LiveSession) -> None:
        self.live = live
        self.cache = IndexCache.of(live.store)
        self.saved: Saved | None = None
        self._open: dict[Key, SharedIndex] = {}
        self._space = ""

    def open(
        self, state: SessionState, space: str = "", dimension: int = 0
    ) -> tuple[SessionIndex, SessionVectors | None]:
        """Return the session's index, up to date with the store, and its vectors in a space; without a space, none."""
        session = self.live.key
        assert session is not None
        shared = self._shared(session, lambda: SessionIndex(self.live.store, session))
        index: SessionIndex = shared.refreshed(lambda rows: rows.refresh(state, self.live.news.after))
        if space and space != self._space:
            index.vectors.pop(self._space, None)  # of an embedder that was chosen before the session had vectors
        self._space = space or self._space
        vectors = vectors_in(index, space, dimension) if space else None
        self.cache.note(shared)
        return index, vectors

    def open_user(self, space: str = "", dimension: int = 0) -> UserIndex:
        """Return the index of the user's sessions, likewise."""
        live, key = self.live, (self.live.user_id, space)
        shared = self._shared(key, lambda: UserIndex(live.store, live.user_id, space, dimension))
        index: UserIndex = shared.refreshed(lambda rows: rows.follow(live.key))
        self._space = space or self._space
        self.cache.note(shared)
        return index

    def _shared(self, key: Key, make: Callable[[], SessionIndex]) -> SharedIndex:
        if key not in self._open:
            self._open[key] = self.cache.open(key, make, self)
        return self._open[key]

    def end_at(self, time: float) -> Position:
        """Return where the branch ended before the first message that was said after a time, in seconds since 1970."""
        live = self.live
        if live.key is None:
            return ROOT
        index, _ = self.open(live.sync())
        line = index.line(live.path)
        later = np.flatnonzero(line.along(index.columns["times"]) > time)
        if not len(later):
            return live.path.head
        before = index.positions(line.rows[: later[0]])
        # What a merge brought in was not on this branch then.
        return next((at for at in reversed(before) if not live.path.span_of(at).shift), ROOT)

    def is_cached(self) -> bool:
        """Return whether this session's index is in memory, so that a search need not begin by reading it."""
        return self.live.key is not None and self.live.key in self.cache

    def opened(self) -> list[SharedIndex]:
        """Return the open indexes."""
        return list(self._open.values())

    def note_stored(self) -> None:
        """Store the vectors that questions have made, as something else was stored, and soon the snapshots due."""
        self.save_vectors()
        self._save_later()

    def _save_later(self) -> None:
        for shared in self.opened():
            if shared.due():
                self.cache.save_later(shared, self.saved)

    def rest(self) -> None:
        """Let the indexes go, as nobody uses this memory for now."""
        self._save_later()
        for shared in self._let_go():
            shared.rows.fold()
            self.cache.note(shared)

    def _let_go(self) -> list[SharedIndex]:
        opened, self._open = self.opened(), {}
        for shared in opened:
            shared.users.discard(self)
        return opened

    def close(self) -> None:
        """Save snapshots, let the indexes go, and stop the background work of those that nobody else uses."""
        try:
            self.save_snapshots()
        finally:
            for shared in self._let_go():
                if not shared.users:
                    shared.rest()

    def save_snapshots(self, *, least: int = SNAPSHOT_ROWS) -> None:
        """Save the indexes in memory that have grown by `least` rows, or whose snapshots were damaged."""
        self.save_vectors()
        for index in self.opened():
            index.save_snapshots(self.saved, least)

    def own_vectors(self) -> SessionVectors | None:
        """Return the vectors of this session, if they are in memory."""
        shared = None if self.live.key is None else self._open.get(self.live.key)
        return None if shared is None else shared.rows.vectors.get(self._space)

    def save_vectors(self) -> None:
        """Store the vectors that questions have made. If that fails, they stay in memory until the next call."""
        for shared in self.opened():
            vectors = shared.rows.vectors.get(self._space)
            if vectors is not None and vectors.unsaved is not None:
                with suppress(StoreError):
                    vectors.save()
