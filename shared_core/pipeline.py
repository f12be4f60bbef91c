"""From a question to its prompt: plan the window, recall, sum up, compose."""

from collections.abc import Callable, Generator, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, replace
from typing import Any, TypeAlias, TypeVar

import numpy as np

from shared_core.errors import StoreError
from shared_core.index.session_vectors import SessionVectors
from shared_core.messages import Message
from shared_core.prompt.assembler import Assembler
from shared_core.prompt.context import Context
from shared_core.prompt.frame import Frame
from shared_core.prompt.window import SKIP_LIMIT, Candidate, Window
from shared_core.recall.candidates import read_candidates, read_hits
from shared_core.recall.embedding import Dense, EmbedReply, EmbedRequest
from shared_core.recall.embedding import aanswer as aembed
from shared_core.recall.embedding import answer as embed
from shared_core.recall.ranking import ScoredMessage
from shared_core.recall.scope import Filter
from shared_core.recall.search import POOL_TOKENS, Found, Searcher
from shared_core.records import Position, SessionState, Summary
from shared_core.session import LiveSession
from shared_core.summaries.requests import SummaryReply, SummaryRequest, asummarize, summarize
from shared_core.summaries.rolling import LEFT_OUT, Rolling, Scene, Summed
from shared_core.tokens import message_tokens, tools_tokens
from shared_core.tree.paths import Path
from shared_core.turns import Entry, Turn, group_turns

__all__ = [
    "Ask",
    "AskSteps",
    "IndexSteps",
    "Plan",
    "Progress",
    "PromptBuilder",
    "Reply",
    "Request",
    "SearchSteps",
    "Steps",
    "SummarySteps",
    "aanswer",
    "answer",
    "drive",
]


@dataclass(frozen=True, slots=True)
class Ask:
    """One call of `context`.

    Attributes:
        question: what is asked; None: the newest user message.
        max_tokens: the model's limit.
        reserve: tokens kept free for the reply.
        tools: schemas to charge.
        shown: whether the question, and what answers it so far, is part of the prompt.
    """

    question: Message | None
    max_tokens: int
    reserve: int
    tools: Sequence[Any] = ()
    shown: bool = True


