"""The report on a prompt: a line for each message considered, the totals, and both as text."""

import re
import textwrap
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from shutil import get_terminal_size
from typing import Any, NamedTuple

from shared_core.arguments import whole_number
from shared_core.display import counted, on_one_line, preview
from shared_core.events import Note
from shared_core.formats.fields import Role
from shared_core.messages import Message
from shared_core.prompt.fixed_part import FixedPart
from shared_core.prompt.hits import PART, Hit, Kind, Reason
from shared_core.prompt.relevance import Band, band
from shared_core.prompt.window import Selection, Window
from shared_core.session.turns import Entry, tokens_of

BAR_WIDTH = 50
"""Columns of the budget bar, where there is room for it."""

BEST = 5
"""Recalled messages that the short report shows."""

BEST_LINES = 2
"""Lines of text that it shows of each."""

LONGEST = 4_000
"""Characters of a message that are searched for the part to show."""

FOUND = 0.75
"""A recalled message counts as found if its score is at least this share of the best one's.

Scores are standard scores: that of an average candidate is 0.
"""

NARROWEST = 40
"""Columns of the narrowest terminal that a report is drawn for."""

COLUMNS = ("", "role", "tokens", "left", "match", "score", "words", "cosine", "reranked", "reason")
"""The headers of the report's table, before the text."""

WORD = re.compile(r"\w{4,}")
"""Shorter words hardly ever say where in a text the answer stands."""

LEAD = 20
"""Characters shown before the first word that was looked for: they say what the sentence is about."""

_set = object.__setattr__  # a frozen value has no other way in


class ReportLine(NamedTuple):
    """One decision.

    Attributes:
        id: the message's id; None for tool schemas, a summary, and a question that is not stored.
        role: the message's role; None for tool schemas.
        kind: the part of the prompt it belongs to, or would belong to.
        included: whether it is in the prompt.
        reason: why it is in the prompt or not.
        tokens: its size, including framing.
        left: tokens of the budget left after this decision.
        text: its text.
        score: the recall score (higher is better; comparable within one report only).
        lexical: the share of the question's informative words that it matches, about 0 to 1; 0 if it holds none of
            them itself, however near a match it is.
        dense: the cosine of its best piece with the question.
        at: when it was said; None if that is not known.
        reranked: the reranker's score; None if it gave none. `score` is then that of the rank it was given.
        part: whether only a part of it is shown: an excerpt, trimmed grounding, or a stub in place of a tool's result.
        threshold: the cosine from which a text is about the question, as for `band`.
    """

    id: str | None
    role: Role | None
    kind: Kind
    included: bool
    reason: Reason
    tokens: int
    left: int
    text: str = ""
    score: float | None = None
    lexical: float | None = None
    dense: float | None = None
    at: datetime | None = None
    reranked: float | None = None
    part: bool = False
    threshold: float = 0.0

    @property
    def band(self) -> Band | None:
        """How well it matches, in a word: strong, fair or weak; None if nothing is known about it."""
        return band(self.lexical, self.dense, self.threshold)

    @property
    def why(self) -> str:
        """The reason as a sentence."""
        return f"{self.reason.why}; {PART}" if self.part else self.reason.why

    @property
    def shown(self) -> str:
        """Its text, on one line."""
        return on_one_line(self.text[:LONGEST])

    @property
    def preview(self) -> str:
        """The beginning of the text, on one line."""
        return preview(self.text)

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON data, with the preview instead of the text."""
        values = {name: getattr(self, name) for name in self._fields if name not in ("text", "threshold")}
        codes = {"kind": self.kind.value, "reason": self.reason.value, "why": self.why, "band": self.band}
        return values | codes | {"preview": self.preview, "at": self.at.isoformat() if self.at is not None else None}


class _LinesLater:
    """Holds what makes a report's lines. It is no field, so that it is neither compared nor copied nor pickled."""

    __slots__ = ("_make_lines",)
    _make_lines: Callable[[], tuple[ReportLine, ...]]


