"""The contract of every verb on the tree: which calls are refused, and what the others leave new, gone and unchanged.

Two tables, one row a case. A refused call raises a named error and leaves every row of every table as it was. One that
is done says exactly how many rows it writes, and where both branches end then.
"""

import re
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

import pytest

from shared_core import DuplicateError, InfiniteMemory, Message, UnknownReferenceError
from shared_core.errors import AmbiguousReferenceError
from shared_core.queries import After
from shared_core.records import MAIN
from shared_core.stores import SQLiteStore
from tests.support.histories import ids, with_ids
from tests.tree.two_branches import changed, parted, path, rows, said, say

Verb = Callable[[Any], Any]


@pytest.fixture
def memory(store: SQLiteStore) -> InfiniteMemory:
    return opened(store)


def opened(store: SQLiteStore, **how: Any) -> InfiniteMemory:
    return InfiniteMemory(store, embedder="words", token_counter="characters/4", **how)


def fails(before: str | None, messages: Sequence[Message]) -> str:
    raise RuntimeError("the model is down")


# What is refused: the verb, the call, the error and what it names. Main says u1 r1 u4 r4, side u1 r1 u2 r2 u3 r3;
# long_a and long_b begin alike on side, v1 is a tag on u1, and main has put u5 aside.

REFUSED: list[tuple[str, Verb, type[Exception], str]] = [
    ("add", lambda m: m.add(said("u1", "else")), DuplicateError, "'u1'"),
    ("add", lambda m: m.add([said("u8"), said("u8")]), DuplicateError, "'u8'"),
    ("add", lambda m: m.add([said("u8"), said("u1", "else")]), DuplicateError, "'u1'"),
    ("add", lambda m: m.add(said("r8"), turn="u2"), UnknownReferenceError, "'u2'"),
    ("add", lambda m: m.add(said("u8"), turn="u1"), ValueError, "turn='u1'"),
    ("add", lambda m: m.add([said("u8"), said("u2")]), DuplicateError, "'u2' is stored, but not on branch 'main'"),
    ("add", lambda m: m.add("hello"), TypeError, "expected"),
    ("add", lambda m: lost(m).add(said("u8")), UnknownReferenceError, "'lost'"),
    ("fork", lambda m: m.fork("side"), DuplicateError, "'main', 'side', 'long', 'lost', 'v1'"),
    ("fork", lambda m: m.fork("v1"), DuplicateError, "'v1'"),
    ("fork", lambda m: m.fork(" "), ValueError, "name=' '"),
    ("fork", lambda m: m.fork("main@{1}"), ValueError, "main@{1}"),
    ("fork", lambda m: m.fork("new", "none"), UnknownReferenceError, "'none'; branches: 'main', 'side'"),
    ("fork", lambda m: m.fork("new", "u_long"), AmbiguousReferenceError, "'u_long_a', 'u_long_b'"),
    ("checkout", lambda m: m.checkout("none"), UnknownReferenceError, "'none'"),
    ("checkout", lambda m: m.checkout("u_long"), AmbiguousReferenceError, "'u_long_a', 'u_long_b'"),
    ("checkout", lambda m: m.checkout("side@{1}"), UnknownReferenceError, "'side@{1}'"),
    ("merge", lambda m: m.merge("none"), UnknownReferenceError, "'none'"),
    ("merge", lambda m: m.merge("side", "octopus"), ValueError, "how='octopus'"),
    ("merge squash", lambda m: m.merge("side", "squash", summarizer=fails), RuntimeError, "the model is down"),
    ("merge squash", lambda m: m.merge("side", "squash", summarizer=lambda *_: " "), ValueError, "nothing"),
    ("merge full", lambda m: m.merge("side", "full", prompt="?"), ValueError, "how='full'"),
    ("merge full", lambda m: m.merge("side", "full", summarizer=fails), ValueError, "how='full'"),
    ("merge three-way", lambda m: m.merge("side", "three-way", summarizer=fails), RuntimeError, "the model is down"),
    ("merge three-way", lambda m: m.merge("side", "three-way", summarizer=lambda *_: ""), ValueError, "nothing"),
    ("fast-forward", lambda m: m.merge("side", "fast-forward"), ValueError, "'main' has messages that 'side' has not"),
    ("cherry-pick", lambda m: m.cherry_pick(["u2", "u99"]), UnknownReferenceError, "'u99'"),
    ("cherry-pick", lambda m: m.cherry_pick("side"), UnknownReferenceError, "'side'"),
    ("cherry-pick", lambda m: m.cherry_pick("u_long"), AmbiguousReferenceError, "'u_long_b'"),
    ("stash push", lambda m: m.stash("none"), UnknownReferenceError, "'none'"),
    ("stash push", lambda m: m.stash("u2"), UnknownReferenceError, "'u2'"),
    ("stash apply", lambda m: m.stash_pop(1, keep=True), UnknownReferenceError, "stash 1"),
    ("stash apply", lambda m: m.stash_pop(-1, keep=True), ValueError, "number=-1"),
    ("stash pop", lambda m: m.stash_pop(1), UnknownReferenceError, "stash 1"),
    ("stash pop", lambda m: m.stash_pop("0"), ValueError, "number='0'"),
    ("stash pop", lambda m: with_ids(opened(m._store), lambda: "u1").stash_pop(), DuplicateError, "'u1'"),
    ("stash drop", lambda m: m.stash_drop(7), UnknownReferenceError, "stash 7"),
    ("delete", lambda m: m.delete_branch(MAIN), ValueError, "'main'"),
    ("delete", lambda m: m.delete_branch("none"), UnknownReferenceError, "'none'"),
    ("delete", lambda m: (m.checkout("side"), m.delete_branch("side")), ValueError, "'side'"),
    ("rename", lambda m: m.rename_branch(MAIN, "x"), ValueError, "'main'"),
    ("rename", lambda m: m.rename_branch("side", "v1"), DuplicateError, "'v1'"),
    ("rename", lambda m: m.rename_branch("side", MAIN), DuplicateError, "'main'"),
    ("rename", lambda m: m.rename_branch("none", "x"), UnknownReferenceError, "'none'"),
    ("rename", lambda m: m.rename_branch("side", ""), ValueError, "name=''"),
    ("prune", lambda m: m.forget(ids=["u1", "u99"]), UnknownReferenceError, "'u99'"),
    ("prune", lambda m: m.forget(), ValueError, "ids=, before=, session=True and user=True"),
    ("prune", lambda m: m.forget(ids=["u1"], session=True), ValueError, "ids=, before=, session=True"),
    ("diff", lambda m: m.diff("none"), UnknownReferenceError, "'none'"),
    ("diff", lambda m: m.diff("side", "u_long"), AmbiguousReferenceError, "'u_long_a'"),
    ("tag", lambda m: m.tag("v1"), DuplicateError, "'v1'"),
    ("tag", lambda m: m.tag("side"), DuplicateError, "'side'"),
    ("tag", lambda m: m.tag(" "), ValueError, "name"),
    ("tag", lambda m: m.tag("v2", "none"), UnknownReferenceError, "'none'"),
    ("tag", lambda m: m.delete_tag("side"), UnknownReferenceError, "'side'; tags: 'v1'"),
    ("sources", lambda m: m.sources("none"), UnknownReferenceError, "'none'"),
    ("messages", lambda m: m.messages(at="none"), UnknownReferenceError, "'none'"),
    ("reset", lambda m: m.reset("none"), UnknownReferenceError, "'none'"),
    ("reset", lambda m: m.reset("main@{2}"), UnknownReferenceError, "'main@{2}'"),
    ("rewind", lambda m: m.rewind("none"), UnknownReferenceError, "'none'"),
    ("rewind", lambda m: m.rewind("u2"), UnknownReferenceError, "'u2'"),
    ("rewind", lambda m: (m.checkout("r4"), m.rewind("u1")), ValueError, "detached"),
    ("make main", lambda m: lost(m).make_main(), UnknownReferenceError, "'lost'"),
    ("rebase", lambda m: m.rebase("none"), UnknownReferenceError, "'none'"),
    ("rebase", lambda m: m.rebase("side", since="none"), UnknownReferenceError, "'none'"),
    ("rebase", lambda m: (m.checkout("r4"), m.rebase("side")), ValueError, "detached"),
]  # fmt: skip


