"""Search the stored conversation: what may be found, what it means, and how well it matches."""

import time
import warnings
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import numpy.typing as npt

from shared_core.base import Embedder, Vectors
from shared_core.errors import EmbedderError, StoreError
from shared_core.index.session_index import SessionIndex
from shared_core.index.session_vectors import SessionVectors
from shared_core.recall.embedding import Dense, EmbedReply, EmbedRequest, backfill
from shared_core.recall.query import Query, parse_query
from shared_core.recall.ranking import POOL, RankedPlaces, rank
from shared_core.recall.rules import RecallRules
from shared_core.recall.scope import Eligible, Scope, eligible_places, speakers
from shared_core.recall.sessions import Sessions
from shared_core.records import MAIN, SessionState
from shared_core.session import LiveSession
from shared_core.tree.paths import Path, walk

__all__ = ["Found", "Recaller"]

POOL_TOKENS = 16
"""One candidate is looked at for so many tokens of room, and at least `POOL`."""

SMALL_BATCH = 32
"""Texts embedded at a time while a question waits."""

DAMAGED = "the kept index was damaged and was built anew"
"""Said once, in the report of the first question after."""

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
        words: the words that were looked for, stemmed.
    """

    scopes: Sequence[Scope]
    ranked: RankedPlaces
    pending: int = 0
    notes: tuple[str, ...] = ()
    embedder: str | None = None
    words: tuple[str, ...] = ()


FindSteps = Generator[EmbedRequest, EmbedReply, Found]


class Recaller:
    """Searches a session, or all of a user's sessions; its arguments are the memory's own."""

    def __init__(self, live: LiveSession, lock: AbstractContextManager[object], rules: RecallRules) -> None:
        self.live = live
        self.rules = rules
        self.sessions = Sessions(live, rules)
        self._warned = False
        self._lock = lock

    def accept(self) -> None:
        """Accept the embedder given although the session's vectors are another's: what has none is embedded anew."""
        self.sessions.accept()

    def scopes(self, state: SessionState, wanted: Eligible, dense: Dense) -> list[Scope]:
        """Return what may be searched: this branch up to the question, and with `scope="user"` the other sessions."""
        session, scopes = self.live.key, []
        if session is not None:
            scopes.append(self._scope(session, state, wanted.path or self.live.path, wanted, dense))
        if self.rules.scope == "user":
            for other, _, _ in self.live.store.sessions(self.live.user_id):
                other_state = self.live.store.state(other, MAIN)
                if other != session and other_state.head is not None:
                    path = walk(other_state.head, partial(self.live.store.segment, other))
                    there = replace(wanted, path=None, before=None, without=())
                    scopes.append(self._scope(other, other_state, path, there, dense))
            self.sessions.let_go()
        return scopes

    def _scope(self, session: int, state: SessionState, path: Path, wanted: Eligible, dense: Dense) -> Scope:
        index, vectors = self.sessions.open(session, state, dense)
        line = index.line(path)
        if wanted.before is not None:
            place = int(line.places(index.rows_at([wanted.before]))[0])
            line = replace(line, upto=place) if place >= 0 else line  # forgotten since: the caller will ask again
        eligible = eligible_places(index, line, wanted, self.rules.recall_tools)
        return Scope(index, vectors, line, eligible, self.rules.recall_unit, wanted.repeats)

    def every_branch(self, state: SessionState) -> Iterator[Scope]:
        """Yield all that could ever be found in this session, a scope for each branch."""
        session = self.live.key
        if session is None:
            return
        dense = self.sessions.dense()
        for branch in self.live.store.branches(session):
            yield self._scope(session, state, self.live.path_to(branch.head), Eligible(), dense)

    # Vectors

    def texts(self, scope: Scope, rows: npt.NDArray[np.int64]) -> list[str]:
        """Return what is embedded for some rows of a scope: themselves, or their turns."""
        places = scope.line.places(rows.astype(np.int32))
        units = [self._members(scope, int(place)) for place in places]
        wanted = [position for members in units for position in scope.index.positions(scope.line.rows[members])]
        records = {record.position: record for record in self.live.store.get(scope.index.session, wanted)}
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
        self, scopes: Sequence[Scope], embedder: Embedder, *, batch: int, deadline: float,
        progress: Callable[[int], None] = lambda done: None, save: Callable[[SessionVectors], None],
    ) -> Generator[EmbedRequest, EmbedReply, int]:  # fmt: skip
        """Embed what has no vector yet, this session's newest first; return how many messages are left."""
        left = 0
        for scope in scopes:
            if scope.vectors is None:
                continue
            with self._lock:
                rows = self.pending(scope)
                if not len(rows):
                    save(scope.vectors)  # what could not be stored before
                if not len(rows) or self.sessions.is_another_s(scope.index.session, embedder):
                    continue
            left += yield from backfill(
                scope.vectors, embedder, rows, partial(self.texts, scope), batch=batch, lock=self._lock,
                deadline=deadline, progress=progress, save=save,
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
            dense = self.sessions.dense_or_words()
            scopes = self.scopes(state, wanted, dense)
            query = parse_query(text, speakers(scopes))
        notes = self._notes(dense, scopes)
        # What has a vector cannot be told before the embedder says which are its own.
        pending, vector = sum(int(scope.findable().sum()) for scope in scopes) if dense.failed else 0, None
        if dense.embedder is not None:
            try:
                deadline = time.monotonic() + self.rules.embed_budget_ms / 1000
                pending = yield from self.embed_pending(
                    scopes, dense.embedder, batch=SMALL_BATCH, deadline=deadline, save=partial(_save_or_note, notes, [])
                )
                vector = yield from self._embed_query(dense.embedder, query, scopes)
            except EmbedderError as error:
                with self._lock:
                    pending = sum(len(self.pending(scope)) for scope in scopes)
                notes.append(f"recall by words alone: {error}")
                self._warn(notes[-1])
        with self._lock:
            ranked = self._rank(query, scopes, vector, dense, room)
        name = dense.embedder.fingerprint.key if dense.embedder is not None and vector is not None else None
        return Found(scopes, ranked, pending, tuple(notes), name, query.terms)

    def _notes(self, dense: Dense, scopes: Sequence[Scope]) -> list[str]:
        """Return what is known beforehand not to be done."""
        notes = [dense.note] if dense.note else []
        if dense.failed:
            self._warn(dense.note)
        others = sum(scope.vectors is None for scope in scopes) if dense.embedder is not None else 0
        notes += [DAMAGED] if _was_damaged(scopes) else []
        if others:
            notes.append(f"other sessions not searched by meaning, as their vectors are another embedder's: {others}")
        return notes

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
    ) -> RankedPlaces:
        fingerprint = dense.embedder.fingerprint if dense.embedder is not None else None
        ranking = self.rules.ranking if vector is not None else "lexical"
        floor, words, opening = self.rules.floors(fingerprint, ranking)
        return rank(
            query, scopes, vector, ranking=ranking, floor=floor, min_lexical=words, opening=opening,
            weight=fingerprint.weight if fingerprint else 0.0,
            pool=max(POOL, room // POOL_TOKENS), strict=self.rules.min_score is not None,
        )  # fmt: skip


def _was_damaged(scopes: Sequence[Scope]) -> bool:
    """Return whether a kept index turned out to be damaged since this was last asked."""
    kept: list[SessionIndex | SessionVectors] = [scope.index for scope in scopes]
    kept += [scope.vectors for scope in scopes if scope.vectors is not None]
    damaged = [one for one in kept if one.damaged]
    for one in damaged:
        one.damaged = False
    return bool(damaged)


def _save_or_note(notes: list[str], failed: list[SessionVectors], vectors: SessionVectors) -> None:
    """Store vectors if that is possible now; a question goes on without, and tries only once."""
    if not failed:
        try:
            vectors.save()
        except StoreError as error:
            failed.append(vectors)
            notes.append(f"new vectors are used and not stored yet: {error}")
