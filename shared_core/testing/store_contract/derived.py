"""The store contract on vectors and snapshots: what can be made again, kept exactly."""

import pytest

from shared_core.records import MAIN, Position
from shared_core.store import Store
from shared_core.testing.oracle import Session, drafts

__all__ = ["DerivedContract"]


class DerivedContract:
    """What is kept of derived indexes: vectors and snapshots."""

    def test_vectors_are_kept_by_place_and_text(self, store: Store) -> None:
        """In spaces of their own, replaced in place, found by hash, in order of positions."""
        session = Session(store)
        key, spaces = session.key, ("model/2", "Model/2", "%")
        session.append(MAIN, drafts("u1", "a1", "u2"))
        session.append("side", drafts("u3"), at=Position(0, 0))
        side = session.tree.branches["side"]
        for space in spaces:
            rows = [(side, "h", space.encode()), (Position(0, 2), "h", space.encode()), (Position(0, 1), "", b"")]
            store.put_vectors(key, space, iter([*rows, (Position(0, 9), "lost", b"lost")]))
            assert list(store.all_vectors(key, space)) == sorted(rows)
        assert store.spaces(key) == [*spaces[::-1]]
        store.put_vectors(key, "model/2", [(Position(0, 2), "new", b"\x00\xff")])
        assert store.spaces(key) == ["model/2", "%", "Model/2"]
        wanted = [Position(0, 2), Position(0, 0), side]
        assert store.vectors(key, "model/2", wanted) == {Position(0, 2): ("new", b"\x00\xff"), side: ("h", b"model/2")}
        by_hash = {"h": b"model/2", "new": b"\x00\xff", "": b""}
        assert store.vectors_of(key, "model/2", {*by_hash, "lost"}) == by_hash
        assert store.vectors_of(key, "other", ["h"]) == {}
        assert store.vectors(key, "other", wanted) == {}
        assert list(store.all_vectors(key, "other")) == []
        store.put_vectors(key, "void", [])
        assert "void" not in store.spaces(key)
        assert store.stats(key)["vectors"] == 9

    def test_all_vectors_may_be_left_open(self, store: Store) -> None:
        """The store can be used between two vectors, and a long space comes whole and in order."""
        session = Session(store)
        count = 2500
        session.append(MAIN, drafts(*(f"u{number}" for number in range(count))))
        rows = [(Position(0, number), f"h{number}", number.to_bytes(4, "big")) for number in range(count)]
        store.put_vectors(session.key, "space", reversed(rows))
        iterator = store.all_vectors(session.key, "space")
        assert next(iterator) == rows[0]
        session.append(MAIN, drafts("a1"))
        assert list(iterator) == rows[1:]

    @pytest.mark.parametrize("size", [0, 1, 2**20, 40 * 2**20])
    def test_a_snapshot_is_exact(self, store: Store, size: int) -> None:
        """Whatever its size; a later one takes its place, a shorter one too; names are kept apart."""
        key = Session(store).key
        data = bytes(range(256)) * (size // 256) + b"\x00" * (size % 256)
        assert store.snapshot(key, "a") is None
        assert store.put_snapshot(key, "a", 0, data) is True
        assert store.put_snapshot(key, "A", 0, b"other") is True
        assert store.snapshot(key, "a") == data
        assert store.put_snapshot(key, "a", 0, b"short") is True
        assert (store.snapshot(key, "a"), store.snapshot(key, "A")) == (b"short", b"other")