def lost(memory: InfiniteMemory) -> InfiniteMemory:
    """Stand on a branch that somebody else has deleted."""
    memory.checkout("lost")
    opened(memory._store).delete_branch("lost")  # type: ignore[arg-type]
    return memory


def test_a_refused_call_changes_nothing(subtests: pytest.Subtests) -> None:
    for number, (verb, act, error, named) in enumerate(REFUSED):
        with subtests.test(verb, number=number), closing(SQLiteStore(":memory:")) as store:
            memory = opened(store)
            parted(memory)
            say(memory, "u5")
            memory.stash()
            memory.tag("v1", "u1")
            memory.fork("long", "r3")
            say(memory, "u_long_a", "u_long_b")
            memory.fork("lost", MAIN)
            memory.checkout(MAIN)
            before = rows(store)
            with pytest.raises(error, match=re.escape(named)) as raised:
                act(memory)
            assert raised.type is error
            gone = {"branches": (0, 1), "refs": (1, 0)} if named == "'lost'" else {}
            written = changed(before, rows(store))
            assert written.pop("sessions", None) == ((1, 1) if gone else None)
            assert written == gone, "but for what another did"
            assert path(opened(store)) == ["u1", "r1", "u4", "r4"]


UNSAID: list[Verb] = [
    lambda m: m.fork("x", "none"), lambda m: m.checkout("none"), lambda m: m.merge(MAIN), lambda m: m.diff(MAIN),
    lambda m: m.merge(MAIN, "squash"),
    lambda m: m.cherry_pick("u1"), lambda m: m.stash_pop(keep=True), lambda m: m.stash_pop(), lambda m: m.stash_drop(),
    lambda m: m.delete_branch("x"), lambda m: m.rename_branch("x", "y"), lambda m: m.forget(ids=["u1"]),
    lambda m: m.tag("v1", "none"), lambda m: m.delete_tag("v1"), lambda m: m.reset(MAIN), lambda m: m.rebase(MAIN),
    lambda m: m.rewind("u1"),
    lambda m: m.sources("u1"), lambda m: m.messages(at=MAIN), lambda m: m.add(said("r1"), turn="u1"),
]  # fmt: skip


