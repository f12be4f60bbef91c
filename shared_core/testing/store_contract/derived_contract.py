"""The store contract on what is made from messages, and on forgetting, which takes it along."""

from datetime import UTC, datetime

import pytest

from shared_core.records import MAIN, Branch, Position, Snapshot, Summary, VectorRows
from shared_core.store import Store
from shared_core.testing.oracle import NOON, Session, draft, drafts, of_texts

__all__ = ["DerivedContract"]


def summary(text: str, upto: Position, along: Position | None = None) -> Summary:
    """Return a summary up to a position."""
    return Summary(text, upto, along or upto, f"last of {text}", 3, NOON, "words", 7)


class DerivedContract:
    """How vectors, snapshots and summaries are kept, and what forgetting erases of them and of messages."""

    def test_vectors_are_kept_by_position_and_text(self, store: Store) -> None:
        """Each space keeps its own; a new vector replaces the old one; they are found by hash and read in order."""
        session = Session(store)
        key, spaces = session.key, ("model/2", "Model/2", "%")
        session.append(MAIN, drafts("u1", "a1", "u2"))
        session.append("side", drafts("u3"), at=Position(0, 0))
        side, new = session.tree.branches["side"], (Position(0, 2), "new", b"\x00\xff")
        for space in spaces:
            rows = [(side, "h", space.encode()), (Position(0, 2), "h", space.encode()), (Position(0, 1), "", b"")]
            store.keep(key, VectorRows(space, iter([*rows, (Position(0, 9), "lost", b"lost")])))
            assert list(store.vectors(key, space)) == sorted(rows)
        assert store.spaces(key) == [*spaces[::-1]]
        store.keep(key, VectorRows("model/2", [new]))
        assert store.spaces(key) == ["model/2", "%", "Model/2"]
        wanted = [Position(0, 2), Position(0, 0), side]
        found = [new, (side, "h", b"model/2")]
        assert list(store.vectors(key, "model/2", wanted)) == found
        assert list(store.vectors(key, "model/2", wanted[::-1])) == found[::-1]
        assert list(store.vectors(key, "other", wanted)) == list(store.vectors(key, "other")) == []
        store.keep(key, VectorRows("void", []))
        assert "void" not in store.spaces(key)
        assert store.stats(key)["vectors"] == 9

    def test_known_vectors_are_a_messages_own_or_of_an_equal_text(self, store: Store) -> None:
        """A vector of another text, another space or another session is none, and each is found once."""
        session, other = Session(store), Session(store, "other")
        key = session.key
        session.append(MAIN, drafts("u1", "a1", "u2", "a2", "u3"))
        other.append(MAIN, drafts("u1"))
        first, second, third, fourth, fifth = (Position(0, depth) for depth in range(5))
        rows = [(first, "one", b"1"), (second, "", b"2"), (third, "three", b"3")]
        store.keep(key, VectorRows("space", rows))
        store.keep(other.key, VectorRows("space", [(first, "four", b"4")]))
        assert store.known_vectors(key, "space", {second: "", first: "one"}) == [rows[1], rows[0]]
        found = store.known_vectors(key, "space", {first: "one", second: "new", fourth: "three", fifth: "four"})
        assert sorted(found) == [rows[0], rows[2]]
        assert store.known_vectors(key, "space", {first: ""}) == [rows[1]]
        for session_key, space, hashes in ((key, "other", {first: "one"}), (999, "space", {first: "one"})):
            assert store.known_vectors(session_key, space, hashes) == store.known_vectors(key, space, {}) == []

    def test_all_vectors_may_be_left_open(self, store: Store) -> None:
        """The store can be used between two vectors, and a long space is read whole and in order."""
        session = Session(store)
        session.append(MAIN, drafts(*(f"u{number}" for number in range(2500))))
        rows = [(Position(0, number), f"h{number}", number.to_bytes(4, "big")) for number in range(2500)]
        store.keep(session.key, VectorRows("space", reversed(rows)))
        iterator = store.vectors(session.key, "space")
        assert next(iterator) == rows[0]
        session.append(MAIN, drafts("a1"))
        assert list(iterator) == rows[1:]

    @pytest.mark.parametrize("size", [0, 1, 2**20, 40 * 2**20])
    def test_a_snapshot_is_exact(self, store: Store, size: int) -> None:
        """It is exact whatever its size; a later one replaces it, even a shorter one; names are kept apart."""
        key = Session(store).key
        data = bytes(range(256)) * (size // 256) + b"\x00" * (size % 256)
        assert store.snapshot(key, "a") is None
        assert store.keep(key, Snapshot("a", data), 0) is store.keep(key, Snapshot("A", b"other"), 0) is True
        assert store.snapshot(key, "a") == data
        assert store.keep(key, Snapshot("a", b"short"), 0) is True
        assert (store.snapshot(key, "a"), store.snapshot(key, "A")) == (b"short", b"other")

    def test_summaries_come_back_by_position(self, store: Store) -> None:
        """They are exact; the deepest of a segment comes first, of one position the last one kept."""
        session, other = Session(store), Session(store, "other")
        key = session.key
        session.append(MAIN, drafts("u1", "a1", "u2", "a2"))
        session.append("side", drafts("u3"), at=Position(0, 1))
        side = session.tree.branches["side"]
        one, three = summary("one", Position(0, 1)), summary("three", Position(0, 3))
        odd = Summary("BEL \a, \ue000 and <|end|>\n", Position(0, 1), side, "", 0, datetime(2020, 1, 1, tzinfo=UTC))
        elsewhere = summary("elsewhere", side)
        for kept in (one, three, odd, elsewhere):
            assert store.keep(key, kept, 0) is True
        for upto, limit, found in (
            (Position(0, 3), 10, [three, odd, one]),
            (Position(0, 2), 10, [odd, one]),
            (Position(0, 3), 2, [three, odd]),
            (Position(0, 0), 10, []),
            (Position(0, 3), 0, []),
            (side, 10, [elsewhere]),
        ):
            assert store.summaries(key, upto, limit) == found
        assert store.summaries(other.key, Position(0, 3), 10) == []
        assert store.keep(key, one, 1) is store.keep(key, summary("no position", Position(0, 9)), 0) is False
        assert store.keep(key, summary("no way", Position(0, 1), Position(7, 0)), 0) is store.keep(99, one, 0) is False

    def test_forgetting_takes_the_summaries_that_cover_it(self, store: Store) -> None:
        """Those of every branch that leads through it go, and no others; forgetting everything takes all."""
        session = Session(store)
        key = session.key
        session.append(MAIN, drafts("u1", "a1", "u2", "a2"))
        session.append("side", drafts("u3", "a3"), at=Position(0, 2))
        session.append("early", drafts("u4"), at=Position(0, 0))
        side, early = session.tree.branches["side"], session.tree.branches["early"]
        session.append(MAIN, drafts("u5"))
        session.merge(MAIN, side)
        merge = session.tree.branches[MAIN]
        kept = [
            summary("before", Position(0, 0)), summary("at it", Position(0, 1)), summary("after", Position(0, 3)),
            summary("side", side), summary("early", early), summary("merge", merge),
            summary("what a merge brought in", Position(side.segment, side.depth - 1), along=merge),
        ]  # fmt: skip
        for one in kept:
            assert store.keep(key, one, 0)
        left = {one.text for one in kept}
        for forgotten, gone in (
            ([Position(0, 9), Position(77, 0)], set()),
            ([side], {"side", "merge"}),
            ([Position(0, 4)], {"what a merge brought in"}),
            ([Position(0, 1)], {"at it", "after"}),
        ):
            session.forget(forgotten)
            left -= gone
            found = [store.summaries(key, Position(one.upto.segment, 99), 10) for one in kept]
            assert {one.text for some in found for one in some} == left
        session.forget([], branches=True)
        assert store.summaries(key, Position(0, 9), 10) == store.summaries(key, early, 10) == []
        assert store.scrub() is None

    def test_forgetting_reaches_everything(self, store: Store) -> None:
        """Messages, vectors in all spaces and snapshots go; positions stay empty; the id is not stored again.

        What is stale loses its vectors alone, until it is given new ones.
        """
        session = Session(store)
        key = session.key
        session.append(MAIN, drafts("u1", "a1", "u2", "a2", "u3"))
        session.fork("side", Position(0, 1))
        for space in ("x", "y"):
            store.keep(key, VectorRows(space, [(Position(0, n), f"h{n}", b"v") for n in range(5)]))
        store.keep(key, VectorRows("z", [(Position(0, 3), "h3", b"v")]))
        for name in ("a", "b"):
            store.keep(key, Snapshot(name, b"data"), 0)
        gone = [Position(0, 4), Position(0, 3), Position(0, 1), Position(0, 99), Position(5, 0)]
        session.forget(gone, stale=[Position(0, 0), Position(0, 98)])
        session.check()
        forgotten = store.forgotten_since(key, 0)
        assert forgotten is None or set(forgotten.stale) - {Position(0, 98)} == {Position(0, 0)}
        assert (store.snapshot(key, "a"), store.snapshot(key, "b")) == (None, None)
        assert store.keep(key, Snapshot("a", b"old"), 0) is store.keep(key, Snapshot("a", b"new"), 2) is False
        assert store.keep(key, Snapshot("a", b"now"), 1) is True
        for space in ("x", "y"):
            assert list(store.vectors(key, space)) == [(Position(0, 2), "h2", b"v")]
            assert of_texts(store, key, space, ["h0", "h1", "h2", "h3"]) == [(Position(0, 2), "h2", b"v")]
            assert list(store.vectors(key, space, [Position(0, 0), Position(0, 1)])) == []
        assert store.spaces(key) == ["y", "x"]
        late, new = (Position(0, 1), "h1", b"late"), (Position(0, 0), "new", b"w")
        store.keep(key, VectorRows("x", [late, new]))
        assert list(store.vectors(key, "x", [Position(0, 1), Position(0, 0)])) == [new]
        assert session.append(MAIN, [*drafts("a1", "u4"), draft("a2", content="changed")]).forgotten == ("a1", "a2")
        assert session.append("side", drafts("a3")).head.depth == 2
        session.forget([])
        session.check()
        assert store.scrub() is None

    def test_forgetting_all_begins_anew(self, store: Store) -> None:
        """Only an empty main is left; no old position is used again; a second time works too."""
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
