"""The way from a question to its prompt: plan the window, recall, sum up, compose."""

import logging
from collections.abc import Callable, Generator, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, replace
from math import inf
from typing import Any, TypeAlias, TypeVar

import numpy as np

from shared_core.events.source import Watch
from shared_core.messages import Message
from shared_core.plugins.calls import EmbedReply, EmbedRequest
from shared_core.prompt.abridged import tokens_without_media, with_results
from shared_core.prompt.assembler import Assembler
from shared_core.prompt.context import Context
from shared_core.prompt.frame import Frame
from shared_core.prompt.hits import Hit
from shared_core.prompt.window import SKIP_LIMIT, Window
from shared_core.recall.embedding import EmbedderChoice
from shared_core.recall.rank import grounding_hits, with_grounding_hits
from shared_core.recall.read import Reader, read_messages, shortlist
from shared_core.recall.reranking import RERANKED, Reranking, RerankReply, RerankRequest
from shared_core.recall.scope import Filter, reading
from shared_core.recall.search import POOL_TOKENS, Found, Searcher
from shared_core.records import Position, SessionState, Summary
from shared_core.session.live import PAGE, LiveSession, OutdatedError
from shared_core.session.past import Past
from shared_core.session.paths import Path
from shared_core.session.system_prompt import FRONT, is_prompt
from shared_core.session.turns import Entry, Turn, group_turns, turns_before
from shared_core.summaries.requests import SummaryReply, SummaryRequest
from shared_core.summaries.rolling import LEFT_OUT, PromptInputs, RollingSummary, SummarizedInputs
from shared_core.tokens import tools_tokens

LARGE_BATCH = 256
"""Texts embedded at a time by `index`, when no question waits."""

REPEATS = 8
"""How often the same text may be among the best. A question asked every day must not crowd out its answer."""

BEFORE_ALL = -1
"""The index on the path of what comes before its first message."""

READ_AHEAD = 1.125
"""The tokens of newest messages that are read, per token of the budget."""

Result = TypeVar("Result")
Progress = Callable[[int, int], None]
Request: TypeAlias = EmbedRequest | RerankRequest | SummaryRequest
Reply: TypeAlias = EmbedReply | RerankReply | SummaryReply
Steps: TypeAlias = Generator[Request, Reply, Result]
AskSteps = Steps[Context]
IndexSteps = Steps[None]
SearchSteps = Steps[list[Hit]]
SummarySteps = Steps[Summary | None]

logger = logging.getLogger("shared_core")


@dataclass(frozen=True, slots=True)
class Ask:
    """One call of `context`.

    Attributes:
        question: the question. None: the newest user message.
        max_tokens: the model's context limit.
        reserve: the tokens kept free for the reply.
        tools: the tool schemas that are sent with the prompt.
        shown: whether the prompt contains the question, and what answers it so far.
        system: the system prompt that is a setting; empty: there is none.
        watch: notes what is done for it. None: nobody wants to know.
    """

    question: Message | None
    max_tokens: int
    reserve: int
    tools: Sequence[Any] = ()
    shown: bool = True
    system: str = ""
    watch: Watch | None = None


@dataclass(frozen=True, slots=True)
class Plan:
    """The decisions that are made before recall.

    Attributes:
        state: the session's state at that time.
        path: the path at that time. Another thread may check out another one in the meantime.
        asked: what must be sent, as `Framer.frame` returned it.
        turns: past turns, newest first: more than fit, or all.
        base: the window that is left beside recalled messages. None: everything fits, and recall searches no other
            session.
        before: the position of the question. None: it is not stored.
        alone: replies without their user message.
        fits: whether all past turns fit beside what must be sent.
        summaries: the summaries of the path, if some past turns do not fit.
    """

    state: SessionState
    path: Path
    asked: Frame
    turns: tuple[Turn, ...]
    base: Window | None
    before: Position | None
    alone: tuple[Entry, ...]
    fits: bool
    summaries: tuple[Summary, ...]

    @property
    def question(self) -> str:
        """The text of the question; empty if there is none."""
        return self.asked.question.message.content if self.asked.question is not None else ""

    @property
    def end(self) -> int:
        """The question's index on the path."""
        return self.path.index_of(self.before) if self.before is not None else self.path.spans[-1].last + 1

    def prompt_inputs(self, candidates: Sequence[Hit]) -> PromptInputs:
        """Return what a summary is chosen for."""
        return PromptInputs(self.path, self.state.epoch, self.asked, self.turns, candidates, self.end)


