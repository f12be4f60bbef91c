"""Servers that a person installs, such as Debian's: another version of PostgreSQL, standbys of it, and PgBouncer."""

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest

from tests.stores.postgres_server import SETTINGS, Server

_PROGRAMS = Path("/usr/lib/postgresql")
_POOLER = """
[databases]
postgres = host={folder} user=postgres
as_web = host={folder} user=web dbname=postgres

[pgbouncer]
listen_addr =
listen_port = 6432
unix_socket_dir = {own}
auth_type = any
pool_mode = transaction
default_pool_size = 20
max_client_conn = 200
query_wait_timeout = 2
server_login_retry = 1
logfile = {own}/log
"""


def programs() -> Path:
    """Return the folder of the newest PostgreSQL that is installed; skip the test if there is none."""
    found = sorted(_PROGRAMS.glob("*/bin/initdb"), key=lambda path: float(path.parts[-3]))
    if not found:
        pytest.skip("no PostgreSQL is installed: apt-get install postgresql pgbouncer")
    return found[-1].parent


def run(*command: str | Path) -> None:
    """Run a program as a user that servers may be run by."""
    user = "postgres" if os.getuid() == 0 else None
    done = subprocess.run(command, check=False, user=user, capture_output=True, cwd="/", timeout=120)
    assert not done.returncode, (command, done.stdout.decode(), done.stderr.decode())


@contextmanager
def own_folder() -> Iterator[Path]:
    """Make a folder of the user that runs servers, and remove it at the end."""
    folder = Path(tempfile.mkdtemp(prefix="im-pg-", dir="/tmp"))
    if os.getuid() == 0:
        shutil.chown(folder, "postgres", "postgres")
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def pg_ctl(arguments: Sequence[str]) -> None:
    run(programs() / "pg_ctl", *arguments)


@contextmanager
def started(folder: Path) -> Iterator[Server]:
    """Run a server whose data are there."""
    server = Server(folder, pg_ctl)
    try:
        server.control("start")
    except AssertionError as error:
        raise AssertionError((folder / "log").read_text(encoding="utf-8")) from error
    try:
        yield server
    finally:
        if (folder / "postmaster.pid").exists():
            server.control("stop", "-m", "immediate")


@contextmanager
def installed_server() -> Iterator[Server]:
    """Run the installed PostgreSQL, in a folder of its own."""
    initdb = programs() / "initdb"
    with own_folder() as folder:
        run(initdb, "-D", folder / "data", "-U", "postgres", "-E", "UTF8", "--no-locale", "-A", "trust", "--no-sync")
        with (folder / "data" / "postgresql.conf").open("a") as settings:
            settings.write(f"{SETTINGS}\nmax_connections = 120\n")
        with started(folder / "data") as server:
            yield server


@contextmanager
def standby_of(primary: Server) -> Iterator[Server]:
    """Run a standby that the primary waits for with each commit."""
    with own_folder() as folder:
        link = f"host={primary.folder} user=postgres application_name=standby"
        run(programs() / "pg_basebackup", "-d", link, "-D", folder / "data", "-R", "-X", "stream", "-c", "fast", "-N")
        (folder / "data" / ".s.PGSQL.5432.lock").unlink()  # it is the primary's, whose socket is among its data
        with started(folder / "data") as standby:
            primary.run("ALTER SYSTEM SET synchronous_standby_names = 'standby'")
            primary.control("reload")
            while primary.run("SELECT sync_state FROM pg_stat_replication") != [("sync",)]:
                time.sleep(0.05)
            yield standby


@contextmanager
def pooler_of(server: Server) -> Iterator[str]:
    """Run PgBouncer before a server, in transaction mode; yield the address of the database `postgres` there."""
    program = shutil.which("pgbouncer", path=f"{os.environ['PATH']}:/usr/sbin")
    if program is None:
        pytest.skip("PgBouncer is not installed: apt-get install pgbouncer")
    with own_folder() as own:
        settings = own / "pgbouncer.ini"
        settings.write_text(_POOLER.format(folder=server.folder, own=own))
        user = "postgres" if os.getuid() == 0 else None
        process = subprocess.Popen([program, "--quiet", settings], user=user, cwd="/")
        address = f"postgresql://postgres@/postgres?host={own}&port=6432"
        try:
            _wait_for(address)
            yield address
        finally:
            process.terminate()
            process.wait()


def _wait_for(address: str) -> None:
    for _ in range(200):
        try:
            psycopg.connect(address).close()
            return
        except psycopg.OperationalError:
            time.sleep(0.05)
    psycopg.connect(address).close()
