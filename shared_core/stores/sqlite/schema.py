"""The SQLite schema, as an append-only list of steps, and the transactions in which it and all rows are changed."""

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from shared_core.errors import StoreError

__all__ = ["MIGRATIONS", "Migration", "migrate", "refuse_newer", "savepoint", "transaction", "version_of"]


class Migration(NamedTuple):
    """One step of the schema; it never changes once it has been released."""

    name: str
    statements: tuple[str, ...]


MIGRATIONS: list[Migration] = [
    Migration(
        "conversations",
        (
            # `ident` is the JSON of [user_id, session_id], because UNIQUE would let two NULL users have one session_id.
            """CREATE TABLE sessions (
                session INTEGER PRIMARY KEY AUTOINCREMENT,
                ident TEXT NOT NULL UNIQUE,
                user_id TEXT,
                session_id TEXT NOT NULL,
                least_seq INTEGER NOT NULL DEFAULT 0,
                epoch INTEGER NOT NULL DEFAULT 0,
                created_at TEXT NOT NULL DEFAULT CURRENT_TIMESTAMP)""",
            "CREATE INDEX sessions_user ON sessions (user_id, session)",
            """CREATE TABLE segments (
                session INTEGER NOT NULL REFERENCES sessions ON DELETE CASCADE,
                segment INTEGER NOT NULL,
                parent_segment INTEGER,
                parent_depth INTEGER,
                least_tip INTEGER NOT NULL,
                PRIMARY KEY (session, segment)) WITHOUT ROWID""",
            # Without a depth a branch is at the tip of its segment and goes on with it; one of a segment's at most.
            """CREATE TABLE branches (
                session INTEGER NOT NULL,
                name TEXT NOT NULL,
                segment INTEGER NOT NULL,
                depth INTEGER,
                ordinal INTEGER NOT NULL,
                created_at TEXT NOT NULL DEFAULT CURRENT_TIMESTAMP,
                PRIMARY KEY (session, name),
                FOREIGN KEY (session, segment) REFERENCES segments ON DELETE CASCADE) WITHOUT ROWID""",
            # Rows are only appended and blanked in place, never deleted: deleting a row makes SQLite move its
            # neighbours, and the copies it leaves behind in unused space would outlive their own erasure.
            "CREATE TABLE texts (text INTEGER PRIMARY KEY, name TEXT, content TEXT NOT NULL, extra TEXT)",
            """CREATE TABLE messages (
                session INTEGER NOT NULL,
                segment INTEGER NOT NULL,
                depth INTEGER NOT NULL,
                seq INTEGER NOT NULL,
                id TEXT NOT NULL,
                turn_id TEXT NOT NULL,
                turn_no INTEGER NOT NULL,
                role TEXT NOT NULL,
                created_at TEXT NOT NULL,
                stays INTEGER NOT NULL,
                counter TEXT,
                tokens INTEGER,
                picked_from TEXT,
                text INTEGER NOT NULL REFERENCES texts,
                PRIMARY KEY (session, segment, depth),
                FOREIGN KEY (session, segment) REFERENCES segments ON DELETE CASCADE) WITHOUT ROWID""",
            "CREATE UNIQUE INDEX messages_id ON messages (session, id)",
            "CREATE UNIQUE INDEX messages_seq ON messages (session, seq)",
            "CREATE INDEX messages_turn ON messages (session, turn_id, seq)",
            "CREATE INDEX messages_stays ON messages (session, seq) WHERE stays = 1",
            # What follows from the messages is not written again with each of them: a commit takes as long as it has
            # pages. `least_tip` and `least_seq` are for when the newest has been forgotten.
            """CREATE VIEW tips AS SELECT session, segment, parent_segment, parent_depth, max(least_tip, coalesce(
                (SELECT max(m.depth) FROM messages AS m WHERE m.session = g.session AND m.segment = g.segment),
                least_tip)) AS tip FROM segments AS g""",
            """CREATE VIEW heads AS SELECT session, name, segment, coalesce(depth, tip) AS depth, ordinal, tip,
                depth IS NULL AS goes_on FROM branches JOIN tips USING (session, segment)""",
            """CREATE VIEW states AS SELECT session, epoch, max(least_seq, coalesce(
                (SELECT max(m.seq) FROM messages AS m WHERE m.session = s.session), 0)) AS last_seq
                FROM sessions AS s""",
            # The first parent follows from the position; these are the second and later ones, of a merge.
            """CREATE TABLE parents (
                session INTEGER NOT NULL,
                segment INTEGER NOT NULL,
                depth INTEGER NOT NULL,
                ordinal INTEGER NOT NULL,
                parent_segment INTEGER NOT NULL,
                parent_depth INTEGER NOT NULL,
                PRIMARY KEY (session, segment, depth, ordinal),
                FOREIGN KEY (session, segment, depth) REFERENCES messages ON DELETE CASCADE) WITHOUT ROWID""",
            """CREATE TABLE spaces (
                space INTEGER PRIMARY KEY,
                session INTEGER NOT NULL REFERENCES sessions ON DELETE CASCADE,
                name TEXT NOT NULL,
                written INTEGER NOT NULL,
                UNIQUE (session, name))""",
            # Blanked in place like the texts: a text can be guessed from its vector. `live` is 0 then.
            """CREATE TABLE vectors (
                session INTEGER NOT NULL,
                space INTEGER NOT NULL REFERENCES spaces ON DELETE CASCADE,
                segment INTEGER NOT NULL,
                depth INTEGER NOT NULL,
                hash TEXT NOT NULL,
                vector BLOB NOT NULL,
                live INTEGER NOT NULL DEFAULT 1,
                UNIQUE (session, segment, depth, space),
                FOREIGN KEY (session, segment) REFERENCES segments ON DELETE CASCADE)""",
            "CREATE INDEX vectors_hash ON vectors (space, hash)",
            """CREATE TABLE snapshots (
                session INTEGER NOT NULL REFERENCES sessions ON DELETE CASCADE,
                name TEXT NOT NULL,
                part INTEGER NOT NULL,
                data BLOB NOT NULL,
                PRIMARY KEY (session, name, part))""",
            """CREATE TABLE tombstones (
                session INTEGER NOT NULL REFERENCES sessions ON DELETE CASCADE,
                id TEXT NOT NULL,
                PRIMARY KEY (session, id)) WITHOUT ROWID""",
        ),
    ),
    Migration(
        "merges",
        (
            # A merge is a position of its own, not a message: forgetting a message cannot undo it.
            "ALTER TABLE segments ADD COLUMN merged_segment INTEGER",
            "ALTER TABLE segments ADD COLUMN merged_depth INTEGER",
            "ALTER TABLE segments ADD COLUMN base INTEGER",
            "ALTER TABLE segments ADD COLUMN turn_shift INTEGER NOT NULL DEFAULT 0",
            "DROP TABLE parents",
            "CREATE INDEX messages_picked ON messages (session, picked_from) WHERE picked_from IS NOT NULL",
            # A summary covers whole stretches of a segment: of a long branch a few rows are written, not one a message.
            """CREATE TABLE covers (
                session INTEGER NOT NULL,
                segment INTEGER NOT NULL,
                depth INTEGER NOT NULL,
                ordinal INTEGER NOT NULL,
                source_segment INTEGER NOT NULL,
                start INTEGER NOT NULL,
                upto INTEGER NOT NULL,
                PRIMARY KEY (session, segment, depth, ordinal),
                FOREIGN KEY (session, segment, depth) REFERENCES messages ON DELETE CASCADE) WITHOUT ROWID""",
            "CREATE INDEX covers_source ON covers (session, source_segment, start)",
            """CREATE TABLE refs (
                ref INTEGER PRIMARY KEY AUTOINCREMENT,
                session INTEGER NOT NULL REFERENCES sessions ON DELETE CASCADE,
                kind TEXT NOT NULL,
                name TEXT NOT NULL,
                segment INTEGER,
                depth INTEGER,
                base_segment INTEGER,
                base_depth INTEGER,
                note TEXT NOT NULL,
                created_at TEXT NOT NULL DEFAULT CURRENT_TIMESTAMP)""",
            "CREATE INDEX refs_kind ON refs (session, kind, name, ref)",
        ),
    ),
    Migration(
        "summaries",
        (
            # What a summary covers follows from its positions: all of the path along one of them, up to the other. Its
            # text is among the others, and blanked like them when it goes.
            """CREATE TABLE summaries (
                summary INTEGER PRIMARY KEY AUTOINCREMENT,
                session INTEGER NOT NULL,
                segment INTEGER NOT NULL,
                depth INTEGER NOT NULL,
                along_segment INTEGER NOT NULL,
                along_depth INTEGER NOT NULL,
                last_id TEXT NOT NULL,
                messages INTEGER NOT NULL,
                created_at TEXT NOT NULL,
                counter TEXT,
                tokens INTEGER,
                text INTEGER NOT NULL REFERENCES texts,
                FOREIGN KEY (session, segment) REFERENCES segments ON DELETE CASCADE)""",
            "CREATE INDEX summaries_place ON summaries (session, segment, depth, summary)",
        ),
    ),
]
"""Only append to this list: the number of a step, from 1, is the version of the schema that it leads to."""


