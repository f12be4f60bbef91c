"""Means with their 95 % intervals; pure."""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

__all__ = ["FEW", "Lead", "bootstrap", "interval", "percent", "points"]

RESAMPLES = 10_000

FEW = 10
"""An interval that is drawn from fewer clusters is rough."""

MOST_DRAWN = 20_000_000
"""Counts that are drawn at most: of more than 2,000 clusters there are fewer resamples."""


class Lead(NamedTuple):
    """A mean, or a mean difference, and its 95 % interval."""

    mean: float
    low: float
    high: float


def bootstrap(values: Sequence[float], clusters: Sequence[str]) -> Lead:
    """Return the mean of a figure of each question, or of the difference of two, by a bootstrap over clusters.

    The questions of one conversation have its difficulties in common, so that whole conversations are drawn.

    Args:
        values: a figure for each question.
        clusters: the conversation each question is about.
    """
    names, member = np.unique(np.asarray(clusters), return_inverse=True)
    sums, sizes = np.bincount(member, values), np.bincount(member)
    drawn = _drawn(len(names))
    low, high = np.percentile(drawn @ sums / (drawn @ sizes), [2.5, 97.5]).tolist()
    return Lead(float(np.mean(values)), low, high)


def interval(values: Sequence[float], clusters: Sequence[str]) -> Lead:
    """Return the mean of some values, drawn by clusters or, as fewer than ten of those say little, one by one."""
    drawn_by = clusters if len(set(clusters)) >= FEW else [str(number) for number in range(len(values))]
    return bootstrap(values, drawn_by)


@lru_cache(maxsize=2)
def _drawn(clusters: int) -> npt.NDArray[Any]:
    """Return how often each cluster is drawn in each resample."""
    resamples = min(RESAMPLES, max(1, MOST_DRAWN // clusters))
    equal = np.full(clusters, 1 / clusters)
    return np.random.default_rng(7).multinomial(clusters, equal, size=resamples)


def percent(value: Lead) -> str:
    """Return a share with its interval, in per cent."""
    return f"{100 * value.mean:.1f} [{100 * value.low:.1f}, {100 * value.high:.1f}]"


def points(lead: Lead) -> str:
    """Return a difference of shares with its interval, in points."""
    return f"{100 * lead.mean:+.1f} [{100 * lead.low:+.1f}, {100 * lead.high:+.1f}]"