def test_reading_an_empty_session_finds_and_writes_nothing(memory: InfiniteMemory, store: SQLiteStore) -> None:
    before = rows(store)
    for act in UNSAID:
        with pytest.raises(UnknownReferenceError):
            act(memory)
    memory.make_main()
    assert memory.rewind() == MAIN
    assert (memory.stash(), memory.stashes(), memory.tags(), memory.log(), memory.reflog()) == (None, [], [], [], [])
    assert rows(store) == before


# What is done


@dataclass(frozen=True)
class Case:
    """A verb: what is done, what the two branches say then, and the rows that are new and gone.

    `OURS` and `SIDE` are what they say before; + is a message that the verb wrote. `ahead`: main has u4 r4.
    """

    does: Verb
    main: str
    wrote: dict[str, tuple[int, int]] = field(default_factory=dict)
    side: str = "u1 r1 u2 r2 u3 r3"
    ahead: bool = True
    branch: str | None = MAIN
    told: Verb = lambda result: None
    tells: Any = None


def how(result: Any) -> Any:
    return result.how


def sources(result: Any) -> Any:
    return result.sources, result.skipped, result.halves


def messages(count: int, **more: tuple[int, int]) -> dict[str, tuple[int, int]]:
    return {"messages": (count, 0), "texts": (count, 0), **more}


OURS = "u1 r1 u4 r4"
MOVED = {"branches": (1, 1), "refs": (1, 0)}
"""A branch that ends elsewhere, and the line of the reflog that says so."""

MERGED = MOVED | {"segments": (1, 0)}
NEW = (1, 0)
ANEW = (1, 1)  # two branches are, where one goes on at another's end: that one's row then says where it stops

