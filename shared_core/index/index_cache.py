"""IndexCache: the indexes of a store in this process, which all memories on it share, bounded in bytes."""

import os
import time
import weakref
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, wait
from contextlib import contextmanager, suppress
from typing import NamedTuple, TypeAlias

from shared_core.errors import StoreError
from shared_core.index.session_index import SessionIndex
from shared_core.index.session_vectors import SessionVectors
from shared_core.records import Record, SessionState
from shared_core.runtime.companions import Companions
from shared_core.runtime.forks import Depth, fork_safe_lock
from shared_core.runtime.threads import in_background
from shared_core.store import Store

MAX_BYTES = 2**30
"""What the indexes of a store may take by default: twelve sessions of 100,000 messages, or 30,000 of 20."""

SHARED_BYTES = 1_500
"""What an index takes in the cache besides itself."""

News: TypeAlias = Callable[[int, int], Sequence[Record]]
Saved: TypeAlias = Callable[[int, float], None]
Vectors: TypeAlias = SessionVectors | None
Key: TypeAlias = int | tuple[str | None]
"""A session's key, or the user whose sessions an index holds together."""

Place: TypeAlias = tuple[int, Key]
"""The identity of a store, and a key there."""


class Lease:
    """Keeps an index in the cache for as long as it exists."""

    __slots__ = ("__weakref__", "index")

    def __init__(self, index: "SharedIndex") -> None:
        self.index = index


class Spaced(NamedTuple):
    """An index, and its vectors by space."""

    rows: SessionIndex
    vectors: dict[str, SessionVectors]


