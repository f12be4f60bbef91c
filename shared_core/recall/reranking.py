"""Let the caller's reranker order the best results, within a time limit and without ever failing a question."""

import asyncio
import inspect
import logging
import math
import os
import threading
import time
from collections.abc import Awaitable, Callable, Generator, Sequence
from concurrent.futures import Future, wait
from contextlib import AbstractContextManager
from contextvars import copy_context
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeAlias, TypeVar

import numpy as np

from shared_core.errors import InfiniteMemoryError
from shared_core.events import Note
from shared_core.messages import Message
from shared_core.plugins.base import RerankerModel
from shared_core.plugins.reranker import AnyReranker
from shared_core.prompt.hits import Hit, Place
from shared_core.recall.excerpts import excerpt
from shared_core.recall.rules import RecallRules
from shared_core.recall.scope import records_in
from shared_core.recall.search import Found
from shared_core.records import Record
from shared_core.runtime.threads import in_background
from shared_core.session.live import LiveSession

RERANKED = 30
"""How many of the best results a reranker sees. The others keep their ranks."""

logger = logging.getLogger("shared_core")


class LateCall:
    """The call of a reranker that was given up and goes on in the background; while it does, no other is made."""

    def __init__(self) -> None:
        self._call: Future[Any] | None = None
        self._pid = os.getpid()

    def keep(self, call: "Future[Any]") -> None:
        """Note a call that was given up."""
        self._call, self._pid = call, os.getpid()

    @property
    def runs(self) -> bool:
        """Whether it still runs. A fork does not copy the thread that it runs in."""
        return self._call is not None and not self._call.done() and self._pid == os.getpid()


@dataclass(frozen=True, slots=True)
class RerankFailure:
    """Why there are no scores, as the end of a note for the report."""

    reason: str


BUSY = RerankFailure("the reranker still works on an earlier question")


@dataclass(frozen=True, slots=True)
class RerankRequest:
    """Texts that need scores. The sync memory answers with `answer`, the async one with `aanswer`.

    Attributes:
        reranker: what returns the scores.
        query: the question.
        texts: the texts, best first.
        budget_ms: how long the question may wait, in milliseconds.
        late: the call of an earlier question.
        clock: returns seconds, which only ever grow.
    """

    reranker: AnyReranker
    query: str
    texts: tuple[str, ...]
    budget_ms: float
    late: LateCall
    clock: Callable[[], float] = time.monotonic

    def answer(self) -> "RerankReply":
        """Return the scores, or why there are none. The reranker runs in a thread, as it may take too long."""
        if self.late.runs:
            return BUSY
        deadline = self._deadline()
        call = self._begin(self._whole)
        wait([call], self._left(deadline))
        if not call.done():
            self.late.keep(call)
            return self._too_late()
        try:
            reply = call.result()
        except Exception as error:  # no error of a plug-in may end a chat; the report names it
            return _failure(error)
        return self._checked(reply, deadline)

    async def aanswer(self) -> "RerankReply":
        """Like `answer`, without blocking the event loop."""
        if self.late.runs:
            return BUSY
        deadline = self._deadline()
        try:
            async with asyncio.timeout(self._left(deadline)) as limit:
                reply = await self._awaited()
        except Exception as error:  # as above
            return self._too_late() if limit.expired() else _failure(error)
        return self._checked(reply, deadline)

    async def _awaited(self) -> Any:
        if isinstance(self.reranker, RerankerModel):
            return await self.reranker.rerank(self.query, list(self.texts))
        # In the thread, a coroutine function only creates its coroutine, which is awaited here.
        call = self._begin(partial(self.reranker, self.query, list(self.texts)))
        try:
            reply = await asyncio.wrap_future(call)
        except asyncio.CancelledError:
            self.late.keep(call)
            call.add_done_callback(_discard)
            raise
        return await reply if isinstance(reply, Awaitable) else reply

    def _whole(self) -> Any:
        reply: Any = self.reranker(self.query, list(self.texts))
        return asyncio.run(_result_of(reply)) if isinstance(reply, Awaitable) else reply

    def _begin(self, function: Callable[[], Any]) -> "Future[Any]":
        # Tracing and callbacks of frameworks are in the context.
        return in_background(partial(copy_context().run, function), "infinite-memory reranker")

    def _deadline(self) -> float:
        return self.clock() + self.budget_ms / 1000

    def _left(self, deadline: float) -> float | None:
        """Return the seconds until the deadline; None: more than a thread can wait for."""
        left = max(0.0, deadline - self.clock())
        return left if left < threading.TIMEOUT_MAX else None

    def _too_late(self) -> RerankFailure:
        return RerankFailure(
            f"the reranker returned nothing within rerank_budget_ms={self.budget_ms:g}; a model that is still loading "
            "will be ready for a later question"
        )

    def _checked(self, reply: Any, deadline: float) -> "RerankReply":
        if self.clock() > deadline:
            return self._too_late()
        try:
            scores = np.asarray(reply, dtype=np.float64)
        except Exception as error:  # as above: what the reply does to become numbers is its own
            return RerankFailure(f"the reranker returned {type(reply).__name__}, not a list of numbers: {error}")
        if scores.ndim == 0:
            return RerankFailure(f"the reranker returned {type(reply).__name__}, not a list of numbers")
        if scores.shape != (len(self.texts),):
            found = f"{len(scores)} scores" if scores.ndim == 1 else f"an array of the shape {scores.shape}"
            return RerankFailure(f"the reranker returned {found} for {len(self.texts)} texts")
        if np.isnan(scores).any() or (scores == np.inf).any():
            return RerankFailure("the reranker returned NaN or infinity as a score")
        return tuple(scores.tolist())


