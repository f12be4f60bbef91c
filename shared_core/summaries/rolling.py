"""The rolling summary: which one a prompt shows, and when a new one is made of what has left the window."""

import warnings
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from datetime import datetime
from functools import lru_cache
from itertools import islice

from shared_core.errors import StoreError
from shared_core.messages import in_utc
from shared_core.prompt.assembler import Assembler
from shared_core.prompt.context import Reason
from shared_core.prompt.frame import Frame, FramedSummary, with_summary
from shared_core.prompt.window import Candidate, Selection
from shared_core.records import Position, Summary
from shared_core.session import LiveSession
from shared_core.summaries.requests import (
    Part,
    Stretch,
    SummaryFailure,
    SummaryReply,
    SummaryRequest,
    SummaryRules,
    first_part,
    read_stretch,
)
from shared_core.summaries.wording import plain_words, shortened, stands_in
from shared_core.tree.paths import Path, Span, beginning
from shared_core.turns import Turn

__all__ = ["LEFT_OUT", "PAUSE", "Pausing", "Rolling", "Scene", "Summed", "SummedSteps"]


@dataclass(frozen=True, slots=True)
class Scene:
    """A question, and what its prompt is chosen from.

    Attributes:
        path: the line of conversation.
        epoch: of the session, when this was read.
        asked: `Framer.frame`.
        turns: past turns, newest first.
        candidates: what may be recalled, best first.
        end: the place of the question, counted from the root.
        shown: whether the question is part of the prompt.
    """

    path: Path
    epoch: int
    asked: Frame
    turns: Sequence[Turn]
    candidates: Sequence[Candidate]
    end: int
    shown: bool


@dataclass(frozen=True, slots=True)
class Summed:
    """A scene with its summary.

    Attributes:
        frame: with the summary in it, if there is one.
        candidates: without what stands in the summary.
        start: where the window begins, counted from the root.
        notes: what could not be done.
    """

    frame: Frame
    candidates: Sequence[Candidate]
    start: int = 0
    notes: tuple[str, ...] = ()


PAUSE = 10
"""Questions that go by after a failure before the same is tried again, unless twice as much has left the window."""


@dataclass(slots=True)
class _Failed:
    """The last failure: after which summary, how many places were left then, and how many questions still pass."""

    after: Position | None
    places: int
    reason: str
    left: int = PAUSE


class Pausing:
    """Remembers the last failure of one memory's summarizer."""

    def __init__(self) -> None:
        self._failed: _Failed | None = None
        self._warned = False

    def begin(self, previous: Summary | None, places: int, failure: SummaryFailure) -> str:
        """Note a failure and return what the report says of it; the first one is a warning, too."""
        reason = f"the summary is not renewed, as the summarizer failed ({failure})"
        self._failed = _Failed(_place(previous), places, reason)
        if not self._warned:
            self._warned = True
            warnings.warn(reason, RuntimeWarning, stacklevel=2)
        return reason

    def reason(self, previous: Summary | None, places: int) -> str:
        """Return why nothing is to be tried for this question; empty: it may be.

        Args:
            previous: the summary so far.
            places: how many places there are between its end and the window.
        """
        failed = self._failed
        if failed is None or failed.after != _place(previous) or places >= 2 * failed.places or failed.left <= 0:
            return ""
        failed.left -= 1
        return failed.reason


def _place(summary: Summary | None) -> Position | None:
    return summary.upto if summary is not None else None


RENEW_SHARE = 0.25
"""What has left the window since is summed up when it is this share of what pinned text leaves, or half a call."""

CALLS = 4
"""Calls that one question waits for at most; the next ones go on."""

VERSIONS = 8
"""Of the summaries along a path, so many of the newest are looked at."""

SPANS = 64
"""Segments of a path that are looked at for them, newest first."""

LEFT_OUT = "the summary is left out: it does not fit beside what must be sent"


SummedSteps = Generator[SummaryRequest, SummaryReply, Summed | None]


@dataclass(frozen=True, slots=True)
class _Due:
    """What is to be summed up next, after what; all up to the place `upto`, of so many `places`."""

    previous: Summary | None
    parts: Sequence[Part]
    upto: int
    places: int


