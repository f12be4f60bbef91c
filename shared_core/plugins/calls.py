"""Calls of the embedder: what is asked of it, how long a question waits, and what becomes of a call given up."""

import asyncio
import os
import threading
import time
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Future, wait
from contextvars import copy_context
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from shared_core.errors import EmbedderError
from shared_core.plugins.base import Embedder, Vectors
from shared_core.plugins.embedders.checks import evenly, unit_length
from shared_core.runtime.threads import in_background

UNIT_TOLERANCE = 1e-3
"""How far from 1 the length of a vector may be. Half precision is no more exact."""

ONE_CALL = 1.0
"""Seconds that a question waits for its embedder in all if the budget is shorter.

The budget says until when a call may begin. Embedding services take .2 to .6 s for one, so a call that has begun may
end after a budget of .2 s; what takes longer than this is given up."""

BRIEF = 4_096
"""Characters that `Embedder.at_once` speaks of: static word vectors take 2 to 4 ms for them."""

THREAD = "infinite-memory embedder"


@dataclass(frozen=True, slots=True)
class Embedded:
    """What an embedder returned.

    Attributes:
        vectors: one per piece, those of each text one after the other, shape (pieces, dimension).
        kept: how many pieces of each text were embedded.
        whole: how many pieces each text has.
    """

    vectors: Vectors
    kept: tuple[int, ...]
    whole: tuple[int, ...]

    def by_text(self) -> list[Vectors]:
        """Return the vectors of each text's pieces."""
        return np.split(self.vectors, np.cumsum(self.kept)[:-1])


Reply: TypeAlias = Embedded | EmbedderError
Keep: TypeAlias = Callable[[Reply], None]

CANCELLED = EmbedderError("the call of the embedder was cancelled")


class Call:
    """A call of the embedder beside a question, which waits for the reply as long as it may, and then gives it up.

    Attributes:
        reply: the vectors or the error, once they have arrived.
    """

    def __init__(self) -> None:
        self.reply: Reply | None = None
        self._keep: Keep | None = None
        self._guard = threading.Lock()
        self._ended: Future[None] = Future()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._pid = os.getpid()

    @property
    def runs(self) -> bool:
        """Whether it still runs. A fork does not copy its thread, and an event loop that is closed never ends it."""
        lost = self._pid != os.getpid() or (self._loop is not None and self._loop.is_closed())
        return not lost and not self._ended.done()

    def leave(self, keep: Keep) -> Reply | None:
        """Give it up: `keep` gets the reply when it arrives, in another thread. If it is here already, return it."""
        with self._guard:
            if self.reply is None:
                self._keep = keep
            return self.reply

    def settle(self) -> None:
        """Wait until it has ended and its reply is kept."""
        while self.runs:
            wait([self._ended], 1)  # looks again, because the event loop may be closed meanwhile

    def work(self, function: Callable[[], Reply], seconds: float) -> "Reply | Call":
        """Call a function in a thread, and return its reply, or this call if that takes longer than `seconds`."""

        def whole() -> None:
            reply: Reply = CANCELLED
            try:
                reply = function()
            finally:
                self._end(self._arrived(reply), reply)

        # Tracing and callbacks of frameworks are in the context.
        began = in_background(partial(copy_context().run, whole), THREAD)
        wait([began], seconds)
        if began.done():
            began.result()  # an exit is raised here, as it would be without a thread
        return self if self.reply is None else self.reply

    async def awork(self, function: Callable[[], Awaitable[Reply]], seconds: float) -> "Reply | Call":
        """Like `work`, for a coroutine function, which goes on as a task of the event loop."""

        async def whole() -> None:
            reply: Reply = CANCELLED
            try:
                reply = await function()
            finally:
                keep = self._arrived(reply)
                if keep is None:
                    self._end(None, reply)
                else:
                    in_background(partial(self._end, keep, reply), THREAD)  # it waits for the store

        self._loop = asyncio.get_running_loop()
        task = self._loop.create_task(whole())
        _tasks.add(task)
        task.add_done_callback(_tasks.discard)
        try:
            await asyncio.wait({task}, timeout=seconds)
        except asyncio.CancelledError:
            task.cancel()
            raise
        if task.done():
            task.result()
        return self if self.reply is None else self.reply

    def _arrived(self, reply: Reply) -> Keep | None:
        with self._guard:
            self.reply = reply
            return self._keep

    def _end(self, keep: Keep | None, reply: Reply) -> None:
        try:
            if keep is not None:
                keep(reply)
        finally:
            self._ended.set_result(None)


_tasks: set["asyncio.Task[None]"] = set()
"""Tasks that run, because an event loop holds them by weak references alone."""


class LateCalls:
    """The calls of one memory that questions have given up: batches of messages, and a question's own vector.

    Attributes:
        closed: whether the memory is closed, so that no reply can be stored any more.
    """

    def __init__(self) -> None:
        self.closed = False
        self._batches: list[Call] = []
        self._question: tuple[str, Call] | None = None

    @property
    def embeds(self) -> bool:
        """Whether a batch still runs. Meanwhile, no other begins: the embedder is slow enough."""
        return any(call.runs for call in self._batches)

    @property
    def answers(self) -> bool:
        """Whether the call for a question's vector still runs."""
        return self._question is not None and self._question[1].runs

    def add(self, call: Call) -> None:
        """Note a batch that was given up."""
        self._batches = [*(one for one in self._batches if one.runs), call]

    def add_question(self, text: str, call: Call) -> None:
        """Note a question whose vector was given up; `text` identifies it."""
        self._question = text, call

    def vector_of(self, text: str) -> Vectors | None:
        """Return the vector of a question that was given up, if it has arrived since."""
        if self._question is None or self._question[0] != text:
            return None
        reply = self._question[1].reply
        return reply.vectors[0] if isinstance(reply, Embedded) else None

    def settle(self) -> None:
        """Wait until all batches have ended and their vectors are kept."""
        for call in self._batches:
            call.settle()


