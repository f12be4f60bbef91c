"""How much a store holds: counted by the database, whatever it holds."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from shared_core.arguments import whole_number
from shared_core.store import Store
from shared_core.stores.sql_rows import SqlStore

LARGEST = 10
"""How many of the largest sessions are named."""

_COUNTS = (
    "SELECT (SELECT count(*) FROM {names} AS n), (SELECT count(DISTINCT n.user_id) FROM {names} AS n), "
    "(SELECT count(*) FROM {s}.messages), (SELECT count(*) FROM {s}.tombstones)"
)
_SPACES = (
    "SELECT p.name, count(*), sum(length(x.vector)) FROM {s}.vectors AS x "
    "JOIN {s}.spaces AS p ON p.session = x.session AND p.space = x.space WHERE 1 = 1 {live x} "
    "GROUP BY p.name ORDER BY 2 DESC"
)
_WITHOUT_VECTOR = (
    "WITH newest AS (SELECT s.session, s.space FROM {s}.spaces AS s WHERE s.written = "
    "(SELECT max(t.written) FROM {s}.spaces AS t WHERE t.session = s.session)) "
    "SELECT (SELECT count(*) FROM {s}.messages AS m WHERE m.session IN (SELECT session FROM newest)) - "
    "(SELECT count(*) FROM {s}.vectors AS x JOIN newest AS n ON n.session = x.session AND n.space = x.space "
    "WHERE 1 = 1 {live x})"
)
_LARGEST = (
    "SELECT n.user_id, n.session_id, c.messages FROM {names} AS n JOIN (SELECT m.session, count(*) AS messages "
    "FROM {s}.messages AS m GROUP BY m.session ORDER BY 2 DESC, 1 LIMIT %(limit)s) AS c ON c.session = n.session "
    "ORDER BY c.messages DESC, n.session"
)


@dataclass(frozen=True, slots=True)
class SpaceStats:
    """Vectors of one embedder: how many there are, and their bytes without what the database adds."""

    space: str
    vectors: int
    bytes: int


@dataclass(frozen=True, slots=True)
class SessionSize:
    """A session, whose it is, and how many messages it holds."""

    user: str | None
    session: str
    messages: int


@dataclass(frozen=True, slots=True)
class StoreStats:
    """How much a store holds.

    Attributes:
        sessions: how many sessions there are, also empty ones.
        users: how many users have one; nobody is not counted.
        messages: how many messages are stored.
        forgotten: how many ids are forgotten.
        without_vector: how many messages have no vector in the space that their session was last written to, among
            them those that get none because they have no text; sessions that have no vectors at all are left out.
        bytes: what the whole database takes.
        spaces: by embedder.
        largest: the largest sessions.
    """

    sessions: int
    users: int
    messages: int
    forgotten: int
    without_vector: int
    bytes: int
    spaces: Sequence[SpaceStats]
    largest: Sequence[SessionSize]

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON data."""
        return asdict(self)


def store_stats(store: Store, *, largest: int = LARGEST) -> StoreStats:
    """Count what a whole store holds. The database counts, which may take minutes; nothing of it is read.

    Args:
        store: a store on SQLite or PostgreSQL.
        largest: how many of the largest sessions to name.

    Raises:
        StoreError: it cannot be read.
        ValueError: it is a store of another kind.
    """
    limit = whole_number("largest", largest, least=0)
    if not isinstance(store, SqlStore):
        raise ValueError(f"a {type(store).__name__} cannot be counted: give a store on SQLite or PostgreSQL")
    with store.inspecting() as rows:
        ((sessions, users, messages, forgotten),) = rows.run(_COUNTS, None)
        ((without_vector,),) = rows.run(_WITHOUT_VECTOR, None)
        spaces = [SpaceStats(name, n, int(size)) for name, n, size in rows.run(_SPACES, None)]
        named = [SessionSize(*row) for row in rows.run(_LARGEST, None, {"limit": limit})]
    return StoreStats(sessions, users, messages, forgotten, without_vector, store.size(), spaces, named)
