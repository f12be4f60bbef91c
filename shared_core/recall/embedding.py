"""The embedder of a session: how it is chosen, which texts it embeds, and how missing vectors are added."""

from collections.abc import Callable, Generator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from shared_core.arguments import function
from shared_core.errors import EmbedderError, EmbedderMismatchError
from shared_core.events import Degradation, Note
from shared_core.index.session_vectors import SessionVectors, Shortened, embedder_key, text_hash
from shared_core.messages import Message
from shared_core.plugins.base import Embedder, Fingerprint
from shared_core.plugins.calls import Call, Embedded, EmbedReply, EmbedRequest, LateCalls, Patience, Reply
from shared_core.plugins.embedders import as_embedder, embedder_named
from shared_core.recall.scope import RecallUnit
from shared_core.records import Position
from shared_core.store import Store

Rows = npt.NDArray[np.int64]


def backfill(
    vectors: SessionVectors, embedder: Embedder, rows: Rows, text_of: Callable[[Rows], Sequence[str]], *,
    batch: int, lock: AbstractContextManager[object], patience: Patience | None = None,
    progress: Callable[[int], None] = lambda done: None, store: bool = True,
    ours: Callable[[Sequence[Position]], bool] = lambda positions: False,
) -> Generator[EmbedRequest, EmbedReply, int]:  # fmt: skip
    """Embed rows in the order given and return how many are left. Rows claimed by another caller are skipped.

    Args:
        vectors: receives the vectors.
        embedder: answers the requests.
        rows: the rows to embed.
        text_of: returns the text of each of some rows; empty if all of its messages were forgotten.
        batch: rows per request.
        lock: held while the index is used, never while a request waits.
        patience: how long the question waits; None: as long as it takes. When it is over, nothing is embedded, but
            existing vectors are still adopted. A batch that takes longer is left, and taken when it arrives.
        progress: called with the number of finished rows after each batch.
        store: whether the vectors are stored after each batch. Otherwise they stay in memory until the next
            `SessionVectors.save`, as a question does not write.
        ours: returns whether nobody else can have embedded the messages at some positions, so that the store need not
            be asked.

    Raises:
        EmbedderError: the embedder failed; earlier batches are kept.
        StoreError: the store cannot be read or written.
    """
    left = 0
    for start in range(0, len(rows), batch):
        late = patience is not None and not patience.begins()
        with lock:
            part = vectors.claim(rows[start : start + batch])
        left += len(rows[start : start + batch]) - len(part)
        with _Batch(vectors, part, text_of, lock, ours, store=store) as one:
            todo = yield from one.embed(embedder, None if late else patience or Patience(np.inf, LateCalls()))
        left += todo
        progress(min(start + batch, len(rows)) - left)
        if late and todo == len(part):
            return left + max(0, len(rows) - start - batch)
    return left


class _Batch:
    """Rows that are embedded together, claimed until they have their vectors or the caller gives them up."""

    def __init__(
        self, vectors: SessionVectors, part: Rows, text_of: Callable[[Rows], Sequence[str]],
        lock: AbstractContextManager[object], ours: Callable[[Sequence[Position]], bool], *, store: bool,
    ) -> None:  # fmt: skip
        self._vectors = vectors
        self._part = part
        self._text_of = text_of
        self._lock = lock
        self._ours = ours
        self._store = store
        self._positions: list[Position] = []
        self._texts: Sequence[str] = ()
        self._todo: list[int] = []
        self._left = False

    def __enter__(self) -> "_Batch":
        return self

    def __exit__(self, *exc_info: object) -> None:
        if not self._left:
            self._vectors.release(self._part)

    def embed(self, embedder: Embedder, patience: Patience | None) -> Generator[EmbedRequest, EmbedReply, int]:
        """Adopt existing vectors and, unless `patience` is None, embed the others; return how many rows are left."""
        with self._lock:
            epoch = self._vectors.checked_epoch() if self._store else None
            self._positions = self._vectors.session_index.positions(self._part)
            self._texts = self._text_of(self._part)
            ask = self._store or patience is None or not self._ours(self._positions)
            hashes = [text_hash(text) for text in self._texts]
            self._todo = self._vectors.adopt(self._positions, hashes, ask=ask)
            if self._store:
                self._vectors.save(epoch)
        if patience is None or not self._todo:
            return len(self._todo)
        reply = yield EmbedRequest(embedder, self._different(), seconds=patience.left)
        if isinstance(reply, Call):
            call = reply
            arrived = call.leave(partial(self._keep, patience.late))
            if arrived is None:
                self._left = True
                patience.late.add(call)
                return len(self._todo)
            reply = arrived
        if isinstance(reply, EmbedderError):
            raise reply
        with self._lock:
            self._put(reply)
        return 0

    def _different(self) -> tuple[str, ...]:
        """Return the texts to embed, equal ones once."""
        return tuple(dict.fromkeys(self._texts[i] for i in self._todo))

    def _put(self, reply: Embedded) -> None:
        # Messages may have been forgotten while the model computed. A vector of the old text must not be stored; what
        # is not stored here is stored with the old epoch, and then not at all.
        epoch = self._vectors.checked_epoch() if self._store else self._vectors.epoch
        now = self._texts if epoch == self._vectors.epoch else self._text_of(self._part)
        kept = [i for i in self._todo if now[i] == self._texts[i]]
        embedded = dict(zip(self._different(), reply.by_text(), strict=True))
        self._vectors.put([(self._positions[i], text_hash(self._texts[i]), embedded[self._texts[i]]) for i in kept])
        self._vectors.shortened += [
            Shortened(some, of) for some, of in zip(reply.kept, reply.whole, strict=True) if some < of
        ]
        if self._store:
            self._vectors.save(epoch)

    def _keep(self, late: LateCalls, reply: Reply) -> None:
        """Take the vectors of a batch that was given up, now that they have arrived."""
        with self._lock:
            try:
                if isinstance(reply, Embedded) and not late.closed:
                    self._put(reply)
            finally:
                self._vectors.release(self._part)


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
        note: why there is no embedder, for the report; None if there is one.
        failed: whether an embedder exists but raised when asked for its fingerprint.
    """

    embedder: Embedder | None
    key: str = ""
    space: str = ""
    note: Note | None = None
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
        if spaces and not force and all(embedder_key(space) != key for space in spaces):
            raise EmbedderMismatchError(
                f"this session's vectors are by {embedder_key(spaces[0])!r}, but the embedder given is {key!r}: "
                "pass the first one, or call reindex() to embed the session again"
            )
        return EmbedderChoice(given, key, key + suffix)
    if spaces:
        recorded = embedder_key(spaces[0])
        embedder = embedder_named(recorded)
        why = f"the session's vectors are by {recorded!r}; pass that embedder to recall by meaning"
    else:
        embedder = as_embedder(None)
        why = "no embedder is installed: recall by words alone"
    if embedder is None:
        return EmbedderChoice(None, note=Note(why, "words_alone"))
    key = embedder.fingerprint.key
    return EmbedderChoice(embedder, key, key + suffix)


def _fingerprint(embedder: Embedder) -> Fingerprint:
    try:
        return embedder.fingerprint
    except EmbedderError:
        raise
    except Exception as error:  # a plug-in, as in `EmbedRequest`: it may query its model
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
