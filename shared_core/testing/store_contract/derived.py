"""The store contract on vectors and snapshots: what can be made again, kept exactly."""

import pytest

from shared_core.records import MAIN, Position, Snapshot, VectorRows
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
            store.keep(key, VectorRows(space, iter([*rows, (Position(0, 9), "lost", b"lost")])))
            assert list(store.vectors(key, space)) == sorted(rows)
        assert store.spaces(key) == [*spaces[::-1]]
        store.keep(key, VectorRows("model/2", [(Position(0, 2), "new", b"\x00\xff")]))
        assert store.spaces(key) == ["model/2", "%", "Model/2"]
        wanted = [Position(0, 2), Position(0, 0), side]
        found = [(Position(0, 2), "new", b"\x00\xff"), (side, "h", b"model/2")]
        assert list(store.vectors(key, "model/2", wanted)) == found
        assert list(store.vectors(key, "model/2", wanted[::-1])) == found[::-1]
        by_hash = {"h": b"model/2", "new": b"\x00\xff", "": b""}
        of_hash = store.vectors(key, "model/2", hashes={*by_hash, "lost"})
        assert {hash_: vector for _, hash_, vector in of_hash} == by_hash
        assert list(store.vectors(key, "other", hashes=["h"])) == []
        assert list(store.vectors(key, "other", wanted)) == []
        assert list(store.vectors(key, "other")) == []
        store.keep(key, VectorRows("void", []))
        assert "void" not in store.spaces(key)
        assert store.stats(key)["vectors"] == 9

    def test_all_vectors_may_be_left_open(self, store: Store) -> None:
        """The store can be used between two vectors, and a long space comes whole and in order."""
        session = Session(store)
        count = 2500
        session.append(MAIN, drafts(*(f"u{number}" for number in range(count))))
        rows = [(Position(0, number), f"h{number}", number.to_bytes(4, "big")) for number in range(count)]
        store.keep(session.key, VectorRows("space", reversed(rows)))
        iterator = store.vectors(session.key, "space")
        assert next(iterator) == rows[0]
        session.append(MAIN, drafts("a1"))
        assert list(iterator) == rows[1:]

    @pytest.mark.parametrize("size", [0, 1, 2**20, 40 * 2**20])
    def test_a_snapshot_is_exact(self, store: Store, size: int) -> None:
        """Whatever its size; a later one takes its place, a shorter one too; names are kept apart."""
        key = Session(store).key
        data = bytes(range(256)) * (size // 256) + b"\x00" * (size % 256)
        assert store.snapshot(key, "a") is None
        assert store.keep(key, Snapshot("a", data), 0) is True
        assert store.keep(key, Snapshot("A", b"other"), 0) is True
        assert store.snapshot(key, "a") == data
        assert store.keep(key, Snapshot("a", b"short"), 0) is True
        assert (store.snapshot(key, "a"), store.snapshot(key, "A")) == (b"short", b"other")
