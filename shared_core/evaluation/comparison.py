"""Whether another setting is worth it: better evidence, or as much for fewer tokens; pure."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from shared_core.evaluation.figures import Lead, interval

__all__ = ["Comparison", "Verdict", "compared"]

Verdict = Literal["worth it", "not worth it", "not enough questions to tell"]

SAME = 0.05
"""Evidence counts as the same if it differs by at most five points, up or down, with 95 % certainty."""

LEAST_CHANGED = 6
"""Fewer questions that change are luck: of six, all change for the better by chance once in 64 times (a sign test)."""

UNSEEN = 3.0
"""If none of n questions changes, up to 3 / n of all questions do, with 95 % certainty (the rule of three)."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """A setting beside the present one, question by question.

    Attributes:
        name: what was set.
        verdict: whether it is worth it.
        why: the verdict as a sentence.
        evidence: how much more of the evidence is in the prompt, as a share.
        recalled: how many more tokens are recalled.
        tokens: how many more the whole prompt has.
        milliseconds: how much more time of one processor a question takes.
    """

    name: str
    verdict: Verdict
    why: str
    evidence: Lead
    recalled: Lead
    tokens: Lead
    milliseconds: Lead

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON data."""
        leads = ("evidence", "recalled", "tokens", "milliseconds")
        return {"name": self.name, "verdict": self.verdict, "why": self.why} | {
            name: getattr(self, name)._asdict() for name in leads
        }


@dataclass(frozen=True, slots=True)
class Figures:
    """What a setting brings for each question, in the same order.

    Attributes:
        evidence: shares.
        recalled: tokens.
        tokens: of the whole prompt.
        milliseconds: of one processor.
        clusters: what the questions are drawn by.
    """

    evidence: Sequence[float]
    recalled: Sequence[float]
    tokens: Sequence[float]
    milliseconds: Sequence[float]
    clusters: Sequence[str]


def compared(name: str, ours: Figures, theirs: Figures) -> Comparison:
    """Return how a setting compares with the present one.

    Args:
        name: of the setting.
        ours: what it brings.
        theirs: what the present setting brings for the same questions, at least one.
    """
    evidence, recalled, tokens, milliseconds = (
        interval(getattr(ours, figure), getattr(theirs, figure), theirs.clusters)
        for figure in ("evidence", "recalled", "tokens", "milliseconds")
    )
    changed = sum(one != other for one, other in zip(ours.evidence, theirs.evidence, strict=True))
    verdict, why = judged(evidence, recalled, tokens, changed, len(ours.evidence))
    return Comparison(name, verdict, why, evidence, recalled, tokens, milliseconds)


def judged(evidence: Lead, recalled: Lead, tokens: Lead, changed: int, questions: int) -> tuple[Verdict, str]:
    """Return the verdict and a sentence for it.

    Args:
        evidence: how much more of it is in the prompt.
        recalled: how many more tokens are recalled.
        tokens: how many more the whole prompt has.
        changed: the number of questions whose evidence is another share.
        questions: of all.
    """
    spent = f"{_spent(recalled)} tokens recalled, {_spent(tokens)} in the prompt"
    if not changed and not any((*recalled, *tokens)):
        return "not worth it", "it changes nothing for these questions"
    if changed >= LEAST_CHANGED and (evidence.low > 0 or evidence.high < 0):
        verdict: Verdict = "worth it" if evidence.low > 0 else "not worth it"
        return verdict, f"{_points(evidence)} of the evidence; {spent}"
    hidden = max(-evidence.low, evidence.high, UNSEEN / questions)
    if hidden > SAME:
        could = f"a difference of {100 * hidden:.0f} points may be luck or unseen with {questions:,}"
        return "not enough questions to tell", f"{could}; about {_needed(evidence, changed, questions):,} would tell"
    # Where newest turns fill what recall leaves of the prompt, it is as large with less recalled.
    cost = tokens if abs(tokens.mean) > abs(recalled.mean) / 2 else recalled
    same = f"as much of the evidence ({_points(evidence)})"
    return ("worth it" if cost.high < 0 else "not worth it"), f"{same}; {spent}"


def _needed(evidence: Lead, changed: int, questions: int) -> int:
    """Return about how many questions would tell: intervals shrink with the square root of their number."""
    width, mean = (evidence.high - evidence.low) / 2, abs(evidence.mean)
    for_width = questions * (width / max(mean, SAME - mean)) ** 2
    for_changes = questions * LEAST_CHANGED / changed if changed and not evidence.low <= 0 <= evidence.high else 0
    enough = max(for_width, for_changes, UNSEEN / SAME, questions + 1)
    step = 10 if enough < 1_000 else 100
    return step * math.ceil(enough / step)


def _points(lead: Lead) -> str:
    more = "more" if lead.mean >= 0 else "less"
    return f"{abs(100 * lead.mean):.1f} points {more} [{100 * lead.low:+.1f}, {100 * lead.high:+.1f}]"


def _spent(lead: Lead) -> str:
    if lead.low <= 0 <= lead.high:
        return "about as many"
    return f"{abs(lead.mean):,.0f} {'more' if lead.mean > 0 else 'fewer'}"
