"""A store that notes each call, to see how often a verb would wait for a store a round trip away."""

from collections.abc import Callable
from typing import Any, Concatenate, ParamSpec, TypeVar

from shared_core.queries import Query
from shared_core.store import Store

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
    several statements for one call, each after the answer to the last, waits longer. A transaction is one for its end.

    Args:
        store: the store that does the work.

    Attributes:
        trips: the names of the methods that were called, in order; `read` with the names of its queries.
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
        """Return the store as a user sees it; what is called on it is noted here."""
        own = self.store.for_user(user_id)
        if own is self.store:
            return self
        counted = CountedStore(own)
        counted.trips = self.trips
        return counted

    session = _counted(Store.session)
    create_session = _counted(Store.create_session)
    sessions = _counted(Store.sessions)
    sessions_named = _counted(Store.sessions_named)
    sessions_with = _counted(Store.sessions_with)
    rename_session = _counted(Store.rename_session)
    overview = _counted(Store.overview)
    size = _counted(Store.size)
    main_changes = _counted(Store.main_changes)
    main_news = _counted(Store.main_news)
    change = _counted(Store.change)
    append = _counted(Store.append)
    restore = _counted(Store.restore)
    at = _counted(Store.at)
    check_absent = _counted(Store.check_absent)
    keep = _counted(Store.keep)
    keep_vectors = _counted(Store.keep_vectors)
    forget = _counted(Store.forget)
    scrub = _counted(Store.scrub)
    transaction = _counted(Store.transaction)
    identity = _counted(Store.identity)
    backup = _counted(Store.backup)
    faults = _counted(Store.faults)
    session_keys = _counted(Store.session_keys)

    def read(self, session: int, *queries: Query) -> list[Any]:
        asked = ", ".join(type(query).__name__ for query in queries)
        found: list[Any] = self._noted(f"read({asked})").read(session, *queries)
        return found

    def watch(self, session: int) -> Callable[[], bool]:
        look = self._noted("watch").watch(session)

        def counted() -> bool:
            self.trips.append("watch")
            return look()

        return counted

    def close(self) -> None:
        self.store.close()
