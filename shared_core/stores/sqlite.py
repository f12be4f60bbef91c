"""The default store: one SQLite file, or a database in memory."""

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

from shared_core.records import (
    Appended,
    Branch,
    Change,
    Draft,
    Position,
    Record,
    Ref,
    RefKind,
    Restored,
    Segment,
    SessionState,
    Stretch,
    Summary,
)
from shared_core.store import Store
from shared_core.stores.changing import REFS, change, ref_of
from shared_core.stores.connection import Database
from shared_core.stores.erasing import forget
from shared_core.stores.places import create_branch, create_session, segment_at
from shared_core.stores.provenance import covered, covers, made_from
from shared_core.stores.restoring import restore
from shared_core.stores.rows import plain, record_of, text
from shared_core.stores.summing import put_summary, summaries
from shared_core.stores.vectors import all_vectors, put_vectors, spaces, vectors, vectors_of
from shared_core.stores.writes import SELECT, SELECT_AT, append

__all__ = ["SQLiteStore"]

_SYNCHRONOUS = {"full": "FULL", "process": "NORMAL"}
_PART = 16 * 2**20


class SQLiteStore(Store):
    """Keeps sessions in one SQLite file that threads and processes may share.

    Args:
        path: the file; made, readable by its owner only, if it does not exist. `":memory:"`: gone when closed.
        durability: `"full"`: what is acknowledged survives power loss, at one disk flush a call. `"process"`: it
            survives a killed process; power loss may take the last calls, never half of one.

    Raises:
        StoreError: the file is not ours, corrupt or newer than this package; it is left as it was.
        ValueError: an argument is out of range.
    """

    def __init__(self, path: str | Path, *, durability: str = "full") -> None:
        if durability not in _SYNCHRONOUS:
            raise ValueError(f"durability={durability!r}: choose one of {sorted(_SYNCHRONOUS)}")
        self._db = Database(path, synchronous=_SYNCHRONOUS[durability])

    def session(self, user_id: str | None, session_id: str) -> int | None:
        """See `Store`."""
        rows = self._db.query("SELECT session FROM sessions WHERE ident = ?", (_ident(user_id, session_id),))
        return int(rows[0][0]) if rows else None

    def create_session(self, user_id: str | None, session_id: str) -> int:
        """See `Store`."""
        user = None if user_id is None else text(user_id)
        with self._db.writing() as connection:
            return create_session(connection, _ident(user_id, session_id), user, session_id)

    def sessions(self, user_id: str | None) -> Mapping[str, int]:
        """See `Store`."""
        sql = "SELECT session_id, session FROM sessions WHERE user_id IS ? ORDER BY session"
        rows = self._db.query(sql, (None if user_id is None else text(user_id),))
        return {plain(session_id): session for session_id, session in rows}

    def users(self) -> list[str | None]:
        """See `Store`."""
        rows = self._db.query("SELECT user_id FROM sessions GROUP BY user_id ORDER BY min(session)")
        return [None if row[0] is None else plain(row[0]) for row in rows]

    def transaction(self) -> AbstractContextManager[None]:
        """See `Store`."""
        return self._db.joining()

    def state(self, session: int, branch: str | None = None) -> SessionState:
        """See `Store`."""
        rows = self._db.query(
            "SELECT last_seq, epoch, (SELECT segment FROM branches WHERE session = ?1 AND name = ?2), "
            "(SELECT depth FROM heads WHERE session = ?1 AND name = ?2) FROM states WHERE session = ?1",
            (session, None if branch is None else text(branch)),
        )
        if not rows:
            return SessionState(None, 0, 0)
        last_seq, epoch, segment, depth = rows[0]
        return SessionState(None if segment is None else Position(segment, depth), last_seq, epoch)

    def append(
        self, session: int, branch: str, drafts: Sequence[Draft], *, at: Position | None = None,
        turn: str | None = None, changes: Sequence[Change] = (),
    ) -> Appended:  # fmt: skip
        """See `Store`."""
        with self._db.writing() as connection:
            return append(connection, session, branch, drafts, at, turn, changes)

    def restore(self, session: int, restored: Restored) -> None:
        """See `Store`."""
        with self._db.writing() as connection:
            restore(connection, session, restored)

    def segment(self, session: int, segment: int) -> Segment:
        """See `Store`."""
        with self._db.reading() as connection:
            return segment_at(connection, session, segment)

    def branches(self, session: int) -> list[Branch]:
        """See `Store`."""
        sql = "SELECT name, segment, depth FROM heads WHERE session = ? ORDER BY ordinal"
        return [Branch(plain(name), Position(*head)) for name, *head in self._db.query(sql, (session,))]

    def create_branch(self, session: int, name: str, at: Position) -> None:
        """See `Store`."""
        with self._db.writing() as connection:
            create_branch(connection, session, name, at)

    def change(self, session: int, changes: Sequence[Change]) -> None:
        """See `Store`."""
        with self._db.writing() as connection:
            change(connection, session, changes)

    def refs(self, session: int, kind: RefKind, name: str | None = None, limit: int = 1_000_000) -> list[Ref]:
        """See `Store`."""
        wanted = "AND kind = ? " if name is None else "AND kind = ? AND name = ? "
        values = (session, kind, *(() if name is None else (text(name),)), max(limit, 0))
        return [ref_of(row) for row in self._db.query(REFS + wanted + "ORDER BY ref DESC LIMIT ?", values)]

    def get(self, session: int, ids: Sequence[str]) -> list[Record]:
        """See `Store`."""
        with self._db.reading() as connection:
            rows = [connection.execute(SELECT + "AND m.id = ?", (session, text(id_))).fetchone() for id_ in ids]
        return [record_of(row) for row in rows if row is not None]

    def ids_like(self, session: int, prefix: str, limit: int) -> list[str]:
        """See `Store`."""
        low = prefix.encode("utf-8", "surrogatepass")
        # A range instead of LIKE: nothing is a wildcard, and the index is used. No UTF-8 has a byte 0xFF. Ids with
        # lone surrogates are stored as bytes, which compare as larger than every text.
        rows = self._db.query(
            "SELECT id FROM (SELECT id, seq FROM messages "
            "WHERE session = ?1 AND id >= CAST(?2 AS TEXT) AND id < CAST(?3 AS TEXT) UNION ALL "
            "SELECT id, seq FROM messages WHERE session = ?1 AND id >= ?2 AND id < ?3) ORDER BY seq LIMIT ?4",
            (session, low, low + b"\xff", max(limit, 0)),
        )
        return [plain(row[0]) for row in rows]

    def at(self, session: int, positions: Sequence[Position]) -> list[Record]:
        """See `Store`."""
        return [record_of(row) for row in self._db.query(SELECT_AT, (json.dumps(positions), session))]

    def newest(self, session: int, upto: Position, limit: int) -> list[Record]:
        """See `Store`."""
        sql = SELECT + "AND m.segment = ? AND m.depth <= ? ORDER BY m.depth DESC LIMIT ?"
        return [record_of(row) for row in self._db.query(sql, (session, *upto, max(limit, 0)))]

    def after(self, session: int, seq: int, limit: int) -> list[Record]:
        """See `Store`."""
        sql = SELECT + "AND m.seq > ? ORDER BY m.seq LIMIT ?"
        return [record_of(row) for row in self._db.query(sql, (session, seq, max(limit, 0)))]

    def turn(self, session: int, turn_id: str) -> list[Record]:
        """See `Store`."""
        sql = SELECT + "AND m.turn_id = ? ORDER BY m.seq"
        return [record_of(row) for row in self._db.query(sql, (session, text(turn_id)))]

    def made_from(self, session: int, positions: Sequence[Position]) -> list[Record]:
        """See `Store`."""
        with self._db.reading() as connection:
            return made_from(connection, session, positions)

    def covers(self, session: int, segments: Collection[int]) -> list[tuple[Position, Stretch]]:
        """See `Store`."""
        with self._db.reading() as connection:
            return covers(connection, session, segments)

    def covered(self, session: int, position: Position) -> list[Stretch]:
        """See `Store`."""
        with self._db.reading() as connection:
            return covered(connection, session, position)

    def pinned(self, session: int) -> list[Record]:
        """See `Store`."""
        return [record_of(row) for row in self._db.query(SELECT + "AND m.stays = 1 ORDER BY m.seq", (session,))]

    def put_vectors(self, session: int, space: str, rows: Iterable[tuple[Position, str, bytes]]) -> None:
        """See `Store`."""
        put_vectors(self._db, session, space, rows)

    def vectors(self, session: int, space: str, positions: Sequence[Position]) -> dict[Position, tuple[str, bytes]]:
        """See `Store`."""
        return vectors(self._db, session, space, positions)

    def all_vectors(self, session: int, space: str) -> Iterator[tuple[Position, str, bytes]]:
        """See `Store`."""
        return all_vectors(self._db, session, space)

    def vectors_of(self, session: int, space: str, hashes: Collection[str]) -> dict[str, bytes]:
        """See `Store`."""
        return vectors_of(self._db, session, space, hashes)

    def spaces(self, session: int) -> list[str]:
        """See `Store`."""
        return spaces(self._db, session)

    def put_snapshot(self, session: int, name: str, epoch: int, data: bytes) -> bool:
        """See `Store`."""
        view = memoryview(data)
        # At least one part, so that an empty snapshot is not taken for none.
        parts = [(session, text(name), n, view[n * _PART : (n + 1) * _PART]) for n in range(len(data) // _PART + 1)]
        with self._db.writing() as connection:
            row = connection.execute("SELECT epoch FROM sessions WHERE session = ?", (session,)).fetchone()
            if row is None or row[0] != epoch:
                return False
            connection.execute("DELETE FROM snapshots WHERE session = ? AND name = ?", (session, text(name)))
            connection.executemany("INSERT INTO snapshots VALUES (?, ?, ?, ?)", parts)
        return True

    def snapshot(self, session: int, name: str) -> bytes | None:
        """See `Store`."""
        sql = "SELECT data FROM snapshots WHERE session = ? AND name = ? ORDER BY part"
        rows = self._db.query(sql, (session, text(name)))
        return b"".join(row[0] for row in rows) if rows else None

    def put_summary(self, session: int, summary: Summary, epoch: int) -> bool:
        """See `Store`."""
        with self._db.writing() as connection:
            return put_summary(connection, session, summary, epoch)

    def summaries(self, session: int, upto: Position, limit: int) -> list[Summary]:
        """See `Store`."""
        with self._db.reading() as connection:
            return summaries(connection, session, upto, limit)

    def forget(
        self, session: int, positions: Sequence[Position], *, stale: Sequence[Position] = (), branches: bool = False
    ) -> None:
        """See `Store`."""
        with self._db.writing() as connection:
            forget(connection, session, positions, stale, branches=branches)

    def forgotten(self, session: int, after: str | None, limit: int) -> list[str]:
        """See `Store`."""
        more = "" if after is None else "AND id > ?2 "
        sql = f"SELECT id FROM tombstones WHERE session = ?1 {more}ORDER BY id LIMIT ?3"
        rows = self._db.query(sql, (session, None if after is None else text(after), max(limit, 0)))
        return [plain(row[0]) for row in rows]

    def scrub(self) -> str | None:
        """See `Store`."""
        return self._db.checkpoint()

    def stats(self, session: int) -> Mapping[str, int]:
        """See `Store`."""
        names = ("messages", "turns", "branches", "segments", "vectors", "forgotten")
        row = self._db.query(
            "SELECT (SELECT count(*) FROM messages WHERE session = ?1), "
            "(SELECT count(DISTINCT turn_id) FROM messages WHERE session = ?1 AND turn_no >= 0 AND role <> 'system'), "
            "(SELECT count(*) FROM branches WHERE session = ?1), (SELECT count(*) FROM segments WHERE session = ?1), "
            "(SELECT count(*) FROM vectors WHERE session = ?1 AND live = 1), "
            "(SELECT count(*) FROM tombstones WHERE session = ?1)",
            (session,),
        )[0]
        return dict(zip(names, row, strict=True)) | {"bytes": self._db.size()}

    def close(self) -> None:
        """See `Store`."""
        self._db.close()


def _ident(user_id: str | None, session_id: str) -> str | bytes:
    """Return a text that no other (user_id, session_id) has."""
    return text(json.dumps([user_id, session_id], ensure_ascii=False))
