"""The threads in which an event loop's calls of a store run: as many as the store serves at a time."""

import asyncio
import os
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from functools import partial
from typing import Any, ParamSpec, TypeVar

from shared_core.companions import Companions
from shared_core.lifecycle import Depth, fork_safe_lock, in_background
from shared_core.store import Store

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")

NAME = "infinite-memory call"


class StoreThreads:
    """Threads for the calls of one store. They start when they are needed, and end with their last user or the store.

    With the event loop's own executor, calls that wait for a store would take the threads of everybody else's.

    Args:
        count: the most threads.
    """

    def __init__(self, count: int) -> None:
        self._count = count
        self._users: weakref.WeakSet[Any] = weakref.WeakSet()
        self._lock = fork_safe_lock(Depth.MOMENT)
        self._threads: ThreadPoolExecutor | None = None
        self._pid = os.getpid()

    def join(self, user: object) -> None:
        """Note that somebody uses them, until `leave`."""
        with self._lock:
            self._users.add(user)

    def leave(self, user: object) -> None:
        """Note that somebody uses them no more; the last one ends them. Calls that run go on."""
        with self._lock:
            self._users.discard(user)
            if not self._users:
                self.end()

    def end(self) -> None:
        """End the threads that are idle, and the others after their calls."""
        threads, self._threads = self._threads, None
        if threads is not None and self._pid == os.getpid():
            threads.shutdown(wait=False)

    async def run(
        self, user: object, function: Callable[Arguments, Result], /, *args: Arguments.args, **kwargs: Arguments.kwargs
    ) -> Result:
        """Call a function in one of the threads; after `leave`, in one of its own."""
        call = partial(
            copy_context().run, partial(function, *args, **kwargs)
        )  # tracing of frameworks is in the context
        with self._lock:
            if user not in self._users:
                future = in_background(call, NAME)
            else:
                if self._threads is None or self._pid != os.getpid():  # a fork copies no threads
                    self._threads, self._pid = ThreadPoolExecutor(self._count, NAME), os.getpid()
                future = self._threads.submit(call)
        return await asyncio.wrap_future(future)


_threads = Companions(lambda store: StoreThreads(store.connections), StoreThreads.end)


def threads_of(store: Store) -> StoreThreads:
    """Return the threads for the calls of a store, which all of its users share."""
    return _threads.of(store)
