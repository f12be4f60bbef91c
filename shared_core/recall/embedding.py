"""The embedder of a session: how it is chosen, which texts it embeds, and how missing vectors are added."""

import re
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from shared_core.arguments import function
from shared_core.base import Embedder, Fingerprint, Vectors
from shared_core.embedders import as_embedder, embedder_named
from shared_core.embedders.checks import unit_length
from shared_core.errors import EmbedderError, EmbedderMismatchError
from shared_core.index.session_vectors import SessionVectors, text_hash
from shared_core.messages import Message
from shared_core.recall.scope import RecallUnit
from shared_core.store import Store

Rows = npt.NDArray[np.int64]

UNIT_TOLERANCE = 1e-3
"""How far from 1 the length of a vector may be. Half precision is no more exact."""


@dataclass(frozen=True, slots=True)
class EmbedRequest:
    """Texts that need vectors. The sync memory answers with `answer`, the async one with `aanswer`."""

    embedder: Embedder
    texts: tuple[str, ...]
    query: bool = False

    def answer(self) -> "EmbedReply":
        """Return the vectors, or the error. An error does not end the chat, which goes on without vectors."""
        embedder = self.embedder
        try:
            reply = embedder.embed_query(self.texts[0]) if self.query else embedder.embed_documents(self.texts)
        except Exception as error:  # no error of a plug-in may end a chat; the report names it
            return self._failed(error)
        return self._checked(reply)

    async def aanswer(self) -> "EmbedReply":
        """Like `answer`, without blocking the event loop."""
        embedder = self.embedder
        try:
            if self.query:
                reply = await embedder.aembed_query(self.texts[0])
            else:
                reply = await embedder.aembed_documents(self.texts)
        except Exception as error:  # as above
            return self._failed(error)
        return self._checked(reply)

    def _failed(self, error: Exception) -> EmbedderError:
        if isinstance(error, EmbedderError):
            return error
        failure = EmbedderError(f"{self.embedder.fingerprint.key!r} raised {type(error).__name__}: {error}")
        failure.__cause__ = error
        return failure

    def _checked(self, reply: Vectors) -> "EmbedReply":
        dimension = self.embedder.fingerprint.dimension
        expected = (dimension,) if self.query else (len(self.texts), dimension)
        try:
            vectors = np.asarray(reply, dtype=np.float64)
        except (TypeError, ValueError) as error:
            return self._failed(error)
        if vectors.shape != expected or not np.isfinite(vectors).all():
            what = f"shape {vectors.shape}" if vectors.shape != expected else "numbers that are not finite"
            return EmbedderError(
                f"{self.embedder.fingerprint.key!r} returned {what}; expected finite numbers of shape {expected}"
            )
        return _of_unit_length(vectors)


def _of_unit_length(vectors: npt.NDArray[np.float64]) -> Vectors:
    """Return vectors as float32. The store keeps them in half precision, which ends at 65,504: long ones are scaled.

    Vectors of about unit length, as an `Embedder` should return them, stay what they are.
    """
    rows = vectors.reshape(-1, vectors.shape[-1])
    with np.errstate(over="ignore", under="ignore"):
        off = np.abs(np.linalg.norm(rows, axis=1) - 1) > UNIT_TOLERANCE
    found: Vectors = rows.astype(np.float32) if not off.any() else np.empty(rows.shape, np.float32)
    if off.any():
        found[~off], found[off] = rows[~off], unit_length(rows[off])
    return found.reshape(vectors.shape)


EmbedReply: TypeAlias = Vectors | EmbedderError


def backfill(
    vectors: SessionVectors, embedder: Embedder, rows: Rows, text_of: Callable[[Rows], Sequence[str]], *,
    batch: int, lock: AbstractContextManager[object], deadline: float = float("inf"),
    progress: Callable[[int], None] = lambda done: None, save: Callable[[SessionVectors], None] = SessionVectors.save,
) -> Generator[EmbedRequest, EmbedReply, int]:  # fmt: skip
    """Embed rows in the order given and return how many are left. Rows claimed by another caller are skipped.

    Args:
        vectors: receives the vectors.
        embedder: answers the requests. This function itself only lets it split long texts.
        rows: the rows to embed.
        text_of: returns the text of each of some rows; empty if all of its messages were forgotten.
        batch: rows per request.
        lock: held while the index is used, never while a request waits.
        deadline: the `time.monotonic()` after which nothing is embedded. Existing vectors are still adopted.
        progress: called with the number of finished rows after each batch.
        save: called to store the vectors after each batch.

    Raises:
        EmbedderError: the embedder failed; earlier batches are kept.
        StoreError: raised by `save`.
    """
    left = 0
    for start in range(0, len(rows), batch):
        late = time.monotonic() >= deadline
        with lock:
            part = vectors.claim(rows[start : start + batch])
        left += len(rows[start : start + batch]) - len(part)
        try:
            todo = yield from _embed(vectors, embedder, part, text_of, lock, save, late=late)
        finally:
            vectors.release(part)
        left += todo
        progress(min(start + batch, len(rows)) - left)
        if late and todo == len(part):
            return left + max(0, len(rows) - start - batch)
    return left


