"""The store contract on what becomes of branches: merged, moved, renamed, deleted, tagged, put aside; and on copies."""

from dataclasses import replace

import pytest

from shared_core.errors import DuplicateError, StaleHeadError, UnknownReferenceError
from shared_core.records import (
    MAIN,
    ROOT,
    Branch,
    Change,
    Create,
    Delete,
    Drop,
    Expect,
    MadeFrom,
    Merge,
    Move,
    Position,
    Put,
    Rename,
    Segment,
    Stretch,
)
from shared_core.store import Store
from shared_core.testing.oracle import Session, drafts

__all__ = ["BranchingContract"]


class BranchingContract:
    """What `Store.change` does, and what a store knows of where a message comes from."""

    def test_a_merge_has_two_parents_in_order(self, store: Store) -> None:
        """It begins an own segment, with room before it for what only the second parent has; twice it is done once."""
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
        """One that cannot be made leaves those before it undone, and says what is wrong."""
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
        """Moves tell where a branch was and where it went, the newest first; a renamed one takes them along."""
        session = Session(store)
        key = session.key
        session.append(MAIN, drafts("u1", "a1"))
        session.fork("side", Position(0, 0))
        store.change(key, [Move("side", Position(0, 1), "there"), Move("side", ROOT, "back", expect=Position(0, 1))])
        store.change(key, [Rename("side", "other"), Move(MAIN, Position(0, 0), "up")])
        assert [branch.name for branch in store.branches(key)] == [MAIN, "other"]
        store.change(key, [Merge("other", Position(0, 1), "merge"), Delete("other")])
        assert store.branches(key) == [Branch(MAIN, Position(0, 0))]
        moves = [(ref.name, ref.base, ref.place, ref.note) for ref in store.refs(key, "move")]
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
        assert [(ref.name, ref.place, ref.base) for ref in stashes] == [
            (name, Position(0, 1), Position(0, 0)) for name in "aba"
        ]
        store.change(key, [Drop(stashes[1].number)])
        assert store.refs(key, "stash") == [stashes[0], stashes[2]]
        assert stashes[0].number > stashes[2].number

    def test_names_go_when_all_is_forgotten(self, store: Store) -> None:
        """Tags, stashes and moves too; other sessions keep theirs, and numbers are not used again."""
        session, other = Session(store), Session(store, "other")
        for one in (session, other):
            one.append(MAIN, drafts("u1", "a1"))
            store.change(one.key, [Put("tag", "v1", ROOT), Put("stash", MAIN, ROOT, ROOT), Move(MAIN, ROOT, "x")])
            one.tree.branches[MAIN] = ROOT
        last = store.refs(other.key, "move")[0].number
        session.forget([Position(0, 0), Position(0, 1)], branches=True)
        session.check()
        other.check()
        assert [store.refs(session.key, kind) for kind in ("tag", "stash", "move")] == [[], [], []]
        assert [len(store.refs(other.key, kind)) for kind in ("tag", "stash", "move")] == [1, 1, 1]
        store.change(session.key, [Put("tag", "v1", session.tree.branches[MAIN])])
        assert store.refs(session.key, "tag")[0].number > last

    def test_it_is_known_what_a_message_was_made_from(self, store: Store) -> None:
        """Copies by the id they come from, summaries by the stretches they cover; both survive what is forgotten."""
        session = Session(store)
        key = session.key
        session.append(MAIN, drafts("u1", "a1", "u2", "a2"))
        (copy, again, summary, other) = drafts("u3", "u4", "a5", "a6")
        stretches = (Stretch(0, 0, 1), Stretch(0, 3, 3))
        copy, again = replace(copy, picked_from="u1"), replace(again, picked_from="u3")
        summary, other = replace(summary, covers=stretches), replace(other, covers=(Stretch(0, 2, 4),))
        session.append("side", [copy, again, summary, other], at=ROOT)
        session.check()
        places = {str(record.message.id): record.position for record in session.tree.records}

        def made_from(*ids: str) -> list[str | None]:
            return [record.message.id for record in store.find(key, MadeFrom([places[id_] for id_ in ids]))]

        assert made_from("u1") == ["u3", "a5"]
        assert made_from("u3") == ["u4"]
        assert made_from("a2", "u2", "a1") == ["a5", "a6"]
        assert made_from("u4", "a5") == made_from() == []
        expected = [*((places["a5"], one) for one in stretches), (places["a6"], Stretch(0, 2, 4))]
        assert store.covers(key, [0]) == expected
        assert store.covers(key, [1]) == store.covers(key, [1, 0, 7]) == expected, "by either side, each once"
        assert store.covers(key, []) == store.covers(key, [7]) == store.covers(99, [0]) == []
        assert store.find(99, MadeFrom([places["u1"]])) == []
        session.forget([places["a6"]])
        assert made_from("u2") == []
        assert store.covers(key, [0]) == expected[:2]
        session.check()

    def test_changes_and_messages_are_one_transaction(self, store: Store) -> None:
        """Messages come after what is changed with them; where one of both cannot be, neither is."""
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
        assert store.branches(key) == heads
        assert store.get(key, ["u9"]) == []
        expect = Expect(0, "new", merged.head)
        assert store.append(key, "new", drafts("a9"), changes=[expect]).head == Position(2, 5)