@dataclass(frozen=True, slots=True)
class ContextReport(_LinesLater):
    """Why each message is in the prompt or not.

    `str()` shows the budget and the best of what is recalled, `full()` every decision; `to_dict()` returns JSON data.

    Attributes:
        budget: tokens that may be sent: the model's limit minus the reserve.
        reserve: tokens of the limit that are kept free: for the reply, or for what is sent beside the prompt.
        lines: every decision, in the order taken.
        pending: messages in scope that have no vector yet and were ranked by words alone.
        degraded: what could not be done, as texts with `codes`; empty if everything worked.
        embedder: the key of the embedder whose vectors were used; None for words alone.
        stopped: why recall ends where it does; empty if nothing was searched for, or if as much is recalled as fits.
    """

    budget: int
    reserve: int
    lines: tuple[ReportLine, ...]
    pending: int = 0
    degraded: tuple[Note, ...] = ()
    embedder: str | None = None
    stopped: str = ""
    totals: Mapping[Kind, int] = field(init=False)

    def __post_init__(self) -> None:
        totals = dict.fromkeys(Kind, 0)
        for line in self.included:
            totals[line.kind] += line.tokens
        _set(self, "totals", totals)

    @classmethod
    def with_lines_made_later(
        cls, make: Callable[[], tuple[ReportLine, ...]], totals: Mapping[Kind, int], **others: Any
    ) -> "ContextReport":
        """Return a report whose lines are made when they are first looked at, as few programs look at all.

        Args:
            make: makes the lines; always the same ones.
            totals: the tokens of each part, as the lines add up to.
            others: all other attributes.
        """
        report = object.__new__(cls)
        for name, value in {**others, "totals": totals, "_make_lines": make}.items():
            _set(report, name, value)
        return report

    def __getattr__(self, name: str) -> Any:
        """Make the lines when they are looked at for the first time: until then, their slot is empty."""
        if name != "lines":
            return object.__getattribute__(self, name)
        # They never change, so it does not matter if another thread makes them, too.
        _set(self, "lines", self._make_lines())
        return self.lines

    @property
    def included(self) -> tuple[ReportLine, ...]:
        """The lines of what is in the prompt."""
        return tuple(line for line in self.lines if line.included)

    @property
    def total_tokens(self) -> int:
        """The size of the prompt in tokens, including tool schemas and framing."""
        return sum(self.totals.values())

    @property
    def reranked(self) -> bool:
        """Whether a reranker ordered the best of what was found."""
        return any(line.reranked is not None for line in self.lines)

    @property
    def over_budget(self) -> bool:
        """Whether the prompt exceeds the budget, which only `on_overflow="keep"` allows."""
        return self.total_tokens > self.budget

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON data."""
        return {
            "budget": self.budget,
            "reserve": self.reserve,
            "total_tokens": self.total_tokens,
            "over_budget": self.over_budget,
            "totals": {kind.value: tokens for kind, tokens in self.totals.items()},
            "pending": self.pending,
            "degraded": list(self.degraded),
            "embedder": self.embedder,
            "stopped": self.stopped,
            "reranked": self.reranked,
            "lines": [line.to_dict() for line in self.lines],
        }

    def __repr__(self) -> str:
        return f"<ContextReport: {counted(len(self.lines), 'line')}, {self._tokens()}>"

    def _tokens(self) -> str:
        return f"{self.total_tokens:,} of {self.budget:,} tokens"

    @property
    def best(self) -> tuple[ReportLine, ...]:
        """The lines of the recalled messages, best first."""
        recalled = [line for line in self.included if line.kind is Kind.RECALLED and line.score is not None]
        return tuple(sorted(recalled, key=lambda line: -(line.score or 0.0)))

    @property
    def found(self) -> tuple[ReportLine, ...]:
        """The lines of the recalled messages that match the question about as well as the best one, best first."""
        matches = [line for line in self.best if line.reason is Reason.RECALLED]
        least = (matches[0].score or 0.0) if matches else 0.0
        least *= FOUND if least > 0 else 1
        return tuple(line for line in matches if line.score is not None and line.score >= least)

    # As text

    def __str__(self) -> str:
        return self.render()

    def render(self, *, width: int | None = None, more: str = "report.full()") -> str:
        """Return the report in short: the budget, notes, and the best of what is recalled.

        Args:
            width: characters of a line; by default the columns of the terminal, or 80 without one.
            more: what shows every decision.
        """
        width = _width(width)
        return "\n".join([*self._head(width), "", *self._recalled(width), *_wrapped(self._rest(more), width)])

    def full(self, *, width: int | None = None) -> str:
        """Return the report with a line for every decision; `width`: as for `render`."""
        width = _width(width)
        counts = Counter(line.reason for line in self.lines)
        meanings = (f"{reason:<14}{reason.why} ({counted(count, 'line')})" for reason, count in counts.items())
        meant = (line for text in meanings for line in _wrapped(text, width, indent=14))
        return "\n".join([*self._head(width), "", *self._table(width), "", *meant])

    def _head(self, width: int) -> Iterator[str]:
        """Yield the bar, the totals and the notes."""
        parts = {kind: tokens for kind, tokens in self.totals.items() if tokens}
        scale, used = max(self.budget, self.total_tokens, 1), f"{100 * self.total_tokens / max(self.budget, 1):.0f} %"
        cells = max(10, min(BAR_WIDTH, width - len(self._tokens()) - 12))
        # Every part gets a letter, however small it is.
        bar = "".join(kind.letter * max(1, round(cells * tokens / scale)) for kind, tokens in parts.items())
        yield f"[{bar[:cells]:·<{cells}}] {self._tokens()} ({used})"
        shares = [f"{kind.letter} = {kind.value} {tokens:,}" for kind, tokens in parts.items()]
        shares += [f"· = free {max(0, self.budget - self.total_tokens):,}", f"{self.reserve:,} reserved"]
        yield from _wrapped(", ".join(shares), width)
        for note in self._warnings():
            yield from _wrapped(f"! {on_one_line(note)}", width)

    def _warnings(self) -> list[str]:
        notes: list[str] = [*self.degraded]
        if self.pending:
            missing = f"{counted(self.pending, 'message')} without a vector yet"
            notes.append(f"{missing}, ranked by words alone: index() embeds them")
        if self.over_budget:
            notes.append("the prompt is larger than the budget")
        return notes

    def _recalled(self, width: int) -> Iterator[str]:
        """Yield the best of what is recalled with the part of each that answers, or why there is nothing."""
        if not self.best:
            text = f"{self.stopped[:1].upper()}{self.stopped[1:]}." if self.stopped else ""
            if any(line.kind is Kind.WINDOW for line in self.lines) and all(line.included for line in self.lines):
                text = "Nothing had to be recalled: the window holds the whole conversation."
            yield from _wrapped(text, width)
            return
        order = "in the reranker's order" if self.reranked else "best first"
        yield f"Recalled, {order}; > marks the best matches:"
        asked = next((line.text[:LONGEST] for line in self.lines if line.kind is Kind.QUESTION), "")
        words, found = {word.casefold() for word in WORD.findall(asked)}, self.found
        for line in self.best[:BEST]:
            day = f"  {line.at:%Y-%m-%d}" if line.at else ""
            head = f"{'>' if line in found else ' '} {line.band or '':<6}{day}  {line.role or '':<9}  "
            room = max(NARROWEST // 2, width - len(head))
            passage = _passage(line.shown, words, BEST_LINES * room - 2)
            said = textwrap.wrap(passage, room, max_lines=BEST_LINES, placeholder=" …")
            yield f"{head}{said[0] if said else ''}".rstrip()
            yield from (f"{'':{len(head)}}{text}" for text in said[1:])
        yield ""

    def _rest(self, more: str) -> str:
        """Return how much the short report leaves out."""
        recalled = sum(line.kind is Kind.RECALLED and line.id is not None for line in self.included)
        out = Counter(line.reason.value.replace("_", " ") for line in self.lines if not line.included)
        counts = [f"{recalled - BEST:,} more recalled"] if recalled > BEST else []
        if out:
            reasons = ", ".join(f"{reason} {count:,}" for reason, count in out.most_common())
            counts.append(f"{out.total():,} left out ({reasons})")
        return f"… {', '.join(counts)}; every line: {more}" if counts else f"every line: {more}"

    def _table(self, width: int) -> Iterator[str]:
        """Yield the table, its head first, without columns in which nothing stands."""
        columns = [column for column in zip(COLUMNS, *map(_cells, self.lines), strict=True) if any(column[1:])]
        wide = [max(map(len, column)) for column in columns]
        texts = ("text", *(line.shown for line in self.lines))
        for cells, text in zip(zip(*columns, strict=True), texts, strict=False):
            sized = zip(cells, wide, strict=True)
            row = "  ".join(f"{cell:>{size}}" if cell[-1:].isdigit() else f"{cell:<{size}}" for cell, size in sized)
            yield f"{row}  {text[: max(NARROWEST // 2, width - len(row) - 2)]}".rstrip()


def _width(given: int | None) -> int:
    if given is None:
        return max(NARROWEST, get_terminal_size().columns)
    whole_number("width", given, least=NARROWEST)
    return given


def _wrapped(text: str, width: int, indent: int = 0) -> list[str]:
    """Return a text as lines; those after its first are indented. Options such as `--full` stay whole."""
    return textwrap.wrap(text, width, subsequent_indent=" " * indent, break_on_hyphens=False)


def _passage(text: str, words: set[str], room: int) -> str:
    """Return the part of a text with the most of some words, in at most so many characters."""
    if len(text) <= room:
        return text
    hits = [match.start() for match in WORD.finditer(text) if match[0].casefold() in words]
    densest = max(hits, key=lambda at: sum(at <= other < at + room - LEAD for other in hits), default=0)
    start = max(0, min(densest - LEAD, len(text) - room))
    end = start + room - 4
    return f"{'… ' if start else ''}{text[start:end].strip()}{' …' if end < len(text) else ''}"


def _cells(line: ReportLine) -> tuple[str, ...]:
    scores = (line.score, line.lexical, line.dense, line.reranked)
    numbers = ["" if value is None else f"{value:.2f}" for value in scores]
    reason = f"{line.reason} (part)" if line.part else line.reason.value
    sizes = f"{line.tokens:,}", f"{line.left:,}"
    return "+" if line.included else "-", line.role or "", *sizes, line.band or "", *numbers, reason


# How a report is made


def report_on(fixed: FixedPart, selection: Selection, orphans: Sequence[Entry], **others: Any) -> ContextReport:
    """Return the report on a prompt.

    Args:
        fixed: the part of the prompt that must be sent.
        selection: the recalled messages and the window.
        orphans: replies without their user message.
        others: the attributes of the report that do not follow from these.
    """
    make = partial(report_lines, fixed, selection, tuple(orphans))
    return ContextReport.with_lines_made_later(make, _totals(fixed, selection), budget=fixed.budget, **others)


def _totals(fixed: FixedPart, selection: Selection) -> dict[Kind, int]:
    """Return the tokens of each part of the prompt, which are those of the report's lines."""
    return {
        Kind.SYSTEM: tokens_of(fixed.stays),
        Kind.TOOLS: fixed.tools,
        Kind.QUESTION: fixed.question_tokens + tokens_of(fixed.groups),
        Kind.GROUNDING: fixed.grounding_tokens,
        Kind.SUMMARY: fixed.summary.tokens if fixed.summary is not None else 0,
        Kind.RECALLED: selection.recall_tokens,
        Kind.WINDOW: selection.window.tokens,
    }


