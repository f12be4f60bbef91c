"""The addresses of stores: what each kind looks like, and how it is shown to people."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import unquote

SQLITE = "sqlite:///"
SERVERS = ("postgresql", "postgres")
"""The kinds of address that are handed to PostgreSQL as they are."""

_PASSWORD = re.compile(r"(?<=://)([^/?#@:]*):[^/?#]*@|((?:^|[?&])password=)[^&]*")


def read_address(store: str | Path) -> Path | str:
    """Return where a store is: the path of a file, or the address of a PostgreSQL database.

    Args:
        store: a path or `sqlite:///path`, in which a leading `~` is your home; or `postgresql://…`.

    Raises:
        ValueError: the address is empty, or of a kind that this version does not know.
    """
    if isinstance(store, str):
        if not store:
            raise ValueError("store='': expected the path of a database file; None keeps everything in memory")
        path = store.removeprefix(SQLITE)
        kind, separator, _ = path.partition("://")
        if separator and kind in SERVERS:
            return path
        if separator:
            raise ValueError(
                f"store='{kind}://…': this version knows SQLite and PostgreSQL; give a path, sqlite:///path, "
                "postgresql://user@host/database, or a Store"
            )
        store = path
    return Path(store).expanduser()


def _flag(value: str) -> bool:
    return {"true": True, "false": False}[value]


def _seconds(value: str) -> float | None:
    return None if value == "none" else float(value)


_ARGUMENTS: dict[str, tuple[Callable[[str], Any], str]] = {
    "schema": (str, "a name"),
    "pool_size": (int, "a whole number"),
    "partitions": (int, "a whole number"),
    "statement_timeout": (_seconds, "seconds or none"),
    "retry_seconds": (float, "seconds"),
    "prepare": (_flag, "true or false"),
    "row_security": (_flag, "true or false"),
}
"""The parameters of an address that are arguments of `PostgresStore`; the others are libpq's."""


def split_arguments(address: str) -> tuple[str, dict[str, Any]]:
    """Return the address of a PostgreSQL database as libpq takes it, and the arguments of `PostgresStore` it holds.

    Raises:
        ValueError: such an argument is not of its type.
    """
    place, _, parameters = address.partition("?")
    others: list[str] = []
    found: dict[str, Any] = {}
    for parameter in parameters.split("&") if parameters else ():
        name, _, value = parameter.partition("=")
        if name not in _ARGUMENTS:
            others.append(parameter)
            continue
        read, expected = _ARGUMENTS[name]
        try:
            found[name] = read(unquote(value))
        except (KeyError, ValueError):
            raise ValueError(f"store='postgresql://…': {name}={unquote(value)!r}: expected {expected}") from None
    return f"{place}?{'&'.join(others)}" if others else place, found


def without_password(store: str | Path) -> str:
    """Return an address as it may be shown: one of a server without its password."""
    return _PASSWORD.sub(lambda found: f"{found[2]}…" if found[2] else f"{found[1]}@", str(store))
