"""Search the stored conversation: the steps of a search, and what it returns."""

import logging
import math
import weakref
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, compress
from operator import attrgetter

import numpy as np
import numpy.typing as npt

from shared_core.errors import EmbedderError, warn
from shared_core.events import Note
from shared_core.index.cache import OpenIndexes
from shared_core.index.lexical import idf_of
from shared_core.index.lines import LinePrefix
from shared_core.index.text import statement_code
from shared_core.languages.language import ENGLISH
from shared_core.plugins.base import Embedder, Vectors
from shared_core.plugins.calls import Failure, Late, Steps
from shared_core.plugins.embedding import embedder_error, question_request
from shared_core.recall.backlog import Backlog
from shared_core.recall.query import (
    NEWEST_MESSAGES,
    Query,
    as_said,
    in_conversation,
    lending,
    parse_query,
    points_back,
    share,
    towards,
)
from shared_core.recall.rank import POOL, RankedResults, rank
from shared_core.recall.scope import (
    Filter,
    Scope,
    eligible_mask,
    languages,
    reading,
    records_in,
    speakers,
)
from shared_core.recall.settings import EmbedderChoice, RecallRules, SessionEmbedder, words_alone
from shared_core.recall.worth import PRICES, UNKNOWN, Signs, Verdict, apart, best_score, verdict
from shared_core.records import SessionState
from shared_core.session.live import LiveSession
from shared_core.session.paths import Path

POOL_TOKENS = 16
"""A list has one candidate per this many tokens of room, and at least `POOL`."""

TOGETHER = 40
"""The best results whose words count together if a question goes on: it tells more than one message holds.

Measured on RealMem, whose own questions the gate then tells from those about another conversation with an AUC of .89
instead of .82, and on 40 wishes that made-up lines call for: 9 reach the prompt instead of 5.
"""

MOST_TOLD = 5
"""More informative terms of such a question do not count."""

DAMAGED = Note("the stored index was damaged and has been rebuilt", "index_rebuilt")
"""Noted once, in the report on the next question."""

logger = logging.getLogger("shared_core")

Indices = npt.NDArray[np.int64]
Ints = npt.NDArray[np.int32]

_NOTHING: Indices = np.empty(0, dtype=np.int64)


@dataclass(frozen=True)
class Found:
    """The results of a search.

    Attributes:
        scopes: the scopes searched.
        ranked: the messages found, best first.
        pending: how many messages have no vector yet.
        notes: what could not be done.
        embedder: the key of the embedder whose vectors were used; None for words alone.
        groups: the stems that were searched for, each with those that count as the same in the other languages of the
            conversation.
        verdict: how many of the results are worth their tokens; None: as many as fit.
        dated: whether the question names a date, so that what was said later is no better.
    """

    scopes: Sequence[Scope]
    ranked: RankedResults
    pending: int = 0
    notes: tuple[Note, ...] = ()
    embedder: str | None = None
    groups: tuple[tuple[str, ...], ...] = ()
    verdict: Verdict | None = None
    dated: bool = False

    @property
    def stems(self) -> tuple[str, ...]:
        """The stems that were searched for, in all languages of the conversation."""
        return tuple(chain.from_iterable(self.groups))

    @property
    def silent(self) -> bool:
        """Whether nothing is worth its tokens, of which `verdict` says why: then no message needs to be read."""
        return self.verdict is not None and not self.verdict.worth

    @property
    def why(self) -> str:
        """Why recall ends where it does, as a sentence for the report; empty if it takes all that fits."""
        if self.verdict is not None and self.verdict.worth and self.ranked.weak.all():
            return "nothing recalled: no message reaches the threshold, which is min_score or the embedder's own"
        return self.verdict.why if self.verdict is not None else ""

    @property
    def unlikely(self) -> npt.NDArray[np.bool_]:
        """Which results are too unlikely to help to be worth their tokens."""
        worth = len(self.ranked) if self.verdict is None else self.verdict.worth
        return np.arange(len(self.ranked)) >= worth


