"""The store contract on what is read together, so that a store that is another machine answers once."""

from collections.abc import Callable
from functools import partial
from itertools import count

import pytest

from shared_core.errors import DuplicateError, UnknownReferenceError
from shared_core.queries import After, IdPrefix, InTurn, Line, LineRead, Pinned, State
from shared_core.records import (
    MAIN,
    Branch,
    Create,
    Delete,
    Drop,
    Forgotten,
    Merge,
    Move,
    Position,
    Put,
    Rename,
    Restored,
    SessionState,
    Snapshot,
    Summary,
    VectorRows,
)
from shared_core.store import Store
from shared_core.testing.oracle import ALL, NOON, Session, draft, drafts

__all__ = ["TripContract"]


def _every_change(store: Store, key: int) -> list[Callable[[], object]]:
    """Return one change of each kind of a new session, to be made in this order."""
    first = Position(0, 0)
    return [
        lambda: store.append(key, MAIN, drafts("u1", "a1", "u2")),
        lambda: store.append(key, "side", drafts("u3"), at=first),
        lambda: store.append(key, "bare", [], at=first),
        lambda: store.append(key, MAIN, [], changes=[Create("twig", first)]),
        *(
            partial(store.change, key, [one])
            for one in (
                Create("branch", first), Move("branch", Position(0, 1), "reset"), Merge(MAIN, Position(1, 1), "m"),
                Rename("branch", "name"), Delete("name"), Put("tag", "t", first), Put("stash", "s", first),
            )
        ),
        lambda: store.change(key, [Drop(store.refs(key, "tag")[0].number)]),
        lambda: store.rename_session(key, "new name"),
        lambda: store.restore(key, Restored(forgotten=("u9",))),
        lambda: store.restore(key, Restored(branches=(Branch("side", first),))),
        lambda: store.forget(key, [Position(0, 1)]),
        lambda: store.forget(key, []),
        lambda: store.forget(key, [], branches=True),
    ]  # fmt: skip