DONE: dict[str, Case] = {
    "add": Case(lambda m: m.add(said("u9")), f"{OURS} u9", messages(1)),
    "add what is known": Case(lambda m: m.add([said("u1"), said("r1")]), OURS),
    "add where others go on": Case(
        lambda m: (m.fork("new", "r3"), m.add(said("u9"))), OURS, messages(1, branches=(2, 1)), branch="new"
    ),
    "add detached": Case(
        lambda m: (m.checkout("r2"), m.add(said("u9"))), OURS, messages(1, branches=NEW, segments=NEW),
        branch="branch-1",
    ),
    "add a text that others take for a mark": Case(
        lambda m: (m.add([said("u9", "<FORK>"), said("r9", "Root")]), m.merge("side", "squash"), path(m)[-4:-2]),
        f"{OURS} u9 r9 + +", messages(4, covers=(2, 0), refs=NEW), told=lambda done: done[-1], tells=["u9", "r9"],
    ),
    "fork": Case(lambda m: m.fork("new"), OURS, {"branches": NEW}, branch="new"),
    "fork at the same place again": Case(
        lambda m: (m.fork("a", "u2"), m.fork("b", "u2")), OURS, {"branches": (2, 0)}, branch="b"
    ),
    "checkout": Case(lambda m: m.checkout("side"), OURS, branch="side"),
    "checkout of a message": Case(lambda m: m.checkout("r2"), OURS, branch=None),
    "merge squash": Case(
        lambda m: m.merge("side", "squash"), f"{OURS} + +", messages(2, covers=(2, 0), refs=NEW),
        told=how, tells="squash",
    ),
    "merge squash asked in own words": Case(
        lambda m: m.merge("side", "squash", prompt="And?"), f"{OURS} + +", messages(2, covers=NEW, refs=NEW),
        told=lambda done: [(one.role, one.content[:4]) for one in done.messages],
        tells=[("user", "And?"), ("assistant", "From")],
    ),
    "merge squash of what is ahead": Case(
        lambda m: m.merge("side", "squash"), "u1 r1 + +",
        messages(2, covers=(2, 0), refs=NEW, branches=ANEW, segments=NEW), ahead=False, told=how, tells="squash",
    ),
    "merge squash twice": Case(
        lambda m: [m.merge("side", "squash").how for _ in range(2)], f"{OURS} + +",
        messages(2, covers=(2, 0), refs=NEW), told=list, tells=["squash", "nothing"],
    ),
    "merge squash of what is behind": Case(lambda m: m.merge("u1", "squash"), OURS, told=how, tells="nothing"),
    "merge squash of a branch with branches": Case(
        lambda m: (
            m.fork("more", "u3"), m.add(said("r9")), m.checkout(MAIN), m.merge("side", "squash"),
            m.checkout("more"), path(m), m.checkout(MAIN),
        ),
        f"{OURS} + +", messages(3, branches=(1, 0), segments=NEW, covers=(2, 0), refs=NEW),
        told=lambda done: done[5], tells=["u1", "r1", "u2", "r2", "u3", "r9"],
    ),
    "merge full": Case(lambda m: m.merge("side", "full"), f"{OURS} u2 r2 u3 r3", MERGED, told=how, tells="full"),
    "merge full of what is ahead": Case(
        lambda m: m.merge("side", "full"), "u1 r1 u2 r2 u3 r3", MERGED, ahead=False, told=how, tells="full"
    ),
    "merge full twice": Case(
        lambda m: [m.merge("side", "full").how for _ in range(2)], f"{OURS} u2 r2 u3 r3", MERGED,
        told=list, tells=["full", "nothing"],
    ),
    "merge full, then squash": Case(
        lambda m: [m.merge("side", "full").how, m.merge("side", "squash").how], f"{OURS} u2 r2 u3 r3", MERGED,
        told=list, tells=["full", "nothing"],
    ),
    "merge full of a message": Case(lambda m: m.merge("r2"), f"{OURS} u2 r2", MERGED, told=how, tells="full"),
    "merge three-way": Case(
        lambda m: m.merge("side", "three-way"), f"{OURS} u2 r2 u3 r3 + +",
        messages(2, covers=(4, 0), branches=ANEW, refs=NEW, segments=NEW),
        told=lambda done: (done.how, done.base, done.ours, done.theirs),
        tells=("three-way", "r1", ("u4", "r4"), ("u2", "r2", "u3", "r3")),
    ),
    "merge three-way twice": Case(
        lambda m: [m.merge("side", "three-way").how for _ in range(2)], f"{OURS} u2 r2 u3 r3 + +",
        messages(2, covers=(4, 0), branches=ANEW, refs=NEW, segments=NEW), told=list, tells=["three-way", "nothing"],
    ),
    "fast-forward": Case(
        lambda m: m.merge("side", "fast-forward"), "u1 r1 u2 r2 u3 r3", MOVED, ahead=False,
        told=how, tells="fast-forward",
    ),
    "fast-forward where it can be": Case(
        lambda m: m.merge("side"), "u1 r1 u2 r2 u3 r3", MOVED, ahead=False, told=how, tells="fast-forward"
    ),
    "fast-forward to what is behind": Case(lambda m: m.merge("u1", "fast-forward"), OURS, told=how, tells="nothing"),
    "cherry-pick": Case(
        lambda m: m.cherry_pick(["r3", "u3", "r1"]), f"{OURS} + +", messages(2, refs=NEW),
        told=sources, tells=(("u3", "r3"), ("r1",), ()),
    ),
    "cherry-pick of half an exchange": Case(
        lambda m: m.cherry_pick("r3"), f"{OURS} +", messages(1, refs=NEW), told=sources, tells=(("r3",), (), ("r3",))
    ),
    "cherry-pick twice": Case(
        lambda m: [m.cherry_pick(["u2", "r2"]).skipped for _ in range(2)], f"{OURS} + +", messages(2, refs=NEW),
        told=list, tells=[(), ("u2", "r2")],
    ),
    "cherry-pick of nothing": Case(lambda m: m.cherry_pick([]), OURS, told=sources, tells=((), (), ())),
    "stash push": Case(
        lambda m: m.stash(note="later"), "u1 r1", {"branches": ANEW, "refs": (2, 0)},
        told=lambda one: (one.number, one.branch, one.base, one.ids, one.note),
        tells=(0, MAIN, "r1", ("u4", "r4"), "later"),
    ),
    "stash push since a message": Case(
        lambda m: m.stash("u1"), "u1", {"branches": ANEW, "refs": (2, 0)},
        told=lambda one: one.ids, tells=("r1", "u4", "r4"),
    ),
    "stash push of nothing": Case(lambda m: m.stash("r4"), OURS),
    "stash push of a merge": Case(
        lambda m: (m.merge("side", "full"), m.stash("r1"), m.stashes()), "u1 r1",
        {"branches": ANEW, "refs": (3, 0), "segments": NEW},
        told=lambda done: done[2][0].ids, tells=("u4", "r4", "u2", "r2", "u3", "r3"),
    ),
    "stash list": Case(
        lambda m: (m.stash("r1"), m.stash("u1"), m.stashes()), "u1", {"branches": ANEW, "refs": (4, 0)},
        told=lambda done: [(one.number, one.ids) for one in done[-1]], tells=[(0, ("r1",)), (1, ("u4", "r4"))],
    ),
    "stash apply": Case(
        lambda m: (m.stash(), m.stash_pop(keep=True), m.stashes()), "u1 r1 + +",
        messages(2, branches=ANEW, refs=(3, 0), segments=NEW),
        told=lambda done: (done[1].sources, len(done[2])), tells=(("u4", "r4"), 1),
    ),
    "stash apply twice": Case(
        lambda m: (m.stash(), m.stash_pop(keep=True), m.stash_pop(keep=True)), "u1 r1 + +",
        messages(2, branches=ANEW, refs=(3, 0), segments=NEW), told=lambda done: done[2].skipped, tells=("u4", "r4"),
    ),
    "stash pop": Case(
        lambda m: (m.stash(), m.stash_pop(), m.stashes()), "u1 r1 + +",
        messages(2, branches=ANEW, refs=(2, 0), segments=NEW),
        told=lambda done: (done[1].sources, len(done[2])), tells=(("u4", "r4"), 0),
    ),
    "stash pop elsewhere": Case(
        lambda m: (m.stash(), m.checkout("side"), m.stash_pop(), m.checkout(MAIN)), "u1 r1",
        messages(2, branches=ANEW, refs=(2, 0)), side="u1 r1 u2 r2 u3 r3 + +",
    ),
    "stash drop": Case(
        lambda m: (m.stash(), m.stash_drop(), m.stashes()), "u1 r1", MOVED, told=lambda done: done[2], tells=[]
    ),
    "delete": Case(lambda m: (m.fork("x"), m.checkout(MAIN), m.delete_branch("x")), OURS, {"refs": NEW}),
    "delete and bring back": Case(
        lambda m: (m.fork("x", "u2"), m.checkout(MAIN), m.delete_branch("x"), m.fork("x", "x@{1}"), path(m)), OURS,
        {"refs": NEW, "branches": NEW}, branch="x", told=lambda done: done[-1], tells=["u1", "r1", "u2"],
    ),
    "rename": Case(lambda m: (m.fork("x"), m.rename_branch("x", "y")), OURS, {"branches": NEW}, branch="y"),
    "diff": Case(
        lambda m: m.diff("side"), OURS, told=lambda diff: (diff.base, diff.only_a, diff.only_b),
        tells=("r1", ("u2", "r2", "u3", "r3"), ("u4", "r4")),
    ),
    "tag": Case(lambda m: (m.tag("v1"), m.add(said("u9")), [tag.name for tag in m.tags()]), f"{OURS} u9",
                messages(1, refs=NEW), told=lambda done: done[-1], tells=["v1"]),
    "reset": Case(lambda m: m.reset("r1"), "u1 r1", MOVED),
    "reset and back": Case(
        lambda m: (m.reset("r3"), m.reset("main@{1}")), OURS, {"branches": ANEW, "refs": (2, 0)}
    ),
    "make main": Case(
        lambda m: (m.checkout("side"), m.make_main(), [move.to_dict() | {"at": 0} for move in m.reflog()]),
        "u1 r1 u2 r2 u3 r3", {"branches": (2, 2), "refs": (2, 0)}, OURS, told=lambda done: done[-1], tells=[
            {"reference": f"{name}@{{1}}", "branch": name, "why": "make side main", "before": before, "after": after,
             "at": 0, "deleted": False} for name, before, after in (("side", "r3", "r4"), (MAIN, "r4", "r3"))
        ],
    ),
    "make main of a message": Case(
        lambda m: (m.checkout("u2"), m.make_main(), path(m), m.diff("branch-1").only_a),
        "u1 r1 u2", {"branches": (2, 1), "refs": NEW},
        told=lambda done: done[2:], tells=(["u1", "r1", "u2"], ("u4", "r4")),
    ),
    "make main of what is ahead": Case(
        lambda m: (m.checkout("u2"), m.make_main()), "u1 r1 u2", MOVED, ahead=False, told=lambda done: done[1]
    ),
    "make main where it ends": Case(lambda m: (m.checkout("r4"), m.make_main()), OURS, told=lambda done: done[1]),
    "rewind": Case(
        lambda m: (m.rewind("u1"), m.diff("main-2").only_a, m.reflog()[0].why), "u1",
        {"branches": (2, 1), "refs": NEW}, told=tuple, tells=("main-2", ("r1", "u4", "r4"), "rewind, kept as main-2"),
    ),
    "rewind all, twice": Case(
        lambda m: (m.rewind(), m.add(said("u9")), m.rewind(), m.diff("main-2", "main-3").only_a), "",
        {"messages": NEW, "texts": NEW, "segments": NEW, "branches": (3, 1), "refs": (2, 0)},
        told=lambda done: (done[0], done[2:]), tells=("main-2", ("main-3", ("u1", "r1", "u4", "r4"))),
    ),
    "rewind where a name is taken": Case(
        lambda m: (m.tag("main-2"), m.rewind("r1")), "u1 r1", {"branches": (2, 1), "refs": (2, 0)},
        told=lambda done: done[1], tells="main-3",
    ),
    "rewind nothing": Case(lambda m: (m.rewind("r4"), m.rewind(MAIN)), OURS, told=tuple, tells=(MAIN, MAIN)),
    "rebase": Case(
        lambda m: m.rebase("side"), "u1 r1 u2 r2 u3 r3 + +", messages(2, branches=(2, 2), refs=NEW),
        told=sources, tells=(("u4", "r4"), (), ()),
    ),
    "rebase since a message": Case(
        lambda m: m.rebase("side", since="u4"), "u1 r1 u2 r2 u3 r3 +", messages(1, branches=(2, 2), refs=NEW)
    ),
    "rebase of what is behind": Case(lambda m: m.rebase("side"), "u1 r1 u2 r2 u3 r3", MOVED, ahead=False),
    "rebase onto what is behind": Case(lambda m: m.rebase("u1"), OURS),
}  # fmt: skip


