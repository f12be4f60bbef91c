"""The address of a PostgreSQL database, which no message shows with its password."""

from typing import Any

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from shared_core.stores.postgres.connections import Connection

_SECONDS = 5
"""How long a server may take to accept a connection, unless the address says otherwise (`connect_timeout`)."""


class Address:
    """Where a database is.

    Args:
        address: `postgresql://user:password@host:port/database`, with whatever else libpq takes.
        statement_timeout: the seconds that a statement may take; None: as the server has it.

    Raises:
        ValueError: libpq cannot read it.
    """

    def __init__(self, address: str, *, statement_timeout: float | None) -> None:
        given = _read(address)
        defaults: dict[str, Any] = {"connect_timeout": _SECONDS, "application_name": "infinite-memory"}
        given = defaults | given | {"client_encoding": "UTF8"}
        if statement_timeout is not None:
            limit = f"-c statement_timeout={max(1, round(statement_timeout * 1000))}"
            given["options"] = f"{given.get('options') or ''} {limit}".strip()
        self._conninfo = make_conninfo("", **given)
        self.label = _label(given)

    def connect(self, *, prepare: bool) -> Connection:
        """Return a new connection in autocommit mode; `prepare`: whether statements that come often are prepared.

        Raises:
            psycopg.Error: there is none to be had.
        """
        return psycopg.connect(self._conninfo, autocommit=True, prepare_threshold=5 if prepare else None)


def _read(address: str) -> dict[str, Any]:
    try:
        given: dict[str, Any] = conninfo_to_dict(address)
    except psycopg.ProgrammingError:
        given = {"port": "?"}
    # A password with a special character spills into what comes after it; no message may repeat that.
    ports = str(given.get("port") or "0").split(",")
    if not all(port.isdecimal() or not port for port in ports) or "@" in f"{given.get('host')}{given.get('dbname')}":
        raise ValueError(
            "store='postgresql://…': this address cannot be read; write postgresql://user:password@host:5432/database, "
            "and special characters in the password with % (%40 for @)"
        ) from None
    return given


def _label(given: dict[str, Any]) -> str:
    user = f"{given['user']}@" if given.get("user") else ""
    port = f":{given['port']}" if given.get("port") else ""
    return f"'postgresql://{user}{given.get('host') or ''}{port}/{given.get('dbname') or ''}'"
