"""A store that notes each call, to see how often a verb would wait for a store a round trip away."""

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from itertools import islice
from typing import Any, Concatenate, ParamSpec, TypeVar

from shared_core.records import Position, VectorRow
from shared_core.store import PAGE, Store

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


def _noted(
    method: Callable[Concatenate[Any, Arguments], Result],
) -> Callable[Concatenate["CountedStore", Arguments], Result]:
    """Return a method that notes its name, and has the other store do the work."""
    name = method.__name__

    def noted(self: "CountedStore", /, *args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        self.trips.append(name)
        result: Result = getattr(self.store, name)(*args, **kwargs)
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
        """See `Store`."""
        return self.store.connections

    @property
    def counts(self) -> dict[str, int]:
        """How often each method was called."""
        return dict(Counter(self.trips))

    def reset(self) -> None:
        """Begin to count anew."""
        self.trips.clear()

    def for_user(self, user_id: str | None) -> "CountedStore":
        """See `Store`. What is called on the result is noted here."""
        own = self.store.for_user(user_id)
        if own is self.store:
            return self
        counted = CountedStore(own)
        counted.trips = self.trips
        return counted

    session = _noted(Store.session)
    create_session = _noted(Store.create_session)
    sessions = _noted(Store.sessions)
    users = _noted(Store.users)
    sessions_named = _noted(Store.sessions_named)
    sessions_with = _noted(Store.sessions_with)
    rename_session = _noted(Store.rename_session)
    overview = _noted(Store.overview)
    state = _noted(Store.state)
    catch_up = _noted(Store.catch_up)
    check_out = _noted(Store.check_out)
    main_states = _noted(Store.main_states)
    main_changes = _noted(Store.main_changes)
    main_news = _noted(Store.main_news)
    stats = _noted(Store.stats)
    segment = _noted(Store.segment)
    segments = _noted(Store.segments)
    branches = _noted(Store.branches)
    refs = _noted(Store.refs)
    change = _noted(Store.change)
    append = _noted(Store.append)
    restore = _noted(Store.restore)
    get = _noted(Store.get)
    at = _noted(Store.at)
    stored = _noted(Store.stored)
    check_absent = _noted(Store.check_absent)
    count = _noted(Store.count)
    newest = _noted(Store.newest)
    find = _noted(Store.find)
    covers = _noted(Store.covers)
    keep = _noted(Store.keep)
    keep_vectors = _noted(Store.keep_vectors)
    known_vectors = _noted(Store.known_vectors)
    spaces = _noted(Store.spaces)
    snapshot = _noted(Store.snapshot)
    summaries = _noted(Store.summaries)
    forget = _noted(Store.forget)
    forgotten = _noted(Store.forgotten)
    forgotten_since = _noted(Store.forgotten_since)
    are_forgotten = _noted(Store.are_forgotten)
    scrub = _noted(Store.scrub)
    transaction = _noted(Store.transaction)
    identity = _noted(Store.identity)
    backup = _noted(Store.backup)
    faults = _noted(Store.faults)

    def vectors(
        self, session: int, space: str, positions: Sequence[Position] | None = None, *,
        hashes: Collection[str] | None = None,
    ) -> Iterator[VectorRow]:  # fmt: skip
        """See `Store`."""
        rows = self.store.vectors(session, space, positions, hashes=hashes)
        self.trips.append("vectors")
        return self._pages(rows) if positions is None and hashes is None else rows

    def _pages(self, rows: Iterator[VectorRow]) -> Iterator[VectorRow]:
        while page := list(islice(rows, PAGE)):
            yield from page
            self.trips.append("vectors")

    def watch(self, session: int) -> Callable[[], bool]:
        """See `Store`."""
        self.trips.append("watch")
        look = self.store.watch(session)

        def counted() -> bool:
            self.trips.append("watch")
            return look()

        return counted

    def close(self) -> None:
        """See `Store`."""
        self.store.close()
