"""The statements that every SQL database runs alike, in which marks in braces stand for what differs.

| mark | stands for |
|---|---|
| `%(name)s` | a value |
| `{s}.` | the schema |
| `{names}` | the table that lists the sessions |
| `{next}` | the next free number of the database |
| `{ordinal}` | the next free rank of a session's branches |
| `{in type name}` | a condition: in the list of values of this name |
| `{each type name column}` | the table `w` of a list of values, with this column |
| `{rows name columns …}` | the table `w` of a value `Many`, with these columns, and `n` for their order |
| `{by index}`, `{unindexed}` | the only index to use, or none, where a database has to be told |
| `{columns}`, `{texts}` | the columns of a message `m`, and the join that brings its texts |
| `{content}` | the column of a summary's text, which the same join brings |
| `{live v}` | the condition that vector `v` has not been erased |
| `{tip g}` | the depth at which segment `g` ends |
| `{last s}`, `{version s}` | the number of the newest message of session `s`, and its version |
| `{whole s}` | whether the newest message of session `s` is there |
"""

import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

from shared_core.records import MAIN, ROOT, Position

Rows = list[tuple[Any, ...]]


class Statement(NamedTuple):
    """A statement, the session that it is about, and its other values."""

    sql: str
    session: int | None
    values: Mapping[str, Any]


class Many(NamedTuple):
    """A value that is a table of numbers: its rows, and how many columns they have."""

    rows: Sequence[tuple[int, ...]]
    width: int


Marks = Mapping[str, Callable[..., str]]
"""What each mark stands for in one kind of database; called with the words after the mark."""

_MARK = re.compile(r"\{(\w+)((?: \w+)*)\}")


def expanded(sql: str, marks: Marks) -> str:
    """Return a statement in which marks are replaced, also those in what stands for others."""
    while (
        new := _MARK.sub(lambda found: marks[found[1]](*found[2].split()) if found[1] in marks else found[0], sql)
    ) != sql:
        sql = new
    return sql


def positions_of(positions: Sequence[Position]) -> dict[str, Any]:
    """Return the value of the statements that ask for several positions."""
    return {"positions": Many(positions, 2)}


MESSAGE = (
    "session", "segment", "depth", "seq", "id", "turn_id", "turn_no", "role", "created_at", "stays", "counter",
    "tokens", "picked_from", "name", "content", "extra", "checksum",
)  # fmt: skip
"""The columns of a message, but for its fingerprint."""


@cache
def columns_of_messages(texts: str) -> str:
    """Return the columns that `read_record` reads; those of the texts come from the table of this alias."""
    aliases = {"name": texts, "content": texts, "extra": texts}
    return ", ".join((*(f"{aliases.get(name, 'm')}.{name}" for name in MESSAGE), "m.fingerprint IS NULL"))


# Sessions

SESSION = "SELECT session FROM {names} WHERE session_id = %(name)s AND "
SESSIONS = "SELECT session, user_id, session_id FROM {names} AS n WHERE "
SESSION_KEYS = "SELECT session FROM {s}.segments UNION SELECT session FROM {s}.messages ORDER BY session"
# Sessions are looked into one by one (LIMIT 1), each in its own partition: a join may search all of every partition.
HOLDING = (
    f"{SESSIONS}(SELECT 1 FROM {{s}}.messages AS m {{by messages_COLUMN}} WHERE m.session = n.session "
    "AND m.COLUMN = %(wanted)s LIMIT 1) IS NOT NULL "
)
INSERT_SESSION = (
    "INSERT INTO {names} (session, user_id, session_id) VALUES ({next}, %(user)s, %(name)s) "
    "ON CONFLICT DO NOTHING RETURNING session"
)
RENAME_SESSION = "UPDATE {names} SET session_id = %(name)s WHERE session = %(session)s"

# Each table is given the session itself: through a join, all partitions would be looked into.
_BRANCH = (
    "LEFT JOIN {s}.branches AS b ON b.session = %(session)s AND b.name = %(branch)s "
    "LEFT JOIN {s}.segments AS g ON g.session = %(session)s AND g.segment = b.segment"
)
STATE = (
    "SELECT {last s}, s.epoch, {version s}, b.segment, b.depth, b.checksum, {tip g}, {whole s} "
    f"FROM {{s}}.sessions AS s {_BRANCH} WHERE s.session = %(session)s"
)
END = (
    "SELECT {last s}, b.segment, b.depth, b.checksum, {tip g}, "
    "EXISTS (SELECT 1 FROM {s}.tombstones WHERE session = %(session)s) "
    f"FROM {{s}}.sessions AS s {_BRANCH} WHERE s.session = %(session)s AND b.name IS NOT NULL"
)
MAIN_STATES = (
    "SELECT n.session, n.user_id, n.session_id, {last s}, s.epoch, {version s}, b.segment, coalesce(b.depth, {tip g}) "
    "FROM {names} AS n CROSS JOIN {s}.sessions AS s CROSS JOIN {s}.branches AS b CROSS JOIN {s}.segments AS g "
    "WHERE s.session = n.session AND b.session = n.session AND b.name = %(main)s "
    "AND g.session = n.session AND g.segment = b.segment "
    "AND (b.segment, coalesce(b.depth, {tip g})) <> (%(segment)s, %(depth)s) AND "
)
MAIN_VALUES = {"main": MAIN, "segment": ROOT.segment, "depth": ROOT.depth}

