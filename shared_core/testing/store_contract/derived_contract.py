"""The store contract on what is made from messages, and on forgetting, which takes it along."""

from datetime import UTC, datetime, timedelta, timezone

import pytest

from shared_core.records import MAIN, Branch, Position, Snapshot, Summary, VectorRows
from shared_core.store import Store
from shared_core.testing.oracle import Session, draft, drafts, of_texts

__all__ = ["DerivedContract", "ForgetContract", "SummaryContract"]


class DerivedContract:
    """How vectors and snapshots are kept."""

    def test_vectors_are_kept_by_position_and_text(self, store: Store) -> None:
        """Each space keeps its own; a new vector replaces the old one; they are found by hash and read in order."""
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
        of_hash = of_texts(store, key, "model/2", {*by_hash, "lost"})
        assert {hash_: vector for _, hash_, vector in of_hash} == by_hash
        assert of_texts(store, key, "other", ["h"]) == []
        assert list(store.vectors(key, "other", wanted)) == []
        assert list(store.vectors(key, "other")) == []
        store.keep(key, VectorRows("void", []))
        assert "void" not in store.spaces(key)
        assert store.stats(key)["vectors"] == 9

    def test_all_vectors_may_be_left_open(self, store: Store) -> None:
        """The store can be used between two vectors, and a long space is read whole and in order."""
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
        """It is exact whatever its size; a later one replaces it, even a shorter one; names are kept apart."""
        key = Session(store).key
        data = bytes(range(256)) * (size // 256) + b"\x00" * (size % 256)
        assert store.snapshot(key, "a") is None
        assert store.keep(key, Snapshot("a", data), 0) is True
        assert store.keep(key, Snapshot("A", b"other"), 0) is True
        assert store.snapshot(key, "a") == data
        assert store.keep(key, Snapshot("a", b"short"), 0) is True
        assert (store.snapshot(key, "a"), store.snapshot(key, "A")) == (b"short", b"other")


MOMENT = datetime(2024, 2, 29, 12, 0, 0, 123456, tzinfo=timezone(timedelta(hours=5, minutes=45)))


def summary(text: str, upto: Position, along: Position | None = None) -> Summary:
    """Return a summary up to a position."""
    return Summary(text, upto, along or upto, f"last of {text}", 3, MOMENT, "words", 7)


class SummaryContract:
    """How summaries are kept, and which of them are forgotten."""

    def test_summaries_come_back_by_position(self, store: Store) -> None:
        """They are exact; the deepest of a segment comes first, of one position the last one kept."""
        session = Session(store)
        key = session.key
        session.append(MAIN, drafts("u1", "a1", "u2", "a2"))
        session.append("side", drafts("u3"), at=Position(0, 1))
        side = session.tree.branches["side"]
        one, three = summary("one", Position(0, 1)), summary("three", Position(0, 3))
        odd = Summary("BEL \a, \ue000 and <|end|>\n", Position(0, 1), side, "", 0, datetime(2020, 1, 1, tzinfo=UTC))
        elsewhere = summary("elsewhere", side)
        for kept in (one, three, odd, elsewhere):
            assert store.keep(key, kept, 0) is True
        assert store.summaries(key, Position(0, 3), 10) == [three, odd, one]
        assert store.summaries(key, Position(0, 2), 10) == [odd, one]
        assert store.summaries(key, Position(0, 3), 2) == [three, odd]
        assert store.summaries(key, Position(0, 0), 10) == store.summaries(key, Position(0, 3), 0) == []
        assert store.summaries(key, side, 10) == [elsewhere]
        other = Session(store, "other")
        assert store.summaries(other.key, Position(0, 3), 10) == []
        assert store.keep(key, one, 1) is store.keep(key, summary("no position", Position(0, 9)), 0) is False
        assert store.keep(key, summary("no way", Position(0, 1), Position(7, 0)), 0) is False
        assert store.keep(99, one, 0) is False
        session.check()

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
        before = summary("before", Position(0, 0))
        inside = summary("what a merge brought in", Position(side.segment, side.depth - 1), along=merge)
        kept = [
            before, summary("at it", Position(0, 1)), summary("after", Position(0, 3)), summary("side", side),
            summary("early", early), inside, summary("merge", merge),
        ]  # fmt: skip
        for one in kept:
            assert store.keep(key, one, 0)

        def left(epoch: int) -> set[str]:
            positions = [Position(0, 9), Position(side.segment, 99), early, merge]
            assert session.tree.epoch == epoch
            return {one.text for position in positions for one in store.summaries(key, position, 10)}

        session.forget([Position(0, 9), Position(77, 0)])
        assert left(1) == {one.text for one in kept}
        session.forget([side])
        assert left(2) == {"before", "at it", "after", "early", "what a merge brought in"}
        session.forget([Position(0, 4)])
        assert left(3) == {"before", "at it", "after", "early"}
        session.forget([Position(0, 1)])
        assert left(4) == {"before", "early"}
        assert store.summaries(key, Position(0, 0), 10) == [before]
        session.forget([], branches=True)
        assert left(5) == set()
        assert store.scrub() is None


class ForgetContract:
    """What forgetting erases and what it leaves."""

    def test_forgetting_reaches_everything(self, store: Store) -> None:
        """Messages, vectors in all spaces and snapshots go; positions stay empty; the id is not stored again."""
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
            assert [position.depth for position, *_ in store.vectors(key, space)] == [0, 2]
            assert of_texts(store, key, space, ["h1", "h2", "h3"]) == [(Position(0, 2), "h2", b"v")]
        assert store.spaces(key) == ["y", "x"]
        store.keep(key, VectorRows("x", [(Position(0, 1), "h1", b"late")]))
        assert list(store.vectors(key, "x", [Position(0, 1)])) == []
        assert session.append(MAIN, [*drafts("a1", "u3"), draft("a2", content="changed")]).forgotten == ("a1", "a2")
        assert session.append("side", drafts("a3")).head.depth == 2
        session.forget([])
        session.check()
        assert store.scrub() is None

    def test_what_is_stale_loses_its_vectors_and_nothing_else(self, store: Store) -> None:
        """It loses them in all spaces, until it is given new ones; its text and the vectors of others stay."""
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
            assert of_texts(store, key, space, ["h0", "h1"]) == []
            assert list(store.vectors(key, space, [Position(0, 0)])) == []
        store.keep(key, VectorRows("x", [(Position(0, 0), "new", b"w")]))
        assert list(store.vectors(key, "x", [Position(0, 0)])) == [(Position(0, 0), "new", b"w")]

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
