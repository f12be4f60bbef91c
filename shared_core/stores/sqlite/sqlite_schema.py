"""The SQLite schema, as an append-only list of steps whose position is the version."""

from typing import NamedTuple

from shared_core.stores.tables import INDEXES, TABLES, Table


class Migration(NamedTuple):
    """One step of the schema; it never changes once it has been released."""

    name: str
    statements: tuple[str, ...]


_KINDS = {
    "int": "{} INTEGER",
    "big": "{} INTEGER",
    "text": "{} TEXT",
    "bytes": "{} BLOB",
    "number": "{} INTEGER PRIMARY KEY AUTOINCREMENT",
    "said": "{} INTEGER NOT NULL REFERENCES texts",
    "summed": "{} INTEGER NOT NULL REFERENCES texts",
}
_OWNED = {"sessions": "session", "segments": "session, segment", "messages": "session, segment, depth"}
"""The columns that refer to each table."""


def _created(table: Table) -> str:
    """Return the statement that creates a table, clustered by its key if its rows are short and not numbered."""
    columns = table.defined(_KINDS)
    numbered = any("AUTOINCREMENT" in column for column in columns)
    clustered = not numbered and not any("BLOB" in column for column in columns)
    keys = [] if table.key == "ref" else [f"{'UNIQUE' if numbered else 'PRIMARY KEY'} (session, {table.key})"]
    keys += [f"FOREIGN KEY ({_OWNED[table.owner]}) REFERENCES {table.owner} ON DELETE CASCADE"]
    inner = ", ".join(["session INTEGER NOT NULL", *columns, *keys])
    return f"CREATE TABLE {table.name} ({inner}){' WITHOUT ROWID' if clustered else ''}"


MIGRATIONS: list[Migration] = [
    Migration(
        "conversations",
        (
            "CREATE TABLE migrations (version INTEGER PRIMARY KEY, name TEXT NOT NULL, "
            "applied_at TEXT NOT NULL DEFAULT CURRENT_TIMESTAMP)",
            # What follows from the messages is not written again with each of them: a commit takes as long as it has
            # pages. `least_seq`, and the `tip` of a segment, are for when the newest has been forgotten. `changes` is
            # how often something else changed than that messages were added; `changed` is when the row last changed,
            # as a number that grows from commit to commit.
            "CREATE TABLE sessions (session INTEGER PRIMARY KEY AUTOINCREMENT, user_id TEXT, session_id TEXT NOT NULL, "
            "least_seq INTEGER NOT NULL DEFAULT 0, epoch INTEGER NOT NULL DEFAULT 0, "
            "changes INTEGER NOT NULL DEFAULT 0, changed INTEGER NOT NULL DEFAULT 0)",
            "CREATE UNIQUE INDEX sessions_name ON sessions (session_id, user_id)",
            # The other would let nobody have two sessions of one name: a NULL equals no other.
            "CREATE UNIQUE INDEX sessions_nobody ON sessions (session_id) WHERE user_id IS NULL",
            "CREATE INDEX sessions_user ON sessions (user_id, session)",
            "CREATE INDEX sessions_changed ON sessions (changed)",
            "CREATE TRIGGER sessions_news AFTER UPDATE OF user_id, session_id, least_seq, epoch, changes "
            "ON sessions BEGIN "
            "UPDATE sessions SET changed = (SELECT max(changed) + 1 FROM sessions) WHERE session = new.session; END",
            # What messages and summaries say. Rows are only appended and blanked in place, never deleted: deleting a
            # row makes SQLite move its neighbours, and the copies it leaves behind in unused space would outlive their
            # own erasure.
            "CREATE TABLE texts (text INTEGER PRIMARY KEY, name TEXT, content TEXT NOT NULL, extra TEXT)",
            *map(_created, TABLES),
            *(index.replace("{s}.", "") for index in INDEXES),
            "CREATE UNIQUE INDEX branches_ordinal ON branches (session, ordinal)",
            # The keys of texts grow from commit to commit, so a message is new if its text is.
            "CREATE INDEX messages_text ON messages (text)",
            # Blanked in place like the texts: a text can be guessed from its vector. `live` is 0 then.
            "CREATE TABLE vectors (session INTEGER NOT NULL, space INTEGER NOT NULL REFERENCES spaces "
            "ON DELETE CASCADE, segment INTEGER NOT NULL, depth INTEGER NOT NULL, hash TEXT NOT NULL, "
            "vector BLOB NOT NULL, live INTEGER NOT NULL DEFAULT 1, checksum INTEGER, "
            "UNIQUE (session, segment, depth, space), "
            "FOREIGN KEY (session, segment) REFERENCES segments ON DELETE CASCADE)",
            "CREATE INDEX vectors_hash ON vectors (space, hash)",
        ),
    ),
]
"""Only append to this list: the number of a step, from 1, is the version of the schema that it leads to."""
