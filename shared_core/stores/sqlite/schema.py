"""The SQLite schema, as an append-only list of steps whose position is the version."""

import sqlite3
from collections.abc import Callable
from typing import NamedTuple

from shared_core.stores.sqlite.damage import note_gaps, seal_messages, seal_tree


class Migration(NamedTuple):
    """One step of the schema; it never changes once it has been released."""

    name: str
    statements: tuple[str | Callable[[sqlite3.Connection], None], ...]


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
    Migration(
        "system prompts",
        (
            # Of the system messages, only those with the newest turn are sent now. Those directly one after another
            # were stored in one call, as far as can be known: they are one prompt, with the turn of its first message.
            """UPDATE messages SET turn_id = (
                SELECT f.id FROM messages AS f
                WHERE f.session = messages.session AND f.segment = messages.segment AND f.depth <= messages.depth
                AND f.stays = 1 AND f.role = 'system' AND NOT EXISTS (
                    SELECT 1 FROM messages AS p WHERE p.session = f.session AND p.segment = f.segment
                    AND p.depth = f.depth - 1 AND p.role = 'system')
                ORDER BY f.depth DESC LIMIT 1) WHERE stays = 1 AND role = 'system'""",
        ),
    ),
    Migration(
        "checksums",
        (
            "ALTER TABLE messages ADD COLUMN checksum INTEGER",
            seal_messages,
            # A program that had the file open before this step goes on with its own statements.
            """CREATE TRIGGER messages_sealed BEFORE INSERT ON messages WHEN new.checksum IS NULL BEGIN
                SELECT RAISE(ABORT, 'a newer version of infinite-memory changed the database; restart this program');
                END""",
            # Stretches of a segment that hold no messages, because these were forgotten or never came with an import;
            # with segment -1, stretches of the numbers of a session. Any other message that is missing is a damage.
            """CREATE TABLE gaps (
                session INTEGER NOT NULL REFERENCES sessions ON DELETE CASCADE,
                segment INTEGER NOT NULL,
                start INTEGER NOT NULL,
                upto INTEGER NOT NULL,
                PRIMARY KEY (session, segment, start, upto)) WITHOUT ROWID""",
            note_gaps,
            "ALTER TABLE vectors ADD COLUMN checksum INTEGER",
            "ALTER TABLE summaries ADD COLUMN checksum INTEGER",
            "ALTER TABLE segments ADD COLUMN checksum INTEGER",
            "ALTER TABLE branches ADD COLUMN checksum INTEGER",
            "ALTER TABLE refs ADD COLUMN checksum INTEGER",
            seal_tree,
        ),
    ),
    Migration(
        "erasures",
        (
            # Where something was erased, by the epoch that this began; an epoch without a row is not known. No text.
            """CREATE TABLE erasures (
                session INTEGER NOT NULL REFERENCES sessions ON DELETE CASCADE,
                epoch INTEGER NOT NULL,
                segment INTEGER NOT NULL,
                depth INTEGER NOT NULL,
                stale INTEGER NOT NULL,
                PRIMARY KEY (session, epoch, segment, depth)) WITHOUT ROWID""",
        ),
    ),
    Migration(
        "changes",
        (
            # How often something else of a session changed than that messages were added.
            "ALTER TABLE sessions ADD COLUMN changes INTEGER NOT NULL DEFAULT 0",
            "DROP VIEW states",
            """CREATE VIEW states AS SELECT session, epoch, changes, max(least_seq, coalesce(
                (SELECT max(m.seq) FROM messages AS m WHERE m.session = s.session), 0)) AS last_seq
                FROM sessions AS s""",
        ),
    ),
    Migration(
        "news",
        (
            # What changed since a moment, without a look at each session. The keys of texts grow from commit to commit,
            # so a message is new if its text is; this also sees what a program adds that knows nothing of this step.
            "CREATE INDEX messages_text ON messages (text)",
            # When the row of a session last changed, as a number that grows from commit to commit. Stages have none, as
            # they are deleted: the largest number must never fall back.
            "ALTER TABLE sessions ADD COLUMN changed INTEGER NOT NULL DEFAULT 0",
            "CREATE INDEX sessions_changed ON sessions (changed)",
            """CREATE TRIGGER sessions_news AFTER UPDATE OF ident, user_id, session_id, least_seq, epoch, changes
                ON sessions WHEN new.ident >= '[' BEGIN
                UPDATE sessions SET changed = (SELECT max(changed) + 1 FROM sessions) WHERE session = new.session;
                END""",
        ),
    ),
    Migration(
        "fingerprints",
        (
            # By what a message is found whose client sends no ids: a digest of what it says, which goes with its row.
            "ALTER TABLE messages ADD COLUMN fingerprint INTEGER",
            "CREATE INDEX messages_fingerprint ON messages (session, fingerprint, seq) WHERE fingerprint IS NOT NULL",
        ),
    ),
]
"""Only append to this list: the number of a step, from 1, is the version of the schema that it leads to."""
