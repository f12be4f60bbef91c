"""Contract tests for stores: subclass `StoreContract`, give it a `store` fixture, and pytest does the rest."""

from collections.abc import Callable
from threading import Thread
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from shared_core.base import Store
from shared_core.errors import DuplicateError, StoreError, UnknownReferenceError
from shared_core.messages import Grounding, GroundingItem, Payload, ToolCall
from shared_core.records import MAIN, ROOT, Branch, Draft, Position, SessionState
from shared_core.testing.oracle import ALL, Session, draft, drafts

__all__ = ["StoreContract"]

_NASTY = ('["a","b"]', "", "%", "_", "\\", "'; --", '"', "null", "None", "a\x00b", "שלום \u202e", "😀", "a", "A", " a")
"""Ids and names that meet each other in a store that quotes, trims, folds case or cuts."""

_RICH: dict[str, Any] = {
    "name": "Ann",
    "tool_calls": (ToolCall(id="c1", name="find", arguments='{"x": 1}'), ToolCall(id="c2", name="find")),
    "tool_call_id": "c0",
    "grounding": Grounding(items=(GroundingItem(text="fact", score=0.1 + 0.2), GroundingItem(text=""))),
    "pinned": True,
    "media_tokens": 7,
    "payload": Payload(format="other/1", data={"a": [1, 2.5, None, {"b": "é😀"}]}),
}

_STEPS = st.lists(
    st.tuples(
        st.sampled_from(["append", "append", "append", "late", "again", "fork", "branch", "forget", "restart"]),
        st.integers(0, 999),
        st.integers(0, 999),
    ),
    max_size=20,
)