class TripContract:
    """What a store returns where it is asked for several things at once."""

    def test_catching_up_returns_the_state_and_what_is_new(self, store: Store) -> None:
        """The messages of all branches come in order of storing, by pages; of a missing branch there is no head."""
        session = Session(store)
        key = session.key
        session.append(MAIN, drafts("u1", "a1", "u2", "a2"))
        session.append("side", drafts("u3", "a3"), at=Position(0, 1))
        session.append(MAIN, drafts("u4"))
        session.forget([Position(0, 3)])
        records, forked = session.tree.records, session.tree.branches["side"]
        for after in range(9):
            for limit in (0, 1, 3, ALL):
                new = [record for record in records if record.seq > after]
                state, read = store.read(key, State("side"), After(after, limit))
                assert state[:3] == (forked, 7, 1)
                assert read == new[: len(read)]
                assert len(read) >= min(limit, len(new), 1), "there is always one more, so that reading goes on"
        nowhere = store.state(key)
        assert nowhere[:3] == (None, 7, 1)
        assert store.read(key, State(), After(6, ALL)) == [nowhere, records[-1:]]
        assert store.read(key, State("none"), After(7, ALL)) == [nowhere, []]
        assert store.read(999, State(MAIN), After(0, ALL)) == [SessionState(None, 0, 0), []]
        turn, said = InTurn("u2"), IdPrefix("a", 9)
        assert store.read(key, said, turn) == [store.find(key, said), store.find(key, turn)]

    def test_the_version_grows_with_every_change_of_the_session(self, store: Store) -> None:
        """One change may raise it by more than one."""
        key = Session(store).key
        seen = store.state(key, MAIN).version
        for change in _every_change(store, key):
            change()
            now = store.state(key).version
            assert now > seen, "a change is seen"
            assert store.state(key, "none").version == store.read(key, State(MAIN))[0].version == now
            seen = now

    def test_the_version_stays_with_all_that_is_no_change_of_the_session(self, store: Store) -> None:
        """Neither reads raise it, nor what is derived, nor changes of another session."""
        session, other = Session(store), Session(store, "other")
        key, first = session.key, Position(0, 0)
        nothing: list[Callable[[], object]] = [
            lambda: other.append(MAIN, drafts("u1")),
            lambda: store.keep(key, VectorRows("space", [(first, "h", b"v")])),
            lambda: store.keep(key, Snapshot("a", b"x")),
            lambda: store.keep(key, Summary("s", first, first, "u1", 1, NOON)),
            lambda: store.read(key, State(MAIN), After(0, 9), Line(MAIN, 9)),
            lambda: [list(store.vectors(key, "space")), store.branches(key), store.stats(key), store.overview()],
        ]
        for change in _every_change(store, key):
            change()
            now = store.state(key).version
            for act in nothing:
                act()
            assert store.state(key, "none").version == store.read(key, State(MAIN))[0].version == now
        other.move(MAIN, first)
        states = {one.key: state for one, state in store.main_changes(None).states}
        assert states[other.key] == store.state(other.key, MAIN)

    def test_what_a_caller_knows_changes_nothing_but_the_time(self, store: Store) -> None:
        """Messages go where they would go without it, whether it still holds or was overtaken."""
        session = Session(store)
        number = count(1)

        def overtaken_by(change: Callable[[], object]) -> None:
            """Add to a branch with what is known now, then after a change, and after that with what is returned."""
            begun, before = next(number), session.known(MAIN)
            told = session.append(MAIN, drafts(f"u{begun}", f"a{begun}"), known=before).known
            session.append(MAIN, drafts(f"a{begun}.told"), known=told)
            known = session.known(MAIN)
            change()
            session.append(MAIN, drafts(f"a{begun}.late"), known=known)
            session.append(MAIN, drafts(f"a{begun}.later"), known=before)
            session.check()

        first = Position(0, 0)
        overtaken_by(lambda: None)
        overtaken_by(lambda: session.append(MAIN, drafts("u90", "a90")))
        overtaken_by(lambda: session.append("side", drafts("u91", "a91"), at=first))
        overtaken_by(lambda: session.append("side", drafts("u92")))
        overtaken_by(lambda: session.move(MAIN, Position(0, 3)))
        overtaken_by(lambda: session.fork("twin", session.tree.branches[MAIN]))
        overtaken_by(lambda: session.append("twin", drafts("a93")))
        overtaken_by(lambda: session.merge(MAIN, session.tree.branches["side"]))
        overtaken_by(lambda: session.forget([session.tree.records[-1].position]))
        overtaken_by(lambda: session.forget([r.position for r in session.tree.records], branches=True))

    def test_with_what_a_caller_knows_no_message_is_stored_twice(self, store: Store) -> None:
        """Nor is a forgotten one stored again; others join the turn that is named."""
        session = Session(store)
        key = session.key
        session.append(MAIN, drafts("u1", "a1"))
        session.append("side", drafts("u2"), at=Position(0, 0))
        session.merge(MAIN, session.tree.branches["side"])
        session.forget([record.position for record in session.tree.records], branches=True)
        known = session.known(MAIN)
        assert session.append(MAIN, drafts("u1"), known=known).forgotten == ("u1",), "it was forgotten"
        again = session.append(MAIN, drafts("u95", "a95"), known=known)
        assert session.append(MAIN, drafts("u95", "a95", "a96"), known=known).records[:2] == again.records
        assert session.append(MAIN, drafts("a95"), known=session.known(MAIN)).added == frozenset()
        with pytest.raises(DuplicateError):
            store.append(key, MAIN, [draft("u98"), draft("a95", "assistant", "else")], known=session.known(MAIN))
        session.append(MAIN, drafts("u97"), known=again.known)
        session.append(MAIN, drafts("a97"), turn="u95", known=session.known(MAIN))

    def test_what_a_caller_knows_hides_nothing_that_is_missing(self, store: Store) -> None:
        """An unknown turn, a branch that has another name by now, or an unknown session is refused."""
        session = Session(store)
        key = session.key
        session.append(MAIN, drafts("u1", "a1"))
        with pytest.raises(UnknownReferenceError):
            store.append(key, MAIN, drafts("a98"), turn="lost", known=session.known(MAIN))
        known = session.known(MAIN)
        store.change(key, [Rename(MAIN, "other")])
        with pytest.raises(UnknownReferenceError):
            store.append(key, MAIN, drafts("a99"), known=known)
        with pytest.raises(UnknownReferenceError):
            store.append(999, MAIN, drafts("a99"), known=known)

    def test_vectors_are_kept_along_with_messages_if_nothing_was_forgotten(self, store: Store) -> None:
        """In one transaction: if the messages are refused, the vectors are not kept either."""
        session = Session(store)
        key = session.key
        session.append(MAIN, drafts("u1", "a1", "u2"))
        rows = [(Position(0, depth), f"h{depth}", b"v") for depth in range(3)]
        lost = (Position(0, 9), "lost", b"lost")
        for number, how in enumerate(("known", "not known")):
            known = session.known(MAIN) if how == "known" else None
            vectors = VectorRows(how, iter([*rows, lost]))
            appended = store.append(key, MAIN, drafts(f"a{number}.x"), known=known, vectors=vectors, epoch=0)
            assert appended.kept
            assert list(store.vectors(key, how)) == rows
            assert store.spaces(key)[0] == how
        again = VectorRows("known", [(Position(0, 1), "new", b"w")])
        store.append(key, MAIN, drafts("u3"), vectors=again, epoch=0)
        assert list(store.vectors(key, "known")) == [rows[0], (Position(0, 1), "new", b"w"), rows[2]]
        for given in (drafts("u3", "u3"), [draft("u1", "assistant", "else")]):
            with pytest.raises(DuplicateError):
                store.append(key, MAIN, given, vectors=VectorRows("refused", rows), epoch=0)
        store.append(key, "side", drafts("a9"), at=Position(0, 1), vectors=VectorRows("side", rows), epoch=0)
        store.forget(key, [Position(0, 1)])
        for known in (session.known(MAIN), None):
            late = VectorRows("late", rows)
            assert not store.append(key, MAIN, drafts(f"u{known is None}"), known=known, vectors=late, epoch=0).kept
            assert not store.append(key, MAIN, drafts("u3"), known=known, vectors=late, epoch=0).kept
        assert store.append(key, MAIN, drafts("u4"), known=session.known(MAIN), vectors=again, epoch=1).kept
        assert store.spaces(key) == ["known", "side", "not known"]

    def test_a_branch_is_checked_out_with_all_that_leads_to_it(self, store: Store) -> None:
        """Its newest messages reach over forks, and end where a merge was made; known segments need not be read."""
        session = Session(store)
        key = session.key
        session.append(MAIN, drafts("s1", "u1", "a1", "u2"))
        session.append("side", drafts("u3", "a3"), at=Position(0, 2))
        session.append("twig", drafts("u4"), at=Position(1, 3))
        session.fork("bare", Position(0, 1))
        session.merge(MAIN, Position(2, 4))
        session.append(MAIN, drafts("a5"))
        session.check()
        new, staying, found = store.read(key, After(7, ALL), Pinned(), Line("twig", 3))
        assert [segment.segment for segment in sorted(found.segments)] == [0, 1, 2]
        assert [record.message.id for record in found.newest] == ["u4", "u3", "a1"]
        assert ([r.message.id for r in new], [r.message.id for r in staying]) == (["a5"], ["s1"])
        known = {segment.segment: segment for segment in found.segments}
        state, at = store.read(key, State(), Line(session.tree.branches[MAIN], 9, known))
        assert {3} <= {segment.segment for segment in at.segments}
        assert state == store.state(key)
        assert state[:3] == (None, 8, 0)
        assert at.newest[0].message.id == "a5"
        assert store.read(key, Line("none", 9)) == [LineRead([], [])]
        with pytest.raises(UnknownReferenceError):
            store.read(key, Line(Position(9, 0), 9))

    def test_what_is_new_on_main_comes_for_many_sessions_at_once(self, store: Store) -> None:
        """Each has its line, its messages of all branches between two numbers, and their vectors in one space."""
        one, two, bare = Session(store, "one"), Session(store, "two", "u"), Session(store, "bare")
        one.append(MAIN, drafts("u1", "a1", "u2", "a2"))
        one.append("side", drafts("u3", "a3"), at=Position(0, 1))
        two.append(MAIN, drafts("u1", "a1"))
        two.append("side", drafts("u2"), at=Position(0, 0))
        two.merge(MAIN, Position(1, 1))
        rows = [(Position(0, depth), f"h{depth}", b"v") for depth in range(4)]
        for key, space in ((one.key, "a"), (two.key, "b"), (one.key, "b")):
            store.keep(key, VectorRows(space, rows))
        wanted = {two.key: (1, 2), one.key: (3, 9), bare.key: (0, 9), 999: (0, 9)}
        found = store.main_news(wanted, "b")
        assert {key: news.records for key, news in found.items()} == {
            two.key: two.tree.records[1:2], one.key: one.tree.records[3:], bare.key: [],
        }  # fmt: skip
        assert {key: news.vectors for key, news in found.items()} == {
            two.key: rows[1:2], one.key: rows[3:], bare.key: [],
        }  # fmt: skip
        for session in (one, two, bare):
            news = found[session.key]
            assert news.state == store.state(session.key, MAIN)
            assert news.spaces == store.spaces(session.key)
            on_line = {position.segment for position in session.tree.line(session.tree.branches[MAIN])}
            assert {segment.segment for segment in news.segments} >= on_line
            assert all(segment == session.tree.segments[segment.segment] for segment in news.segments)
        again = store.main_news(wanted)
        assert again == {key: news._replace(vectors=[]) for key, news in found.items()}
        assert store.main_news({}) == {}
        store.change(bare.key, [Rename(MAIN, "other")])
        assert store.main_news({bare.key: (0, 9)}) == {}

    def test_known_vectors_are_a_messages_own_or_of_an_equal_text(self, store: Store) -> None:
        """A vector of another text, another space or another session is none, and each is found once."""
        session = Session(store)
        key = session.key
        session.append(MAIN, drafts("u1", "a1", "u2", "a2", "u3"))
        first, second, third, fourth, fifth = (Position(0, depth) for depth in range(5))
        rows = [(first, "one", b"1"), (second, "two", b"2"), (third, "three", b"3")]
        store.keep(key, VectorRows("space", rows))
        other = Session(store, "other")
        other.append(MAIN, drafts("u1"))
        store.keep(other.key, VectorRows("space", [(first, "four", b"4")]))
        assert store.known_vectors(key, "space", {second: "two", first: "one"}) == [rows[1], rows[0]]
        found = store.known_vectors(key, "space", {first: "one", second: "new", fourth: "three", fifth: "four"})
        assert sorted(found) == [rows[0], rows[2]]
        assert store.known_vectors(key, "space", {first: "two"}) == [rows[1]]
        assert (
            store.known_vectors(key, "other", {first: "one"}) == store.known_vectors(999, "space", {first: "one"}) == []
        )
        assert store.known_vectors(key, "space", {}) == []

    def test_what_was_forgotten_since_an_epoch_is_known_whole_or_not_at_all(self, store: Store) -> None:
        """It is of one session, of all calls since; one that erased nothing counts, too."""
        session, other = Session(store), Session(store, "other")
        for one in (session, other):
            one.append(MAIN, drafts("u1", "a1", "u2", "a2", "u3"))
        first, second, third = (Position(0, depth) for depth in (1, 3, 4))
        store.forget(session.key, [first], stale=[third])
        other.forget([second])
        store.forget(session.key, [second, Position(0, 9)])
        store.forget(session.key, [])
        expected = [({first, second}, {third}), ({second}, set()), (set(), set()), (set(), set())]
        for epoch, (positions, stale) in enumerate(expected):
            found = store.forgotten_since(session.key, epoch)
            if found is None:  # a store need not know
                continue
            assert set(found.positions) - {Position(0, 9)} == positions
            assert set(found.stale) == stale
        assert store.forgotten_since(999, 0) in (None, Forgotten([], []))

    def test_messages_are_read_only_if_nothing_was_forgotten(self, store: Store) -> None:
        """Those of several sessions come together, each in the order asked; every epoch given must be the session's."""
        one, two = Session(store, "one"), Session(store, "two")
        one.append(MAIN, drafts("u1", "a1", "u2"))
        two.append(MAIN, drafts("u5", "a5"))
        ours, theirs = one.tree.records, two.tree.records
        wanted = {one.key: [Position(0, 2), Position(0, 9), Position(0, 0)], two.key: [Position(0, 1)]}
        found = {one.key: [ours[2], ours[0]], two.key: [theirs[1]]}
        assert store.at(wanted, {}) == store.at(wanted, {one.key: 0, two.key: 0}) == found
        assert store.at({}, {one.key: 0}) == {}
        two.forget([Position(0, 0)])
        assert store.at(wanted, {one.key: 0}) == store.at(wanted, {two.key: 1}) == found
        assert store.at(wanted, {one.key: 0, two.key: 0}) is None
        assert store.at({one.key: [Position(0, 1)]}, {two.key: 0}) is None
        assert store.at({999: [Position(0, 0)], one.key: []}, {999: 0}) == {999: [], one.key: []}
