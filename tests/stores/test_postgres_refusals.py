"""What PostgreSQL refuses: an error says what it is in seconds, shows no password, and nothing is half done."""

import logging
import os
import re
import socket
import subprocess
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from urllib.parse import quote

import psycopg
import pytest

from shared_core import PostgresStore
from shared_core.doors.cli.command import run as run_command
from shared_core.errors import StoreError, StoreUnavailableError
from shared_core.queries import After
from shared_core.records import MAIN
from shared_core.stores import open_store
from shared_core.stores.postgres.address import Address
from shared_core.stores.postgres.migrations import OLDEST_SERVER, unfit
from shared_core.stores.postgres.postgres_failures import is_passing, store_error
from shared_core.stores.postgres.postgres_schema import MIGRATIONS
from shared_core.testing.oracle import ALL, Session, draft, drafts
from tests.stores.postgres_server import Server

pytestmark = pytest.mark.server

PASSWORD = "p@ss/w:rd?"


@pytest.fixture(scope="module")
def strict(server: Server) -> Iterator[Server]:
    """The server, which asks the role `locked` for a password."""
    server.run("CREATE ROLE locked LOGIN PASSWORD 'another'")
    rules = server.folder / "pg_hba.conf"
    before = rules.read_text()
    rules.write_text(f"local all locked scram-sha-256\n{before}")
    server.control("reload")
    yield server
    rules.write_text(before)
    server.control("reload")


def test_a_server_that_starts_or_stops_is_unavailable(subtests: pytest.Subtests) -> None:
    rows: list[tuple[str, bool]] = [
        ("the database system is starting up", True),
        ("the database system is shutting down", True),
        ("the database system is in recovery mode", True),
        ("the database system is not yet accepting connections\nDETAIL:  Consistent recovery state has not been", True),
        ("the database system is not accepting connections\nDETAIL:  Hot standby mode is disabled.", True),
        ("sorry, too many clients already", True),
        ("remaining connection slots are reserved for roles with the SUPERUSER attribute", True),
        ('database "chats" is not currently accepting connections', False),
        ('password authentication failed for user "app"', False),
    ]
    for said, passes in rows:
        with subtests.test(said=said, passes=passes):
            error = psycopg.OperationalError(
                f'connection failed: connection to server on socket "/tmp" failed: FATAL:  {said}'
            )
            assert is_passing(error) is passes
            assert isinstance(store_error(error, "the store"), StoreUnavailableError) is passes


class Answering:
    """A server that gives each connection one answer and closes it.

    Args:
        answer: what it says after the first bytes of the client.
    """

    def __init__(self, answer: bytes) -> None:
        self._answer = answer
        self._socket = socket.create_server(("127.0.0.1", 0))
        self._thread = threading.Thread(target=self._serve)
        self.port = self._socket.getsockname()[1]
        self.asked = 0

    def _serve(self) -> None:
        while True:
            client, _ = self._socket.accept()
            with client:
                if not client.recv(4_096):
                    return
                self.asked += 1
                client.sendall(self._answer)

    @contextmanager
    def running(self) -> Iterator["Answering"]:
        self._thread.start()
        try:
            yield self
        finally:
            socket.create_connection(("127.0.0.1", self.port)).close()
            self._thread.join()
            self._socket.close()


PASSWORD_WANTED = b"R" + (8).to_bytes(4, "big") + (3).to_bytes(4, "big")
_SAID = "SKATASTROFALNY\0C28P01\0Mautoryzacja hasłem nie powiodła się\0\0".encode()
POLISH = b"E" + (len(_SAID) + 4).to_bytes(4, "big") + _SAID
"""A wrong password, as a server says it whose `lc_messages` is Polish."""


def test_a_mistake_in_the_address_is_told_at_once(subtests: pytest.Subtests) -> None:
    rows: list[tuple[bytes, str, int, str]] = [
        (PASSWORD_WANTED, "sslmode=disable", 1, "no password supplied"),
        (b"N", "sslmode=require", 1, "does not support SSL"),
        (b"S", "sslmode=verify-full&sslrootcert=/nowhere", 1, "root certificate file"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "sslmode=disable", 1, "expected authentication request"),
        (b"", "sslmode=maybe", 0, "invalid sslmode value"),
        (b"", "port=99999", 0, "invalid port number"),
        (b"", "service=none", 0, "service .* not found"),
        (POLISH, "sslmode=disable", 1, "autoryzacja hasłem"),
    ]
    for answer, arguments, asked, what in rows:
        with subtests.test(answer=answer, arguments=arguments, asked=asked, what=what):
            with Answering(answer).running() as server:
                address = f"postgresql://x@127.0.0.1:{server.port}/db?gssencmode=disable&{arguments}"
                with pytest.raises(StoreError, match=f"{what}.*; check the address and the server") as refused:
                    PostgresStore(address, retry_seconds=5)
            assert type(refused.value) is StoreError
            assert server.asked == asked


def test_a_server_that_ends_before_it_has_answered_is_waited_for() -> None:
    with Answering(b"").running() as server:
        address = f"postgresql://x@127.0.0.1:{server.port}/db?gssencmode=disable&sslmode=disable"
        with pytest.raises(StoreUnavailableError):
            PostgresStore(address, retry_seconds=0.1)
    assert server.asked > 1