@dataclass
class _Ledger:
    """Collects the report's lines and counts down the budget."""

    left: int
    lines: list[ReportLine] = field(default_factory=list)

    def put(
        self, entry: Entry | Message | None, kind: Kind, reason: Reason, tokens: int, *,
        included: bool = True, scores: Hit | None = None, part: bool = False,
    ) -> None:  # fmt: skip
        message = entry.message if isinstance(entry, Entry) else entry
        self.left -= tokens if included else 0
        id_, role, text = (message.id, message.role, message.content) if message else (None, None, "")
        score, lexical, dense = (scores.score, scores.lexical, scores.dense) if scores else (None, None, None)
        at = message.created_at if message else None
        reranked, threshold = (scores.reranked, scores.threshold) if scores else (None, 0.0)
        line = ReportLine(
            id_, role, kind, included, reason, tokens, self.left, text, score, lexical, dense, at, reranked, part,
            threshold,
        )  # fmt: skip
        self.lines.append(line)

    def put_all(self, entries: Iterable[Entry], kind: Kind, reason: Reason, *, included: bool = True) -> None:
        for entry in entries:
            self.put(entry, kind, reason, entry.tokens, included=included)


def report_lines(fixed: FixedPart, selection: Selection, orphans: Sequence[Entry]) -> tuple[ReportLine, ...]:
    """Return a line for every message considered; `orphans` are replies without their user message."""
    ledger = _Ledger(fixed.budget)
    if fixed.tools:
        ledger.put(None, Kind.TOOLS, Reason.ALWAYS_SENT, fixed.tools)
    ledger.put_all(fixed.stays, Kind.SYSTEM, Reason.ALWAYS_SENT)
    if fixed.question is not None:
        ledger.put(fixed.question, Kind.QUESTION, Reason.QUESTION, fixed.question_tokens)
        if fixed.question.message.grounding is not None:
            fitted = fixed.grounding
            text = Message(role="user", id=fixed.question.message.id, content=fitted.text)
            reason = Reason.QUESTION if text.content else Reason.NO_ROOM if fitted.trimmed else Reason.NO_GROUNDING
            part = bool(text.content and (fitted.trimmed or fitted.shortened))
            ledger.put(text, Kind.GROUNDING, reason, fixed.grounding_tokens, included=bool(text.content), part=part)
    if fixed.summary is not None:
        count = f"{fixed.summary.messages:,} message{'' if fixed.summary.messages == 1 else 's'}"
        said = Message.system(f"{count}: {fixed.summary.said}")
        ledger.put(said, Kind.SUMMARY, Reason.SUMMARY, fixed.summary.tokens)
    stubs = {entry.order for entry in fixed.stubbed}
    for entry in fixed.groups:
        ledger.put(entry, Kind.QUESTION, Reason.QUESTION, entry.tokens, part=entry.order in stubs)
    ledger.put_all(fixed.left_out, Kind.QUESTION, Reason.NO_ROOM, included=False)
    _put_window(ledger, selection.window)
    ledger.put_all(orphans, Kind.WINDOW, Reason.INCOMPLETE, included=False)
    _put_recall(ledger, selection, summed=fixed.summary is not None)
    return tuple(ledger.lines)


