"""The rules of recall: the constructor arguments of the memory that bear on it, checked."""

from dataclasses import dataclass
from typing import Literal, get_args

from shared_core.arguments import in_range, one_of, whole_number
from shared_core.base import Embedder, Fingerprint
from shared_core.recall.embedding import EmbedText, message_text, name_of, turn_text
from shared_core.recall.ranking import MIN_LEXICAL, OPENING_LEXICAL, RELAXED, Opening
from shared_core.recall.scope import RecallTools, RecallUnit
from shared_core.recall.signals import Ranking

__all__ = ["RecallRules", "RecallScope", "RecallTools"]

RecallScope = Literal["session", "user"]


@dataclass(frozen=True, slots=True)
class RecallRules:
    """What may be recalled and how it is found; every field is an argument of `InfiniteMemory` of that name.

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

    def __post_init__(self) -> None:
        one_of("ranking", self.ranking, get_args(Ranking))
        one_of("recall_unit", self.recall_unit, get_args(RecallUnit))
        one_of("recall_tools", self.recall_tools, get_args(RecallTools))
        one_of("scope", self.scope, get_args(RecallScope))
        if self.embed_text is not None:
            name_of(self.embed_text)
        in_range("embed_budget_ms", self.embed_budget_ms, 0, float("inf"))
        if self.min_score is not None:
            in_range("min_score", self.min_score, -1, 1)
        if self.min_lexical is not None:
            in_range("min_lexical", self.min_lexical, 0, 100)
        if self.excerpt_tokens is not None:
            whole_number("excerpt_tokens", self.excerpt_tokens, least=1)

    @property
    def text_of(self) -> EmbedText:
        """What is embedded for a unit, given its messages."""
        return self.embed_text or (turn_text if self.recall_unit == "turn" else message_text)

    def floors(self, fingerprint: Fingerprint | None, ranking: Ranking) -> tuple[float, float, Opening]:
        """Return the cosine and the share of the words at which a message passes, and what one at least must reach.

        What the caller says holds for all. The embedder's own floor is for the best, and for all in `"dense"` ranking.
        """
        own = fingerprint.floor if fingerprint is not None else 0.0
        floor = own if self.min_score is None else self.min_score
        relaxed = self.min_score is None and ranking != "dense" and own > 0
        words = MIN_LEXICAL if self.min_lexical is None else self.min_lexical
        opening = Opening(floor, OPENING_LEXICAL if self.min_lexical is None else self.min_lexical)
        return RELAXED * floor if relaxed else floor, words, opening
