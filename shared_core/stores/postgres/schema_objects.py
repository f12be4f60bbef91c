"""The indexes and triggers of a PostgreSQL schema, and how each is made again."""

import re
from functools import cache
from typing import NamedTuple

from shared_core.stores.postgres.schema import MIGRATIONS, NAMES, Migration

_CREATED = re.compile(r"CREATE (?:UNIQUE )?(INDEX|TRIGGER) (\w+) .*?\bON (\{s\}\.\w+)", re.DOTALL)
_FUNCTION = "CREATE FUNCTION "

# Whatever changed without a trigger has not been told.
_TELL_ALL = (
    f"UPDATE {{s}}.sessions AS s SET owner = n.user_id, changed = DEFAULT FROM {{s}}.{NAMES} AS n "
    "WHERE n.session = s.session"
)


class SchemaObject(NamedTuple):
    """An index or a trigger.

    Attributes:
        kind: which of these.
        name: its name in the schema.
        statements: make it anew, in a transaction, as `Statements.run` takes them.
    """

    kind: str
    name: str
    statements: tuple[str, ...]


@cache
def objects() -> tuple[SchemaObject, ...]:
    """Return those of the newest schema."""
    return tuple(one for step in MIGRATIONS for one in _objects_of(step))


def _objects_of(step: Migration) -> list[SchemaObject]:
    functions = [
        one.replace(_FUNCTION, "CREATE OR REPLACE FUNCTION ").replace("%", "%%")
        for one in step.statements
        if one.startswith(_FUNCTION)
    ]
    found = []
    for statement in step.statements:
        created = _CREATED.match(statement)
        if created is None:
            continue
        kind, name, table = created.groups()
        if kind == "INDEX":
            made: tuple[str, ...] = (f"DROP INDEX IF EXISTS {{s}}.{name}", statement)
        else:
            made = (*functions, f"DROP TRIGGER IF EXISTS {name} ON {table}", statement, _TELL_ALL)
        found.append(SchemaObject(kind.lower(), name, made))
    return found
