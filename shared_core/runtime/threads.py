"""Threads: calls in the background or with a time limit, and threads of a store."""

import asyncio
import atexit
import os
import threading
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import asynccontextmanager
from contextvars import copy_context
from functools import partial
from typing import Any, ParamSpec, TypeVar

from shared_core.runtime.forks import Depth, fork_safe_lock

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")
Lent = TypeVar("Lent")


def in_time(function: Callable[[], Result], seconds: float, name: str) -> Result:
    """Call a function in a thread of this name and return what it returns, for calls without a limit of their own.

    Raises:
        TimeoutError: it takes longer. It goes on in the background.
        BaseException: whatever the function raises.
    """
    return _started(function, name).result(seconds)


def in_background(function: Callable[[], Result], name: str) -> "Future[Result]":
    """Call a function in a thread of this name, and return its result to come.

    At exit, the process waits for it for `EXIT_SECONDS`, because it may be inside a native library.
    """
    future = _started(function, name)
    _calls[future] = os.getpid()
    _hook_exit()
    return future


async def beside(function: Callable[[], Result], name: str = "infinite-memory") -> Result:
    """Call a function in a thread of its own, and do not block the event loop meanwhile."""
    return await asyncio.wrap_future(in_background(partial(copy_context().run, function), name))


def _started(function: Callable[[], Result], name: str) -> "Future[Result]":
    future: Future[Result] = Future()
    future.set_running_or_notify_cancel()  # a call that has begun cannot be cancelled

    def run() -> None:
        try:
            future.set_result(function())
        except BaseException as error:  # raised in the caller's thread
            future.set_exception(error)

    threading.Thread(target=run, name=name, daemon=True).start()
    return future


_calls: "weakref.WeakKeyDictionary[Future[Any], int]" = weakref.WeakKeyDictionary()
_exit_hooked = False

exiting = threading.Event()
"""Set when the process exits: what a thread does in several calls ends after the one that is under way."""

EXIT_SECONDS = 10.0
"""How long the exit of the process waits for calls in the background; one may wait for a network for ever."""


def _hook_exit() -> None:
    global _exit_hooked
    if not _exit_hooked:
        # What comes last is called first: a library that a thread still imports may not end before the thread does.
        weakref.finalize(_calls, int).detach()
        # A thread that is inside a native library when the interpreter shuts down would crash the process.
        atexit.register(_end_calls)
    _exit_hooked = True


def _end_calls() -> None:
    exiting.set()
    wait([call for call, pid in list(_calls.items()) if pid == os.getpid()], EXIT_SECONDS)  # a fork copies no threads


class StoreThreads:
    """Threads for an event loop's calls of one store: they start when they are needed, and end with the store.

    With the event loop's own executor, calls that wait for a store would take the threads of everybody else's.

    Args:
        count: the most threads.
    """

    def __init__(self, count: int) -> None:
        self._count = count
        self._lock = fork_safe_lock(Depth.MOMENT)
        self._threads: ThreadPoolExecutor | None = None
        self._pid = os.getpid()

    async def run(
        self, function: Callable[Arguments, Result], /, *args: Arguments.args, **kwargs: Arguments.kwargs
    ) -> Result:
        """Call a function in one of the threads."""
        # Tracing of frameworks is in the context.
        call = partial(copy_context().run, partial(function, *args, **kwargs))
        with self._lock:
            if self._threads is None or self._pid != os.getpid():  # a fork copies no threads
                self._threads, self._pid = ThreadPoolExecutor(self._count, "infinite-memory call"), os.getpid()
            future = self._threads.submit(call)
        return await asyncio.wrap_future(future)


_guard = fork_safe_lock(Depth.MOMENT)


def companion(store: Any, kind: type[Result], make: Callable[[], Result]) -> Result:
    """Return the one object of a kind that all who use a store in this process share. It ends with the store."""
    with _guard:
        held: dict[str, Any] = vars(store)  # a store's own, as two stores may be equal
        if kind.__name__ not in held:
            held[kind.__name__] = make()
        found: Result = held[kind.__name__]
        return found


def threads_of(store: Any) -> StoreThreads:
    """Return the threads for the calls of a store, as many as it serves at a time (`Store.connections`)."""
    return companion(store, StoreThreads, lambda: StoreThreads(store.connections))


@asynccontextmanager
async def lent_async(
    call: Callable[..., Awaitable[Any]], take: Callable[[], Lent], give_back: Callable[[Lent], object],
    close: Callable[[Lent], object],
) -> AsyncIterator[Lent]:  # fmt: skip
    """Provide what `take` returns for a block, and give it back; `call` calls these functions in threads.

    If the block is cancelled, it is closed instead: a thread that the block awaited may still use it, and nobody else
    may do so at the same time.
    """
    taking, end = asyncio.ensure_future(call(take)), give_back
    try:
        yield await asyncio.shield(taking)
    except asyncio.CancelledError:
        end = close
        raise
    finally:
        await asyncio.shield(call(end, await taking))