RerankReply: TypeAlias = tuple[float, ...] | RerankFailure
Result = TypeVar("Result")
RerankSteps: TypeAlias = Generator[RerankRequest, RerankReply, Result]


def _failure(error: Exception) -> RerankFailure:
    own = isinstance(error, InfiniteMemoryError)
    return RerankFailure(str(error) if own else f"the reranker raised {type(error).__name__}: {error}")


def _discard(call: "Future[Any]") -> None:
    """Close the coroutine that nobody awaits any more; otherwise Python warns of it."""
    if call.exception() is None and inspect.iscoroutine(call.result()):
        call.result().close()


async def _result_of(reply: Awaitable[Any]) -> Any:
    return await reply


def order_of(scores: Sequence[float]) -> list[int]:
    """Return the indices of scores, the highest first; equal ones keep their order."""
    return sorted(range(len(scores)), key=lambda index: -scores[index])


class Reranking:
    """Orders the best results with the reranker, if there is one. Its arguments are parts of the memory.

    Attributes:
        clock: measures how long a question waits.
    """

    def __init__(self, live: LiveSession, rules: RecallRules, lock: AbstractContextManager[object]) -> None:
        self.clock: Callable[[], float] = time.monotonic
        self._live = live
        self._rules = rules
        self._lock = lock
        self._late = LateCall()
        self._logged = False

    def found_steps(self, query: str, found: Found) -> RerankSteps[Found]:
        """Yield a request for scores, and return what was found in the new order, or as it is with a note.

        The results that are worth their tokens stay as many as they were: what the reranker puts first is recalled
        instead of what it puts last. If nothing is worth its tokens, the reranker is not asked.
        """
        if found.verdict is not None and not found.verdict.worth:
            return found
        which = np.flatnonzero(~found.ranked.weak)[:RERANKED]
        scores = yield from self._scores(query, found, found.ranked.hits(which))
        if isinstance(scores, RerankFailure):
            return replace(found, notes=(*found.notes, self._note(scores)))
        if scores:
            ranked = found.ranked.reordered(which, np.array(order_of(scores)), scores)
            return replace(found, ranked=ranked)
        return found

    def hits_steps(self, query: str, found: Found, hits: Sequence[Hit]) -> RerankSteps[list[Hit] | None]:
        """Yield a request for scores, and return hits in the new order; None if the reranker failed.

        Each hit takes the score of its new rank, because scores of two rankings cannot be compared.
        """
        best = hits[:RERANKED]
        scores = yield from self._scores(query, found, best)
        if isinstance(scores, RerankFailure):
            self._note(scores)
            return None
        if not scores:
            return list(hits)
        ordered = [best[index]._replace(reranked=reported(scores[index])) for index in order_of(scores)]
        ranked = [one._replace(score=rank.score) for one, rank in zip(ordered, best, strict=True)]
        return [*ranked, *hits[RERANKED:]]

    def _scores(self, query: str, found: Found, best: Sequence[Hit]) -> RerankSteps[RerankReply]:
        """Return a score for each result; none if there is nothing to order."""
        if self._rules.reranker is None or len(best) < 2:
            return ()
        with self._lock:
            texts = passages(self._live, self._rules, found, best)
        reply = yield RerankRequest(
            self._rules.reranker, query, tuple(texts), self._rules.rerank_budget_ms, self._late, self.clock
        )
        return reply

    def _note(self, failure: RerankFailure) -> Note:
        """Return the note for the report. The first one is logged, too, because a search has no report."""
        note = Note(f"not reranked: {failure.reason}", "not_reranked")
        if not self._logged:
            self._logged = True
            logger.warning("%s", note)
        return note


def reported(score: float) -> float | None:
    """Return a reranker's score for the report; None for minus infinity, which JSON has not."""
    return score if math.isfinite(score) else None


def passages(live: LiveSession, rules: RecallRules, found: Found, best: Sequence[Hit]) -> list[str]:
    """Return the text of each result, as recall shows it beside the question: an excerpt, or all of a short message.

    A cross-encoder reads the beginning of a text only, 512 tokens at most, and its time grows with the length. The
    passage around the question's words is what the model would be shown, and the speaker tells who "I" is. A turn is
    the lines of its messages. A message that was found by its grounding has its grounding, too.
    """
    units = [(one, _members(found, one)) for one in best]
    places = [place for _, members in units for place in members]
    records = records_in(found.scopes, places, live.records_of)
    texts = []
    for one, members in units:
        there = [records[place] for place in members if place in records]
        shown = [record for record in there if len(members) == 1 or _is_shown(record.message)]
        texts.append("\n".join(_line(live, rules, found.stems, record, grounded=one.grounding) for record in shown))
    return texts


def _members(found: Found, one: Hit) -> list[Place]:
    number, index = one.place
    return [one.place] if one.grounding else [(number, member) for member in found.scopes[number].members(index)]


def _is_shown(message: Message) -> bool:
    """Return whether recall shows a message of a turn."""
    return bool(message.content.strip()) and message.role != "tool"


def _line(live: LiveSession, rules: RecallRules, words: Sequence[str], record: Record, *, grounded: bool) -> str:
    message = record.message.grounded if grounded else record.message
    text, size, counter = message.content, rules.excerpt_tokens, live.sizer.counter
    if size is not None:
        tokens = counter(text) if grounded else live.sizer.tokens(record) - message.media_tokens
        text = excerpt(text, words, size, counter, tokens) or text
    return f"{' '.join((message.name or message.role).split())}: {text}"