def test_a_verb_changes_only_what_it_names(subtests: pytest.Subtests) -> None:
    for name, case in DONE.items():
        with subtests.test(name), closing(SQLiteStore(":memory:")) as store:
            do(case, store)


def do(case: Case, store: SQLiteStore) -> None:
    memory = opened(store)
    parted(memory, ahead=case.ahead)
    said_before, before = store.find(1, After(0, 999)), rows(store)
    result = case.does(memory)
    after = rows(store)
    assert case.told(result) == case.tells
    assert memory.branch == case.branch
    written = changed(before, after)
    written.pop("sessions", None)  # how often a session was changed, see `SessionState.version`
    assert written == case.wrote
    assert not any(before[table] - after[table] for table in ("messages", "texts", "segments", "covers"))
    known = {record.message.id for record in said_before} | {"u9", "r9"}
    for branch, expected in ((MAIN, case.main), ("side", case.side)):
        reader = opened(store)
        reader.checkout(branch)
        line = path(reader)
        assert [id_ if id_ in known else "+" for id_ in line] == expected.split()
        assert len(set(line)) == len(line)
        assert {hit.message.id for hit in reader.search("says", 99)} <= set(line)
        assert set(ids(reader.context("what do they say?").messages)) <= {*line, None}
    assert rows(store) == after, "looking writes nothing"


