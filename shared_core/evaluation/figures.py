"""How much of what was asked for is there, and how sure a difference is; pure."""

from collections.abc import Collection, Hashable, Iterable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from shared_core.index.text import terms

__all__ = ["FEW", "Lead", "bootstrap", "facts", "interval", "mentioned", "percent", "points", "share"]

RESAMPLES = 10_000

FEW = 10
"""An interval that is drawn from fewer clusters is rough."""

MOST_DRAWN = 20_000_000
"""Counts that are drawn at most: of more than 2,000 clusters there are fewer resamples."""


class Lead(NamedTuple):
    """A mean difference and its 95 % interval."""

    mean: float
    low: float
    high: float


def share(found: Collection[Hashable], evidence: Collection[Hashable]) -> float:
    """Return how much of the evidence is among what was found, 0 to 1."""
    return len(set(found) & set(evidence)) / len(evidence)


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
    drawn = _drawn(len(names), seed)
    low, high = np.percentile(drawn @ sums / (drawn @ sizes), [2.5, 97.5]).tolist()
    return Lead(float(difference.mean()), low, high)


def interval(ours: Sequence[float], theirs: Sequence[float], clusters: Sequence[str]) -> Lead:
    """Return the same as `bootstrap`, but, as fewer than ten clusters say little, no narrower than by question."""
    lead = bootstrap(ours, theirs, clusters)
    if len(set(clusters)) >= FEW:
        return lead
    single = bootstrap(ours, theirs, [str(number) for number in range(len(ours))])
    return Lead(lead.mean, min(lead.low, single.low), max(lead.high, single.high))


@lru_cache(maxsize=2)
def _drawn(clusters: int, seed: int) -> npt.NDArray[Any]:
    """Return how often each cluster is drawn in each resample."""
    resamples = min(RESAMPLES, max(1, MOST_DRAWN // clusters))
    equal = np.full(clusters, 1 / clusters)
    return np.random.default_rng(seed).multinomial(clusters, equal, size=resamples)


def percent(value: Lead) -> str:
    """Return a share with its interval, in per cent."""
    return f"{100 * value.mean:.1f} [{100 * value.low:.1f}, {100 * value.high:.1f}]"


def points(lead: Lead) -> str:
    """Return a difference of shares with its interval, in points."""
    return f"{100 * lead.mean:+.1f} [{100 * lead.low:+.1f}, {100 * lead.high:+.1f}]"
