"""The way from a question to its prompt: plan the window, recall, sum up, compose."""

import logging
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from math import inf

import numpy as np

from shared_core.events import Note
from shared_core.events.source import Watch
from shared_core.plugins.calls import Steps
from shared_core.prompt.assembler import Assembler
from shared_core.prompt.context import Context
from shared_core.prompt.hits import Hit
from shared_core.prompt.plan import Ask, Plan, Planner
from shared_core.recall.candidates import Reader, read_messages, shortlist
from shared_core.recall.rank import grounding_hits, with_grounding_hits
from shared_core.recall.reranking import RERANKED, Reranking
from shared_core.recall.scope import Filter, reading
from shared_core.recall.search import POOL_TOKENS, Searcher
from shared_core.records import Summary
from shared_core.session.checkout import Past
from shared_core.session.live import LiveSession, OutdatedError
from shared_core.summaries.rolling import LEFT_OUT, RollingSummary, WithSummary

LARGE_BATCH = 256
"""Texts embedded at a time by `index`, when no question waits."""

REPEATS = 8
"""How often the same text may be among the best. A question asked every day must not crowd out its answer."""

Progress = Callable[[int, int], None]

logger = logging.getLogger("shared_core")


@dataclass(frozen=True, slots=True)
class Recalled:
    """What recall adds to a prompt and its report.

    Attributes:
        hits: the messages that may be recalled, best first.
        notes: what could not be done.
        pending: how many messages have no vector yet.
        embedder: the key of the embedder whose vectors were used.
        stopped: why recall ends where it does.
    """

    hits: Sequence[Hit] = ()
    notes: Sequence[Note] = ()
    pending: int = 0
    embedder: str | None = None
    stopped: str = ""


