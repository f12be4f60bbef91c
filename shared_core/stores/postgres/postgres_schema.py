"""The PostgreSQL schema, as an append-only list of steps whose position is the version."""

from typing import NamedTuple


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


TABLES = (
    "sessions", "segments", "branches", "refs", "messages", "covers", "spaces", "vectors", "snapshots", "summaries",
    "tombstones", "erasures", "gaps", "scrubs",
)  # fmt: skip
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
            """CREATE TABLE {s}.segments (
                session bigint NOT NULL,
                segment integer NOT NULL,
                parent_segment integer,
                parent_depth integer,
                tip integer NOT NULL,
                merged_segment integer,
                merged_depth integer,
                base integer,
                turn_shift integer NOT NULL,
                checksum bigint NOT NULL,
                PRIMARY KEY (session, segment)) {by_session}""",
            # Without a depth a branch is at the tip of its segment and goes on with it.
            """CREATE TABLE {s}.branches (
                session bigint NOT NULL,
                name text COLLATE "C" NOT NULL,
                segment integer NOT NULL,
                depth integer,
                ordinal bigint NOT NULL,
                checksum bigint NOT NULL,
                PRIMARY KEY (session, name)) {by_session}""",
            """CREATE TABLE {s}.refs (
                session bigint NOT NULL,
                ref bigint NOT NULL,
                kind text COLLATE "C" NOT NULL,
                name text COLLATE "C" NOT NULL,
                segment integer,
                depth integer,
                base_segment integer,
                base_depth integer,
                note text COLLATE "C" NOT NULL,
                created_at text COLLATE "C" NOT NULL,
                checksum bigint NOT NULL,
                PRIMARY KEY (session, ref)) {by_session}""",
            "CREATE INDEX refs_kind ON {s}.refs (session, kind, name, ref)",
            # A time is a text in ISO 8601, because a timestamptz forgets the zone. A message whose client sends no ids
            # is found by its fingerprint, a digest of what it says.
            """CREATE TABLE {s}.messages (
                session bigint NOT NULL,
                segment integer NOT NULL,
                depth integer NOT NULL,
                seq bigint NOT NULL,
                id text COLLATE "C" NOT NULL,
                turn_id text COLLATE "C" NOT NULL,
                turn_no integer NOT NULL,
                role text COLLATE "C" NOT NULL,
                created_at text COLLATE "C" NOT NULL,
                stays smallint NOT NULL,
                counter text COLLATE "C",
                tokens integer,
                picked_from text COLLATE "C",
                name text COLLATE "C",
                content text COLLATE "C" NOT NULL,
                extra text COLLATE "C",
                checksum bigint NOT NULL,
                fingerprint bigint,
                PRIMARY KEY (session, segment, depth)) {by_session}""",
            "CREATE UNIQUE INDEX messages_id ON {s}.messages (session, id)",
            "CREATE UNIQUE INDEX messages_seq ON {s}.messages (session, seq)",
            "CREATE INDEX messages_turn ON {s}.messages (session, turn_id, seq)",
            "CREATE INDEX messages_stays ON {s}.messages (session, seq) WHERE stays = 1",
            "CREATE INDEX messages_asked ON {s}.messages (session, segment, depth) WHERE role = 'user'",
            "CREATE INDEX messages_picked ON {s}.messages (session, picked_from) WHERE picked_from IS NOT NULL",
            "CREATE INDEX messages_fingerprint ON {s}.messages (session, fingerprint, seq) "
            "WHERE fingerprint IS NOT NULL",
            """CREATE TABLE {s}.covers (
                session bigint NOT NULL,
                segment integer NOT NULL,
                depth integer NOT NULL,
                ordinal integer NOT NULL,
                source_segment integer NOT NULL,
                start integer NOT NULL,
                upto integer NOT NULL,
                PRIMARY KEY (session, segment, depth, ordinal)) {by_session}""",
            "CREATE INDEX covers_source ON {s}.covers (session, source_segment, start)",
            """CREATE TABLE {s}.spaces (
                session bigint NOT NULL,
                space bigint NOT NULL,
                name text COLLATE "C" NOT NULL,
                written bigint NOT NULL,
                PRIMARY KEY (session, name)) {by_session}""",
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
            """CREATE TABLE {s}.snapshots (
                session bigint NOT NULL,
                name text COLLATE "C" NOT NULL,
                part integer NOT NULL,
                data bytea NOT NULL,
                PRIMARY KEY (session, name, part)) {by_session}""",
            """CREATE TABLE {s}.summaries (
                session bigint NOT NULL,
                summary bigint NOT NULL,
                content text COLLATE "C" NOT NULL,
                segment integer NOT NULL,
                depth integer NOT NULL,
                along_segment integer NOT NULL,
                along_depth integer NOT NULL,
                last_id text COLLATE "C" NOT NULL,
                messages integer NOT NULL,
                created_at text COLLATE "C" NOT NULL,
                counter text COLLATE "C",
                tokens integer,
                checksum bigint NOT NULL,
                PRIMARY KEY (session, segment, depth, summary)) {by_session}""",
            """CREATE TABLE {s}.tombstones (
                session bigint NOT NULL,
                id text COLLATE "C" NOT NULL,
                PRIMARY KEY (session, id)) {by_session}""",
            # Where something was erased, by the epoch that this began; an epoch without a row is not known. No text.
            """CREATE TABLE {s}.erasures (
                session bigint NOT NULL,
                epoch bigint NOT NULL,
                segment integer NOT NULL,
                depth integer NOT NULL,
                stale smallint NOT NULL,
                PRIMARY KEY (session, epoch, segment, depth)) {by_session}""",
            # Stretches of a segment that hold no messages, because these were forgotten or never came with an import;
            # with segment -1, stretches of the numbers of a session. Any other message that is missing is a damage.
            """CREATE TABLE {s}.gaps (
                session bigint NOT NULL,
                segment integer NOT NULL,
                start bigint NOT NULL,
                upto bigint NOT NULL,
                PRIMARY KEY (session, segment, start, upto)) {by_session}""",
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
