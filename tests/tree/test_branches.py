"""Rename, delete, tag, reset, reflog, diff and log: what each changes, and what it leaves alone."""

from collections.abc import Callable
from pathlib import Path

import pytest

from shared_core import InfiniteMemory, Message, UnknownReferenceError
from shared_core.doors.cli.printing import draw
from shared_core.errors import StaleHeadError
from shared_core.queries import After
from shared_core.records import MAIN, Move, Position
from shared_core.results import Branch, LogEntry
from tests.support.histories import CountingStore, history, ids, texts
from tests.tree.two_branches import path


@pytest.fixture
def memory(store: CountingStore) -> InfiniteMemory:
    memory = InfiniteMemory(store, embedder="words")
    memory.add(history(6))
    return memory


def say(memory: InfiniteMemory, *names: str) -> None:
    memory.add([Message(role="assistant" if name[0] == "r" else "user", content=name, id=name) for name in names])


def test_a_deleted_branch_leaves_its_messages_and_can_be_brought_back(memory: InfiniteMemory) -> None:
    memory.fork("side", at="m3")
    say(memory, "x")
    with pytest.raises(ValueError, match="stands on 'side'"):
        memory.delete_branch("side")
    memory.checkout(MAIN)
    memory.delete_branch("side")
    assert memory.get("x").content == "x"
    assert memory.search("x") == []
    assert memory.reflog("side")[0].to_dict() | {"at": None} == {
        "reference": "side@{1}", "branch": "side", "why": "delete", "before": "x", "after": None, "at": None,
        "deleted": True,
    }  # fmt: skip
    memory.fork("side", at="side@{1}")
    assert path(memory) == ["m0", "m1", "m2", "m3", "x"]


def test_a_branch_that_was_emptied_is_not_told_as_deleted(memory: InfiniteMemory) -> None:
    memory.checkout("m0")
    memory.fork("whole")
    memory.stash()
    memory.stash_pop(keep=True)
    moves = [(move.why, move.before, move.after, move.deleted) for move in memory.reflog("whole")]
    assert moves == [("stash apply", None, None, False), ("stash", "m0", None, False)]


def test_a_tag_never_moves(memory: InfiniteMemory) -> None:
    memory.tag("v1")
    memory.tag("start", "m1")
    say(memory, "x")
    assert memory.tags() == [Branch("v1", Position(0, 5)), Branch("start", Position(0, 1))]
    memory.checkout("v1")
    assert (memory.branch, path(memory)) == (None, ids(history(6)))
    memory.delete_tag("v1")
    assert [tag.name for tag in memory.tags()] == ["start"]
    with pytest.raises(UnknownReferenceError, match=r"'v1'.*'start'") as error:
        memory.delete_tag("v1")
    assert error.value.candidates == ("start",)
    with pytest.raises(UnknownReferenceError, match="tags: 'start'") as unknown:
        memory.checkout("v1")
    assert unknown.value.candidates == (MAIN, "start")


# Moving


def test_a_reset_loses_nothing(memory: InfiniteMemory, store: CountingStore) -> None:
    rows = store.find(1, After(0, 99))
    memory.reset("m2")
    assert path(memory) == ["m0", "m1", "m2"]
    assert memory.search("item4") == []
    say(memory, "x")
    assert path(memory) == ["m0", "m1", "m2", "x"]
    assert store.find(1, After(0, 99))[:-1] == rows
    moves = [(move.reference, move.why, move.before, move.after) for move in memory.reflog()]
    assert moves == [("main@{1}", "reset to m2", "m5", "m2")]
    memory.reset("main@{1}")
    assert path(memory) == ids(history(6))
    memory.reset("main@{1}")
    assert path(memory) == ["m0", "m1", "m2", "x"]
    read = {at: ids(memory.messages(at=at)) for at in ("main@{1}", "m1", "main")}
    assert read == {"main@{1}": ids(history(6)), "m1": ["m0", "m1"], "main": path(memory)}, "nothing is checked out"
    assert [move.reference for move in memory.reflog(limit=2)] == ["main@{1}", "main@{2}"]
    memory.checkout("main@{2}")
    assert path(memory) == ["m0", "m1", "m2", "x"]
    memory.checkout("main@{0}")
    assert (memory.branch, path(memory)) == (None, ["m0", "m1", "m2", "x"])


def test_a_move_that_expects_another_head_is_refused(memory: InfiniteMemory) -> None:
    with pytest.raises(StaleHeadError, match="'main'"):
        memory._store.change(1, [Move(MAIN, Position(0, 0), "", Position(0, 2))])
    assert len(path(memory)) == 6


# Comparing and seeing


def test_a_diff_says_what_is_not_shared(memory: InfiniteMemory) -> None:
    memory.fork("side", at="m3")
    say(memory, "x", "rx")
    assert memory.diff(MAIN).to_dict() == {"base": "m3", "only_a": ["m4", "m5"], "only_b": ["x", "rx"]}
    assert memory.diff("side", "m1").to_dict() == {"base": "m1", "only_a": ["m2", "m3", "x", "rx"], "only_b": []}
    memory.forget(ids=["m3"])
    assert memory.diff(MAIN).base == "m2"


