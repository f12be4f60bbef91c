"""The prompt and the report on each of its parts, as values."""

import html
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple

from shared_core.formats.anthropic import write_anthropic
from shared_core.formats.fields import write_each
from shared_core.formats.openai_chat import custom_calls, write_chat
from shared_core.formats.openai_responses import write_items
from shared_core.messages import Message, Role, fields_of

BAR_WIDTH = 60
"""Characters of the budget bar."""

PREVIEW = 48
"""Characters of a message shown in the report."""

COLUMNS: tuple[str, ...] = ("", "role", "tokens", "left", "score", "words", "cosine", "why", "text")
"""The headers of the report's table."""


class Kind(StrEnum):
    """The part of the prompt that tokens belong to."""

    SYSTEM = "system"
    TOOLS = "tools"
    QUESTION = "question"
    GROUNDING = "grounding"
    SUMMARY = "summary"
    RECALLED = "recalled"
    WINDOW = "window"

    @property
    def letter(self) -> str:
        """Its letter in the budget bar. The summary is M, since S is the system messages."""
        return "M" if self is Kind.SUMMARY else self.value[0].upper()


class Reason(StrEnum):
    """Why a message is in the prompt or not."""

    STAYS = "system or pinned: always sent"
    QUESTION = "the question"
    CURRENT_TURN = "answers the question"
    GROUNDING = "retrieved for the question"
    GROUNDING_TRIMMED = "retrieved for the question, trimmed to fit"
    TOOL_SCHEMAS = "tool schemas"
    NEWEST = "among the newest turns"
    RECALLED = "recalled: matches the question"
    EXCERPT = "recalled in part: matches the question"
    OVER_BUDGET = "does not fit"
    STABLE_START = "left out to keep the window's start"
    OLDER_GROUP = "older tool group of this turn: does not fit"
    BROKEN_GROUP = "tool call without its results, or results without their call"
    NO_QUESTION = "a turn without a user message cannot be sent by itself"
    IN_WINDOW = "matches, but is in the window already"
    DUPLICATE = "says the same as a newer message"
    SAME_TURN = "its turn is recalled already"
    REPEATS_QUESTION = "is the question, asked before"
    WEAK = "matches too little"
    TOP_K = "beyond top_k"
    WORDING = "wording around what is recalled"
    SUMMARY = "sums up older messages"
    IN_SUMMARY = "matches, but stands in the summary word for word"


class ReportLine(NamedTuple):
    """One decision.

    Attributes:
        id: the message's id; None for tool schemas, a summary, and a question that is not stored.
        role: the message's role; None for tool schemas. For a summary, the role of the message that contains it.
        kind: the part of the prompt it belongs to, or would belong to.
        included: whether it is in the prompt.
        reason: why it is in the prompt or not.
        tokens: its size, including framing.
        left: tokens of the budget left after this decision.
        text: its text.
        score: the recall score (higher is better; comparable within one report only).
        lexical: the share of the question's informative words that it matches, about 0 to 1.
        dense: the cosine of its best piece with the question.
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

    @property
    def preview(self) -> str:
        """The beginning of the text, on one line."""
        return preview(self.text)

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON data, with the preview instead of the text."""
        values = {name: getattr(self, name) for name in self._fields if name != "text"}
        return values | {"kind": self.kind.value, "reason": self.reason.value, "preview": self.preview}


