"""Threads, forks and exits: calls with a time limit, locks that a child can use, and an end of background work."""

import atexit
import os
import sys
import threading
import weakref
from asyncio import wrap_future
from collections.abc import Callable, Generator
from concurrent.futures import Future, wait
from contextlib import AbstractContextManager
from contextvars import copy_context
from enum import IntEnum
from functools import partial
from typing import Any, TypeVar

Result = TypeVar("Result")


class Depth(IntEnum):
    """The order in which a thread acquires fork-safe locks, the outermost first.

    Two threads that acquire in opposite orders, one of which may be a fork, wait for each other for ever. So a thread
    that holds a lock acquires only those of greater depths.
    """

    BUFFER = 0
    """Of an adapter's conversation, which may be kept in a chat store."""
    CHAT_STORE = 1
    """Of a chat store, which has conversations of its own."""
    CONVERSATION = 2
    """Of a conversation of a chat store."""
    OPENING = 3
    """Of the stores that are open, while another is opened."""
    MEMORY = 4
    """Of a memory: one call at a time."""
    SESSION_INDEX = 5
    """Of the index of a session."""
    USER_INDEX = 6
    """Of the index of all sessions of a user, which is asked while one of them is held."""
    LOADING = 7
    """Of what is loaded when it is first used, such as a model."""
    CACHE = 8
    """Of a cache that looks at what it keeps."""
    MOMENT = 9
    """Held for a moment, around a few variables."""
    NATIVE = 10
    """Held while the thread is inside a native library."""


_guard = threading.RLock()
_forking = threading.RLock()
_locks: "weakref.WeakKeyDictionary[Any, int]" = weakref.WeakKeyDictionary()
_held: list[Any] = []
_inner: list[tuple[Callable[[], None], Callable[[], None]]] = []
_hooked = False


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
    return await wrap_future(in_background(partial(copy_context().run, function), name))


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


def fork_safe_lock(depth: Depth) -> AbstractContextManager[object]:
    """Return a reentrant lock that is free in a forked process, because a fork waits until no thread holds it.

    Args:
        depth: a thread may acquire it while it holds locks of smaller depths, and a fork acquires these first.
    """
    lock = threading.RLock()
    with _guard:
        _locks[lock] = depth
        _hook()
    return lock


def at_fork(before: Callable[[], None], after: Callable[[], None]) -> None:
    """Call `before` before each fork and `after` after it, in parent and child, while all fork-safe locks are held.

    A thread that holds a fork-safe lock may wait for a resource that `before` acquires. The opposite order could
    deadlock.
    """
    with _guard:
        _inner.append((before, after))
        _hook()


def _hook() -> None:
    global _hooked
    if not _hooked and sys.platform != "win32":
        os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_after_fork)
    _hooked = True


def _before_fork() -> None:
    _forking.acquire()
    # A thread may make a lock while it holds others. So `_guard` comes last, and if there are new locks by then, all of
    # them are acquired again in their order.
    while True:
        with _guard:
            locks = sorted(_locks.items(), key=lambda one: (one[1], id(one[0])))
        for lock, _ in locks:
            lock.acquire()
            _held.append(lock)
        _guard.acquire()
        if set(_locks) <= set(_held):
            break
        _guard.release()
        _release()
    for before, _ in _inner:
        before()


def _after_fork() -> None:
    for _, after in reversed(_inner):
        after()
    _guard.release()
    _release()
    _forking.release()


def _release() -> None:
    while _held:
        _held.pop().release()


Work = Generator[None, None, None]
"""Does a short part of the work between two `yield`s, and holds no reference to the index at a `yield`."""

_running: "weakref.WeakSet[Background]" = weakref.WeakSet()
_calls: "weakref.WeakKeyDictionary[Future[Any], int]" = weakref.WeakKeyDictionary()
_exit_hooked = False

EXIT_SECONDS = 10.0
"""How long the exit of the process waits for calls in the background; one may wait for a network for ever."""


class Background:
    """Runs work in a thread, until it is done or stopped, or the process exits.

    Args:
        work: the work.
    """

    def __init__(self, work: Work) -> None:
        self._work = work
        self._stop = threading.Event()
        self._pid = os.getpid()
        self._thread = threading.Thread(target=self._run, name="infinite-memory index", daemon=True)
        _hook_exit()
        _running.add(self)
        self._thread.start()

    def _run(self) -> None:
        for _ in self._work:
            if self._stop.is_set():
                self._work.close()
                break

    @property
    def lost(self) -> bool:
        """Whether this process was forked while the work ran. A fork does not copy threads."""
        return self._pid != os.getpid()

    def wait(self) -> None:
        """Wait until the work is done."""
        if not self.lost:
            self._thread.join()

    def stop(self) -> None:
        """Stop the work, and wait until it has ended."""
        self._stop.set()
        self.wait()


def _hook_exit() -> None:
    global _exit_hooked
    if not _exit_hooked:
        # What comes last is called first: a library that a thread still imports may not end before the thread does.
        weakref.finalize(_running, int).detach()
        # A thread that is inside a native library when the interpreter shuts down would crash the process.
        atexit.register(_stop_all)
    _exit_hooked = True


def _stop_all() -> None:
    for one in list(_running):
        one.stop()
    wait([call for call, pid in list(_calls.items()) if pid == os.getpid()], EXIT_SECONDS)  # a fork copies no threads
