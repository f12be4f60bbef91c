"""What can be wrong with the rows of a database, each by itself readable: one list of questions for every database."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol

from shared_core.records import SessionKey


@dataclass(frozen=True, slots=True)
class Damage:
    """Something that is damaged.

    Attributes:
        what: what it is, such as "message".
        why: why it cannot be read, or what is wrong with it.
        session: the name of the session. None: it is not known, or the damage is to the store as a whole.
        user: the user whose session it is. None: nobody's.
        id: the id of the message; of something else its name, its number or its position. None: it is not known.
        derived: whether it was made from messages, and can be mended without losing any.
    """

    what: str
    why: str
    session: str | None = None
    user: str | None = None
    id: str | None = None
    derived: bool = False


class Mend(NamedTuple):
    """How to mend a damage.

    Attributes:
        kind: names the statements that do it, which each database has its own of.
        session: the session that it is in; None: it is a part of the schema.
        values: names the rows.
    """

    kind: str
    session: int | None
    values: Mapping[str, Any]


MISSING = "it is missing"
"""What is wrong with a part of the schema that can be made again."""

_SCHEMA = "schema"


def making(statements: Sequence[str]) -> Mend:
    """Return how to make a part of the schema again: with statements in this order."""
    return Mend(_SCHEMA, None, {"statements": statements})


def statements_of(mend: Mend, kinds: Mapping[str, Sequence[str]]) -> Sequence[str]:
    """Return the statements that mend something; `kinds`: those of a database, by the kind of mend."""
    return mend.values["statements"] if mend.kind == _SCHEMA else kinds[mend.kind]


class Found(NamedTuple):
    """A damage, and how to mend it; None: it cannot be."""

    damage: Damage
    mend: Mend | None = None


_UNIQUE = re.compile(r"CREATE UNIQUE INDEX \w+ ON ((?:\{s\}\.)?(\w+)) \(session, (\w+)\)")
_EQUAL = (
    "SELECT session, min({column}) FROM (SELECT session, {column} FROM {table} GROUP BY session, {column} "
    "HAVING count(*) > 1) AS x GROUP BY session ORDER BY session"
)


def lost(
    kind: str, name: str, statements: Sequence[str], *, ask: Callable[[str], Iterable[tuple[Any, ...]]],
    shown: Callable[[Any], str], sessions: Mapping[int, SessionKey],
) -> Iterator[Found]:  # fmt: skip
    """Yield that a part of the schema is missing, and how to make it again: not at all where equal rows forbid it.

    Args:
        kind: what it is.
        name: its name.
        statements: make it again.
        ask: returns the rows of a statement without values.
        shown: returns a value as it is told.
        sessions: those that are known, by number.
    """
    unique = next(filter(None, map(_UNIQUE.match, statements)), None)
    equal = [] if unique is None else [*ask(_EQUAL.format(table=unique[1], column=unique[3]))]
    if unique is None or not equal:
        yield Found(Damage(kind, MISSING, id=name, derived=True), making(statements))
        return
    for number, value in equal:
        why = f"{MISSING}, and cannot be made again: several rows of {unique[2]} have the {unique[3]} {shown(value)!r}"
        session = sessions.get(number)
        yield Found(Damage(kind, why, session and session.session_id, session and session.user_id, name))


class Check(NamedTuple):
    """A question about the rows of one session, which finds nothing if they are in order.

    Attributes:
        what: what is damaged.
        why: what is wrong with it.
        sql: returns what to name it by, and then the values that `mend` needs. `{s}.` stands for the schema,
            `%(session)s` for the session, `{tips}` for the table or view that says where segments end, and `{live}` for
            the condition that a vector has not been erased, `{sessions}` for the sessions that are listed.
        mend: the kind of `Mend`. None: it is not derived.
        keys: the names of the values that `mend` needs.
    """

    what: str
    why: str
    sql: str
    mend: str | None = None
    keys: tuple[str, ...] = ()


# The first depth at which a branch, or a child, may begin in a segment.
_FIRST = "coalesce(g.base, g.parent_depth, -1)"
_OWN = "FROM {s}.segments AS g JOIN {tips} AS t ON t.session = %(session)s AND t.segment = g.segment"


def _outside(segment: str, depth: str) -> str:
    """Return the condition that a position is not in the tree; without a depth, only its segment counts."""
    return (
        f"NOT EXISTS (SELECT 1 {_OWN} WHERE g.session = %(session)s AND g.segment = {segment} "
        f"AND coalesce({depth}, t.tip) BETWEEN {_FIRST} AND t.tip)"
    )


_NO_MESSAGE = (
    "NOT EXISTS (SELECT 1 FROM {s}.messages AS m WHERE m.session = %(session)s AND m.segment = x.segment "
    "AND m.depth = x.depth)"
)
_ID = "(SELECT 1 FROM {s}.%s AS o WHERE o.session = %%(session)s AND o.id = x.%s)"

CHECKS = (
    Check(
        "a branch", "it ends outside of the tree",
        f"SELECT x.name FROM {{s}}.branches AS x WHERE x.session = %(session)s AND {_outside('x.segment', 'x.depth')}",
    ),
    Check(
        "a segment", "it grows out of what is not there",
        "SELECT x.segment FROM {s}.segments AS x WHERE x.session = %(session)s AND ("
        f"x.parent_segment IS NOT NULL AND {_outside('x.parent_segment', 'x.parent_depth')} OR "
        f"x.merged_segment IS NOT NULL AND {_outside('x.merged_segment', 'x.merged_depth')} OR "
        "x.parent_segment >= x.segment OR x.base <= x.parent_depth)",
    ),
    Check(
        "message", "it stands outside of its segment",
        "SELECT x.id FROM {s}.messages AS x LEFT JOIN {s}.segments AS g ON g.session = %(session)s "
        f"AND g.segment = x.segment WHERE x.session = %(session)s AND (g.segment IS NULL OR x.depth <= {_FIRST})",
    ),
    Check(
        "a turn", "its messages have different numbers for it",
        "SELECT turn_id FROM {s}.messages WHERE session = %(session)s AND role <> 'system' "
        "GROUP BY turn_id HAVING min(turn_no) <> max(turn_no)",
    ),
    Check(
        "message", "it was forgotten, and is stored all the same; forget it again",
        "SELECT x.id FROM {s}.tombstones AS x JOIN {s}.messages AS m ON m.session = %(session)s AND m.id = x.id "
        "WHERE x.session = %(session)s",
    ),
    Check(
        "a tag, stash or move", "it points outside of the tree",
        "SELECT x.name FROM {s}.refs AS x WHERE x.session = %(session)s AND ("
        f"x.segment IS NOT NULL AND {_outside('x.segment', 'x.depth')} OR "
        f"x.base_segment IS NOT NULL AND {_outside('x.base_segment', 'x.base_depth')})",
    ),
    Check(
        "what a message sums up", "there is no such message",
        "SELECT x.segment, x.segment, x.depth FROM {s}.covers AS x "
        f"WHERE x.session = %(session)s AND {_NO_MESSAGE}",
        "cover", ("segment", "depth"),
    ),
    Check(
        "a vector", "it belongs to no message",
        "SELECT x.segment, x.segment, x.depth, x.space FROM {s}.vectors AS x "
        f"WHERE x.session = %(session)s AND {{live}} AND {_NO_MESSAGE}",
        "vector", ("segment", "depth", "space"),
    ),
    Check(
        "a vector", "it belongs to no space",
        "SELECT x.segment, x.segment, x.depth, x.space FROM {s}.vectors AS x WHERE x.session = %(session)s AND {live} "
        "AND NOT EXISTS (SELECT 1 FROM {s}.spaces AS p WHERE p.session = %(session)s AND p.space = x.space)",
        "vector", ("segment", "depth", "space"),
    ),
    Check(
        "a summary", "what it sums up is gone",
        "SELECT x.last_id, x.summary FROM {s}.summaries AS x WHERE x.session = %(session)s AND ("
        f"NOT EXISTS {_ID % ('messages', 'last_id')} OR {_outside('x.segment', 'x.depth')} OR "
        f"{_outside('x.along_segment', 'x.along_depth')})",
        "summary", ("summary",),
    ),
    Check(
        "a search index", "a part of it is missing",
        "SELECT x.name, x.name FROM {s}.snapshots AS x WHERE x.session = %(session)s "
        "GROUP BY x.name HAVING max(x.part) + 1 <> count(*)",
        "snapshot", ("name",),
    ),
)  # fmt: skip

OWNERS = ("segments", "branches", "refs", "messages", "covers", "tombstones")
DERIVED = ("vectors", "spaces", "snapshots", "summaries")


class Inspector(Protocol):
    """Runs the questions on one database."""

    def ask(
        self, sql: str, session: int | None, values: Mapping[str, Any] = MappingProxyType({})
    ) -> Sequence[tuple[Any, ...]]:
        """Return the rows of a statement, which is written as those of a `Check` are."""

    def plain(self, value: Any) -> str:
        """Return a text as it was before it was stored."""

    def size(self) -> int:
        """Return the bytes that the whole database takes."""

    def sizes(self) -> Mapping[str, Mapping[str, int]]:
        """Return table -> part of it -> bytes on disk, with its indexes; nothing if the database cannot tell."""


def inspect(inspector: Inspector, session: SessionKey, checks: Sequence[Check] = CHECKS) -> Iterator[Found]:
    """Yield what is wrong with the rows of a session."""
    for check in checks:
        for name, *values in inspector.ask(check.sql, session.key):
            shown = inspector.plain(name) if isinstance(name, str | bytes) else str(name)
            damage = Damage(check.what, check.why, session.session_id, session.user_id, shown, check.mend is not None)
            mend = (
                None
                if check.mend is None
                else Mend(check.mend, session.key, dict(zip(check.keys, values, strict=True)))
            )
            yield Found(damage, mend)


def orphans(inspector: Inspector, known: str) -> Iterator[Found]:
    """Yield the tables that hold rows of sessions that do not exist; `known`: the table that lists sessions."""
    for table in (*OWNERS, *DERIVED):
        sql = f"SELECT DISTINCT session FROM {{s}}.{table} WHERE session NOT IN (SELECT session FROM {{s}}.{known})"
        for (session,) in inspector.ask(sql, None):
            mend = Mend(f"orphaned {table}", session, {}) if table in DERIVED else None
            yield Found(
                Damage(f"rows of {table}", "they belong to no session", id=str(session), derived=mend is not None), mend
            )
