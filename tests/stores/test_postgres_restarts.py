"""A server that restarts, crashes or goes away: nothing is lost, doubled or half done."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from typing import Any

import psycopg
import pytest

from shared_core import PostgresStore
from shared_core.errors import DuplicateError, StoreError, StoreUnavailableError
from shared_core.queries import After
from shared_core.records import MAIN, Create, Position
from shared_core.stores.postgres.connections import Pauses
from shared_core.stores.postgres.transactions import Statements, Writer
from shared_core.stores.statements import Statement
from shared_core.testing.oracle import Session, drafts
from tests.stores.postgres_server import Server, running_server
from tests.support.histories import stored_ids

pytestmark = pytest.mark.server


@pytest.fixture(scope="module")
def fragile() -> Iterator[Server]:
    """A server of its own, to be stopped and started again."""
    with running_server() as server:
        yield server


def test_a_restart_costs_nothing_but_time(fragile: Server) -> None:
    with closing(PostgresStore(fragile.address(), schema="restart", retry_seconds=60)) as store:
        key = Session(store).key
        store.append(key, MAIN, drafts("u1"))
        fragile.control("restart", "-m", "immediate")
        assert stored_ids(store, key) == ["u1"]
        fragile.control("restart", "-m", "fast")
        assert store.append(key, MAIN, drafts("u2")).head == Position(0, 1)


def test_while_the_server_is_away_nothing_is_half_done(fragile: Server) -> None:
    with closing(PostgresStore(fragile.address(), schema="away", retry_seconds=0.1)) as store:
        key = Session(store).key
        store.append(key, MAIN, drafts("u1"))

        def half_of_it() -> None:
            with store.transaction():
                store.append(key, MAIN, drafts("u2"))
                fragile.control("stop", "-m", "immediate")
                store.append(key, MAIN, drafts("u3"))

        with pytest.raises(StoreUnavailableError):
            half_of_it()
        for call in (lambda: store.state(key), lambda: store.append(key, MAIN, drafts("u4"))):
            with pytest.raises(StoreUnavailableError):
                call()
        fragile.control("start")
        store.append(key, MAIN, drafts("u5"))
        assert stored_ids(store, key) == ["u1", "u5"]


def test_a_store_is_opened_when_the_server_is_back(fragile: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """As when both start at the same time; without time to wait, it fails at once."""
    wait = Pauses.wait

    def starting(pauses: Pauses) -> bool:
        monkeypatch.setattr(Pauses, "wait", wait)
        fragile.control("start")
        return wait(pauses)

    fragile.control("stop", "-m", "fast")
    with pytest.raises(StoreUnavailableError):
        PostgresStore(fragile.address(), schema="opened", retry_seconds=0)
    monkeypatch.setattr(Pauses, "wait", starting)
    with closing(PostgresStore(fragile.address(), schema="opened", retry_seconds=60)) as store:
        assert store.sessions() == []


@pytest.mark.parametrize("end", [(Writer, "commit"), (Statements, "at_once")], ids=["locked", "at once"])
def test_a_change_that_nobody_can_tell_of_is_said_so(
    fragile: Server, end: tuple[type[Statements], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server goes away with the answer to a change, and does not come back in time."""
    with closing(PostgresStore(fragile.address(), schema=f"lost {end[1]}", retry_seconds=0.1)) as store:
        key, changes = Session(store).key, [] if end[0] is Statements else [Create("side", Position(0, -1))]

        def lost(*_: object) -> None:
            fragile.control("stop", "-m", "immediate")
            raise psycopg.OperationalError("consuming input failed")

        with monkeypatch.context() as broken:
            broken.setattr(*end, lost)
            with pytest.raises(StoreUnavailableError):
                store.append(key, MAIN, drafts("u1"), changes=changes)
        fragile.control("start")
        store.append(key, MAIN, drafts("u1", "a1"))
        assert stored_ids(store, key) == ["u1", "a1"]


