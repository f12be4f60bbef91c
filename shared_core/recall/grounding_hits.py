"""Find messages by the words of their grounding: documents around a question, and the ends of long results; pure.

Only `search` looks there. Recall does not: a question would be found by every word of the documents pasted around it.
"""

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from shared_core.index.lexical import K1, B, Postings, idf_of
from shared_core.prompt.hits import Hit, Place
from shared_core.recall.ranking import MIN_LEXICAL
from shared_core.recall.scope import Scope

Floats = npt.NDArray[np.float32]


def grounding_hits(
    words: Sequence[str], scopes: Sequence[Scope], forms: Mapping[str, Sequence[str]] | None = None
) -> list[Hit]:
    """Return the messages whose grounding matches enough of the words (BM25), best first; of equals, the newest.

    `forms` are other terms that count as the same as a word.
    """
    groups = [(word, *(forms or {}).get(word, ())) for word in words]
    hits: list[Hit] = []
    for number, scope in enumerate(scopes):
        lengths = scope.line.along(scope.session_index.column("apart"))
        if not lengths.any():
            continue
        share = _shares(groups, scope, lengths)
        found = np.flatnonzero((share >= MIN_LEXICAL) & scope.eligible)
        for index, value in zip(found.tolist(), share[found].tolist(), strict=True):
            hits.append(Hit((number, index), value, value, grounding=True))
    return sorted(hits, key=lambda hit: (-hit.score, hit.place[0], -hit.place[1]))


def _shares(groups: Sequence[Sequence[str]], scope: Scope, lengths: npt.NDArray[np.int32]) -> Floats:
    """Return the share of the words' weight that each message of a line matches, about 0 to 1."""
    mean, ceiling = float(lengths[lengths > 0].mean()), 0.0
    shares = np.zeros(len(lengths), dtype=np.float32)
    for group in groups:
        indices, frequency = _on_line(scope.session_index.grounding, group, scope)
        idf = idf_of(len(indices), len(lengths))
        weights = frequency / (1 - B + B / mean * lengths[indices])
        shares[indices] += (idf * (K1 + 1) * weights / (weights + K1)).astype(np.float32)
        ceiling += idf
    return shares / np.float32(max(ceiling, 1e-9))


def _on_line(postings: Postings, group: Sequence[str], scope: Scope) -> tuple[npt.NDArray[np.int32], Floats]:
    rows, frequency = postings.of_any(group)
    indices = scope.line.indices(rows)
    inside = (indices >= 0) & (indices < scope.line.upto)
    return indices[inside], frequency[inside].astype(np.float32)


def with_grounding_hits(found: Sequence[Hit], hits: Sequence[Hit]) -> list[Hit]:
    """Return results in their order, with the hits among them.

    A hit comes before the results that match less than it does, by words and by meaning. It takes the score of the one
    it comes before, because the scores of two rankings cannot be compared.
    """
    merged: dict[Place, Hit] = {}
    left = list(hits)
    for one in found:
        while left and left[0].lexical > max(one.lexical, one.dense or 0.0):
            hit = left.pop(0)
            merged.setdefault(hit.place, hit._replace(score=one.score))
        merged.setdefault(one.place, one)
    last = found[-1].score if found else float("inf")
    for hit in left:
        merged.setdefault(hit.place, hit._replace(score=min(hit.score, last)))
    return list(merged.values())