class StoreContract:
    """What every `Store` must do, compared with an exact oracle.

    Subclasses define a fixture `store` that returns an empty store and closes it afterwards; and, if the store outlives
    its object, a fixture `reopen`: a callable that returns another object on the same database.
    """

    @pytest.fixture
    def reopen(self) -> Callable[[], Store]:
        """Skip what needs a second object; override it in a store that has a place outside the process."""
        pytest.skip("this store cannot be opened twice")

    def test_a_session_exists_from_its_creation_on(self, store: Store) -> None:
        """Looking for a session does not create it; creating it twice gives one key."""
        assert store.session("u", "s") is None
        assert store.sessions("u") == {}
        key = store.create_session("u", "s")
        assert store.create_session("u", "s") == store.session("u", "s") == key
        other = store.create_session("u", "a")
        assert list(store.sessions("u").items()) == [("s", key), ("a", other)]
        assert store.sessions(None) == {}
        assert Session(store, "s", "u").key == key
        Session(store, "s", "u").check()

    def test_no_two_sessions_share_anything(self, store: Store) -> None:
        """Users and sessions with look-alike ids never meet."""
        pairs = [(user, name) for user in (None, *_NASTY) for name in _NASTY]
        sessions = [Session(store, name, user) for user, name in pairs]
        assert len({session.key for session in sessions}) == len(pairs)
        for number, session in enumerate(sessions):
            session.append(MAIN, [draft("same", content=f"mine {number}")])
        for (user, name), session in zip(pairs, sessions, strict=True):
            assert store.session(user, name) == session.key
            assert store.after(session.key, 0, ALL) == session.tree.records
        for user in (None, *_NASTY):
            own = {name: s.key for (u, name), s in zip(pairs, sessions, strict=True) if u == user}
            assert list(store.sessions(user).items()) == list(own.items())

    def test_one_session_does_not_see_another(self, store: Store) -> None:
        """Every read and every change stays inside its session."""
        mine, other = Session(store, "s", "u"), Session(store, "s", "v")
        for session, text in ((mine, "mine"), (other, "other")):
            session.append(MAIN, [draft("u1", content=text), draft("a1", "assistant", text, pinned=True)])
            store.put_vectors(session.key, "space", [(Position(0, 0), "hash", text.encode())])
            store.put_snapshot(session.key, "snap", 0, text.encode())
        other.append(MAIN, drafts("u2"))
        other.append("side", drafts("u3"), at=Position(0, 0))
        mine.check()
        assert store.ids_like(mine.key, "", ALL) == ["u1", "a1"]
        assert store.get(mine.key, ["u2"]) == store.at(mine.key, [Position(0, 2)]) == store.turn(mine.key, "u2") == []
        with pytest.raises(UnknownReferenceError):
            store.append(mine.key, "side", drafts("u9"))
        mine.forget([Position(0, 0), Position(0, 1)], branches=True)
        assert store.snapshot(other.key, "snap") == b"other"
        assert list(store.all_vectors(other.key, "space")) == [(Position(0, 0), "hash", b"other")]
        assert store.vectors_of(mine.key, "space", ["hash"]) == {}
        assert store.vectors(mine.key, "space", [Position(0, 0)]) == {}
        mine.check()
        other.check()

    def test_an_unknown_session_is_empty(self, store: Store) -> None:
        """Reading finds nothing, adding is refused, and neither creates anything."""
        key = store.create_session(None, "s") + 10**6
        assert store.state(key, MAIN) == SessionState(None, 0, 0)
        assert store.after(key, 0, ALL) == store.pinned(key) == []
        assert store.get(key, ["u1"]) == store.newest(key, ROOT, ALL) == []
        assert store.spaces(key) == store.ids_like(key, "", ALL) == []
        stats = dict(store.stats(key))
        assert stats.pop("bytes") >= 0
        assert stats == dict.fromkeys(("messages", "turns", "branches", "segments", "vectors", "forgotten"), 0)
        with pytest.raises(UnknownReferenceError):
            store.append(key, MAIN, drafts("u1"))
        with pytest.raises(UnknownReferenceError):
            store.create_branch(key, "side", ROOT)
        with pytest.raises(UnknownReferenceError):
            store.segment(key, 0)
        store.put_vectors(key, "space", [(Position(0, 0), "hash", b"v")])
        store.forget(key, [Position(0, 0)], branches=True)
        assert store.put_snapshot(key, "snap", 0, b"x") is False
        assert store.snapshot(key, "snap") is None
        assert store.branches(key) == []

    def test_messages_come_back_as_they_were(self, store: Store) -> None:
        """Every field, every zone of time, and the token count or its absence."""
        session = Session(store)
        moments = ["2024-01-01T00:00:00.000001+00:00", "1999-12-31T23:59:59-11:30", "2024-06-01T12:00:00+05:45"]
        plain = [draft(f"u{number}", created_at=moment) for number, moment in enumerate(moments)]
        uncounted = [Draft(draft("a1", "assistant", "").message)]
        session.append(MAIN, [*plain, *uncounted, draft("a2", "assistant", **_RICH), draft("s1", "system")])
        records = store.after(session.key, 0, ALL)
        zones = [r.message.created_at.utcoffset() for r in records if r.message.created_at is not None]
        assert zones == [d.message.created_at.utcoffset() for d in plain if d.message.created_at] + zones[3:]
        session.check()

    @pytest.mark.parametrize("content", [*_NASTY, "\ud800 lone", "\ud83d\ude00", "<|endoftext|>", "😀" * 250_000])
    def test_any_text_is_exact_or_refused_by_name(self, store: Store, content: str) -> None:
        """What a store cannot hold raises StoreError, naming the message, and stores nothing."""
        session = Session(store)
        try:
            session.append(
                MAIN, [draft("u1", content=content, name=content, payload=Payload(format="x", data=content))]
            )
        except StoreError as refusal:
            if "u1" not in str(refusal):
                pytest.fail(f"the error does not name the message: {refusal}")
        session.check()

    def test_ids_are_exact(self, store: Store) -> None:
        """Ids that differ only in case, space or wildcards are different messages."""
        session = Session(store)
        session.append(MAIN, [draft(id_) for id_ in _NASTY if id_])
        session.check()

    def test_a_prefix_means_itself(self, store: Store) -> None:
        """No wildcards; order of storing, not of the alphabet; never more than the limit."""
        session = Session(store)
        ids = ["b%", "b_", "b\\x", "ba", "B", "b", "c%d", "c1d", "\U0010ffffz", "b\U0010ffff", "é1", "e\u0301"]
        session.append(MAIN, [draft(id_) for id_ in ids])
        for prefix in ("", "b", "b%", "b_", "b\\", "c%", "c", "%", "_", "\U0010ffff", "é", "e", "x", "b\x00"):
            expected = [id_ for id_ in ids if id_.startswith(prefix)]
            assert store.ids_like(session.key, prefix, ALL) == expected
            assert store.ids_like(session.key, prefix, 2) == expected[:2]
            assert store.ids_like(session.key, prefix, 0) == []

    def test_adding_again_changes_nothing(self, store: Store) -> None:
        """A known id with the same content is left as it is, whatever its time, place and branch."""
        session = Session(store)
        session.append(MAIN, drafts("u1", "a1"))
        again = draft("u1", created_at="2030-01-01T00:00:00+00:00", turn_id="other")
        assert session.append(MAIN, [again]).records[0].message.created_at == draft("u1").message.created_at
        session.append("side", drafts("u1", "a1"), at=ROOT)
        session.append("side", drafts("u1", "u2", "a1", "a2"))
        session.append(MAIN, [])
        session.check()

    @pytest.mark.parametrize("change", [{"content": "new"}, {"role": "assistant"}, {"pinned": True}, {"name": "x"}])
    def test_other_content_under_a_known_id_is_refused(self, store: Store, change: dict[str, Any]) -> None:
        """The error names the id, and the whole call stores nothing, not even its new branch."""
        session = Session(store)
        session.append(MAIN, drafts("u1"))
        given_ = [*drafts("u2"), draft("u1", **change), *drafts("u3")]
        for branch, at in ((MAIN, None), ("side", ROOT)):
            with pytest.raises(DuplicateError, match="'u1'"):
                store.append(session.key, branch, given_, at=at)
            session.check()

    def test_bad_drafts_are_refused(self, store: Store) -> None:
        """An id twice in one call, or none, or no time."""
        session = Session(store)
        with pytest.raises(DuplicateError, match="'u1'"):
            store.append(session.key, MAIN, drafts("u1", "u2", "u1"))
        for lacking in ({"id": None}, {"created_at": None}):
            with pytest.raises(ValueError, match="user"):
                store.append(session.key, MAIN, [Draft(draft("u1").message.replace(**lacking))])
        session.check()

    def test_unknown_branches_turns_and_places_are_refused(self, store: Store) -> None:
        """The error lists the branches there are; nothing is stored."""
        session = Session(store)
        session.append(MAIN, drafts("u1"))
        session.fork("side", ROOT)
        session.append("side", drafts("u2"))
        with pytest.raises(UnknownReferenceError, match="'nowhere'") as raised:
            store.append(session.key, "nowhere", drafts("u3"))
        assert raised.value.candidates == (MAIN, "side")
        with pytest.raises(UnknownReferenceError, match="'u9'"):
            store.append(session.key, MAIN, drafts("a1"), turn="u9")
        opened = session.tree.branches["side"].segment
        for place in (Position(0, 1), Position(0, -2), Position(opened, 1), Position(opened, -2), Position(99, 0)):
            with pytest.raises(UnknownReferenceError):
                store.create_branch(session.key, "new", place)
            with pytest.raises(UnknownReferenceError):
                store.append(session.key, "new", drafts("u3"), at=place)
        with pytest.raises(UnknownReferenceError):
            store.segment(session.key, 99)
        for name in (MAIN, "side"):
            with pytest.raises(DuplicateError, match=name):
                store.create_branch(session.key, name, ROOT)
            with pytest.raises(DuplicateError, match=name):
                store.append(session.key, name, drafts("u3"), at=ROOT)
        session.check()

    def test_replies_join_their_turn(self, store: Store) -> None:
        """The newest of the branch, or the one named; a user message opens the next; a system message stands alone."""
        session = Session(store)
        session.append(MAIN, drafts("s1", "a1", "u1", "a2", "t1", "s2", "a3"))
        session.append(MAIN, drafts("u2"))
        session.append(MAIN, drafts("a4", "s3", "u3", "a5"), turn="u1")
        session.append(MAIN, drafts("t2"), turn="s1")
        session.append("side", drafts("a6", "u4", "a7"), at=Position(0, 3))
        session.append("root", drafts("a8", "u5"), at=ROOT)
        session.append("root", drafts("a9"), turn="u2")
        assert [r.message.turn_id for r in store.get(session.key, ["a4", "a6", "a8", "a9"])] == ["u1", "u1", "a8", "u2"]
        session.check()

    def test_branches_share_their_past(self, store: Store) -> None:
        """A branch at the tip of a segment extends it; the other one then opens a new one; nobody's past changes."""
        session = Session(store)
        session.append(MAIN, drafts("u1", "a1", "u2"))
        session.fork("tip", Position(0, 2))
        for name in _NASTY:
            session.fork(name, Position(0, 0))
        session.append("tip", drafts("a2"))
        session.append(MAIN, drafts("a3"))
        session.append("tip", drafts("u3"))
        session.append("%", drafts("u4"))
        session.append("empty", [], at=Position(0, 1))
        session.append("known", drafts("u1"), at=session.tree.branches["%"])
        session.append("known", drafts("a4"))
        session.check()
        assert store.state(session.key).head is store.state(session.key, "nowhere").head is None

    def test_reading_is_limited_and_paged(self, store: Store) -> None:
        """`newest` backwards from a depth, `after` forwards from a number, both gapless."""
        session = Session(store)
        session.append(MAIN, drafts(*(f"u{number}" for number in range(7))))
        session.append("side", drafts("u7", "u8"), at=Position(0, 3))
        records = session.tree.records
        for depth in range(-1, 9):
            for limit in (0, 1, 3, 99):
                below = [r for r in records if r.position.segment == 0 and r.position.depth <= depth]
                assert store.newest(session.key, Position(0, depth), limit) == below[::-1][:limit]
        for seq in range(11):
            for limit in (0, 1, 4, 99):
                assert store.after(session.key, seq, limit) == records[seq : seq + limit]
        asked = [Position(0, 5), Position(0, 99), Position(0, 1), Position(0, 5), Position(7, 0)]
        assert store.at(session.key, asked) == [records[5], records[1], records[5]]
        assert store.get(session.key, ["u5", "U5", "u1", "u5"]) == [records[5], records[1], records[5]]

    def test_vectors_are_kept_by_place_and_text(self, store: Store) -> None:
        """In spaces of their own, replaced in place, found by hash, in order of positions."""
        session = Session(store)
        key, spaces = session.key, ("model/2", "Model/2", "%")
        session.append(MAIN, drafts("u1", "a1", "u2"))
        session.append("side", drafts("u3"), at=Position(0, 0))
        side = session.tree.branches["side"]
        for space in spaces:
            rows = [(side, "h", space.encode()), (Position(0, 2), "h", space.encode()), (Position(0, 1), "", b"")]
            store.put_vectors(key, space, iter([*rows, (Position(0, 9), "lost", b"lost")]))
            assert list(store.all_vectors(key, space)) == sorted(rows)
        assert store.spaces(key) == [*spaces[::-1]]
        store.put_vectors(key, "model/2", [(Position(0, 2), "new", b"\x00\xff")])
        assert store.spaces(key) == ["model/2", "%", "Model/2"]
        wanted = [Position(0, 2), Position(0, 0), side]
        assert store.vectors(key, "model/2", wanted) == {Position(0, 2): ("new", b"\x00\xff"), side: ("h", b"model/2")}
        by_hash = {"h": b"model/2", "new": b"\x00\xff", "": b""}
        assert store.vectors_of(key, "model/2", {*by_hash, "lost"}) == by_hash
        assert store.vectors_of(key, "other", ["h"]) == {}
        assert store.vectors(key, "other", wanted) == {}
        assert list(store.all_vectors(key, "other")) == []
        store.put_vectors(key, "void", [])
        assert "void" not in store.spaces(key)
        assert store.stats(key)["vectors"] == 9

    def test_all_vectors_may_be_left_open(self, store: Store) -> None:
        """The store can be used between two vectors, and a long space comes whole and in order."""
        session = Session(store)
        count = 2500
        session.append(MAIN, drafts(*(f"u{number}" for number in range(count))))
        rows = [(Position(0, number), f"h{number}", number.to_bytes(4, "big")) for number in range(count)]
        store.put_vectors(session.key, "space", reversed(rows))
        iterator = store.all_vectors(session.key, "space")
        assert next(iterator) == rows[0]
        session.append(MAIN, drafts("a1"))
        assert list(iterator) == rows[1:]

    @pytest.mark.parametrize("size", [0, 1, 2**20, 40 * 2**20])
    def test_a_snapshot_is_exact(self, store: Store, size: int) -> None:
        """Whatever its size; a later one takes its place, a shorter one too; names are kept apart."""
        key = Session(store).key
        data = bytes(range(256)) * (size // 256) + b"\x00" * (size % 256)
        assert store.snapshot(key, "a") is None
        assert store.put_snapshot(key, "a", 0, data) is True
        assert store.put_snapshot(key, "A", 0, b"other") is True
        assert store.snapshot(key, "a") == data
        assert store.put_snapshot(key, "a", 0, b"short") is True
        assert (store.snapshot(key, "a"), store.snapshot(key, "A")) == (b"short", b"other")

    def test_forgetting_reaches_everything(self, store: Store) -> None:
        """Rows, vectors in all spaces and snapshots go; places stay empty; the id does not come back."""
        session = Session(store)
        key = session.key
        session.append(MAIN, drafts("u1", "a1", "u2", "a2"))
        session.fork("side", Position(0, 1))
        for space in ("x", "y"):
            store.put_vectors(key, space, [(Position(0, n), f"h{n}", b"v") for n in range(4)])
        store.put_vectors(key, "z", [(Position(0, 3), "h3", b"v")])
        for name in ("a", "b"):
            store.put_snapshot(key, name, 0, b"data")
        session.forget([Position(0, 3), Position(0, 1), Position(0, 99), Position(5, 0)])
        session.check()
        assert (store.snapshot(key, "a"), store.snapshot(key, "b")) == (None, None)
        assert store.put_snapshot(key, "a", 0, b"old") is store.put_snapshot(key, "a", 2, b"new") is False
        assert store.put_snapshot(key, "a", 1, b"now") is True
        for space in ("x", "y"):
            assert [place.depth for place, *_ in store.all_vectors(key, space)] == [0, 2]
            assert store.vectors_of(key, space, ["h1", "h2", "h3"]) == {"h2": b"v"}
        assert store.spaces(key) == ["y", "x"]
        store.put_vectors(key, "x", [(Position(0, 1), "h1", b"late")])
        assert store.vectors(key, "x", [Position(0, 1)]) == {}
        assert session.append(MAIN, [*drafts("a1", "u3"), draft("a2", content="changed")]).forgotten == ("a1", "a2")
        assert session.append("side", drafts("a3")).head.depth == 2
        session.forget([])
        session.check()
        assert store.scrub() is None

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

    def test_any_history_reads_like_the_oracle(self, store: Store) -> None:
        """Random appending, late replies, re-sending, forking and forgetting."""
        count = iter(range(ALL))

        @settings(
            deadline=None, database=None, suppress_health_check=[HealthCheck.too_slow], report_multiple_bugs=False
        )
        @given(_STEPS)
        def run(steps: list[tuple[str, int, int]]) -> None:
            session = Session(store, f"random {next(count)}")
            for number, (kind, first, second) in enumerate(steps):
                _step(session, kind, first, second, number)
            session.check()

        run()

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
        records = store.after(key, 0, ALL)
        assert [record.seq for record in records] == [record.position.depth + 1 for record in records]
        assert [r.seq for r in records] == list(range(1, 81))
        assert all(r.message.turn_id == "u" + str(r.message.id)[1:] for r in records)

    def test_everything_is_there_after_reopening(self, store: Store, reopen: Callable[[], Store]) -> None:
        """Another object on the same database sees, and may change, all of it."""
        session = Session(store)
        session.append(MAIN, [*drafts("s1", "u1"), draft("a1", "assistant", **_RICH)])
        session.append("side", drafts("u2"), at=Position(0, 1))
        session.forget([Position(0, 1)])
        store.put_vectors(session.key, "space", [(Position(0, 0), "h", b"v")])
        store.put_snapshot(session.key, "a", 1, b"data")
        other = reopen()
        try:
            again = Session(other)
            again.tree = session.tree
            again.append(MAIN, drafts("u1", "a3"))
            again.check()
            assert list(other.all_vectors(again.key, "space")) == [(Position(0, 0), "h", b"v")]
            assert other.snapshot(again.key, "a") == b"data"
        finally:
            other.close()
        session.check()

    def test_a_closed_store_says_so(self, store: Store) -> None:
        """Closing twice is fine, using it afterwards a StoreError."""
        key = Session(store).key
        store.close()
        store.close()
        with pytest.raises(StoreError, match="closed"):
            store.state(key)
        with pytest.raises(StoreError, match="closed"):
            store.append(key, MAIN, drafts("u1"))


def _step(session: Session, kind: str, first: int, second: int, number: int) -> None:
    """Do one random thing; `first` and `second` choose what to do it to."""
    tree = session.tree
    branch = list(tree.branches)[first % len(tree.branches)]
    place = tree.places()[first % len(tree.places())]
    fresh = drafts(*(f"{'uats'[(second >> 2 * n) % 4]}{number}-{n}" for n in range(second % 3 + 1)))
    picked = tree.records[second % len(tree.records)] if tree.records else None
    if kind == "fork":
        session.fork(f"b{number}", place)
    elif kind == "branch":
        session.append(f"b{number}", fresh, at=place)
    elif kind == "restart" and second < 300:
        session.forget([record.position for record in tree.records], branches=True)
    elif kind == "forget" and picked:
        session.forget([picked.position, place])
    elif kind == "again" and picked:
        forgotten = drafts(*sorted(map(str, tree.forgotten))[:1])
        session.append(branch, [*forgotten, *fresh, Draft(picked.message)])
    else:
        session.append(branch, fresh, turn=picked.message.turn_id if picked and kind == "late" else None)
