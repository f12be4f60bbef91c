"""The rules of recall: what may be recalled and how it is found; and the embedder that a session has by them."""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, get_args

from shared_core.arguments import function, in_range, one_of
from shared_core.errors import EmbedderError, EmbedderMismatchError
from shared_core.events import Degradation, Note
from shared_core.index.session_vectors import embedder_key
from shared_core.messages import Message
from shared_core.plugins.base import Embedder, Fingerprint, Reranker
from shared_core.plugins.embedders import DEFAULT, embedder_for_new, embedder_named
from shared_core.recall.scope import RecallScope, RecallUnit
from shared_core.recall.worth import Recall
from shared_core.session.live import LiveSession

EmbedText = Callable[[Sequence[Message]], str]
"""Returns the text to embed for a unit: one message, or the messages of a turn."""


def message_text(messages: Sequence[Message]) -> str:
    """Return the default text of a message: its content, preceded by the speaker's name if it has one."""
    message = messages[0]
    return f"{message.name}: {message.content}" if message.name else message.content


def turn_text(messages: Sequence[Message]) -> str:
    """Return the default text of a turn: the question and its replies, joined by spaces."""
    return " ".join(
        message.content for message in messages if message.role in ("user", "assistant") and message.content
    )


USUAL_TEXT: Mapping[RecallUnit, EmbedText] = {"message": message_text, "turn": turn_text}


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
        return self.embed_text or USUAL_TEXT[self.recall_unit]

    @property
    def suffix(self) -> str:
        """The end of the name of a space of vectors: those of other units or texts cannot be compared."""
        if self.text_of is USUAL_TEXT[self.recall_unit]:
            return "#turn" if self.recall_unit == "turn" else ""
        return f"#{self.recall_unit}/{name_of(self.text_of)}"


def words_alone(why: object, code: Degradation) -> Note:
    """Return the note that a search went by words alone."""
    return Note(f"recall by words alone: {why}", "words_alone", code)


@dataclass(frozen=True, slots=True)
class EmbedderChoice:
    """The embedder that a session is searched with.

    Attributes:
        embedder: the model; None to search by words alone.
        space: the name of its vectors in the store.
        note: why there is no embedder, for the report; None if there is one, or none is wanted.
        failed: whether an embedder exists but raised when asked for its fingerprint.
    """

    embedder: Embedder | None
    space: str = ""
    note: Note | None = None
    failed: bool = False

    @property
    def dimension(self) -> int:
        """Numbers per vector; 0 without an embedder."""
        return 0 if self.embedder is None else self.embedder.fingerprint.dimension


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
        """Return the embedder given, else the one that made the vectors of some spaces, else `embedder_for_new`."""
        embedder, why = self._rules.embedder, ""
        recorded = embedder_key(spaces[0]) if spaces else ""
        if embedder is not None:
            key = _fingerprint(embedder).key
            if spaces and not self._force and key not in map(embedder_key, spaces):
                raise EmbedderMismatchError(
                    f"this session's vectors are by {recorded!r}, but the embedder given is {key!r}: "
                    "pass the first one, or call index(again=True) to embed the session again"
                )
        elif spaces:
            embedder = embedder_named(recorded)
            why = f"the session's vectors are by {recorded!r}; install or pass that embedder to recall by meaning"
        else:
            embedder = embedder_for_new()
            why = "no embedder is installed: recall by words alone"
        if embedder is None:
            wanted = not spaces and os.environ.get(DEFAULT) == "words"
            return EmbedderChoice(None, note=None if wanted else Note(why, "words_alone"))
        return EmbedderChoice(embedder, _fingerprint(embedder).key + self._rules.suffix)

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


def _fingerprint(embedder: Embedder) -> Fingerprint:
    try:
        return embedder.fingerprint
    except EmbedderError:
        raise
    except Exception as error:  # a plug-in, as in `Request`: it may query its model
        name = type(embedder).__name__
        raise EmbedderError(f"{name} raised {type(error).__name__} instead of its fingerprint: {error}") from error


def name_of(embed_text: EmbedText) -> str:
    """Return the name under which the vectors of this function's texts are stored.

    Raises:
        TypeError: it is no function.
        ValueError: the function has no name of its own: it is a lambda or a partial.
    """
    if not isinstance(embed_text, type):  # a class such as `str` makes texts, too
        function("embed_text", embed_text, "(messages) -> str")
    # An object with __call__ is named by its class.
    own = getattr(embed_text, "__qualname__", None)
    named: Any = embed_text if own else type(embed_text)
    name = f"{named.__module__}.{named.__qualname__}"
    if isinstance(embed_text, partial) or "<lambda>" in name:
        raise ValueError(
            f"embed_text={embed_text!r}: vectors are stored under the function's name, and this one has none; "
            "pass a function defined by `def`, or an object whose class defines `__call__`"
        )
    return name
