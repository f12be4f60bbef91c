"""Search the stored conversation: what may be found, what it means, and how well it matches."""

import time
import warnings
from collections import OrderedDict
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import numpy.typing as npt

from shared_core.base import Embedder, Vectors
from shared_core.errors import EmbedderError
from shared_core.index.session_index import SessionIndex
from shared_core.index.session_vectors import SessionVectors
from shared_core.live import LiveSession
from shared_core.recall.backfill import EmbedReply, EmbedRequest, backfill
from shared_core.recall.dense import Dense, choose_embedder
from shared_core.recall.eligible import Eligible, eligible_places, speakers
from shared_core.recall.query import Query, parse_query
from shared_core.recall.ranking import POOL, Ranked, Scope, rank
from shared_core.recall.rules import RecallRules
from shared_core.records import MAIN, SessionState
from shared_core.tree import Path, walk

__all__ = ["Eligible", "Found", "Recaller"]

POOL_TOKENS = 20
"""One candidate is looked at for so many tokens of room, and at least `POOL`."""

OPEN_SESSIONS = 16
"""Sessions whose index one object keeps in memory; with `scope="user"`, the least recently used goes first."""

SMALL_BATCH = 32
"""Texts embedded at a time while a question waits."""

Places = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Found:
    """What a search found.

    Attributes:
        scopes: where it looked.
        ranked: places of the scopes, best first.
        pending: how many messages have no vector yet.
        notes: what could not be done.
        embedder: whose vectors were used, None for words alone.
    """

    scopes: Sequence[Scope]
    ranked: Sequence[Ranked]
    pending: int = 0
    notes: tuple[str, ...] = ()
    embedder: str | None = None


FindSteps = Generator[EmbedRequest, EmbedReply, Found]


