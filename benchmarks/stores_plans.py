"""How PostgreSQL finds what the statements of a turn are about: in one partition, and by an index on the session."""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

import psycopg

from shared_core.stores.postgres.connections import adapt
from shared_core.stores.postgres.transactions import Statements, given_values

__all__ = ["Ran", "faults", "nodes", "numbered", "recording", "wrong_plans"]

SMALL = 8
"""Pages of a table up to which reading all of it is as cheap as an index, and what the planner may choose."""

MODES = {"with its values": "force_custom_plan", "for any values": "force_generic_plan"}
"""The two plans of a prepared statement: the server may go over to the second when it has been run five times."""


class Ran(NamedTuple):
    """A statement.

    Attributes:
        sql: as psycopg takes it.
        values: what it was run with; `session` among them, which is None if it names none.
    """

    sql: str
    values: Mapping[str, Any]


@contextmanager
def recording(*, others: bool = False) -> Iterator[dict[str, Ran]]:
    """Yield the statements on a session that are run in the block, each once; `others`: also those that name none."""
    found: dict[str, Ran] = {}
    execute = Statements._execute

    def noted(reader: Statements, sql: str, session: int | None, values: Mapping[str, Any] | None) -> Any:
        if others or session is not None:
            found.setdefault(sql, Ran(reader._schema(sql), given_values(session, values)))
        return execute(reader, sql, session, values)

    Statements._execute = noted  # type: ignore[assignment]
    try:
        yield found
    finally:
        Statements._execute = execute  # type: ignore[method-assign]


def numbered(sql: str) -> tuple[str, list[str]]:
    """Return a statement with the server's numbered parameters, and the names that these had for psycopg, in order."""
    names: dict[str, int] = {}

    def parameter(found: "re.Match[str]") -> str:
        return "%" if found[0] == "%%" else f"${names.setdefault(found[1], len(names) + 1)}"

    return re.sub(r"%%|%\((\w+)\)[sbt]", parameter, sql), list(names)


def wrong_plans(address: str, ran: Mapping[str, Ran]) -> dict[str, list[str]]:
    """Return what is wrong with the plans of statements, by name, once the server's statistics are up to date."""
    found: dict[str, list[str]] = {}
    with psycopg.connect(address, autocommit=True, cursor_factory=psycopg.ClientCursor) as connection:
        adapt(connection)
        connection.execute("ANALYZE")
        pages = {str(name): int(count) for name, count in connection.execute("SELECT relname, relpages FROM pg_class")}
        for number, (name, one) in enumerate(ran.items()):
            sql, names = numbered(one.sql)
            connection.execute(f"PREPARE plan_{number} AS {sql}".encode())
            for kind, mode in MODES.items():
                connection.execute(f"SET plan_cache_mode = {mode}")
                given = ", ".join(["%s"] * len(names))
                explain = f"EXPLAIN (FORMAT JSON) EXECUTE plan_{number} ({given})"
                plan = connection.execute(explain, [one.values[each] for each in names]).fetchall()[0][0]
                wrong = [f"{kind}: {fault}" for fault in faults(plan[0]["Plan"], pages)]
                if wrong:
                    found.setdefault(name, []).extend(wrong)
    return found


def nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the nodes of a plan."""
    yield plan
    for part in plan.get("Plans", ()):
        yield from nodes(part)


def faults(plan: dict[str, Any], pages: Mapping[str, int] | None = None) -> list[str]:
    """Return what a plan reads from another partition, or without an index on the session.

    Args:
        plan: as `EXPLAIN (FORMAT JSON)` returns it.
        pages: how large each table is. None: none may be read as a whole.
    """
    found = []
    scans = [node for node in nodes(plan) if "Scan" in node["Node Type"] and "Relation Name" in node]
    partitions = {part[0] for node in scans if (part := re.search(r"_\d+$", node["Relation Name"]))}
    if len(partitions) > 1:
        found.append(f"partitions {sorted(partitions)}")
    for node in nodes(plan):
        indexed = node["Node Type"] in ("Index Scan", "Index Only Scan", "Bitmap Index Scan")
        if indexed and "session" not in node.get("Index Cond", ""):
            found.append(f"{node.get('Index Name')} without the session")
        if node["Node Type"] == "Seq Scan" and (pages is None or pages.get(node["Relation Name"], 0) > SMALL):
            found.append(f"all of {node['Relation Name']}")
    return found
