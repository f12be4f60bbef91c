"""How much a PostgreSQL database holds, and which of its indexes are missing."""

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from shared_core.stores.postgres.postgres_schema import MIGRATIONS
from shared_core.stores.postgres.transactions import Statements

_OWN = {"{live}": "true", "{sessions}": "{s}.names"}
"""What stands in statements for every database, and what is here in its place."""

_SIZES = (
    "SELECT coalesce(p.relname, c.relname)::text, c.relname::text, pg_total_relation_size(c.oid) FROM pg_class AS c "
    "JOIN pg_namespace AS n ON n.oid = c.relnamespace LEFT JOIN pg_inherits AS i ON i.inhrelid = c.oid "
    "LEFT JOIN pg_class AS p ON p.oid = i.inhparent WHERE n.nspname = %(schema)s AND c.relkind = 'r'"
)
_VALID = (
    "SELECT c.relname::text FROM pg_index AS i JOIN pg_class AS c ON c.oid = i.indexrelid "
    "JOIN pg_namespace AS n ON n.oid = c.relnamespace WHERE n.nspname = %(schema)s AND i.indisvalid"
)
_INDEXES = re.findall(r"CREATE (?:UNIQUE )?INDEX (\w+) ", "\n".join(s for step in MIGRATIONS for s in step.statements))


class PostgresInspector:
    """Asks one schema; see `store_stats`."""

    def __init__(self, statements: Statements, schema: str) -> None:
        self._statements = statements
        self._schema = schema

    def ask(
        self, sql: str, session: int | None, values: Mapping[str, Any] = MappingProxyType({})
    ) -> list[tuple[Any, ...]]:
        for mark, own in _OWN.items():
            sql = sql.replace(mark, own)
        return self._statements.run(sql, session, values)

    def size(self) -> int:
        """Return the bytes of the database; other schemas of it are counted, too."""
        return int(self.ask("SELECT pg_database_size(current_database())", None)[0][0])

    def sizes(self) -> dict[str, dict[str, int]]:
        found: dict[str, dict[str, int]] = {}
        for table, part, size in self.ask(_SIZES, None, {"schema": self._schema}):
            found.setdefault(table, {})[part] = size
        return found

    def faults(self) -> list[str]:
        """Return in words which indexes are missing or broken."""
        valid = {name for (name,) in self.ask(_VALID, None, {"schema": self._schema})}
        return [f"index {name} is missing or broken" for name in _INDEXES if name not in valid]
