"""The rows of an SQL database: what is read and written by the same statements whatever its kind."""

from abc import abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, ClassVar, TypeVar

from shared_core.queries import After
from shared_core.records import (
    ALL,
    Derived,
    MainChanges,
    Mark,
    Position,
    Ref,
    SessionInfo,
    SessionKey,
    SessionState,
    Snapshot,
    Stretch,
    Summary,
    VectorRow,
    title_of,
)
from shared_core.stores import statements as sql
from shared_core.stores.answers import ANSWERS, Answer, Answering, Ranges, after, check_names, read_key, unexplained
from shared_core.stores.gaps import NUMBERS, Range, by_segment, runs
from shared_core.stores.row_values import DamagedRow, checksum_of, position_values, shown_record, span_of
from shared_core.stores.rows import RowQuery, Rows
from shared_core.stores.statements import Many, Statement
from shared_core.stores.tree_store import TreeStore

_PART = 16 * 2**20
"""Bytes of a snapshot in one row; no database takes a value of any size, and each copies it whole."""

_BETWEEN = "renamed"
"""Begins the names of sessions that swap their names, in between."""

_TITLES = (
    "SELECT {columns} FROM {each bigint sessions session} CROSS JOIN {s}.messages AS m {texts} "
    "WHERE m.session = w.session AND m.seq = (SELECT n.seq FROM {s}.messages AS n {by messages_seq} "
    "WHERE n.session = w.session AND n.role = 'user' ORDER BY n.seq LIMIT 1)"
)


