"""Let the caller's reranker order the best results, within a time limit and without ever failing a question."""

import logging
import math
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from shared_core.errors import RerankerError
from shared_core.events import Note
from shared_core.messages import Message
from shared_core.plugins import calls
from shared_core.plugins.base import Reranker
from shared_core.plugins.calls import Failure, Late, Request, Steps
from shared_core.prompt.hits import Hit, Place
from shared_core.recall.excerpts import excerpt
from shared_core.recall.scope import records_in
from shared_core.recall.search import Found
from shared_core.recall.settings import RecallRules
from shared_core.records import Record
from shared_core.session.live import LiveSession

RERANKED = 30
"""How many of the best results a reranker sees. The others keep their ranks."""

logger = logging.getLogger("shared_core")


def order_of(scores: Sequence[float]) -> list[int]:
    """Return the indices of scores, the highest first; equal ones keep their order."""
    return sorted(range(len(scores)), key=lambda index: -scores[index])


class Reranking:
    """Orders the best results with the reranker, if there is one. Its arguments are parts of the memory."""

    def __init__(self, live: LiveSession, rules: RecallRules, lock: AbstractContextManager[object]) -> None:
        self._live = live
        self._rules = rules
        self._lock = lock
        self._late: Late[Any] | None = None
        self._logged = False

    def found_steps(self, query: str, found: Found) -> Steps[Found]:
        """Yield a request for scores, and return what was found in the new order, or as it is with a note.

        The results that are worth their tokens stay as many as they were: what the reranker puts first is recalled
        instead of what it puts last. If nothing is worth its tokens, the reranker is not asked.
        """
        if found.verdict is not None and not found.verdict.worth:
            return found
        which = np.flatnonzero(~found.ranked.weak)[:RERANKED]
        scores = yield from self._scores(query, found, found.ranked.hits(which))
        if isinstance(scores, Note):
            return replace(found, notes=(*found.notes, scores))
        if scores:
            ranked = found.ranked.reordered(which, np.array(order_of(scores)), scores)
            return replace(found, ranked=ranked)
        return found

    def hits_steps(self, query: str, found: Found, hits: Sequence[Hit]) -> Steps[list[Hit] | None]:
        """Yield a request for scores, and return hits in the new order; None if the reranker failed.

        Each hit takes the score of its new rank, because scores of two rankings cannot be compared.
        """
        best = hits[:RERANKED]
        scores = yield from self._scores(query, found, best)
        if isinstance(scores, Note):
            return None
        if not scores:
            return list(hits)
        ordered = [best[index]._replace(reranked=reported(scores[index])) for index in order_of(scores)]
        ranked = [one._replace(score=rank.score) for one, rank in zip(ordered, best, strict=True)]
        return [*ranked, *hits[RERANKED:]]

    def _scores(self, query: str, found: Found, best: Sequence[Hit]) -> Steps[tuple[float, ...] | Note]:
        """Return a score for each result; none if there is nothing to order; or why the order stays as it is."""
        if self._rules.reranker is None or len(best) < 2:
            return ()
        if self._late is not None and self._late.runs:
            return self._note("the reranker still works on an earlier question")
        with self._lock:
            texts = passages(self._live, self._rules, found, best)
        reply: Any = yield _scores_request(self._rules.reranker, query, texts)
        if isinstance(reply, Late):
            self._late = reply
            return self._note("the reranker returned nothing in time; a model that is loading will be ready later")
        return self._note(str(reply)) if isinstance(reply, Failure) else reply

    def _note(self, why: str) -> Note:
        """Return the note for the report. The first one is logged, too, because a search has no report."""
        note = Note(f"not reranked: {why}", "not_reranked")
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


def _scores_request(reranker: Reranker, query: str, texts: list[str]) -> Request[tuple[float, ...]]:
    """Return a request for the score of each text, which a question waits for no longer than it may."""
    return Request(
        "reranker", partial(reranker, query, texts), partial(_checked, len(texts)), texts=len(texts),
        seconds=calls.SECONDS,
    )  # fmt: skip


def _checked(count: int, reply: Any) -> tuple[float, ...]:
    try:
        scores = np.asarray(reply, dtype=np.float64)
    except Exception as error:  # a plug-in: what its reply does to become numbers is its own
        raise RerankerError(f"the reranker returned {type(reply).__name__}, not a list of numbers: {error}") from error
    if scores.ndim == 0:
        raise RerankerError(f"the reranker returned {type(reply).__name__}, not a list of numbers")
    if scores.shape != (count,):
        found = f"{len(scores)} scores" if scores.ndim == 1 else f"an array of the shape {scores.shape}"
        raise RerankerError(f"the reranker returned {found} for {count} texts")
    if np.isnan(scores).any() or (scores == np.inf).any():
        raise RerankerError("the reranker returned NaN or infinity as a score")
    return tuple(scores.tolist())
