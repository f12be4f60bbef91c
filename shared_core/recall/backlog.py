"""Messages that have no vector yet: embedded in the background where a question would wait too long for it."""

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial

import numpy as np
import numpy.typing as npt

from shared_core.errors import StoreError
from shared_core.events import Note
from shared_core.index.session_vectors import SessionVectors, Shortened, text_hash
from shared_core.plugins import calls
from shared_core.plugins.base import Embedder
from shared_core.plugins.calls import Failure, Late, Request, Steps, arun_steps, run_steps
from shared_core.plugins.embedding import documents_request, embedder_error
from shared_core.recall.scope import Scope, records_in
from shared_core.recall.settings import EmbedText
from shared_core.records import Position
from shared_core.runtime.threads import exiting
from shared_core.session.live import LiveSession

Rows = npt.NDArray[np.int64]

BATCH = 32
"""Texts embedded at a time for a question. As many are embedded before a question goes on, if it is in time."""

PATIENCE = 0.2
"""Seconds that a question waits for more than a batch, before the rest is embedded in the background."""

MESSAGES, CHARACTERS = 512, 1 << 17
"""What is embedded before a question goes on if the embedder works `at_once`, which takes it about as long.

So the prompt of a short conversation does not depend on how busy the machine is.
"""


class Backlog:
    """Embeds the messages of one memory that have no vector yet, the newest first.

    A question begins it, and waits a moment. The rest goes on in the background, once, however many questions there are
    meanwhile: they only tell it which messages are wanted now, and it goes on with these. The vectors stay in memory
    until something is stored, because a question does not write.

    Attributes:
        closed: whether the memory is closed or gone, so that nothing is embedded or kept any more.

    Args:
        live: the session.
        text_of: returns the text to embed for the messages of a unit.
        lock: held while an index is used, never during a call of the embedder.
    """

    def __init__(self, live: LiveSession, text_of: EmbedText, lock: AbstractContextManager[object]) -> None:
        self.closed = False
        self._live = live
        self._text_of = text_of
        self._lock = lock
        self._wanted: Sequence[Scope] = ()
        self._running: dict[Late[int], Steps[int]] = {}
        self._paused = False

    @property
    def runs(self) -> bool:
        """Whether messages are embedded in the background."""
        return any(one.runs for one in self._running)

    def settle(self) -> None:
        """Let what runs in the background end after its batch, and wait until its vectors are kept."""
        self._paused = True
        running = self._running
        for one in running:
            one.settle()
        self._paused = False
        _give_back(running)

    def question_steps(
        self, scopes: Sequence[Scope], embedder: Embedder, waiting: int, notes: list[Note]
    ) -> Steps[None]:
        """Embed what has no vector as long as a question waits for it, and go on in the background.

        Args:
            scopes: what the question searches.
            embedder: makes the vectors.
            waiting: how many messages there are without one.
            notes: receives a note if the embedder has failed in the background.

        Raises:
            EmbedderError: the embedder failed, and the question has waited for it.
            StoreError: likewise, the store cannot be read.
        """
        self._wanted = scopes
        if self.runs:
            return
        ended, self._running = self._running, {}
        _give_back(ended)
        failed = [one.reply for one in ended if isinstance(one.reply, Failure)]
        notes += [Note(f"messages were not embedded: {one}", "embedder_failed") for one in failed]
        if failed:
            self._live.share()  # another process, whose embedder works, may have embedded them
        steps = self._background_steps(embedder)
        reply = yield Request(
            "embedder", partial(run_steps, steps), int, texts=waiting,
            seconds=self._seconds(scopes, embedder, waiting), afunction=partial(arun_steps, steps),
        )  # fmt: skip
        if isinstance(reply, Late):
            self._running = {**self._running, reply: steps}
        elif isinstance(reply, Failure):
            raise reply.error if isinstance(reply.error, StoreError) else embedder_error(reply)

    def _seconds(self, scopes: Sequence[Scope], embedder: Embedder, waiting: int) -> float | None:
        """Return how long a question waits."""
        if not embedder.at_once:
            return calls.SECONDS if waiting <= BATCH else PATIENCE
        if waiting <= BATCH:
            return None
        with self._lock:
            texts = sum(int(scope.session_index.columns["characters"][scope.pending()].sum()) for scope in scopes)
        return None if waiting <= MESSAGES and texts <= CHARACTERS else PATIENCE

    def _background_steps(self, embedder: Embedder) -> Steps[int]:
        count = 0
        while self._wanted and not self._ends:
            scopes, self._wanted = self._wanted, ()
            count += yield from self.steps(
                scopes, embedder, batch=BATCH, store=False, until=lambda: bool(self._wanted) or self._ends
            )
        return count

    @property
    def _ends(self) -> bool:
        return self.closed or self._paused or exiting.is_set()

    def steps(
        self, scopes: Sequence[Scope], embedder: Embedder, *, batch: int, store: bool,
        progress: Callable[[int], None] = lambda done: None, until: Callable[[], bool] = lambda: False,
    ) -> Steps[int]:  # fmt: skip
        """Yield requests for the vectors of messages without one, and return how many texts were embedded.

        Messages that another caller is embedding are skipped.

        Args:
            scopes: where the messages are; of each, the newest are embedded first.
            embedder: makes the vectors.
            batch: how many messages are embedded at a time.
            store: whether the vectors are stored after each batch, or only kept in memory.
            progress: called after each batch with how many messages are done.
            until: returns whether to end after a batch.

        Raises:
            EmbedderError: the embedder failed; earlier batches are kept.
            StoreError: the store cannot be read or written.
        """
        count = done = 0
        for scope in scopes:
            session = scope.session_index.session
            with self._lock:
                rows = scope.pending()
                if scope.vectors is None or not len(rows):
                    continue
            for part in (rows[start : start + batch] for start in range(0, len(rows), batch)):
                count += yield from embed_rows(
                    scope.vectors, part, embedder, partial(self._texts, scope), lock=self._lock,
                    is_ours=None if store else partial(self._live.is_ours, session),
                    wanted=lambda: not self.closed,
                )  # fmt: skip
                if store:
                    with self._lock:
                        scope.vectors.save()
                done += len(part)
                progress(done)
                if until():
                    return count
        return count

    def _texts(self, scope: Scope, rows: Rows) -> list[str]:
        """Return the texts to embed for some rows of a scope: of the messages, or of their turns."""
        units = [scope.members(index) for index in scope.line.indices(rows.astype(np.int32)).tolist()]
        places = [(0, index) for members in units for index in members]
        records = records_in([scope], places, self._live.records_of)
        texts = []
        for members in units:
            said = [records[0, index].message for index in members if (0, index) in records]
            texts.append(self._text_of(said) if said else "")  # "": forgotten since; its vector is not stored
        return texts


