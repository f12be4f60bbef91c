"""The rows of all sessions of a user in one index, along whose line one branch main follows another."""

from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
from typing_extensions import override

from shared_core.index.arrays import GrowingArray, VectorSource
from shared_core.index.index_cache import SharedIndex, Spaced
from shared_core.index.lines import Line, LinePrefix
from shared_core.index.session_index import PAGE, Ints, SessionIndex
from shared_core.index.session_vectors import SessionVectors, embedder_key
from shared_core.index.user_changes import Unfollowed, UserChanges
from shared_core.records import (
    Derived,
    Forgotten,
    MainNews,
    Position,
    Record,
    Segment,
    SessionState,
    VectorRow,
    VectorRows,
)
from shared_core.runtime.forks import Depth
from shared_core.session.paths import ROOT_PATH, Path, walk
from shared_core.store import Store

NO_SESSION = -1
"""The key that such an index has, and no session."""

KEPT_LINES = 4
"""Lines kept in memory: each session that asks has one, without its own messages."""

Mask = npt.NDArray[np.bool_]
OfOther: TypeAlias = Callable[[str], bool]
"""Says whether the vectors in a space are another embedder's."""


class Known(NamedTuple):
    """What the index knows of a session.

    Attributes:
        upto: the number of the newest message that was read.
        epoch: the epoch of what was read.
        head: the end of its branch main; None: it has none any more.
        space: the space that was written to last; empty: there are no vectors.
    """

    upto: int
    epoch: int
    head: Position | None
    space: str


