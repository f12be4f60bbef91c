"""Rerankers: what `reranker=` accepts, requests for scores, and the cross-encoders of sentence-transformers."""

from collections.abc import Sequence
from functools import cached_property, lru_cache, partial
from typing import Any

import numpy as np
from typing_extensions import override

from shared_core.display import shown
from shared_core.errors import RerankerError, require
from shared_core.plugins import calls
from shared_core.plugins.base import Reranker, RerankerModel
from shared_core.plugins.calls import Request
from shared_core.plugins.embedders.hub import missing
from shared_core.plugins.embedders.sentence_transformers import OneAtATime, cross_encoder
from shared_core.plugins.embedding import encodable

__all__ = ["CrossEncoderReranker", "as_reranker"]

CHOICES = (
    "pass the folder or the full hub name of a sentence-transformers cross-encoder, such as "
    "'cross-encoder/ms-marco-MiniLM-L6-v2', or a function (query, texts) -> scores"
)


def as_reranker(value: Reranker | str) -> Reranker:
    """Return the reranker that `value` means.

    Args:
        value: a function, sync or async, of a question and texts that returns a score for each text; a `RerankerModel`;
            or the folder or the hub name of a sentence-transformers cross-encoder, for which the same object is
            returned every time. Nothing is loaded before the first question, and nothing has to be installed.

    Raises:
        TypeError: it is none of these. `as_reranker` of the LlamaIndex package takes its objects.
        ValueError: the name is empty.
    """
    if isinstance(value, str):
        if not value.strip():
            raise ValueError(f"{shown('reranker', value)}: {CHOICES}; None is none")
        return _named(value)
    if isinstance(value, type) or not callable(value):
        raise TypeError(
            f"{shown('reranker', value)}: {CHOICES}; as_reranker of the LlamaIndex package makes one of a "
            "node postprocessor"
        )
    return value


def scores_request(reranker: Reranker, query: str, texts: list[str]) -> Request[tuple[float, ...]]:
    """Return a request for the score of each text, which a question waits for no longer than it may."""
    awaited = reranker.rerank if isinstance(reranker, RerankerModel) else None
    return Request(
        "reranker", partial(reranker, query, texts), partial(_checked, len(texts)), texts=len(texts),
        seconds=calls.SECONDS, afunction=partial(awaited, query, texts) if awaited is not None else None,
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


@lru_cache(maxsize=4)
def _named(model: str) -> "CrossEncoderReranker":
    return CrossEncoderReranker(model)


class CrossEncoderReranker(RerankerModel):
    """A cross-encoder of the sentence-transformers library, loaded at first use.

    It reads a question and a text together, which tells more than their two vectors and takes longer. One object
    computes one batch at a time. After a fork, it computes on one thread.

    Args:
        model: a name on the Hugging Face hub, or a folder.
        revision: the revision on the hub. None: the newest.
        device: the device on which torch computes. None: torch chooses.
        batch_size: how many texts are computed at once.
    """

    def __init__(
        self, model: str, *, revision: str | None = None, device: str | None = "cpu", batch_size: int = 32
    ) -> None:
        self._given = str(model)
        self._revision = revision
        self._device = device
        self._batch_size = batch_size
        self._turn = OneAtATime()

    @override
    def __call__(self, query: str, texts: Sequence[str], /) -> Sequence[float]:
        """Return the model's score for each text.

        Raises:
            MissingExtraError: sentence-transformers is not installed.
            RerankerError: there is no such model, or it has not one score per text.
        """
        pairs = [(encodable(query), encodable(text)) for text in texts]
        with self._turn.taken():
            scores = np.asarray(self._model.predict(pairs, batch_size=self._batch_size, show_progress_bar=False))
        if scores.ndim != 1:
            raise RerankerError(
                f"reranker={self._given!r} has {scores.shape[-1]} labels and no single score per text: {CHOICES}"
            )
        return [float(score) for score in scores]

    @cached_property
    def _model(self) -> Any:
        require("sentence_transformers", 'pip install "infinite-memory[sentence-transformers]"')
        reason = missing(self._given, self._revision)
        if reason is not None:
            raise RerankerError(f"reranker={self._given!r}: {reason}; {CHOICES}")
        return cross_encoder(self._given, self._revision, self._device)
