"""A PostgreSQL server, started when a test first needs it."""

from collections.abc import Iterator

import pytest

from tests.stores.postgres_server import Server, running_server


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    with running_server() as server:
        yield server


@pytest.fixture
def database(server: Server, request: pytest.FixtureRequest) -> Iterator[str]:
    """The name of an empty database."""
    name = f"db_{abs(hash(request.node.nodeid))}"
    server.run(f"CREATE DATABASE {name} TEMPLATE template0 ENCODING 'UTF8'")
    yield name
    server.run(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture
def address(server: Server, database: str) -> str:
    return server.address(database)
