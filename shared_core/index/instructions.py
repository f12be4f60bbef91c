"""Standing instructions: what somebody says about how to answer from then on. English."""

import re

__all__ = ["is_standing_instruction"]

LONGEST = 600
"""Characters; longer texts say such words in passing."""

_STANDING = re.compile(
    r"\b(?:always|never|from now on|whenever|every time|each time)\b.{0,80}\b(?:when|if|whenever|i ask|me)\b"
    r"|\b(?:when(?:ever)? i (?:ask|say|mention|request)|if i (?:ask|say))\b",
    re.IGNORECASE,
)


def is_standing_instruction(text: str) -> bool:
    """Return whether a text sounds like "always show the units when I ask for a measure"."""
    return len(text) < LONGEST and _STANDING.search(text) is not None