class UserIndex(SessionIndex):
    """The rows of all sessions of a user, in the order in which they were read.

    To a segment of a session belongs a number, which stands for it in the columns and in positions; `places` tells the
    session. Rows of all branches are there, those on main are on its line. Turns of two sessions are different turns.

    Args:
        store: the store that holds the sessions.
        user_id: the user.
    """

    def __init__(self, store: Store, user_id: str | None) -> None:
        super().__init__(store, NO_SESSION, lock_depth=Depth.USER_INDEX)
        self.user_id = user_id
        self.epoch = 0
        self.known: dict[int, Known] = {}
        self.changes = UserChanges()
        self.unfollowed = Unfollowed()
        self._names: dict[int, str] = {}
        self._by_space: dict[str, set[int]] = {}
        self._numbers: dict[tuple[int, int], int] = {}
        self._numbers_of: dict[int, list[int]] = {}
        self._session_of: GrowingArray[np.int64] = GrowingArray(np.int64)
        self._segment_of: GrowingArray[np.int32] = GrowingArray(np.int32)
        self._first: GrowingArray[np.int32] = GrowingArray(np.int32)  # depths on main, by number
        self._last: GrowingArray[np.int32] = GrowingArray(np.int32)
        self._merged: dict[int, Path] = {}
        self._mains: OrderedDict[int | None, tuple[int, LinePrefix]] = OrderedDict()
        self._version = 0

    @property
    @override
    def vector_source(self) -> VectorSource:
        return UserVectorSource(self.store, self)

    @property
    @override
    def nbytes(self) -> int:
        with self.lock:
            lines = sum(prefix.line.nbytes for _, prefix in self._mains.values())
            return super().nbytes + lines + 1_500 * len(self.known) + 200 * len(self._numbers)

    @override
    def places(self, rows: npt.NDArray[np.integer[Any]]) -> list[tuple[int, Position]]:
        numbers = self.column("segments")[rows]
        sessions, segments = self._session_of.values[numbers].tolist(), self._segment_of.values[numbers].tolist()
        positions = map(Position, segments, self.column("depths")[rows].tolist())
        return list(zip(sessions, positions, strict=True))

    def numbered(self, session: int, position: Position) -> Position:
        """Return the position that stands here for one of a session."""
        return Position(self._number(session, position.segment), position.depth)

    def _number(self, session: int, segment: int) -> int:
        with self.lock:
            return self._numbered(session, segment)

    def _numbered(self, session: int, segment: int) -> int:
        number = self._numbers.setdefault((session, segment), len(self._numbers))
        if number == len(self._session_of):
            self._session_of.extend([session])
            self._segment_of.extend([segment])
            self._first.extend([0])
            self._last.extend([-1])
            self._numbers_of.setdefault(session, []).append(number)
        return number

    def segment_of(self, number: int) -> tuple[int, int]:
        """Return the session and the segment for which a number stands."""
        return int(self._session_of.values[number]), int(self._segment_of.values[number])

    def sessions(self) -> npt.NDArray[np.int64]:
        """Return the session of each row."""
        return self.sessions_at(np.arange(len(self)))

    @override
    def sessions_at(self, rows: npt.NDArray[np.integer[Any]]) -> npt.NDArray[np.int64]:
        found: npt.NDArray[np.int64] = self._session_of.values[self.column("segments")[rows]]
        return found

    def name_of(self, session: int) -> str:
        """Return the name of a session that was searched."""
        return self._names[session]

    def of_others(self, asking: int | None, of_other: OfOther) -> list[int]:
        """Return the sessions, but for the one that asks, that were last embedded by another embedder."""
        with self.lock:
            return [
                session
                for space, sessions in self._by_space.items()
                if sessions and of_other(space)
                for session in sessions
                if session != asking
            ]

    def _know(self, session: int, known: Known) -> None:
        """Note what is known of a session from now on."""
        before = self.known.get(session)
        self.known[session] = known
        if before is not None and before.space:
            self._by_space[before.space].discard(session)
        if known.space:
            self._by_space.setdefault(known.space, set()).add(session)

    # What is new

    def ask(self) -> None:
        """Ask the store which sessions have changed since it was last asked."""
        while True:
            with self.lock:
                answers, mark = self.changes.answers, self.changes.mark
            changes = self.store.main_changes(self.user_id, mark)
            with self.lock:
                if self.changes.answers == answers:
                    self.changes.note(changes)
                    self._names.update({key.key: key.session_id for key, _ in changes.states})
                    return

    def outdated(self, asking: int | None = None) -> list[tuple[int, int | None]]:
        """Return the sessions of which something was forgotten, and those with nothing on main any more.

        Args:
            asking: the session that asks, which is left as it is: nothing of it is found here while it asks.

        Returns:
            (session, the epoch that is known); None instead of the epoch: there is nothing on main.
        """
        with self.lock:
            return [
                (session, None if self.changes[session].gone else self.known[session].epoch)
                for session in self.unfollowed.advance(self.changes) - {asking}
                if self._is_outdated(session)
            ]

    def _is_outdated(self, session: int) -> bool:
        told, known = self.changes[session], self.known.get(session)
        return known is not None and (told.gone or told.state.epoch > known.epoch)

    def follow(self, asking: int | None, vectors: "UserVectors | None", of_other: OfOther) -> None:
        """Read what is new in the sessions that have changed, in pages, with the vectors of it.

        Args:
            asking: see `outdated`.
            vectors: those to add to; None: none are read.
            of_other: says which vectors not to read.
        """
        looked = set[int]()
        while True:
            with self.lock:
                wanted = self._wanted(asking, vectors, looked)
            if not wanted:
                return
            news = self.store.main_news(wanted, None if vectors is None else vectors.space)
            looked.update(wanted)
            with self.lock:
                self._take_news(wanted, news)
                if vectors is not None:
                    vectors.take_news(wanted, news, of_other)

    def _wanted(
        self, asking: int | None, vectors: "UserVectors | None", looked: set[int]
    ) -> dict[int, tuple[int, int]]:
        """Return the sessions to read next, with the numbers of the messages: up to `PAGE` in all.

        `looked` are those whose line is known by now, though it may have gone on since. Those of which there is nothing
        to read are followed from now on.
        """
        left = [self.unfollowed.advance(self.changes)]
        left += [] if vectors is None else [vectors.unfollowed.advance(self.changes)]
        wanted, room = dict[int, tuple[int, int]](), PAGE
        for session in sorted(set().union(*left) - {asking}):
            told, known = self.changes[session], self.known.get(session)
            after = known.upto if known is not None else 0
            if vectors is not None:
                after = min(after, vectors.upto.get(session, 0))
            moved = (known is None or known.head != told.state.head) and session not in looked
            if told.gone or not (moved or after < told.state.last_seq):
                if not self._is_outdated(session):  # as another thread may have been told by now
                    for some in left:
                        some.discard(session)
                continue
            wanted[session] = after, min(max(after, told.state.last_seq), after + room)
            room -= wanted[session][1] - after
            if room <= 0 or len(wanted) >= PAGE:
                break
        return wanted

    def _take_news(self, wanted: Mapping[int, tuple[int, int]], news: Mapping[int, MainNews]) -> None:
        found: list[tuple[int, Record]] = []
        for session, (after, upto) in wanted.items():
            known, new = self.known.get(session), news.get(session)
            before = known.upto if known is not None else 0
            if after > before:
                continue  # another thread took the session out meanwhile
            if new is None or new.state.head is None:
                epoch = known.epoch if known is not None else 0
                self._know(session, Known(max(before, upto), epoch, None, ""))
                self._set_main(session, ROOT_PATH)
                continue
            found += [(session, record) for record in new.records if record.seq > before]
            # Of what was read before, something may have been forgotten since: that is still to be taken out.
            epoch = known.epoch if known is not None else new.state.epoch
            self._know(session, Known(max(before, upto), epoch, new.state.head, next(iter(new.spaces), "")))
            self._set_main(session, _path(new.state.head, new.segments))
        self._version += 1
        if found:
            self._enter(
                [record.message for _, record in found],
                [self.numbered(session, record.position) for session, record in found],
                [f"{session} {record.message.turn_id or ''}" for session, record in found],
            )

    def _set_main(self, session: int, path: Path) -> None:
        """Note which rows of a session are on main."""
        self._last.values[self._numbers_of.get(session, [])] = -1
        self._merged.pop(session, None)
        if not path.plain:
            self._merged[session] = path
            return
        for span in path.spans:
            number = self._number(session, span.segment)
            self._first.values[number], self._last.values[number] = span.start, span.upto

    @override
    def snapshot_due(self, least: int) -> bool:
        """Return False: no session's rows stay in the store longer than the session that may forget them."""
        return False

    # What was forgotten

    @override
    def drop_forgotten(self, state: SessionState | None = None, asking: int | None = None) -> bool:
        """Take out what was forgotten up to now. False: all has to be read anew.

        Args:
            state: ignored; every session has one of its own.
            asking: see `outdated`.
        """
        while outdated := self.outdated(asking):
            if 2 * len(self.gone) > len(self):
                return False
            found = {
                session: None if epoch is None else self.store.forgotten_since(session, epoch)
                for session, epoch in outdated
            }
            with self.lock:
                for session, epoch in outdated:
                    known = self.known.get(session)
                    if known is not None and epoch in (None, known.epoch):  # else another thread has taken it out
                        self._drop(session, found[session])
                        self.epoch += 1
        return True

    def _drop(self, session: int, forgotten: Forgotten | None) -> None:
        """Take out what a session has forgotten; None: all of the session."""
        if forgotten is not None:
            now = self.changes[session].state.epoch
            self._know(session, self.known[session]._replace(epoch=now))
            self._take_out([self.numbered(session, position) for position in forgotten.positions])
        else:
            self._know(session, self.known[session]._replace(space=""))
            del self.known[session]
            self._merged.pop(session, None)
            self._last.values[self._numbers_of.get(session, [])] = -1
            self._take_out(self.positions(np.flatnonzero(self.sessions() == session)))
        self._version += 1

    # The line

    def main_line(self, asking: int | None, as_of: float = np.inf) -> LinePrefix:
        """Return the rows on main of all sessions, one session after the other, the oldest first.

        Args:
            asking: the session that asks, whose rows are left out.
            as_of: seconds since 1970; each session ends before its first message that was said later.
        """
        with self.lock:
            version, line = self._mains.pop(asking, (-1, None))
            if as_of != np.inf:
                return self._build_main(asking, as_of)
            if line is None or version != self._version:
                line = self._build_main(asking, as_of)
            self._mains[asking] = self._version, line
            while len(self._mains) > KEPT_LINES:
                self._mains.popitem(last=False)
            return line

    def _build_main(self, asking: int | None, as_of: float) -> LinePrefix:
        rows, sessions, shifts = self._on_main(asking)
        if as_of != np.inf:
            early = _before_later(sessions, self.columns["times"][rows] > as_of)
            rows, sessions, shifts = rows[early], sessions[early], shifts[early]
        line = Line()
        # Sessions are sittings of their own, and merged messages follow messages that they do not answer.
        line.extend(rows, self.columns, sessions.astype(np.int64) << 32 | shifts)
        return LinePrefix(line, len(rows))

    def _on_main(self, asking: int | None) -> tuple[Ints, Ints, Ints]:
        """Return the rows on main in order, the rank of the session of each, and the shift of its span."""
        found, rank_of = np.unique(self._session_of.values, return_inverse=True)
        rank_of, last = rank_of.astype(np.int32), self._last.values.copy()
        if asking is not None:
            last[self._numbers_of.get(asking, [])] = -1
        segments, depths = self.column("segments"), self.column("depths")
        rows = np.flatnonzero((depths >= self._first.values[segments]) & (depths <= last[segments])).astype(np.int32)
        rows = np.setdiff1d(rows, self.gone, assume_unique=True)
        ranks, indices, shifts = rank_of[segments[rows]], depths[rows], np.zeros(len(rows), dtype=np.int32)
        for session, path in self._merged.items():
            if session != asking:
                spans = [(span, self._of_span(session, *span.stretch)) for span in path.spans]
                rows = np.concatenate([rows, *(some for _, some in spans)])
                rank = np.int32(found.searchsorted(session))
                ranks = np.concatenate([ranks, np.full(len(rows) - len(ranks), rank, dtype=np.int32)])
                indices = np.concatenate([indices, *(depths[some] + np.int32(span.shift) for span, some in spans)])
                shifts = np.concatenate([shifts, *(np.full(len(some), span.shift, np.int32) for span, some in spans)])
        keys = ranks.astype(np.int64) << 32 | indices
        if np.all(keys[1:] > keys[:-1]):  # as they are as long as sessions come one after the other
            return rows, ranks, shifts
        order = np.argsort(keys, kind="stable")
        return rows[order], ranks[order], shifts[order]

    def _of_span(self, session: int, segment: int, start: int, upto: int) -> Ints:
        number = self._numbers.get((session, segment))
        return np.empty(0, dtype=np.int32) if number is None else self._between(number, start, upto)


