"""The rows of all sessions of a user in one index, along whose line one branch main follows another."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from typing_extensions import override

from shared_core.index.arrays import GrowingArray
from shared_core.index.lines import Line, LinePrefix
from shared_core.index.session import PAGE, SessionIndex
from shared_core.index.session_vectors import SessionVectors, embedder_key
from shared_core.records import (
    ROOT,
    Forgotten,
    MainChanges,
    MainNews,
    Mark,
    Position,
    Record,
    SessionKey,
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

SESSION_BYTES = 1_700
"""About what is kept of each session in memory."""

Ints = npt.NDArray[np.int32]


class Told(NamedTuple):
    """What the store said of a session last.

    Attributes:
        key: the session.
        state: its state on `main`.
    """

    key: SessionKey
    state: SessionState

    @property
    def gone(self) -> bool:
        """Whether there are no messages on its `main`."""
        return self.state.head in (None, ROOT)


class Known(NamedTuple):
    """What the index knows of a session.

    Attributes:
        upto: the number of the newest message that was read.
        epoch: the epoch of what was read.
        head: the end of its branch main; None: it has none any more.
        path: the path to it.
    """

    upto: int
    epoch: int
    head: Position | None
    path: Path


class UserIndex(SessionIndex):
    """The rows of all sessions of a user, in the order in which they were read, and their vectors in one space.

    To a segment of a session belongs a number, which stands for it in the columns and in positions; `places` tells the
    session. Rows of all branches are there, those on main are on its line. Turns of two sessions are different turns.

    Attributes:
        of_others: the sessions that were last embedded by another embedder, whose vectors are not read.

    Args:
        store: the store that holds the sessions.
        user_id: the user.
        space: the name of the vectors' space; empty: there are no vectors.
        dimension: numbers per vector.
    """

    def __init__(self, store: Store, user_id: str | None, space: str = "", dimension: int = 0) -> None:
        super().__init__(store, NO_SESSION, lock_depth=Depth.USER_INDEX)
        self.user_id = user_id
        self.epoch = 0
        self.space = space
        self.dimension = dimension
        self.known: dict[int, Known] = {}
        self.of_others: set[int] = set()
        self.told: dict[int, Told] = {}
        self._answers = 0
        self._mark: Mark | None = None
        self._unfollowed: set[int] = set()  # the sessions whose last change was not followed yet
        self._numbers: dict[tuple[int, int], int] = {}
        self._session_of: GrowingArray[np.int64] = GrowingArray(np.int64)
        self._segments: list[tuple[int, int]] = []  # by number: session and segment
        self._on_main: dict[int, list[tuple[int, Ints]]] = {}
        self._mains: dict[int | None, LinePrefix] = {}
        if space:
            self.vectors[space] = SessionVectors(self, space, dimension)

    @property
    @override
    def nbytes(self) -> int:
        return super().nbytes + SESSION_BYTES * len(self.told)

    @override
    def anew(self) -> "UserIndex":
        return UserIndex(self.store, self.user_id, self.space, self.dimension)

    # Positions

    @override
    def places(self, rows: npt.NDArray[np.integer[Any]]) -> list[tuple[int, Position]]:
        segments = map(self._segments.__getitem__, self.columns["segments"][rows].tolist())
        depths = self.columns["depths"][rows].tolist()
        return [(session, Position(segment, depth)) for (session, segment), depth in zip(segments, depths, strict=True)]

    @override
    def sessions_at(self, rows: npt.NDArray[np.integer[Any]]) -> npt.NDArray[np.int64]:
        found: npt.NDArray[np.int64] = self._session_of.values[self.columns["segments"][rows]]
        return found

    def numbered(self, session: int, position: Position) -> Position:
        """Return the position that stands here for one of a session."""
        return Position(self._number(session, position.segment), position.depth)

    def _number(self, session: int, segment: int) -> int:
        with self.lock:
            number = self._numbers.setdefault((session, segment), len(self._numbers))
            if number == len(self._segments):
                self._segments.append((session, segment))
                self._session_of.extend([session])
            return number

    def by_session(self, positions: Sequence[Position]) -> dict[int, dict[Position, Position]]:
        """Return session -> position there -> position here."""
        found: dict[int, dict[Position, Position]] = {}
        for here in positions:
            session, segment = self._segments[here.segment]
            found.setdefault(session, {})[Position(segment, here.depth)] = here
        return found

    def name_of(self, session: int) -> str:
        """Return the name of a session that was searched."""
        return self.told[session].key.session_id

    # What is new

    def follow(self, asking: int | None) -> bool:
        """Read what has changed, and take out what was forgotten. False: all has to be read anew.

        Args:
            asking: the session that asks, which is left as it is: nothing of it is found here while it asks.
        """
        self.ask()
        if not self.drop_forgotten(asking=asking):
            return False
        self.read_new(asking)
        return True

    def ask(self) -> None:
        """Ask the store which sessions have changed since it was last asked."""
        while True:
            with self.lock:
                answers, mark = self._answers, self._mark
            changes = self.store.main_changes(self.user_id, mark)
            with self.lock:
                if self._answers == answers:  # else it may bring back a state older than that of the answer noted since
                    self._note(changes)
                    return

    def _note(self, changes: MainChanges) -> None:
        self._answers += 1
        self._mark = changes.mark
        told = {key.key: Told(key, state) for key, state in changes.states}
        if changes.whole:
            for session in self.told.keys() - told.keys():
                known = self.told[session]
                told[session] = known._replace(state=known.state._replace(head=None))
        new = {session: one for session, one in told.items() if self.told.get(session) != one}
        self.told |= new
        self._unfollowed |= new.keys()

    def outdated(self, asking: int | None = None) -> list[tuple[int, int | None]]:
        """Return the sessions of which something was forgotten, and those with nothing on main any more.

        Args:
            asking: see `follow`.

        Returns:
            (session, the epoch that is known); None instead of the epoch: there is nothing on main.
        """
        with self.lock:
            return [
                (session, None if self.told[session].gone else self.known[session].epoch)
                for session in self._unfollowed - {asking}
                if self._is_outdated(session)
            ]

    def _is_outdated(self, session: int) -> bool:
        told, known = self.told[session], self.known.get(session)
        return known is not None and (told.gone or told.state.epoch > known.epoch)

    def read_new(self, asking: int | None) -> None:
        """Read what is new in the sessions that have changed, in pages, with the vectors of it; see `follow`."""
        looked = set[int]()
        while True:
            with self.lock:
                wanted = self._wanted(asking, looked)
            if not wanted:
                return
            news = self.store.main_news(wanted, self.space or None)
            looked.update(wanted)
            with self.lock:
                self._take_news(wanted, news)

    def _wanted(self, asking: int | None, looked: set[int]) -> dict[int, tuple[int, int]]:
        """Return the sessions to read next, with the numbers of the messages: up to `PAGE` in all.

        `looked` are those whose line is known by now, though it may have gone on since. Those of which there is nothing
        to read are followed from now on.
        """
        wanted, room = dict[int, tuple[int, int]](), PAGE
        for session in sorted(self._unfollowed - {asking}):
            told, known = self.told[session], self.known.get(session, Known(0, 0, None, ROOT_PATH))
            moved = known.head != told.state.head and session not in looked
            if told.gone or not (moved or known.upto < told.state.last_seq):
                if not self._is_outdated(session):  # as another thread may have been told by now
                    self._unfollowed.discard(session)
                continue
            wanted[session] = known.upto, min(max(known.upto, told.state.last_seq), known.upto + room)
            room -= wanted[session][1] - known.upto
            if room <= 0 or len(wanted) >= PAGE:
                break
        return wanted

    def _take_news(self, wanted: Mapping[int, tuple[int, int]], news: Mapping[int, MainNews]) -> None:
        records: list[tuple[int, Record]] = []
        vectors: list[tuple[Position, bytes]] = []
        for session, (after, upto) in wanted.items():
            known, new = self.known.get(session), news.get(session)
            before = known.upto if known is not None else 0
            if after > before:
                continue  # another thread took the session out meanwhile
            # Of what was read before, something may have been forgotten since: that is still to be taken out.
            epoch = known.epoch if known is not None else new.state.epoch if new is not None else 0
            head = new.state.head if new is not None else None
            self.known[session] = Known(max(before, upto), epoch, head, ROOT_PATH)
            self.of_others.discard(session)
            if new is None or head is None:
                continue
            path = walk(head, {segment.segment: segment for segment in new.segments}.__getitem__)
            self.known[session] = self.known[session]._replace(path=path)
            records += [(session, record) for record in new.records if record.seq > before]
            if new.spaces and embedder_key(new.spaces[0]) != embedder_key(self.space):
                self.of_others.add(session)
            else:
                vectors += [(self.numbered(session, position), data) for position, _, data in new.vectors]
        self._enter([
            (one.message, self.numbered(session, one.position), f"{session} {one.message.turn_id or ''}")
            for session, one in records
        ])  # fmt: skip
        for session in wanted.keys() & self.known.keys():
            self._set_main(session)
        for one in self.vectors.values():
            one.take(vectors)
        self._mains.clear()

    def _set_main(self, session: int) -> None:
        """Note the rows of a session along its branch main: runs of them, each with the shift of its span."""
        runs = [
            (span.shift, self._between(self._number(session, span.segment), span.start, span.upto))
            for span in self.known[session].path.spans
        ]
        self._on_main[session] = [(shift, rows) for shift, rows in runs if len(rows)]

    @property
    @override
    def may_be_saved(self) -> bool:
        """False: no session's rows stay in the store longer than the session that may forget them."""
        return False

    # Vectors

    @override
    def state(self) -> SessionState:
        """Return a state whose epoch differs from that of the index if something was forgotten."""
        self.ask()
        return SessionState(None, len(self), self.epoch + bool(self.outdated()))

    @override
    def known_vectors(self, space: str, hashes: Mapping[Position, str]) -> list[VectorRow]:
        found: list[VectorRow] = []
        for key, some in self.by_session(list(hashes)).items():
            there = self.store.known_vectors(key, space, {theirs: hashes[ours] for theirs, ours in some.items()})
            found += [(self.numbered(key, position), text, data) for position, text, data in there]
        return found

    @override
    def keep_vectors(self, rows: VectorRows, epoch: int) -> bool:
        """Store vectors, with one read and one write for all sessions.

        Those of a session that has forgotten something are made again. One that another embedder has embedded meanwhile
        is left to it.
        """
        vectors = {position: (text, data) for position, text, data in rows.rows}
        by_session = {key: some for key, some in self.by_session(list(vectors)).items() if key in self.known}
        now = self.store.main_news(dict.fromkeys(by_session, (0, 0)))
        ours = {
            key: [(theirs, *vectors[here]) for theirs, here in some.items()]
            for key, some in by_session.items()
            if key in now and all(embedder_key(one) == embedder_key(self.space) for one in now[key].spaces[:1])
        }
        if ours:
            self.store.keep_vectors(self.space, ours, {key: self.known[key].epoch for key in ours})
        return True

    # What was forgotten

    @override
    def drop_forgotten(self, state: SessionState | None = None, asking: int | None = None) -> bool:
        """Take out what was forgotten up to now. False: all has to be read anew.

        Args:
            state: ignored; every session has one of its own.
            asking: see `follow`.
        """
        while outdated := self.outdated(asking):
            if 2 * len(self.gone) > len(self) or "#" in self.space:
                return False  # a vector that stands for several messages may have lost one of them
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
                self._follow_vectors()
                self._mains.clear()
        return True

    def _drop(self, session: int, forgotten: Forgotten | None) -> None:
        """Take out what a session has forgotten; None: all of the session."""
        if forgotten is not None:
            self.known[session] = self.known[session]._replace(epoch=self.told[session].state.epoch)
            self._take_out([self.numbered(session, position) for position in forgotten.positions])
            self._set_main(session)
        else:
            del self.known[session], self._on_main[session]
            self.of_others.discard(session)
            rows = np.arange(len(self))
            self._take_out(self.positions(rows[self.sessions_at(rows) == session]))

    # The line

    def main_line(self, asking: int | None, as_of: float = np.inf) -> LinePrefix:
        """Return the rows on main of all sessions, one session after the other, the oldest first.

        Args:
            asking: the session that asks, whose rows are left out.
            as_of: seconds since 1970; each session ends before its first message that was said later.
        """
        with self.lock:
            if as_of != np.inf:
                return self._build_main(asking, as_of)
            if asking not in self._mains:
                if len(self._mains) >= KEPT_LINES:
                    self._mains.clear()
                self._mains[asking] = self._build_main(asking, as_of)
            return self._mains[asking]

    def _build_main(self, asking: int | None, as_of: float) -> LinePrefix:
        parts, strands, before = [np.empty(0, np.int32)], [0], (NO_SESSION, 0)
        for session in sorted(self._on_main.keys() - {asking}):
            for shift, rows in self._on_main[session]:
                early = rows
                if as_of != np.inf:
                    early = rows[: np.append(self.columns["times"][rows] > as_of, True).argmax()]
                if len(early):
                    # Sessions are sittings of their own, and merged messages follow messages that they do not answer.
                    strands.append(strands[-1] + (before != (session, shift)))
                    parts.append(early)
                    before = session, shift
                if len(early) < len(rows):
                    break
        line = Line()
        line.extend(np.concatenate(parts), self.columns, np.repeat(strands, [len(part) for part in parts]))
        return LinePrefix(line, len(line.rows))