def version_of(connection: sqlite3.Connection) -> int:
    """Return the version of the schema, 0 before the first migration; writes nothing."""
    if connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'migrations'").fetchone() is None:
        return 0
    row = connection.execute("SELECT coalesce(max(version), 0) FROM migrations").fetchone()
    return int(row[0])


def migrate(connection: sqlite3.Connection, label: str, steps: Sequence[Migration] | None = None) -> None:
    """Bring the schema to the newest version; each step and its record are one transaction.

    Args:
        connection: in autocommit mode (`isolation_level=None`).
        label: names the database in errors.
        steps: by default `MIGRATIONS`.

    Raises:
        StoreError: the database is newer than this package. Nothing is written.
    """
    steps = MIGRATIONS if steps is None else steps
    while (version := version_of(connection)) != len(steps):
        refuse_newer(version, len(steps), label)
        with transaction(connection, write=True):
            # Another process may have done this step while this one waited for the lock.
            if version_of(connection) == version:
                _apply(connection, version + 1, steps[version])


def refuse_newer(version: int, known: int, label: str) -> None:
    """Raise StoreError if a database has a newer schema than is known."""
    if version > known:
        raise StoreError(
            f"{label} was written by a newer version of this package (schema {version}, known here: {known}); "
            "upgrade infinite-memory to open it"
        )


