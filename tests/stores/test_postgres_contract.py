"""The store contract on a real PostgreSQL server; `make soak` runs it with the tables in partitions, too."""

import os
from collections.abc import Callable, Iterator
from contextlib import closing

import pytest

from shared_core.store import Store
from shared_core.stores.postgres import PostgresStore
from shared_core.stores.postgres.postgres_schema import TABLES
from shared_core.testing import StoreContract
from tests.stores.postgres_server import Server

pytestmark = pytest.mark.server

MANY = 32
"""Partitions, as a large service has them."""


def emptied(store: PostgresStore) -> PostgresStore:
    """Return a store without what tests have left in it; to create the tables anew would take minutes in all."""
    with store.database.writing() as statements:
        sessions = [session for (session,) in statements.run("SELECT session FROM {s}.names", None)]
        for table in (*TABLES, "names") if sessions else ():
            sql = f"DELETE FROM {{s}}.{table} WHERE session = ANY(%(sessions)s::bigint[])"
            statements.run(sql, None, {"sessions": sessions})
    return store


class OnServer:
    """Opens stores on one schema, which is made once."""

    partitions = 1

    @pytest.fixture
    def reopen(self, server: Server) -> Callable[[], PostgresStore]:
        arguments = {"schema": f"contract {self.partitions}", "partitions": self.partitions}
        return lambda: PostgresStore(server.address(), **arguments)  # type: ignore[arg-type]

    @pytest.fixture
    def store(self, reopen: Callable[[], PostgresStore]) -> Iterator[Store]:
        with closing(emptied(reopen())) as store:
            yield store


class TestContract(OnServer, StoreContract):
    """All of it."""


if os.environ.get("SOAK"):

    class TestContractInPartitions(OnServer, StoreContract):
        """With the tables split by session."""

        partitions = MANY
