"""Requests for the scores of a reranker."""

from functools import partial
from typing import Any

import numpy as np

from shared_core.errors import RerankerError
from shared_core.plugins import calls
from shared_core.plugins.base import Reranker
from shared_core.plugins.calls import Request

__all__ = ["scores_request"]


def scores_request(reranker: Reranker, query: str, texts: list[str]) -> Request[tuple[float, ...]]:
    """Return a request for the score of each text, which a question waits for no longer than it may."""
    return Request(
        "reranker", partial(reranker, query, texts), partial(_checked, len(texts)), texts=len(texts),
        seconds=calls.SECONDS,
    )  # fmt: skip


def _checked(count: int, reply: Any) -> tuple[float, ...]:
    try:
        scores = np.asarray(reply, dtype=np.float64)
    except Exception as error:  # a plug-in: what its reply does to become numbers is its own
        raise RerankerError(f"the reranker returned {type(reply).__name__}, not a list of numbers: {error}") from error
    if scores.ndim == 0:
        raise RerankerError(f"the reranker returned {type(reply).__name__}, not a list of numbers")
    if scores.shape != (count,):
        found = f"{len(scores)} scores" if scores.ndim == 1 else f"an array of the shape {scores.shape}"
        raise RerankerError(f"the reranker returned {found} for {count} texts")
    if np.isnan(scores).any() or (scores == np.inf).any():
        raise RerankerError("the reranker returned NaN or infinity as a score")
    return tuple(scores.tolist())
