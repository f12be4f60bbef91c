"""The rules of recall: what may be recalled and how it is found."""

from dataclasses import dataclass
from typing import get_args

from shared_core.arguments import in_range, one_of, whole_number
from shared_core.plugins.base import Embedder, Fingerprint
from shared_core.plugins.reranker import AnyReranker
from shared_core.recall.embedding import (
    EmbedText,
    message_text,
    name_of,
    turn_text,
)
from shared_core.recall.ranking import MIN_LEXICAL, OPENING_LEXICAL, RELAXED, Opening
from shared_core.recall.scope import (
    RecallScope,
    RecallTools,
    RecallUnit,
)
from shared_core.recall.signals import Ranking
from shared_core.recall.worth import Recall


@dataclass(frozen=True, slots=True)
class RecallRules:
    """What may be recalled and how it is found. Every field is the argument of `InfiniteMemory` of that name.

    Raises:
        ValueError: a value is out of range.
    """

    embedder: Embedder | None = None
    ranking: Ranking = "hybrid"
    recall_unit: RecallUnit = "message"
    embed_text: EmbedText | None = None
    min_score: float | None = None
    min_lexical: float | None = None
    excerpt_tokens: int | None = 100
    recall_tools: RecallTools = "replies"
    scope: RecallScope = "session"
    embed_budget_ms: float = 200
    recall: Recall = "balanced"
    reranker: AnyReranker | None = None
    rerank_budget_ms: float = 1_000

    def __post_init__(self) -> None:
        one_of("recall", self.recall, get_args(Recall))
        one_of("ranking", self.ranking, get_args(Ranking))
        one_of("recall_unit", self.recall_unit, get_args(RecallUnit))
        one_of("recall_tools", self.recall_tools, get_args(RecallTools))
        one_of("scope", self.scope, get_args(RecallScope))
        if self.embed_text is not None:
            name_of(self.embed_text)
        in_range("embed_budget_ms", self.embed_budget_ms, 0, float("inf"))
        in_range("rerank_budget_ms", self.rerank_budget_ms, 0, float("inf"))
        if self.min_score is not None:
            in_range("min_score", self.min_score, -1, 1)
        if self.min_lexical is not None:
            in_range("min_lexical", self.min_lexical, 0, 100)
        if self.excerpt_tokens is not None:
            whole_number("excerpt_tokens", self.excerpt_tokens, least=1)

    @property
    def text_of(self) -> EmbedText:
        """The function that makes a unit's text, which is embedded."""
        return self.embed_text or (turn_text if self.recall_unit == "turn" else message_text)

    def floors(self, fingerprint: Fingerprint | None, ranking: Ranking) -> tuple[float, float, Opening]:
        """Return the cosine and the share of words at which a message passes, and what at least one must reach.

        The embedder's own floor holds for the best message, and for all of them in `"dense"` ranking, where the
        caller's replaces it. Otherwise the caller's can only lower them: what it lets in is for `least`.
        """
        own = fingerprint.floor if fingerprint is not None else 0.0
        if ranking == "dense":
            own = own if self.min_score is None else self.min_score
            return own, MIN_LEXICAL, Opening(own, OPENING_LEXICAL)
        own = own if self.min_score is None else min(own, self.min_score)
        words = MIN_LEXICAL if self.min_lexical is None else min(MIN_LEXICAL, self.min_lexical)
        opening = Opening(own, OPENING_LEXICAL if self.min_lexical is None else min(OPENING_LEXICAL, self.min_lexical))
        return RELAXED * own if own > 0 else own, words, opening

    def least(self, floor: float, words: float) -> tuple[float, float] | None:
        """Return what every message must reach by itself, given the floors; None: the caller asks for no more."""
        if self.min_score is None and self.min_lexical is None:
            return None
        return (
            floor if self.min_score is None else self.min_score, words if self.min_lexical is None else self.min_lexical
        )  # fmt: skip
