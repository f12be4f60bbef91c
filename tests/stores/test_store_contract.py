"""The store contract on SQLite: a file by default; `make soak` runs it in memory, too."""

import os
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from shared_core.store import Store
from shared_core.stores import SQLiteStore
from shared_core.testing import StoreContract


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

        @pytest.fixture
        def store(self) -> Iterator[Store]:
            with closing(SQLiteStore(":memory:")) as store:
                yield store
