"""Companions: each store has one of its own, for as long as it exists."""

import gc
from contextlib import closing

from shared_core import SQLiteStore
from shared_core.runtime.companions import Companions


def test_a_store_has_one_companion_that_ends_with_it() -> None:
    ended: list[list[int]] = []
    companions = Companions(lambda store: [store.connections], ended.append)
    with closing(SQLiteStore(":memory:")) as other:
        with closing(SQLiteStore(":memory:")) as store:
            known = companions.of(store)
            assert companions.of(store) is known
            assert companions.of(other) is not known
        assert ended == []
        del store
        gc.collect()
        assert [one is known for one in ended] == [True]
        assert companions.of(other) is companions.of(other)
    assert len(ended) == 1
