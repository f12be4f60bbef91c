"""Companions of stores: one object for each store, which all who use the store in this process share."""

import weakref
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from shared_core.runtime.forks import Depth, fork_safe_lock

Companion = TypeVar("Companion")


class Companions(Generic[Companion]):
    """Makes a companion when a store is first asked for it, and lets go of it when the store is gone.

    A forked child has copies of all of them. A companion must not hold its store, which would never be gone then.

    Args:
        make: returns the companion of a store.
        end: is called with a companion whose store is gone.
    """

    def __init__(self, make: Callable[[Any], Companion], end: Callable[[Companion], object] = lambda _: None) -> None:
        self._make = make
        self._end = end
        self._lock = fork_safe_lock(Depth.MOMENT)
        self._known: dict[int, tuple[weakref.ref[Any], Companion]] = {}

    def of(self, store: Any) -> Companion:
        """Return the companion of a store, by its identity: two equal stores have two."""
        number = id(store)
        with self._lock:
            known = self._known.get(number)
            if known is None:
                companion = self._make(store)

                def end(_: Any) -> None:
                    self._known.pop(number, None)
                    self._end(companion)

                known = self._known[number] = weakref.ref(store, end), companion
            return known[1]
