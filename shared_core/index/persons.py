"""Of whom a message speaks: of who says it, or only of who hears it. English."""

import re

__all__ = ["of_whom"]

LONGEST = 600
"""Characters that are looked at; a longer text speaks of more than one thing."""

_SELF = re.compile(r"\b(?:i|me|my|mine|myself|we|us|our|ours|ourselves)\b", re.IGNORECASE)
_HEARER = re.compile(r"\b(?:you|your|yours|yourself|yourselves)\b", re.IGNORECASE)


def of_whom(text: str) -> int:
    """Return 1 for "I went there", -1 for "Did you like it?", 0 for "Nice!"; who speaks of both speaks of himself."""
    begins = text[:LONGEST]
    if _SELF.search(begins):
        return 1
    return -1 if _HEARER.search(begins) else 0
