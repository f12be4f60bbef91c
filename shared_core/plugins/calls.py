"""Calls of plug-ins: an embedder, a reranker or a summarizer may be slow or fail, and a question goes on without it."""

import asyncio
import os
from collections.abc import Awaitable, Callable, Generator
from concurrent.futures import Future, wait
from contextvars import copy_context
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Generic, Literal, TypeAlias, TypeVar

from shared_core.errors import InfiniteMemoryError
from shared_core.runtime.threads import beside, in_background

Result = TypeVar("Result")
Reply = TypeVar("Reply")
Plugin = Literal["embedder", "reranker", "summarizer"]

SECONDS = 1.0
"""How long a question waits for one call. Embedding services take .2 to .6 s."""


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a plug-in has no reply.

    Attributes:
        plugin: what was called.
        error: what it raised, or what is wrong with its reply.
    """

    plugin: Plugin
    error: Exception

    def __str__(self) -> str:
        if isinstance(self.error, InfiniteMemoryError):
            return str(self.error)
        return f"the {self.plugin} raised {type(self.error).__name__}: {self.error}"


@dataclass(frozen=True, slots=True)
class Late(Generic[Reply]):
    """A call that goes on in the background, because its question has waited for it long enough."""

    _future: "Future[Reply | Failure]"
    _loop: asyncio.AbstractEventLoop | None = None
    _pid: int = field(default_factory=os.getpid)

    @property
    def runs(self) -> bool:
        """Whether it still runs: not in a fork, which does not copy its thread, nor while its event loop stands."""
        stands = self._loop is not None and not self._loop.is_running()
        return not self.forked and not stands and not self._future.done()

    @property
    def forked(self) -> bool:
        """Whether it began in the process that this one is a fork of."""
        return self._pid != os.getpid()

    @property
    def reply(self) -> Reply | Failure | None:
        """What it has returned since; None: nothing."""
        ended = self._future.done() and not self._future.cancelled()
        return self._future.result() if ended else None

    def settle(self) -> None:
        """Wait until it has ended. A call of the event loop in this thread is not waited for: it waits for the loop."""
        while self.runs and (self._loop is None or self._loop is not _running_loop()):
            wait([self._future], 1)  # looks again, because the event loop may be stopped meanwhile


@dataclass(frozen=True, slots=True)
class Request(Generic[Reply]):
    """A call of a plug-in. The sync memory makes it with `answer`, the async one with `aanswer`; neither raises.

    Attributes:
        plugin: what is called.
        function: calls it. What it returns is awaited if it can be, by the sync memory in an event loop of its own.
        checked: returns the reply if it is as it should be, and raises else.
        texts: how many texts it is about.
        seconds: how long to wait; None: as long as it takes. After that, the reply is `Late`.
        afunction: calls it from an event loop. None: `function` in a thread.
    """

    plugin: Plugin
    function: Callable[[], Any]
    checked: Callable[[Any], Reply]
    texts: int = 1
    seconds: float | None = None
    afunction: Callable[[], Awaitable[Any]] | None = None

    def answer(self) -> Reply | Failure | Late[Reply]:
        """Return the reply, or why there is none. With a time limit, the call runs in a thread of its own."""
        if self.seconds is None:
            return self._whole()
        # Tracing and callbacks of frameworks are in the context.
        future = in_background(partial(copy_context().run, self._whole), self._thread)
        wait([future], self.seconds)
        return future.result() if future.done() else Late(future)

    async def aanswer(self) -> Reply | Failure | Late[Reply]:
        """Like `answer`, without blocking the event loop, of which the call is a task."""
        if self.seconds is None:
            return await self._awhole()
        loop = asyncio.get_running_loop()
        future = asyncio.run_coroutine_threadsafe(self._awhole(), loop)
        try:
            await asyncio.wait({asyncio.wrap_future(future)}, timeout=self.seconds)
        except asyncio.CancelledError:
            future.cancel()
            raise
        return future.result() if future.done() else Late(future, loop)

    @property
    def _thread(self) -> str:
        return f"infinite-memory {self.plugin}"

    def _whole(self) -> Reply | Failure:
        try:
            return self.checked(completed(self.function(), self._thread))
        except Exception as error:  # no error of a plug-in may end a chat; the report names it
            return Failure(self.plugin, error)

    async def _awhole(self) -> Reply | Failure:
        try:
            # In the thread, a coroutine function only creates its coroutine, which is awaited here.
            reply = await (self.afunction() if self.afunction is not None else beside(self.function, self._thread))
            return self.checked(await reply if isinstance(reply, Awaitable) else reply)
        except Exception as error:  # as above
            return Failure(self.plugin, error)


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


def completed(reply: Any, thread: str) -> Any:
    """Return a reply, awaited in a thread of that name if it can be, because this thread may run an event loop."""
    if not isinstance(reply, Awaitable):
        return reply
    return in_background(partial(asyncio.run, _awaited(reply)), thread).result()


async def _awaited(reply: Awaitable[Any]) -> Any:
    return await reply


Steps: TypeAlias = Generator[Request[Any], Any, Result]
"""Work that yields a request wherever a plug-in is needed, and returns its result: written once for both memories."""


def run_steps(steps: Steps[Result]) -> Result:
    """Answer every request of some steps and return their result."""
    reply: Any = None
    while True:
        request, result = _advance(steps, reply)
        if request is None:
            return result  # type: ignore[return-value]
        reply = request.answer()


async def _in_thread(function: Callable[..., Any], *given: Any) -> Any:
    return await beside(partial(function, *given))


async def arun_steps(steps: Steps[Result], call: Callable[..., Awaitable[Any]] = _in_thread) -> Result:
    """Await the answer to every request of some steps and return their result; `call` runs a function in a thread."""
    reply: Any = None
    while True:
        request, result = await call(_advance, steps, reply)
        if request is None:
            return result  # type: ignore[no-any-return]
        try:
            reply = await request.aanswer()
        except asyncio.CancelledError:
            steps.close()  # lets go of the rows it embeds now, not when it is collected
            raise


def _advance(steps: Steps[Result], reply: Any) -> tuple[Any, Result | None]:
    """Take one step: return the next request, or None and the result."""
    try:
        return (next(steps) if reply is None else steps.send(reply)), None
    except StopIteration as stop:
        return None, stop.value
