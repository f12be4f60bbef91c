"""The store contract on taking a session of another store, and on transactions."""

import pytest

from shared_core.errors import DuplicateError, UnknownReferenceError
from shared_core.queries import After, MadeFrom
from shared_core.records import (
    MAIN,
    Branch,
    Create,
    Delete,
    Merge,
    Position,
    Put,
    Record,
    Ref,
    Restored,
    Segment,
    Stretch,
)
from shared_core.store import Store
from shared_core.testing.oracle import ALL, Session, draft, drafts

__all__ = ["RestoreContract"]


class RestoreContract:
    """How a store takes a session of another store, and what a transaction guarantees."""

    def test_a_session_is_brought_as_it_was(self, store: Store) -> None:
        """Positions, numbers, turns, branches, merges, summaries, tags and forgotten ids are the same."""
        session = Session(store)
        key = session.key
        session.append(MAIN, drafts("s1", "u1", "a1", "u2"))
        session.append("side", drafts("u3", "a3"), at=Position(0, 2))
        store.append(key, "side", drafts("u4"))
        store.change(key, [Merge(MAIN, Position(1, 4), "merge side"), Put("tag", "t", Position(0, 1), None, "why")])
        store.append(key, MAIN, drafts("u5"))
        store.forget(key, [Position(0, 3)])
        other = store.create_session("other", "copy")
        store.restore(other, _all_of(store, key))
        assert _all_of(store, other) == _all_of(store, key)
        assert store.state(other, MAIN)[:2] == store.state(key, MAIN)[:2]
        assert store.append(other, MAIN, drafts("u2", "a5")).forgotten == ("u2",)
        assert store.get(key, ["a5"]) == [], "the other session is as it was"

    def test_numbers_go_on_after_the_newest_was_forgotten(self, store: Store) -> None:
        """`last_seq` holds the number of a message that did not come along; it never makes it smaller."""
        session = Session(store)
        for last_seq in (7, 3, 0):
            store.restore(session.key, Restored(last_seq=last_seq))
            assert store.state(session.key).last_seq == 7
        assert store.find(session.key, After(0, ALL)) == []
        assert store.append(session.key, MAIN, drafts("u1")).records[0].seq == 8

    def test_what_a_restored_message_sums_up_is_known(self, store: Store) -> None:
        """It is known in order, and from either side."""
        key = store.create_session(None, "a")
        store.append(key, MAIN, drafts("u1", "a1", "u2"))
        (record,) = store.get(key, ["u2"])
        new = Record(draft("a9", "assistant").message.replace(turn_id="u2"), Position(0, 3), 4, 1, picked_from="a1")
        stretches = [Stretch(0, 1, 1), Stretch(0, 0, 0)]
        store.restore(key, Restored(records=(new,), covers=tuple((new.position, one) for one in stretches)))
        assert store.get(key, ["a9"]) == [new]
        assert store.covers(key, [0]) == [(new.position, one) for one in stretches]
        assert store.find(key, MadeFrom([Position(0, 0)])) == store.find(key, MadeFrom([Position(0, 1)])) == [new]
        assert store.state(key, MAIN).head == record.position, "a branch at the tip stays where it was"
        assert store.append(key, MAIN, drafts("u3")).records[0].position.segment == 1

    def test_what_is_taken_or_missing_is_refused_whole(self, store: Store) -> None:
        """An id, position, number or tag that is taken, or a session, segment or position that does not exist."""
        key = store.create_session(None, "a")
        store.append(key, MAIN, drafts("u1", "a1"))
        store.change(key, [Put("tag", "t", Position(0, 0))])
        before = _all_of(store, key)
        fresh = draft("x").message.replace(turn_id="x")
        tag = Ref(0, "tag", "t", Position(0, 1), None, "", "2024-01-01 00:00:00")

        def stored(id_: str, position: tuple[int, int], seq: int) -> Restored:
            return Restored(records=(Record(fresh.replace(id=id_), Position(*position), seq, 1),), forgotten=("gone",))

        for bad, error in (
            (stored("u1", (0, 2), 3), DuplicateError),
            (stored("x", (0, 1), 3), DuplicateError),
            (stored("x", (0, 2), 2), DuplicateError),
            (Restored(refs=(tag,), forgotten=("gone",)), DuplicateError),
            (stored("x", (7, 0), 3), UnknownReferenceError),
            (Restored(segments=(Segment(1, Position(5, 5), 5),)), UnknownReferenceError),
            (Restored(branches=(Branch("b", Position(0, 9)),), forgotten=("gone",)), UnknownReferenceError),
            (Restored(refs=(tag._replace(name="u", position=Position(3, 3)),)), UnknownReferenceError),
        ):
            with pytest.raises(error):
                store.restore(key, bad)
        assert _all_of(store, key) == before

    def test_a_branch_is_set_or_created_without_a_note(self, store: Store) -> None:
        """No move is noted, and an id that is stored does not become a forgotten one."""
        key = store.create_session(None, "a")
        store.append(key, MAIN, drafts("u1", "a1", "u2"))
        heads = (Branch(MAIN, Position(0, 1)), Branch("b", Position(0, 0)))
        store.restore(key, Restored(branches=heads, forgotten=("u1", "z", "y", "z")))
        assert store.branches(key) == list(heads)
        assert store.refs(key, "move") == []
        assert sorted(store.forgotten(key, None, ALL)) == ["y", "z"]
        assert store.append(key, MAIN, drafts("u4")).records[0].position == Position(1, 2)

    def test_forgotten_ids_have_one_order(self, store: Store) -> None:
        """It does not depend on when they were forgotten; those of one session are not of another."""
        ids = ["b", "a", "é", "c%", "\ue000"]
        one, two, three = (store.create_session(None, name) for name in ("one", "two", "three"))
        for key, order in ((one, ids), (two, ids[::-1])):
            for id_ in order:
                store.restore(key, Restored(forgotten=(id_,)))
        read = [store.forgotten(key, None, ALL) for key in (one, two)]
        assert read[0] == read[1]
        assert sorted(read[0]) == sorted(ids)
        assert store.are_forgotten(one, ["a", "\ue000", "c", "a"]) == {"a", "\ue000"}
        assert store.are_forgotten(one, []) == store.are_forgotten(three, ids) == set()

    def test_a_transaction_is_all_or_nothing(self, store: Store) -> None:
        """A change is seen inside the block and undone with it; a part that fails is undone alone."""
        key = store.create_session(None, "a")
        store.append(key, MAIN, drafts("u1"))
        before = _all_of(store, key)

        def half_of_it() -> None:
            with store.transaction():
                store.append(key, MAIN, drafts("a1"))
                store.change(key, [Create("b", Position(0, 0))])
                store.rename_session(key, "new")
                assert [record.message.id for record in store.find(key, After(0, ALL))] == ["u1", "a1"]
                assert (store.session(None, "a"), store.session(None, "new")) == (None, key)
                store.create_session(None, "b")
                raise RuntimeError("halfway")

        with pytest.raises(RuntimeError, match="halfway"):
            half_of_it()
        assert _all_of(store, key) == before
        assert (store.session(None, "a"), store.session(None, "new"), store.session(None, "b")) == (key, None, None)
        with store.transaction():
            store.append(key, MAIN, drafts("a2"))
            with pytest.raises(DuplicateError):
                store.append(key, MAIN, [*drafts("u9"), draft("a2", "assistant", "changed")])
            with pytest.raises(UnknownReferenceError):
                store.change(key, [Create("half", Position(0, 0)), Delete("none")])
            with store.transaction():
                other = store.create_session(None, "b")
            store.append(other, MAIN, drafts("u1"))
        assert [record.message.id for record in store.find(key, After(0, ALL))] == ["u1", "a2"]
        assert [branch.name for branch in store.branches(key)] == [MAIN]
        assert store.session(None, "b") == other


def _all_of(store: Store, session: int) -> Restored:
    """Return a whole session."""
    segments = store.segments(session, -1, ALL)
    refs = [ref for kind in ("tag", "stash", "move") for ref in store.refs(session, kind)]
    return Restored(
        tuple(segments),
        tuple(store.find(session, After(0, ALL))),
        tuple(store.covers(session, [one.segment for one in segments])),
        tuple(store.branches(session)),
        tuple(ref._replace(number=rank) for rank, ref in enumerate(sorted(refs))),
        tuple(store.forgotten(session, None, ALL)),
    )
