"""Sessions that an import fills step by step, and that nobody sees until it is done."""

import uuid
from collections.abc import Mapping

from shared_core.errors import StoreError
from shared_core.stores.postgres.schema import TABLES
from shared_core.stores.postgres.texts import FORM, MARK, text
from shared_core.stores.postgres.tree_tables import TreeTables

ABANDONED = "1 day"
"""A stage that is older was left by an import that was killed."""

REMOVED = 10_000
"""Rows of a table that are removed in one transaction."""


def insert_stage(rows: TreeTables, user_id: str | None = None) -> int:
    """Insert a session of a user that is not listed; return its key."""
    session = rows.claim_session(user_id, f"{MARK} import {uuid.uuid4()}", listed=False)
    assert session is not None
    return session


def name_stages(rows: TreeTables, names: Mapping[int, tuple[str | None, str]]) -> bool:
    """Give stages the users and names of sessions; return False, and do nothing, if one of these exists by now.

    Raises:
        StoreError: a stage was removed, as after a day.
    """
    if any(rows.session(*name) is not None for name in names.values()):
        return False
    sql = (
        "UPDATE {s}.names SET user_id = %(user)s, session_id = %(name)s, listed = true "
        "WHERE session = %(session)s AND NOT listed"
    )
    for session, (user_id, session_id) in names.items():
        if not rows.count_rows(sql, session, {"user": FORM.optional(user_id), "name": text(session_id)}):
            raise StoreError("what was imported so far was removed, because the import took a day; import again")
        named = "UPDATE {s}.sessions SET owner = %(user)s, changed = DEFAULT WHERE session = %(session)s"
        rows.run(named, session, {"user": FORM.optional(user_id)})
    return True


def abandoned(rows: TreeTables) -> list[int]:
    """Return the stages that killed imports left."""
    sql = f"SELECT session FROM {{s}}.names WHERE NOT listed AND created_at < now() - interval '{ABANDONED}'"
    return [int(session) for (session,) in rows.run(sql, None)]


def remove_part(rows: TreeTables, session: int) -> bool:
    """Remove some of a stage; return whether it is gone. It is left alone once it is listed."""
    found = rows.run("SELECT 1 FROM {s}.names WHERE session = %(session)s AND NOT listed", session)
    if not found:
        return True
    for table in TABLES[::-1]:
        sql = (
            f"DELETE FROM {{s}}.{table} WHERE session = %(session)s AND ctid = ANY(ARRAY(SELECT ctid "
            f"FROM {{s}}.{table} WHERE session = %(session)s LIMIT {REMOVED}))"
        )
        if rows.count_rows(sql, session) == REMOVED:
            return False
    rows.run("DELETE FROM {s}.names WHERE session = %(session)s", session)
    return True