# The first and the last message are ends of an index, and the count reads that index alone.
_OF_SESSION = "FROM {s}.messages AS m {by messages_seq} WHERE m.session = n.session"
OVERVIEW = (
    "SELECT n.session, n.user_id, n.session_id, "
    f"(SELECT count(*) {_OF_SESSION}), "
    "(SELECT count(*) FROM {s}.branches AS b WHERE b.session = n.session), "
    f"(SELECT m.created_at {_OF_SESSION} ORDER BY m.seq LIMIT 1), "
    f"(SELECT m.created_at {_OF_SESSION} ORDER BY m.seq DESC LIMIT 1), "
    "(SELECT r.note FROM {s}.refs AS r WHERE r.session = n.session AND r.kind = 'title') FROM {names} AS n WHERE "
)

# The tree

SEGMENT_COLUMNS = (
    "g.segment, g.parent_segment, g.parent_depth, {tip g}, g.merged_segment, g.merged_depth, g.base, g.turn_shift, "
    "g.checksum"
)
_SEGMENTS = f"SELECT {SEGMENT_COLUMNS} FROM {{s}}.segments AS g WHERE g.session = %(session)s AND g.segment "
SEGMENTS_OF = f"{_SEGMENTS}{{in bigint segments}}"
SEGMENTS_AFTER = f"{_SEGMENTS}> %(after)s ORDER BY g.segment LIMIT %(limit)s"
NEXT_SEGMENT = "SELECT coalesce(max(segment), -1) + 1 FROM {s}.segments WHERE session = %(session)s"
BRANCHES = (
    "SELECT b.name, b.segment, b.depth, b.checksum, coalesce({tip g}, (SELECT max(m.depth) FROM {s}.messages AS m "
    "WHERE m.session = %(session)s AND m.segment = b.segment), -1) FROM {s}.branches AS b "
    "LEFT JOIN {s}.segments AS g ON g.session = %(session)s AND g.segment = b.segment "
    "WHERE b.session = %(session)s ORDER BY b.ordinal"
)
"""A branch whose segment is lost is among them."""
ATTACHED = (
    "SELECT b.name, b.segment, {tip g} FROM {s}.branches AS b "
    "JOIN {s}.segments AS g ON g.session = %(session)s AND g.segment = b.segment "
    "WHERE b.session = %(session)s AND b.depth IS NULL AND b.segment {in bigint segments}"
)
PUT_BRANCH = (
    "INSERT INTO {s}.branches (session, name, segment, depth, ordinal, checksum) "
    "SELECT %(session)s, %(name)s, %(segment)s, %(depth)s, {ordinal}, %(checksum)s "
    "FROM {s}.sessions WHERE session = %(session)s ON CONFLICT (session, name) "
    "DO UPDATE SET segment = excluded.segment, depth = excluded.depth, checksum = excluded.checksum"
)
BRANCH_OF = "SELECT segment, depth FROM {s}.branches WHERE session = %(session)s AND name = %(name)s"
RENAME_BRANCH = (
    "UPDATE {s}.branches SET name = %(to)s, checksum = %(checksum)s WHERE session = %(session)s AND name = %(name)s"
)
DROP_BRANCH = "DELETE FROM {s}.branches WHERE session = %(session)s AND name = %(name)s"
REFS_OF = (
    "SELECT kind, segment, depth, base_segment, base_depth, note, ref FROM {s}.refs "
    "WHERE session = %(session)s AND kind IN ('move', 'stash', 'head') AND name = %(name)s"
)
RENAME_REF = "UPDATE {s}.refs SET name = %(to)s, checksum = %(checksum)s WHERE session = %(session)s AND ref = %(ref)s"
REFS = (
    "SELECT ref, kind, name, segment, depth, base_segment, base_depth, note, created_at, checksum FROM {s}.refs "
    "WHERE session = %(session)s AND kind = %(kind)s "
)
INSERT_REF = (
    "INSERT INTO {s}.refs (session, ref, kind, name, segment, depth, base_segment, base_depth, note, created_at, "
    "checksum) VALUES (%(session)s, {next}, %(kind)s, %(name)s, %(segment)s, %(depth)s, %(base_segment)s, "
    "%(base_depth)s, %(note)s, %(created_at)s, %(checksum)s)"
)
DROP_REF = "DELETE FROM {s}.refs WHERE session = %(session)s AND ref = %(ref)s"