class PromptBuilder:
    """Builds prompts, searches and indexes for one memory. Its steps yield requests instead of waiting for a model.

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
        self.reranking = Reranking(live, searcher.rules, lock)
        self._lock = lock
        self._turns: dict[str, Turn] = {}

    def at(self, past: Past) -> "PromptBuilder":
        """Return a builder of prompts as they would have been then."""
        live = self.live.standing_at(past.position)
        return PromptBuilder(live, self.assembler, self.searcher, self.rolling, self._lock, until=past.time)

    # Prompts

    def steps(self, ask: Ask) -> AskSteps:
        """Yield requests for vectors and summaries, and return the prompt.

        Raises:
            BudgetError: the messages that must be sent do not fit.
            EmbedderMismatchError: another embedder made the session's vectors.
        """
        while True:
            with self._lock:
                plan = self._plan(ask)
            _mark(ask.watch, "plan")
            try:
                found, candidates = yield from self._recall_steps(ask, plan)
            except OutdatedError:
                continue  # the plan may contain what was forgotten
            _mark(ask.watch, "recall")
            summed: SummarizedInputs | None = SummarizedInputs(plan.asked, candidates)
            if self.rolling.rules.summarizer is not None and not plan.fits:
                summed = yield from self.rolling.steps(plan.prompt_inputs(candidates), plan.summaries)
                _mark(ask.watch, "summary")
            if summed is not None:  # None: something was forgotten, as above
                return self._compose(ask, plan, found, summed)

    def _recall_steps(self, ask: Ask, plan: Plan) -> "Steps[tuple[Found | None, list[Hit]]]":
        """Yield requests for vectors and scores, and return what may be recalled; nothing if all of it fits.

        Raises:
            OutdatedError: something was forgotten since the plan was made.
        """
        question = plan.question
        room = self.assembler.room_for_recall(plan.asked, plan.turns) if question.strip() else 0
        if plan.base is None:
            with self._lock:
                self.searcher.sessions.check()
        if plan.base is None or not room:
            return None, []
        wanted = Filter(
            plan.path, plan.before, _turns_in_prompt(plan.base, plan.asked), repeats=REPEATS,
            in_conversation=True, as_of=self.until,
        )  # fmt: skip
        found = yield from self.searcher.find(question, plan.state, wanted, room)
        if ask.watch is not None:
            ask.watch.searched(found)
        if self.searcher.rules.reranker is not None:
            found = yield from self.reranking.found_steps(question, found)
        with self._lock:
            rules, whole = self.searcher.rules, self.assembler.placement == "messages"
            hits, size = shortlist(found, room, None if whole else rules.excerpt_tokens)
            reader = Reader(
                self.live, found, plan.path, by_turn=rules.recall_unit == "turn", as_messages=whole,
                epoch=plan.state.epoch,
            )  # fmt: skip
            return found, reader.read(hits, question, size, follow=rules.min_score is None)

    def _compose(self, ask: Ask, plan: Plan, found: Found | None, summed: SummarizedInputs) -> Context:
        frame, selection = self.assembler.settle(summed.frame, plan.turns, summed.candidates)
        dropped = (LEFT_OUT,) if summed.frame.summary is not None and frame.summary is None else ()
        context = self.assembler.compose(
            frame, selection, reserve=ask.reserve, orphans=plan.alone,
            notes=(*(found.notes if found else ()), *summed.notes, *dropped), pending=found.pending if found else 0,
            embedder=found.embedder if found else None, stopped=found.verdict.why if found and found.verdict else "",
        )  # fmt: skip
        logger.debug("%s", context.report)
        if ask.watch is not None:
            ask.watch.mark("compose")
            ask.watch.composed(context, selection, plan.question)
        return context

    def summary_steps(self, ask: Ask) -> SummarySteps:
        """Yield requests for summaries until everything that has left the window is summed up; return the newest one.

        Errors of the summarizer are passed on.
        """
        while True:
            with self._lock:
                plan = self._plan(ask)
            if not plan.fits:
                summed = yield from self.rolling.steps(plan.prompt_inputs([]), plan.summaries, urgent=True)
                if summed is None:
                    continue
            with self._lock:
                return self.rolling.newest(plan.path)

    # The plan

    def _plan(self, ask: Ask) -> Plan:
        state = self.live.sync(PAGE)
        budget = ask.max_tokens - ask.reserve
        # The beginning of the oldest turn that is read may be missing. Reading ahead makes that turn seldom needed.
        needed = int(READ_AHEAD * budget) if self.assembler.fill != "skip" else SKIP_LIMIT * budget
        while True:
            entries, whole = self.live.tail(needed + 1)
            turns = group_turns(entries, self._turns)
            self._turns = {turn.turn_id: turn for turn in turns}
            # Until the newest user message is read, neither the question nor the messages sent with it are known.
            if whole or any(turn.asks for turn in turns):
                plan = self._plan_over(ask, budget, state, turns, whole=whole)
                # Turns that cannot be sent take no room, so the budget may need more of the past than expected.
                room = plan.asked.open - plan.asked.bare
                if whole or tokens_without_media(plan.turns) > room:
                    return plan
            needed = 2 * sum(entry.tokens for entry in entries) + 1

    def _plan_over(self, ask: Ask, budget: int, state: SessionState, turns: Sequence[Turn], *, whole: bool) -> Plan:
        framer = self.assembler.framer
        current, stored = self._current(ask, turns)
        tools = tools_tokens(ask.tools, framer.counter)
        stays = self._stays(ask, current)
        pinned = {entry.message.turn_id for entry in stays}
        past = [turn for turn in reversed(turns) if turn is not stored and turn.turn_id not in pinned]
        older, unsent = turns_before(past, current, self.assembler.size)
        asked = framer.frame(budget=budget, tools=tools, stays=stays, current=current, shown=ask.shown)
        base, fits = None, self.assembler.window(asked, older).reaches_all
        if self.searcher.rules.scope == "user" or not fits:
            base = self.assembler.window(asked, older, recall=self.assembler.room_for_recall(asked, older))
        if fits and not self.live.replaced:  # the system prompt has room where it was said, if that was in mid-talk
            said = {entry.message.id: entry for entry in self.live.prompt() if entry.turn_no >= 0}
            asked = replace(asked, stays=tuple(said.get(entry.message.id, entry) for entry in asked.stays))
        before = self.live.path.at(stored.entries[0].order) if stored is not None else None
        alone = tuple(entry for turn in unsent if whole for entry in turn.entries)
        plan = Plan(state, self.live.path, asked, tuple(older), base, before, alone, fits, ())
        if fits or self.rolling.rules.summarizer is None:
            return plan
        return replace(plan, summaries=self.rolling.versions(plan.path, plan.end))

    def _stays(self, ask: Ask, current: Turn | None) -> list[Entry]:
        """Return the messages of every prompt: the system prompt, where a setting replaces a stored one, and pins."""
        stays = self.live.stays_beside(current.turn_id if current is not None else None)
        if not ask.system:
            return stays
        message = Message.system(ask.system)
        pinned = [entry for entry in stays if not is_prompt(entry.message)]
        return [Entry(message, self.assembler.size(message), FRONT, BEFORE_ALL), *pinned]

    def _current(self, ask: Ask, turns: Sequence[Turn]) -> tuple[Turn | None, Turn | None]:
        """Return the turn that is being answered, and the stored turn it is (None: the question is not stored)."""
        newest = next((turn for turn in reversed(turns) if turn.asks), None)
        question = ask.question
        if question is None:
            return (self._pending(newest), newest) if newest else (None, None)
        if newest is not None and not newest.answered and newest.entries[0].message.content == question.content:
            current = self._pending(newest)
            if question.grounding is not None:
                first = current.entries[0]
                grounded = replace(first, message=first.message.replace(grounding=question.grounding))
                current = replace(current, entries=(grounded, *current.entries[1:]))
            return current, newest
        turn_no = (turns[-1].turn_no if turns else -1) + 1
        tokens = self.assembler.size(question)
        order = self.live.path.head.depth + 1
        return Turn("", turn_no, (Entry(question, tokens, turn_no, order),)), None

    def _pending(self, turn: Turn) -> Turn:
        """Return the turn that is being answered, with its results whole: the model has asked for them."""
        return with_results(turn.whole(self.assembler.size, pending=True), self.assembler.size)

    # Search and index

    def search_steps(self, query: str, top_k: int, wanted: Filter, watch: Watch | None = None) -> SearchSteps:
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

    def index_steps(self, progress: Progress | None) -> IndexSteps:
        """Yield requests for vectors until every message has one, and save snapshots.

        Raises:
            EmbedderError: the embedder failed; vectors made before that are stored.
        """
        self.searcher.late.settle()  # a batch that a question gave up is not embedded twice
        with self._lock:
            scopes, rows = [], np.empty(0, dtype=np.int64)
            # Branches share messages. Each message is embedded once, and a branch without own messages is skipped.
            for scope in self.searcher.every_branch(self.live.sync()):
                new = np.setdiff1d(self.searcher.pending(scope), rows)
                scopes += [scope] if len(new) else []
                rows = np.concatenate([rows, new])
            embedder, total = self.searcher.sessions.embedder_choice().embedder, len(rows)
        done = 0
        for scope in scopes:
            before = done

            def report(count: int, before: int = before) -> None:
                nonlocal done
                done = before + count
                if progress is not None:
                    progress(done, max(total, done))

            if embedder is not None:
                yield from self.searcher.embed_pending(
                    [scope], embedder, batch=LARGE_BATCH, progress=report, store=True
                )
        for index in self.searcher.sessions.opened():
            for vectors in index.vectors:
                vectors.vectors.settle()
        with self._lock:
            self.save_snapshots(least=1)

    # Snapshots

    def close(self, *, least: int) -> None:
        """Save snapshots, and stop background work. What the embedder returns after that is not stored."""
        self.searcher.late.closed = True
        try:
            self.save_snapshots(least=least)
        finally:
            self.searcher.sessions.close()

    def rest(self, *, least: int, unread: int) -> None:
        """Let the indexes go until this memory is used again, and save snapshots that are due in the background."""
        self.searcher.sessions.rest(least, unread)

    def refresh_and_save(self, *, least: int) -> None:
        """Update the session's index, if it is in memory, and save its snapshot."""
        state = self.live.sync()
        if self.searcher.sessions.is_open:
            self.searcher.sessions.open(state, EmbedderChoice(None))
        self.save_snapshots(least=least)

    def save_vectors(self) -> None:
        """Store the vectors that questions have made. If that fails, they stay in memory until the next call."""
        self.searcher.sessions.save_vectors()

    def save_snapshots(self, *, least: int) -> None:
        """Save the indexes in memory that have grown by `least` rows, or whose snapshots were damaged."""
        self.save_vectors()
        for index in self.searcher.sessions.opened():
            index.save_snapshots(least, self.searcher.sessions.saved)


def _mark(watch: Watch | None, stage: str) -> None:
    """Note that a stage has ended, if anybody wants to know."""
    if watch is not None:
        watch.mark(stage)


def _turns_in_prompt(window: Window, frame: Frame) -> tuple[str, ...]:
    stays = {entry.message.turn_id for entry in frame.stays}
    return tuple({turn.turn_id for turn in window.kept} | {turn for turn in stays if turn})
