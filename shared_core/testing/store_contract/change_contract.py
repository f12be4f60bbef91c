"""The store contract on what has changed: a reader of a user's sessions misses nothing, whatever it was told before."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import TypeAlias

from shared_core.records import (
    MAIN,
    ROOT,
    Branch,
    Create,
    Delete,
    MainChanges,
    Mark,
    Merge,
    Move,
    Position,
    Rename,
    Restored,
    SessionKey,
    SessionState,
    Snapshot,
    VectorRows,
)
from shared_core.store import Store
from shared_core.testing.oracle import Session, drafts

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


class ChangeContract:
    """How a store tells what has changed since it was last asked."""

    def test_whoever_asks_for_changes_knows_what_is_on_every_main(self, store: Store) -> None:
        """After every kind of change, whether it was asked before each or not for a while."""
        sessions = [Session(store, name, "ann") for name in "abc"]
        others = [Session(store, "a", user) for user in (None, "\ue000", "bob")]
        for one in (*sessions, *others):
            one.append(MAIN, drafts("u1", "a1", "u2", "a2"))
        often, rarely, nobody = Follower(store, "ann"), Follower(store, "ann"), Follower(store, None)
        for follower in (often, rarely, nobody):
            follower.check()
        for number, change in enumerate(_changes(store, sessions, others[0].key)):
            change()
            often.check()
            if number % 4 == 3:
                rarely.check()
                nobody.check()
            first = Follower(store, "ann")
            first.check()
            assert first.states == often.states
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

    def test_the_vectors_of_several_sessions_are_kept_where_nothing_was_forgotten(self, store: Store) -> None:
        """Each is checked by its own epoch; what is kept is like what is kept one by one."""
        sessions = [Session(store, name) for name in "abc"]
        for one in sessions:
            one.append(MAIN, drafts("u1", "a1", "u2"))
        keys = [one.key for one in sessions]
        sessions[1].forget([Position(0, 0)])
        rows = {key: [(Position(0, depth), f"h{key}", b"%d" % key) for depth in (1, 2, 9)] for key in (*keys, 999)}
        epochs = dict.fromkeys(rows, 0)
        store.keep(keys[0], VectorRows("other", []))
        assert store.keep_vectors("space", rows, epochs) == {keys[0], keys[2]}
        assert [list(store.vectors(key, "space")) for key in keys] == [rows[keys[0]][:2], [], rows[keys[2]][:2]]
        assert store.keep_vectors("space", {keys[1]: rows[keys[1]], keys[0]: []}, {keys[1]: 1, keys[0]: 0}) == {
            *keys[:2]
        }
        assert [list(store.vectors(key, "space")) for key in keys] == [rows[key][:2] for key in keys]
        assert store.spaces(keys[1]) == ["space"]
        again = [(Position(0, 2), "new", b"n"), (Position(0, 2), "newer", b"nn")]
        assert store.keep_vectors("space", {keys[2]: again}, {keys[2]: 0}) == {keys[2]}
        assert list(store.vectors(keys[2], "space")) == [rows[keys[2]][0], again[1]]
        assert store.keep_vectors("space", {}, {}) == frozenset()


def _changes(store: Store, sessions: list[Session], other: int) -> list[Callable[[], object]]:
    """Return changes of each kind, to be made in this order to three sessions of a user, and one of another's."""
    one, two, three = (session.key for session in sessions)
    first, last = Position(0, 0), Position(0, 3)
    return [
        lambda: store.append(one, MAIN, drafts("u3")),
        lambda: store.append(other, MAIN, drafts("u3")),
        lambda: store.append(two, "side", drafts("u4"), at=first),
        lambda: store.append(two, MAIN, [], changes=[Create("twig", first)]),
        lambda: store.create_session("ann", "new"),
        lambda: store.append(store.create_session("ann", "new"), MAIN, drafts("u1")),
        *(
            partial(store.change, two, [change])
            for change in (
                Move(MAIN, first, "reset"), Move(MAIN, ROOT, "set aside"), Move(MAIN, last, ""),
                Merge(MAIN, Position(1, 1), ""), Rename(MAIN, "old"), Rename("old", MAIN), Delete("twig"),
            )
        ),
        lambda: store.forget(one, [last]),
        lambda: store.forget(one, [Position(0, 4)]),
        lambda: store.forget(three, [], branches=True),
        lambda: store.append(three, MAIN, drafts("u5")),
        lambda: store.rename_session(one, "renamed"),
        lambda: store.restore(one, Restored(branches=(Branch("copy", first),))),
        lambda: store.restore(two, Restored(branches=(Branch(MAIN, first),))),
        lambda: store.keep(two, VectorRows("space", [(first, "h", b"v")])),
        lambda: store.keep(two, Snapshot("a", b"x")),
        lambda: store.forget(two, [first], branches=True),
    ]  # fmt: skip