def _give_back(running: Mapping[Late[int], Steps[int]]) -> None:
    """End calls whose event loop stands still, so that others may embed what they have claimed."""
    for call, steps in running.items():
        while not call.forked and not call.runs:
            try:
                steps.close()
                break
            except ValueError:  # a thread still takes a step, and may not be interrupted
                time.sleep(0.001)


def embed_rows(
    vectors: SessionVectors, rows: Rows, embedder: Embedder, text_of: Callable[[Rows], Sequence[str]], *,
    lock: AbstractContextManager[object],
    is_ours: Callable[[Sequence[Position]], bool] | None = None, wanted: Callable[[], bool] = lambda: True,
) -> Steps[int]:  # fmt: skip
    """Yield a request for the vectors of some rows, keep them in memory, and return how many texts were embedded.

    Vectors that exist already are taken instead. Rows that another caller is embedding are skipped.

    Args:
        vectors: receives the vectors.
        rows: the rows.
        embedder: makes the vectors.
        text_of: returns the text of each of some rows; empty if all of its messages were forgotten.
        lock: held while the index is used, never during the request.
        is_ours: returns whether nobody else can have embedded some messages, so that the store need not be asked.
            None: it is asked, also for equal texts.
        wanted: returns whether the vectors are still wanted when they arrive.

    Raises:
        EmbedderError: the embedder failed.
    """
    claimed = vectors.claim(rows)
    try:
        with lock:
            positions, texts = vectors.session_index.positions(claimed), text_of(claimed)
            left = vectors.adopt(
                positions, [text_hash(text) for text in texts], ask=is_ours is None or not is_ours(positions)
            )
        lacking = tuple(dict.fromkeys(texts[i] for i in left))
        if not lacking:
            return 0
        reply = yield documents_request(embedder, lacking)
        if isinstance(reply, Failure):
            raise embedder_error(reply)
        with lock:
            if wanted():
                found = dict(zip(lacking, reply.by_text(), strict=True))
                vectors.put([(positions[i], text_hash(texts[i]), found[texts[i]]) for i in left])
                vectors.shortened += [
                    Shortened(some, of) for some, of in zip(reply.kept, reply.whole, strict=True) if some < of
                ]
        return len(lacking)
    finally:
        vectors.release(claimed)
