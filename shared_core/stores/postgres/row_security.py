"""Row security: a role that owns nothing sees the rows of the user that a transaction is for, and no others."""

from typing import Any

from shared_core.errors import StoreError
from shared_core.stores.postgres.connections import Connection
from shared_core.stores.postgres.postgres_schema import NAMES, RECORD, TABLES
from shared_core.stores.postgres.transactions import Schema

_NOBODY = "n"
_SECURED = (
    "SELECT coalesce(bool_and(row_security_active(c.oid)), false), "
    "coalesce(bool_or(row_security_active(c.oid)), false) "
    "FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace "
    "WHERE n.nspname = %(name)s AND c.relname = ANY(%(tables)s::text[])"
)
_GRANTED = (
    "SELECT DISTINCT a.grantee::regrole::text FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace, "
    f"aclexplode(c.relacl) AS a WHERE n.nspname = %(name)s AND c.relname = '{NAMES}' AND c.relrowsecurity "
    "AND a.grantee NOT IN (0, c.relowner) AND a.privilege_type = 'INSERT'"
)


def setting_of(user_id: str | None) -> str:
    """Return what a transaction is told about the user it is for; None: nobody's sessions."""
    return _NOBODY if user_id is None else f"u{user_id}"


def check_security(connection: Connection, schema: Schema, label: str, *, wanted: bool) -> None:
    """Raise StoreError if all rows are seen where only a user's should be, or the other way round."""
    tables = [NAMES, *TABLES]
    rows: list[Any] = connection.execute(_SECURED, {"name": schema.name, "tables": tables}).fetchall()
    every, some = rows[0]
    user = connection.info.user
    if wanted and not every:
        raise StoreError(
            f"row_security=True: nothing keeps the role {user!r} to the rows of one user in the schema {schema.name!r} "
            f"of {label}; connect as a role that owns nothing and is no superuser, after grant() of a store that the "
            "owner opened has given it its rights"
        )
    if some and not wanted:
        raise StoreError(
            f"the role {user!r} sees only the rows of one user in the schema {schema.name!r} of {label}; open the "
            "store with row_security=True, or connect as the owner"
        )


def grant(connection: Connection, schema: Schema, quoted_role: str) -> None:
    """Let a role use the tables under row security, in a transaction of the caller's."""
    rights = [
        f"GRANT USAGE ON SCHEMA {{s}} TO {quoted_role}",
        f"GRANT USAGE ON SEQUENCE {{s}}.numbers TO {quoted_role}",
        f"GRANT SELECT ON {{s}}.{RECORD} TO {quoted_role}",
    ]
    for table in (NAMES, *TABLES):  # not on the partitions: the policies are those of the whole table
        rights.append(f"ALTER TABLE {{s}}.{table} ENABLE ROW LEVEL SECURITY")
        rights.append(f"GRANT SELECT, INSERT, UPDATE, DELETE ON {{s}}.{table} TO {quoted_role}")
    for statement in rights:
        connection.execute(schema.plain(statement))


def grant_again(connection: Connection, schema: Schema) -> None:
    """Let the roles that could use the tables use those, too, that a migration has just made."""
    for (role,) in connection.execute(_GRANTED, {"name": schema.name}).fetchall():
        grant(connection, schema, str(role))