# Messages

_FROM = "SELECT {columns} FROM {s}.messages AS m"
_MINE = "{texts} WHERE m.session = %(session)s AND "
_THESE = "{rows positions segment depth}"
_AT_THEM = "m.segment = w.segment AND m.depth = w.depth"
AT = f"SELECT {{columns}} FROM {_THESE} CROSS JOIN {{s}}.messages AS m {_MINE}{_AT_THEM} ORDER BY w.n"
BACK = f"{_FROM} {_MINE}m.segment = %(segment)s AND m.depth <= %(depth)s ORDER BY m.depth DESC LIMIT %(limit)s"
AFTER = f"{_FROM} {_MINE}m.seq > %(seq)s ORDER BY m.seq LIMIT %(limit)s"
TURNS = f"{_FROM} {{by messages_turn}} {_MINE}m.turn_id {{in text turn_ids}} ORDER BY m.seq"
PINNED = f"{_FROM} {_MINE}m.stays = 1 ORDER BY m.seq"
# Told the index, or SQLite reads all of the session where several ids are asked for at once.
BY_ID = f"{_FROM} {{by messages_id}} {_MINE}m.id {{in text ids}}"
# A range instead of LIKE: nothing is a wildcard, and the index is used.
BY_PREFIX = f"{_FROM} {{by messages_id}} {_MINE}m.id >= %(low)s "
# SQLite takes a session for so small that it looks at all of its messages; CROSS JOIN keeps it to the order here.
MADE_FROM = (
    f"WITH f AS (SELECT p.segment, p.depth FROM {_THESE} CROSS JOIN {{s}}.messages AS m "
    f"CROSS JOIN {{s}}.messages AS p {{by messages_picked}} WHERE m.session = %(session)s AND {_AT_THEM} "
    "AND p.session = %(session)s AND p.picked_from IS NOT NULL AND p.picked_from = m.id "
    f"UNION SELECT c.segment, c.depth FROM {_THESE} CROSS JOIN {{s}}.covers AS c WHERE c.session = %(session)s "
    "AND c.source_segment = w.segment AND c.start <= w.depth AND c.upto >= w.depth) "
    "SELECT {columns} FROM f CROSS JOIN {s}.messages AS m "
    f"{_MINE}m.segment = f.segment AND m.depth = f.depth ORDER BY m.seq"
)
_COVERS = (
    "SELECT segment, depth, ordinal, source_segment, start, upto FROM {s}.covers WHERE session = %(session)s "
    "AND COLUMN {in bigint segments}"
)
COVERS = (
    f"{_COVERS.replace('COLUMN', 'segment')} UNION {_COVERS.replace('COLUMN', 'source_segment')} "
    "ORDER BY segment, depth, ordinal"
)
COUNT = (
    "SELECT count(*) FROM {rows stretches segment start upto} CROSS JOIN {s}.messages AS m "
    "WHERE m.session = %(session)s AND m.segment = w.segment AND m.depth BETWEEN w.start AND w.upto"
)
NEWEST_QUESTION = (
    "SELECT turn_id, turn_no FROM {s}.messages WHERE session = %(session)s AND segment = %(segment)s "
    "AND depth BETWEEN %(start)s AND %(upto)s AND role = 'user' ORDER BY depth DESC LIMIT 1"
)
# The + keeps SQLite to the index of turns: by position, it would look at the whole segment.
TURN_NUMBER = (
    "SELECT turn_no FROM {s}.messages WHERE session = %(session)s AND turn_id = %(turn_id)s "
    "AND +segment = %(segment)s AND +depth <= %(depth)s ORDER BY seq LIMIT 1"
)
STORED = "SELECT segment, depth, id FROM {s}.messages {unindexed} WHERE session = %(session)s ORDER BY seq"
FORGOTTEN = "SELECT id FROM {s}.tombstones WHERE session = %(session)s "
ARE_FORGOTTEN = f"{FORGOTTEN}AND id {{in text ids}}"
INSERT_TOMBSTONES = (
    "INSERT INTO {s}.tombstones (session, id) SELECT %(session)s, w.id FROM {each text ids id} WHERE NOT EXISTS "
    "(SELECT 1 FROM {s}.messages AS m WHERE m.session = %(session)s AND m.id = w.id) ON CONFLICT DO NOTHING"
)
# Gaps of one segment never overlap, so at most one begins before a stretch and reaches into it.
GAPS = (
    "SELECT DISTINCT g.segment, g.start, g.upto FROM {rows stretches segment start upto} CROSS JOIN {s}.gaps AS g "
    "WHERE g.session = %(session)s AND g.segment = w.segment AND g.start <= w.upto AND g.start >= coalesce("
    "(SELECT max(o.start) FROM {s}.gaps AS o WHERE o.session = %(session)s AND o.segment = w.segment "
    "AND o.start <= w.start), w.start) AND g.upto >= w.start ORDER BY g.segment, g.start"
)
NOTE_GAPS = (
    "INSERT INTO {s}.gaps (session, segment, start, upto) "
    "SELECT %(session)s, w.segment, w.start, w.upto FROM {rows stretches segment start upto}"
)
BEFORE_LOSS = (
    "SELECT id FROM {s}.messages WHERE session = %(session)s AND segment = %(segment)s AND depth < %(start)s "
    "ORDER BY depth DESC LIMIT 1",
    "SELECT id FROM {s}.messages WHERE session = %(session)s AND seq < %(start)s ORDER BY seq DESC LIMIT 1",
)