@dataclass(frozen=True, slots=True)
class ContextReport:
    """Why each message is in the prompt or not. `str()` draws it, a notebook shows it, `to_dict()` returns JSON data.

    Attributes:
        budget: tokens that may be sent: the model's limit minus the reserve.
        reserve: tokens kept free for the reply.
        lines: every decision, in the order taken.
        pending: messages in scope that have no vector yet and were ranked by words alone.
        degraded: descriptions of what could not be done; empty if everything worked.
        embedder: the key of the embedder whose vectors were used; None for words alone.
    """

    budget: int
    reserve: int
    lines: tuple[ReportLine, ...]
    pending: int = 0
    degraded: tuple[str, ...] = ()
    embedder: str | None = None
    totals: Mapping[Kind, int] = field(init=False)

    def __post_init__(self) -> None:
        totals = dict.fromkeys(Kind, 0)
        for line in self.included:
            totals[line.kind] += line.tokens
        object.__setattr__(self, "totals", totals)

    @property
    def included(self) -> tuple[ReportLine, ...]:
        """The lines of what is in the prompt."""
        return tuple(line for line in self.lines if line.included)

    @property
    def total_tokens(self) -> int:
        """The size of the prompt in tokens, including tool schemas and framing."""
        return sum(self.totals.values())

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
            "lines": [line.to_dict() for line in self.lines],
        }

    def to_json(self) -> str:
        """Return `to_dict()` as JSON text."""
        return json.dumps(self.to_dict(), ensure_ascii=False)

    def __str__(self) -> str:
        return "\n".join([self._bar(), self._totals(), *self._notes(), "", *self._table()])

    def _shares(self) -> list[tuple[Kind, int, int]]:
        """Return the kind, tokens and columns in the bar of every part that is not empty."""
        # Every part gets at least one column, however small, so that none is invisible.
        scale = max(self.budget, self.total_tokens, 1)
        return [
            (kind, tokens, max(1, round(BAR_WIDTH * tokens / scale))) for kind, tokens in self.totals.items() if tokens
        ]

    def _bar(self) -> str:
        letters = "".join(kind.letter * columns for kind, _, columns in self._shares())[:BAR_WIDTH]
        percent = 100 * self.total_tokens / max(self.budget, 1)
        return f"[{letters:·<{BAR_WIDTH}}] {self.total_tokens:,} of {self.budget:,} tokens ({percent:.0f} %)"

    def _totals(self) -> str:
        parts = [f"{kind.letter} {kind.value} {tokens:,}" for kind, tokens, _ in self._shares()]
        return "  ".join([*parts, f"· free {max(0, self.budget - self.total_tokens):,}", f"(reply {self.reserve:,})"])

    def _notes(self) -> list[str]:
        notes = [f"! {text}" for text in self.degraded]
        if self.pending:
            notes.append(f"! {self.pending:,} older messages have no vector yet and were ranked by their words")
        if self.over_budget:
            notes.append("! the prompt is larger than the budget")
        return notes

    def _table(self) -> list[str]:
        rows = [COLUMNS, *(_cells(line) for line in self.lines)]
        widths = [max(len(row[column]) for row in rows) for column in range(len(COLUMNS) - 1)]
        return [_row(row, widths) for row in rows]

    def _repr_html_(self) -> str:
        colours = ("#64748b", "#a78bfa", "#f59e0b", "#10b981", "#ec4899", "#3b82f6", "#94a3b8")
        palette = dict(zip(Kind, colours, strict=True))
        bar = "".join(
            f'<span title="{kind.value}: {tokens}" style="display:inline-block;height:1em;'
            f'width:{columns / BAR_WIDTH * 100:.1f}%;background:{palette[kind]}"></span>'
            for kind, tokens, columns in self._shares()
        )
        head = "".join(f"<th>{cell}</th>" for cell in COLUMNS)
        rows = [_cells(line) for line in self.lines]
        body = "".join("<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
        notes = "".join(f"<p>{html.escape(note)}</p>" for note in self._notes())
        return (
            f'<div style="width:100%;background:#e5e7eb">{bar}</div><p>{html.escape(self._totals())}</p>'
            f"{notes}<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
        )


def _cells(line: ReportLine) -> tuple[str, ...]:
    numbers = ["" if value is None else f"{value:.2f}" for value in (line.score, line.lexical, line.dense)]
    mark = "+" if line.included else "-"
    return mark, line.role or "", f"{line.tokens:,}", f"{line.left:,}", *numbers, line.reason.value, line.preview


def _row(cells: tuple[str, ...], widths: list[int]) -> str:
    numeric = range(2, 7)
    padded = [
        cell.rjust(width) if column in numeric else cell.ljust(width)
        for column, (cell, width) in enumerate(zip(cells[:-1], widths, strict=True))
    ]
    return "  ".join([*padded, cells[-1]]).rstrip()


def preview(text: str) -> str:
    """Return the beginning of a text on one line, without control characters."""
    # Cut first, as a message may have megabytes. Four times the length survives most white space.
    line = " ".join(text[: 4 * PREVIEW].split())[: PREVIEW + 1]
    if not line.isprintable():
        line = "".join(char if char.isprintable() else " " for char in line)
    return line if len(line) <= PREVIEW else line[: PREVIEW - 1] + "…"


@dataclass(frozen=True, slots=True)
class Context:
    """The prompt for a question, and the report on it.

    Attributes:
        messages: the messages to send, oldest first, with grounding and recalled text included.
        report: why each message is in the prompt or not.
    """

    messages: tuple[Message, ...]
    report: ContextReport

    @property
    def tokens(self) -> int:
        """The size of the prompt in tokens, including tool schemas and framing."""
        return self.report.total_tokens

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

    def to_anthropic(self) -> dict[str, Any]:
        """Return the prompt for Anthropic's API: `create(model=..., max_tokens=..., **context.to_anthropic())`.

        `system` holds all system messages, and is missing if there are none. `messages` holds the others, with blocks
        for tool calls and their results. What one role says in a row is one message, and names stand before the text.

        Raises:
            ValueError: a message holds what Anthropic's API cannot express. The error names both.
        """
        return write_anthropic([*map(fields_of, self.messages)])
