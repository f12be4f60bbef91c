"""A conversation with two branches, and the whole content of a store as plain data."""

from collections.abc import Collection
from typing import Any

from shared_core import InfiniteMemory, Message
from shared_core.records import MAIN
from shared_core.stores import SQLiteStore
from tests.support.histories import ids

__all__ = ["Rows", "changed", "parted", "path", "rows", "said", "say"]

Rows = dict[str, set[tuple[Any, ...]]]
"""Table -> its rows."""


def path(memory: InfiniteMemory) -> list[str | None]:
    """Return the ids of the branch, oldest first."""
    return ids(memory.messages())


def said(id_: str, content: str | None = None, **fields: Any) -> Message:
    """Return a message; its id begins with u, r, t or s, for a user's, a reply, a tool's or a system message."""
    roles = {"u": "user", "r": "assistant", "t": "tool", "s": "system"}
    return Message.model_validate({"role": roles[id_[0]], "content": content or f"says {id_}", "id": id_, **fields})


def say(memory: InfiniteMemory, *names: str) -> None:
    """Add messages."""
    memory.add([said(name) for name in names])


def parted(memory: InfiniteMemory, *, ahead: bool = True) -> None:
    """Main says u1 r1, side u2 r2 u3 r3 after it, and main, if it is ahead, u4 r4."""
    say(memory, "u1", "r1")
    memory.fork("side")
    say(memory, "u2", "r2", "u3", "r3")
    memory.checkout(MAIN)
    if ahead:
        say(memory, "u4", "r4")


def rows(store: SQLiteStore, without: Collection[str] = ()) -> Rows:
    """Return every row of every table, without some columns."""
    tables = [name for (name,) in store._db.query("SELECT name FROM sqlite_master WHERE type = 'table'")]
    found = {}
    for table in tables:
        columns = [f'"{row[1]}"' for row in store._db.query(f"PRAGMA table_info({table})") if row[1] not in without]
        if not table.startswith("sqlite_"):
            found[table] = set(store._db.query(f"SELECT {', '.join(columns)} FROM {table}"))
    return found


def changed(before: Rows, after: Rows) -> dict[str, tuple[int, int]]:
    """Return table -> how many rows are new and how many gone, of the tables that have changed; a change is both."""
    counts = {table: (len(after[table] - before[table]), len(before[table] - after[table])) for table in before}
    return {table: count for table, count in counts.items() if count != (0, 0)}