def _apply(connection: sqlite3.Connection, version: int, step: Migration) -> None:
    if version == 1:
        connection.execute(
            "CREATE TABLE migrations (version INTEGER PRIMARY KEY, name TEXT NOT NULL, "
            "applied_at TEXT NOT NULL DEFAULT CURRENT_TIMESTAMP)"
        )
    for statement in step.statements:
        connection.execute(statement)
    connection.execute("INSERT INTO migrations (version, name) VALUES (?, ?)", (version, step.name))


@contextmanager
def transaction(connection: sqlite3.Connection, *, write: bool) -> Iterator[None]:
    """Enter a transaction; it is committed when the block ends, and rolled back if an exception leaves it.

    Args:
        connection: made with `isolation_level=None`.
        write: take the write lock at once, so that nothing read in the block can change before it is written.
    """
    connection.execute("BEGIN IMMEDIATE" if write else "BEGIN")
    try:
        yield
        connection.execute("COMMIT")
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")


@contextmanager
def savepoint(connection: sqlite3.Connection) -> Iterator[None]:
    """Enter a part of a transaction, which is undone alone if an exception leaves the block."""
    connection.execute("SAVEPOINT part")
    try:
        yield
    except BaseException:
        if connection.in_transaction:  # SQLite may have rolled back all of it, as when the disk is full
            connection.execute("ROLLBACK TO part")
            connection.execute("RELEASE part")
        raise
    connection.execute("RELEASE part")
