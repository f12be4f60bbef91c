"""The embedder of a session: how it is chosen, and which texts it embeds."""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from shared_core.arguments import function
from shared_core.errors import EmbedderError, EmbedderMismatchError
from shared_core.events import Degradation, Note
from shared_core.index.session_vectors import embedder_key
from shared_core.messages import Message
from shared_core.plugins.base import Embedder, Fingerprint
from shared_core.plugins.embedders import DEFAULT, embedder_for_new, embedder_named
from shared_core.recall.scope import RecallUnit

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


def words_alone(why: object, code: Degradation) -> Note:
    """Return the note that a search went by words alone."""
    return Note(f"recall by words alone: {why}", "words_alone", code)


@dataclass(frozen=True, slots=True)
class EmbedderChoice:
    """The embedder that a session is searched with.

    Attributes:
        embedder: the model; None to search by words alone.
        key: its `Fingerprint.key`.
        space: the name of its vectors in the store.
        note: why there is no embedder, for the report; None if there is one, or none is wanted.
        failed: whether an embedder exists but raised when asked for its fingerprint.
    """

    embedder: Embedder | None
    key: str = ""
    space: str = ""
    note: Note | None = None
    failed: bool = False

    @property
    def dimension(self) -> int:
        """Numbers per vector; 0 without an embedder."""
        return 0 if self.embedder is None else self.embedder.fingerprint.dimension


def choose_embedder(
    given: Embedder | None, spaces: Sequence[str], unit: RecallUnit, embed_text: EmbedText, *, force: bool = False
) -> EmbedderChoice:
    """Return the embedder to use: the one given, else the one that made the session's vectors, else `embedder_for_new`.

    Args:
        given: the memory's `embedder` argument.
        spaces: of the session's vectors.
        unit: the unit that a vector stands for.
        embed_text: makes the text of a unit.
        force: accept the embedder given even if all of the session's vectors are another embedder's.

    Raises:
        EmbedderMismatchError: the session holds vectors, but none by the embedder given.
        EmbedderError: the embedder given raised instead of returning its fingerprint.
    """
    # Vectors of other units or texts are not comparable, so each kind has a space of its own.
    usual = {"message": message_text, "turn": turn_text}[unit]
    suffix = f"#{unit}/{name_of(embed_text)}" if embed_text is not usual else "#turn" if unit == "turn" else ""
    if given is not None:
        key = _fingerprint(given).key
        if spaces and not force and all(embedder_key(space) != key for space in spaces):
            raise EmbedderMismatchError(
                f"this session's vectors are by {embedder_key(spaces[0])!r}, but the embedder given is {key!r}: "
                "pass the first one, or call index(again=True) to embed the session again"
            )
        return EmbedderChoice(given, key, key + suffix)
    if spaces:
        recorded = embedder_key(spaces[0])
        embedder = embedder_named(recorded)
        why = f"the session's vectors are by {recorded!r}; install or pass that embedder to recall by meaning"
    else:
        embedder = embedder_for_new()
        why = "no embedder is installed: recall by words alone"
    if embedder is None:
        wanted = not spaces and os.environ.get(DEFAULT) == "words"
        return EmbedderChoice(None, note=None if wanted else Note(why, "words_alone"))
    key = embedder.fingerprint.key
    return EmbedderChoice(embedder, key, key + suffix)


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
