"""The indexes that one memory holds open, and the embedder to search them with."""

from collections.abc import Callable
from contextlib import suppress

import numpy as np

from shared_core.errors import EmbedderError, EmbedderMismatchError, StoreError
from shared_core.index.cache import IndexCache, Key, Saved, SharedIndex
from shared_core.index.session import SNAPSHOT_ROWS, SessionIndex
from shared_core.index.session_vectors import SessionVectors, vectors_in
from shared_core.index.user import UserIndex
from shared_core.recall.embedder_choice import EmbedderChoice, choose_embedder, words_alone
from shared_core.recall.scope import RecallScope
from shared_core.recall.settings import RecallRules
from shared_core.records import ROOT, Position, SessionState
from shared_core.session.live import LiveSession


class OpenIndexes:
    """The indexes that one memory holds open, by session. They are in the cache that it shares with others.

    Args:
        live: the session.
        rules: what may be recalled.

    Attributes:
        saved: called when snapshots were saved; see `SharedIndex.save_snapshots`.
    """

    def __init__(self, live: LiveSession, rules: RecallRules) -> None:
        self.live = live
        self.rules = rules
        self.cache = IndexCache.of(live.store)
        self.saved: Saved | None = None
        self._force = False
        self._checked = False
        self._open: dict[Key, SharedIndex] = {}
        self._chosen: tuple[int | None, EmbedderChoice] | None = None

    def embedder_choice(self, scope: RecallScope | None = None) -> EmbedderChoice:
        """Return the embedder to search with; `scope` is that of a `Filter`.

        Raises:
            EmbedderMismatchError: the session's vectors are another embedder's.
            EmbedderError: the embedder raised instead of returning its fingerprint.
        """
        session, rules = self.live.key, self.rules
        if rules.words_alone or (session is None and (scope or rules.scope) == "session"):
            return EmbedderChoice(None)
        if self._chosen is None or self._chosen[0] != session:
            store, by_user = self.live.store, rules.embedder is None and (scope or rules.scope) == "user"
            dense = choose_embedder(
                rules.embedder, store, session, rules.recall_unit, rules.text_of, force=self._force,
                beside=store.sessions(self.live.user_id) if by_user else (),
            )  # fmt: skip
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
            return EmbedderChoice(None, note=words_alone(error, "embedder_failed"), failed=True)

    def check(self) -> None:
        """Raise EmbedderMismatchError early, before anything has to be recalled. The store is asked only once."""
        session = self.live.key
        if self._checked or session is None or self.rules.embedder is None:
            return
        if self.live.store.spaces(session):
            self.embedder_choice_or_words()
        self._checked = True

    def accept_embedder(self) -> None:
        """Accept the embedder given even if the session's vectors are another embedder's."""
        self._force = True
        self._chosen = None

    def open(self, state: SessionState, dense: EmbedderChoice) -> tuple[SessionIndex, SessionVectors | None]:
        """Return the session's index, up to date with the store, and its vectors if an embedder is used."""
        session, vectors = self.live.key, None
        assert session is not None
        shared = self._shared(session, lambda: SessionIndex(self.live.store, session))
        index: SessionIndex = shared.refreshed(lambda rows: rows.refresh(state, self.live.news.after))
        if dense.embedder is not None:
            vectors = vectors_in(index, dense.space, dense.embedder.fingerprint.dimension)
        self.cache.note(shared, session)
        return index, vectors

    def _shared(self, key: Key, make: Callable[[], SessionIndex]) -> SharedIndex:
        if key not in self._open:
            self._open[key] = self.cache.open(key, make, self)
        return self._open[key]

    def open_user(self, dense: EmbedderChoice) -> tuple[UserIndex, SessionVectors | None, set[int]]:
        """Return the index of the user's other sessions, up to date with the store, and its vectors.

        Returns:
            The index, its vectors if an embedder is used, and the sessions whose vectors are another embedder's.
        """
        live = self.live
        space, dimension = ("", 0) if dense.embedder is None else (dense.space, dense.embedder.fingerprint.dimension)
        key = live.user_id, space
        shared = self._shared(key, lambda: UserIndex(live.store, live.user_id, space, dimension))
        index: UserIndex = shared.refreshed(lambda rows: rows.follow(live.key))
        self.cache.note(shared, key)
        return index, index.vectors.get(space), index.of_others - {live.key}

    def end_at(self, time: float) -> Position:
        """Return where the branch ended before the first message that was said after a time, in seconds since 1970."""
        live = self.live
        if live.key is None:
            return ROOT
        index, _ = self.open(live.sync(), EmbedderChoice(None))
        line = index.line(live.path)
        later = np.flatnonzero(line.along(index.columns["times"]) > time)
        if not len(later):
            return live.path.head
        before = index.positions(line.rows[: later[0]])
        # What a merge brought in was not on this branch then.
        return next((at for at in reversed(before) if not live.path.span_of(at).shift), ROOT)

    @property
    def is_open(self) -> bool:
        """Whether this session's index is open."""
        return self.live.key in self._open

    def is_cached(self) -> bool:
        """Return whether this session's index is in memory, so that a search need not begin by reading it."""
        return self.is_open or (self.live.key is not None and self.live.key in self.cache)

    def opened(self) -> list[SharedIndex]:
        """Return the open indexes."""
        return list(self._open.values())

    def note_stored(self) -> None:
        """Store the vectors that questions have made, as something else was stored, and soon the snapshots due."""
        self.save_vectors()
        self._save_later()

    def _save_later(self) -> None:
        for shared in self.opened():
            if shared.due():
                self.cache.save_later(shared, self.saved)

    def rest(self) -> None:
        """Let the indexes go, as nobody uses this memory for now."""
        self._save_later()
        opened, self._open = self._open, {}
        for key, shared in opened.items():
            shared.rows.fold()
            shared.users.discard(self)
            self.cache.note(shared, key)

    def close(self) -> None:
        """Save snapshots, let the indexes go, and stop the background work of those that nobody else uses."""
        try:
            self.save_snapshots()
        finally:
            opened, self._open = self.opened(), {}
            for shared in opened:
                shared.users.discard(self)
                if not shared.users:
                    shared.rest()

    def save_snapshots(self, *, least: int = SNAPSHOT_ROWS) -> None:
        """Save the indexes in memory that have grown by `least` rows, or whose snapshots were damaged."""
        self.save_vectors()
        for index in self.opened():
            index.save_snapshots(self.saved, least)

    def own_vectors(self) -> SessionVectors | None:
        """Return the vectors of this session, if they are in memory."""
        shared = None if self.live.key is None else self._open.get(self.live.key)
        if shared is None or self._chosen is None:
            return None
        ours = (one for one in shared.vectors if one.space == self._chosen[1].space and one.drop_forgotten())
        return next(ours, None)

    def save_vectors(self) -> None:
        """Store the vectors that questions have made. If that fails, they stay in memory until the next call."""
        if not any(one.unsaved for index in self.opened() for one in index.vectors):
            return
        dense = self.embedder_choice_or_words()
        for index in self.opened():
            for vectors in index.vectors:
                if vectors.unsaved is not None and (dense.embedder is None or vectors.space == dense.space):
                    with suppress(StoreError):
                        vectors.save()
