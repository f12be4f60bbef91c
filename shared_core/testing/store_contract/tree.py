"""The store contract on branches and turns: where a message stands, whatever was done before."""

from collections.abc import Sequence

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from shared_core.errors import DuplicateError, UnknownReferenceError
from shared_core.records import MAIN, ROOT, Create, Draft, Position
from shared_core.store import Store
from shared_core.testing.oracle import ALL, Session, drafts
from shared_core.testing.store_contract.samples import NASTY

__all__ = ["TreeContract"]

_SAYING = ("append", "append", "late", "again", "resend", "resend", "resend", "fork", "branch", "forget", "restart")
_MERGING = ("append", "append", "append", "late", "resend", "fork", "branch", "merge", "merge", "move", "forget")


class TreeContract:
    """Where messages stand: their branch, their turn, their place in the order."""

    def test_unknown_branches_turns_and_places_are_refused(self, store: Store) -> None:
        """The error lists the branches there are; nothing is stored."""
        session = Session(store)
        session.append(MAIN, drafts("u1"))
        session.fork("side", ROOT)
        session.append("side", drafts("u2"))
        with pytest.raises(UnknownReferenceError, match="'nowhere'") as raised:
            store.append(session.key, "nowhere", drafts("u3"))
        assert raised.value.candidates == (MAIN, "side")
        for branch, turn in ((MAIN, "u9"), (MAIN, "u2"), ("side", "u1")):
            with pytest.raises(UnknownReferenceError, match=f"{turn!r} on this branch"):
                store.append(session.key, branch, drafts("a1"), turn=turn)
        opened = session.tree.branches["side"].segment
        for place in (Position(0, 1), Position(0, -2), Position(opened, 1), Position(opened, -2), Position(99, 0)):
            with pytest.raises(UnknownReferenceError):
                store.change(session.key, [Create("new", place)])
            with pytest.raises(UnknownReferenceError):
                store.append(session.key, "new", drafts("u3"), at=place)
        with pytest.raises(UnknownReferenceError):
            store.segment(session.key, 99)
        for name in (MAIN, "side"):
            with pytest.raises(DuplicateError, match=name):
                store.change(session.key, [Create(name, ROOT)])
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
        session.append("side", drafts("a9"), turn="u1")
        assert [r.message.turn_id for r in store.get(session.key, ["a4", "a6", "a8", "a9"])] == ["u1", "u1", "a8", "u1"]
        session.check()

    def test_replies_join_the_known_message_before_them(self, store: Store) -> None:
        """A history that is sent again, whole or in part, gives each new reply the turn it stands in there."""
        session = Session(store)
        session.append(MAIN, drafts("a0", "u1", "s1", "u2", "a2", "u3"))
        session.append("side", drafts("u4"), at=Position(0, 1))

        def turns(branch: str, *ids: str, turn: str | None = None) -> list[tuple[str | None, int]]:
            appended = session.append(branch, drafts(*ids), turn=turn)
            return [(r.message.turn_id, r.turn_no) for r in appended.records if r.message.id in appended.added]

        assert turns(MAIN, "u1", "a11") == [("u1", 0)], "the question, and late its answer"
        assert turns(MAIN, "u1", "a11", "t12", "u2", "a21") == [("u1", 0), ("u2", 1)], "each its own"
        assert turns(MAIN, "a2", "t22", turn="u3") == [("u2", 1)], "the list says more than `turn`"
        assert turns(MAIN, "t31", "u1", "t13", turn="u3") == [("u3", 2), ("u1", 0)], "`turn` is for the first ones"
        assert turns(MAIN, "s1", "a0", "a31") == [("u3", 2)], "what stands alone lends nobody its turn"
        assert turns(MAIN, "u1", "s1", "a14") == [("u1", 0)], "nor takes it away"
        assert turns(MAIN, "u2", "u5", "a51") == [("u5", 3), ("u5", 3)], "a new question is the newest of the branch"
        assert turns(MAIN, "u4", "a52") == [("u5", 3)], "u4 is on another branch"
        assert turns(MAIN, "u1", "u4", "a15") == [("u1", 0)], "as if it were not in the list"
        assert turns("side", "u2", "a2", "a41") == [("u4", 1)], "as u2 is here"
        assert turns("side", "u1", "a11", "u6", "a61") == [("u6", 2), ("u6", 2)], "u1 is on both"
        session.forget([session.tree.records[3].position])
        assert turns(MAIN, "u1", "u2", "a16", "a2", "t23") == [("u1", 0), ("u2", 1)], "u2 is forgotten, its reply not"
        session.check()

    def test_branches_share_their_past(self, store: Store) -> None:
        """A branch at the tip of a segment extends it; the other one then opens a new one; nobody's past changes."""
        session = Session(store)
        session.append(MAIN, drafts("u1", "a1", "u2"))
        session.fork("tip", Position(0, 2))
        for name in NASTY:
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

    def test_any_history_reads_like_the_oracle(self, store: Store) -> None:
        """Random appending, late replies, re-sending, forking and forgetting."""
        _run(store, _SAYING)

    def test_any_tree_with_merges_reads_like_the_oracle(self, store: Store) -> None:
        """Random merging, too, nested, crossed and repeated, and moving of branches."""
        _run(store, _MERGING)


def _run(store: Store, kinds: Sequence[str]) -> None:
    """Do random things, each of which must return what the oracle does, and compare all that can be read."""
    count = iter(range(ALL))
    steps_of_kinds = st.lists(st.tuples(st.sampled_from(kinds), st.integers(0, 999), st.integers(0, 999)), max_size=20)

    @settings(deadline=None, database=None, suppress_health_check=[HealthCheck.too_slow], report_multiple_bugs=False)
    @given(steps_of_kinds)
    def run(steps: list[tuple[str, int, int]]) -> None:
        session = Session(store, f"random {next(count)}")
        for number, (kind, first, second) in enumerate(steps):
            _step(session, kind, first, second, number)
        session.check()

    run()


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
    elif kind == "merge":
        session.merge(branch, list(tree.branches.values())[second % len(tree.branches)] if second % 2 else place)
    elif kind == "move":
        session.move(branch, tree.places()[second % len(tree.places())])
    elif kind == "restart" and second < 300:
        session.forget([record.position for record in tree.records], branches=True)
    elif kind == "forget" and picked:
        session.forget([picked.position, place])
    elif kind == "again" and picked:
        forgotten = drafts(*sorted(map(str, tree.forgotten))[:1])
        session.append(branch, [*forgotten, *fresh, Draft(picked.message)])
    elif kind == "resend":
        path = tree.path(tree.branches[branch] if second % 5 else place)
        known = [Draft(record.message) for record in path[second % 3 : second % 7 + 3]]
        session.append(branch, [known.pop(0) for _ in known[second % 2 :]] + fresh + known)
    else:
        turns = [r.message.turn_id for r in tree.path(tree.branches[branch])] if kind == "late" else []
        session.append(branch, fresh, turn=turns[second % len(turns)] if turns else None)
