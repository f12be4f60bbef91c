"""How similar texts are to a question, for lists that are in no store and no index."""

from collections.abc import Sequence

import numpy as np

from shared_core.base import Embedder
from shared_core.index.vectors import ExactVectorIndex

__all__ = ["rank_texts"]


def rank_texts(texts: Sequence[str], question: str, embedder: Embedder) -> list[tuple[int, float]]:
    """Return the index of each text with its cosine, most similar to the question first; of equals, the later first.

    Empty texts are left out, and so are texts that are repeated later. A text that is longer than the model reads
    counts with the piece of it that is most similar.

    Args:
        texts: what to compare.
        question: what to compare it with.
        embedder: makes the vectors; not called if there is nothing to compare.

    Raises:
        EmbedderError: the embedder failed.
    """
    last: dict[str, int] = {}
    for index, text in enumerate(texts):
        last.pop(text, None)  # so that texts are in the order in which they occur last
        last[text] = index
    last.pop("", None)
    if not last:
        return []
    pieces = [embedder.split(text) for text in last]
    vectors = embedder.embed_documents([piece for split in pieces for piece in split])
    nearest = ExactVectorIndex(embedder.fingerprint.dimension)
    # The pieces of one text have one row, and a search returns each row once, with its best piece.
    nearest.add(np.repeat(list(last.values()), [len(split) for split in pieces]), vectors)
    rows, cosines = nearest.search(embedder.embed_query(question), len(last))
    return [(int(row), float(cosine)) for row, cosine in zip(rows, cosines, strict=True)]
