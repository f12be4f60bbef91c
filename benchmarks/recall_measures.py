"""How much of the evidence a ranking keeps; pure."""

import math
from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain
from typing import NamedTuple

from shared_core.index.text import terms

__all__ = [
    "ASSISTANT_BUDGET", "BUDGETS", "SHOWN_BUDGETS", "Gain", "Piece", "Score", "filled", "mentioned", "rare_facts",
    "rare_words", "score", "share",
]  # fmt: skip

BUDGETS = (500, 1_000, 2_000, 4_000)
"""Tokens."""

SHOWN_BUDGETS = (1_000, 4_000)
"""Those of the tables that have no room for all."""

ASSISTANT_BUDGET = 1_000
"""At which it is told how much of what the assistant said is kept."""

RARE = 0.05
"""The share of the messages in which a word occurs at most that is called rare. Others come with nearly any text."""


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


@dataclass(frozen=True, slots=True)
class Gain:
    """What one prompt brings, and what it costs.

    Attributes:
        recalled: tokens of what was recalled.
        tokens: those of the whole prompt.
        evidence: the share of the evidence that is in it; None if there is none.
        facts: the share of `rare_facts` that is in it; None if there are none.
    """

    recalled: int
    tokens: int
    evidence: float | None = None
    facts: float | None = None


def share(found: Collection[Hashable], evidence: Collection[Hashable]) -> float:
    """Return how much of the evidence is among what was found, 0 to 1."""
    return len(set(found) & set(evidence)) / len(evidence)


def rare_words(texts: Collection[str]) -> frozenset[str]:
    """Return the informative words that occur in at most `RARE` of the messages of a conversation, as stems."""
    found = Counter(chain.from_iterable(map(_terms, texts)))
    return frozenset(word for word, often in found.items() if often <= RARE * len(texts))


def rare_facts(answer: str | None, question: str, evidence: Iterable[str], rare: frozenset[str]) -> frozenset[str]:
    """Return the rare words of an answer that the question does not hold, but the messages that answer it, as stems."""
    said = frozenset[str]().union(*map(_terms, evidence))
    return (_terms(answer or "") - _terms(question)) & said & rare


def mentioned(words: frozenset[str], texts: Iterable[str]) -> float | None:
    """Return how many of some stems occur in any of the texts, 0 to 1; None if there are no stems."""
    if not words:
        return None
    return len(words & frozenset[str]().union(*map(_terms, texts))) / len(words)


@lru_cache(maxsize=65_536)
def _terms(text: str) -> frozenset[str]:
    return frozenset(terms(text))


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
