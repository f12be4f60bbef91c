"""Locks that a forked process can use: a fork waits until no thread holds one."""

import os
import sys
import threading
import weakref
from collections.abc import Callable
from contextlib import AbstractContextManager
from enum import IntEnum
from typing import Any


class Depth(IntEnum):
    """The order in which a thread acquires fork-safe locks, the outermost first.

    Two threads that acquire in opposite orders, one of which may be a fork, wait for each other for ever. So a thread
    that holds a lock acquires only those of greater depths.
    """

    CONVERSATION = 0
    """Of an adapter's conversation."""
    CHAT_STORE = 1
    """Of a chat store, while it opens a conversation; those have locks of their own, which are not acquired then."""
    OPENING = 2
    """Of the stores that are open, while another is opened."""
    MEMORY = 3
    """Of a memory: one call at a time."""
    SESSION_INDEX = 4
    """Of the index of a session."""
    USER_INDEX = 5
    """Of the index of all sessions of a user, which is asked while one of them is held."""
    LOADING = 6
    """Of what is loaded when it is first used, such as a model."""
    CACHE = 7
    """Of a cache that looks at what it keeps."""
    MOMENT = 8
    """Held for a moment, around a few variables."""
    NATIVE = 9
    """Held while the thread is inside a native library."""


_guard = threading.RLock()
_forking = threading.RLock()
_locks: "weakref.WeakKeyDictionary[Any, int]" = weakref.WeakKeyDictionary()
_held: list[Any] = []
_inner: list[tuple[Callable[[], None], Callable[[], None]]] = []
_hooked = False


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
