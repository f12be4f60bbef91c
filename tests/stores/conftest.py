"""A PostgreSQL server, started when a test first needs it."""

from collections.abc import Iterator

import pytest

from tests.stores.postgres_server import Server, running_server


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    with running_server() as server:
        yield server
