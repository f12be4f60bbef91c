"""Addresses of PostgreSQL: wherever a path works, with arguments, and never with a password in sight."""

import sys
from contextlib import closing
from pathlib import Path

import pytest

from shared_core import InfiniteMemory, Message, PostgresStore, SessionPool
from shared_core.doors.cli.command import run as run_command
from shared_core.errors import MissingExtraError, StoreError
from shared_core.stores import open_store, read_address, without_password
from shared_core.stores.addresses import split_arguments
from tests.stores.postgres_server import Server

pytestmark = pytest.mark.server


def test_an_address_works_wherever_a_path_does(
    address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with InfiniteMemory(address, session_id="a") as memory:
        memory.add([Message.user("My locker code is 4471."), Message.assistant("Noted.")])
    with closing(open_store(f"{address}&application_name=x")) as store:
        assert isinstance(store, PostgresStore)
        assert [one.session_id for one in store.sessions()] == ["a"]
    with SessionPool(address) as pool, pool.use("a") as memory:
        assert memory.newest(1)[0].content == "Noted."
    monkeypatch.setenv("INFINITE_MEMORY_STORE", address.replace("postgres@", "postgres:secret@"))
    monkeypatch.chdir(tmp_path)
    for command in ("sessions", "search locker --session a", "view --session a --out x.html"):
        assert run_command(command.split()) == 0
    assert run_command(["log", "--session", "none"]) == 1
    assert run_command(["doctor"]) == run_command(["stats"]) == 0
    said = capsys.readouterr()
    assert "4471" in said.out
    assert "postgres@" in said.err
    assert "secret" not in said.out + said.err


def test_arguments_are_part_of_an_address(address: str, server: Server, database: str) -> None:
    told = "&schema=a%26b&pool_size=2&partitions=3&statement_timeout=none&retry_seconds=0.5&prepare=false"
    with closing(open_store(address + told)) as store, closing(PostgresStore(address, schema="a&b")) as same:
        store.create_session(None, "s")
        assert [one.session_id for one in same.sessions()] == ["s"]
    assert server.run('SELECT DISTINCT partitions FROM "a&b".infinite_memory', database=database) == [(3,)]
    with pytest.raises(StoreError, match="row_security=True"):
        open_store(f"{address}&row_security=true")


def test_an_address_is_split_into_what_libpq_takes_and_what_the_store_does() -> None:
    assert split_arguments("postgresql://h/d") == ("postgresql://h/d", {})
    asked = "postgresql://h/d?sslmode=prefer&schema=a%20b&prepare=false&host=/tmp&statement_timeout=2.5&pool_size=4"
    rest = {"schema": "a b", "prepare": False, "statement_timeout": 2.5, "pool_size": 4}
    assert split_arguments(asked) == ("postgresql://h/d?sslmode=prefer&host=/tmp", rest)
    for wrong in ("pool_size=x", "prepare=1", "statement_timeout=", "row_security=True", "partitions=1.5"):
        with pytest.raises(ValueError, match=f"{wrong.partition('=')[0]}='.*': expected"):
            split_arguments(f"postgresql://h/d?{wrong}")


def test_a_password_is_not_shown() -> None:
    for address in ("postgresql://me:pa%40ss@host:5/db", "postgresql://me@host/db?password=pa%40ss&sslmode=prefer"):
        assert "pa%40" not in without_password(address)
        assert read_address(address) == address
    assert without_password("chat.db") == "chat.db"
    with pytest.raises(ValueError, match="special characters") as refused:
        open_store("postgresql://me:pass/word@host:5x/db")
    assert "pass/" not in str(refused.value)


def test_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    hidden = [name for name in sys.modules if name.startswith("shared_core.stores.postgres")]
    for name in hidden:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.delattr("shared_core.stores.postgres")
    monkeypatch.setattr("shared_core.errors.find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match=r"infinite-memory\[postgres\]"):
        open_store("postgresql://host/db")


def test_bad_arguments_are_named(address: str) -> None:
    for arguments in (
        {"schema": ""}, {"schema": "é" * 32}, {"schema": "a\0"}, {"pool_size": 0}, {"partitions": 0},
        {"partitions": 2000},
        {"statement_timeout": 0}, {"retry_seconds": -1},
    ):  # fmt: skip
        with pytest.raises(ValueError, match=next(iter(arguments))):
            PostgresStore(address, **arguments)
