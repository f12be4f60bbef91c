"""How long excerpts are: shorter, the more messages are worth recalling; pure."""

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

Floats = npt.NDArray[np.float64]


def recalled_tokens(tokens: Floats, size: float) -> Floats:
    """Return what messages take when those longer than `WHOLE` times `size` are cut to that size.

    Args:
        tokens: the size of each message.
        size: tokens of an excerpt.
    """
    cut: Floats = np.where(tokens > WHOLE * size, size, tokens) + FRAME_TOKENS
    return cut


def excerpt_size(tokens: Floats, room: int, most: int) -> int:
    """Return the size of excerpts at which all messages fit, or `SHORTEST` if even then they do not; at most `most`.

    Args:
        tokens: the size of each message that is worth recalling.
        room: tokens that they may take.
        most: the largest size.
    """
    sizes = range(min(SHORTEST, most), most + 1)
    # What they take grows with the size, so bisect.
    fitting = bisect_right(sizes, room, key=lambda size: math.ceil(recalled_tokens(tokens, size).sum()))
    return sizes[max(fitting - 1, 0)]
