"""The rules of recall: what may be recalled and how it is found."""

from dataclasses import dataclass
from typing import get_args

from shared_core.arguments import in_range, one_of
from shared_core.plugins.base import Embedder, Reranker
from shared_core.recall.embedder_choice import EmbedText, message_text, name_of, turn_text
from shared_core.recall.scope import RecallScope, RecallUnit
from shared_core.recall.worth import Recall


@dataclass(frozen=True, slots=True)
class RecallRules:
    """What may be recalled and how it is found. A field is the argument of `InfiniteMemory` of that name.

    `words_alone` stands for `embedder="words"`.

    Raises:
        ValueError: a value is out of range.
    """

    embedder: Embedder | None = None
    words_alone: bool = False
    recall_unit: RecallUnit = "message"
    embed_text: EmbedText | None = None
    min_score: float | None = None
    excerpt_tokens: int | None = 100
    scope: RecallScope = "session"
    recall: Recall = "balanced"
    reranker: Reranker | None = None

    def __post_init__(self) -> None:
        one_of("recall", self.recall, get_args(Recall))
        one_of("recall_unit", self.recall_unit, get_args(RecallUnit))
        one_of("scope", self.scope, get_args(RecallScope))
        if self.embed_text is not None:
            name_of(self.embed_text)
        if self.min_score is not None:
            in_range("min_score", self.min_score, -1, 1)

    @property
    def text_of(self) -> EmbedText:
        """The function that makes a unit's text, which is embedded."""
        return self.embed_text or (turn_text if self.recall_unit == "turn" else message_text)
