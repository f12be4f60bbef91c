"""The store contract on the tree: branches and turns, and what becomes of them by every change."""

from collections.abc import Sequence
from dataclasses import replace
from typing import get_args

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from shared_core.errors import DuplicateError, StaleHeadError, UnknownReferenceError
from shared_core.queries import Line, MadeFrom
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
    KnownBranch,
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

__all__ = ["TreeContract"]

_SAYING = ("append", "append", "late", "again", "resend", "resend", "resend", "fork", "branch", "forget", "restart")
_MERGING = ("append", "append", "append", "late", "resend", "fork", "branch", "merge", "merge", "move", "forget")


def _run(store: Store, kinds: Sequence[str]) -> None:
    """Do random things, each of which must return what the oracle does, and compare everything that can be read."""
    count = iter(range(ALL))
    steps_of_kinds = st.lists(st.tuples(st.sampled_from(kinds), st.integers(0, 999), st.integers(0, 999)), max_size=20)

    @settings(deadline=None, database=None, suppress_health_check=[HealthCheck.too_slow], report_multiple_bugs=False)
    @given(steps_of_kinds)
    def run(steps: list[tuple[str, int, int]]) -> None:
        session = Session(store, f"random {next(count)}")
        known: dict[str, KnownBranch] = {}
        for number, (kind, first, second) in enumerate(steps):
            _step(session, kind, first, second, number, known)
        session.check()

    run()


def _step(
    session: Session, kind: str, first: int, second: int, number: int, known_of: dict[str, KnownBranch]
) -> None:  # fmt: skip
    """Do one random thing; `first` and `second` choose what to do it to.

    `known_of` is what a caller knows of the branches, of now or as it was some steps ago: that changes nothing.
    """
    tree = session.tree
    branch = list(tree.branches)[first % len(tree.branches)]
    position = tree.positions()[first % len(tree.positions())]
    fresh = drafts(*(f"{'uats'[(second >> 2 * n) % 4]}{number}-{n}" for n in range(second % 3 + 1)))
    picked = tree.records[second % len(tree.records)] if tree.records else None
    if first % 3 == 0 or branch not in known_of:
        known_of[branch] = session.known(branch)
    known = known_of[branch] if second % 2 else None
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
        _add_again(session, branch, [*forgotten, *fresh, Draft(picked.message)], known)
    elif kind == "resend":
        path = tree.path(tree.branches[branch] if second % 5 else position)
        stored = [Draft(record.message) for record in path[second % 3 : second % 7 + 3]]
        _add_again(session, branch, [stored.pop(0) for _ in stored[second % 2 :]] + fresh + stored, known)
    else:
        turns = [r.message.turn_id for r in tree.path(tree.branches[branch])] if kind == "late" else []
        turn = turns[second % len(turns)] if turns else None
        known_of[branch] = session.append(branch, fresh, turn=turn, known=known).known or known_of[branch]


def _add_again(session: Session, branch: str, given: Sequence[Draft], known: KnownBranch | None) -> None:
    """Append messages some of which are stored; all must be refused if the branch does not hold one of these."""
    if session.tree.elsewhere(branch, given):
        with pytest.raises(DuplicateError, match="not on branch"):
            session.store.append(session.key, branch, given, known=known)
    else:
        session.append(branch, given, known=known)