def test_the_log_draws_forks_and_merges(memory: InfiniteMemory) -> None:
    memory.forget(ids=["m0", "m1", "m2", "m3"])
    memory.fork("side")
    say(memory, "s1", "r1")
    memory.checkout(MAIN)
    say(memory, "x1")
    memory.merge("side")
    memory.tag("v1")
    say(memory, "x2")
    memory.checkout("side")
    say(memory, "s2")
    drawn = [(line, entry.message.id if entry and entry.message else None) for line, entry in draw(memory.log())]
    assert drawn == [
        ("*", "s2"),
        ("| *", "x2"),
        ("| o", None),
        ("|/|", None),
        ("| *", "x1"),
        ("* |", "r1"),
        ("* |", "s1"),
        ("|/", None),
        ("*", "m5"),
        ("*", "m4"),
    ]
    assert [(entry.branches, entry.tags) for entry in memory.log()[:3]] == [
        (("side",), ()),
        ((MAIN,), ()),
        ((), ("v1",)),
    ]
    assert [entry.message.id for entry in memory.log(2) if entry.message] == ["s2", "x2"]
    assert memory.log(1)[0].to_dict()["message"].keys() == {"role", "content", "id", "created_at", "turn_id"}
    merge = memory.log()[2].to_dict()
    assert (merge["message"], merge["parents"], merge["tags"]) == (None, [[1, 6], [0, 7]], ["v1"])
    assert memory.messages(at="v1")[-1] in (memory.get("x1"), memory.get("r1"))


def test_a_line_may_begin_to_the_left_of_the_merge_it_comes_from() -> None:
    first, second, merge, root, one, other = (Position(number, 0) for number in range(6))
    hello = Message.user("hello")
    shown = [
        LogEntry(first, hello, (root,)), LogEntry(second, hello, (merge,)), LogEntry(root, hello, ()),
        LogEntry(merge, None, (one, other)), LogEntry(other, hello, ()), LogEntry(one, hello, ()),
    ]  # fmt: skip
    assert [line for line, _ in draw(shown)] == ["*", "| *", "* |", "  o", " /|", "* |", "  *"]


def test_a_line_that_joins_another_passes_over_those_between() -> None:
    first, second, third, root, alone = (Position(number, 0) for number in range(5))
    hello = Message.user("hello")
    shown = [
        LogEntry(first, hello, (root,)), LogEntry(second, hello, (alone,)), LogEntry(third, hello, (root,)),
        LogEntry(root, hello, ()), LogEntry(alone, hello, ()),
    ]  # fmt: skip
    assert [line for line, _ in draw(shown)] == ["*", "| *", "| | *", "|_|/", "* |", "  *"]


def test_all_of_it_outlives_the_process(tmp_path: Path) -> None:
    with InfiniteMemory(tmp_path / "chat.db", embedder="words") as memory:
        memory.add(history(6))
        memory.tag("v1", "m1")
        memory.reset("m3")
        memory.fork("side")
        memory.add(history(2, start=10))
        memory.stash(note="for later")
        memory.checkout(MAIN)
        memory.merge("m5", "full")
        before = memory.tags(), memory.reflog(), memory.stashes(), memory.log(), path(memory)
    with InfiniteMemory(tmp_path / "chat.db", embedder="words") as memory:
        assert (memory.tags(), memory.reflog(), memory.stashes(), memory.log(), path(memory)) == before
        assert memory.stashes()[0].ids == ("m10", "m11")


# Taking back


def forked() -> InfiniteMemory:
    """Return a memory with two messages on `main` and two more on `side`, which stands on `main`."""
    memory = InfiniteMemory()
    memory.add(history(2))
    memory.fork("side")
    memory.add(history(2, start=2))
    memory.checkout("main")
    memory.add(history(2, start=4))
    return memory


VERBS: dict[str, Callable[[InfiniteMemory], object]] = {
    "merge": lambda memory: memory.merge("side"),
    "squash": lambda memory: memory.merge("side", "squash"),
    "three-way": lambda memory: memory.merge("side", "three-way"),
    "cherry-pick": lambda memory: memory.cherry_pick("m2"),
    "rebase": lambda memory: memory.rebase("side"),
    "reset": lambda memory: memory.reset("m0"),
    "stash": lambda memory: memory.stash(),
}


def test_what_a_verb_did_to_a_branch_is_taken_back(subtests: pytest.Subtests) -> None:
    for verb, act in VERBS.items():
        with subtests.test(verb), forked() as memory:
            memory.reset("m5")  # an earlier move, to which `main@{1}` must not refer afterwards
            before = ids(memory.messages())
            act(memory)
            after = ids(memory.messages())
            assert after != before
            assert verb.split("-")[0] in memory.undo().why or verb == "three-way"
            assert ids(memory.messages()) == before
            memory.undo()
            assert ids(memory.messages()) == after, "a second undo takes back the first"
            memory.reset("main@{2}")
            assert ids(memory.messages()) == after
            memory.reset("main@{4}")  # one line further: the reset before is in the reflog, too
            assert ids(memory.messages()) == before


@pytest.mark.parametrize("drop", [False, True])
def test_a_stash_that_was_brought_back_is_taken_away_again(drop: bool) -> None:
    with forked() as memory:
        stash = memory.stash()
        assert stash is not None
        before = ids(memory.messages())
        said = texts(memory.get(id_) for id_ in stash.ids)
        memory.stash_pop() if drop else memory.stash_pop(keep=True)
        memory.undo()
        assert ids(memory.messages()) == before
        assert [texts(memory.get(id_) for id_ in one.ids) for one in memory.stashes()] == [said]


def test_a_deleted_branch_comes_back() -> None:
    with forked() as memory:
        memory.delete_branch("side")
        assert memory.undo().branch == "side"
        assert [branch.name for branch in memory.branches()] == ["main", "side"]
        memory.checkout("side")
        assert ids(memory.messages()) == ["m0", "m1", "m2", "m3"]


def test_there_is_nothing_to_take_back() -> None:
    with InfiniteMemory() as memory:
        memory.add(history(2))
        with pytest.raises(UnknownReferenceError):
            memory.undo()
