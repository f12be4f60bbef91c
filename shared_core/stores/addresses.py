"""The addresses of stores: what each kind looks like, and how it is shown to people."""

import re
from pathlib import Path

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


def without_password(store: str | Path) -> str:
    """Return an address as it may be shown: one of a server without its password."""
    return _PASSWORD.sub(lambda found: f"{found[2]}…" if found[2] else f"{found[1]}@", str(store))
