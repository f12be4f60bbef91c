"""A store that notes each call, to see how often a verb would wait for a store a round trip away."""

from collections.abc import Callable, Collection, Iterator, Sequence
from itertools import islice
from typing import Any, Concatenate, ParamSpec, TypeVar

from shared_core.records import Position, VectorRow
from shared_core.store import PAGE, Store

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


def _counted(
    method: Callable[Concatenate[Any, Arguments], Result],
) -> Callable[Concatenate["CountedStore", Arguments], Result]:
    """Return a method that notes its name, and has the other store do the work."""
    name = method.__name__

    def noted(self: "CountedStore", /, *args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        result: Result = getattr(self._noted(name), name)(*args, **kwargs)
        return result

    noted.__name__, noted.__doc__ = name, method.__doc__
    return noted


class CountedStore(Store):
    """Passes every call on to another store, and notes it.

    A call is one round trip, which is what it takes at best where the store is another machine: a store that sends
    several statements for one call, each after the answer to the last, waits longer. Vectors that are iterated over are
    a round trip a page of 1,000, and a transaction is one for its end.

    Args:
        store: the store that does the work.

    Attributes:
        trips: the names of the methods that were called, in order.
    """

    def __init__(self, store: Store) -> None:
        self.store = store
        self.trips: list[str] = []

    @property
    def connections(self) -> int:
        return self.store.connections

    def reset(self) -> None:
        """Begin to count anew."""
        self.trips.clear()

    def _noted(self, name: str) -> Store:
        self.trips.append(name)
        return self.store

    def for_user(self, user_id: str | None) -> "CountedStore":
        """See `Store`. What is called on the result is noted here."""
        own = self.store.for_user(user_id)
        if own is self.store:
            return self
        counted = CountedStore(own)
        counted.trips = self.trips
        return counted

    session = _counted(Store.session)
    create_session = _counted(Store.create_session)
    sessions = _counted(Store.sessions)
    users = _counted(Store.users)
    sessions_named = _counted(Store.sessions_named)
    sessions_with = _counted(Store.sessions_with)
    rename_session = _counted(Store.rename_session)
    overview = _counted(Store.overview)
    state = _counted(Store.state)
    read = _counted(Store.read)
    main_changes = _counted(Store.main_changes)
    main_news = _counted(Store.main_news)
    stats = _counted(Store.stats)
    segment = _counted(Store.segment)
    segments = _counted(Store.segments)
    branches = _counted(Store.branches)
    refs = _counted(Store.refs)
    change = _counted(Store.change)
    append = _counted(Store.append)
    restore = _counted(Store.restore)
    get = _counted(Store.get)
    at = _counted(Store.at)
    stored = _counted(Store.stored)
    check_absent = _counted(Store.check_absent)
    count = _counted(Store.count)
    newest = _counted(Store.newest)
    find = _counted(Store.find)
    covers = _counted(Store.covers)
    keep = _counted(Store.keep)
    keep_vectors = _counted(Store.keep_vectors)
    known_vectors = _counted(Store.known_vectors)
    spaces = _counted(Store.spaces)
    snapshot = _counted(Store.snapshot)
    summaries = _counted(Store.summaries)
    forget = _counted(Store.forget)
    forgotten = _counted(Store.forgotten)
    forgotten_since = _counted(Store.forgotten_since)
    are_forgotten = _counted(Store.are_forgotten)
    scrub = _counted(Store.scrub)
    transaction = _counted(Store.transaction)
    identity = _counted(Store.identity)
    backup = _counted(Store.backup)
    faults = _counted(Store.faults)
    session_keys = _counted(Store.session_keys)

    def vectors(
        self, session: int, space: str, positions: Sequence[Position] | None = None, *,
        hashes: Collection[str] | None = None,
    ) -> Iterator[VectorRow]:  # fmt: skip
        rows = self._noted("vectors").vectors(session, space, positions, hashes=hashes)
        return self._pages(rows) if positions is None and hashes is None else rows

    def _pages(self, rows: Iterator[VectorRow]) -> Iterator[VectorRow]:
        while page := list(islice(rows, PAGE)):
            yield from page
            self.trips.append("vectors")

    def watch(self, session: int) -> Callable[[], bool]:
        look = self._noted("watch").watch(session)

        def counted() -> bool:
            self.trips.append("watch")
            return look()

        return counted

    def close(self) -> None:
        self.store.close()