@dataclass(frozen=True, slots=True)
class Plan:
    """What is decided before anything is recalled.

    Attributes:
        state: of the session, when this was decided.
        path: the line of conversation then; another thread may move on meanwhile.
        asked: `Framer.frame`.
        turns: past turns, newest first, more than fit or all there are.
        base: the window beside recalled messages; None if everything fits and nothing is to be found elsewhere.
        before: the question's place, None if it is not stored.
        alone: replies without their user message.
        fits: whether all past turns fit beside what must be sent.
        summaries: those of what came before, if some of that does not fit.
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
    def end(self) -> int:
        """The place of the question, counted from the root."""
        return self.path.place(self.before) if self.before is not None else self.path.spans[-1].last + 1

    def scene(self, ask: Ask, candidates: Sequence[Candidate]) -> Scene:
        """Return what a summary is chosen for."""
        return Scene(self.path, self.state.epoch, self.asked, self.turns, candidates, self.end, ask.shown)


Result = TypeVar("Result")

Request: TypeAlias = EmbedRequest | SummaryRequest
Reply: TypeAlias = EmbedReply | SummaryReply
Steps: TypeAlias = Generator[Request, Reply, Result]


def answer(request: Request) -> Reply:
    """Ask the model that a request is for."""
    return summarize(request) if isinstance(request, SummaryRequest) else embed(request)


async def aanswer(request: Request) -> Reply:
    """Do the same without blocking the event loop."""
    return await (asummarize(request) if isinstance(request, SummaryRequest) else aembed(request))


def drive(steps: Steps[Result]) -> Result:
    """Answer all that some steps ask for and return their result."""
    try:
        request = next(steps)
        while True:
            request = steps.send(answer(request))
    except StopIteration as stop:
        result: Result = stop.value
        return result


LARGE_BATCH = 256
"""Texts embedded at a time while nobody waits."""

REPEATS = 8
"""How often the same may be among the best: a question asked every day must not keep its answer out."""

READ_AHEAD = 1.125
"""Tokens of the newest messages that are looked at, for each of the budget."""

Progress = Callable[[int, int], None]
AskSteps = Steps[Context]
IndexSteps = Steps[None]
SearchSteps = Steps[list[ScoredMessage]]
SummarySteps = Steps[Summary | None]


class PromptBuilder:
    """Builds prompts for one memory; its arguments are the memory's collaborators."""

    def __init__(
        self, live: LiveSession, assembler: Assembler, recaller: Searcher, rolling: Rolling,
        lock: AbstractContextManager[object],
    ) -> None:  # fmt: skip
        self.live = live
        self.assembler = assembler
        self.searcher = recaller
        self.rolling = rolling
        self._lock = lock

    def steps(self, ask: Ask) -> AskSteps:
        """Yield requests for vectors and summaries and return the prompt.

        Raises:
            BudgetError, MessageTooLargeError: what must be sent does not fit.
            EmbedderMismatchError: the session's vectors are another embedder's.
        """
        while True:
            with self._lock:
                plan = self._plan(ask)
            question = plan.asked.question.message.content if plan.asked.question is not None else ""
            room = self.assembler.room_for_recall(plan.asked, plan.turns) if question.strip() else 0
            found: Found | None = None
            candidates: list[Candidate] = []
            if plan.base is None:
                with self._lock:
                    self.searcher.sessions.check()
            elif room:
                wanted = Filter(plan.path, plan.before, self._in_prompt(plan.base, plan.asked), repeats=REPEATS)
                found = yield from self.searcher.find(question, plan.state, wanted, room)
                with self._lock:
                    if self.live.sync().epoch != plan.state.epoch:
                        continue  # something was forgotten meanwhile: nothing decided before may be used
                    candidates = read_candidates(
                        self.live, self.searcher, found, path=plan.path, question=question, room=room,
                        placement=self.assembler.placement,
                    )  # fmt: skip
            summed: Summed | None = Summed(plan.asked, candidates)
            if self.rolling.rules.summarizer is not None and not plan.fits:
                summed = yield from self.rolling.steps(plan.scene(ask, candidates), plan.summaries)
            if summed is not None:  # else as above
                return self._compose(ask, plan, found, summed)

    def summary_steps(self, ask: Ask) -> SummarySteps:
        """Yield requests for summaries until all is summed up that has left the window, and return the newest.

        What the summarizer raises is passed on.
        """
        while True:
            with self._lock:
                plan = self._plan(ask)
            if not plan.fits:
                summed = yield from self.rolling.steps(plan.scene(ask, []), plan.summaries, urgent=True)
                if summed is None:
                    continue
            with self._lock:
                return self.rolling.newest(plan.path)

    def search_steps(self, query: str, top_k: int, wanted: Filter) -> SearchSteps:
        """Yield requests for vectors and return the best messages; a blank query finds none."""
        if not query.strip():
            return []
        while True:
            with self._lock:
                state = self.live.sync()
            found = yield from self.searcher.find(query, state, wanted, room=POOL_TOKENS * top_k)
            best = found.ranked.at(np.flatnonzero(~found.ranked.weak)[:top_k])
            with self._lock:
                if self.live.sync().epoch == state.epoch:  # else something was forgotten meanwhile
                    return read_hits(self.live.store, found, best)

    def index_steps(self, progress: Progress | None) -> IndexSteps:
        """Yield requests for vectors until every message has one, and keep snapshots.

        Raises:
            EmbedderError: the embedder failed; what was done before is kept.
        """
        with self._lock:
            scopes, rows = [], np.empty(0, dtype=np.int64)
            # Branches share messages: each is embedded once, and a branch that adds none is not held in memory.
            for scope in self.searcher.every_branch(self.live.sync()):
                new = np.setdiff1d(self.searcher.pending(scope), rows)
                scopes += [scope] if len(new) else []
                rows = np.concatenate([rows, new])
            embedder, total = self.searcher.sessions.dense().embedder, len(rows)
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
                    [scope], embedder, batch=LARGE_BATCH, deadline=float("inf"), progress=report,
                    save=SessionVectors.save,
                )  # fmt: skip
        for _, vectors in self.searcher.sessions.opened():
            if vectors is not None:
                vectors.vectors.settle()
        with self._lock:
            self.save_snapshots(least=1)

    def close(self, *, least: int) -> None:
        """Keep snapshots, and leave nothing running."""
        try:
            self.save_snapshots(least=least)
        finally:
            self.searcher.sessions.close()

    def refresh_and_save(self, *, least: int) -> None:
        """Keep snapshots of the session's index, if it is in memory, with what was added since."""
        state = self.live.sync()
        for index, _ in self.searcher.sessions.opened():
            if index.session == self.live.key:
                self.searcher.sessions.open(index.session, state, Dense(None))
        self.save_snapshots(least=least)

    def save_snapshots(self, *, least: int) -> None:
        """Keep the indexes in memory in the store, if they have grown by `least` rows, or were damaged."""
        for index, vectors in self.searcher.sessions.opened():
            if vectors is not None:
                # The report of the question that made them says so; who needs them next makes them again.
                with suppress(StoreError):
                    vectors.save()
            if index.due(least):
                index.save_snapshot()
            if vectors is not None and vectors.due(least):
                vectors.save_snapshot()

    def _in_prompt(self, window: Window, frame: Frame) -> tuple[str, ...]:
        stays = {entry.message.turn_id for entry in frame.stays}
        return tuple({turn.turn_id for turn in window.kept} | {turn for turn in stays if turn})

    def _compose(self, ask: Ask, plan: Plan, found: Found | None, summed: Summed) -> Context:
        frame, selection = self.assembler.settle(summed.frame, plan.turns, summed.candidates, shown=ask.shown)
        dropped = (LEFT_OUT,) if summed.frame.summary is not None and frame.summary is None else ()
        return self.assembler.compose(
            frame, selection, reserve=ask.reserve, shown=ask.shown, alone=plan.alone,
            notes=(*(found.notes if found else ()), *summed.notes, *dropped), pending=found.pending if found else 0,
            embedder=found.embedder if found else None,
        )  # fmt: skip

    def _plan(self, ask: Ask) -> Plan:
        state = self.live.sync()
        budget = ask.max_tokens - ask.reserve
        # The oldest turn read may have lost its beginning; with some to spare it is seldom needed.
        needed = int(READ_AHEAD * budget) if self.assembler.fill == "stop" else SKIP_LIMIT * budget
        while True:
            entries = self.live.tail(needed + 1)
            turns = group_turns(entries)
            whole = self.live.is_all(entries)
            # Before the newest user message is known, neither what is asked is, nor what stays beside it.
            if whole or any(turn.asks for turn in turns):
                plan = self._plan_over(ask, budget, state, turns, whole=whole)
                # Turns that cannot be sent take no room, so that more of the past may be needed than the budget says.
                room = plan.asked.open - plan.asked.bare
                if whole or sum(turn.tokens for turn in plan.turns) > room:
                    return plan
            needed = 2 * sum(entry.tokens for entry in entries) + 1

    def _plan_over(self, ask: Ask, budget: int, state: SessionState, turns: Sequence[Turn], *, whole: bool) -> Plan:
        current, stored = self._current(ask, turns)
        stays = self._stays(current)
        pinned = {entry.message.turn_id for entry in stays}
        framer = self.assembler.framer
        tools = tools_tokens(ask.tools, framer.counter)
        asked = framer.frame(budget=budget, tools=tools, stays=stays, current=current)
        past = [turn for turn in reversed(turns) if turn is not stored and turn.turn_id not in pinned]
        older = tuple(turn.whole() for turn in past if turn.asks)
        base, fits = None, self.assembler.window(asked, older).reaches_all
        if self.searcher.rules.scope == "user" or not fits:
            base = self.assembler.window(asked, older, recall=self.assembler.room_for_recall(asked, older))
        before = self.live.path.at(stored.entries[0].order) if stored is not None else None
        alone = [entry for turn in past if whole and not turn.asks for entry in turn.entries]
        plan = Plan(state, self.live.path, asked, older, base, before, tuple(alone), fits, ())
        if fits or self.rolling.rules.summarizer is None:
            return plan
        return replace(plan, summaries=self.rolling.versions(plan.path, plan.end))

    def _current(self, ask: Ask, turns: Sequence[Turn]) -> tuple[Turn | None, Turn | None]:
        """Return the turn being answered, and the same as stored (None if the question is not stored)."""
        newest = next((turn for turn in reversed(turns) if turn.asks), None)
        question = ask.question
        if question is None:
            return (newest.whole(pending=True), newest) if newest else (None, None)
        if newest is not None and not newest.answered and newest.entries[0].message.content == question.content:
            current = newest.whole(pending=True)
            if question.grounding is not None:
                first = current.entries[0]
                grounded = replace(first, message=first.message.replace(grounding=question.grounding))
                current = replace(current, entries=(grounded, *current.entries[1:]))
            return current, newest
        framer = self.assembler.framer
        turn_no = (turns[-1].turn_no if turns else -1) + 1
        tokens = message_tokens(question, framer.counter, framer.overhead)
        order = self.live.path.head.depth + 1
        return Turn("", turn_no, (Entry(question, tokens, turn_no, order),)), None

    def _stays(self, current: Turn | None) -> list[Entry]:
        """Return system messages and the turns of pinned ones, but not what belongs to the current turn."""
        stays: list[Entry] = []
        turns: dict[str, None] = {}
        for entry in self.live.stays:
            if entry.message.role == "system":
                stays.append(entry)
            elif current is None or entry.message.turn_id != current.turn_id:
                turns[entry.message.turn_id or ""] = None
        for turn_id in turns:
            turn = self.live.whole_turn(turn_id)
            stays += turn.whole().entries if turn else ()
        return stays
