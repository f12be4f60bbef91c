"""The indexes that one memory holds open, and the embedder to search them with."""

from contextlib import suppress
from functools import partial

from shared_core.errors import EmbedderError, EmbedderMismatchError, StoreError
from shared_core.index.index_cache import IndexCache, Key, Lease, Saved, SharedIndex
from shared_core.index.session_index import SessionIndex
from shared_core.index.session_vectors import SessionVectors, embedder_key
from shared_core.index.user_index import NO_SESSION, SharedUserIndex, UserIndex, UserVectors
from shared_core.plugins.base import Embedder
from shared_core.recall.embedding import (
    EmbedderChoice,
    choose_embedder,
    uses_other_embedder,
    words_alone,
)
from shared_core.recall.rules import RecallRules
from shared_core.recall.scope import (
    RecallScope,
)
from shared_core.records import Record, SessionState
from shared_core.session.live import LiveSession
from shared_core.store import Store


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
        self._leases: dict[Key, Lease] = {}
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
            dense = choose_embedder(
                rules.embedder, self.live.store, session, rules.recall_unit, rules.text_of, force=self._force
            )
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

    def open(
        self, session: int, state: SessionState, dense: EmbedderChoice
    ) -> tuple[SessionIndex, SessionVectors | None]:
        """Return a session's index, up to date with the store, and its vectors if an embedder is used."""
        shared = self._shared(session)
        own = session == self.live.key
        session_index = shared.refreshed(state, self.live.news.after if own else _nothing_new)
        vectors = None
        if dense.embedder is not None:
            vectors = shared.vectors(dense.space)
            if vectors is None and not self.uses_other_embedder(session, dense.embedder):
                vectors = shared.with_vectors(session_index, dense.space, dense.embedder.fingerprint.dimension)
            elif vectors is not None and vectors.session_index is not session_index:
                vectors = None  # something was forgotten since, so that this search begins again
        self.cache.note(shared, (id(self.live.store), session))
        return session_index, vectors

    def _shared(self, session: int) -> SharedIndex:
        lease = self._leases.get(session)
        if lease is None:
            make = partial(_empty, self.live.store, session)
            lease = self._leases[session] = self.cache.lease(self.live.store, session, make)
        return lease.index

    def open_user(self, dense: EmbedderChoice) -> tuple[UserIndex, UserVectors | None, list[int]]:
        """Return the index of the user's other sessions, up to date with the store, and its vectors.

        Returns:
            The index, its vectors if an embedder is used, and the sessions whose vectors are another embedder's.
        """
        live, space = self.live, None
        if dense.embedder is not None:
            space = dense.space, dense.embedder.fingerprint.dimension
        key = (live.user_id,)
        lease = self._leases.get(key)
        if lease is None:
            make = partial(SharedUserIndex, live.store, live.user_id)
            lease = self._leases[key] = self.cache.lease(live.store, key, make)
        shared = lease.index
        assert isinstance(shared, SharedUserIndex)

        def of_other(space: str) -> bool:
            return embedder_key(space) != dense.key

        index, vectors = shared.followed(live.key, space, of_other)
        self.cache.note(shared, (id(live.store), key))
        return index, vectors, index.of_others(live.key, of_other) if dense.embedder is not None else []

    def uses_other_embedder(self, session: int, embedder: Embedder) -> bool:
        """Return whether this is another session, last embedded by another embedder; it is left as it is."""
        if session in (self.live.key, NO_SESSION):  # of several sessions, `open_user` has told
            return False
        return uses_other_embedder(self.live.store, session, embedder)

    def holds(self, session: int) -> bool:
        """Return whether the index of a session is open."""
        return session in self._leases

    def is_cached(self) -> bool:
        """Return whether this session's index is in memory, so that a search need not begin by reading it."""
        key = self.live.key
        return key is not None and (self.holds(key) or self.cache.holds((id(self.live.store), key)))

    def opened(self) -> list[SharedIndex]:
        """Return the open indexes."""
        return [lease.index for lease in self._leases.values()]

    def rest(self, least: int, unread: int) -> None:
        """Let the indexes go, as nobody uses this memory for now; save what is due in the background.

        Args:
            least: see `SessionIndex.snapshot_due`.
            unread: how many messages may be stored that the session's index does not hold yet.
        """
        store = self.live.store
        if unread >= least and self.live.key is not None and self.cache.holds((id(store), self.live.key)):
            self._shared(self.live.key)
        leases = list(self._leases.items())
        self._leases.clear()
        while leases:
            key, lease = leases.pop()
            shared, place = lease.index, (id(store), key)
            more = unread if key == self.live.key else 0
            if isinstance(key, int) and shared.snapshot_due(least - more):
                self.cache.save_later(lease, place, partial(_update, store, key, shared), least, self.saved)
            else:
                shared.rows.fold()
            del lease  # so that it may be dropped
            self.cache.note(shared, place)

    def close(self) -> None:
        """Let the indexes go, and stop the background work of those that nobody else uses."""
        indexes = self.opened()
        self._leases.clear()
        for one in indexes:
            if not one.in_use:
                one.rest()

    def own_vectors(self) -> SessionVectors | None:
        """Return the vectors of this session, if they are in memory."""
        lease = None if self.live.key is None else self._leases.get(self.live.key)
        if lease is None or self._chosen is None or self._chosen[1].embedder is None:
            return None
        return lease.index.vectors(self._chosen[1].space)

    def save_vectors(self) -> None:
        """Store the vectors that questions have made. If that fails, they stay in memory until the next call."""
        if not any(one.unsaved for index in self.opened() for one in index.every_vectors()):
            return
        dense = self.embedder_choice_or_words()
        for index in self.opened():
            for vectors in index.every_vectors():
                ours = dense.embedder is None or vectors.space == dense.space
                if ours and vectors.unsaved is not None:
                    with suppress(StoreError):
                        if self._is_mine(vectors.session_index.session, dense.embedder):
                            vectors.save()

    def _is_mine(self, session: int, embedder: Embedder | None) -> bool:
        """Return whether a session has not been taken over by another embedder since it was opened."""
        return embedder is None or not self.uses_other_embedder(session, embedder)


def _empty(store: Store, session: int) -> SharedIndex:
    return SharedIndex(SessionIndex(store, session))


def _nothing_new(seq: int, epoch: int) -> list[Record]:
    return []


def _update(store: Store, session: int, index: SharedIndex) -> None:
    index.refreshed(store.state(session), _nothing_new)
