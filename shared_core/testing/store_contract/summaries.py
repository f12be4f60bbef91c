"""The store contract on summaries: kept by place, and gone with anything they cover."""

from datetime import UTC, datetime, timedelta, timezone

from shared_core.records import MAIN, Position, Summary
from shared_core.store import Store
from shared_core.testing.oracle import Session, drafts

__all__ = ["SummariesContract"]

MOMENT = datetime(2024, 2, 29, 12, 0, 0, 123456, tzinfo=timezone(timedelta(hours=5, minutes=45)))


def summary(text: str, upto: Position, along: Position | None = None) -> Summary:
    """Return a summary up to a place."""
    return Summary(text, upto, along or upto, f"last of {text}", 3, MOMENT, "words", 7)


class SummariesContract:
    """What is kept of summaries, and what forgetting takes."""

    def test_summaries_come_back_by_place(self, store: Store) -> None:
        """Exactly as kept, the deepest of a segment first, of one place the last one; up to a depth, and a limit."""
        session = Session(store)
        key = session.key
        session.append(MAIN, drafts("u1", "a1", "u2", "a2"))
        session.append("side", drafts("u3"), at=Position(0, 1))
        side = session.tree.branches["side"]
        one, three = summary("one", Position(0, 1)), summary("three", Position(0, 3))
        odd = Summary("NUL \0, \ud800 and <|end|>\n", Position(0, 1), side, "", 0, datetime(2020, 1, 1, tzinfo=UTC))
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
        assert store.keep(key, one, 1) is store.keep(key, summary("no place", Position(0, 9)), 0) is False
        assert store.keep(key, summary("no way", Position(0, 1), Position(7, 0)), 0) is False
        assert store.keep(99, one, 0) is False
        session.check()

    def test_forgetting_takes_the_summaries_that_cover_it(self, store: Store) -> None:
        """Of every branch that leads through it, and no others; forgetting all takes all."""
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
            places = [Position(0, 9), Position(side.segment, 99), early, merge]
            assert session.tree.epoch == epoch
            return {one.text for place in places for one in store.summaries(key, place, 10)}

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
