"""The indexes that one memory holds open, and the embedder to search them with."""

from collections.abc import Iterable
from contextlib import suppress

from shared_core.base import Embedder
from shared_core.errors import EmbedderError, EmbedderMismatchError, StoreError
from shared_core.index.session_index import SessionIndex
from shared_core.index.session_vectors import SessionVectors
from shared_core.paths import Path, walk
from shared_core.recall.embedding import (
    EmbedderChoice,
    choose_embedder,
    uses_other_embedder,
)
from shared_core.recall.rules import RecallRules
from shared_core.recall.scope import (
    RecallScope,
)
from shared_core.records import Position, Segment, SessionState, VectorRows
from shared_core.session import LiveSession

OPEN_ROWS = 250_000
"""With `scope="user"`, a memory keeps the indexes of other sessions open up to this many messages."""

OPEN_SESSIONS = 10_000
"""Other sessions whose index a memory keeps open: even one without messages takes 10 KB."""


class OpenIndexes:
    """The indexes that one memory holds open, by session.

    Attributes:
        evicted: vectors that are not stored yet, of sessions that are not open any more, each with its epoch.
    """

    def __init__(self, live: LiveSession, rules: RecallRules) -> None:
        self.live = live
        self.rules = rules
        self._force = False
        self._checked = False
        self._open: dict[int, tuple[SessionIndex, SessionVectors | None]] = {}
        self.evicted: dict[int, tuple[VectorRows, int]] = {}
        self._chosen: tuple[int | None, EmbedderChoice] | None = None
        self._segments: dict[int, dict[int, Segment]] = {}

    def embedder_choice(self, scope: RecallScope | None = None) -> EmbedderChoice:
        """Return the embedder to search with; `scope` is that of a `Filter`.

        Raises:
            EmbedderMismatchError: the session's vectors are another embedder's.
            EmbedderError: the embedder raised instead of returning its fingerprint.
        """
        session, rules = self.live.key, self.rules
        if rules.ranking == "lexical" or (session is None and (scope or rules.scope) == "session"):
            return EmbedderChoice(None)
        if self._chosen is None or self._chosen[0] != session:
            dense = choose_embedder(
                rules.embedder, self.live.store, session, rules.recall_unit, rules.text_of, force=self._force
            )
            if self._chosen is not None and self._chosen[1].space != dense.space:
                self._open.clear()
            self._chosen = session, dense
        return self._chosen[1]

    def embedder_choice_or_words(self, scope: RecallScope | None = None) -> EmbedderChoice:
        """Return the embedder to search with, or words alone with a note if it does not return its fingerprint.

        Raises:
            EmbedderMismatchError: the session's vectors are another embedder's.
        """
        try:
            return self.embedder_choice(scope)
        except EmbedderMismatchError:
            raise
        except EmbedderError as error:
            return EmbedderChoice(None, note=f"recall by words alone: {error}", failed=True)

    def check(self) -> None:
        """Raise EmbedderMismatchError early, before anything has to be recalled. The store is asked only once."""
        session = self.live.key
        if self._checked or session is None or self.rules.embedder is None or self.rules.ranking == "lexical":
            return
        if self.live.store.spaces(session):
            self.embedder_choice_or_words()
        self._checked = True

    def accept_embedder(self) -> None:
        """Accept the embedder given even if the session's vectors are another embedder's."""
        self._force = True
        self._chosen = None
        self._open.clear()

    def open(
        self, session: int, state: SessionState, dense: EmbedderChoice
    ) -> tuple[SessionIndex, SessionVectors | None]:
        """Return a session's index, up to date with the store, and its vectors if an embedder is used."""
        session_index, vectors = self._open.pop(session, (None, None))
        if session_index is None or session_index.epoch != state.epoch:
            session_index, vectors = self._renewed(session, session_index, vectors, state)
        if session == self.live.key:
            session_index.refresh(state, self.live.news.after)
        else:
            session_index.refresh(state)
        if vectors is None and dense.embedder is not None and not self.uses_other_embedder(session, dense.embedder):
            vectors = SessionVectors(session_index, dense.space, dense.embedder.fingerprint.dimension)
        if vectors is not None:
            vectors.refresh()
        self._open[session] = session_index, vectors
        return session_index, vectors if dense.embedder is not None else None

    def _renewed(
        self, session: int, session_index: SessionIndex | None, vectors: SessionVectors | None, state: SessionState
    ) -> tuple[SessionIndex, SessionVectors | None]:
        """Return an index without what was forgotten since the one given, and its vectors; without one, a new one.

        It is another object: another caller may be waiting for vectors and keeps using the old rows.
        """
        forgotten = None
        if session_index is not None:
            forgotten = self.live.store.forgotten_since(session, session_index.epoch)
        if session_index is None or forgotten is None:
            return SessionIndex(self.live.store, session), None
        renewed = session_index.without(forgotten.positions, state.epoch)
        gone = [*forgotten.positions, *forgotten.stale]
        return renewed, None if vectors is None else vectors.without(renewed, gone)

    def path_to(self, session: int, head: Position) -> Path:
        """Return the path to a position of another session; each of its segments is read once."""
        known = self._segments.setdefault(session, {})

        def segment_of(number: int) -> Segment:
            if number not in known:
                known[number] = self.live.store.segment(session, number)
            return known[number]

        return walk(head, segment_of)

    def uses_other_embedder(self, session: int, embedder: Embedder) -> bool:
        """Return whether this is another session, last embedded by another embedder; it is left as it is."""
        return session != self.live.key and uses_other_embedder(self.live.store, session, embedder)

    def opened(self) -> Iterable[tuple[SessionIndex, SessionVectors | None]]:
        """Return the open indexes."""
        return list(self._open.values())

    def close(self) -> None:
        """Stop all background work."""
        for _, vectors in self.opened():
            if vectors is not None:
                vectors.vectors.stop()

    def own_vectors(self) -> SessionVectors | None:
        """Return the vectors of this session, if they are in memory."""
        opened = self._open.get(self.live.key) if self.live.key is not None else None
        return opened[1] if opened is not None else None

    def save_vectors(self) -> None:
        """Store the vectors that questions have made. If that fails, they stay in memory until the next call."""
        store = self.live.store
        opened = [(index.session, vectors) for index, vectors in self.opened() if vectors is not None]
        for session, vectors in opened:
            if vectors.unsaved is not None:
                with suppress(StoreError):
                    if self._is_mine(session):
                        vectors.save()
        for session, (rows, epoch) in list(self.evicted.items()):
            with suppress(StoreError):
                if self._is_mine(session):
                    store.keep(session, rows, epoch)
                del self.evicted[session]

    def _is_mine(self, session: int) -> bool:
        """Return whether a session has not been taken over by another embedder since it was opened."""
        embedder = self.embedder_choice_or_words().embedder
        return embedder is None or not self.uses_other_embedder(session, embedder)

    def evict(self) -> None:
        """Close other sessions' indexes beyond `OPEN_ROWS` messages or `OPEN_SESSIONS` sessions.

        The first ones stay open. Every search reads all sessions in the same order, so closing the least recently used
        would make every search read all of them again.
        """
        room, sessions = OPEN_ROWS, OPEN_SESSIONS
        for session, (session_index, vectors) in list(self._open.items()):
            if session != self.live.key:
                if len(session_index) <= room and sessions:
                    room, sessions = room - len(session_index), sessions - 1
                else:
                    if vectors is not None and vectors.unsaved is not None:
                        self.evicted[session] = vectors.unsaved, vectors.epoch  # a question does not write
                    del self._open[session]
                    self._segments.pop(session, None)
