"""The lines of a report: what is in the prompt, what is not, and why; made when they are looked at; pure."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from shared_core.messages import Message
from shared_core.prompt.context import ReportLine
from shared_core.prompt.fixed_part import FixedPart
from shared_core.prompt.hits import Hit, Kind, Reason
from shared_core.prompt.window import Selection, Window
from shared_core.session.turns import Entry


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
        reranked = scores.reranked if scores else None
        line = ReportLine(
            id_, role, kind, included, reason, tokens, self.left, text, score, lexical, dense, at, reranked, part
        )
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