@pytest.mark.parametrize("taken", [False, True])
def test_after_a_crash_the_number_of_a_lost_transaction_may_be_that_of_another(
    fragile: Server, taken: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that crashes before it has written anything of a change gives its number again."""
    fragile.run("ALTER SYSTEM SET wal_writer_delay = '10s'")
    fragile.control("reload")
    with closing(PostgresStore(fragile.address(), schema=f"crash {taken}", retry_seconds=60)) as store:
        key = Session(store).key
        store.append(key, MAIN, drafts("u1"))
        commit = Writer.commit

        def crashing(writer: Writer) -> None:
            monkeypatch.setattr(Writer, "commit", commit)
            fragile.control("restart", "-m", "immediate")
            assert not taken or fragile.run("SELECT pg_current_xact_id()::text") == [(writer.number,)]
            writer.commit()

        monkeypatch.setattr(Writer, "commit", crashing)
        if taken:
            with pytest.raises(StoreUnavailableError):
                store.change(key, [Create("side", Position(0, 0))])
        else:
            store.change(key, [Create("side", Position(0, 0))])
        assert [branch.name for branch in store.branches(key)] == [MAIN, *([] if taken else ["side"])]


def test_a_standby_is_refused_and_one_that_becomes_the_primary_is_waited_for(fragile: Server) -> None:
    with closing(PostgresStore(fragile.address(), schema="standby", retry_seconds=0.1)) as store:
        key = Session(store).key
        fragile.control("stop", "-m", "fast")
        (fragile.folder / "standby.signal").touch()
        fragile.control("start")
        with pytest.raises(StoreError, match="read-only standby"):
            PostgresStore(fragile.address(), schema="standby")
        assert stored_ids(store, key) == []
        with pytest.raises(StoreUnavailableError, match="recovery"):
            store.append(key, MAIN, drafts("u1"))
        fragile.control("promote")
        store.append(key, MAIN, drafts("u2"))
        assert stored_ids(store, key) == ["u2"]


@pytest.mark.parametrize("happened", [True, False])
def test_a_commit_whose_answer_is_lost_happens_once(
    address: str, server: Server, database: str, happened: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The connection breaks just before or just after the commit; either way the branch is created once."""
    with closing(PostgresStore(address)) as store:
        key = Session(store).key
        commit, broken = Writer.commit, list[str | None]()

        def lossy(writer: Writer) -> None:
            if happened:
                commit(writer)
            if not broken:
                broken.append(writer.number)
                server.run(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s AND pid <> "
                    "pg_backend_pid() AND application_name = 'infinite-memory'", database,
                )  # fmt: skip
                raise psycopg.OperationalError("consuming input failed")
            if not happened:
                commit(writer)

        monkeypatch.setattr(Writer, "commit", lossy)
        appended = store.append(key, "side", drafts("u1"), at=Position(0, -1))
        assert appended.added == {"u1"}
        assert len(broken) == 1
        assert [branch.name for branch in store.branches(key)] == [MAIN, "side"]
        assert stored_ids(store, key) == ["u1"]
        with pytest.raises(DuplicateError):
            store.append(key, "side", drafts("u2"), at=Position(0, -1))


@pytest.mark.parametrize("happened", [True, False])
def test_what_is_stored_at_once_is_stored_once_whether_or_not_its_answer_arrives(
    address: str, happened: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Known or not known before, and if another object stores something meanwhile."""
    with closing(PostgresStore(address)) as store, closing(PostgresStore(address)) as other:
        session = Session(store)
        at_once, left, meanwhile = Statements.at_once, list[int](), list[Callable[[], object]]()

        def lossy(reader: Statements, statements: Sequence[Statement]) -> list[Any]:
            lost = left.pop() if left else 0
            done = at_once(reader, statements) if happened or not lost else []
            if meanwhile:
                meanwhile.pop()()
            if lost:
                raise psycopg.OperationalError("consuming input failed")
            return done

        monkeypatch.setattr(Statements, "at_once", lossy)
        for number, known in enumerate((False, True, True)):
            knows = session.known(MAIN) if known else None
            left[:] = [1] if happened else [1, 1]
            added = session.append(MAIN, drafts(f"u{number}", f"a{number}"), known=knows).added
            assert added == {f"u{number}", f"a{number}"}
            assert not left
        session.check()
        left[:] = [1]
        meanwhile[:] = [lambda: other.append(session.key, MAIN, drafts("u8"))]
        store.append(session.key, MAIN, drafts("u9"), known=session.known(MAIN))
        expected = ["u9", "u8"] if happened else ["u8", "u9"]
        assert stored_ids(store, session.key)[-2:] == expected
        assert [r.seq for r in store.find(session.key, After(0, 99))] == list(range(1, 9))
