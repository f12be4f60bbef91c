"""Fork-safe locks that notice a thread that acquires them in an order that could deadlock with a fork."""

import threading
from types import ModuleType
from typing import Any

from shared_core.runtime import forks

wrong: list[str] = []
"""What was acquired in the wrong order since the start of the process."""

_own = threading.local()


class OrderedLock:
    """A reentrant lock that knows its depth from the table of fork-safe locks."""

    def __init__(self) -> None:
        self._lock = threading.RLock()

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        if not forks._forking._is_owned():  # type: ignore[attr-defined]  # a fork acquires all of them in order
            self._check()
        acquired = self._lock.acquire(blocking, timeout)
        if acquired:
            _held().append(self)
        return acquired

    def release(self) -> None:
        _held().remove(self)
        self._lock.release()

    __enter__ = acquire

    def __exit__(self, *_: object) -> None:
        self.release()

    def _check(self) -> None:
        held = _held()
        depth = forks._locks.get(self)
        if self in held or depth is None:
            return
        outer = [forks._locks[one] for one in held if one in forks._locks]
        if outer and max(outer) >= depth:
            wrong.append(f"{depth!r} acquired under {max(outer)!r}")


class _Threading(ModuleType):
    """The module `threading` as `forks` sees it."""

    RLock = OrderedLock

    def __getattr__(self, name: str) -> Any:
        return getattr(threading, name)


def watch() -> None:
    """Let all fork-safe locks made from now on notice it."""
    vars(forks)["threading"] = _Threading("threading")


def _held() -> list[OrderedLock]:
    held: list[OrderedLock] | None = getattr(_own, "held", None)
    if held is None:
        held = _own.held = []
    return held
