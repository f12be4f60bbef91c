"""The rows and words of one session in memory, derived from its store; they can be rebuilt at any time."""

import weakref
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from shared_core.index.arrays import (
    GrowingArray,
    StoredSnapshot,
    distinct,
    pack,
    read_snapshot,
)
from shared_core.index.lexical import LexicalIndex
from shared_core.index.lines import Line, LinePrefix
from shared_core.index.text import read_terms, speaker_focus, statement_code, terms
from shared_core.languages.detection import digest
from shared_core.languages.language import LANGUAGES
from shared_core.messages import Message
from shared_core.queries import After
from shared_core.records import Position, Record, SessionState, Snapshot, VectorRow, VectorRows
from shared_core.runtime.forks import Depth, fork_safe_lock
from shared_core.session.paths import Path, Span
from shared_core.store import Store

ROLES = ("system", "user", "assistant", "tool")

PAGE = 5_000
"""Rows read from the store at a time."""

CACHED_LINES = 8
"""Lines kept in memory. A memory that switches between more branches than this builds some of them again."""

SNAPSHOT = "rows"
"""The snapshot's name in the store."""

SNAPSHOT_ROWS = 256
"""A snapshot is saved if at least so many messages, or vectors, are new. As many are read in a tenth of a second."""

FOLD = 0.5
"""New words are folded once they are more than this share of all; see `LexicalIndex.fold`. So a session that is read at
once is folded, and one of 100,000 messages eleven times meanwhile, which takes a tenth of the time to read it."""

IDLE_FOLD = 0.02
"""The share from which they are folded when nobody uses the index."""

NAME = "name"
"""A word that a message has by telling the name of its speaker."""

GROUNDING, TURNS = "grounding ", "turn "
"""Begin the names of a snapshot's arrays that hold the words of grounding, and the turns."""

COLUMNS = {
    "segments": np.int32,
    "depths": np.int32,
    "roles": np.int8,
    "speaks": np.bool_,
    "asks": np.bool_,
    "instructs": np.bool_,
    "persons": np.int8,
    "characters": np.int32,
    "statements": np.int64,
    "speakers": np.int32,
    "languages": np.int8,
    "times": np.float64,
    "turns": np.int32,
}

INDEX_BYTES, ROW_BYTES, TERM_BYTES = 10_000, 100, 6
"""About what an index takes in memory: its objects; each row, with a line; and each term of a row, some of them new.

Measured with 1,000 to 200,000 messages of 17 terms: 170 bytes a message."""

Ints = npt.NDArray[np.int32]


