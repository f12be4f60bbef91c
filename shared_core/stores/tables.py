"""The tables of an SQL database that hold what belongs to a session, whatever its kind."""

import re
from collections.abc import Mapping
from typing import NamedTuple


class Table(NamedTuple):
    """A table, whose first column is `session`.

    Attributes:
        name: of the table.
        owner: the table whose key its first columns are; where there are foreign keys, its rows go with that row.
        key: the columns of its primary key, after the session.
        columns: each with its kind: `int`, `big`, `text`, `bytes`, or `number` if the database counts it; `said` and
            `summed` are what a message or a summary says, which may be kept elsewhere. With `?` it may be NULL.
    """

    name: str
    owner: str
    key: str
    columns: str

    def defined(self, kinds: Mapping[str, str]) -> list[str]:
        """Return the definitions of its columns; `kinds` is what a database makes of a name and a kind."""
        found = _COLUMN.findall(self.columns)
        return [f"{kinds[kind].format(name)}{'' if optional else ' NOT NULL'}" for name, kind, optional in found]


_COLUMN = re.compile(r"(\w+) (\w+)(\??)")

TABLES = (
    # A merge is a position of its own, not a message: forgetting a message cannot undo it.
    Table(
        "segments", "sessions", "segment",
        "segment int, parent_segment int?, parent_depth int?, tip int, merged_segment int?, merged_depth int?, "
        "base int?, turn_shift int, checksum big",
    ),
    # Without a depth a branch is at the tip of its segment and goes on with it.
    Table("branches", "segments", "name", "name text, segment int, depth int?, ordinal big, checksum big"),
    Table(
        "refs", "sessions", "ref",
        "ref number, kind text, name text, segment int?, depth int?, base_segment int?, base_depth int?, note text, "
        "created_at text, checksum big",
    ),
    # A time is a text in ISO 8601, because a timestamp forgets the zone. A message whose client sends no ids is found
    # by its fingerprint, a digest of what it says.
    Table(
        "messages", "segments", "segment, depth",
        "segment int, depth int, seq big, id text, turn_id text, turn_no int, role text, created_at text, stays int, "
        "counter text?, tokens int?, picked_from text?, text said?, checksum big, fingerprint big?",
    ),
    # A squash covers whole stretches of a segment: of a long branch a few rows are written, not one a message.
    Table(
        "covers", "messages", "segment, depth, ordinal",
        "segment int, depth int, ordinal int, source_segment int, start int, upto int",
    ),
    Table("spaces", "sessions", "name", "space number, name text, written big"),
    Table("snapshots", "sessions", "name, part", "name text, part int, data bytes"),
    # What a summary covers follows from its positions: all of the path along one of them, up to the other.
    Table(
        "summaries", "segments", "segment, depth, summary",
        "summary number, segment int, depth int, along_segment int, along_depth int, last_id text, messages int, "
        "created_at text, counter text?, tokens int?, text summed?, checksum big",
    ),
    Table("tombstones", "sessions", "id", "id text"),
    # Where something was erased, by the epoch that this began; an epoch without a row is not known. No text.
    Table("erasures", "sessions", "epoch, segment, depth", "epoch big, segment int, depth int, stale int"),
    # Stretches of a segment that hold no messages, because these were forgotten or never came with an import; with
    # segment -1, stretches of the numbers of a session. Any other message that is missing is a damage.
    Table("gaps", "sessions", "segment, start, upto", "segment int, start big, upto big"),
)  # fmt: skip

INDEXES = (
    "CREATE INDEX refs_kind ON {s}.refs (session, kind, name, ref)",
    "CREATE UNIQUE INDEX messages_id ON {s}.messages (session, id)",
    "CREATE UNIQUE INDEX messages_seq ON {s}.messages (session, seq)",
    "CREATE INDEX messages_turn ON {s}.messages (session, turn_id, seq)",
    "CREATE INDEX messages_stays ON {s}.messages (session, seq) WHERE stays = 1",
    "CREATE INDEX messages_picked ON {s}.messages (session, picked_from) WHERE picked_from IS NOT NULL",
    "CREATE INDEX messages_fingerprint ON {s}.messages (session, fingerprint, seq) WHERE fingerprint IS NOT NULL",
    "CREATE INDEX covers_source ON {s}.covers (session, source_segment, start)",
)
