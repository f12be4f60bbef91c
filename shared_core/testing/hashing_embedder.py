"""A fake embedder for tests: hashes words, needs no model, and remembers what it was asked."""

import hashlib
from collections.abc import Sequence

import numpy as np

from shared_core.index.text import terms
from shared_core.plugins.base import Embedder, Fingerprint, Vectors

__all__ = ["HashingEmbedder"]


class HashingEmbedder(Embedder):
    """Texts that share words have a cosine above 0; the same text always has the same vector, whatever came before.

    Args:
        dimension: numbers per vector.
        name: of the fingerprint, to tell two fakes apart.
        floor: of the fingerprint.

    Attributes:
        documents: every text embedded as a document, in order.
        queries: every text embedded as a question, in order.
    """

    def __init__(self, dimension: int = 64, *, name: str = "hashing", floor: float = 0.1) -> None:
        self._fingerprint = Fingerprint(name, dimension, floor=floor, threshold=2 * floor, weight=0.5)
        self.documents: list[str] = []
        self.queries: list[str] = []

    @property
    def fingerprint(self) -> Fingerprint:
        """Name and dimension as given."""
        return self._fingerprint

    def embed_documents(self, texts: Sequence[str]) -> Vectors:
        """Return the texts' vectors and remember them."""
        self.documents += texts
        return np.array([self._vector(text) for text in texts], dtype=np.float32).reshape(
            -1, self._fingerprint.dimension
        )

    def embed_query(self, text: str) -> Vectors:
        """Return a question's vector and remember it."""
        self.queries.append(text)
        return self._vector(text)

    def _vector(self, text: str) -> Vectors:
        vector = np.zeros(self._fingerprint.dimension, dtype=np.float32)
        for term, count in terms(text).items():
            digest = hashlib.blake2b(term.encode("utf-8", "surrogatepass"), digest_size=8).digest()
            generator = np.random.default_rng(int.from_bytes(digest, "little"))
            vector += count * generator.standard_normal(self._fingerprint.dimension).astype(np.float32)
        length = float(np.linalg.norm(vector))
        return vector / length if length else vector