def test_a_pruned_message_is_gone_everywhere_and_nothing_else_is(memory: InfiniteMemory, store: SQLiteStore) -> None:
    parted(memory)
    memory.fork("other", "u2")
    say(memory, "r5")
    before = {record.message.id: record for record in store.find(1, After(0, 99))}
    assert memory.forget(ids=["r2"]).ids == ("r2",)
    del before["r2"]
    assert {record.message.id: record for record in store.find(1, After(0, 99))} == before
    lines = {}
    for branch in (MAIN, "side", "other"):
        memory.checkout(branch)
        lines[branch] = path(memory)
    # One answer of two goes; the other keeps its question.
    assert lines == {
        MAIN: ["u1", "r1", "u4", "r4"], "side": ["u1", "r1", "u2", "u3", "r3"], "other": ["u1", "r1", "u2", "r5"]
    }  # fmt: skip
    assert memory.add(said("r2")) == [], "and it stays away"


def test_no_two_conversations_share_an_id(store: SQLiteStore) -> None:
    one, two = (opened(store, session_id=name) for name in ("one", "two"))
    for memory in (one, two):
        parted(memory)
    two.merge("side")
    two.forget(ids=["u1"])
    assert path(one) == ["u1", "r1", "u4", "r4"]
    assert path(two) == ["r1", "u4", "r4", "u2", "r2", "u3", "r3"]


def test_two_objects_that_add_at_one_position_stay_on_one_branch(store: SQLiteStore) -> None:
    one, two = opened(store), opened(store)
    say(one, "u1")
    assert path(two) == ["u1"]
    say(one, "r1")
    say(two, "u2")
    one.add(said("r11"))
    assert path(one) == path(two) == ["u1", "r1", "u2", "r11"]
    assert (one.get("r11").turn_id, [branch.name for branch in one.branches()]) == ("u1", [MAIN])
