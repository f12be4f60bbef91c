"""A store that has no more than a store must have: all else is what the base class does by default."""

from collections.abc import Callable
from typing import Any

from shared_core.store import Store
from shared_core.stores import SQLiteStore

__all__ = ["plain_store"]


def plain_store() -> Store:
    """Return an empty store, kept by one in memory of which only the methods that every store has are used."""
    kept = SQLiteStore(":memory:")

    def passed_on(name: str) -> Callable[..., Any]:
        return lambda _, *arguments, **named: getattr(kept, name)(*arguments, **named)

    made: Store = type("PlainStore", (Store,), {name: passed_on(name) for name in Store.__abstractmethods__})()
    return made