# What is derived

_VECTOR = "SELECT v.segment, v.depth, v.hash, v.vector, v.checksum FROM "
SPACE = "(SELECT space FROM {s}.spaces WHERE session = %(session)s AND name = %(name)s)"
_LIVING = f"v.session = %(session)s AND v.space = {SPACE} {{live v}}"
VECTORS_AT = (
    f"{_VECTOR}{_THESE} CROSS JOIN {{s}}.vectors AS v WHERE {_LIVING} AND v.segment = w.segment AND v.depth = w.depth "
    "ORDER BY w.n"
)
VECTORS_AFTER = (
    f"{_VECTOR}{{s}}.vectors AS v WHERE {_LIVING} AND (v.segment, v.depth) > (%(segment)s, %(depth)s) "
    "ORDER BY v.segment, v.depth LIMIT %(limit)s"
)
SPACES = (
    "SELECT name FROM {s}.spaces AS s WHERE s.session = %(session)s AND EXISTS (SELECT 1 FROM {s}.vectors AS v "
    "{by vectors_hash} WHERE v.session = %(session)s AND v.space = s.space {live v}) ORDER BY s.written DESC"
)
SNAPSHOT = "SELECT data FROM {s}.snapshots WHERE session = %(session)s AND name = %(name)s ORDER BY part"
DELETE_SNAPSHOT = "DELETE FROM {s}.snapshots WHERE session = %(session)s AND name = %(name)s"
INSERT_PART = "INSERT INTO {s}.snapshots VALUES (%(session)s, %(name)s, %(part)s, %(data)s)"
SUMMARIES = (
    "SELECT {content}, m.segment, m.depth, m.along_segment, m.along_depth, m.last_id, m.messages, m.created_at, "
    "m.counter, m.tokens, m.checksum FROM {s}.summaries AS m "
    f"{_MINE}m.segment = %(segment)s AND m.depth <= %(depth)s ORDER BY m.depth DESC, m.summary DESC LIMIT %(limit)s"
)
REACHES = (
    "SELECT summary, segment, depth, along_segment, along_depth FROM {s}.summaries "
    "WHERE session = %(session)s ORDER BY summary"
)
ERASED_SINCE = (
    "SELECT s.epoch, e.epoch, e.segment, e.depth, e.stale FROM {s}.sessions AS s "
    "LEFT JOIN {s}.erasures AS e ON e.session = %(session)s AND e.epoch > %(epoch)s "
    "WHERE s.session = %(session)s ORDER BY e.epoch, e.segment, e.depth"
)
COUNTS = (
    "SELECT (SELECT count(*) FROM {s}.messages WHERE session = %(session)s), "
    "(SELECT count(DISTINCT turn_id) FROM {s}.messages "
    "WHERE session = %(session)s AND turn_no >= 0 AND role <> 'system'), "
    "(SELECT count(*) FROM {s}.branches WHERE session = %(session)s), "
    "(SELECT count(*) FROM {s}.segments WHERE session = %(session)s), "
    "(SELECT count(*) FROM {s}.vectors AS v WHERE session = %(session)s {live v}), "
    "(SELECT count(*) FROM {s}.tombstones WHERE session = %(session)s)"
)
COUNTED = ("messages", "turns", "branches", "segments", "vectors", "forgotten")