class SharedIndex:
    """The index of one session that all memories on a store share.

    Attributes:
        nbytes: about how many bytes of memory it takes, as the cache counts it.

    Args:
        rows: an empty index.
    """

    def __init__(self, rows: SessionIndex) -> None:
        self._now = Spaced(rows, {})
        self._guard = fork_safe_lock(Depth.MOMENT)
        self._lease: weakref.ref[Lease] | None = None
        self._counted: tuple[int, ...] = ()
        self._size = 0
        self.nbytes = 0

    @property
    def rows(self) -> SessionIndex:
        """The index as it is now."""
        return self._now.rows

    def vectors(self, space: str) -> Vectors:
        """Return the vectors in a space, if they have been read and need not be read anew."""
        found = self._now.vectors.get(space)
        return found if found is not None and found.drop_forgotten() else None

    def lease(self) -> Lease:
        """Return what keeps it in the cache."""
        with self._guard:
            lease = self._lease() if self._lease is not None else None
            if lease is None:
                lease = Lease(self)
                self._lease = weakref.ref(lease)
            return lease

    @property
    def in_use(self) -> bool:
        """Whether somebody has a lease."""
        return self._lease is not None and self._lease() is not None

    def refreshed(self, state: SessionState, news: News) -> SessionIndex:
        """Return the rows, up to date with a state of the session, and without what was forgotten up to then."""
        now = self._now
        while not now.rows.refresh(state, news):
            now = self.replace(now, Spaced(SessionIndex(now.rows.store, now.rows.session), {}))
        return now.rows

    def replace(self, old: Spaced, new: Spaced) -> Spaced:
        """Put other rows and vectors in the place of some, unless another thread has done so; return what is there."""
        with self._guard:
            if self._now is old:
                self._now = new
            return self._now

    def with_vectors(self, rows: SessionIndex, space: str, dimension: int) -> SessionVectors:
        """Return the vectors of some rows in a space. They are read before others see them."""
        now, before = self._now, self._now.vectors.get(space)
        read = SessionVectors(rows, space, dimension)
        read.refresh()
        # If the rows are not the ones in the cache any more, too much was forgotten: the search begins again.
        return self._exchanged(now, before, read) if now.rows is rows else read

    def _exchanged(self, now: Spaced, before: Vectors, new: SessionVectors) -> SessionVectors:
        """Put other vectors in the place of some, unless another thread has done so; return what is there."""
        with self._guard:
            if now.vectors.get(new.space) is before:
                now.vectors[new.space] = new
            return now.vectors[new.space]

    def every_vectors(self) -> list[SessionVectors]:
        """Return the vectors in all spaces."""
        with self._guard:
            return list(self._now.vectors.values())

    def size(self) -> int:
        """Return about how many bytes it takes; counted anew if it has grown since the last call."""
        vectors = self.every_vectors()
        counts = (len(self.rows), *(len(one.vectors) for one in vectors))
        if counts != self._counted:
            self._counted = counts
            self._size = SHARED_BYTES + self.rows.nbytes + sum(one.nbytes for one in vectors)
        return self._size

    def snapshot_due(self, least: int) -> bool:
        """Return whether there is a snapshot to save; see `SessionIndex.snapshot_due`."""
        return self.rows.snapshot_due(least) or any(one.snapshot_due(least) for one in self.every_vectors())

    def save_snapshots(self, least: int, saved: Saved | None = None) -> None:
        """Save the snapshots that are due.

        Args:
            least: see `SessionIndex.snapshot_due`.
            saved: called if some were, with the number of messages and the seconds it took.

        Raises:
            StoreError: a snapshot cannot be stored.
        """
        rows, began = self.rows, time.perf_counter()
        due: list[SessionIndex | SessionVectors] = [rows] if rows.snapshot_due(least) else []
        due += [one for one in self.every_vectors() if one.snapshot_due(least)]
        for one in due:
            one.save_snapshot()
        if due and saved is not None:
            saved(len(rows), time.perf_counter() - began)

    def rest(self) -> None:
        """Stop background work, and let the rows take less memory. It can still be used."""
        for one in self.every_vectors():
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
        return _caches.of(store)

    def __init__(self) -> None:
        self.max_bytes = MAX_BYTES
        self._lock = fork_safe_lock(Depth.CACHE)
        self._kept: OrderedDict[Place, SharedIndex] = OrderedDict()
        self._stores: dict[int, weakref.ref[Store]] = {}
        self._gone: deque[int] = deque()
        self._nbytes = 0
        self._saving: dict[Place, tuple[Future[None], int]] = {}

    @property
    def nbytes(self) -> int:
        """About how many bytes the indexes take now."""
        with self._locked():
            return self._nbytes

    def __len__(self) -> int:
        """Return how many indexes are kept."""
        with self._locked():
            return len(self._kept)

    def __repr__(self) -> str:
        return f"<IndexCache: {len(self)} indexes, {self.nbytes:,} of {self.max_bytes:,} bytes>"

    def lease(self, store: Store, key: Key, make: Callable[[], SharedIndex]) -> Lease:
        """Return an index for as long as the lease exists; `make` makes an empty one if there is none."""
        place = id(store), key
        with self._locked():
            self._know(store)
            found = self._kept.get(place)
            if found is None:
                found = self._kept[place] = make()
            self._kept.move_to_end(place)
            return found.lease()

    def holds(self, place: Place) -> bool:
        """Return whether there is an index."""
        with self._locked():
            return place in self._kept

    def _know(self, store: Store) -> None:
        """Drop the indexes of a store when it exists no more: another may get its number then."""
        number = id(store)
        if number not in self._stores:
            gone = self._gone
            self._stores[number] = weakref.ref(store, lambda _: gone.append(number))

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Hold the lock for a block, which finds no index of a store that exists no more.

        The end of a store only notes its number: a thread may collect garbage while it holds any lock.
        """
        with self._lock:
            while self._gone:
                self._forget(self._gone.popleft())
            yield

    def _drop(self, number: int) -> None:
        with self._locked():
            self._forget(number)

    def _forget(self, number: int) -> None:
        self._stores.pop(number, None)
        for place in [place for place in self._kept if place[0] == number]:
            self._nbytes -= self._kept.pop(place).nbytes

    def note(self, used: SharedIndex, place: Place) -> None:
        """Note that an index may have grown, and drop others if they take too much together."""
        size = used.size()
        if size != used.nbytes:
            with self._locked():
                if self._kept.get(place) is used:  # else it was dropped with its store
                    self._nbytes += size - used.nbytes
                    used.nbytes = size
        if self._nbytes > self.max_bytes:
            self._evict()

    def _evict(self) -> None:
        with self._locked():
            for place, one in list(self._kept.items()):
                if self._nbytes <= self.max_bytes:
                    break
                if not one.in_use:
                    del self._kept[place]
                    self._nbytes -= one.nbytes

    def save_later(
        self, lease: Lease, place: Place, update: Callable[[], object], least: int, saved: Saved | None = None
    ) -> None:
        """Bring an index up to date and save the snapshots that are due, in the background.

        Args:
            lease: the index.
            place: where it is kept.
            update: brings it up to date.
            least: see `SessionIndex.snapshot_due`.
            saved: see `SharedIndex.save_snapshots`.
        """

        def save() -> None:
            try:
                with suppress(StoreError):  # the next one tries again; until then, the messages are read instead
                    update()
                    lease.index.save_snapshots(least, saved)
            finally:
                with self._lock:
                    self._saving.pop(place, None)

        with self._lock:
            known = self._saving.get(place)
            if known is None or known[1] != os.getpid():  # a fork copies no threads
                self._saving[place] = in_background(save, "infinite-memory snapshot"), os.getpid()

    def release(self, store: Store) -> None:
        """Wait until the snapshots of a store are saved, and drop its indexes: it is going to be closed."""
        with self._lock:
            every = [(place, *one) for place, one in self._saving.items()]
            saving = [future for place, future, pid in every if place[0] == id(store) and pid == os.getpid()]
            kept = [one for place, one in self._kept.items() if place[0] == id(store)]
        wait(saving)
        for one in kept:
            one.rest()
        self._drop(id(store))


_caches = Companions(lambda _: IndexCache())
