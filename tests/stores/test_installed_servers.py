"""The store contract on another version of PostgreSQL and through PgBouncer, and a standby that becomes the primary.

`make servers` runs it, where Debian's packages `postgresql` and `pgbouncer` are installed.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import closing

import psycopg
import pytest

from shared_core.errors import StoreUnavailableError
from shared_core.queries import After
from shared_core.records import MAIN, Create, Position
from shared_core.store import Store
from shared_core.stores.postgres import PostgresStore
from shared_core.stores.postgres.connections import Pauses
from shared_core.stores.postgres.transactions import Writer
from shared_core.testing import StoreContract
from shared_core.testing.oracle import ALL, Session, drafts
from tests.stores.installed_servers import installed_server, pooler_of, standby_of
from tests.stores.postgres_server import Server
from tests.stores.test_postgres_contract import MANY, emptied

pytestmark = pytest.mark.server


@pytest.fixture(scope="module")
def installed() -> Iterator[Server]:
    with installed_server() as server:
        yield server


@pytest.fixture(scope="module")
def pooled(installed: Server) -> Iterator[str]:
    with pooler_of(installed) as address:
        yield address


class TestAnotherVersion(StoreContract):
    """With the tables in partitions."""

    @pytest.fixture
    def reopen(self, installed: Server) -> Callable[[], PostgresStore]:
        return lambda: PostgresStore(installed.address(), partitions=MANY)

    @pytest.fixture
    def store(self, reopen: Callable[[], PostgresStore]) -> Iterator[Store]:
        with closing(emptied(reopen())) as store:
            yield store


class TestPooler(StoreContract):
    """PgBouncer in transaction mode: two transactions of one connection may be on two of the server's."""

    @pytest.fixture
    def reopen(self, pooled: str) -> Callable[[], PostgresStore]:
        return lambda: PostgresStore(pooled, schema="pooled", statement_timeout=None, prepare=False)

    @pytest.fixture
    def store(self, reopen: Callable[[], PostgresStore]) -> Iterator[Store]:
        with closing(emptied(reopen())) as store:
            yield store


def test_row_security_holds_through_a_pooler(installed: Server, pooled: str) -> None:
    """The user is set for a transaction, so that the next one on that connection does not have it."""
    installed.run("CREATE ROLE web LOGIN")
    with closing(PostgresStore(installed.address(), schema="guarded")) as owner:
        owner.grant("web")
        keys = {user: owner.create_session(user, "s") for user in ("ann", "bob")}
    told = {"schema": "guarded", "statement_timeout": None, "prepare": False, "row_security": True}
    address = pooled.replace("/postgres?", "/as_web?")
    with closing(PostgresStore(address, **told)) as store:  # type: ignore[arg-type]
        for user in ("ann", "bob", "ann"):
            assert [one.key for one in store.for_user(user).sessions()] == [keys[user]]
            assert store.sessions() == []


def test_a_standby_that_is_promoted_has_all_that_was_acknowledged() -> None:
    """Under load; the address names both servers, and writers wait until one of them takes changes."""
    with installed_server() as primary, standby_of(primary) as standby:
        hosts = f"host={primary.folder},{standby.folder}&target_session_attrs=read-write"
        address = f"postgresql://postgres@/postgres?{hosts}"
        acknowledged: list[list[str]] = [[], [], []]
        enough = threading.Event()
        failed: list[BaseException] = []
        with closing(PostgresStore(address, retry_seconds=60)) as store:
            keys = [Session(store, f"s{number}").key for number in range(3)]

            def write(number: int) -> None:
                try:
                    for turn in range(10_000):
                        if enough.is_set():
                            return
                        store.append(keys[number], MAIN, drafts(f"u{turn}", f"a{turn}"))
                        acknowledged[number] += [f"u{turn}", f"a{turn}"]
                except BaseException as error:
                    failed.append(error)

            writers = [threading.Thread(target=write, args=(number,)) for number in range(3)]
            for writer in writers:
                writer.start()
            wait_for(lambda: min(map(len, acknowledged)) > 20)
            primary.control("stop", "-m", "immediate")
            standby.control("promote")
            before = [len(one) for one in acknowledged]
            wait_for(lambda: all(len(own) > least + 20 for own, least in zip(acknowledged, before, strict=True)))
            enough.set()
            for writer in writers:
                writer.join()
            assert failed == []
            for key, own in zip(keys, acknowledged, strict=True):
                found = store.find(key, After(0, ALL))
                assert [record.message.id for record in found] == own
                assert [record.seq for record in found] == list(range(1, len(own) + 1))


def test_a_change_that_a_standby_has_not_replayed_is_not_taken_for_undone(monkeypatch: pytest.MonkeyPatch) -> None:
    """The primary goes away with the answer; the standby, which has received the change, lags and is then promoted."""
    commit, wait = Writer.commit, Pauses.wait
    with installed_server() as primary, standby_of(primary) as standby:
        address = f"postgresql://postgres@/postgres?host={primary.folder},{standby.folder}"
        with closing(PostgresStore(address, retry_seconds=60)) as store:
            key = Session(store).key
            store.append(key, MAIN, drafts("u1"))
            standby.run("SELECT pg_wal_replay_pause()")
            wait_for(lambda: standby.run("SELECT pg_get_wal_replay_pause_state()") == [("paused",)])

            def lost(writer: Writer) -> None:
                monkeypatch.setattr(Writer, "commit", commit)
                commit(writer)
                primary.control("stop", "-m", "immediate")
                raise psycopg.OperationalError("consuming input failed")

            def promoting(pauses: Pauses) -> bool:
                monkeypatch.setattr(Pauses, "wait", wait)
                standby.control("promote")
                return wait(pauses)

            monkeypatch.setattr(Writer, "commit", lost)
            monkeypatch.setattr(Pauses, "wait", promoting)
            with pytest.raises(StoreUnavailableError):
                store.change(key, [Create("side", Position(0, 0))])
            assert [branch.name for branch in store.branches(key)] == [MAIN, "side"]


def wait_for(condition: Callable[[], bool]) -> None:
    """Wait for what writers reach in a moment; the time limit of the test ends it otherwise."""
    while not condition():
        threading.Event().wait(0.01)
