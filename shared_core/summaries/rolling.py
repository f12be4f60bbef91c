"""The rolling summary: which one a prompt contains, and when messages that left the window are summed up."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import islice

from shared_core.errors import StoreError, warn
from shared_core.events import Note
from shared_core.messages import storable
from shared_core.plugins.base import Summarizer
from shared_core.plugins.calls import Failure, Request, Steps
from shared_core.prompt.assembler import Assembler
from shared_core.prompt.fixed_part import FixedPart, WrittenSummary, with_summary
from shared_core.prompt.hits import Hit, Reason
from shared_core.prompt.plan import Plan
from shared_core.prompt.window import Selection
from shared_core.records import Position, Summary
from shared_core.session.live import LiveSession, OutdatedError
from shared_core.session.paths import Path, Span, beginning
from shared_core.summaries.requests import (
    SummaryInput,
    input_tokens,
    next_batch,
    read_waiting,
    summary_request,
    summary_tokens,
)
from shared_core.summaries.wording import normalized, occurs_in, shortened


@dataclass(frozen=True, slots=True)
class WithSummary:
    """The parts of a prompt that a summary changes.

    Attributes:
        fixed: the fixed part, with the summary if there is one.
        hits: what may be recalled; what the summary contains is marked.
        selection: what is chosen of them for this fixed part; None: nothing was chosen yet.
        start: the index at which the window begins.
        notes: what could not be done.
        exists: whether there is a summary, even if it does not fit.
    """

    fixed: FixedPart
    hits: Sequence[Hit]
    selection: Selection | None = None
    start: int = 0
    notes: tuple[Note, ...] = ()
    exists: bool = False


PAUSE = 10
"""After a failure, the summarizer is not called for this many questions."""

RENEW_SHARE = 0.25
"""Messages that left the window are summed up once they fill this share of the room, or half a call."""

CALLS = 4
"""One question waits for at most this many calls. The next questions continue."""

VERSIONS = 8
"""Of the summaries along a path, this many of the newest are considered."""

SPANS = 64
"""Segments of a path that are searched for summaries, newest first."""

LEFT_OUT = Note("the summary is left out: it does not fit beside what must be sent", "left_out")


@dataclass(frozen=True, slots=True)
class _Batch:
    """The messages to sum up next: they cover the path up to index `upto`."""

    request: Request[str]
    previous: Summary | None
    inputs: Sequence[SummaryInput]
    upto: int


class RollingSummary:
    """Keeps the summaries of one memory up to date. Its arguments are parts of the memory."""

    def __init__(
        self, live: LiveSession, assembler: Assembler, summarizer: Summarizer | None,
        lock: AbstractContextManager[object], *, clock: Callable[[], datetime],
    ) -> None:  # fmt: skip
        self.live = live
        self.assembler = assembler
        self.summarizer = summarizer
        self._lock = lock
        self._clock = clock
        self._counter = assembler.builder.counter
        self._busy = False
        self._failed: Note | None = None
        self._pause = 0

    # Reading

    def versions(self, path: Path, end: int) -> tuple[Summary, ...]:
        """Return the summaries of a path that end before an index, the longest-reaching first, at most `VERSIONS`."""
        spans = path.spans[: -SPANS - 1 : -1]
        found = (one for span in spans for one in self._ending_in(span, end - 1 - span.shift))
        return tuple(islice((one for one in found if self._belongs(one, path)), VERSIONS))

    def _ending_in(self, span: Span, depth: int) -> Iterator[Summary]:
        """Yield the summaries that end in a span at or before a depth, the deepest first."""
        depth = min(depth, span.upto)
        while depth >= span.start and self.live.key is not None:
            page = self.live.store.summaries(self.live.key, Position(span.segment, depth), VERSIONS)
            yield from (one for one in page if one.upto.depth >= span.start)
            depth = page[-1].upto.depth - 1 if len(page) == VERSIONS else span.start - 1

    def _belongs(self, summary: Summary, path: Path) -> bool:
        """Return whether a path has the same beginning as the path on which a summary was made."""
        if path.plain and summary.along == summary.upto:
            return True
        own = self.live.path_to(summary.along)
        return own.covers(summary.upto) and beginning(own, summary.upto) == beginning(path, summary.upto)

    def newest(self, path: Path) -> Summary | None:
        """Return the summary of a path that reaches farthest."""
        return next(iter(self.versions(path, path.spans[-1].last + 1)), None)

    # Renewing

    def steps(self, plan: Plan, hits: Sequence[Hit], *, urgent: bool = False) -> Steps[WithSummary]:
        """Yield requests for new summaries if they are due, and return the parts of the prompt with a summary.

        Args:
            plan: the plan of the prompt.
            hits: what may be recalled, best first.
            urgent: sum up everything older than the window, however little, and pass on errors of the summarizer.

        Raises:
            OutdatedError: something was forgotten meanwhile, so that no earlier decision may be used.
        """
        with self._lock:
            versions = self.versions(plan.path, plan.end)
        notes: list[Note] = []
        calls = CALLS
        while True:
            summed = self._choose(plan, hits, versions)
            with self._lock:
                batch = self._next_batch(plan, versions, summed.start, notes, urgent=urgent)
                if batch is None or self._busy or not (calls or urgent):
                    break
                # One call at a time: another thread would sum up the same messages.
                self._busy = True
            try:
                reply = yield batch.request
            finally:
                self._busy = False
            calls -= 1
            with self._lock:
                if self.live.sync().epoch != plan.state.epoch:
                    raise OutdatedError
                summary = self._new_summary(plan.path, batch, reply, notes)
                if isinstance(summary, Failure):
                    if urgent:
                        raise summary.error
                    notes.append(self._note_failure(summary.error))
                    return replace(summed, notes=tuple(notes))
                self._keep(summary, plan.state.epoch, notes)
                versions = (summary, *versions)[:VERSIONS]
        if batch is not None and not calls:
            text = "more has left the window than one question sums up: the next ones continue, or call summarize()"
            notes.append(Note(text, "summary_late"))
        return replace(summed, notes=tuple(notes))

    def _choose(self, plan: Plan, hits: Sequence[Hit], versions: Sequence[Summary]) -> WithSummary:
        """Return the prompt's parts with the summary that reaches farthest without reaching into the window.

        If all of them reach into it, the one that does so least is used. The choice depends only on the conversation up
        to the question, as the rest of the prompt does.
        """
        chosen: WithSummary | None = None
        for summary in versions:
            fixed = self._frame_with(plan.fixed, summary)
            if fixed.summary is None:
                break
            chosen = self._select(plan, fixed, _without_summarized(normalized(fixed.summary.said), hits))
            if plan.path.index_of(summary.upto) < chosen.start:
                break
        return replace(chosen or self._select(plan, plan.fixed, hits), exists=bool(versions))

    def _select(self, plan: Plan, fixed: FixedPart, hits: Sequence[Hit]) -> WithSummary:
        selection = self.assembler.select(fixed, plan.turns, hits)
        start = min((turn.entries[0].order for turn in selection.window.kept), default=plan.end)
        return WithSummary(fixed, hits, selection, start)

    def _frame_with(self, asked: FixedPart, summary: Summary) -> FixedPart:
        said = self._text(summary)
        text = self.assembler.template.render_summary(said)
        written = WrittenSummary(said, text, summary.messages)
        return with_summary(asked, written, self.assembler.builder.size)

    def _text(self, summary: Summary) -> str:
        """Return the text of a summary, cut to this memory's limit: another memory may have made it."""
        known = summary.counter is not None and summary.counter == self._counter.name
        if known and summary.tokens is not None and summary.tokens <= summary_tokens(self.summarizer):
            return summary.text
        return shortened(summary.text, summary_tokens(self.summarizer), self._counter)

    def _next_batch(
        self, plan: Plan, versions: Sequence[Summary], start: int, notes: list[Note], *, urgent: bool
    ) -> _Batch | None:
        """Return the messages to sum up now; None if no summary is due.

        During a tool loop nothing is summed up, because the prompt sent for the question may only grow.
        """
        previous = versions[0] if versions else None
        first = plan.path.index_of(previous.upto) + 1 if previous is not None else 0
        if self.summarizer is None or start <= first or (plan.fixed.answers and not urgent):
            return None
        if plan.fixed.left <= 0 and not urgent:
            return None  # the question alone fills the prompt; what it pushed out may return
        said = self._text(previous) if previous is not None else None
        room = input_tokens(self.summarizer) - (self._counter(said) if said else 0)
        waiting = read_waiting(
            self.live, plan.path, first, start - 1, room=room, counter=self._counter,
            without={entry.message.turn_id for entry in plan.fixed.stays},
        )  # fmt: skip
        enough = 0 if urgent else min(RENEW_SHARE * plan.fixed.beside_pinned, room / 2)
        if not waiting.inputs or (waiting.ends and waiting.tokens < enough):
            return None
        if self._failed is not None and self._pause and not urgent:
            self._pause -= 1
            notes.append(self._failed)
            return None
        inputs, upto = next_batch(waiting, room)
        request = summary_request(self.summarizer, said, [one.message for one in inputs])
        return _Batch(request, previous, inputs, upto)

    def _note_failure(self, error: Exception) -> Note:
        """Note a failure and return the note for the report. The first one also warns."""
        note = Note(
            f"the summary is not renewed, as the summarizer failed ({type(error).__name__}: {error})",
            "summarizer_failed",
        )
        if self._failed is None:
            warn(note)
        self._failed, self._pause = note, PAUSE
        return note

    def _new_summary(self, path: Path, batch: _Batch, reply: str | Failure, notes: list[Note]) -> Summary | Failure:
        if isinstance(reply, Failure):
            return reply
        reply = storable(reply)
        limit, counter = summary_tokens(self.summarizer), self._counter
        text = shortened(reply, limit, counter)
        if not text:
            return Failure(
                "summarizer", ValueError(f"nothing of the summary fits into {limit} tokens: raise its input_tokens")
            )
        if text != reply.strip():
            cut = f"the summary is cut: it has {counter(reply):,} tokens and may take {limit:,}"
            notes.append(Note(cut, "left_out"))
        upto = path.at(batch.upto)
        straight = beginning(self.live.path_to(upto), upto) == beginning(path, upto)
        return Summary(
            text, upto, upto if straight else path.head, batch.inputs[-1].message.id or "",
            len(batch.inputs) + (batch.previous.messages if batch.previous is not None else 0), self._clock(),
            counter.name, counter(text) if counter.name is not None else None,
        )  # fmt: skip

    def _keep(self, summary: Summary, epoch: int, notes: list[Note]) -> None:
        assert self.live.key is not None
        try:
            if not self.live.store.keep(self.live.key, summary, epoch):
                raise OutdatedError
        except StoreError as error:
            notes.append(Note(f"the new summary is used and not stored: {error}"))


def _without_summarized(summary: str, hits: Sequence[Hit]) -> list[Hit]:
    """Return hits, marking those that a summary contains word for word."""
    return [
        hit.because(Reason.IN_SUMMARY)
        if hit.reason is None and all(occurs_in(normalized(entry.message.content), summary) for entry in hit.entries)
        else hit
        for hit in hits
    ]