def _path(head: Position, segments: Sequence[Segment]) -> Path:
    there = {segment.segment: segment for segment in segments}
    return walk(head, there.__getitem__)


def _before_later(ranks: Ints, later: Mask) -> Mask:
    """Return which messages come before the first later one of their session; those of one are next to each other."""
    counts = np.cumsum(later)
    begins = np.diff(ranks, prepend=-1) != 0
    before: npt.NDArray[np.int64] = (counts - later)[begins][np.cumsum(begins) - 1]
    early: Mask = counts == before
    return early


class UserVectors(SessionVectors):
    """The vectors of a user's sessions in one space; they are read along with the rows.

    Attributes:
        upto: session -> the number of the newest message whose vector was looked for.
        unfollowed: the sessions that may have more.
    """

    def __init__(self, session_index: SessionIndex, space: str, dimension: int) -> None:
        super().__init__(session_index, space, dimension)
        self._epoch = session_index.epoch
        self.upto: dict[int, int] = {}
        self.unfollowed = Unfollowed()

    @override
    def refresh(self) -> None:
        return

    def take_news(self, wanted: Mapping[int, tuple[int, int]], news: Mapping[int, MainNews], of_other: OfOther) -> None:
        """Add the vectors that were read with messages, except those of sessions that another embedder has embedded."""
        index = self.session_index
        assert isinstance(index, UserIndex)
        found: list[tuple[Position, bytes]] = []
        for session, (after, upto) in wanted.items():
            if after > self.upto.get(session, 0):
                continue
            self.upto[session] = max(upto, self.upto.get(session, 0))
            new = news.get(session)
            if new is not None and not (new.spaces and of_other(new.spaces[0])):
                found += [(index.numbered(session, position), data) for position, _, data in new.vectors]
        self._take(found)

    @override
    def snapshot_due(self, least: int) -> bool:
        return False


