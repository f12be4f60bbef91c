"""The rules of recall: what may be recalled and how it is found; and the embedder that a session has by them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import get_args

from shared_core.arguments import in_range, one_of
from shared_core.errors import EmbedderError, EmbedderMismatchError
from shared_core.plugins.base import Embedder, Reranker
from shared_core.recall.embedder_choice import (
    EmbedderChoice,
    EmbedText,
    choose_embedder,
    message_text,
    name_of,
    turn_text,
    words_alone,
)
from shared_core.recall.scope import RecallScope, RecallUnit
from shared_core.recall.worth import Recall
from shared_core.session.live import LiveSession


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
        one_of("recall", self.recall, get_args(Recall), advice="; top_k=0 turns recall off")
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


class SessionEmbedder:
    """The embedder that one memory searches its session with.

    Args:
        live: the session.
        rules: what may be recalled.
    """

    def __init__(self, live: LiveSession, rules: RecallRules) -> None:
        self._live = live
        self._rules = rules
        self._force = False
        self._checked = False
        self._session: int | None = None
        self._settled = False
        self._chosen: dict[RecallScope, EmbedderChoice] = {}

    def choice(self, scope: RecallScope | None = None) -> EmbedderChoice:
        """Return the embedder to search with; `scope` is that of a `Filter`.

        Raises:
            EmbedderMismatchError: the session's vectors are another embedder's.
            EmbedderError: the embedder raised instead of returning its fingerprint.
        """
        session, rules, scope = self._live.key, self._rules, scope or self._rules.scope
        if rules.words_alone or (session is None and scope == "session"):
            return EmbedderChoice(None)
        if self._session != session:
            self._session, self._settled, self._chosen = session, False, {}
        if not self._settled:  # vectors may have come since, by an import or from another process
            spaces = self._live.store.spaces(session) if session is not None else []
            if spaces or rules.embedder is not None:
                self._chosen = dict.fromkeys(get_args(RecallScope), self._choose(spaces))
                self._settled = session is not None
        if scope not in self._chosen:
            self._chosen[scope] = self._choose(self._spaces_beside() if scope == "user" else [])
        return self._chosen[scope]

    def _choose(self, spaces: Sequence[str]) -> EmbedderChoice:
        rules = self._rules
        return choose_embedder(rules.embedder, spaces, rules.recall_unit, rules.text_of, force=self._force)

    def _spaces_beside(self) -> list[str]:
        """Return the spaces of the user's newest session with vectors: those of two embedders cannot be compared."""
        store = self._live.store
        found = (store.spaces(one.key) for one in reversed(store.sessions(self._live.user_id)))
        return next(filter(None, found), [])

    def choice_or_words(self, scope: RecallScope | None = None) -> EmbedderChoice:
        """Return the embedder to search with, or words alone with a note if it does not return its fingerprint.

        Raises:
            EmbedderMismatchError: the session's vectors are another embedder's.
        """
        try:
            return self.choice(scope)
        except EmbedderMismatchError:
            raise
        except EmbedderError as error:
            return EmbedderChoice(None, note=words_alone(error, "embedder_failed"), failed=True)

    def check(self) -> None:
        """Raise EmbedderMismatchError early, before anything has to be recalled. The store is asked only once."""
        session = self._live.key
        if self._checked or session is None or self._rules.embedder is None:
            return
        if self._live.store.spaces(session):
            self.choice_or_words()
        self._checked = True

    def accept_given(self) -> None:
        """Accept the embedder given even if the session's vectors are another embedder's."""
        self._force = True
        self._settled, self._chosen = False, {}
