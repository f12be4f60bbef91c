"""Work on an index beside the questions asked of it: in a thread of its own, given up when nobody wants it."""

import atexit
import os
import threading
import weakref
from collections.abc import Generator

__all__ = ["Background", "Work"]

Work = Generator[None, None, None]
"""Does a short part of the work between one `yield` and the next; holds no reference to the index while it waits."""

_running: "weakref.WeakSet[Background]" = weakref.WeakSet()
_hooked = False


class Background:
    """One run of some work. It ends when the work does, is stopped, or the process ends.

    Args:
        work: what to do.
    """

    def __init__(self, work: Work) -> None:
        self._work = work
        self._stop = threading.Event()
        self._pid = os.getpid()
        self._thread = threading.Thread(target=self._run, name="infinite-memory index", daemon=True)
        _hook()
        _running.add(self)
        self._thread.start()

    def _run(self) -> None:
        for _ in self._work:
            if self._stop.is_set():
                self._work.close()
                break

    @property
    def lost(self) -> bool:
        """Whether this process was forked off while the work was done: threads stay behind."""
        return self._pid != os.getpid()

    def wait(self) -> None:
        """Return when the work is done."""
        if not self.lost:
            self._thread.join()

    def stop(self) -> None:
        """Give the work up, and return when it has ended."""
        self._stop.set()
        self.wait()


def _hook() -> None:
    global _hooked
    if not _hooked:
        # A thread that is inside a library while the interpreter goes away would take the process down.
        atexit.register(_stop_all)
    _hooked = True


def _stop_all() -> None:
    for one in list(_running):
        one.stop()
