"""The sessions that questions search: their indexes in memory, and what meaning is measured with in them."""

from collections.abc import Iterable

from shared_core.base import Embedder
from shared_core.errors import EmbedderError, EmbedderMismatchError
from shared_core.index.session_index import SessionIndex
from shared_core.index.session_vectors import SessionVectors
from shared_core.recall.embedding import Dense, choose_embedder, is_another_s
from shared_core.recall.rules import RecallRules
from shared_core.records import SessionState
from shared_core.session import LiveSession

__all__ = ["Sessions"]

OPEN_ROWS = 250_000
"""Messages of other sessions whose index one object keeps in memory, with `scope="user"`."""

OPEN_SESSIONS = 10_000
"""Other sessions whose index one object keeps in memory: even one without messages takes 10 KB."""


class Sessions:
    """Opens indexes; its arguments are the memory's own."""

    def __init__(self, live: LiveSession, rules: RecallRules) -> None:
        self.live = live
        self.rules = rules
        self._force = False
        self._checked = False
        self._open: dict[int, tuple[SessionIndex, SessionVectors | None]] = {}
        self._chosen: tuple[int | None, Dense] | None = None

    def dense(self) -> Dense:
        """Return what meaning is measured with.

        Raises:
            EmbedderMismatchError: the session's vectors are another embedder's.
            EmbedderError: the embedder failed to say what it is.
        """
        session, rules = self.live.key, self.rules
        if rules.ranking == "lexical" or (session is None and rules.scope == "session"):
            return Dense(None)
        if self._chosen is None or self._chosen[0] != session:
            dense = choose_embedder(
                rules.embedder, self.live.store, session, rules.recall_unit, rules.text_of, force=self._force
            )
            if self._chosen is not None and self._chosen[1].space != dense.space:
                self._open.clear()
            self._chosen = session, dense
        return self._chosen[1]

    def dense_or_words(self) -> Dense:
        """Return what meaning is measured with: words alone, with a note, if the embedder fails to say what it is.

        Raises:
            EmbedderMismatchError: the session's vectors are another embedder's.
        """
        try:
            return self.dense()
        except EmbedderMismatchError:
            raise
        except EmbedderError as error:
            return Dense(None, note=f"recall by words alone: {error}", failed=True)

    def check(self) -> None:
        """Raise EmbedderMismatchError already before anything has to be recalled; asks the store only once."""
        session = self.live.key
        if self._checked or session is None or self.rules.embedder is None or self.rules.ranking == "lexical":
            return
        if self.live.store.spaces(session):
            self.dense_or_words()
        self._checked = True

    def accept(self) -> None:
        """Take the embedder given although the session's vectors are another's."""
        self._force = True
        self._chosen = None
        self._open.clear()

    def open(self, session: int, state: SessionState, dense: Dense) -> tuple[SessionIndex, SessionVectors | None]:
        """Return a session's index, caught up with the store, and its vectors if meaning is measured with them."""
        index, vectors = self._open.pop(session, (None, None))
        # Who waits for vectors meanwhile goes on with the old rows, which new ones must not replace under his hands.
        if index is None or index.epoch != state.epoch:
            index, vectors = SessionIndex(self.live.store, session), None
        index.refresh(state)
        if vectors is None and dense.embedder is not None and not self.is_another_s(session, dense.embedder):
            vectors = SessionVectors(index, dense.space, dense.embedder.fingerprint.dimension)
        if vectors is not None:
            vectors.refresh()
        self._open[session] = index, vectors
        return index, vectors if dense.embedder is not None else None

    def is_another_s(self, session: int, embedder: Embedder) -> bool:
        """Return whether another session was embedded last by another embedder, and must stay as it is."""
        return session != self.live.key and is_another_s(self.live.store, session, embedder)

    def opened(self) -> Iterable[tuple[SessionIndex, SessionVectors | None]]:
        """Return the indexes in memory."""
        return list(self._open.values())

    def close(self) -> None:
        """Leave nothing running."""
        for _, vectors in self.opened():
            if vectors is not None:
                vectors.vectors.stop()

    def let_go(self) -> None:
        """Keep no more than `OPEN_ROWS` of other sessions in memory, and of `OPEN_SESSIONS`.

        The same ones stay at every question: if the least recently used went, all would be read anew every time.
        """
        room, sessions = OPEN_ROWS, OPEN_SESSIONS
        for session, (index, _) in list(self._open.items()):
            if session != self.live.key:
                if len(index) <= room and sessions:
                    room, sessions = room - len(index), sessions - 1
                else:
                    del self._open[session]
