"""The store contract on a SQLite file; `make soak` runs it in memory, and on a store over dictionaries, too."""

import os
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from shared_core.store import Store
from shared_core.stores import SQLiteStore
from shared_core.testing import StoreContract
from tests.stores.dict_store import DictStore


class TestFile(StoreContract):
    @pytest.fixture
    def reopen(self, tmp_path: Path) -> Callable[[], Store]:
        return lambda: SQLiteStore(tmp_path / "chat.db", durability="process")

    @pytest.fixture
    def store(self, reopen: Callable[[], Store]) -> Iterator[Store]:
        with closing(reopen()) as store:
            yield store


if os.environ.get("SOAK"):

    class TestFileOnDisk(TestFile):
        """Each commit waits for the disk."""

        @pytest.fixture
        def reopen(self, tmp_path: Path) -> Callable[[], Store]:
            return lambda: SQLiteStore(tmp_path / "chat.db")

    class TestInMemory(StoreContract):
        """The fixture `reopen`, as it is when a store does not override it, skips and says why."""

        @pytest.fixture(params=[lambda: SQLiteStore(":memory:"), DictStore], ids=["sqlite", "dict"])
        def store(self, request: pytest.FixtureRequest) -> Iterator[Store]:
            with closing(request.param()) as store:
                yield store
