"""CallQueue: calls that event loops make, run in threads one after the other, in the order in which they were made."""

import asyncio
import os
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from contextvars import Context, copy_context
from functools import partial
from typing import Any, TypeVar

Result = TypeVar("Result")


class CallQueue:
    """Runs the calls of coroutines one at a time, first come, first served, without holding up an event loop.

    A call that was cancelled before its turn is left out. Calls that do not come through the queue never wait for it.
    """

    def __init__(self) -> None:
        self._begin()

    def _begin(self) -> None:
        self._pid = os.getpid()
        self._calls: deque[tuple[Future[Any], Context, Callable[[], Any]]] = deque()
        self._running = threading.Lock()

    async def run(self, function: Callable[..., Result], *args: Any) -> Result:
        """Call a function in a thread, after all calls made before, and return what it returns."""
        if self._pid != os.getpid():  # a fork copies the waiting calls, but not the thread that runs them
            self._begin()
        future: Future[Result] = Future()
        self._calls.append((future, copy_context(), partial(function, *args)))
        if self._running.acquire(blocking=False):
            try:
                asyncio.get_running_loop().run_in_executor(None, self._run_all)
            except BaseException:
                self._running.release()
                raise
        return await asyncio.wrap_future(future)

    def _run_all(self) -> None:
        while True:
            while self._calls:
                self._run_one(*self._calls.popleft())
            self._running.release()
            # A call that was added just before the release found the queue running.
            if not self._calls or not self._running.acquire(blocking=False):
                return

    @staticmethod
    def _run_one(future: "Future[Any]", context: Context, call: Callable[[], Any]) -> None:
        if not future.set_running_or_notify_cancel():
            return
        try:
            future.set_result(context.run(call))
        except BaseException as error:  # raised where the call is awaited
            future.set_exception(error)
