"""The store contract on another version of PostgreSQL and through PgBouncer, and a standby that becomes the primary.

`make servers` runs it, where Debian's packages `postgresql` and `pgbouncer` are installed.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import closing

import psycopg
import pytest

from shared_core.errors import StoreUnavailableError
from shared_core.records import MAIN, After, Create, Position
from shared_core.store import Store
from shared_core.stores.postgres import PostgresStore
from shared_core.stores.postgres.connections import Pauses
from shared_core.stores.postgres.transactions import Writer
from shared_core.testing import StoreContract
from shared_core.testing.oracle import ALL, Session, drafts
from tests.stores.installed_servers import installed_server, pooler_of, standby_of
from tests.stores.postgres_server import Server
from tests.stores.test_postgres_contract import MANY, emptied
from tests.stores.test_same_prompts import expected, prompts

pytestmark = pytest.mark.server


@pytest.fixture(scope="module")
def installed() -> Iterator[Server]:
    with installed_server() as server:
        yield server


@pytest.fixture(scope="module")
def pooled(installed: Server) -> Iterator[str]:
    with pooler_of(installed) as address:
        yield address


@pytest.fixture(scope="module")
def owner(installed: Server) -> Iterator[PostgresStore]:
    """The store of the owner of tables that the role `app` may use, each user for themselves."""
    installed.run("CREATE ROLE app LOGIN")
    with closing(PostgresStore(installed.address(), schema="secured", partitions=3)) as owner:
        owner.grant("app")
        yield owner


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


class ForApp(PostgresStore):
    """The store of the role, where the owner vacuums; the role may not."""

    owner: PostgresStore

    def scrub(self) -> str | None:
        return self.owner.scrub()


OF_SEVERAL_USERS = {
    "test_a_name_of_no_messages_is_swapped",
    "test_a_renamed_session_keeps_everything",
    "test_a_session_exists_from_its_creation_on",
    "test_a_session_is_brought_as_it_was",
    "test_an_import_that_is_given_up_hides_no_change",
    "test_any_changes_of_two_objects_are_told_to_whoever_asks",
    "test_any_two_objects_create_one_session",
    "test_no_two_sessions_share_anything",
    "test_one_session_does_not_see_another",
    "test_sessions_are_described",
    "test_the_states_of_main_are_those_of_sessions_that_have_messages_there",
    "test_users_and_sessions_are_read_by_pages",
    "test_users_are_known",
    "test_what_is_new_on_main_comes_for_many_sessions_at_once",
    "test_what_is_undone_is_not_taken_for_read",
    "test_what_was_told_may_be_asked_for_again",
    "test_whoever_asks_for_changes_knows_what_is_on_every_main",
}
"""Tests of the contract in which one store holds sessions of several users."""


class TestRowSecurity(StoreContract):
    """As a role that owns nothing, for one user: nobody, whose sessions those of the contract are."""

    @pytest.fixture
    def reopen(self, installed: Server, owner: PostgresStore) -> Callable[[], Store]:
        def opened() -> Store:
            store = ForApp(installed.address(user="app"), schema="secured", row_security=True)
            store.owner = owner
            return store.for_user(None)

        return opened

    @pytest.fixture
    def store(
        self, owner: PostgresStore, reopen: Callable[[], Store], request: pytest.FixtureRequest
    ) -> Iterator[Store]:
        assert set(dir(StoreContract)) >= OF_SEVERAL_USERS
        if request.function.__name__ in OF_SEVERAL_USERS:
            pytest.skip("the store of a user sees nobody else's sessions: test_row_security has what it does")
        emptied(owner)
        with closing(reopen()) as store:
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


@pytest.mark.parametrize("kind", ["another version", "pooler"])
def test_prompts_and_reports_are_those_of_sqlite(installed: Server, request: pytest.FixtureRequest, kind: str) -> None:
    """The example conversation, also in 32 partitions of version 15, and through PgBouncer."""
    if kind == "pooler":
        store = PostgresStore(
            request.getfixturevalue("pooled"), schema="same prompts", statement_timeout=None, prepare=False
        )
    else:
        store = PostgresStore(installed.address(), schema="same prompts in parts", partitions=MANY)
    with closing(store):
        assert prompts(store) == expected()


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


def test_a_server_that_stays_away_is_unavailable() -> None:
    """Behind a pooler that has no server, too."""
    with installed_server() as server, pooler_of(server) as address:
        arguments = {"statement_timeout": None, "prepare": False, "retry_seconds": 0.1}
        with closing(PostgresStore(address, **arguments)) as store:  # type: ignore[arg-type]
            key = Session(store).key
            server.control("stop", "-m", "immediate")
            with pytest.raises(StoreUnavailableError):
                store.append(key, MAIN, drafts("u1"))
            server.control("start")
            store.database._seconds = 60
            store.append(key, MAIN, drafts("u2"))
            assert [record.message.id for record in store.find(key, After(0, ALL))] == ["u2"]