class Searcher:
    """Searches a session, or all sessions of a user. Its arguments are parts of the memory.

    Attributes:
        backlog: embeds messages that have no vector yet.
    """

    def __init__(self, live: LiveSession, lock: AbstractContextManager[object], rules: RecallRules) -> None:
        self.live = live
        self.rules = rules
        self.indexes = OpenIndexes(live)
        self.embedder = SessionEmbedder(live, rules)
        self.backlog = Backlog(live, rules.text_of, lock)
        # A memory may be let go without being closed; the thread that embeds holds the backlog, but not this object.
        weakref.finalize(self, setattr, self.backlog, "closed", True)
        self._late: tuple[str, Late[Vectors]] | None = None
        self._warned = self._logged = False
        self._lock = lock

    def scopes(self, state: SessionState, wanted: Filter, dense: EmbedderChoice) -> list[Scope]:
        """Return the scopes to search: this branch up to the question and, with `scope="user"`, the other sessions."""
        session, scopes = self.live.key, []
        if session is not None:
            here = replace(wanted, as_of=np.inf)  # the path of this session ends there
            scopes.append(self._scope(state, wanted.path or self.live.path, here, dense))
        if (wanted.scope or self.rules.scope) == "user":
            others = self._user_scope(wanted, dense)
            scopes += [others] if others.line.upto else []
        return scopes

    def _user_scope(self, wanted: Filter, dense: EmbedderChoice) -> Scope:
        """Return the scope of the user's other sessions, along their branches main."""
        session_index = self.indexes.open_user(dense.space, dense.dimension)
        vectors, of_others = session_index.vectors.get(dense.space), session_index.of_others - {self.live.key}
        with session_index.lock:
            line = session_index.main_line(self.live.key, wanted.as_of)
            # Question and turns in the prompt are those of this session only.
            eligible = eligible_mask(session_index, line, replace(wanted, without=()))
        return Scope(
            session_index, vectors, line, eligible, self.rules.recall_unit, wanted.repeats, frozenset(of_others)
        )  # fmt: skip

    def _scope(self, state: SessionState, path: Path, wanted: Filter, dense: EmbedderChoice) -> Scope:
        session_index, vectors = self.indexes.open(state, dense.space, dense.dimension)
        with session_index.lock:
            line = session_index.line(path)
            if wanted.before is not None:
                index = int(line.indices(session_index.rows_at([wanted.before]))[0])
                if index >= 0:  # else it was forgotten since, and the caller searches again
                    line = LinePrefix(line.line, index)
            eligible = eligible_mask(session_index, line, wanted)
        return Scope(session_index, vectors, line, eligible, self.rules.recall_unit, wanted.repeats)

    def every_branch(self, state: SessionState) -> Iterator[Scope]:
        """Yield a scope for each branch of this session, with everything that could be found on it."""
        session = self.live.key
        if session is None:
            return
        dense = self.embedder.choice()
        for branch in self.live.store.branches(session):
            yield self._scope(state, self.live.path_to(branch.head), Filter(), dense)

    # Search

    def find(self, text: str, state: SessionState, wanted: Filter, room: int) -> Steps[Found]:
        """Search: embed the question, and pending messages as long as time allows, then rank.

        Args:
            text: the question.
            state: the session's state.
            wanted: which messages may be found.
            room: the approximate number of tokens to fill with messages.
        """
        with self._lock:
            dense = self.embedder.choice_or_words(wanted.scope)
            scopes = self.scopes(state, wanted, dense)
            with reading(scopes):
                query = parse_query(text, speakers(scopes), languages(scopes))
                hold = partial(_hold, query, scopes)
                query = as_said(query, lambda term: any(scope.mentions((term,)) for scope in scopes), hold=hold)
            newest, own = self._newest(scopes, query) if wanted.in_conversation else _NOTHING, query
            lent = lending(scopes[0].heard(newest)) if len(newest) else []
            if wanted.in_conversation:
                said = records_in(scopes, [(0, index) for index in newest.tolist()], self.live.records_of)
                by_index = dict(zip(newest.tolist(), lent, strict=True))
                query = in_conversation(query, [(said[place].message.content, by_index[place[1]]) for place in said])
        notes, vector = self._notes(dense, scopes), None
        if dense.embedder is not None:
            try:
                vector = yield from self._vectors(dense.embedder, query, scopes, notes)
            except EmbedderError as error:
                self.live.share()  # another process, whose embedder works, may embed them
                notes.append(words_alone(error, "embedder_failed"))
                self._warn(notes[-1])
        with self._lock, reading(scopes):
            # Counted where they are ranked: vectors of a batch that was given up may arrive at any time.
            pending = sum(self._count_pending(scope, failed=dense.failed) for scope in scopes)
            notes += _shortened(scopes)
            if vector is not None and len(newest) and scopes[0].vectors is not None:
                vectors, rows = scopes[0].vectors.vectors, scopes[0].line.rows[newest]
                vector = towards(vector, vectors.first(rows), list(compress(lent, vectors.has(rows))), share(own))
            ranked = self._rank(query, scopes, vector, dense, room)
            worth = self._verdict(query, scopes, ranked, dense, searched_by_meaning=vector is not None)
        name = dense.embedder.fingerprint.key if dense.embedder is not None and vector is not None else None
        groups = tuple(map(query.forms_of, query.words))
        return Found(scopes, ranked, pending, tuple(notes), name, groups, worth, bool(query.dates))

    def _newest(self, scopes: Sequence[Scope], query: Query) -> Indices:
        """Return the newest messages of this session if a question points back to them, by index, oldest first."""
        here = bool(scopes) and scopes[0].session_index.session == self.live.key
        return scopes[0].newest(NEWEST_MESSAGES) if here and points_back(query) else _NOTHING

    def _notes(self, dense: EmbedderChoice, scopes: Sequence[Scope]) -> list[Note]:
        """Return notes on what is known to fail before the search."""
        notes = [dense.note] if dense.note is not None else []
        if dense.failed and dense.note is not None:
            self._warn(dense.note)
        notes += [DAMAGED] if _was_damaged(scopes) else []
        others = sum(len(scope.of_others) for scope in scopes) if dense.embedder is not None else 0
        if others:
            text = f"sessions not searched by meaning, because their vectors are another embedder's: {others}"
            notes.append(Note(text, "other_embedders"))
        return notes

    def _warn(self, note: str) -> None:
        if not self._warned:
            self._warned = True
            warn(note)

    def _count_pending(self, scope: Scope, *, failed: bool) -> int:
        """Return how many messages have no vector. Without its fingerprint, no vector is known to be the embedder's."""
        if failed:
            return int(scope.findable().sum())
        return len(scope.pending())

    def _vectors(
        self, embedder: Embedder, query: Query, scopes: Sequence[Scope], notes: list[Note]
    ) -> Steps[Vectors | None]:
        """Embed the question, then messages without a vector.

        The question comes first, because without its vector those of messages are of no use to it. None: there is
        nothing to compare it with, or it came too late.
        """
        with self._lock:
            waiting = sum(len(scope.pending()) for scope in scopes)
            if not waiting and not _any_vectors(scopes):
                return None
        try:
            embedder.load()  # a question waits for it as long as it takes
        except Exception as error:  # a plug-in, as in `Request`
            raise embedder_error(Failure("embedder", error)) from error
        vector = yield from self._embed_query(embedder, query, notes)
        if vector is not None and waiting:
            yield from self.backlog.question_steps(scopes, embedder, waiting, notes)
        return vector if _any_vectors(scopes) else None

    def _embed_query(self, embedder: Embedder, query: Query, notes: list[Note]) -> Steps[Vectors | None]:
        """Return the question's vector; None, with a note, if it is too late."""
        text = query.dense_text if self.rules.recall_unit == "message" else query.text
        asked = f"{embedder.fingerprint.key} {text}"
        earlier, late = self._late or ("", None)
        reply = late.reply if late is not None and earlier == asked else None
        if reply is None and late is not None and late.runs:
            self._too_late(notes, "the embedder still works on an earlier question")
            return None
        if reply is None or isinstance(reply, Failure):
            reply = yield question_request(embedder, text)
        if isinstance(reply, Failure):
            raise embedder_error(reply)
        if isinstance(reply, Late):
            self._late = asked, reply
            self._too_late(notes, "the embedder returned no vector of the question in time")
            return None
        return reply

    def _too_late(self, notes: list[Note], why: str) -> None:
        """Note that there is no vector of the question. The first note is logged, because a search has no report."""
        notes.append(words_alone(why, "embedder_late"))
        if not self._logged:
            self._logged = True
            logger.warning("%s", notes[-1])

    def _rank(
        self, query: Query, scopes: Sequence[Scope], vector: Vectors | None, dense: EmbedderChoice, room: int
    ) -> RankedResults:
        fingerprint = dense.embedder.fingerprint if dense.embedder is not None else None
        ranked = rank(
            query, scopes, vector, floor=fingerprint.floor if fingerprint else 0.0, min_score=self.rules.min_score,
            weight=fingerprint.weight if fingerprint else 0.0, pool=max(POOL, room // POOL_TOKENS),
        )  # fmt: skip
        ranked.threshold = fingerprint.threshold if fingerprint else 0.0
        return ranked

    def _verdict(
        self, query: Query, scopes: Sequence[Scope], ranked: RankedResults, dense: EmbedderChoice, *,
        searched_by_meaning: bool,
    ) -> Verdict | None:  # fmt: skip
        """Return how much of the results is worth its tokens; None: all that passes the floors."""
        price = PRICES[self.rules.recall]
        if price is None:
            return None
        signs = _signs(query, scopes, ranked, dense.embedder if searched_by_meaning else None)
        others = _no_copies(query, scopes, ranked)
        spread = query.goes_on or query.about_talk
        judged = verdict(price, signs, ranked.scores[others], spread=spread, goes_on=query.goes_on)
        return replace(judged, worth=int(others[judged.worth - 1]) + 1) if judged.worth else judged


def _hold(query: Query, scopes: Sequence[Scope], wanted: frozenset[str]) -> bool:
    """Return whether a message holds all of some terms."""
    groups = [query.forms_of(term) for term in wanted]
    return any(scope.holds_all(groups) for scope in scopes)


def _no_copies(query: Query, scopes: Sequence[Scope], ranked: RankedResults) -> Indices:
    """Return the ranks of the results that are no copies of the question, which answer nothing."""
    copies, asked = np.zeros(len(ranked), dtype=np.bool_), statement_code(query.text)
    for number, scope in enumerate(scopes):
        own = np.flatnonzero(ranked.scopes == number)
        copies[own] = scope.statement_codes(ranked.indices[own]) == asked
    return np.flatnonzero(~copies)


def _signs(query: Query, scopes: Sequence[Scope], ranked: RankedResults, embedder: Embedder | None) -> Signs:
    """Return what tells whether some scopes hold an answer; without an embedder, it is words alone."""
    stranger = any(not any(scope.mentions(query.forms_of(term)) for scope in scopes) for term in query.proper)
    return Signs(
        words=_held_together(query, scopes, ranked) if query.goes_on else float(ranked.present.max(initial=0)),
        meaning=_meaning(query, scopes, ranked, embedder),
        terms=math.log1p(min(query.informative, MOST_TOLD) if query.goes_on else query.informative),
        participant=bool(query.speakers),
        stranger=stranger,
        about_talk=query.about_talk,
        of_us=query.of_us,
        asks=query.asks or query.goes_on,
        borrows=bool(query.borrowed),
        score=best_score(ranked.scores),
    )


def _held_together(query: Query, scopes: Sequence[Scope], ranked: RankedResults) -> float:
    """Return the share of a question's terms, by their idf, that the best results hold together, in one scope."""
    shares = [0.0]
    for number, scope in enumerate(scopes):
        best = scope.line.rows[ranked.indices[:TOGETHER][ranked.scopes[:TOGETHER] == number]]
        found = [scope.session_index.lexical.on_line(query.forms_of(term), scope.line)[0] for term in query.terms]
        weights = [idf_of(len(rows), scope.line.upto) for rows in found]
        held = [weight for weight, rows in zip(weights, found, strict=True) if _holds_any(rows, best)]
        shares.append(sum(held) / max(sum(weights), 1e-9))
    return max(shares)


def _holds_any(rows: Ints, some: Ints) -> bool:
    """Return whether any of a few rows is among some that ascend, which may be those of a long history."""
    return len(rows) > 0 and bool((rows.take(rows.searchsorted(some), mode="clip") == some).any())


def _meaning(query: Query, scopes: Sequence[Scope], ranked: RankedResults, embedder: Embedder | None) -> float:
    """Return `Signs.meaning`: against unrelated texts and against the messages of the talk, whichever is less.

    In a talk of one subject, all messages are near to whatever is asked. To an English embedder, all texts in another
    language are alike, so only the cosines of the messages count there.
    """
    if embedder is None or not np.isfinite(ranked.dense).any():
        return UNKNOWN
    known = embedder.fingerprint.unrelated if query.language is ENGLISH else None
    longest = max(filter(attrgetter("vectors"), scopes), key=attrgetter("line.upto"))
    nearest = float(np.nanmax(ranked.dense))
    return min((apart(nearest, one) for one in (known, longest.unrelated()) if one is not None), default=UNKNOWN)


def _any_vectors(scopes: Sequence[Scope]) -> bool:
    """Return whether a message has a vector, so that a question can be compared with it."""
    return any(scope.vectors is not None and len(scope.vectors.vectors) for scope in scopes)


def _shortened(scopes: Sequence[Scope]) -> list[Note]:
    """Return a note on long texts that were embedded since the last call, and not whole."""
    found = [one for scope in scopes if scope.vectors is not None for one in scope.vectors.shortened]
    for scope in scopes:
        if scope.vectors is not None:
            scope.vectors.shortened = []
    if not found:
        return []
    kept, whole = (sum(column) for column in zip(*found, strict=True))
    texts = "1 long text was" if len(found) == 1 else f"{len(found):,} long texts were"
    its = "its" if len(found) == 1 else "their"
    pieces = f"{kept:,} of {its} {whole:,} pieces, chosen evenly; words are searched in all of them"
    return [Note(f"{texts} embedded by {pieces}", "text_shortened")]


def _was_damaged(scopes: Sequence[Scope]) -> bool:
    """Return whether a stored index was found damaged since the last call."""
    damaged = [scope.session_index for scope in scopes if scope.session_index.damaged]
    for index in damaged:
        index.damaged = False
    return bool(damaged)