def _put_window(ledger: _Ledger, window: Window) -> None:
    for turn in window.kept:
        ledger.put_all(reversed(turn.entries), Kind.WINDOW, Reason.NEWEST)
        ledger.put_all(turn.broken, Kind.WINDOW, Reason.INCOMPLETE, included=False)
    for turn in window.stable_cut:
        ledger.put_all(reversed(turn.entries), Kind.WINDOW, Reason.OLDER, included=False)
    for turn in window.too_large:
        ledger.put_all(reversed(turn.entries), Kind.WINDOW, window.why_without(turn), included=False)


def _put_recall(ledger: _Ledger, selection: Selection, *, summed: bool) -> None:
    wording = selection.recall_tokens
    for candidate in selection.candidates:
        included = candidate.reason is Reason.RECALLED
        for entry in candidate.entries:
            reason = candidate.why_recalled(entry) if included else candidate.reason or Reason.IN_WINDOW
            if reason is Reason.IN_SUMMARY and not summed:
                reason = Reason.NO_ROOM
            part = included and entry.message.id in candidate.cut
            ledger.put(entry, Kind.RECALLED, reason, entry.tokens, included=included, scores=candidate, part=part)
            wording -= entry.tokens if included else 0
    # The text takes more than its messages: header, footer, days and speakers.
    if wording:
        ledger.put(None, Kind.RECALLED, Reason.WORDING, wording)
