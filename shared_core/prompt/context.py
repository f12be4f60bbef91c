"""The prompt and the report on each of its parts, as values."""

import html
import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import compress
from shutil import get_terminal_size
from typing import Any, NamedTuple

from shared_core.arguments import whole_number
from shared_core.events import Note
from shared_core.formats.anthropic import anthropic_request
from shared_core.formats.fields import write_each
from shared_core.formats.openai_chat import custom_calls, write_chat
from shared_core.formats.openai_responses import write_items
from shared_core.messages import Message, Role, fields_of
from shared_core.prompt.reasons import PART, Kind, Reason
from shared_core.prompt.terminal import (
    Span,
    counted,
    flowed,
    on_a_terminal,
    on_one_line,
    painted,
    passage,
    preview,
    words_of,
    wrapped,
)

BAR_WIDTH = 60
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

NARROWEST = 20
"""Columns of the narrowest terminal that a report is drawn for."""

COLUMNS: tuple[str, ...] = ("", "role", "tokens", "left", "score", "words", "cosine", "reranked", "reason")
"""The headers of the report's table, before the text."""

DISPENSABLE = ("reranked", "cosine", "words", "left", "score", "tokens", "role")
"""Columns that a narrow terminal does without, the first one first."""

TEXT_WIDTH = 24
"""Columns of text that are worth another column's place."""


_set = object.__setattr__  # a frozen value has no other way in

_Line = list[Span]
_Part = Callable[[int], Iterator[_Line]]
"""Takes the width, and yields lines."""


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
        lexical: the share of the question's informative words that it matches, about 0 to 1.
        dense: the cosine of its best piece with the question.
        at: when it was said; None if that is not known.
        reranked: the reranker's score; None if it gave none. `score` is then that of the rank it was given.
        part: whether only a part of it is shown: an excerpt, trimmed grounding, or a stub in place of a tool's result.
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
        values = {name: getattr(self, name) for name in self._fields if name != "text"}
        codes = {"kind": self.kind.value, "reason": self.reason.value, "why": self.why}
        return values | codes | {"preview": self.preview, "at": self.at.isoformat() if self.at is not None else None}


class _LinesLater:
    """Holds what makes a report's lines. It is no field, so that it is neither compared nor copied nor pickled."""

    __slots__ = ("_make_lines",)
    _make_lines: Callable[[], tuple[ReportLine, ...]]


