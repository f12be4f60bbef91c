"""The store contract on what has changed: a reader misses nothing, whatever it was told before."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import TypeAlias

import pytest

from shared_core.errors import DuplicateError, UnknownReferenceError
from shared_core.queries import After, Line, State
from shared_core.records import (
    MAIN,
    ROOT,
    Branch,
    Change,
    Create,
    Delete,
    Drop,
    MainChanges,
    Mark,
    Merge,
    Move,
    Position,
    Put,
    Rename,
    Restored,
    SessionKey,
    SessionState,
    Snapshot,
    Summary,
    VectorRows,
)
from shared_core.store import Store
from shared_core.testing.oracle import NOON, Session, draft, drafts

__all__ = ["ChangeContract", "Follower"]

States: TypeAlias = dict[SessionKey, SessionState]


class Follower:
    """Knows the sessions of a user from what has changed alone.

    Args:
        store: the store.
        user_id: the user.
    """

    def __init__(self, store: Store, user_id: str | None) -> None:
        self.store, self.user_id = store, user_id
        self.mark: Mark | None = None
        self.states: States = {}

    def ask(self) -> None:
        """Ask for what has changed since the last time."""
        changes = self.store.main_changes(self.user_id, self.mark)
        self.states, self.mark = told(self.states, changes), changes.mark

    def check(self) -> None:
        """Ask, and compare with what the store says of all sessions."""
        self.ask()
        assert self.states == dict(self.store.main_changes(self.user_id).states)


def told(states: Mapping[SessionKey, SessionState], changes: MainChanges) -> States:
    """Return what is known of the sessions of a user after an answer."""
    numbers = {key.key for key, _ in changes.states}
    kept = {} if changes.whole else {key: state for key, state in states.items() if key.key not in numbers}
    return kept | {key: state for key, state in changes.states if state.head not in (None, ROOT)}


class _Undone(Exception):
    """Ends a transaction that is not to happen."""


def _every_change(store: Store, key: int) -> list[Callable[[], object]]:
    """Return one change of each kind of a new session, to be made in this order."""
    first, last = Position(0, 0), Position(0, 2)
    changes: list[Change] = [
        Create("branch", first), Move("branch", Position(0, 1), "reset"), Merge(MAIN, Position(1, 1), "m"),
        Rename("branch", "name"), Delete("name"), Put("tag", "t", first), Put("stash", "s", first),
        Move(MAIN, first, "reset"), Move(MAIN, ROOT, "set aside"), Move(MAIN, last, ""),
        Rename(MAIN, "old"), Rename("old", MAIN),
    ]  # fmt: skip
    return [
        lambda: store.append(key, MAIN, drafts("u1", "a1", "u2")),
        lambda: store.append(key, "side", drafts("u3"), at=first),
        lambda: store.append(key, "bare", [], at=first),
        lambda: store.append(key, MAIN, [], changes=[Create("twig", first)]),
        *(partial(store.change, key, [one]) for one in changes),
        lambda: store.change(key, [Drop(store.refs(key, "tag")[0].number)]),
        lambda: store.rename_session(key, "new name"),
        lambda: store.restore(key, Restored(forgotten=("u9",))),
        lambda: store.restore(key, Restored(branches=(Branch("side", first),))),
        lambda: store.restore(key, Restored(branches=(Branch(MAIN, first),))),
        lambda: store.forget(key, [Position(0, 1)]),
        lambda: store.forget(key, []),
        lambda: store.forget(key, [], branches=True),
        lambda: store.append(key, MAIN, drafts("u4")),
    ]


class ChangeContract:
    """How a store tells what has changed, and what it does with what its caller knows already."""

    def test_every_change_is_told_and_nothing_else(self, store: Store) -> None:
        """Each raises the version of its session alone; who asks for changes knows what is on every `main`.

        Neither reads raise it, nor what is derived, nor changes of another session.
        """
        key, other = Session(store, "s", "ann").key, Session(store, "s")
        first = Position(0, 0)
        other.append(MAIN, drafts("u1", "a1", "u2"))
        nothing: list[Callable[[], object]] = [
            lambda: other.append(MAIN, drafts("u1")),
            lambda: store.keep(key, VectorRows("space", [(first, "h", b"v")])),
            lambda: store.keep(key, Snapshot("a", b"x")),
            lambda: store.keep(key, Summary("s", first, first, "u1", 1, NOON)),
            lambda: store.read(key, State(MAIN), After(0, 9), Line(MAIN, 9)),
            lambda: [list(store.vectors(key, "space")), store.branches(key), store.stats(key), store.overview()],
        ]
        often, rarely, nobody = Follower(store, "ann"), Follower(store, "ann"), Follower(store, None)
        seen = store.state(key, MAIN).version
        for number, change in enumerate(_every_change(store, key)):
            change()
            assert store.state(key).version > seen, "a change is seen"
            seen = store.state(key).version
            for act in nothing:
                act()
            assert store.state(key, "none").version == store.read(key, State(MAIN))[0].version == seen
            often.check()
            if number % 4 == 3:
                rarely.check()
                nobody.check()
        assert store.main_changes("nobody", None).states == []

    def test_what_was_told_may_be_asked_for_again(self, store: Store) -> None:
        """An answer holds for whoever knows what an older one said, also if others have asked since."""
        one, two = Session(store, "one", "ann"), Session(store, "two", "ann")
        one.append(MAIN, drafts("u1"))
        marks = [store.main_changes("ann", None)]
        for number in range(3):
            two.append(MAIN, drafts(f"u{number + 1}"))
            one.append(MAIN, drafts(f"a{number + 2}"))
            marks.append(store.main_changes("ann", marks[-1].mark))
        known: States = {}
        for answer in marks:
            known = told(known, answer)
            assert told(known, store.main_changes("ann", answer.mark)) == dict(store.main_changes("ann").states)

    def test_what_is_undone_is_not_taken_for_read(self, store: Store) -> None:
        """A transaction sees what it has done itself; who asked in it knows everything after it was undone."""
        key = Session(store, "one", "ann").key
        other = Session(store, "two", "ann")
        other.append(MAIN, drafts("u1"))
        follower, inside = Follower(store, "ann"), Follower(store, "ann")
        follower.check()
        inside.check()
        with suppress(_Undone), store.transaction():
            store.append(key, MAIN, drafts("u1", "a1"))
            store.change(other.key, [Move(MAIN, ROOT, "")])
            inside.check()
            raise _Undone
        store.append(key, MAIN, drafts("u7"))
        store.change(other.key, [Create("side", Position(0, 0))])
        other.append(MAIN, drafts("u2", "a2"))  # whose numbers, if there are any, are those that were undone
        for one in (follower, inside):
            one.check()

    def test_what_a_caller_knows_hides_nothing(self, store: Store) -> None:
        """No message is stored twice, no forgotten one again; a reply joins the newest turn, whatever it was then."""
        session = Session(store)
        key = session.key
        session.append(MAIN, drafts("u1", "a1"))
        session.forget([Position(0, 0)])
        known = session.known(MAIN)
        assert session.append(MAIN, drafts("u1"), known=known).forgotten == ("u1",)
        again = session.append(MAIN, drafts("u2", "a2"), known=known)
        assert session.append(MAIN, drafts("u2", "a2", "a3"), known=known).records[:2] == again.records
        with pytest.raises(DuplicateError):
            store.append(key, MAIN, [draft("u4"), draft("a2", "assistant", "else")], known=session.known(MAIN))
        outdated = session.known(MAIN)
        session.append(MAIN, drafts("u5"), known=again.known)
        session.append(MAIN, drafts("a6"), known=outdated)
        session.append(MAIN, drafts("a5"), turn="u2", known=session.known(MAIN))
        session.check()
        known = session.known(MAIN)
        store.change(key, [Rename(MAIN, "other")])
        for number in (key, 999):
            with pytest.raises(UnknownReferenceError):
                store.append(number, MAIN, drafts("a9"), known=known)

    def test_vectors_are_kept_along_with_messages_if_nothing_was_forgotten(self, store: Store) -> None:
        """In one transaction: if the messages are refused, the vectors are not kept either."""
        session = Session(store)
        key = session.key
        session.append(MAIN, drafts("u1", "a1", "u2"))
        rows = [(Position(0, depth), f"h{depth}", b"v") for depth in range(3)]
        for number, how in enumerate(("known", "not known")):
            known = session.known(MAIN) if how == "known" else None
            vectors = VectorRows(how, iter([*rows, (Position(0, 9), "lost", b"lost")]))
            assert store.append(key, MAIN, drafts(f"a{number}.x"), known=known, vectors=vectors, epoch=0).kept
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
            for id_ in (f"u{known is None}", "u3"):  # new, and stored already
                late = VectorRows("late", rows)
                assert not store.append(key, MAIN, drafts(id_), known=known, vectors=late, epoch=0).kept
        assert store.append(key, MAIN, drafts("u4"), known=session.known(MAIN), vectors=again, epoch=1).kept
        assert store.spaces(key) == ["known", "side", "not known"]

    def test_the_vectors_of_several_sessions_are_kept_where_nothing_was_forgotten(self, store: Store) -> None:
        """Each is checked by its own epoch; what is kept is like what is kept one by one."""
        sessions = [Session(store, name) for name in "abc"]
        for one in sessions:
            one.append(MAIN, drafts("u1", "a1", "u2"))
        first, second, third = (one.key for one in sessions)
        sessions[1].forget([Position(0, 0)])
        rows = {
            key: [(Position(0, n), f"h{key}", b"%d" % key) for n in (1, 2, 9)] for key in (first, second, third, 999)
        }
        store.keep(first, VectorRows("other", []))

        def kept() -> list[object]:
            return [list(store.vectors(key, "space")) for key in (first, second, third)]

        assert store.keep_vectors("space", rows, dict.fromkeys(rows, 0)) == {first, third}
        assert kept() == [rows[first][:2], [], rows[third][:2]]
        assert store.keep_vectors("space", {second: rows[second], first: []}, {second: 1, first: 0}) == {first, second}
        assert kept() == [rows[key][:2] for key in (first, second, third)]
        again = [(Position(0, 2), "new", b"n"), (Position(0, 2), "newer", b"nn")]
        assert store.keep_vectors("space", {third: again}, {third: 0}) == {third}
        assert list(store.vectors(third, "space")) == [rows[third][0], again[1]]
        assert store.keep_vectors("space", {}, {}) == frozenset()
