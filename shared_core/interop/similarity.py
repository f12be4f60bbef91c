"""How similar texts are to a question, for lists that are in no store and no index."""

from collections.abc import Sequence

import numpy as np

from shared_core.base import Embedder
from shared_core.index.vector_index import ExactVectorIndex

__all__ = ["rank_texts"]


def rank_texts(texts: Sequence[str], question: str, embedder: Embedder) -> list[tuple[int, float]]:
    """Return the index of each text with its cosine, most similar to the question first; of equals, the later first.

    A text that is longer than the model reads counts with the piece of it that is most similar.

    Args:
        texts: what to compare; at least one.
        question: what to compare it with.
        embedder: makes the vectors.

    Raises:
        EmbedderError: the embedder failed.
    """
    pieces = [embedder.split(text) for text in texts]
    vectors = embedder.embed_documents([piece for split in pieces for piece in split])
    index = ExactVectorIndex(embedder.fingerprint.dimension)
    # Rows of one text have one number, and the index gives each number once, with its best row.
    index.add(np.repeat(np.arange(len(pieces)), [len(split) for split in pieces]), vectors)
    rows, cosines = index.search(embedder.embed_query(question), len(texts))
    return [(int(row), float(cosine)) for row, cosine in zip(rows, cosines, strict=True)]