@dataclass(frozen=True, slots=True)
class ContextReport(_LinesLater):
    """Why each message is in the prompt or not.

    `str()` shows the budget and the best of what is recalled, `full()` shows every decision, a notebook shows both, and
    `to_dict()` returns JSON data.

    Attributes:
        budget: tokens that may be sent: the model's limit minus the reserve.
        reserve: tokens kept free for the reply.
        lines: every decision, in the order taken.
        pending: messages in scope that have no vector yet and were ranked by words alone.
        degraded: what could not be done, as texts with `codes`; empty if everything worked.
        embedder: the key of the embedder whose vectors were used; None for words alone.
        stopped: why recall ends where it does; empty if nothing was searched for, or if it takes all that fits.
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

    def to_json(self) -> str:
        """Return `to_dict()` as JSON text."""
        return json.dumps(self.to_dict(), ensure_ascii=False)

    def __str__(self) -> str:
        return self.render(colour=False)

    def __repr__(self) -> str:
        return f"<ContextReport: {counted(len(self.lines), 'line')}, {self._tokens()}>"

    def full(self, *, width: int | None = None, colour: bool | None = False) -> str:
        """Return the report with a line for every decision; see `render` for the arguments."""
        return self._drawn([self._table, self._legend], width, colour)

    def render(self, *, width: int | None = None, colour: bool | None = None, more: str = "report.full()") -> str:
        """Return the report in short: the budget, notes, and the best of what is recalled.

        Args:
            width: columns that no line exceeds; by default those of the terminal, or 80 without one.
            colour: whether to use the terminal's colours; None: if the output is a terminal and `NO_COLOR` is not set.
            more: what shows every decision.
        """
        return self._drawn([self._best, lambda width: self._rest(width, more)], width, colour)

    def _drawn(self, parts: Sequence[_Part], width: int | None, colour: bool | None) -> str:
        if width is None:
            width = max(NARROWEST, get_terminal_size().columns)
        whole_number("width", width, least=NARROWEST)
        painting = on_a_terminal() if colour is None else colour
        lines = [line for part in [self._budget, self._notes, *parts] for line in part(width)]
        return "\n".join(painted(line, width, colour=painting) for line in lines)

    def _tokens(self) -> str:
        return f"{self.total_tokens:,} of {self.budget:,} tokens"

    def _shares(self, width: int = BAR_WIDTH) -> list[tuple[Kind, int, int]]:
        """Return the kind, tokens and columns in the bar of every part that is not empty."""
        # Every part gets at least one column, however small, so that none is invisible.
        scale = max(self.budget, self.total_tokens, 1)
        return [(kind, tokens, max(1, round(width * tokens / scale))) for kind, tokens in self.totals.items() if tokens]

    def _budget(self, width: int) -> Iterator[_Line]:
        """Yield the bar and the totals."""
        used = f" {self._tokens()} ({100 * self.total_tokens / max(self.budget, 1):.0f} %)"
        beside = width - len(used) - 2 >= BAR_WIDTH // 4
        left = bar = min(BAR_WIDTH, width - 2 - (len(used) if beside else 0))
        spans: _Line = [("[", "")]
        for kind, _, cells in self._shares(bar):
            spans.append((kind.letter * min(cells, left), kind.value))
            left -= min(cells, left)
        spans.append(("·" * left + "]", ""))
        yield from [[*spans, (used, "bold")]] if beside else [spans, [(used.strip(), "bold")]]
        yield from ([(line, "")] for line in flowed(self._totals(), width))

    def _totals(self) -> list[str]:
        parts = [f"{kind.letter} {kind.value} {tokens:,}" for kind, tokens, _ in self._shares()]
        return [*parts, f"· free {max(0, self.budget - self.total_tokens):,}", f"(reply {self.reserve:,})"]

    def _notes(self, width: int) -> Iterator[_Line]:
        for note in self._warnings():
            yield from ([(line, "warning")] for line in wrapped(f"! {on_one_line(note)}", width))

    def _warnings(self) -> list[str]:
        notes: list[str] = [*self.degraded]
        if self.pending:
            one = self.pending == 1
            had, were, their = ("has", "was", "its") if one else ("have", "were", "their")
            older = counted(self.pending, "older message")
            notes.append(f"{older} {had} no vector yet and {were} ranked by {their} words")
        if self.over_budget:
            notes.append("the prompt is larger than the budget")
        return notes

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

    def _best(self, width: int) -> Iterator[_Line]:
        best, found = self.best[:BEST], self.found
        if not best:
            yield from self._why_nothing(width)
            return
        yield []
        order = "in the reranker's order" if self.reranked else "best first"
        yield [(f"Recalled, {order}; > marks the best matches:", "bold")]
        questions = [line.text[:LONGEST] for line in self.lines if line.reason is Reason.QUESTION]
        words = words_of(" ".join(questions))
        roles = max(len(line.role or "") for line in best)
        days = 2 if any(line.at for line in best) else 0
        for line in best:
            day = f"{line.at:%Y-%m-%d}" if line.at else ""
            head = f"{line.score:6.2f}{'':{days}}{day:<{days * 5}}  {line.role or '':<{roles}}  "
            yield from _beside(head, line, words, width, found=line in found)

    def _why_nothing(self, width: int) -> Iterator[_Line]:
        """Yield why nothing is recalled, unless there was nothing to search."""
        text = f"{self.stopped[:1].upper()}{self.stopped[1:]}." if self.stopped else ""
        if any(line.kind is Kind.WINDOW for line in self.lines) and all(line.included for line in self.lines):
            text = "Nothing had to be recalled: the window holds the whole conversation."
        if text:
            yield from [[], *([(line, "")] for line in wrapped(text, width))]

    def _rest(self, width: int, more: str) -> Iterator[_Line]:
        """Yield how much the short report leaves out."""
        recalled = sum(line.kind is Kind.RECALLED and line.id is not None for line in self.included)
        out = Counter(line.reason.value.replace("_", " ") for line in self.lines if not line.included)
        counts = [f"{recalled - BEST:,} more recalled"] if recalled > BEST else []
        yield []
        if out:
            reasons = ", ".join(f"{reason} {count:,}" for reason, count in out.most_common())
            counts.append(f"{sum(out.values()):,} left out ({reasons})")
        parts = [*(f"… {', '.join(counts)};".split() if counts else []), f"every line: {more}"]
        yield from ([(line, "dim")] for line in flowed(parts, width, between=" "))

    def _table(self, width: int) -> Iterator[_Line]:
        rows = [_cells(line) for line in self.lines]
        columns = zip(COLUMNS, *rows, strict=True)
        widths = {name: max(map(len, column)) for name, column in zip(COLUMNS, columns, strict=True)}
        if not self.reranked:
            del widths["reranked"]
        for name in [name for name in DISPENSABLE if name in widths]:
            if sum(widths.values()) + 2 * len(widths) + TEXT_WIDTH <= width:
                break
            del widths[name]
        found = self.found
        yield []
        yield [(_row(COLUMNS, widths) + "text", "bold")]
        for row, line in zip(rows, self.lines, strict=True):
            style = "found" if line in found else "" if line.included else "dim"
            yield [(_row(row, widths) + line.shown[:width], style)]

    def _legend(self, width: int) -> Iterator[_Line]:
        """Yield the reasons that occur, with their sentences."""
        yield []
        counts = Counter(line.reason for line in self.lines)
        sentences = {reason.value: (reason.why, count) for reason, count in counts.items()}
        indent = max(map(len, sentences), default=0) + 2
        beside = indent <= width // 2
        for code, (sentence, count) in sentences.items():
            why = wrapped(f"{sentence} ({counted(count, 'line')})", width - (indent if beside else 2))
            if not beside:
                yield [(code, "")]
            for number, line in enumerate(why):
                yield [(f"{code if not number and beside else '':<{indent if beside else 2}}{line}", "")]

    def _repr_html_(self) -> str:
        colours = ("#64748b", "#a78bfa", "#f59e0b", "#10b981", "#ec4899", "#3b82f6", "#94a3b8")
        palette = dict(zip(Kind, colours, strict=True))
        bar = "".join(
            f'<span title="{kind.value}: {tokens}" style="display:inline-block;height:1em;'
            f'width:{cells / BAR_WIDTH * 100:.1f}%;background:{palette[kind]}"></span>'
            for kind, tokens, cells in self._shares()
        )
        notes = "".join(f"<p>! {html.escape(note)}</p>" for note in self._warnings())
        best = "".join(f"<li>{html.escape(line.shown)}</li>" for line in self.best[:BEST])
        return (
            f'<div style="width:100%;background:#e5e7eb">{bar}</div>'
            f"<p>{html.escape(self._tokens())}: {html.escape('  '.join(self._totals()))}</p>{notes}"
            f"{f'<p>Recalled, best first:</p><ol>{best}</ol>' if best else ''}"
            f"<details><summary>{counted(len(self.lines), 'line')}</summary>{self._html_table()}</details>"
        )

    def _html_table(self) -> str:
        kept = [name != "reranked" or self.reranked for name in COLUMNS]
        head = "".join(f"<th>{cell}</th>" for cell in (*compress(COLUMNS, kept), "why", "text"))
        rows = [(*compress(_cells(line), kept), line.why, line.preview) for line in self.lines]
        body = "".join("<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
        return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _beside(head: str, line: ReportLine, words: frozenset[str], width: int, *, found: bool) -> Iterator[_Line]:
    """Yield a recalled message: its numbers, and the part of its text that answers the question beside them."""
    mark, style = (">", "found") if found else (" ", "")
    indent = len(head) + 1
    if width - indent < TEXT_WIDTH:
        yield [((mark + head).rstrip(), style)]
        indent, mark, head = 2, "", "  "
    shown = passage(line.shown, words, width - indent, BEST_LINES)
    for number, text in enumerate(shown or [""]):
        yield [(mark + head if not number else " " * indent, style), (text, style)]


def _cells(line: ReportLine) -> tuple[str, ...]:
    scores = (line.score, line.lexical, line.dense, line.reranked)
    numbers = ["" if value is None else f"{value:.2f}" for value in scores]
    reason = f"{line.reason} (part)" if line.part else line.reason.value
    return "+" if line.included else "-", line.role or "", f"{line.tokens:,}", f"{line.left:,}", *numbers, reason


def _row(cells: Sequence[str], widths: Mapping[str, int]) -> str:
    shown = [(name, cell) for name, cell in zip(COLUMNS, cells, strict=True) if name in widths]
    left = ("", "role", "reason")
    return "".join(f"{cell:<{widths[name]}}  " if name in left else f"{cell:>{widths[name]}}  " for name, cell in shown)


@dataclass(frozen=True, slots=True)
class Context:
    """The prompt for a question, and the report on it.

    Attributes:
        messages: the messages to send, oldest first, with grounding and recalled text included.
        report: why each message is in the prompt or not.
        stable_prefix: how many messages stand before the question and what is recalled for it. The next prompt begins
            with the same ones, so that a provider can cache them, unless its window or summary is another one.
    """

    messages: tuple[Message, ...]
    report: ContextReport
    stable_prefix: int = 0

    @property
    def tokens(self) -> int:
        """The size of the prompt in tokens, including tool schemas and framing."""
        return self.report.total_tokens

    def __repr__(self) -> str:
        return f"<Context: {counted(len(self.messages), 'message')}, {self.report._tokens()}>"

    def to_openai(self) -> list[Any]:
        """Return the prompt for OpenAI's chat completions: `create(model=..., messages=context.to_openai())`.

        Raises:
            ValueError: a message holds what chat completions cannot express. The error names both.
        """
        return write_each([*map(fields_of, self.messages)], lambda fields: [write_chat(fields)])

    def to_responses(self) -> list[Any]:
        """Return the prompt for OpenAI's Responses API: `create(model=..., input=context.to_responses())`.

        Raises:
            ValueError: a message holds what the Responses API cannot express. The error names both.
        """
        given = [*map(fields_of, self.messages)]
        custom = {call_id for fields in given for call_id in custom_calls(fields)}
        return write_each(given, lambda fields: write_items(fields, custom))

    def to_anthropic(self, *, cache_control: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Return the prompt for Anthropic's API: `create(model=..., max_tokens=..., **context.to_anthropic())`.

        `system` holds all system messages, and is missing if there are none. `messages` holds the others, with blocks
        for tool calls and their results. What one role says in a row is one message, and names stand before the text.
        If the prompt begins with a greeting of the assistant's, a user's message of a few words is put before it.

        Args:
            cache_control: a mark such as `{"type": "ephemeral"}`, which is put where the stable part of the prompt
                ends (`stable_prefix`). The API caches a prompt up to its marks. None: no mark.

        Raises:
            ValueError: a message holds what Anthropic's API cannot express. The error names both.
        """
        return anthropic_request([*map(fields_of, self.messages)], stable=self.stable_prefix, mark=cache_control)
