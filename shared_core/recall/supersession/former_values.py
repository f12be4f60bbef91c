"""How questions ask for what was so before: which time they mean, and their words that no message of that time has."""

import re
from typing import Literal

History = Literal["before", "beginning"]

_UNSAID_BEGINNING = r"originally|initially|at (?:the )?(?:first|start|beginning)|in the beginning"
_UNSAID_BEFORE = r"used? to|formerly|previously|before|back then|(?:was|were) (?:i |we |\w+ )?(?:supposed|meant) to"
"""Words for the time before a change. Nobody says them in a message of that time."""

_BEGINNING = re.compile(
    rf"\b(?:{_UNSAID_BEGINNING}|original|initial|first"
    r"|how (?:did|has|have)\b.{0,60}\bchange[ds]?|over time|evolve[ds]?|history of)\b",
    re.IGNORECASE,
)
_BEFORE = re.compile(
    rf"\b(?:{_UNSAID_BEFORE}|previous|former|earlier|used to|prior|until (?:recently|then)|old"
    r"|no longer|any ?more|changed from)\b",
    re.IGNORECASE,
)
_UNSAID = re.compile(rf"\b(?:{_UNSAID_BEGINNING}|{_UNSAID_BEFORE})\b", re.IGNORECASE)


def asks_history(question: str) -> History | None:
    """Return whether a question asks what was so before ("what was it before?") or at the beginning, or neither."""
    if _BEGINNING.search(question):
        return "beginning"
    return "before" if _BEFORE.search(question) else None


def without_history(question: str) -> str:
    """Return a question without the words that ask for the time before a change."""
    return _UNSAID.sub(" ", question)
