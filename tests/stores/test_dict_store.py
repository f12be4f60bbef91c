"""The seam under the tree: a store that implements only rows, on plain dicts, keeps the whole contract."""

from collections.abc import Iterator

import pytest

from shared_core.store import Store
from shared_core.testing import StoreContract
from tests.stores.dict_store import DictStore


class TestRowsAreEnough(StoreContract):
    @pytest.fixture
    def store(self) -> Iterator[Store]:
        store = DictStore()
        yield store
        store.close()
