"""Corrections that name nothing but a value, such as "sorry, I meant 3,200" and "no wait, Tuesday"; pure."""

import re
from typing import NamedTuple

from shared_core.recall.supersession.statements import Statement, statement

LONGEST_CORRECTION = 48
"""Characters of such a message, at most."""

_BEGINS = re.compile(
    r"(?:(?:oh|ah|oops|sorry|no|wait|hang on|actually|correction|i mean|i meant|i meant to say|make (?:that|it)"
    r"|rather|scratch that|my mistake|it's|it is|that's)\b[\s,:.!\u2014-]*)+",
    re.IGNORECASE,
)
_CORRECTS = re.compile(
    r"sorry|oops|wait|hang on|correction|i mean|make (?:that|it)|scratch that|my mistake", re.IGNORECASE
)

MOST_SAID = 3
"""Words of the value, at most."""


class Correction(NamedTuple):
    """The value that a correction names: figures of some kind, or names."""

    figures: frozenset[str]
    names: frozenset[str]

    def is_of_kind_of(self, other: Statement) -> bool:
        """Return whether a statement has another value of the same kind."""
        if self.figures:
            numbers = {figure[-1].isdigit() for figure in self.figures}
            return bool(other.figures - self.figures) and numbers <= {figure[-1].isdigit() for figure in other.figures}
        return bool(self.names and other.names - self.names)


def correction(text: str) -> Correction | None:
    """Return the value that a message names which does nothing but correct one; None: it is no such message."""
    begins = _BEGINS.match(text) if len(text) <= LONGEST_CORRECTION else None
    if begins is None or not _CORRECTS.search(begins[0]):
        return None
    said = text[begins.end() :].strip(" .!")
    if not said or len(said.split()) > MOST_SAID:
        return None
    stated = statement(f"it is {said}")
    if stated is None or stated.terms or not (stated.figures or stated.names):
        return None
    return Correction(stated.figures, stated.names)