def _embed(
    vectors: SessionVectors, embedder: Embedder, part: Rows, text_of: Callable[[Rows], Sequence[str]],
    lock: AbstractContextManager[object], save: Callable[[SessionVectors], None], *, late: bool,
) -> Generator[EmbedRequest, EmbedReply, int]:  # fmt: skip
    """Adopt existing vectors for some rows and, unless it is too late, embed the others; return how many are left."""
    with lock:
        positions = vectors.session_index.positions(part)
        texts = text_of(part)
        todo = vectors.adopt(positions, [text_hash(text) for text in texts])
        save(vectors)
    if late or not todo:
        return len(todo)
    # Equal texts are embedded once.
    pieces = {text: embedder.split(text) for text in dict.fromkeys(texts[i] for i in todo)}
    reply = yield EmbedRequest(embedder, tuple(piece for split in pieces.values() for piece in split))
    if isinstance(reply, EmbedderError):
        raise reply
    ends = np.cumsum([len(split) for split in pieces.values()])
    embedded = dict(zip(pieces, np.split(reply, ends[:-1]), strict=True))
    with lock:
        # Messages may have been forgotten while the model computed. A vector of the old text must not be stored.
        now = text_of(part) if vectors.outdated else texts
        kept = [i for i in todo if now[i] == texts[i]]
        vectors.put([(positions[i], text_hash(texts[i]), embedded[texts[i]]) for i in kept])
        save(vectors)
    return 0


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


@dataclass(frozen=True, slots=True)
class EmbedderChoice:
    """The embedder that a session is searched with.

    Attributes:
        embedder: the model; None to search by words alone.
        key: its `Fingerprint.key`.
        space: the name of its vectors in the store.
        note: why there is no embedder, for the report.
        failed: whether an embedder exists but raised when asked for its fingerprint.
    """

    embedder: Embedder | None
    key: str = ""
    space: str = ""
    note: str = ""
    failed: bool = False


def choose_embedder(
    given: Embedder | None, store: Store, session: int | None, unit: RecallUnit, embed_text: EmbedText, *,
    force: bool = False,
) -> EmbedderChoice:  # fmt: skip
    """Return the embedder to use: the one given, else the one that made the session's vectors, else the static one.

    Args:
        given: the memory's `embedder` argument.
        store: the store that holds the session.
        session: the session's key; None if it is not created yet.
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
    spaces = store.spaces(session) if session is not None else []
    if given is not None:
        key = _fingerprint(given).key
        if spaces and not force and all(_embedder_key(space) != key for space in spaces):
            raise EmbedderMismatchError(
                f"this session's vectors are by {_embedder_key(spaces[0])!r}, but the embedder given is {key!r}: "
                "pass the first one, or call reindex() to embed the session again"
            )
        return EmbedderChoice(given, key, key + suffix)
    if spaces:
        recorded = _embedder_key(spaces[0])
        embedder = embedder_named(recorded)
        note = "" if embedder else f"the session's vectors are by {recorded!r}; pass that embedder to recall by meaning"
    else:
        embedder = as_embedder(None)
        note = "" if embedder else "no embedder is installed: recall by words alone"
    key = embedder.fingerprint.key if embedder else ""
    return EmbedderChoice(embedder, key, key + suffix if embedder else "", note)


def _embedder_key(space: str) -> str:
    """Return the `Fingerprint.key` in the name of a space: up to the dimension, as a model's name may contain `#`."""
    found = re.fullmatch(r"(.+/\d+)(?:#.*)?", space, re.DOTALL)
    return found[1] if found else space


def _fingerprint(embedder: Embedder) -> Fingerprint:
    try:
        return embedder.fingerprint
    except EmbedderError:
        raise
    except Exception as error:  # a plug-in, as in `EmbedRequest.answer`: it may query its model
        name = type(embedder).__name__
        raise EmbedderError(f"{name} raised {type(error).__name__} instead of its fingerprint: {error}") from error


def uses_other_embedder(store: Store, session: int, embedder: Embedder) -> bool:
    """Return whether a session was last embedded by another embedder."""
    spaces = store.spaces(session)
    return bool(spaces) and _embedder_key(spaces[0]) != embedder.fingerprint.key


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
