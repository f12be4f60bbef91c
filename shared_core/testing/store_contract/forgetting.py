"""The store contract on forgetting: what goes, what stays, and what may not come back."""

from shared_core.records import MAIN, Branch, Position, Snapshot, VectorRows
from shared_core.store import Store
from shared_core.testing.oracle import Session, draft, drafts

__all__ = ["ForgettingContract"]


class ForgettingContract:
    """What forgetting erases and what it leaves."""

    def test_forgetting_reaches_everything(self, store: Store) -> None:
        """Rows, vectors in all spaces and snapshots go; places stay empty; the id does not come back."""
        session = Session(store)
        key = session.key
        session.append(MAIN, drafts("u1", "a1", "u2", "a2"))
        session.fork("side", Position(0, 1))
        for space in ("x", "y"):
            store.keep(key, VectorRows(space, [(Position(0, n), f"h{n}", b"v") for n in range(4)]))
        store.keep(key, VectorRows("z", [(Position(0, 3), "h3", b"v")]))
        for name in ("a", "b"):
            store.keep(key, Snapshot(name, b"data"), 0)
        session.forget([Position(0, 3), Position(0, 1), Position(0, 99), Position(5, 0)])
        session.check()
        assert (store.snapshot(key, "a"), store.snapshot(key, "b")) == (None, None)
        assert store.keep(key, Snapshot("a", b"old"), 0) is store.keep(key, Snapshot("a", b"new"), 2) is False
        assert store.keep(key, Snapshot("a", b"now"), 1) is True
        for space in ("x", "y"):
            assert [place.depth for place, *_ in store.vectors(key, space)] == [0, 2]
            assert list(store.vectors(key, space, hashes=["h1", "h2", "h3"])) == [(Position(0, 2), "h2", b"v")]
        assert store.spaces(key) == ["y", "x"]
        store.keep(key, VectorRows("x", [(Position(0, 1), "h1", b"late")]))
        assert list(store.vectors(key, "x", [Position(0, 1)])) == []
        assert session.append(MAIN, [*drafts("a1", "u3"), draft("a2", content="changed")]).forgotten == ("a1", "a2")
        assert session.append("side", drafts("a3")).head.depth == 2
        session.forget([])
        session.check()
        assert store.scrub() is None

    def test_what_is_stale_loses_its_vectors_and_nothing_else(self, store: Store) -> None:
        """In all spaces, until it is given new ones; its text, and the vectors of others, stay."""
        session = Session(store)
        key = session.key
        session.append(MAIN, drafts("u1", "a1", "u2"))
        for space in ("x", "y"):
            store.keep(key, VectorRows(space, [(Position(0, n), f"h{n}", b"v") for n in range(3)]))
        store.forget(key, [Position(0, 1)], stale=[Position(0, 0), Position(0, 99)])
        session.tree.forget([Position(0, 1)])
        session.check()
        for space in ("x", "y"):
            assert list(store.vectors(key, space)) == [(Position(0, 2), "h2", b"v")]
            assert list(store.vectors(key, space, hashes=["h0", "h1"])) == []
            assert list(store.vectors(key, space, [Position(0, 0)])) == []
        store.keep(key, VectorRows("x", [(Position(0, 0), "new", b"w")]))
        assert list(store.vectors(key, "x", [Position(0, 0)])) == [(Position(0, 0), "new", b"w")]

    def test_forgetting_all_begins_anew(self, store: Store) -> None:
        """Only an empty main is left; no old place is used again; a second time works too."""
        session = Session(store)
        session.append(MAIN, drafts("u1", "a1"))
        session.append("side", drafts("u2"), at=Position(0, 0))
        for fresh in ("u3", "u4"):
            session.forget([record.position for record in session.tree.records], branches=True)
            session.check()
            assert store.branches(session.key) == [Branch(MAIN, Position(session.tree.branches[MAIN].segment, -1))]
            assert session.append(MAIN, drafts("u1", fresh)).records[0].turn_no == 0
            session.append("side", drafts("a" + fresh), at=session.tree.branches[MAIN])
            session.check()
