"""Means with their intervals."""

import pytest

from shared_core.evaluation.figures import bootstrap, interval


def test_bootstrap_draws_whole_conversations() -> None:
    # Drawn are twice the first (a lead of 1), each once (2/3), or twice the second (0).
    assert bootstrap([1, 1, 0], ["x", "x", "y"]) == pytest.approx((2 / 3, 0, 1))
    assert bootstrap([1, 0], ["x", "x"]) == (0.5, 0.5, 0.5)


def test_of_few_conversations_questions_are_drawn_one_by_one() -> None:
    ours = [1.0, 0.0] * 20
    single = bootstrap(ours, [str(number) for number in range(40)])
    assert interval(ours, ["x"] * 20 + ["y"] * 20) == single
    assert 0.3 < single.low < 0.5 < single.high < 0.7
    assert interval(ours, [str(number // 4) for number in range(40)]) == (0.5, 0.5, 0.5)
