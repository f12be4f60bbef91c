"""The PostgreSQL schema, as an append-only list of steps whose position is the version."""

from typing import NamedTuple

from shared_core.stores import tables


class Migration(NamedTuple):
    """One step of the schema; it never changes once it has been released.

    Attributes:
        name: what it brings.
        oldest: the oldest version whose programs may go on with the result, so that workers are replaced one by one.
        statements: `{s}` stands for the schema, `{by_session}` for how a table is split.
    """

    name: str
    oldest: int
    statements: tuple[str, ...]


TABLES = ("sessions", *(table.name for table in tables.TABLES), "vectors", "scrubs")
"""The tables that are split by session: all that a session holds. `names` and the record of migrations are not."""

SCHEMA = "infinite_memory"
"""The schema that the tables are in, unless another is given."""

NAMES = "names"
"""The table of sessions by their names; its rows say whose a session is."""

SCRUBBED = ("messages", "covers", "vectors", "snapshots", "summaries", "branches", "refs")
"""The tables from which a call of `forget` may delete rows."""

RECORD = "infinite_memory"
"""The table that lists the steps taken; its name tells that a schema is ours."""

USER = "infinite_memory.user"
"""The setting that tells, under row security, whose rows a transaction may see: `u` and a user, `n` for nobody's."""

_SET = f"current_setting('{USER}', true)"


def _owned(table: str) -> str:
    """Return the statement for the policy of a table; it holds once row security is on, for a role that owns nothing.

    EXISTS instead of IN: for a session that is given it is one look, however many sessions the user has.
    """
    seen = f"EXISTS (SELECT FROM {{s}}.{NAMES} AS n WHERE n.session = {table}.session)"
    return f"CREATE POLICY of_the_user ON {{s}}.{table} USING ({seen})"


_TEXT = '{} text COLLATE "C"'
_KINDS = {
    "int": "{} integer",
    "big": "{} bigint",
    "text": _TEXT,
    "bytes": "{} bytea",
    "number": "{} bigint",
    "said": f"{_TEXT.format('name')}, {_TEXT.format('content')} NOT NULL, {_TEXT.format('extra')}",
    "summed": f"{_TEXT.format('content')} NOT NULL",
}


def _created(table: tables.Table) -> str:
    """Return the statement that creates a table."""
    columns = ", ".join(["session bigint NOT NULL", *table.defined(_KINDS)])
    return f"CREATE TABLE {{s}}.{table.name} ({columns}, PRIMARY KEY (session, {table.key})) {{by_session}}"


# Texts are compared by their bytes: no two ids are equal in one database and not in another. There are no foreign
# keys: a write holds the lock of its session, and what refers to what is checked there.
MIGRATIONS: list[Migration] = [
    Migration(
        "conversations",
        1,
        (
            # Ids of messages, segments and branches are counted in the row of their session. This counts what has to be
            # unique in the database.
            "CREATE SEQUENCE {s}.numbers AS bigint",
            # Two sessions that swap names need a name in between: see `_BETWEEN` in `tree_tables`.
            """CREATE TABLE {s}.names (
                session bigint NOT NULL PRIMARY KEY,
                user_id text COLLATE "C",
                session_id text COLLATE "C" NOT NULL,
                UNIQUE NULLS NOT DISTINCT (user_id, session_id))""",
            "CREATE INDEX names_session_id ON {s}.names (session_id)",
            # Whoever writes to a session locks its row before anything is read: what the row counts has no gaps.
            # `changed` is the transaction that changed the row last. Transactions end in another order than they begin
            # in: whoever reads on goes back to the oldest that was running at the last look. So no write waits for one
            # of another session.
            """CREATE TABLE {s}.sessions (
                session bigint NOT NULL PRIMARY KEY,
                last_seq bigint NOT NULL,
                epoch bigint NOT NULL,
                version bigint NOT NULL DEFAULT 0,
                owner text COLLATE "C",
                changed bigint NOT NULL DEFAULT pg_current_xact_id()::text::bigint) {by_session}""",
            "CREATE INDEX sessions_changed ON {s}.sessions (owner, changed)",
            *map(_created, tables.TABLES),
            *tables.INDEXES,
            "CREATE INDEX messages_asked ON {s}.messages (session, segment, depth) WHERE role = 'user'",
            """CREATE TABLE {s}.vectors (
                session bigint NOT NULL,
                space bigint NOT NULL,
                segment integer NOT NULL,
                depth integer NOT NULL,
                hash text COLLATE "C" NOT NULL,
                vector bytea NOT NULL,
                checksum bigint,
                PRIMARY KEY (session, space, segment, depth)) {by_session}""",
            "CREATE INDEX vectors_hash ON {s}.vectors (session, space, hash)",
            # Sessions of which something was erased that no VACUUM has been for since, and their epoch then.
            """CREATE TABLE {s}.scrubs (
                session bigint NOT NULL PRIMARY KEY,
                epoch bigint NOT NULL) {by_session}""",
            # Of names the policy itself compares the users; the others look there, and find what this one lets them.
            f"""CREATE POLICY of_the_user ON {{s}}.{NAMES} USING (
                left({_SET}, 1) = 'u' AND user_id = substr({_SET}, 2) COLLATE "C"
                OR {_SET} = 'n' AND user_id IS NULL)""",
            *map(_owned, TABLES),
        ),
    ),
]
"""Only append to this list: the number of a step, from 1, is the version of the schema that it leads to.

A statement that creates one of `TABLES` is followed by those that create its partitions.
"""