class Recaller:
    """Searches a session, or all of a user's sessions; its arguments are the memory's own."""

    def __init__(self, live: LiveSession, lock: AbstractContextManager[object], rules: RecallRules) -> None:
        self.live = live
        self.rules = rules
        self._force = False
        self._warned = False
        self._lock = lock
        self._open: OrderedDict[int, tuple[SessionIndex, SessionVectors | None]] = OrderedDict()
        self._dense: Dense | None = None

    def dense(self) -> Dense:
        """Return what meaning is measured with; EmbedderMismatchError if that cannot be."""
        session, rules = self.live.key, self.rules
        if rules.ranking == "lexical" or session is None:
            return Dense(None)
        if self._dense is None:
            self._dense = choose_embedder(
                rules.embedder, self.live.store, session, rules.recall_unit, rules.text_of, force=self._force
            )
        return self._dense

    def accept(self) -> None:
        """Accept the embedder given although the session's vectors are another's: what has none is embedded anew."""
        self._force = True
        self._dense = None
        self._open.clear()

    def open(self, session: int, state: SessionState) -> tuple[SessionIndex, SessionVectors | None]:
        """Return a session's index, caught up with the store."""
        opened = self._open.pop(session, None)
        # Who waits for vectors meanwhile goes on with the old rows, which new ones must not replace under his hands.
        if opened is None or opened[0].epoch != state.epoch:
            dense = self.dense()
            index = SessionIndex(self.live.store, session)
            vectors = None
            if dense.embedder is not None:
                vectors = SessionVectors(index, dense.space, dense.embedder.fingerprint.dimension)
            opened = index, vectors
        index, vectors = opened
        index.refresh(state)
        if vectors is not None:
            vectors.refresh()
        self._open[session] = opened
        while len(self._open) > OPEN_SESSIONS:
            self._open.popitem(last=False)
        return opened

    def opened(self) -> Iterable[tuple[SessionIndex, SessionVectors | None]]:
        """Return the indexes in memory."""
        return list(self._open.values())

    def scopes(self, state: SessionState, wanted: Eligible) -> list[Scope]:
        """Return what may be searched: this branch up to the question, and with `scope="user"` the other sessions."""
        session = self.live.key
        if session is None:
            return []
        scopes = [self._scope(session, state, wanted.path or self.live.path, wanted)]
        if self.rules.scope == "user":
            for other in self.live.store.sessions(self.live.user_id).values():
                other_state = self.live.store.state(other, MAIN)
                if other != session and other_state.head is not None:
                    path = walk(other_state.head, partial(self.live.store.segment, other))
                    scopes.append(
                        self._scope(other, other_state, path, replace(wanted, path=None, before=None, without=()))
                    )
        return scopes

    def _scope(self, session: int, state: SessionState, path: Path, wanted: Eligible) -> Scope:
        index, vectors = self.open(session, state)
        line = index.line(path)
        if wanted.before is not None:
            place = int(line.places(index.rows_at([wanted.before]))[0])
            line = replace(line, upto=place) if place >= 0 else line  # forgotten since: the caller will ask again
        eligible = eligible_places(index, line, wanted, self.rules.recall_tools)
        return Scope(index, vectors, line, eligible, self.rules.recall_unit)

    def every_branch(self, state: SessionState) -> list[Scope]:
        """Return all that could ever be found in this session, a scope for each branch."""
        session = self.live.key
        if session is None:
            return []
        paths = [self.live.path_to(branch.head) for branch in self.live.store.branches(session)]
        return [self._scope(session, state, path, Eligible()) for path in paths]

    # Vectors

    def texts(self, scope: Scope, rows: npt.NDArray[np.int64]) -> list[str]:
        """Return what is embedded for some rows of a scope: themselves, or their turns."""
        places = scope.line.places(rows.astype(np.int32))
        units = [self._members(scope, int(place)) for place in places]
        wanted = [position for members in units for position in scope.index.positions(scope.line.rows[members])]
        records = {record.position: record for record in self.live.store.at(scope.index.session, wanted)}
        texts = []
        for members in units:
            found = [records.get(position) for position in scope.index.positions(scope.line.rows[members])]
            said = [record.message for record in found if record is not None]
            texts.append(self.rules.text_of(said) if said else "")  # forgotten since: its vector is not kept
        return texts

    def _members(self, scope: Scope, place: int) -> Places:
        if self.rules.recall_unit == "message":
            return np.array([place])
        turn = int(scope.index.column("turns")[scope.line.rows[place]])
        return np.array([other for other in scope.line.line.of_turn(turn) if other < scope.line.upto])

    def pending(self, scope: Scope) -> Places:
        """Return the rows of a scope that may be found and have no vector, newest first."""
        if scope.vectors is None:
            return np.empty(0, np.int64)
        return scope.vectors.missing(scope.findable())

    def embed_pending(
        self, scopes: Sequence[Scope], *, batch: int, deadline: float, progress: Callable[[int], None] | None = None
    ) -> Generator[EmbedRequest, EmbedReply, int]:
        """Embed what has no vector yet, this session's newest first; return how many messages are left."""
        left = 0
        for scope in scopes:
            with self._lock:
                rows = self.pending(scope)
            embedder = self.dense().embedder
            if len(rows) and embedder is not None and scope.vectors is not None:
                left += yield from backfill(
                    scope.vectors, embedder, rows, partial(self.texts, scope), batch=batch,
                    lock=self._lock, deadline=deadline, progress=progress or (lambda done: None),
                )  # fmt: skip
        return left

    # Search

    def find(self, text: str, state: SessionState, wanted: Eligible, room: int) -> FindSteps:
        """Search: embed what is pending as far as time allows, embed the question, rank.

        Args:
            text: the question.
            state: of the session.
            wanted: what may be found.
            room: for how many tokens, roughly, messages are wanted.
        """
        with self._lock:
            scopes = self.scopes(state, wanted)
            dense = self.dense()
            query = parse_query(text, speakers(scopes))
        notes = [dense.note] if dense.note else []
        pending, vector = 0, None
        if dense.embedder is not None:
            try:
                deadline = time.monotonic() + self.rules.embed_budget_ms / 1000
                pending = yield from self.embed_pending(scopes, batch=SMALL_BATCH, deadline=deadline)
                vector = yield from self._embed_query(dense.embedder, query, scopes)
            except EmbedderError as error:
                with self._lock:
                    pending = sum(len(self.pending(scope)) for scope in scopes)
                notes.append(f"recall by words alone: {error}")
                self._warn(notes[-1])
        with self._lock:
            ranked = self._rank(query, scopes, vector, dense, room)
        name = dense.embedder.fingerprint.key if dense.embedder is not None and vector is not None else None
        return Found(scopes, ranked, pending, tuple(notes), name)

    def _warn(self, note: str) -> None:
        if not self._warned:
            self._warned = True
            warnings.warn(note, RuntimeWarning, stacklevel=2)

    def _embed_query(
        self, embedder: Embedder, query: Query, scopes: Sequence[Scope]
    ) -> Generator[EmbedRequest, EmbedReply, Vectors | None]:
        if not any(scope.vectors is not None and len(scope.vectors.vectors) for scope in scopes):
            return None
        text = query.dense_text if self.rules.recall_unit == "message" else query.text
        reply = yield EmbedRequest(embedder, (text,), query=True)
        if isinstance(reply, EmbedderError):
            raise reply
        return reply

    def _rank(
        self, query: Query, scopes: Sequence[Scope], vector: Vectors | None, dense: Dense, room: int
    ) -> list[Ranked]:
        fingerprint = dense.embedder.fingerprint if dense.embedder is not None else None
        floor = self.rules.min_score if self.rules.min_score is not None else fingerprint.floor if fingerprint else 0.0
        return rank(
            query, scopes, vector, ranking=self.rules.ranking if vector is not None else "lexical", floor=floor,
            min_lexical=self.rules.least_words, weight=fingerprint.weight if fingerprint else 0.0,
            pool=max(POOL, room // POOL_TOKENS),
        )  # fmt: skip
