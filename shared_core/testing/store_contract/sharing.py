"""The store contract on sharing: threads, other objects on the same database, and the end."""

from collections.abc import Callable
from threading import Thread

import pytest

from shared_core.errors import StoreError
from shared_core.records import MAIN, After, Position, Snapshot, VectorRows
from shared_core.store import Store
from shared_core.testing.oracle import ALL, Session, draft, drafts
from shared_core.testing.store_contract.samples import RICH

__all__ = ["SharingContract"]


class SharingContract:
    """What a store does for several threads and objects, and when it is closed."""

    @pytest.fixture
    def reopen(self) -> Callable[[], Store]:
        """Skip what needs a second object; override it in a store that has a place outside the process."""
        pytest.skip("this store cannot be opened twice")

    def test_threads_share_a_store(self, store: Store) -> None:
        """Appends from several threads get one gapless order, and none is lost."""
        key = Session(store).key

        def write(name: int) -> None:
            for number in range(10):
                store.append(key, MAIN, drafts(f"u{name}-{number}", f"a{name}-{number}"))

        threads = [Thread(target=write, args=(name,)) for name in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        records = store.find(key, After(0, ALL))
        assert [record.seq for record in records] == [record.position.depth + 1 for record in records]
        assert [r.seq for r in records] == list(range(1, 81))
        assert all(r.message.turn_id == "u" + str(r.message.id)[1:] for r in records)

    def test_everything_is_there_after_reopening(self, store: Store, reopen: Callable[[], Store]) -> None:
        """Another object on the same database sees, and may change, all of it."""
        session = Session(store)
        session.append(MAIN, [*drafts("s1", "u1"), draft("a1", "assistant", **RICH)])
        session.append("side", drafts("u2"), at=Position(0, 1))
        session.forget([Position(0, 1)])
        store.keep(session.key, VectorRows("space", [(Position(0, 0), "h", b"v")]))
        store.keep(session.key, Snapshot("a", b"data"), 1)
        other = reopen()
        try:
            again = Session(other)
            again.tree = session.tree
            again.append(MAIN, drafts("u1", "a3"))
            again.check()
            assert list(other.vectors(again.key, "space")) == [(Position(0, 0), "h", b"v")]
            assert other.snapshot(again.key, "a") == b"data"
        finally:
            other.close()
        session.check()

    def test_a_closed_store_says_so(self, store: Store) -> None:
        """Closing twice is fine, using it afterwards a StoreError."""
        key = Session(store).key
        store.close()
        store.close()
        with pytest.raises(StoreError, match="closed"):
            store.state(key)
        with pytest.raises(StoreError, match="closed"):
            store.append(key, MAIN, drafts("u1"))
