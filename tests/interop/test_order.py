"""Rerankers that return some of the texts in an order of their own."""

from math import inf, nan

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared_core.doors.interop.adapters import Kept, scores_of
from shared_core.recall.reranking import order_of


def test_scores_are_those_given_if_they_fall_and_else_count_down(subtests: pytest.Subtests) -> None:
    rows: list[tuple[Kept, list[float]]] = [
        ([(1, 0.9), (0, 0.2), (2, -3.0)], [0.2, 0.9, -3.0]),
        ([(1, None), (0, None), (2, None)], [2, 3, 1]),
        ([(1, 0.2), (0, 0.9), (2, 0.1)], [2, 3, 1]),  # the order says more than the scores
        ([(1, 0.5), (0, 0.5), (2, 0.5)], [2, 3, 1]),
        ([(1, 0.9), (0, None), (2, 0.1)], [2, 3, 1]),
        ([(1, nan), (0, 0.5), (2, 0.1)], [2, 3, 1]),
        ([(2, 0.0)], [-inf, -inf, 0.0]),
        ([(2, None), (0, None)], [1, -inf, 2]),
        ([(2, 0.9), (1, 0.8), (2, 0.7)], [-inf, 0.8, 0.9]),  # in parts: the first one counts
        ([], [-inf, -inf, -inf]),
    ]
    for kept, expected in rows:
        with subtests.test(kept=kept, expected=expected):
            assert scores_of(kept, 3) == expected


def test_what_was_not_given_is_an_error() -> None:
    for index in (3, -1):
        with pytest.raises(IndexError, match=f"text {index} was kept, but only 3 were given"):
            scores_of([(index, 0.5)], 3)


@given(st.permutations(range(9)), st.integers(0, 9), st.lists(st.floats(-9, 9), min_size=9, max_size=9))
def test_the_order_of_the_scores_is_the_one_kept_and_then_what_was_dropped(
    order: list[int], count: int, scores: list[float]
) -> None:
    kept = list(zip(order[:count], scores, strict=False))
    assert order_of(scores_of(kept, 9)) == [*order[:count], *sorted(order[count:])]