class PromptBuilder:
    """Builds prompts, searches and indexes for one memory.

    Its steps are generators that yield a request where a model is needed, so that each is written once: `run_steps`
    answers the requests, and `arun_steps` awaits the answers.

    Args:
        live: the session.
        assembler: fills the budget.
        searcher: recalls messages.
        rolling: keeps the summary.
        lock: held while the session is read, and never while a request waits for its reply.
        until: seconds since 1970, after which nothing counts that was said in other sessions.
    """

    def __init__(
        self, live: LiveSession, assembler: Assembler, searcher: Searcher, rolling: RollingSummary,
        lock: AbstractContextManager[object], *, until: float = inf,
    ) -> None:  # fmt: skip
        self.live = live
        self.until = until
        self.assembler = assembler
        self.searcher = searcher
        self.rolling = rolling
        self.planner = Planner(live, assembler, searches_others=searcher.rules.scope == "user")
        self.reranking = Reranking(live, searcher.rules, lock)
        self._lock = lock

    def at(self, past: Past) -> "PromptBuilder":
        """Return a builder of prompts as they would have been then."""
        live = self.live.standing_at(past.position)
        return PromptBuilder(live, self.assembler, self.searcher, self.rolling, self._lock, until=past.time)

    # Prompts

    def steps(self, ask: Ask, watch: Watch | None = None) -> Steps[Context]:
        """Yield requests for vectors and summaries, and return the prompt.

        Raises:
            BudgetError: the messages that must be sent do not fit.
            EmbedderMismatchError: another embedder made the session's vectors.
        """
        while True:
            with self._lock:
                plan = self.planner.plan(ask)
            _mark(watch, "plan")
            with suppress(OutdatedError):  # if so, the plan may contain what was forgotten
                recalled = yield from self._recall_steps(plan, watch)
                _mark(watch, "recall")
                summed = WithSummary(plan.fixed, recalled.hits)
                if self.rolling.summarizer is not None and not plan.fits:
                    summed = yield from self.rolling.steps(plan, recalled.hits)
                    _mark(watch, "summary")
                return self._compose(plan, recalled, summed, watch)

    def _recall_steps(self, plan: Plan, watch: Watch | None) -> "Steps[Recalled]":
        """Yield requests for vectors and scores, and return what may be recalled; nothing if all of it fits.

        Raises:
            OutdatedError: something was forgotten since the plan was made.
        """
        question = plan.question
        room = self.assembler.room_for_recall(plan.fixed, plan.turns) if question.strip() else 0
        if plan.window is None:
            with self._lock:
                self.searcher.embedder.check()
        if plan.window is None or not room:
            return Recalled(stopped=self.assembler.off)
        wanted = Filter(plan.path, plan.position, plan.sent, repeats=REPEATS, in_conversation=True, as_of=self.until)
        found = yield from self.searcher.find(question, plan.state, wanted, room)
        if watch is not None:
            watch.searched(found)
        if self.searcher.rules.reranker is not None:
            found = yield from self.reranking.found_steps(question, found)
        with self._lock:
            rules, whole = self.searcher.rules, self.assembler.placement == "messages"
            hits, size = shortlist(found, room, None if whole else rules.excerpt_tokens)
            reader = Reader(
                self.live, found, plan.path, by_turn=rules.recall_unit == "turn", as_messages=whole,
                epoch=plan.state.epoch,
            )  # fmt: skip
            hits = reader.read(hits, question, size, follow=rules.min_score is None)
        return Recalled(hits, found.notes, found.pending, found.embedder, found.why)

    def _compose(self, plan: Plan, recalled: Recalled, summed: WithSummary, watch: Watch | None) -> Context:
        fixed, selection = self.assembler.settle(summed.fixed, plan.turns, summed.hits, summed.selection)
        dropped = (LEFT_OUT,) if summed.exists and fixed.summary is None else ()
        context = self.assembler.compose(
            fixed, selection, reserve=plan.ask.reserve, orphans=plan.orphans,
            notes=(*recalled.notes, *dropped, *summed.notes), pending=recalled.pending, embedder=recalled.embedder,
            stopped=recalled.stopped,
        )  # fmt: skip
        logger.debug("%s", context.report)
        if watch is not None:
            watch.mark("compose")
            watch.composed(context, selection, plan.question)
        return context

    def summary_steps(self, ask: Ask) -> Steps[Summary | None]:
        """Yield requests for summaries until everything that has left the window is summed up; return the newest one.

        Errors of the summarizer are passed on.
        """
        while True:
            with self._lock:
                plan = self.planner.plan(ask)
            with suppress(OutdatedError):
                if not plan.fits:
                    yield from self.rolling.steps(plan, [], urgent=True)
                with self._lock:
                    return self.rolling.newest(plan.path)

    # Search and index

    def search_steps(self, query: str, top_k: int, wanted: Filter, watch: Watch | None = None) -> Steps[list[Hit]]:
        """Yield requests for vectors and return the best messages. A blank query finds none."""
        if not query.strip():
            return []
        while True:
            with self._lock:
                state = self.live.sync()
            found = yield from self.searcher.find(query, state, wanted, room=POOL_TOKENS * top_k)
            if watch is not None:
                watch.searched(found)
            with self._lock:
                most = max(top_k, RERANKED)
                hits = found.ranked.hits(np.flatnonzero(~found.ranked.weak)[:most])
                with reading(found.scopes):
                    hits = with_grounding_hits(hits, grounding_hits(found.groups, found.scopes))[:most]
            if self.searcher.rules.reranker is not None and top_k:
                hits = (yield from self.reranking.hits_steps(query, found, hits)) or hits
            with self._lock, suppress(OutdatedError):  # if so, what was found may have been forgotten
                return read_messages(self.live, found, hits, top_k, state.epoch)

    def index_steps(self, progress: Progress) -> Steps[None]:
        """Yield requests for vectors until every message has one, and save snapshots.

        Raises:
            EmbedderError: the embedder failed; vectors made before that are stored.
        """
        self.searcher.backlog.settle()  # what is embedded in the background is not embedded twice
        with self._lock:
            scopes, rows = [], np.empty(0, dtype=np.int64)
            # Branches share messages. Each message is embedded once, and a branch without own messages is skipped.
            for scope in self.searcher.every_branch(self.live.sync()):
                new = np.setdiff1d(scope.pending(), rows)
                scopes += [scope] if len(new) else []
                rows = np.concatenate([rows, new])
            embedder, total = self.searcher.embedder.choice().embedder, len(rows)
        if embedder is not None:
            yield from self.searcher.backlog.steps(
                scopes, embedder, batch=LARGE_BATCH, store=True, progress=lambda done: progress(done, max(total, done))
            )
        for index in self.searcher.indexes.opened():
            for vectors in index.vectors:
                vectors.vectors.settle()
        with self._lock:
            self.searcher.indexes.save_snapshots(least=1)

    def close(self) -> None:
        """Save snapshots, and stop background work. What the embedder returns after that is not stored."""
        self.searcher.backlog.closed = True
        self.searcher.indexes.close()


def _mark(watch: Watch | None, stage: str) -> None:
    """Note that a stage has ended, if anybody wants to know."""
    if watch is not None:
        watch.mark(stage)
