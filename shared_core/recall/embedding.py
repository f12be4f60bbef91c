"""The embedder of a session: which one it is, what is embedded, and how missing vectors are added."""

import re
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from shared_core.base import Embedder, Fingerprint, Vectors
from shared_core.embedders import as_embedder, embedder_named
from shared_core.errors import EmbedderError, EmbedderMismatchError
from shared_core.index.session_vectors import SessionVectors, text_hash
from shared_core.messages import Message
from shared_core.recall.scope import RecallUnit
from shared_core.store import Store

__all__ = [
    "Dense",
    "EmbedReply",
    "EmbedRequest",
    "EmbedText",
    "backfill",
    "choose_embedder",
    "is_another_s",
    "message_text",
    "name_of",
    "turn_text",
]

Rows = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class EmbedRequest:
    """Texts that a step needs vectors for; the sync and the async face each answer it in their own way."""

    embedder: Embedder
    texts: tuple[str, ...]
    query: bool = False

    def answer(self) -> "EmbedReply":
        """Return the vectors, or the error that the chat goes on without."""
        embedder = self.embedder
        try:
            reply = embedder.embed_query(self.texts[0]) if self.query else embedder.embed_documents(self.texts)
        except Exception as error:  # whatever a plug-in raises must not end a chat; the report names it
            return self._failed(error)
        return self._checked(reply)

    async def aanswer(self) -> "EmbedReply":
        """Do the same without blocking the event loop."""
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
            vectors = np.asarray(reply, dtype=np.float32)
        except (TypeError, ValueError) as error:
            return self._failed(error)
        if vectors.shape != expected or not np.isfinite(vectors).all():
            what = f"shape {vectors.shape}" if vectors.shape != expected else "numbers that are not finite"
            return EmbedderError(
                f"{self.embedder.fingerprint.key!r} returned {what}; expected finite numbers of shape {expected}"
            )
        return vectors


EmbedReply: TypeAlias = Vectors | EmbedderError


def backfill(
    vectors: SessionVectors, embedder: Embedder, rows: Rows, text_of: Callable[[Rows], Sequence[str]], *,
    batch: int, lock: AbstractContextManager[object], deadline: float = float("inf"),
    progress: Callable[[int], None] = lambda done: None, save: Callable[[SessionVectors], None] = SessionVectors.save,
) -> Generator[EmbedRequest, EmbedReply, int]:  # fmt: skip
    """Embed rows in the order given and return how many are left; rows that another caller is at are left to him.

    Args:
        vectors: where the vectors go.
        embedder: what the requests are for; it is not asked to embed here, only to split long texts.
        rows: which rows.
        text_of: the texts to embed, one for each of some rows; empty where everything was forgotten.
        batch: how many rows a request is for.
        lock: held while the index is touched, never while a request waits.
        deadline: `time.monotonic()` after which nothing is embedded; vectors that exist already are still taken.
        progress: told how many rows are done, after each batch.
        save: stores the vectors, after each batch.

    Raises:
        EmbedderError: the embedder failed; what was done before is kept.
        StoreError: whatever `save` raises.
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
    """Give rows vectors: those that exist already, and unless it is too late, new ones; return how many are left."""
    with lock:
        positions = vectors.index.positions(part)
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
        # What was forgotten while the model computed is gone from the text, and its vector must not stay behind.
        now = text_of(part) if vectors.outdated else texts
        kept = [i for i in todo if now[i] == texts[i]]
        vectors.put([(positions[i], text_hash(texts[i]), embedded[texts[i]]) for i in kept])
        save(vectors)
    return 0


EmbedText = Callable[[Sequence[Message]], str]
"""Turns a unit's messages (one, or those of a turn) into the text that is embedded for it."""


def message_text(messages: Sequence[Message]) -> str:
    """Return the default text of a message: what was said, after the speaker's name where there is one."""
    message = messages[0]
    return f"{message.name}: {message.content}" if message.name else message.content