class SharedUserIndex(SharedIndex):
    """The index of a user's sessions that all memories of the user on a store share.

    Args:
        store: the store.
        user_id: the user.
    """

    def __init__(self, store: Store, user_id: str | None) -> None:
        super().__init__(UserIndex(store, user_id))

    def followed(
        self, asking: int | None, space: tuple[str, int] | None, of_other: OfOther
    ) -> tuple[UserIndex, UserVectors | None]:
        """Return the rows and vectors, up to date with the store, without what was forgotten up to now.

        Args:
            asking: see `UserIndex.outdated`.
            space: the name of the vectors' space and their dimension; None: without vectors.
            of_other: see `UserIndex.follow`.
        """
        now = self._now
        assert isinstance(now.rows, UserIndex)
        index = now.rows
        index.ask()
        while not index.drop_forgotten(asking=asking):
            now = self.replace(now, Spaced(UserIndex(index.store, index.user_id), {}))
            assert isinstance(now.rows, UserIndex)
            index = now.rows
            index.ask()
        vectors = None
        if space is not None:
            found = now.vectors.get(space[0])
            if found is None or not found.drop_forgotten():
                found = self._exchanged(now, found, UserVectors(index, *space))
            assert isinstance(found, UserVectors)
            vectors = found
        index.follow(asking, vectors, of_other)
        return index, vectors


