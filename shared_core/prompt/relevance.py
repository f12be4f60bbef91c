"""Bands of relevance: what the numbers of a match say, in one word."""

from enum import StrEnum

MOST, ALL = 0.5, 1.0
"""The shares of the question's informative words from which a match by words counts once, and twice."""

ABOUT, CLOSE = 1.0, 1.5
"""The same for a match by meaning, as multiples of `Fingerprint.threshold`: .4 and .6 for the built-in models.

Measured with static vectors on the 30 best of LoCoMo, this project's example conversation and BEAM: of the strong
matches 17, 38 and 12 % are evidence, of the fair ones 7, 15 and 4 %, of the weak ones 1, 2 and 3 %. Of the evidence
among them, 37, 28 and 55 % is strong.
"""


class Band(StrEnum):
    """How well a message matches a question.

    Strong: its words and its meaning match, or one of them matches very well. Fair: one of them matches. Weak: neither
    does; the message says little about the question, or says it in quite other words.
    """

    STRONG = "strong"
    FAIR = "fair"
    WEAK = "weak"


def band(lexical: float | None, dense: float | None, threshold: float) -> Band | None:
    """Return the band of a match, None if nothing is known about it.

    Args:
        lexical: the share of the question's informative words that it matches; None: unknown.
        dense: the cosine with the question; None: unknown.
        threshold: the cosine from which a text is about the question; 0: unknown, so that cosines say nothing.
    """
    unknown = lexical is None if dense is None else threshold <= 0
    if unknown and not lexical:
        return None
    words, meaning = lexical or 0.0, _meaning(dense, threshold)
    times = (words >= MOST) + (words >= ALL) + (meaning >= ABOUT) + (meaning >= CLOSE)
    return (Band.WEAK, Band.FAIR)[times] if times < 2 else Band.STRONG


def closeness(lexical: float | None, dense: float | None, threshold: float) -> float:
    """Return how close a match is, from 0 to 2, comparable between questions, which `ReportLine.score` is not."""
    return min(1.0, (lexical or 0.0) / ALL) + min(1.0, max(0.0, _meaning(dense, threshold)) / CLOSE)


def _meaning(dense: float | None, threshold: float) -> float:
    return dense / threshold if dense is not None and threshold > 0 else 0.0