class TreeContract:
    """Where messages stand: on which branch, in which turn, in which order; and what `Store.change` does."""

    def test_any_history_reads_like_the_oracle(self, store: Store) -> None:
        """Random appending, late replies, re-sending, forking and forgetting."""
        _run(store, _SAYING)

    def test_any_tree_with_merges_reads_like_the_oracle(self, store: Store) -> None:
        """Random merging as well, nested, crossed and repeated, and moving of branches."""
        _run(store, _MERGING)

    def test_unknown_branches_turns_and_positions_are_refused(self, store: Store) -> None:
        """The error lists the branches that exist; nothing is stored."""
        session = Session(store)
        session.append(MAIN, drafts("u1"))
        session.fork("side", ROOT)
        session.append("side", drafts("u2"))
        with pytest.raises(UnknownReferenceError, match="'nowhere'") as raised:
            store.append(session.key, "nowhere", drafts("u3"))
        assert raised.value.candidates == (MAIN, "side")
        for known in (None, session.known(MAIN)):
            for branch, turn in ((MAIN, "u9"), (MAIN, "u2"), ("side", "u1")):
                with pytest.raises(UnknownReferenceError, match=f"{turn!r} on this branch"):
                    store.append(session.key, branch, drafts("a1"), turn=turn, known=known)
        opened = session.tree.branches["side"].segment
        for position in (Position(0, 1), Position(0, -2), Position(opened, 1), Position(opened, -2), Position(99, 0)):
            with pytest.raises(UnknownReferenceError):
                store.change(session.key, [Create("new", position)])
            with pytest.raises(UnknownReferenceError):
                store.append(session.key, "new", drafts("u3"), at=position)
        for name in (MAIN, "side"):
            with pytest.raises(DuplicateError, match=name):
                store.change(session.key, [Create(name, ROOT)])
            with pytest.raises(DuplicateError, match=name):
                store.append(session.key, name, drafts("u3"), at=ROOT)
        with pytest.raises(UnknownReferenceError):
            store.read(session.key, Line(Position(9, 0), 9))
        session.check()

    def test_replies_join_their_turn(self, store: Store) -> None:
        """The newest, the one named, or that of the known message before them; system messages stand alone."""
        session = Session(store)
        session.append(MAIN, drafts("s1", "a1", "u1", "a2", "t1", "s2", "a3"))
        session.append(MAIN, drafts("u2"))
        session.append(MAIN, drafts("a4", "s3", "u3", "a5"), turn="u1")
        session.append(MAIN, drafts("u1", "a6", "t2", "u2", "a7"))
        session.append("side", drafts("a8", "u4", "a9"), at=Position(0, 3))
        session.append("root", drafts("t3", "u5"), at=ROOT)
        stored = store.get(session.key, ["a4", "a6", "a7", "a8", "t3"])
        assert [record.message.turn_id for record in stored] == ["u1", "u1", "u2", "u1", "t3"]
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
        session.append("%", drafts("u4"))
        session.append("empty", [], at=Position(0, 1))
        session.check()
        assert store.state(session.key).head is store.state(session.key, "nowhere").head is None

    def test_a_merge_has_two_parents_in_order(self, store: Store) -> None:
        """It begins a segment, with room before it for what only the second parent has; repeating it does nothing."""
        session = Session(store)
        session.append(MAIN, drafts("u1", "a1"))
        session.append("side", drafts("u2", "a2", "u3"), at=Position(0, 1))
        session.append(MAIN, drafts("u4", "a4"))
        side, main = session.tree.branches["side"], session.tree.branches[MAIN]
        for source in (side, side, ROOT):
            session.merge(MAIN, source)
        merge = store.segment(session.key, session.tree.branches[MAIN].segment)
        assert merge == Segment(merge.segment, main, 7, side, 7, 1)
        session.append(MAIN, drafts("a5", "u6"))
        assert [(r.message.turn_id, r.turn_no) for r in store.get(session.key, ["a5", "u6"])] == [("u3", 2), ("u6", 4)]
        session.check()

    def test_changes_are_made_together_or_not_at_all(self, store: Store) -> None:
        """If one cannot be made, those before it are undone, and the error says what is wrong."""
        session = Session(store)
        session.append(MAIN, drafts("u1", "a1"))
        session.fork("side", Position(0, 0))
        store.change(session.key, [Put("tag", "v1", Position(0, 0))])
        first = Move(MAIN, Position(0, 0), "first")
        wrong: list[tuple[Change, type[Exception], str]] = [
            (Create("v1", ROOT), DuplicateError, "tag 'v1'"),
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
        assert [ref.name for ref in store.refs(session.key, "tag")] == ["v1"]

    def test_changes_and_messages_are_one_transaction(self, store: Store) -> None:
        """Changes are made before the messages are stored; if either cannot be done, neither is."""
        session = Session(store)
        key = session.key
        session.append(MAIN, drafts("u1", "a1", "u2"))
        appended = store.append(key, MAIN, drafts("u3"), changes=[Move(MAIN, Position(0, 0), "back")])
        assert (appended.head, appended.records[0].turn_no) == (Position(1, 1), 1)
        merged = store.append(key, "new", drafts("u4"), at=ROOT, changes=[Merge("new", Position(0, 2), "merge")])
        assert (merged.head, merged.records[0].turn_no) == (Position(2, 4), 2)
        heads, stale = store.branches(key), Move("newer", ROOT, "", Position(0, 0))
        wrong: list[tuple[type[Exception], list[str], Change]] = [
            (DuplicateError, ["a1", "a1"], Delete("new")),
            (UnknownReferenceError, ["u9"], Delete("none")),
            (StaleHeadError, ["u9"], Expect(0, "new", Position(2, 3))),
            *((StaleHeadError, [id_], Expect(0, MAIN, Position(0, 2))) for id_ in ("u9", "u1")),
            *((StaleHeadError, [id_], Expect(1, MAIN, Position(1, 1))) for id_ in ("u9", "u1")),
        ]
        for error, ids, change in wrong:
            with pytest.raises(error):
                store.append(key, MAIN, drafts(*ids), changes=[change])
        with pytest.raises(StaleHeadError):
            store.append(key, "newer", drafts("u9"), at=ROOT, changes=[stale])
        assert (store.branches(key), store.get(key, ["u9"])) == (heads, [])
        assert store.append(key, MAIN, drafts("a8"), changes=[Expect(0, MAIN, Position(1, 1))]).head == Position(1, 2)
        assert store.append(key, "new", drafts("a9"), changes=[Expect(0, "new", merged.head)]).head == Position(2, 5)

    def test_what_becomes_of_branches_is_noted(self, store: Store) -> None:
        """Moves tell where a branch was and where it went, the newest first; a renamed branch takes them along."""
        session = Session(store)
        key = session.key
        session.append(MAIN, drafts("u1", "a1"))
        session.fork("side", Position(0, 0))
        store.change(key, [Move("side", Position(0, 1), "there"), Move("side", ROOT, "back", expect=Position(0, 1))])
        store.change(key, [Put("head", "side", ROOT), Rename("side", "other"), Move(MAIN, Position(0, 0), "up")])
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
        assert store.refs(key, "move", limit=0) == store.refs(key, "move", "side") == []
        for name in "aba":
            store.change(key, [Put("stash", name, Position(0, 1), Position(0, 0), f"note of {name}")])
        stashes = store.refs(key, "stash")
        assert [ref[2:6] for ref in stashes] == [(n, Position(0, 1), Position(0, 0), f"note of {n}") for n in "aba"]
        store.change(key, [Drop(stashes[1].number)])
        assert store.refs(key, "stash") == [stashes[0], stashes[2]]
        assert stashes[0].number > stashes[2].number

    def test_names_go_when_all_is_forgotten(self, store: Store) -> None:
        """Tags, stashes and moves go, too; other sessions keep theirs, and no number is used twice."""
        session, other = Session(store), Session(store, "other")
        kinds: tuple[RefKind, ...] = get_args(RefKind)
        for one in (session, other):
            one.append(MAIN, drafts("u1", "a1"))
            for kind in kinds:
                store.change(one.key, [Move(MAIN, ROOT, "") if kind == "move" else Put(kind, kind, ROOT, ROOT)])
            one.tree.branches[MAIN] = ROOT
        last = store.refs(other.key, "move")[0].number
        session.forget([Position(0, 0), Position(0, 1)], branches=True)
        session.check()
        other.check()
        assert [[len(store.refs(one.key, kind)) for kind in kinds] for one in (session, other)] == [[0] * 5, [1] * 5]
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
        for segments in ([0], [1], [1, 0, 7]):
            assert store.covers(key, segments) == expected, "by either side, each once"
        assert store.covers(key, []) == store.covers(key, [7]) == []
        session.forget([positions["a6"]])
        assert (made_from("u2"), store.covers(key, [0])) == ([], expected[:2])
        session.check()