class UserVectorSource:
    """Reads and keeps the vectors of a user's sessions as if they were one."""

    def __init__(self, store: Store, index: UserIndex) -> None:
        self._store = store
        self._index = index

    def state(self, session: int, branch: str | None = None) -> SessionState:
        """Return a state whose epoch differs from that of the index if something was forgotten."""
        self._index.ask()
        return SessionState(None, len(self._index), self._index.epoch + bool(self._index.outdated()))

    def vectors(self, session: int, space: str, positions: Sequence[Position] | None = None) -> Iterator[VectorRow]:
        """Return nothing: vectors are read with the messages."""
        return iter(())

    def known_vectors(self, session: int, space: str, hashes: Mapping[Position, str]) -> list[VectorRow]:
        """Return what need not be embedded again of some messages; one read for each of their sessions."""
        found: list[VectorRow] = []
        for key, some in self._by_session(list(hashes)).items():
            there = self._store.known_vectors(key, space, {theirs: hashes[ours] for theirs, ours in some.items()})
            found += [(self._index.numbered(key, position), text, data) for position, text, data in there]
        return found

    def keep(self, session: int, derived: Derived, epoch: int | None = None) -> bool:
        """Store vectors, with one read and one write for all sessions.

        Those of a session that has forgotten something are made again. One that another embedder has embedded meanwhile
        is left to it.
        """
        assert isinstance(derived, VectorRows)
        rows = {position: (text, data) for position, text, data in derived.rows}
        known = self._index.known
        by_session = {key: some for key, some in self._by_session(list(rows)).items() if key in known}
        now = self._store.main_news(dict.fromkeys(by_session, (0, 0)))
        ours = {
            key: [(theirs, *rows[here]) for theirs, here in some.items()]
            for key, some in by_session.items()
            if key in now and all(embedder_key(one) == embedder_key(derived.space) for one in now[key].spaces[:1])
        }
        if ours:
            self._store.keep_vectors(derived.space, ours, {key: known[key].epoch for key in ours})
        return True

    def snapshot(self, session: int, name: str) -> bytes | None:
        """Return None: there is none, as it would hold what is forgotten of another session."""
        return None

    def _by_session(self, positions: Sequence[Position]) -> dict[int, dict[Position, Position]]:
        """Return session -> position there -> position in the index."""
        found: dict[int, dict[Position, Position]] = {}
        for ours in positions:
            session, segment = self._index.segment_of(ours.segment)
            found.setdefault(session, {})[Position(segment, ours.depth)] = ours
        return found