class SessionIndex:
    """The columns that recall needs, with a row for every message of a session in the order they were stored.

    `lexical` holds the words of the contents, `grounding` those of the text that is kept apart from them, which only
    `search` looks at.

    `damaged` is set if a snapshot could not be read and was made again from what is stored, or if a stored vector was
    damaged, and `needs_rewrite` until the snapshots are saved again.

    Several memories may use one index at the same time, from several threads. Rows only grow, under the index's lock,
    which is not held while the store is asked: a thread in a transaction of the store may wait for it. What a search
    holds is the beginning of a line, of rows that were there; that of columns and lines never changes, so it is read
    without the lock. Words, names and lines that grow are read with it. What is forgotten leaves every line, and with
    it every result: its row stays, and no snapshot is saved any more, so that its words do not reach the store again.
    A search that has begun keeps its line, and the epoch tells it to begin again.

    Attributes:
        lock: held while words, names and lines are read or grow; reentrant.
        gone: the rows of what was forgotten, ascending.
        vectors: the `SessionVectors` by space, as far as they were asked for.
        turns: the id of each message's turn, as its only term.
        columns: those of `COLUMNS` and "lengths", how many terms a message has: arrays with a value per row.

    Args:
        store: the store that holds the messages; the index does not keep it alive.
        session: the session's key.
    """

    def __init__(self, store: Store, session: int, *, lock_depth: Depth = Depth.SESSION_INDEX) -> None:
        self._store = weakref.ref(store)
        self.session = session
        self.lock = fork_safe_lock(lock_depth)
        self.damaged = False
        self.epoch = -1
        self.last_seq = 0
        self.names: list[str] = []
        self.turns = LexicalIndex()
        self.lexical = LexicalIndex()
        self.grounding = LexicalIndex()
        self._growing: dict[str, GrowingArray[Any]] = {name: GrowingArray(dtype) for name, dtype in COLUMNS.items()}
        self.columns: dict[str, npt.NDArray[Any]] = {}
        self.vectors: dict[str, Any] = {}  # any, as `SessionVectors` builds upon this class
        self._rows_of: dict[int, GrowingArray[np.int32]] = {}
        self._depths_of: dict[int, GrowingArray[np.int32]] = {}
        self._lines: OrderedDict[tuple[Span, ...], Line] = OrderedDict()
        self.gone = np.empty(0, dtype=np.int32)
        self.saved = 0
        self.needs_rewrite = False
        self._show()

    def __len__(self) -> int:
        return len(self.columns["depths"])

    @property
    def store(self) -> Store:
        """The store that holds the messages."""
        store = self._store()
        assert store is not None, "whoever asks holds the store"
        return store

    def anew(self) -> "SessionIndex":
        """Return an empty index of the same."""
        return SessionIndex(self.store, self.session)

    def state(self) -> SessionState:
        """Return the session's state now."""
        return self.store.state(self.session)

    def known_vectors(self, space: str, hashes: Mapping[Position, str]) -> Sequence[VectorRow]:
        """Return the stored vectors of some messages, given with the hashes of their texts, or of equal texts."""
        return self.store.known_vectors(self.session, space, hashes)

    def keep_vectors(self, rows: VectorRows, epoch: int) -> bool:
        """Store vectors, unless something was forgotten since an epoch."""
        return self.store.keep(self.session, rows, epoch)

    def sessions_at(self, rows: npt.NDArray[np.integer[Any]]) -> npt.NDArray[np.int64]:
        """Return the session of each of some rows."""
        return np.full(len(rows), self.session, dtype=np.int64)

    def places(self, rows: npt.NDArray[np.integer[Any]]) -> list[tuple[int, Position]]:
        """Return the sessions and positions of some rows."""
        return [(self.session, position) for position in self.positions(rows)]

    @property
    def nbytes(self) -> int:
        """About how many bytes it takes in memory, with its vectors."""
        vectors: int = sum(one.nbytes for one in self.vectors.values())
        words = self.lexical.size + self.grounding.size
        return INDEX_BYTES + ROW_BYTES * len(self) + TERM_BYTES * words + vectors

    def fold(self, share: float = IDLE_FOLD) -> None:
        """Let new words take less memory, if they are more than a share of all."""
        with self.lock:
            self.lexical.fold(share)
            self.grounding.fold(share)
            self.turns.fold(share)

    def refresh(
        self, state: SessionState, news: Callable[[int, int], Sequence[Record]] = lambda seq, epoch: ()
    ) -> bool:
        """Take out what was forgotten, and read new messages from the store. False: all has to be read anew.

        Args:
            state: the session's.
            news: returns all messages after a number that were read in an epoch, or none if it does not know them all.
        """
        if self.epoch < 0:
            found = read_snapshot(self.store, self.session, SNAPSHOT)
            with self.lock:
                if self.epoch < 0:  # else another thread has begun meanwhile
                    self.epoch = state.epoch
                    self._take_snapshot(found)
        if not self.drop_forgotten(state):
            return False
        while (after := self.last_seq) < state.last_seq:
            records = news(after, self.epoch) or self.store.find(self.session, After(after, PAGE))
            with self.lock:
                if self.last_seq == after:  # else another thread has read them meanwhile
                    self._enter([(one.message, one.position, one.message.turn_id or "") for one in records])
                    # Without records, the newest messages were forgotten.
                    self.last_seq = records[-1].seq if records else state.last_seq
        return True

    def drop_forgotten(self, state: SessionState) -> bool:
        """Take out what was forgotten up to a state of the session. False: all has to be read anew."""
        while (epoch := self.epoch) < state.epoch:  # a smaller one is older than what another thread has seen
            forgotten = self.store.forgotten_since(self.session, epoch)
            if forgotten is None or 2 * len(self.gone) > len(self):
                return False
            with self.lock:
                if self.epoch == epoch:  # else another thread has taken it out meanwhile
                    self._take_out(forgotten.positions)
                    self.epoch = state.epoch
                    self._follow_vectors()
        return True

    def _follow_vectors(self) -> None:
        self.vectors = {space: one for space, one in self.vectors.items() if one.drop_forgotten()}

    def _take_out(self, positions: Sequence[Position]) -> None:
        """Take the rows of some messages, as far as they are here, off every line."""
        rows = self.rows_at(positions)
        self.gone = distinct(np.append(self.gone, rows[rows >= 0]))
        for segment in {position.segment for position in positions} & self._rows_of.keys():
            left, depths = self._rows_of.pop(segment).values, self._depths_of.pop(segment).values
            there = ~np.isin(left, self.gone)
            if there.any():
                self._rows_of[segment] = GrowingArray(np.int32, left[there])
                self._depths_of[segment] = GrowingArray(np.int32, depths[there])
        self._lines.clear()

    def _enter(self, new: Sequence[tuple[Message, Position, str]]) -> None:
        """Add rows: messages with their positions and the ids of their turns."""
        documents, rows, start, apart = [], [], len(self), []
        for message, position, turn_id in new:
            text, said = message.content, message.content.strip()
            document, language = read_terms(text)
            document.update(terms(message.name or "", language))
            if language.tells_name(text):
                document.update(terms(NAME, language))  # which "What's my name?" asks for
            documents.append(document)
            self.turns.add([{turn_id: 1}])
            apart.append(terms(message.grounding.text if message.grounding else "", language))
            rows.append({
                "segments": position.segment,
                "depths": position.depth,
                "roles": ROLES.index(message.role),
                # Results of tools go stale; the replies of their turns say what was made of them.
                "speaks": bool(said) and message.role in ("user", "assistant"),
                "asks": said.endswith(("?", "\uff1f")),
                "instructs": message.role == "user" and language.instructs_for_good(text),
                "persons": speaker_focus(text, language),
                "characters": len(said),
                "statements": statement_code(text),
                "speakers": self._speaker(message.name),
                "languages": LANGUAGES.index(language),
                "times": message.created_at.timestamp() if message.created_at else 0.0,
                "turns": self.turn(turn_id),
            })  # fmt: skip
        for name, column in self._growing.items():
            column.extend([row[name] for row in rows])
        self.lexical.add(documents)
        self.grounding.add(apart)
        self._enter_segments(start)
        self.fold(FOLD)

    def turn(self, turn_id: str) -> int:
        """Return the number of a turn in the column "turns": the row of its first message; -1 if none is here."""
        rows, _ = self.turns.of(turn_id)
        return int(rows[0]) if len(rows) else -1

    def _show(self) -> None:
        self.columns = {name: column.values for name, column in self._growing.items()}
        self.columns["lengths"] = self.lexical.lengths

    def _speaker(self, name: str | None) -> int:
        if not name:
            return -1
        if name not in self.names:
            self.names.append(name)
        return self.names.index(name)

    def _enter_segments(self, start: int) -> None:
        """Enter the rows from `start` on under their segments."""
        self._show()
        segments, depths = self.columns["segments"][start:], self.columns["depths"][start:]
        order = np.argsort(segments, kind="stable").astype(np.int32)
        ends = np.flatnonzero(np.diff(segments[order], append=-1)) + 1
        for new in np.split(order, ends)[:-1]:
            segment = int(segments[new[0]])
            self._rows_of.setdefault(segment, GrowingArray(np.int32)).extend(start + new)
            self._depths_of.setdefault(segment, GrowingArray(np.int32)).extend(depths[new])

    def _between(self, segment: int, start: int, upto: int) -> Ints:
        """Return the rows of a segment between two depths, inclusive."""
        if segment not in self._rows_of:
            return np.empty(0, np.int32)
        depths = self._depths_of[segment].values
        # With keys of another type, NumPy would convert all depths.
        first, end = depths.searchsorted(np.int32(start)), depths.searchsorted(np.int32(upto), side="right")
        return self._rows_of[segment].values[first:end]

    def rows_at(self, positions: Sequence[Position]) -> Ints:
        """Return the row at each position, -1 if there is no message."""
        wanted = np.array(positions, dtype=np.int64).reshape(-1, 2)
        found = np.full(len(wanted), -1, dtype=np.int32)
        for segment in distinct(wanted[:, 0]).tolist():
            with self.lock:
                if segment not in self._rows_of:
                    continue
                depths, rows = self._depths_of[segment].values, self._rows_of[segment].values
            asked = np.flatnonzero(wanted[:, 0] == segment)
            index = np.minimum(depths.searchsorted(wanted[asked, 1].astype(np.int32)), len(depths) - 1)
            found[asked] = np.where(depths[index] == wanted[asked, 1], rows[index], -1)
        return found

    def positions(self, rows: npt.NDArray[np.integer[Any]]) -> list[Position]:
        """Return the positions of some rows."""
        segments, depths = self.columns["segments"][rows], self.columns["depths"][rows]
        return list(map(Position, segments.tolist(), depths.tolist()))

    def line(self, path: Path) -> LinePrefix:
        """Return the rows along a path in order."""
        *before, last = path.spans
        key = (*before, last._replace(upto=-1))
        with self.lock:
            rows = self._between(last.segment, last.start, np.iinfo(np.int32).max)
            line = self._lines.pop(key, None)
            if line is None:
                line = Line()
                parts = [*(self._between(*span.stretch) for span in before), rows]
                line.begun = sum(map(len, parts[:-1]))
                shifts = np.repeat([span.shift for span in path.spans], [len(part) for part in parts])
                line.extend(np.concatenate(parts), self.columns, shifts)
            elif line.known < len(self):
                line.extend(rows[len(line.rows) - line.begun :], self.columns, last.shift)
            # Enter it last: the line that was not used for longest is dropped first.
            self._lines[key] = line
            while len(self._lines) > CACHED_LINES:
                self._lines.popitem(last=False)
            beyond = len(rows) - len(self._between(last.segment, last.start, last.upto))
            return LinePrefix(line, len(line.rows) - beyond)

    @property
    def may_be_saved(self) -> bool:
        """Whether a snapshot would hold nothing that was forgotten. If it would, the next process saves one."""
        return not len(self.gone)

    def snapshot_due(self, least: int = SNAPSHOT_ROWS) -> bool:
        """Return whether to save a snapshot: so many rows are new, and a twentieth, as it is written whole."""
        return len(self) - self.saved >= max(least, len(self) // 20)

    def save_snapshot(self) -> None:
        """Store a snapshot, so that the next process reads it instead of all messages."""
        with self.lock:
            if not self.may_be_saved:
                return  # forgotten since it was due: what is packed now would hold it
            epoch, rows = self.epoch, len(self)
            about = {"names": [*self.names], "last_seq": self.last_seq, "epoch": epoch, "rules": digest()}
            arrays = {**{name: self.columns[name] for name in COLUMNS}, **self.lexical.arrays()}
            arrays |= {**self.grounding.arrays(GROUNDING), **self.turns.arrays(TURNS)}
        # The store refuses it if something was forgotten meanwhile, which the snapshot would still hold.
        if self.store.keep(self.session, Snapshot(SNAPSHOT, pack(about, arrays)), epoch):
            with self.lock:
                self.saved = max(self.saved, rows)

    def _take_snapshot(self, found: StoredSnapshot) -> None:
        self.needs_rewrite |= found.damaged
        self.damaged |= found.damaged
        about, arrays = found.about, found.arrays
        if about is None or about["epoch"] != self.epoch or about.get("rules") != digest():
            return
        self.names = about["names"]
        # Without copying them.
        self._growing = {name: GrowingArray.of(arrays[name]) for name in COLUMNS}
        self.lexical = LexicalIndex.from_arrays(arrays)
        self.grounding = LexicalIndex.from_arrays(arrays, GROUNDING)
        self.turns = LexicalIndex.from_arrays(arrays, TURNS)
        self._enter_segments(0)
        self.last_seq = about["last_seq"]
        self.saved = len(self)
