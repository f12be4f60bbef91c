"""The bands of relevance: where each begins, and that a better match is never in a worse band."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared_core.plugins.embedders.minilm import MINILM
from shared_core.plugins.embedders.static import STATIC
from shared_core.prompt.relevance import Band, band, closeness

ORDER = list(Band)[::-1]


def test_where_the_bands_begin(subtests: pytest.Subtests) -> None:
    rows: list[tuple[float | None, float | None, str | None]] = [
        (0.5, 0.4, "strong"),  # both match
        (0.49, 0.4, "fair"),
        (0.5, 0.39, "fair"),
        (0.49, 0.39, "weak"),
        (1.0, -0.2, "strong"),  # one of them matches very well
        (0.99, -0.2, "fair"),
        (0.0, 0.61, "strong"),
        (0.0, 0.59, "fair"),
        (0.0, 0.0, "weak"),
        (1.0, None, "strong"),  # without a vector, words alone
        (0.5, None, "fair"),
        (0.0, None, "weak"),
        (None, 0.61, "strong"),  # without words, meaning alone
        (None, 0.39, "weak"),
        (None, None, None),
    ]
    for lexical, dense, expected in rows:
        with subtests.test(lexical=lexical, dense=dense, expected=expected):
            assert STATIC.threshold == MINILM.threshold == 0.4
            assert band(lexical, dense, STATIC.threshold) == expected


share = st.floats(0, 3)
cosine = st.floats(-1, 1)


@given(share, share, cosine, cosine, st.floats(0.05, 0.95))
def test_a_better_match_is_in_no_worse_band(one: float, other: float, low: float, high: float, scale: float) -> None:
    (one, other), (low, high) = sorted((one, other)), sorted((low, high))
    worse, better = band(one, low, scale), band(other, high, scale)
    assert worse is not None
    assert better is not None
    assert ORDER.index(worse) <= ORDER.index(better)
    assert 0 <= closeness(one, low, scale) <= closeness(other, high, scale) <= 2
