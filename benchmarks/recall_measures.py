"""How much of the evidence a ranking keeps, and how sure a lead is; pure."""

import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from shared_core.index.text import terms

__all__ = [
    "ASSISTANT_BUDGET", "BUDGETS", "SHOWN_BUDGETS", "Lead", "Piece", "Score", "bootstrap", "facts", "filled",
    "mentioned", "score", "share",
]  # fmt: skip

BUDGETS = (500, 1_000, 2_000, 4_000)
"""Tokens."""

SHOWN_BUDGETS = (1_000, 4_000)
"""Those of the tables that have no room for all."""

ASSISTANT_BUDGET = 1_000
"""At which it is told how much of what the assistant said is kept."""

RESAMPLES = 10_000


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


class Lead(NamedTuple):
    """A mean difference and its 95 % interval."""

    mean: float
    low: float
    high: float


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


def share(places: Collection[int], evidence: Collection[int]) -> float:
    """Return how much of the evidence is among some places, 0 to 1."""
    return len(set(places) & set(evidence)) / len(evidence)


def _ndcg(order: Sequence[int], evidence: Collection[int]) -> float:
    gain = sum(1 / math.log2(rank) for rank, place in enumerate(order[:10], start=2) if place in evidence)
    return gain / sum(1 / math.log2(rank) for rank in range(2, 2 + min(10, len(evidence))))


def facts(answer: str | None, question: str) -> frozenset[str]:
    """Return the informative words of an answer that the question does not hold, as stems."""
    return frozenset(terms(answer).keys() - terms(question).keys()) if answer else frozenset()


def mentioned(words: frozenset[str], texts: Iterable[str]) -> float | None:
    """Return how many of some stems occur in any of the texts, 0 to 1; None if there are no stems."""
    if not words:
        return None
    return len(words & frozenset[str]().union(*map(_terms, texts))) / len(words)


@lru_cache(maxsize=65_536)
def _terms(text: str) -> frozenset[str]:
    return frozenset(terms(text))


def bootstrap(ours: Sequence[float], theirs: Sequence[float], clusters: Sequence[str], seed: int = 7) -> Lead:
    """Return our mean lead over all questions, by a paired bootstrap over clusters.

    The questions of one conversation have its difficulties in common, so that whole conversations are drawn.

    Args:
        ours: a figure for each question.
        theirs: the same of another method.
        clusters: the conversation each question is about.
        seed: of the draws.
    """
    difference = np.subtract(ours, theirs)
    names, member = np.unique(np.asarray(clusters), return_inverse=True)
    sums, sizes = np.bincount(member, difference), np.bincount(member)
    equal = np.full(len(names), 1 / len(names))
    drawn = np.random.default_rng(seed).multinomial(len(names), equal, size=RESAMPLES)
    low, high = np.percentile(drawn @ sums / (drawn @ sizes), [2.5, 97.5]).tolist()
    return Lead(float(difference.mean()), low, high)
