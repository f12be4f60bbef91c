"""The store contract on the tree: branches and turns, and what becomes of them by every change."""

from collections.abc import Sequence
from dataclasses import replace
from typing import get_args

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from shared_core.errors import DuplicateError, StaleHeadError, UnknownReferenceError
from shared_core.queries import MadeFrom
from shared_core.records import (
    MAIN,
    ROOT,
    Branch,
    Change,
    Create,
    Delete,
    Draft,
    Drop,
    Expect,
    Merge,
    Move,
    Position,
    Put,
    RefKind,
    Rename,
    Segment,
    Stretch,
)
from shared_core.store import Store
from shared_core.testing.oracle import ALL, Session, drafts
from shared_core.testing.store_contract.message_contract import NASTY

__all__ = ["BranchContract", "TreeContract"]

_SAYING = ("append", "append", "late", "again", "resend", "resend", "resend", "fork", "branch", "forget", "restart")
_MERGING = ("append", "append", "append", "late", "resend", "fork", "branch", "merge", "merge", "move", "forget")


class TreeContract:
    """Where messages stand: on which branch, in which turn, in which order."""

    def test_unknown_branches_turns_and_positions_are_refused(self, store: Store) -> None:
        """The error lists the branches that exist; nothing is stored."""
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
        for position in (Position(0, 1), Position(0, -2), Position(opened, 1), Position(opened, -2), Position(99, 0)):
            with pytest.raises(UnknownReferenceError):
                store.change(session.key, [Create("new", position)])
            with pytest.raises(UnknownReferenceError):
                store.append(session.key, "new", drafts("u3"), at=position)
        with pytest.raises(UnknownReferenceError):
            store.segment(session.key, 99)
        for name in (MAIN, "side"):
            with pytest.raises(DuplicateError, match=name):
                store.change(session.key, [Create(name, ROOT)])
            with pytest.raises(DuplicateError, match=name):
                store.append(session.key, name, drafts("u3"), at=ROOT)
        session.check()

    def test_replies_join_their_turn(self, store: Store) -> None:
        """Replies join the newest turn or the one named; user messages open a turn; system messages stand alone."""
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
        """When a history is sent again, whole or in part, each new reply joins the turn that it stands in there."""
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
        """A branch at the tip of a segment extends it; another then opens a new segment; no branch's past changes."""
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
        """Random merging as well, nested, crossed and repeated, and moving of branches."""
        _run(store, _MERGING)


def _run(store: Store, kinds: Sequence[str]) -> None:
    """Do random things, each of which must return what the oracle does, and compare everything that can be read."""
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
    position = tree.positions()[first % len(tree.positions())]
    fresh = drafts(*(f"{'uats'[(second >> 2 * n) % 4]}{number}-{n}" for n in range(second % 3 + 1)))
    picked = tree.records[second % len(tree.records)] if tree.records else None
    if kind == "fork":
        session.fork(f"b{number}", position)
    elif kind == "branch":
        session.append(f"b{number}", fresh, at=position)
    elif kind == "merge":
        session.merge(branch, list(tree.branches.values())[second % len(tree.branches)] if second % 2 else position)
    elif kind == "move":
        session.move(branch, tree.positions()[second % len(tree.positions())])
    elif kind == "restart" and second < 300:
        session.forget([record.position for record in tree.records], branches=True)
    elif kind == "forget" and picked:
        session.forget([picked.position, position])
    elif kind == "again" and picked:
        forgotten = drafts(*sorted(map(str, tree.forgotten))[:1])
        session.append(branch, [*forgotten, *fresh, Draft(picked.message)])
    elif kind == "resend":
        path = tree.path(tree.branches[branch] if second % 5 else position)
        known = [Draft(record.message) for record in path[second % 3 : second % 7 + 3]]
        session.append(branch, [known.pop(0) for _ in known[second % 2 :]] + fresh + known)
    else:
        turns = [r.message.turn_id for r in tree.path(tree.branches[branch])] if kind == "late" else []
        session.append(branch, fresh, turn=turns[second % len(turns)] if turns else None)


