"""How long excerpts are: shorter, the more messages are worth recalling, and longer for the best; pure."""

import math
from bisect import bisect_right

import numpy as np
import numpy.typing as npt

WHOLE = 1.5
"""A message at most this many times as long as an excerpt is recalled whole: a cut would save little."""

FRAME_TOKENS = 8
"""What a line of a recalled message takes beside its text, about."""

SHORTEST = 60
"""Tokens below which excerpts are not cut for more messages.

Measured on BEAM's questions for orders and summaries and on QMSum in 4,000 tokens, against 100: 2 to 5 points more of
the evidence, and .3 to 1.3 less of the facts of the answer. 45 and 30 tokens bring more evidence, and lose 1 to 4
points of the facts.
"""

FIRST_SHARE = 0.4
"""The share of the room that the excerpt of the best message may take; that of rank r, an r-th of it.

An excerpt holds the words of the question, and often not the answer, which a long reply says elsewhere. Measured on
eight conversations of BEAM in 4,000 tokens, against excerpts of one size: .9 points more of the facts of the answer, 8
where a question asks for one piece of information, and .6 less of the evidence.
"""

LONGEST = 8
"""How many times the usual size the longest excerpt may be."""

Floats = npt.NDArray[np.float64]


def recalled_tokens(tokens: Floats, sizes: Floats | float) -> Floats:
    """Return what messages take when those longer than `WHOLE` times the size of an excerpt are cut to that size.

    Args:
        tokens: the size of each message.
        sizes: tokens of an excerpt, for each message or for all of them.
    """
    cut: Floats = np.where(tokens > WHOLE * sizes, sizes, tokens) + FRAME_TOKENS
    return cut


def excerpt_sizes(tokens: Floats, room: int, most: int, *, even: bool = False) -> Floats:
    """Return the size of an excerpt of each message.

    All have the size at which all messages fit, or `SHORTEST` if even then they do not. The best have more.

    Args:
        tokens: the size of each message that is worth recalling, best first.
        room: tokens that they may take.
        most: the largest size, except of the best.
        even: whether the best get no more than the others, as for a question about many messages at once.
    """
    first = 0.0 if even else min(FIRST_SHARE * room, LONGEST * most)
    best = np.floor(first / np.arange(1, len(tokens) + 1))
    usual = range(min(SHORTEST, most), most + 1)
    # What they take grows with the size, so bisect.
    fitting = bisect_right(
        usual, room, key=lambda size: math.ceil(recalled_tokens(tokens, np.maximum(size, best)).sum())
    )
    sizes: Floats = np.maximum(usual[max(fitting - 1, 0)], best)
    return sizes