@pytest.mark.parametrize(
    ("version", "encoding", "standby", "read_only", "why"),
    [
        (OLDEST_SERVER, "UTF8", False, False, None),
        (180_001, "UTF8", False, False, None),
        (149_999, "UTF8", False, False, "is PostgreSQL 14; use version 15 or newer"),
        (90_624, "UTF8", False, False, "is PostgreSQL 9; use version 15 or newer"),
        (150_000, "SQL_ASCII", False, False, "has the encoding SQL_ASCII; .*ENCODING 'UTF8'"),
        (150_000, "UTF8", True, True, "standby; give the address of the primary"),
        (150_000, "UTF8", False, True, "default_transaction_read_only is on"),
    ],
)
def test_a_server_that_does_not_fit_is_refused(
    version: int, encoding: str, standby: bool, read_only: bool, why: str | None
) -> None:
    found = unfit(version, encoding, standby=standby, read_only=read_only)
    assert found is None if why is None else re.search(why, found or "")


def test_a_server_that_does_not_answer_is_waited_for_a_few_seconds() -> None:
    assert "connect_timeout=5 " in Address("postgresql://h/d", statement_timeout=None)._conninfo
    assert "connect_timeout=9" in Address("postgresql://h/d?connect_timeout=9", statement_timeout=None)._conninfo


@pytest.mark.parametrize(
    ("user", "database", "host", "what"),
    [
        ("locked", "postgres", None, "password authentication failed"),
        ("locked", "none", None, "password authentication failed|does not exist"),
        ("nobody", "postgres", None, "does not exist"),
        ("postgres", "none", None, "does not exist"),
        ("locked", "postgres", "/nowhere", "cannot be used just now: .*; check the address, or try again"),
        ("locked", "postgres", "no.such.host.invalid", "cannot be used just now: .*; check the address, or try again"),
    ],
)
def test_a_wrong_address_is_named_without_the_password(
    strict: Server, user: str, database: str, host: str | None, what: str,
    caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    caplog.set_level(logging.DEBUG)
    place = quote(host or str(strict.folder), safe="")
    address = f"postgresql://{user}:{quote(PASSWORD, safe='')}@{place}/{database}?retry_seconds=0"
    with pytest.raises(StoreError, match=what) as refused:
        open_store(address)
    assert run_command(["sessions", "--store", address]) == 2
    said = capsys.readouterr()
    seen = [f"{refused.value!r} {refused.value} {refused.value.__cause__!r} {refused.traceback}", caplog.text]
    for shown in (*seen, said.out, said.err):
        assert PASSWORD not in shown
        assert quote(PASSWORD, safe="") not in shown


def test_a_store_does_not_show_its_password(strict: Server) -> None:
    strict.run(f"ALTER ROLE postgres PASSWORD '{PASSWORD}'")
    address = strict.address().replace("postgres@", f"postgres:{quote(PASSWORD, safe='')}@")
    with closing(PostgresStore(address, schema="shown")) as store:
        for one in (store, store.database, store.database._address, store.for_user("ann")):
            assert PASSWORD not in repr(one) + str(one)


def test_a_schema_that_is_too_new_is_left_alone(strict: Server) -> None:
    PostgresStore(strict.address(), schema="newer").close()
    ahead = len(MIGRATIONS) + 1
    strict.run(f"INSERT INTO newer.infinite_memory VALUES ({ahead}, 'ahead', {ahead}, 1)")
    tables = "SELECT relname, relnatts FROM pg_class WHERE relnamespace = 'newer'::regnamespace ORDER BY 1"
    before = strict.run(tables)
    with pytest.raises(StoreError, match="upgrade infinite-memory"):
        PostgresStore(strict.address(), schema="newer")
    assert strict.run(tables) == before


def test_a_right_that_is_missing_is_named(strict: Server) -> None:
    strict.run("CREATE ROLE reader LOGIN")
    with closing(PostgresStore(strict.address(), schema="rights")) as owner:
        key = Session(owner).key
        strict.run("GRANT USAGE ON SCHEMA rights TO reader; GRANT SELECT ON ALL TABLES IN SCHEMA rights TO reader")
        with closing(PostgresStore(strict.address(user="reader"), schema="rights")) as store:
            assert store.session(None, "s") == key
            with pytest.raises(StoreError):
                store.append(key, MAIN, drafts("u1"))
        assert owner.find(key, After(0, ALL)) == []


@pytest.fixture
def full_disk(strict: Server, tmp_path: Path) -> Iterator[str]:
    """The name of a database on a disk of 16 MB."""
    disk = Path("/tmp") / f"im-disk-{os.getpid()}"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=16m", "tmpfs", disk], capture_output=True, check=False
    )
    try:
        if mounted.returncode:
            pytest.skip(f"no small disk can be mounted: {mounted.stderr.decode().strip()}")
        owner = strict.folder.stat()
        os.chown(disk, owner.st_uid, owner.st_gid)
        strict.run(f"CREATE TABLESPACE small LOCATION '{disk}'")
        strict.run("CREATE DATABASE small TEMPLATE template0 ENCODING 'UTF8' TABLESPACE small")
        yield "small"
        strict.run("DROP DATABASE small WITH (FORCE)")
        strict.run("DROP TABLESPACE small")
    finally:
        if not mounted.returncode:
            subprocess.run(["umount", "--lazy", disk], check=True)
        disk.rmdir()


def test_a_full_disk_is_named_and_nothing_is_half_done(strict: Server, full_disk: str) -> None:
    stored: list[str] = []
    with closing(PostgresStore(strict.address(full_disk))) as store:
        key = Session(store).key

        def fill() -> None:
            for number in range(100):
                noise = os.urandom(250_000).hex()
                store.append(key, MAIN, [draft(f"u{number}", content=noise), draft(f"x{number}")])
                stored.extend([f"u{number}", f"x{number}"])

        with pytest.raises(StoreError, match="make room on the server's disk"):
            fill()
        assert stored
        assert [record.message.id for record in store.find(key, After(0, ALL))] == stored
        assert store.state(key, MAIN).last_seq == len(stored)
