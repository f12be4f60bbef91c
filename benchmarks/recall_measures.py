"""How much of the evidence a ranking keeps; pure."""

import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from shared_core.evaluation.figures import share

__all__ = ["ASSISTANT_BUDGET", "BUDGETS", "SHOWN_BUDGETS", "Piece", "Score", "filled", "score"]

BUDGETS = (500, 1_000, 2_000, 4_000)
"""Tokens."""

SHOWN_BUDGETS = (1_000, 4_000)
"""Those of the tables that have no room for all."""

ASSISTANT_BUDGET = 1_000
"""At which it is told how much of what the assistant said is kept."""


class Piece(NamedTuple):
    """What a ranking brings back at once: some messages, by their places, and what they cost."""

    places: tuple[int, ...]
    tokens: int


@dataclass(frozen=True, slots=True)
class Score:
    """What became of the evidence for one question.

    Attributes:
        kept: the share of it within each of `BUDGETS`.
        assistant: the share of what the assistant said of it, within `ASSISTANT_BUDGET`; None if that is nothing.
        recall_5: the share of it among the first five messages; None where there is no order, as in a prompt.
        recall_10: the same among the first ten.
        ndcg_10: normalised discounted cumulative gain of the first ten, every message of the evidence worth the same.
    """

    kept: tuple[float, ...]
    assistant: float | None
    recall_5: float | None = None
    recall_10: float | None = None
    ndcg_10: float | None = None


def filled(ranking: Iterable[Piece], budget: int) -> set[int]:
    """Return the places that fit into a budget, best first; what does not fit is skipped."""
    kept: set[int] = set()
    for piece in ranking:
        if piece.tokens <= budget:
            budget -= piece.tokens
            kept.update(piece.places)
    return kept


def score(
    kept: Sequence[Collection[int]], evidence: Collection[int], assistant: Collection[int], order: Sequence[int] | None
) -> Score:
    """Return the score of what was kept within each of `BUDGETS`.

    Args:
        kept: places, for each budget.
        evidence: places, at least one.
        assistant: those places of the evidence where the assistant speaks.
        order: places, best first, if they are ranked.
    """
    kept_shares = tuple(share(places, evidence) for places in kept)
    said = share(kept[BUDGETS.index(ASSISTANT_BUDGET)], assistant) if assistant else None
    if order is None:
        return Score(kept_shares, said)
    return Score(kept_shares, said, share(order[:5], evidence), share(order[:10], evidence), _ndcg(order, evidence))


def _ndcg(order: Sequence[int], evidence: Collection[int]) -> float:
    gain = sum(1 / math.log2(rank) for rank, place in enumerate(order[:10], start=2) if place in evidence)
    return gain / sum(1 / math.log2(rank) for rank in range(2, 2 + min(10, len(evidence))))
