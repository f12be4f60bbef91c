"""What is in a prompt, what it brings for a question, and lines that no conversation has an answer to."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import NamedTuple

from shared_core.prompt.context import ContextReport
from shared_core.prompt.reasons import Kind
from shared_core.recall.excerpts import EXCERPT_MARK

__all__ = ["Gain", "Prompt", "foreign_questions", "prompt_of", "small_talk"]

MOST_FOREIGN = 80
"""Questions of another conversation that are asked at most."""

NOT_SEARCHED = (Kind.QUESTION, Kind.TOOLS)
"""Parts of a prompt that hold no evidence: the question itself, and tool schemas."""


class Prompt(NamedTuple):
    """What is in a prompt besides the question.

    Attributes:
        texts: what is there of each message, by its id, without names, dates, and the marks of excerpts.
        summary: the text of the summary; empty if there is none.
        recalled: the tokens of what was recalled, with its wording.
        tokens: those of the whole prompt.
    """

    texts: Mapping[str, str]
    summary: str
    recalled: int
    tokens: int


def prompt_of(report: ContextReport) -> Prompt:
    """Return what a report says is in the prompt."""
    lines = [line for line in report.included if line.kind not in NOT_SEARCHED]
    texts = {line.id: line.text.removesuffix(EXCERPT_MARK.format(text="", id=line.id)) for line in lines if line.id}
    summary = " ".join(line.text for line in lines if line.kind is Kind.SUMMARY)
    return Prompt(texts, summary, report.totals[Kind.RECALLED], report.total_tokens)


@dataclass(frozen=True, slots=True)
class Gain:
    """What one prompt brings, and what it costs.

    Attributes:
        recalled: tokens of what was recalled.
        tokens: those of the whole prompt.
        evidence: the share of the evidence that is in it; None if there is none.
        facts: the share of the answer's informative words that are in it, of those that the question does not hold;
            None if there are none.
    """

    recalled: int
    tokens: int
    evidence: float | None = None
    facts: float | None = None


def small_talk() -> dict[str, list[str]]:
    """Return lines that no conversation has an answer to, by kind."""
    kinds: dict[str, list[str]] = json.loads(Path(__file__).with_name("small_talk.json").read_text(encoding="utf-8"))
    return kinds


def foreign_questions(conversations: Sequence[Sequence[str]], at: int) -> list[str]:
    """Return questions about the conversation after the one `at`, the same ones every time; none if there is no other.

    After the last one comes the first.

    Args:
        conversations: the questions about each.
        at: the number of a conversation, from 0.
    """
    if len(conversations) == 1:
        return []
    questions = list(conversations[(at + 1) % len(conversations)])
    return questions if len(questions) <= MOST_FOREIGN else Random(at).sample(questions, MOST_FOREIGN)
