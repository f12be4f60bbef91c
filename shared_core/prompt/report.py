"""Write down why each message is in a prompt or not, and what that costs; pure."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from shared_core.messages import Message, Role
from shared_core.prompt.context import Kind, Reason, ReportLine
from shared_core.prompt.frame import Frame
from shared_core.prompt.window import Candidate, Selection, Window
from shared_core.turns import Entry

__all__ = ["report_lines", "trimming_notes"]


@dataclass
class _Ledger:
    """Writes the report's lines and keeps the account."""

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
        line = ReportLine(id_, role, kind, included, reason, tokens, self.left, text, score, lexical, dense)
        self.lines.append(line)

    def put_all(self, entries: Iterable[Entry], kind: Kind, reason: Reason, *, included: bool = True) -> None:
        for entry in entries:
            self.put(entry, kind, reason, entry.tokens, included=included)


def report_lines(frame: Frame, selection: Selection, alone: Sequence[Entry]) -> list[ReportLine]:
    """Return a line for every message considered; `alone` are replies without their user message."""
    ledger = _Ledger(frame.budget)
    if frame.tools:
        ledger.put(None, Kind.TOOLS, Reason.TOOL_SCHEMAS, frame.tools)
    ledger.put_all(frame.stays, Kind.SYSTEM, Reason.STAYS)
    if frame.question is not None:
        ledger.put(frame.question, Kind.QUESTION, Reason.QUESTION, frame.bare)
        if frame.question.message.grounding is not None:
            reason = Reason.GROUNDING_TRIMMED if frame.grounding.trimmed else Reason.GROUNDING
            text = Message(role="user", id=frame.question.message.id, content=frame.grounding.text)
            ledger.put(text, Kind.GROUNDING, reason, frame.grounding_tokens, included=bool(frame.grounding.text))
    if frame.summary is not None:
        role: Role = "user" if frame.summary.beside else "system"
        said = Message(role=role, content=f"{frame.summary.messages} messages: {frame.summary.said}")
        ledger.put(said, Kind.SUMMARY, Reason.SUMMARY, frame.summary.tokens)
    ledger.put_all(frame.groups, Kind.QUESTION, Reason.CURRENT_TURN)
    ledger.put_all(frame.left_out, Kind.QUESTION, Reason.OLDER_GROUP, included=False)
    _put_window(ledger, selection.window)
    ledger.put_all(alone, Kind.WINDOW, Reason.NO_QUESTION, included=False)
    _put_recall(ledger, selection)
    return ledger.lines


def _put_window(ledger: _Ledger, window: Window) -> None:
    for turn in window.kept:
        ledger.put_all(reversed(turn.entries), Kind.WINDOW, Reason.NEWEST)
        ledger.put_all(turn.broken, Kind.WINDOW, Reason.BROKEN_GROUP, included=False)
    for turn in window.stable_cut:
        ledger.put_all(reversed(turn.entries), Kind.WINDOW, Reason.STABLE_START, included=False)
    for turn in window.too_large:
        ledger.put_all(reversed(turn.entries), Kind.WINDOW, Reason.OVER_BUDGET, included=False)


def _put_recall(ledger: _Ledger, selection: Selection) -> None:
    wording = selection.recall_tokens
    for candidate in selection.candidates:
        included = candidate.reason is Reason.RECALLED
        for entry in candidate.entries:
            reason = Reason.EXCERPT if included and candidate.cut else candidate.reason or Reason.IN_WINDOW
            ledger.put(entry, Kind.RECALLED, reason, entry.tokens, included=included, scores=candidate)
            wording -= entry.tokens if included else 0
    if wording:
        ledger.put(None, Kind.RECALLED, Reason.WORDING, wording)


def trimming_notes(frame: Frame) -> list[str]:
    """Return how much of the grounding the model does not see, in words."""
    if frame.question is None or not frame.grounding.trimmed:
        return []
    assert frame.question.message.grounding is not None
    count = sum(bool(item.text) for item in frame.question.message.grounding.items)
    cut = ", and the last one cut" if frame.grounding.cut else ""
    return [f"{frame.grounding.omitted} of {count} retrieved passages left out{cut}: they do not fit"]
