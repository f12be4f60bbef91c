"""The lines of a report: what is in the prompt, what is not, and why; and the notes on what did not fit; pure."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from shared_core.messages import Message, Role
from shared_core.prompt.abridged import tokens as _size
from shared_core.prompt.context import ReportLine
from shared_core.prompt.frame import Frame, render_grounding
from shared_core.prompt.reasons import Kind, Reason
from shared_core.prompt.window import Candidate, Selection, Window
from shared_core.turns import Entry

__all__ = ["report_lines", "totals", "trimming_notes"]


@dataclass
class _Ledger:
    """Collects the report's lines and counts down the budget."""

    left: int
    lines: list[ReportLine] = field(default_factory=list)

    def put(
        self, entry: Entry | Message | None, kind: Kind, reason: Reason, tokens: int, *,
        included: bool = True, scores: Candidate | None = None,
    ) -> None:  # fmt: skip
        message = entry.message if isinstance(entry, Entry) else entry
        self.left -= tokens if included else 0
        id_, role, text = (message.id, message.role, message.content) if message else (None, None, "")
        score, lexical, dense = (scores.score, scores.lexical, scores.dense) if scores else (None, None, None)
        at = message.created_at if message else None
        reranked = scores.reranked if scores else None
        newer = scores.superseded_by if scores and scores.stating.message.id == id_ else None
        line = ReportLine(
            id_, role, kind, included, reason, tokens, self.left, text, score, lexical, dense, at, reranked, newer
        )
        self.lines.append(line)

    def put_all(self, entries: Iterable[Entry], kind: Kind, reason: Reason, *, included: bool = True) -> None:
        for entry in entries:
            self.put(entry, kind, reason, entry.tokens, included=included)


def report_lines(frame: Frame, selection: Selection, orphans: Sequence[Entry]) -> tuple[ReportLine, ...]:
    """Return a line for every message considered; `orphans` are replies without their user message."""
    ledger = _Ledger(frame.budget)
    if frame.tools:
        ledger.put(None, Kind.TOOLS, Reason.TOOL_SCHEMAS, frame.tools)
    ledger.put_all(frame.stays, Kind.SYSTEM, Reason.ALWAYS_SENT)
    if frame.question is not None:
        ledger.put(frame.question, Kind.QUESTION, Reason.QUESTION, frame.bare)
        if frame.question.message.grounding is not None:
            text = Message(role="user", id=frame.question.message.id, content=frame.grounding.text)
            included = bool(frame.grounding.text)
            ledger.put(text, Kind.GROUNDING, _why_grounding(frame), frame.grounding_tokens, included=included)
    if frame.summary is not None:
        role: Role = "user" if frame.summary.beside else "system"
        count = f"{frame.summary.messages:,} message{'' if frame.summary.messages == 1 else 's'}"
        said = Message(role=role, content=f"{count}: {frame.summary.said}")
        ledger.put(said, Kind.SUMMARY, Reason.SUMMARY, frame.summary.tokens)
    stubs = {entry.order for entry in frame.stubbed}
    for entry in frame.groups:
        ledger.put(entry, Kind.QUESTION, Reason.STUB if entry.order in stubs else Reason.CURRENT_TURN, entry.tokens)
    ledger.put_all(frame.left_out, Kind.QUESTION, Reason.OLDER_GROUP, included=False)
    _put_window(ledger, selection.window)
    ledger.put_all(orphans, Kind.WINDOW, Reason.NO_QUESTION, included=False)
    _put_recall(ledger, selection, summed=frame.summary is not None)
    return tuple(ledger.lines)


def totals(frame: Frame, selection: Selection) -> dict[Kind, int]:
    """Return the tokens of each part of the prompt, which are those of the report's lines."""
    asked = frame.question is not None
    return {
        Kind.SYSTEM: _size(frame.stays),
        Kind.TOOLS: frame.tools,
        Kind.QUESTION: (frame.bare if asked else 0) + _size(frame.groups),
        Kind.GROUNDING: frame.grounding_tokens if asked and frame.grounding.text else 0,
        Kind.SUMMARY: frame.summary.tokens if frame.summary is not None else 0,
        Kind.RECALLED: selection.recall_tokens,
        Kind.WINDOW: selection.window.tokens,
    }


def _why_grounding(frame: Frame) -> Reason:
    """Return why the question's grounding is in the prompt, or why it is not."""
    assert frame.question is not None
    if frame.grounding.text:
        return Reason.GROUNDING_TRIMMED if frame.grounding.trimmed else Reason.GROUNDING
    if frame.grounding.trimmed:
        return Reason.GROUNDING_TOO_LARGE
    return Reason.GROUNDING_OFF if render_grounding(frame.question.message.grounding) else Reason.GROUNDING_EMPTY


def _put_window(ledger: _Ledger, window: Window) -> None:
    for turn in window.kept:
        ledger.put_all(reversed(turn.entries), Kind.WINDOW, Reason.NEWEST)
        ledger.put_all(turn.broken, Kind.WINDOW, Reason.BROKEN_GROUP, included=False)
    for turn in window.stable_cut:
        ledger.put_all(reversed(turn.entries), Kind.WINDOW, Reason.STABLE_START, included=False)
    for turn in window.too_large:
        ledger.put_all(reversed(turn.entries), Kind.WINDOW, window.why_without(turn), included=False)


def _put_recall(ledger: _Ledger, selection: Selection, *, summed: bool) -> None:
    wording = selection.recall_tokens
    for candidate in selection.candidates:
        included = candidate.reason is Reason.RECALLED
        for entry in candidate.entries:
            reason = candidate.why_recalled(entry) if included else candidate.reason or Reason.IN_WINDOW
            if reason is Reason.IN_SUMMARY and not summed:
                reason = Reason.SUMMARY_LEFT_OUT
            ledger.put(entry, Kind.RECALLED, reason, entry.tokens, included=included, scores=candidate)
            wording -= entry.tokens if included else 0
    # The text takes more than its messages: header, footer, days and speakers.
    if wording:
        ledger.put(None, Kind.RECALLED, Reason.WORDING, wording)


def trimming_notes(frame: Frame, window: Window) -> list[str]:
    """Return notes on what did not fit beside the question: its grounding, and older steps of its turn."""
    return [*_grounding_notes(frame), *_turn_notes(frame), *_tools_notes(frame, window)]


def _grounding_notes(frame: Frame) -> list[str]:
    if frame.question is None or not frame.grounding.trimmed:
        return []
    assert frame.question.message.grounding is not None
    count = sum(bool(item.text) for item in frame.question.message.grounding.items)
    cut = ", and the last one cut" if frame.grounding.cut else ""
    return [f"{frame.grounding.omitted} of {count} retrieved passages left out{cut}: they do not fit"]


def _turn_notes(frame: Frame) -> list[str]:
    notes = []
    if stubbed := frame.stubbed:
        size = sum(entry.tokens for entry in stubbed)
        notes.append(f"tool results of this turn replaced by stubs: {len(stubbed):,} ({size:,} tokens) do not fit")
    if frame.left_out:
        size = sum(entry.tokens for entry in frame.left_out)
        notes.append(f"messages of this turn left out: {len(frame.left_out):,} ({size:,} tokens) do not fit")
    return notes


LARGE_TOOLS = 0.5
"""Tool schemas that take this share of the budget are named as the reason why older turns do not fit."""


def _tools_notes(frame: Frame, window: Window) -> list[str]:
    if window.reaches_all or frame.tools < LARGE_TOOLS * frame.budget:
        return []
    return [f"tool schemas take {frame.tools:,} of {frame.budget:,} tokens, so little of the conversation fits"]
