"""The SQLite schema, as an append-only list of steps whose position is the version."""

from typing import NamedTuple


class Migration(NamedTuple):
    """One step of the schema; it never changes once it has been released."""

    name: str
    statements: tuple[str, ...]


MIGRATIONS: list[Migration] = [
    Migration(
        "conversations",
        (
            # `changes` is how often something else changed than that messages were added; `changed` is when the row
            # last changed, as a number that grows from commit to commit.
            """CREATE TABLE sessions (
                session INTEGER PRIMARY KEY AUTOINCREMENT,
                user_id TEXT,
                session_id TEXT NOT NULL,
                least_seq INTEGER NOT NULL DEFAULT 0,
                epoch INTEGER NOT NULL DEFAULT 0,
                changes INTEGER NOT NULL DEFAULT 0,
                changed INTEGER NOT NULL DEFAULT 0)""",
            "CREATE UNIQUE INDEX sessions_name ON sessions (session_id, user_id)",
            # The other would let nobody have two sessions of one name: a NULL equals no other.
            "CREATE UNIQUE INDEX sessions_nobody ON sessions (session_id) WHERE user_id IS NULL",
            "CREATE INDEX sessions_user ON sessions (user_id, session)",
            "CREATE INDEX sessions_changed ON sessions (changed)",
            """CREATE TRIGGER sessions_news AFTER UPDATE OF user_id, session_id, least_seq, epoch, changes
                ON sessions BEGIN
                UPDATE sessions SET changed = (SELECT max(changed) + 1 FROM sessions) WHERE session = new.session;
                END""",
            # What follows from the messages is not written again with each of them: a commit takes as long as it has
            # pages. `least_tip` and `least_seq` are for when the newest has been forgotten.
            # A merge is a position of its own, not a message: forgetting a message cannot undo it.
            """CREATE TABLE segments (
                session INTEGER NOT NULL REFERENCES sessions ON DELETE CASCADE,
                segment INTEGER NOT NULL,
                parent_segment INTEGER,
                parent_depth INTEGER,
                least_tip INTEGER NOT NULL,
                merged_segment INTEGER,
                merged_depth INTEGER,
                base INTEGER,
                turn_shift INTEGER NOT NULL DEFAULT 0,
                checksum INTEGER,
                PRIMARY KEY (session, segment)) WITHOUT ROWID""",
            # Without a depth a branch is at the tip of its segment and goes on with it; one of a segment's at most.
            """CREATE TABLE branches (
                session INTEGER NOT NULL,
                name TEXT NOT NULL,
                segment INTEGER NOT NULL,
                depth INTEGER,
                ordinal INTEGER NOT NULL,
                checksum INTEGER,
                PRIMARY KEY (session, name),
                FOREIGN KEY (session, segment) REFERENCES segments ON DELETE CASCADE) WITHOUT ROWID""",
            "CREATE UNIQUE INDEX branches_ordinal ON branches (session, ordinal)",
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
                created_at TEXT NOT NULL,
                checksum INTEGER)""",
            "CREATE INDEX refs_kind ON refs (session, kind, name, ref)",
            # Rows are only appended and blanked in place, never deleted: deleting a row makes SQLite move its
            # neighbours, and the copies it leaves behind in unused space would outlive their own erasure.
            "CREATE TABLE texts (text INTEGER PRIMARY KEY, name TEXT, content TEXT NOT NULL, extra TEXT)",
            # By its fingerprint a message is found whose client sends no ids: a digest of what it says.
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
                checksum INTEGER NOT NULL,
                fingerprint INTEGER,
                PRIMARY KEY (session, segment, depth),
                FOREIGN KEY (session, segment) REFERENCES segments ON DELETE CASCADE) WITHOUT ROWID""",
            "CREATE UNIQUE INDEX messages_id ON messages (session, id)",
            "CREATE UNIQUE INDEX messages_seq ON messages (session, seq)",
            "CREATE INDEX messages_turn ON messages (session, turn_id, seq)",
            "CREATE INDEX messages_stays ON messages (session, seq) WHERE stays = 1",
            "CREATE INDEX messages_picked ON messages (session, picked_from) WHERE picked_from IS NOT NULL",
            # The keys of texts grow from commit to commit, so a message is new if its text is.
            "CREATE INDEX messages_text ON messages (text)",
            "CREATE INDEX messages_fingerprint ON messages (session, fingerprint, seq) WHERE fingerprint IS NOT NULL",
            # Stretches of a segment that hold no messages, because these were forgotten or never came with an import;
            # with segment -1, stretches of the numbers of a session. Any other message that is missing is a damage.
            """CREATE TABLE gaps (
                session INTEGER NOT NULL REFERENCES sessions ON DELETE CASCADE,
                segment INTEGER NOT NULL,
                start INTEGER NOT NULL,
                upto INTEGER NOT NULL,
                PRIMARY KEY (session, segment, start, upto)) WITHOUT ROWID""",
            # A squash covers whole stretches of a segment: of a long branch a few rows are written, not one a message.
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
                checksum INTEGER,
                FOREIGN KEY (session, segment) REFERENCES segments ON DELETE CASCADE)""",
            "CREATE INDEX summaries_place ON summaries (session, segment, depth, summary)",
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
                checksum INTEGER,
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
]
"""Only append to this list: the number of a step, from 1, is the version of the schema that it leads to."""