def turn_text(messages: Sequence[Message]) -> str:
    """Return the default text of a turn: the question and the replies, one space between."""
    return " ".join(
        message.content for message in messages if message.role in ("user", "assistant") and message.content
    )


@dataclass(frozen=True, slots=True)
class Dense:
    """What meaning is measured with.

    Attributes:
        embedder: the model; None: words alone.
        key: its `Fingerprint.key`.
        space: the name of its vectors in the store.
        note: why there is none, for the report.
        failed: whether it is there and failed to say what it is.
    """

    embedder: Embedder | None
    key: str = ""
    space: str = ""
    note: str = ""
    failed: bool = False


def choose_embedder(
    given: Embedder | None, store: Store, session: int | None, unit: RecallUnit, embed_text: EmbedText, *,
    force: bool = False,
) -> Dense:  # fmt: skip
    """Return the embedder to use: the one given, else the one whose vectors the session holds, else the static one.

    Args:
        given: the memory's argument.
        store: where the session is.
        session: which session; None: it is not created yet.
        unit: what a vector stands for.
        embed_text: how its text is made.
        force: accept an embedder that the session holds no vectors of, though it holds another's.

    Raises:
        EmbedderMismatchError: the session holds vectors, and none of the embedder given.
        EmbedderError: the embedder given failed to say what it is.
    """
    usual = {"message": message_text, "turn": turn_text}[unit]
    suffix = f"#{unit}/{name_of(embed_text)}" if embed_text is not usual else "#turn" if unit == "turn" else ""
    spaces = store.spaces(session) if session is not None else []
    if given is not None:
        key = _fingerprint(given).key
        if spaces and not force and all(_embedder_key(space) != key for space in spaces):
            raise EmbedderMismatchError(
                f"this session's vectors are by {_embedder_key(spaces[0])!r} and the embedder given is {key!r}: "
                "pass the first one, or call reindex() to embed the session again"
            )
        return Dense(given, key, key + suffix)
    if spaces:
        recorded = _embedder_key(spaces[0])
        embedder = embedder_named(recorded)
        note = "" if embedder else f"the session's vectors are by {recorded!r}; pass that embedder to recall by meaning"
    else:
        embedder = as_embedder(None)
        note = "" if embedder else "no embedder is installed: recall by words alone"
    key = embedder.fingerprint.key if embedder else ""
    return Dense(embedder, key, key + suffix if embedder else "", note)


def _embedder_key(space: str) -> str:
    """Return the `Fingerprint.key`, which ends with the dimension; a model's name may hold a `#` too."""
    found = re.fullmatch(r"(.+/\d+)(?:#.*)?", space, re.DOTALL)
    return found[1] if found else space


def _fingerprint(embedder: Embedder) -> Fingerprint:
    try:
        return embedder.fingerprint
    except EmbedderError:
        raise
    except Exception as error:  # as in `EmbedRequest.answer`: it may have to ask its model for the dimension
        name = type(embedder).__name__
        raise EmbedderError(f"{name} raised {type(error).__name__} instead of its fingerprint: {error}") from error


def is_another_s(store: Store, session: int, embedder: Embedder) -> bool:
    """Return whether a session was embedded last by another embedder."""
    spaces = store.spaces(session)
    return bool(spaces) and _embedder_key(spaces[0]) != embedder.fingerprint.key


def name_of(embed_text: EmbedText) -> str:
    """Return the name under which the vectors of texts made so are kept.

    Raises:
        ValueError: it has none that tells it from others: it is a lambda, or a partial.
    """
    # An object with __call__ has no name of its own; its class stands for it.
    own = getattr(embed_text, "__qualname__", None)
    named: Any = embed_text if own else type(embed_text)
    name = f"{named.__module__}.{named.__qualname__}"
    if isinstance(embed_text, partial) or "<lambda>" in name:
        raise ValueError(
            f"embed_text={embed_text!r}: vectors are kept under its name, and it has none of its own; "
            "pass a function defined by `def`, or an object of a class of yours with `__call__`"
        )
    return name