class SqlRows(Rows):
    """Rows that SQL statements read and write, in which `statements` says what each mark stands for."""

    ANSWERS: ClassVar[Mapping[type, Answer]] = ANSWERS

    @abstractmethod
    def run(self, statement: str, session: int | None, values: Mapping[str, Any] | None = None) -> sql.Rows:
        """Return the rows of a statement; none if it returns none."""

    @abstractmethod
    def count_rows(self, statement: str, session: int | None, values: Mapping[str, Any] | None = None) -> int:
        """Return how many rows a statement changed."""

    @abstractmethod
    def together(self, statements: Sequence[Statement]) -> list[sql.Rows]:
        """Return the rows of several statements that see the same moment."""

    @abstractmethod
    def main_changes(self, user_id: str | None, since: Mark | None = None) -> MainChanges:
        """Return what `Store.main_changes` returns."""

    def ask(self, session: int, query: RowQuery) -> Any:
        return self.answered(self.answering(session, query))

    def answering(self, session: int, query: RowQuery, branch: str | None = None) -> Answering:
        """Return what answers a query; `branch`: the one whose state is asked for along with it."""
        if isinstance(query, After):
            return after(session, query, branch)
        return self.ANSWERS[type(query)](session, query)

    def answered(self, answering: Answering) -> Any:
        """Run the statements that an answer takes, and return it."""
        try:
            asked = next(answering)
            while True:
                asked = answering.send(self.together(asked))
        except StopIteration as end:
            return end.value

    # Sessions

    def session(self, user_id: str | None, session_id: str) -> int | None:
        # Not IS NOT DISTINCT FROM, for which PostgreSQL uses no index.
        whose = "user_id IS NULL" if user_id is None else "user_id = %(user)s"
        values = {"user": user_id, "name": session_id}
        return next((row[0] for row in self.run(f"{sql.SESSION}{whose}", None, values)), None)

    def sessions(self, user_ids: Collection[str | None] | None, after: int = 0, limit: int = ALL) -> list[SessionKey]:
        values = {"after": after, "limit": max(limit, 0)}
        wanted = f"{sql.SESSIONS}n.session > %(after)s AND "
        return list(map(read_key, self.of_users(wanted, values, user_ids, "n.session LIMIT %(limit)s")))

    def of_users(
        self, wanted: str, values: Mapping[str, Any], user_ids: Collection[str | None] | None, order: str = "n.session"
    ) -> sql.Rows:
        """Return the rows of a query on sessions, which ends with AND, that belong to some users; None: everybody's."""
        users = [one for one in user_ids or () if one is not None]
        return self.run(f"{wanted}{whose_of(user_ids)} ORDER BY {order}", None, {**values, "users": users})

    def main_states(self, user_id: str | None) -> list[tuple[SessionKey, SessionState]]:
        """Return the sessions of a user that hold messages on `main`, each with its state there, oldest first."""
        return list(map(read_key_and_state, self.of_users(sql.MAIN_STATES, sql.MAIN_VALUES, [user_id])))

    def overview(self, user_ids: Collection[str | None], limit: int) -> list[SessionInfo]:
        """Return what `Store.overview` does. A damaged message hides no session: a warning names it.

        Raises:
            StoreError: a session has no valid time at all.
        """
        found = self.of_users(sql.OVERVIEW, {}, user_ids or None)
        infos = [(_info(row), row[0]) for row in found if row[3]]
        page = sorted(infos, key=lambda one: (one[0].last, one[1]), reverse=True)[: max(limit, 0)]
        asked = self.run(_TITLES, None, {"sessions": [key for _, key in page]}) if page else []
        shown = {row[0]: record for row in asked if (record := shown_record(row))}
        titles = {key: title_of(record.message.content) for key, record in shown.items()}
        return [replace(info, title=info.title or titles.get(key)) for info, key in page]

    def insert_session(self, user_id: str | None, session_id: str) -> int | None:
        values = {"user": user_id, "name": session_id}
        return next((row[0] for row in self.run(sql.INSERT_SESSION, None, values)), None)

    def rename_sessions(self, names: Mapping[int, str]) -> None:
        for session in names if len(names) > 1 else ():
            self.run(sql.RENAME_SESSION, session, {"name": f"{_BETWEEN} {session}"})
        for session, name in names.items():
            self.run(sql.RENAME_SESSION, session, {"name": name})

    # The tree

    def put_branch(self, session: int, name: str, head: Position, *, attached: bool = False) -> None:
        row = branch_row(session, name, head.segment, None if attached else head.depth)
        values = dict(zip(("name", "segment", "depth", "checksum"), row[1:], strict=True))
        self.run(sql.PUT_BRANCH, session, values)

    def detach_branches(self, session: int, segments: Collection[int]) -> None:
        for name, segment, depth in self.run(sql.ATTACHED, session, {"segments": list(segments)}):
            self.put_branch(session, name, Position(segment, depth))

    def rename_branch(self, session: int, name: str, to: str) -> None:
        names = {"name": name, "to": to}
        for row in self.run(sql.BRANCH_OF, session, names):
            self.run(sql.RENAME_BRANCH, session, {**names, "checksum": checksum_of((session, to, *row))})
        for kind, *own, ref in self.run(sql.REFS_OF, session, names):
            checksum = checksum_of((session, kind, to, *own))
            self.run(sql.RENAME_REF, session, {"to": to, "ref": ref, "checksum": checksum})

    def drop_branch(self, session: int, name: str) -> None:
        self.run(sql.DROP_BRANCH, session, {"name": name})

    def insert_ref(self, session: int, ref: Ref) -> None:
        positions = (*position_values(ref.position), *position_values(ref.base))
        row = (session, ref.kind, ref.name, *positions, ref.note)
        names = ("kind", "name", "segment", "depth", "base_segment", "base_depth", "note")
        created_at = ref.created_at if ref.created_at else f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S}"
        values = {**dict(zip(names, row[1:], strict=True)), "created_at": created_at, "checksum": checksum_of(row)}
        self.run(sql.INSERT_REF, session, values)

    def drop_ref(self, session: int, number: int) -> bool:
        return bool(self.count_rows(sql.DROP_REF, session, {"ref": number}))

    # Messages that are missing on purpose

    def note_empty(self, session: int, stretches: Sequence[Stretch], numbers: Sequence[Range]) -> None:
        ranges: dict[int, list[Range]] = {NUMBERS: [*numbers]}
        for segment, start, upto in sorted(stretches):
            ranges.setdefault(segment, []).append((start, upto))
        self._note_gaps(session, ranges)

    def note_erased(self, session: int, erased: Sequence[tuple[int, int, int]]) -> None:
        """Note the segments, depths and numbers of messages that were erased."""
        depths = by_segment(Position(*row[:2]) for row in erased)
        ranges = {segment: runs(own) for segment, own in depths.items()}
        self._note_gaps(session, {**ranges, NUMBERS: runs(row[2] for row in erased)})

    def _note_gaps(self, session: int, ranges: Ranges) -> None:
        left = self.answered(unexplained(session, ranges))
        rows = [(segment, *one) for segment, own in left.items() for one in own]
        if rows:
            self.run(sql.NOTE_GAPS, session, {"stretches": Many(rows, 3)})

    def insert_tombstones(self, session: int, ids: Sequence[str]) -> None:
        if ids:
            self.run(sql.INSERT_TOMBSTONES, session, {"ids": list(ids)})

    # What is derived

    def put(self, session: int, derived: Derived) -> None:
        if isinstance(derived, Snapshot):
            self.run(sql.DELETE_SNAPSHOT, session, {"name": derived.name})
            for number, part in enumerate(parts_of(derived.data)):
                self.run(sql.INSERT_PART, session, {"name": derived.name, "part": number, "data": part})
        elif isinstance(derived, Summary):
            self.insert_summary(session, derived)
        else:
            self.put_vectors(session, derived.space, list(derived.rows))

    @abstractmethod
    def insert_summary(self, session: int, summary: Summary) -> None:
        """Insert a summary."""

    @abstractmethod
    def put_vectors(self, session: int, space: str, vectors: Sequence[VectorRow]) -> None:
        """Insert or replace vectors."""