class Patience:
    """How long one question waits for its embedder: for its own vector first, and then for those of messages.

    Attributes:
        longest: seconds that it waits at most.

    Args:
        budget_ms: milliseconds in which calls may begin. One batch of messages begins even after that, so that a slow
            embedder gets through them in the end; with 0, none does.
        late: the calls that earlier questions have given up.
        clock: returns seconds, which only ever grow.
    """

    def __init__(self, budget_ms: float, late: LateCalls, clock: Callable[[], float] = time.monotonic) -> None:
        self.late = late
        self._clock = clock
        self.longest = max(budget_ms / 1000, ONE_CALL)
        now = clock()
        self._deadline, self._limit = now + budget_ms / 1000, now + self.longest
        self._first = budget_ms > 0

    def begins(self) -> bool:
        """Return whether another batch may begin."""
        first, self._first = self._first, False
        return (first or self._clock() < self._deadline) and not self.late.embeds

    @property
    def left(self) -> float | None:
        """The seconds that the question still waits; None: as long as it takes."""
        left = max(0.0, self._limit - self._clock())
        return left if left < threading.TIMEOUT_MAX else None


@dataclass(frozen=True, slots=True)
class EmbedRequest:
    """Texts that need vectors. The sync memory answers with `answer`, the async one with `aanswer`.

    Attributes:
        embedder: what makes the vectors.
        texts: the texts, of any length. Long ones are embedded in pieces.
        query: whether the only text is a question.
        seconds: how long to wait; None: as long as it takes. After that, the reply is the `Call`, which goes on.
    """

    embedder: Embedder
    texts: tuple[str, ...]
    query: bool = False
    seconds: float | None = None

    def answer(self) -> "EmbedReply":
        """Return the vectors, or the error. An error does not end the chat, which goes on without vectors."""
        if self.seconds is None or (self.embedder.at_once and sum(map(len, self.texts)) <= BRIEF):
            return self._whole()
        return Call().work(self._whole, self.seconds)

    async def aanswer(self) -> "EmbedReply":
        """Like `answer`, without blocking the event loop."""
        return await self._awhole() if self.seconds is None else await Call().awork(self._awhole, self.seconds)

    def _whole(self) -> Reply:
        embedder = self.embedder
        try:
            if self.query:
                return self._checked(embedder.embed_query(self.texts[0]), [self.texts], (1,))
            pieces, whole = self._pieces()
            return self._checked(embedder.embed_documents([one for some in pieces for one in some]), pieces, whole)
        except Exception as error:  # no error of a plug-in may end a chat; the report names it
            return failure_of(embedder, error)

    async def _awhole(self) -> Reply:
        embedder = self.embedder
        try:
            if self.query:
                return self._checked(await embedder.aembed_query(self.texts[0]), [self.texts], (1,))
            split = in_background(partial(copy_context().run, self._pieces), THREAD)  # it may load a tokenizer
            pieces, whole = await asyncio.wrap_future(split)
            rows = await embedder.aembed_documents([one for some in pieces for one in some])
            return self._checked(rows, pieces, whole)
        except Exception as error:  # as above
            return failure_of(embedder, error)

    def _pieces(self) -> tuple[list[list[str]], tuple[int, ...]]:
        """Return the pieces of each text that are embedded, and how many it has."""
        pieces = [self.embedder.split(text) for text in self.texts]
        return [evenly(some) for some in pieces], tuple(map(len, pieces))

    def _checked(self, reply: Vectors, pieces: Sequence[Sequence[str]], whole: tuple[int, ...]) -> Reply:
        fingerprint, count = self.embedder.fingerprint, sum(map(len, pieces))
        expected = (fingerprint.dimension,) if self.query else (count, fingerprint.dimension)
        vectors = np.asarray(reply, dtype=np.float64)
        if vectors.shape != expected or not np.isfinite(vectors).all():
            what = f"shape {vectors.shape}" if vectors.shape != expected else "numbers that are not finite"
            return EmbedderError(f"{fingerprint.key!r} returned {what}; expected finite numbers of shape {expected}")
        rows = _of_unit_length(vectors.reshape(count, fingerprint.dimension))
        return Embedded(rows, tuple(map(len, pieces)), whole)


EmbedReply: TypeAlias = Embedded | EmbedderError | Call


def _of_unit_length(rows: npt.NDArray[np.float64]) -> Vectors:
    """Return vectors as float32. The store keeps them in half precision, which ends at 65,504: long ones are scaled.

    Vectors of about unit length, as an `Embedder` should return them, stay what they are.
    """
    with np.errstate(over="ignore", under="ignore"):
        off = np.abs(np.linalg.norm(rows, axis=1) - 1) > UNIT_TOLERANCE
    if not off.any():
        return rows.astype(np.float32)
    found: Vectors = np.empty(rows.shape, np.float32)
    found[~off], found[off] = rows[~off], unit_length(rows[off])
    return found


def failure_of(embedder: Embedder, error: Exception) -> EmbedderError:
    """Return the error of an embedder as the report names it."""
    if isinstance(error, EmbedderError):
        return error
    failure = EmbedderError(f"{embedder.fingerprint.key!r} raised {type(error).__name__}: {error}")
    failure.__cause__ = error
    return failure