class Rolling:
    """Keeps the summaries of one memory up to date; its arguments are the memory's collaborators."""

    def __init__(
        self, live: LiveSession, assembler: Assembler, rules: SummaryRules, lock: AbstractContextManager[object], *,
        clock: Callable[[], datetime],
    ) -> None:  # fmt: skip
        self.live = live
        self.assembler = assembler
        self.rules = rules
        self._lock = lock
        self._clock = clock
        self._counter = assembler.framer.counter
        self._busy = False
        self._pausing = Pausing()
        self._epoch = 0
        self._size = lru_cache(maxsize=VERSIONS)(assembler.size)

    # Reading

    def versions(self, path: Path, end: int) -> tuple[Summary, ...]:
        """Return the summaries of a path that end before a place, the farthest-reaching first, at most `VERSIONS`."""
        spans = path.spans[: -SPANS - 1 : -1]
        found = (one for span in spans for one in self._ending_in(span, end - 1 - span.shift))
        return tuple(islice((one for one in found if self._belongs(one, path)), VERSIONS))

    def _ending_in(self, span: Span, depth: int) -> Iterator[Summary]:
        """Yield the summaries that end in a span, at some depth or before it, the deepest first."""
        depth = min(depth, span.upto)
        while depth >= span.start and self.live.key is not None:
            page = self.live.store.summaries(self.live.key, Position(span.segment, depth), VERSIONS)
            yield from (one for one in page if one.upto.depth >= span.start)
            depth = page[-1].upto.depth - 1 if len(page) == VERSIONS else span.start - 1

    def _belongs(self, summary: Summary, path: Path) -> bool:
        """Return whether a path begins as the one that a summary was made on."""
        if path.plain and summary.along == summary.upto:
            return True
        own = self.live.path_to(summary.along)
        return own.covers(summary.upto) and beginning(own, summary.upto) == beginning(path, summary.upto)

    def newest(self, path: Path) -> Summary | None:
        """Return the summary of a path that reaches farthest."""
        return next(iter(self.versions(path, path.spans[-1].last + 1)), None)

    # Renewing

    def steps(self, scene: Scene, versions: tuple[Summary, ...], *, urgent: bool = False) -> SummedSteps:
        """Yield requests for new summaries, if they are due, and return the scene with its summary.

        Args:
            scene: the question.
            versions: the summaries there are.
            urgent: sum up all that is older than the window, however little, and pass on what the summarizer raises.

        Returns:
            None if something was forgotten meanwhile: nothing decided before may be used.
        """
        if scene.epoch != self._epoch:
            self._epoch = scene.epoch
            self._size.cache_clear()  # it remembers texts
        notes: list[str] = []
        calls = CALLS
        while True:
            summed = self._choose(scene, versions)
            with self._lock:
                due = self._due(scene, versions, summed.start, notes, urgent=urgent)
                if due is None or self._busy or not (calls or urgent):
                    break
                self._busy = True
            try:
                reply = yield self._request(due)
            finally:
                self._busy = False
            calls -= 1
            with self._lock:
                if self.live.sync().epoch != scene.epoch:
                    return None
                summary = self._made(scene, due, reply, notes)
                if isinstance(summary, SummaryFailure):
                    if urgent:
                        raise summary.error
                    notes.append(self._pausing.begin(due.previous, due.places, summary))
                    return replace(summed, notes=(*summed.notes, *notes))
                if not self._keep(summary, scene.epoch, notes):
                    return None
                versions = (summary, *versions)[:VERSIONS]
        if due is not None and not calls:
            notes.append("more has left the window than one question sums up: the next ones go on, or summarize() does")
        return replace(summed, notes=(*summed.notes, *notes))

    def _choose(self, scene: Scene, versions: Sequence[Summary]) -> Summed:
        """Return the scene with the summary that reaches farthest and not into the window; else not far into it.

        What a prompt is made of is a function of what was said up to its question; so is this.
        """
        chosen: Summed | None = None
        for summary in versions:
            frame = self._framed(scene, summary)
            if frame.summary is None:
                break
            candidates = _not_in(plain_words(frame.summary.said), scene.candidates)
            chosen = self._selected(scene, frame, candidates)
            if scene.path.place(summary.upto) < chosen.start:
                return chosen
        if chosen is None:
            plain = self._selected(scene, scene.asked, scene.candidates)
            return replace(plain, notes=(LEFT_OUT,)) if versions else plain
        return chosen

    def _selected(self, scene: Scene, frame: Frame, candidates: Sequence[Candidate]) -> Summed:
        selection = self.assembler.select(frame, scene.turns, candidates, shown=scene.shown)
        return Summed(frame, candidates, _start(selection, scene.end))

    def _framed(self, scene: Scene, summary: Summary) -> Frame:
        said = self._text(summary)
        beside = self.rules.placement == "grounding" and scene.shown and scene.asked.question is not None
        written = FramedSummary(said, self.rules.template.render(said), summary.messages, beside)
        return with_summary(scene.asked, written, self._size)

    def _text(self, summary: Summary) -> str:
        """Return what a summary says, as long as it may be here; it may have been made by another memory."""
        known = summary.counter is not None and summary.counter == self._counter.name
        if known and summary.tokens is not None and summary.tokens <= self.rules.tokens:
            return summary.text
        return shortened(summary.text, self.rules.tokens, self._counter)

    def _due(
        self, scene: Scene, versions: Sequence[Summary], start: int, notes: list[str], *, urgent: bool
    ) -> _Due | None:
        """Return what is to be summed up now, if anything is.

        While tools are at work on the question nothing is: the prompt that was sent for it only grows.
        """
        previous = versions[0] if versions else None
        first = scene.path.place(previous.upto) + 1 if previous is not None else 0
        if self.rules.summarizer is None or start <= first or (scene.asked.answers and not urgent):
            return None
        if scene.asked.room <= 0 and not urgent:
            return None  # no window: that tells more of the question than of what has left it
        room = self._room(previous)
        stretch = read_stretch(
            self.live, scene.path, first, start - 1, room=room, counter=self._counter,
            without={entry.message.turn_id for entry in scene.asked.stays},
        )  # fmt: skip
        enough = 0 if urgent else min(RENEW_SHARE * scene.asked.open, room / 2)
        if not _is_enough(stretch, enough):
            return None
        paused = "" if urgent else self._pausing.reason(previous, start - first)
        if paused:
            notes.append(paused)
            return None
        return _Due(previous, *first_part(stretch, room), places=start - first)

    def _room(self, previous: Summary | None) -> int:
        """Return how many tokens of messages a call is given."""
        return self.rules.call_tokens - (self._counter(self._text(previous)) if previous is not None else 0)

    def _request(self, due: _Due) -> SummaryRequest:
        assert self.rules.summarizer is not None
        previous = self._text(due.previous) if due.previous is not None else None
        return SummaryRequest(self.rules.summarizer, previous, tuple(part.message for part in due.parts))

    def _made(self, scene: Scene, due: _Due, reply: SummaryReply, notes: list[str]) -> Summary | SummaryFailure:
        if isinstance(reply, SummaryFailure):
            return reply
        limit, counter = self.rules.tokens, self._counter
        text = shortened(reply, limit, counter)
        if not text:
            return SummaryFailure(ValueError(f"nothing of the summary fits into summary_tokens={limit!r}"))
        if text != reply.strip():
            notes.append(f"the summary is cut: it was {counter(reply):,} tokens long and may take {limit:,}")
        upto = scene.path.at(due.upto)
        straight = beginning(self.live.path_to(upto), upto) == beginning(scene.path, upto)
        return Summary(
            text, upto, upto if straight else scene.path.head, due.parts[-1].message.id or "",
            len(due.parts) + (due.previous.messages if due.previous is not None else 0), in_utc(self._clock()),
            counter.name, counter(text) if counter.name is not None else None,
        )  # fmt: skip

    def _keep(self, summary: Summary, epoch: int, notes: list[str]) -> bool:
        """Store a summary; False if something was forgotten meanwhile."""
        assert self.live.key is not None
        try:
            return self.live.store.keep(self.live.key, summary, epoch)
        except StoreError as error:
            notes.append(f"the new summary is used and not stored: {error}")
            return True


def _is_enough(stretch: Stretch, enough: float) -> bool:
    return bool(stretch.parts) and (not stretch.ends or stretch.tokens >= enough)


def _start(selection: Selection, end: int) -> int:
    """Return the place where the window begins; `end` if it is empty."""
    return min((turn.entries[0].order for turn in selection.window.kept), default=end)


def _not_in(summary: str, candidates: Sequence[Candidate]) -> list[Candidate]:
    """Return candidates, those set apart that stand in a summary word for word."""
    return [
        candidate.because(Reason.IN_SUMMARY)
        if candidate.reason is None
        and all(stands_in(plain_words(entry.message.content), summary) for entry in candidate.entries)
        else candidate
        for candidate in candidates
    ]
