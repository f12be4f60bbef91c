"""What must be held while a process forks, so that the child does not inherit another thread's half-done work."""

import os
import sys
import threading
import weakref
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

__all__ = ["at_fork", "fork_safe_lock"]

_guard = threading.RLock()
_locks: "weakref.WeakSet[Any]" = weakref.WeakSet()
_held: list[Any] = []
_inner: list[tuple[Callable[[], None], Callable[[], None]]] = []
_hooked = False


def fork_safe_lock() -> AbstractContextManager[object]:
    """Return a reentrant lock that is free in a forked process: a fork waits until no thread holds it."""
    lock = threading.RLock()
    with _guard:
        _locks.add(lock)
        _hook()
    return lock


def at_fork(before: Callable[[], None], after: Callable[[], None]) -> None:
    """Have `before` called before a fork and `after` after it, in parent and child, inside all fork-safe locks.

    A thread that holds such a lock may wait for what is taken here, and not the other way round.
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
    _guard.acquire()
    for lock in sorted(_locks, key=id):
        lock.acquire()
        _held.append(lock)
    for before, _ in _inner:
        before()


def _after_fork() -> None:
    for _, after in reversed(_inner):
        after()
    while _held:
        _held.pop().release()
    _guard.release()
