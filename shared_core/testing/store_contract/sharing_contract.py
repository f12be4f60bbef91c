"""The store contract on sharing: threads, objects on one database, other stores, transactions, the end."""

from collections.abc import Callable, Sequence
from functools import partial
from threading import Thread

import pytest

from shared_core.errors import DuplicateError, StoreError, UnknownReferenceError
from shared_core.queries import After, MadeFrom
from shared_core.records import (
    MAIN,
    Branch,
    Create,
    Merge,
    Position,
    Put,
    Record,
    Ref,
    Restored,
    Segment,
    Snapshot,
    Stretch,
    VectorRows,
)
from shared_core.store import Store
from shared_core.testing.oracle import ALL, Session, draft, drafts
from shared_core.testing.store_contract.message_contract import RICH

__all__ = ["RestoreContract", "SharingContract"]


class SharingContract:
    """What a store guarantees to several threads and objects, and what it does when it is closed."""

    @pytest.fixture
    def reopen(self) -> Callable[[], Store]:
        """Skip the tests that need a second object; override this fixture if the store outlives its object."""
        pytest.skip("this store cannot be opened twice")

    def test_threads_share_a_store(self, store: Store) -> None:
        """Appends from several threads get one gapless order, and none is lost."""
        key = Session(store).key

        def write(name: int) -> None:
            for number in range(10):
                store.append(key, MAIN, drafts(f"u{name}-{number}", f"a{name}-{number}"))

        threads = [Thread(target=write, args=(name,)) for name in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        records = store.find(key, After(0, ALL))
        assert [record.seq for record in records] == [record.position.depth + 1 for record in records]
        assert [r.seq for r in records] == list(range(1, 81))
        assert all(r.message.turn_id == "u" + str(r.message.id)[1:] for r in records)

    def test_everything_is_there_after_reopening(self, store: Store, reopen: Callable[[], Store]) -> None:
        """Another object on the same database sees all of it and may change it."""
        session = Session(store)
        session.append(MAIN, [*drafts("s1", "u1"), draft("a1", "assistant", **RICH)])
        session.append("side", drafts("u2"), at=Position(0, 1))
        session.forget([Position(0, 1)])
        store.keep(session.key, VectorRows("space", [(Position(0, 0), "h", b"v")]))
        store.keep(session.key, Snapshot("a", b"data"), 1)
        other = reopen()
        try:
            again = Session(other)
            again.tree = session.tree
            again.append(MAIN, drafts("u1", "a3"))
            again.check()
            assert list(other.vectors(again.key, "space")) == [(Position(0, 0), "h", b"v")]
            assert other.snapshot(again.key, "a") == b"data"
        finally:
            other.close()
        session.check()

    def test_two_objects_on_one_database_say_so(self, store: Store, reopen: Callable[[], Store]) -> None:
        """`identity` is the same for both, if the store has one."""
        other = reopen()
        try:
            assert other.identity() == store.identity()
        finally:
            other.close()

    def test_a_closed_store_says_so(self, store: Store) -> None:
        """Closing it twice is fine; using it afterwards raises StoreError."""
        key = Session(store).key
        store.close()
        store.close()
        with pytest.raises(StoreError, match="closed"):
            store.state(key)
        with pytest.raises(StoreError, match="closed"):
            store.append(key, MAIN, drafts("u1"))


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
        for position in (Position(0, 2), Position(1, 5), store.state(key, MAIN).head or Position(0, 0)):
            assert store.newest(other, position, ALL) == store.newest(key, position, ALL)
        assert store.append(other, MAIN, drafts("u2", "a5")).forgotten == ("u2",)
        assert [record.message.id for record in store.get(key, ["a5"])] == [], "the other session is as it was"

    def test_numbers_go_on_after_the_newest_was_forgotten(self, store: Store) -> None:
        """`last_seq` holds the number of a message that did not come along; it never makes it smaller."""
        session = Session(store)
        for last_seq in (7, 3, 0):
            store.restore(session.key, Restored(last_seq=last_seq))
            assert store.state(session.key).last_seq == 7
        assert store.find(session.key, After(0, ALL)) == []
        assert store.append(session.key, MAIN, drafts("u1")).records[0].seq == 8

    def test_segments_are_listed_by_pages(self, store: Store) -> None:
        """In order of their numbers, and only those of the session."""
        session, other = Session(store), Session(store, "other")
        session.append(MAIN, drafts("u1", "u2"))
        for number in range(3):
            session.append(f"b{number}", drafts(f"u{number + 3}"), at=Position(0, 0))
        other.append(MAIN, drafts("u1"))
        every = [store.segment(session.key, number) for number in range(4)]
        assert store.segments(session.key, -1, ALL) == every
        assert store.segments(session.key, 0, 2) == every[1:3]
        assert (
            store.segments(session.key, 3, 2) == store.segments(session.key, -1, 0) == store.segments(99, -1, 9) == []
        )

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

        def stored(id_: str, position: tuple[int, int], seq: int) -> Restored:
            return Restored(records=(Record(fresh.replace(id=id_), Position(*position), seq, 1),), forgotten=("gone",))

        tag = Ref(0, "tag", "t", Position(0, 1), None, "", "2024-01-01 00:00:00")
        for bad in (
            stored("u1", (0, 2), 3),
            stored("x", (0, 1), 3),
            stored("x", (0, 2), 2),
            Restored(refs=(tag,), forgotten=("gone",)),
        ):
            with pytest.raises(DuplicateError):
                store.restore(key, bad)
        for bad in (
            stored("x", (7, 0), 3),
            Restored(segments=(Segment(1, Position(5, 5), 5),)),
            Restored(branches=(Branch("b", Position(0, 9)),), forgotten=("gone",)),
            Restored(refs=(tag._replace(name="u", position=Position(3, 3)),)),
        ):
            with pytest.raises(UnknownReferenceError):
                store.restore(key, bad)
        with pytest.raises(UnknownReferenceError):
            store.restore(999, Restored(forgotten=("x",)))
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

    def test_forgotten_ids_are_read_by_pages(self, store: Store) -> None:
        """Each is read once, of one session only, in an order that does not depend on when it was forgotten."""
        ids = ["b", "a", "é", "c%", "\ue000"]
        for name, order in (("one", ids), ("two", ids[::-1])):
            key = store.create_session(None, name)
            for id_ in order:
                store.restore(key, Restored(forgotten=(id_,)))
        read = [_pages(store, store.create_session(None, name)) for name in ("one", "two")]
        assert read[0] == read[1]
        assert sorted(read[0]) == sorted(ids)
        assert store.forgotten(store.create_session(None, "one"), None, 0) == store.forgotten(999, None, 9) == []
        assert store.forgotten(store.create_session(None, "three"), None, 9) == []

    def test_it_can_be_asked_which_ids_are_forgotten(self, store: Store) -> None:
        """Of one session only; however the store finds them, they are those that can be read by pages."""
        one, two = (store.create_session(None, name) for name in ("one", "two"))
        store.restore(one, Restored(forgotten=("a", "c%", "\ue000")))
        store.restore(two, Restored(forgotten=("b",)))
        for are_forgotten in (store.are_forgotten, partial(Store.are_forgotten, store)):
            assert are_forgotten(one, ["a", "b", "\ue000", "c", "a"]) == {"a", "\ue000"}
            assert are_forgotten(two, {"a", "b"}) == {"b"}
            assert are_forgotten(one, []) == are_forgotten(999, ["a"]) == set()

    def test_users_are_known(self, store: Store) -> None:
        """Every session tells whose it is, if anybody's; the oldest comes first; some users' can be asked for."""
        assert store.sessions() == []
        for user, session in (("b", "1"), (None, "1"), ("a", "1"), ("b", "2"), ("\ue000", "1"), (None, "2")):
            store.create_session(user, session)
        sessions = [(one.user_id, one.session_id) for one in store.sessions()]
        assert sessions == [("b", "1"), (None, "1"), ("a", "1"), ("b", "2"), ("\ue000", "1"), (None, "2")]
        assert [one.session_id for one in store.sessions("a", "b")] == ["1", "1", "2"]
        assert store.sessions("nobody") == []

    def test_a_transaction_is_all_or_nothing(self, store: Store) -> None:
        """A change is seen inside the block and undone with it; a part that fails is undone alone."""
        key = store.create_session(None, "a")
        store.append(key, MAIN, drafts("u1"))
        before = _all_of(store, key)

        def half_of_it() -> None:
            with store.transaction():
                store.append(key, MAIN, drafts("a1"))
                store.change(key, [Create("b", Position(0, 0))])
                assert [record.message.id for record in store.find(key, After(0, ALL))] == ["u1", "a1"]
                store.create_session(None, "b")
                raise RuntimeError("halfway")

        with pytest.raises(RuntimeError, match="halfway"):
            half_of_it()
        assert _all_of(store, key) == before
        assert store.session(None, "b") is None
        with store.transaction():
            store.append(key, MAIN, drafts("a2"))
            with pytest.raises(DuplicateError):
                store.append(key, MAIN, [*drafts("u9"), draft("a2", "assistant", "changed")])
            with store.transaction():
                other = store.create_session(None, "b")
            store.append(other, MAIN, drafts("u1"))
        assert [record.message.id for record in store.find(key, After(0, ALL))] == ["u1", "a2"]
        assert store.session(None, "b") == other


def _pages(store: Store, session: int) -> list[str]:
    found: list[str] = []
    while page := store.forgotten(session, found[-1] if found else None, 2):
        found += page
        assert len(found) == len(set(found)), "a page begins before its `after`"
    return found


def _all_of(store: Store, session: int) -> Restored:
    """Return a whole session."""
    segments = tuple(store.segment(session, number) for number in range(store.stats(session)["segments"]))
    refs: Sequence[Ref] = sorted(
        (ref for kind in ("tag", "stash", "move") for ref in store.refs(session, kind)), key=lambda ref: ref.number
    )
    return Restored(
        segments,
        tuple(store.find(session, After(0, ALL))),
        tuple(store.covers(session, range(len(segments)))),
        tuple(store.branches(session)),
        tuple(ref._replace(number=position) for position, ref in enumerate(refs)),
        tuple(_pages(store, session)),
    )
