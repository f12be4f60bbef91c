"""The store contract on a real PostgreSQL server, with the tables in one part and in several."""

from collections.abc import Callable, Iterator
from contextlib import closing

import pytest

from shared_core.store import Store
from shared_core.stores.postgres import PostgresStore
from shared_core.stores.postgres.schema import TABLES
from shared_core.testing import StoreContract
from tests.stores.postgres_server import Server

pytestmark = pytest.mark.server


@pytest.fixture(scope="module", params=[1, 32])
def open_store(request: pytest.FixtureRequest, server: Server) -> Callable[[], PostgresStore]:
    """Open another object on one schema, which is made once."""
    partitions = int(request.param)
    schema = f"contract {partitions}"
    return lambda: PostgresStore(server.address(), schema=schema, partitions=partitions)


@pytest.fixture
def store(open_store: Callable[[], PostgresStore], server: Server) -> Iterator[Store]:
    with closing(open_store()) as store:
        with store.database.writing() as statements:
            sessions = [session for (session,) in statements.run("SELECT session FROM {s}.names", None)]
            for table in (*TABLES, "names") if sessions else ():
                sql = f"DELETE FROM {{s}}.{table} WHERE session = ANY(%(sessions)s::bigint[])"
                statements.run(sql, None, {"sessions": sessions})
        yield store


class TestContract(StoreContract):
    @pytest.fixture
    def reopen(self, open_store: Callable[[], PostgresStore]) -> Callable[[], Store]:
        return open_store