def whose_of(user_ids: Collection[str | None] | None) -> str:
    """Return the condition on `names AS n` that a session belongs to one of some users; None: everybody's."""
    if user_ids is None:
        return "1 = 1"
    named = ["n.user_id {in text users}"] if any(one is not None for one in user_ids) else []
    nobody = ["n.user_id IS NULL"] if None in user_ids else []
    return f"({' OR '.join([*named, *nobody]) or '1 = 0'})"


def parts_of(snapshot: bytes) -> list[bytes]:
    """Return a snapshot in parts: at least one, so that an empty one is not taken for none."""
    return [snapshot[start : start + _PART] for start in range(0, len(snapshot) + 1, _PART)]


def branch_row(session: int, name: str, segment: int, depth: int | None) -> tuple[Any, ...]:
    """Return the session, name, segment, depth and checksum of a branch, as they are stored."""
    row = (session, name, segment, depth)
    return (*row, checksum_of(row))


def read_key_and_state(row: tuple[Any, ...]) -> tuple[SessionKey, SessionState]:
    """Return a session and its state on a branch from a row: key, user, name, last number, epoch, version, head."""
    head = None if row[6] is None else Position(*row[6:])
    return read_key(row[:3]), SessionState(head, *row[3:6])


def _info(row: tuple[Any, ...]) -> SessionInfo:
    _, user_id, session_id, messages, branches, first, last, title = row
    check_names(user_id, session_id, title)
    try:
        times = span_of(first, last)
    except ValueError as error:
        raise DamagedRow(f"a time of session {session_id!r}", str(error)) from error
    return SessionInfo(session_id, user_id, messages, branches, *times, title)


Result = TypeVar("Result")


class SqlStore(TreeStore):
    """A store over `SqlRows`."""

    @abstractmethod
    def _read(self, ask: Callable[[SqlRows], Result]) -> Result:
        """Do what `TreeStore._read` does."""

    @abstractmethod
    def inspecting(self) -> AbstractContextManager[SqlRows]:
        """Enter a block in which all rows may be counted, for as long as it takes, while others write."""

    def sessions_named(self, session_id: str) -> list[SessionKey]:
        wanted = f"{sql.SESSIONS}session_id = %(name)s ORDER BY session"
        return list(map(read_key, self._read(lambda rows: rows.run(wanted, None, {"name": session_id}))))

    def sessions_with(self, user_id: str | None, message: str | int) -> list[SessionKey]:
        column = "fingerprint" if isinstance(message, int) else "id"
        wanted = f"{sql.HOLDING.replace('COLUMN', column)}AND "
        return list(map(read_key, self._read(lambda rows: rows.of_users(wanted, {"wanted": message}, [user_id]))))

    def overview(self, *user_ids: str | None, limit: int = ALL) -> list[SessionInfo]:
        return self._read(lambda rows: rows.overview(user_ids, limit))

    def main_changes(self, user_id: str | None, since: Mark | None = None) -> MainChanges:
        return self._read(lambda rows: rows.main_changes(user_id, since))

    def session_keys(self) -> list[int]:
        return [session for (session,) in self._read(lambda rows: rows.run(sql.SESSION_KEYS, None))]
