"""Asks a PostgreSQL database what is wrong with its rows, and mends those that were made from others."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from types import MappingProxyType
from typing import Any, NamedTuple

from shared_core.errors import StoreError
from shared_core.records import SessionKey
from shared_core.stores.damages import (
    CHECKS,
    DERIVED,
    Check,
    Damage,
    Found,
    Mend,
    inspect,
    lost,
    orphans,
    statements_of,
)
from shared_core.stores.postgres.message_tables import COLUMNS, record_of
from shared_core.stores.postgres.schema import MIGRATIONS
from shared_core.stores.postgres.texts import FORM, plain
from shared_core.stores.postgres.transactions import Statements
from shared_core.stores.row_values import WRONG, checksum_of, vector_checksum

_PAGE = 1_000

_DEEPEST = "(SELECT max(m.depth) FROM {s}.messages AS m WHERE m.session = %(session)s AND m.segment = g.segment)"
_NEWEST = "(SELECT max(m.seq) FROM {s}.messages AS m WHERE m.session = %(session)s)"
_LARGEST = "(SELECT max(g.segment) FROM {s}.segments AS g WHERE g.session = %(session)s)"
_OWN_CHECKS = (
    Check(
        "a segment", "it ends before its last message",
        f"SELECT g.segment, g.segment FROM {{s}}.segments AS g WHERE g.session = %(session)s AND g.tip < {_DEEPEST}",
        "tip", ("segment",),
    ),
    Check(
        "the number of the newest message", "a message has a larger one",
        f"SELECT s.last_seq FROM {{s}}.sessions AS s WHERE s.session = %(session)s AND s.last_seq < {_NEWEST}",
        "number",
    ),
    Check(
        "the number of the next segment", "a segment has it already",
        "SELECT s.next_segment FROM {s}.sessions AS s "
        f"WHERE s.session = %(session)s AND s.next_segment <= {_LARGEST}",
        "next segment",
    ),
    # Each number without a message is that of one that was forgotten; an id that never was one may be among these.
    Check(
        "messages", "so many are missing, and nothing else is known of them",
        "SELECT lost FROM (SELECT s.last_seq - "
        "(SELECT count(*) FROM {s}.messages AS m WHERE m.session = %(session)s) - "
        "(SELECT count(*) FROM {s}.tombstones AS t WHERE t.session = %(session)s) AS lost "
        "FROM {s}.sessions AS s WHERE s.session = %(session)s) AS x WHERE lost > 0",
    ),
    Check(
        "a session", "its row is missing",
        "SELECT n.session FROM {s}.names AS n WHERE n.session = %(session)s "
        "AND NOT EXISTS (SELECT 1 FROM {s}.sessions AS s WHERE s.session = %(session)s)",
    ),
)  # fmt: skip

_OWN = {
    "{tips}": "{s}.segments",
    "{live}": "true",
    "{sessions}": "{s}.names",
}
"""What stands in statements for every database, and what is here in its place."""

_SIZES = (
    "SELECT coalesce(p.relname, c.relname)::text, c.relname::text, pg_total_relation_size(c.oid) FROM pg_class AS c "
    "JOIN pg_namespace AS n ON n.oid = c.relnamespace LEFT JOIN pg_inherits AS i ON i.inhrelid = c.oid "
    "LEFT JOIN pg_class AS p ON p.oid = i.inhparent WHERE n.nspname = %(schema)s AND c.relkind = 'r'"
)

_THERE = (
    "SELECT c.relname::text FROM pg_index AS i JOIN pg_class AS c ON c.oid = i.indexrelid "
    "JOIN pg_namespace AS n ON n.oid = c.relnamespace WHERE n.nspname = %(schema)s AND i.indisvalid"
)
_INDEX = re.compile(r"CREATE (?:UNIQUE )?INDEX (\w+) ")

_OF_SESSION = "WHERE session = %(session)s"
_MENDS: dict[str, tuple[str, ...]] = {
    "tip": (
        f"UPDATE {{s}}.segments AS g SET tip = greatest(g.tip, {_DEEPEST}) "
        "WHERE g.session = %(session)s AND g.segment = %(segment)s",
        f"UPDATE {{s}}.sessions SET changed = DEFAULT {_OF_SESSION}",
    ),
    "number": (f"UPDATE {{s}}.sessions SET last_seq = greatest(last_seq, {_NEWEST}), changed = DEFAULT {_OF_SESSION}",),
    "next segment": (f"UPDATE {{s}}.sessions SET next_segment = greatest(next_segment, {_LARGEST} + 1) {_OF_SESSION}",),
    "cover": (f"DELETE FROM {{s}}.covers {_OF_SESSION} AND segment = %(segment)s AND depth = %(depth)s",),
    "vector": (
        f"DELETE FROM {{s}}.vectors {_OF_SESSION} "
        "AND segment = %(segment)s AND depth = %(depth)s AND space = %(space)s",
        # An index that still has it would not let it be made again.
        f"DELETE FROM {{s}}.snapshots {_OF_SESSION} AND left(name, 8) = 'vectors/'",
    ),
    "summary": (f"DELETE FROM {{s}}.summaries {_OF_SESSION} AND summary = %(summary)s",),
    "snapshot": (f"DELETE FROM {{s}}.snapshots {_OF_SESSION} AND name = %(name)s",),
    **{f"orphaned {table}": (f"DELETE FROM {{s}}.{table} {_OF_SESSION}",) for table in DERIVED},
}


class _Sealed(NamedTuple):
    """A table whose rows have a checksum.

    Attributes:
        what: what a row is.
        columns: those that the checksum is of.
        key: numbers the rows.
        name: the column to name a row by.
        mend: see `Check`.
        own: whether the session is the first value that the checksum is of.
    """

    what: str
    columns: str
    key: str
    name: str
    mend: str | None = None
    own: bool = True


_SEALED = {
    "segments": _Sealed(
        "a segment", "segment, parent_segment, parent_depth, merged_segment, merged_depth, base, turn_shift", "segment",
        "segment",
    ),
    "branches": _Sealed("a branch", "name, segment, depth", "ordinal", "name"),
    "refs": _Sealed(
        "a tag, stash or move", "kind, name, segment, depth, base_segment, base_depth, note", "ref", "name"
    ),
    "summaries": _Sealed(
        "a summary",
        "content, segment, depth, along_segment, along_depth, last_id, messages, created_at, counter, tokens",
        "summary", "last_id", "summary", own=False,
    ),
}  # fmt: skip

_MESSAGES = (
    f"SELECT {COLUMNS} FROM {{s}}.messages AS m WHERE m.session = %(session)s "
    "AND (m.segment, m.depth) > (%(segment)s, %(depth)s) ORDER BY m.segment, m.depth LIMIT %(limit)s"
)
_VECTORS = (
    "SELECT space, segment, depth, hash, vector, checksum FROM {s}.vectors WHERE session = %(session)s "
    "AND (space, segment, depth) > (%(space)s, %(segment)s, %(depth)s) ORDER BY space, segment, depth LIMIT %(limit)s"
)


class PostgresInspector:
    """Asks one schema.

    Args:
        reading: enters a block for some statements.
        schema: its name.
    """

    def __init__(self, reading: Callable[[], AbstractContextManager[Statements]], schema: str) -> None:
        self._reading = reading
        self._schema = schema

    def ask(
        self, sql: str, session: int | None, values: Mapping[str, Any] = MappingProxyType({})
    ) -> list[tuple[Any, ...]]:
        """See `Inspector`."""
        for mark, own in _OWN.items():
            sql = sql.replace(mark, own)
        with self._reading() as statements:
            return statements.run(sql, session, values)

    def size(self) -> int:
        """See `Inspector`. Other schemas of the database are counted, too."""
        return int(self.ask("SELECT pg_database_size(current_database())", None)[0][0])

    def sizes(self) -> dict[str, dict[str, int]]:
        """See `Inspector`."""
        found: dict[str, dict[str, int]] = {}
        for table, part, size in self.ask(_SIZES, None, {"schema": self._schema}):
            found.setdefault(table, {})[part] = size
        return found

    def plain(self, value: str | bytes) -> str:
        """See `Inspector`."""
        return plain(str(value))

    def lost_objects(self, sessions: Mapping[int, SessionKey]) -> Iterator[Found]:
        """Yield the indexes that are missing or broken; `sessions`: to name these by."""
        there = {name for (name,) in self.ask(_THERE, None, {"schema": self._schema})}
        for statement in (one for step in MIGRATIONS for one in step.statements):
            index = _INDEX.match(statement)
            if index is not None and index[1] not in there:
                made = (f"DROP INDEX IF EXISTS {{s}}.{index[1]}", statement)
                yield from lost(
                    "index", index[1], made, ask=lambda sql: self.ask(sql, None), shown=_shown, sessions=sessions
                )

    def messages(self, session: SessionKey) -> Iterator[list[Damage | None]]:
        """Yield for each message of a session what is wrong with it, in pages."""
        last = {"segment": -1, "depth": -(2**31)}
        while rows := self.ask(_MESSAGES, session.key, {**last, "limit": _PAGE}):
            yield [self._damage("message", row[4], session) if _is_changed(row) else None for row in rows]
            last = {"segment": rows[-1][1], "depth": rows[-1][2]}

    def changed(self, session: SessionKey) -> Iterator[Found]:
        """Yield the other rows of a session that are not as they were written."""
        for table, sealed in _SEALED.items():
            for name, key in self._changed(table, sealed, session.key):
                mend = None if sealed.mend is None else Mend(sealed.mend, session.key, {sealed.mend: key})
                yield Found(self._damage(sealed.what, name, session, derived=mend is not None), mend)
        last: dict[str, int] = {"space": -1, "segment": -1, "depth": -1}
        while rows := self.ask(_VECTORS, session.key, {**last, "limit": _PAGE}):
            for space, segment, depth, hash_, vector, checksum in rows:
                if checksum not in (None, vector_checksum(segment, depth, hash_, vector)):
                    mend = Mend("vector", session.key, {"segment": segment, "depth": depth, "space": space})
                    yield Found(self._damage("a vector", f"{segment}, {depth}", session, derived=True), mend)
            last = dict(zip(last, rows[-1], strict=False))

    def _changed(self, table: str, sealed: _Sealed, session: int) -> Iterator[tuple[Any, int]]:
        sql = (
            f"SELECT {sealed.name}, {sealed.key}, checksum, {sealed.columns} FROM {{s}}.{table} {_OF_SESSION} "
            f"AND {sealed.key} > %(after)s ORDER BY {sealed.key} LIMIT %(limit)s"
        )
        after = -1
        while rows := self.ask(sql, session, {"after": after, "limit": _PAGE}):
            for name, key, checksum, *values in rows:
                if checksum != checksum_of((session, *values) if sealed.own else values):
                    yield name, key
            after = rows[-1][1]

    def _damage(self, what: str, name: Any, session: SessionKey, *, derived: bool = False) -> Damage:
        return Damage(what, WRONG, session.session_id, session.user_id, FORM.plain(str(name)), derived)

    def rows(self, session: SessionKey) -> Iterator[Found]:
        """Yield what does not fit together in a session."""
        return inspect(self, session, (*CHECKS, *_OWN_CHECKS))

    def orphans(self) -> Iterator[Found]:
        """Yield rows that belong to no session."""
        return orphans(self, "names")


def _shown(value: Any) -> str:
    return FORM.plain(str(value))


def _is_changed(row: tuple[Any, ...]) -> bool:
    try:
        record_of(row)
    except StoreError:
        return True
    return False


def mend_tables(statements: Statements, mends: Sequence[Mend]) -> None:
    """Mend what can be, in a transaction of the caller's."""
    for mend in mends:
        for statement in statements_of(mend, _MENDS):
            statements.run(statement, mend.session, mend.values)