class BranchContract:
    """What `Store.change` does, and what a store knows about the origin of messages."""

    def test_a_merge_has_two_parents_in_order(self, store: Store) -> None:
        """It begins a segment, with room before it for what only the second parent has; repeating it does nothing."""
        session = Session(store)
        session.append(MAIN, drafts("u1", "a1"))
        session.fork("side", Position(0, 1))
        session.append("side", drafts("u2", "a2", "u3"))
        session.append(MAIN, drafts("u4", "a4"))
        side, main = store.branches(session.key)[1].head, store.branches(session.key)[0].head
        session.merge(MAIN, side)
        merge = store.segment(session.key, dict(store.branches(session.key))[MAIN].segment)
        assert merge == Segment(merge.segment, main, 7, side, 7, 1)
        session.check()
        session.merge(MAIN, side)
        session.merge(MAIN, ROOT)
        assert dict(store.branches(session.key))[MAIN] == Position(merge.segment, 7)
        session.append(MAIN, drafts("a5", "u6"))
        assert [(r.message.turn_id, r.turn_no) for r in store.get(session.key, ["a5", "u6"])] == [("u3", 2), ("u6", 4)]
        session.append("side", drafts("a6"), turn="u2")
        session.merge("side", dict(store.branches(session.key))[MAIN])
        session.append("side", drafts("u7"))
        session.check()

    def test_changes_are_made_together_or_not_at_all(self, store: Store) -> None:
        """If one cannot be made, those before it are undone, and the error says what is wrong."""
        session = Session(store)
        session.append(MAIN, drafts("u1", "a1"))
        session.fork("side", Position(0, 0))
        store.change(session.key, [Put("tag", "v1", Position(0, 0))])
        session.check()
        first = Move(MAIN, Position(0, 0), "first")
        wrong: list[tuple[Change, type[Exception], str]] = [
            (Move("none", ROOT, ""), UnknownReferenceError, "'none'"),
            (Move("side", Position(0, 2), ""), UnknownReferenceError, "no position"),
            (Move("side", Position(9, 0), ""), UnknownReferenceError, "no segment 9"),
            (Move("side", ROOT, "", expect=Position(0, 1)), StaleHeadError, "'side'"),
            (Expect(1), StaleHeadError, "forgotten"),
            (Expect(0, "side", Position(0, 1)), StaleHeadError, "'side'"),
            (Expect(0, "none", ROOT), UnknownReferenceError, "'none'"),
            (Merge("none", ROOT, ""), UnknownReferenceError, "'none'"),
            (Merge("side", Position(0, 7), ""), UnknownReferenceError, "no position"),
            (Rename("none", "new"), UnknownReferenceError, "'none'"),
            (Rename("side", MAIN), DuplicateError, "branch 'main'"),
            (Rename("side", "v1"), DuplicateError, "tag 'v1'"),
            (Delete("none"), UnknownReferenceError, "'none'"),
            (Put("tag", "v1", ROOT), DuplicateError, "tag 'v1'"),
            (Put("tag", "side", ROOT), DuplicateError, "branch 'side'"),
            (Put("tag", "v2", Position(0, 2)), UnknownReferenceError, "no position"),
            (Put("stash", MAIN, ROOT, Position(0, 2)), UnknownReferenceError, "no position"),
            (Drop(99), UnknownReferenceError, "99"),
        ]
        for change, error, match in wrong:
            with pytest.raises(error, match=match):
                store.change(session.key, [first, change])
            assert store.refs(session.key, "move") == []
            session.check()
        for name in ("v1", "side"):
            with pytest.raises(DuplicateError, match=name):
                store.change(session.key, [Create(name, ROOT)])
        assert [ref.name for ref in store.refs(session.key, "tag")] == ["v1"]

    def test_what_becomes_of_branches_is_noted(self, store: Store) -> None:
        """Moves tell where a branch was and where it went, the newest first; a renamed branch takes them along."""
        session = Session(store)
        key = session.key
        session.append(MAIN, drafts("u1", "a1"))
        session.fork("side", Position(0, 0))
        store.change(key, [Move("side", Position(0, 1), "there"), Move("side", ROOT, "back", expect=Position(0, 1))])
        store.change(key, [Put("head", "side", ROOT)])
        store.change(key, [Rename("side", "other"), Move(MAIN, Position(0, 0), "up")])
        assert [(ref.name, ref.position) for ref in store.refs(key, "head")] == [("other", ROOT)]
        assert [branch.name for branch in store.branches(key)] == [MAIN, "other"]
        store.change(key, [Merge("other", Position(0, 1), "merge"), Delete("other")])
        assert store.branches(key) == [Branch(MAIN, Position(0, 0))]
        moves = [(ref.name, ref.base, ref.position, ref.note) for ref in store.refs(key, "move")]
        assert moves == [
            ("other", Position(1, 2), None, "delete"),
            ("other", ROOT, Position(1, 2), "merge"),
            (MAIN, Position(0, 1), Position(0, 0), "up"),
            ("other", Position(0, 1), ROOT, "back"),
            ("other", Position(0, 0), Position(0, 1), "there"),
        ]
        assert [ref.note for ref in store.refs(key, "move", MAIN)] == ["up"]
        assert [ref.note for ref in store.refs(key, "move", limit=2)] == ["delete", "merge"]
        assert store.refs(key, "move", limit=0) == store.refs(key, "move", "side") == store.refs(99, "move") == []
        for name in ("a", "b", "a"):
            store.change(key, [Put("stash", name, Position(0, 1), Position(0, 0), f"note of {name}")])
        stashes = store.refs(key, "stash")
        assert [(ref.name, ref.position, ref.base) for ref in stashes] == [
            (name, Position(0, 1), Position(0, 0)) for name in "aba"
        ]
        store.change(key, [Drop(stashes[1].number)])
        assert store.refs(key, "stash") == [stashes[0], stashes[2]]
        assert stashes[0].number > stashes[2].number

    def test_names_go_when_all_is_forgotten(self, store: Store) -> None:
        """Tags, stashes and moves go, too; other sessions keep theirs, and no number is used twice."""
        session, other = Session(store), Session(store, "other")
        for one in (session, other):
            one.append(MAIN, drafts("u1", "a1"))
            names = [
                Put("tag", "v1", ROOT),
                Put("stash", MAIN, ROOT, ROOT),
                Put("head", MAIN, ROOT),
                Put("title", "x", ROOT),
            ]
            store.change(one.key, [*names, Move(MAIN, ROOT, "x")])
            one.tree.branches[MAIN] = ROOT
        last = store.refs(other.key, "move")[0].number
        session.forget([Position(0, 0), Position(0, 1)], branches=True)
        session.check()
        other.check()
        assert [len(store.refs(session.key, kind)) for kind in get_args(RefKind)] == [0] * 5
        assert [len(store.refs(other.key, kind)) for kind in get_args(RefKind)] == [1] * 5
        store.change(session.key, [Put("tag", "v1", session.tree.branches[MAIN])])
        assert store.refs(session.key, "tag")[0].number > last

    def test_it_is_known_what_a_message_was_made_from(self, store: Store) -> None:
        """Copies are known by the id they come from, summaries by the stretches they cover; both survive forgetting."""
        session = Session(store)
        key = session.key
        session.append(MAIN, drafts("u1", "a1", "u2", "a2"))
        (copy, again, summary, other) = drafts("u3", "u4", "a5", "a6")
        stretches = (Stretch(0, 0, 1), Stretch(0, 3, 3))
        copy, again = replace(copy, picked_from="u1"), replace(again, picked_from="u3")
        summary, other = replace(summary, covers=stretches), replace(other, covers=(Stretch(0, 2, 4),))
        session.append("side", [copy, again, summary, other], at=ROOT)
        session.check()
        positions = {str(record.message.id): record.position for record in session.tree.records}

        def made_from(*ids: str) -> list[str | None]:
            return [record.message.id for record in store.find(key, MadeFrom([positions[id_] for id_ in ids]))]

        assert made_from("u1") == ["u3", "a5"]
        assert made_from("u3") == ["u4"]
        assert made_from("a2", "u2", "a1") == ["a5", "a6"]
        assert made_from("u4", "a5") == made_from() == []
        expected = [*((positions["a5"], one) for one in stretches), (positions["a6"], Stretch(0, 2, 4))]
        assert store.covers(key, [0]) == expected
        assert store.covers(key, [1]) == store.covers(key, [1, 0, 7]) == expected, "by either side, each once"
        assert store.covers(key, []) == store.covers(key, [7]) == store.covers(99, [0]) == []
        assert store.find(99, MadeFrom([positions["u1"]])) == []
        session.forget([positions["a6"]])
        assert made_from("u2") == []
        assert store.covers(key, [0]) == expected[:2]
        session.check()

    def test_changes_and_messages_are_one_transaction(self, store: Store) -> None:
        """Changes are made before the messages are stored; if either cannot be done, neither is."""
        session = Session(store)
        key = session.key
        session.append(MAIN, drafts("u1", "a1", "u2"))
        appended = store.append(key, MAIN, drafts("u3"), changes=[Move(MAIN, Position(0, 0), "back")])
        assert (appended.head, appended.records[0].turn_no) == (Position(1, 1), 1)
        merged = store.append(key, "new", drafts("u4"), at=ROOT, changes=[Merge("new", Position(0, 2), "merge")])
        assert merged.head == Position(2, 4)
        assert merged.records[0].turn_no == 2
        heads = store.branches(key)
        with pytest.raises(DuplicateError):
            store.append(key, MAIN, drafts("a1", "a1"), changes=[Delete("new")])
        with pytest.raises(UnknownReferenceError):
            store.append(key, MAIN, drafts("u9"), changes=[Delete("none")])
        with pytest.raises(StaleHeadError):
            store.append(key, "newer", drafts("u9"), at=ROOT, changes=[Move("newer", ROOT, "", Position(0, 0))])
        with pytest.raises(StaleHeadError):
            store.append(key, "new", drafts("u9"), changes=[Expect(0, "new", Position(2, 3))])
        for expect in (Expect(0, MAIN, Position(0, 2)), Expect(1, MAIN, Position(1, 1))):
            for ids in ("u9", "u1"):  # new, and stored already
                with pytest.raises(StaleHeadError):
                    store.append(key, MAIN, drafts(ids), changes=[expect])
        assert store.branches(key) == heads
        assert store.get(key, ["u9"]) == []
        assert store.append(key, MAIN, drafts("a8"), changes=[Expect(0, MAIN, Position(1, 1))]).head == Position(1, 2)
        expect = Expect(0, "new", merged.head)
        assert store.append(key, "new", drafts("a9"), changes=[expect]).head == Position(2, 5)
