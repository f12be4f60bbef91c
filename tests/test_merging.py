"""Merging, picking, rebasing and putting aside: the contract of every verb, and what each of them reads."""

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import pytest
from histories import CountingStore, history, ids

from shared_core import Conflict, InfiniteMemory, Message, ToolCall
from shared_core.records import MAIN, Change, Draft


@pytest.fixture
def store() -> Iterator[CountingStore]:
    with closing(CountingStore(":memory:")) as store:
        yield store


@pytest.fixture
def memory(store: CountingStore) -> InfiniteMemory:
    return InfiniteMemory(store, ranking="lexical", token_counter="characters/4")


def path(memory: InfiniteMemory) -> list[str | None]:
    return ids(memory.messages())


def said(id_: str, content: str | None = None, **fields: Any) -> Message:
    roles = {"u": "user", "r": "assistant", "t": "tool", "s": "system"}
    return Message.model_validate({"role": roles[id_[0]], "content": content or f"says {id_}", "id": id_, **fields})


def say(memory: InfiniteMemory, *names: str) -> None:
    memory.add([said(name) for name in names])


def parted(memory: InfiniteMemory, *, ahead: bool = True) -> None:
    """Main says u1 r1, side u2 r2 u3 r3 after it, and main, if it is ahead, u4 r4."""
    say(memory, "u1", "r1")
    memory.fork("side")
    say(memory, "u2", "r2", "u3", "r3")
    memory.checkout(MAIN)
    if ahead:
        say(memory, "u4", "r4")


def everything(memory: InfiniteMemory) -> list[Any]:
    """All that a verb could change."""
    store, key = memory._store, memory._live.key
    assert key is not None
    refs = [store.refs(key, kind) for kind in ("tag", "stash", "move")]
    return [memory.branch, path(memory), store.after(key, 0, 999), memory.branches(), refs, store.stats(key)]


# The contract


@dataclass(frozen=True)
class Case:
    """A verb: what is done, and the main branch, the side branch and the number of new messages afterwards."""

    does: Callable[[Any], Any]
    main: str
    side: str = "u1 r1 u2 r2 u3 r3"
    new: int = 0
    ahead: bool = True
    branch: str | None = MAIN
    told: Callable[[Any], Any] = lambda result: None
    tells: Any = None


def how(result: Any) -> Any:
    return result.how


def sources(result: Any) -> Any:
    return result.sources, result.skipped, result.halves


OURS = "u1 r1 u4 r4"
CONTRACT: dict[str, Case] = {
    "add": Case(lambda memory: memory.add(said("u9")), f"{OURS} u9", new=1),
    "fork": Case(lambda memory: memory.fork("new"), OURS, branch="new"),
    "fork at the same place again": Case(
        lambda memory: (memory.fork("a", "u2"), memory.fork("b", "u2")), OURS, branch="b"
    ),
    "checkout": Case(lambda memory: memory.checkout("side"), OURS, branch="side"),
    "checkout of a message": Case(lambda memory: memory.checkout("r2"), OURS, branch=None),
    "squash": Case(lambda memory: memory.merge("side", "squash"), f"{OURS} + +", new=2, told=how, tells="squash"),
    "squash of what is ahead": Case(
        lambda memory: memory.merge("side", "squash"), "u1 r1 + +", new=2, ahead=False, told=how, tells="squash"
    ),
    "squash twice": Case(
        lambda memory: [memory.merge("side", "squash").how for _ in range(2)], f"{OURS} + +", new=2,
        told=list, tells=["squash", "nothing"],
    ),
    "full": Case(lambda memory: memory.merge("side", "full"), f"{OURS} u2 r2 u3 r3", told=how, tells="full"),
    "full of what is ahead": Case(
        lambda memory: memory.merge("side", "full"), "u1 r1 u2 r2 u3 r3", ahead=False, told=how, tells="full"
    ),
    "full twice": Case(
        lambda memory: [memory.merge("side", "full").how for _ in range(2)], f"{OURS} u2 r2 u3 r3",
        told=list, tells=["full", "nothing"],
    ),
    "squash after full": Case(
        lambda memory: [memory.merge("side", "full").how, memory.merge("side", "squash").how], f"{OURS} u2 r2 u3 r3",
        told=list, tells=["full", "nothing"],
    ),
    "full of a message": Case(lambda memory: memory.merge("r2"), f"{OURS} u2 r2", told=how, tells="full"),
    "merge of what is behind": Case(lambda memory: memory.merge("u1"), OURS, told=how, tells="nothing"),
    "merge with itself": Case(lambda memory: memory.merge(MAIN), OURS, told=how, tells="nothing"),
    "fast-forward": Case(
        lambda memory: memory.merge("side", "fast-forward"), "u1 r1 u2 r2 u3 r3", ahead=False,
        told=how, tells="fast-forward",
    ),
    "auto where it can be": Case(
        lambda memory: memory.merge("side"), "u1 r1 u2 r2 u3 r3", ahead=False, told=how, tells="fast-forward"
    ),
    "auto where it cannot": Case(lambda memory: memory.merge("side"), f"{OURS} u2 r2 u3 r3", told=how, tells="full"),
    "three-way": Case(
        lambda memory: memory.merge("side", "three-way"), f"{OURS} u2 r2 u3 r3 + +", new=2,
        told=lambda result: (result.how, result.base, result.ours, result.theirs),
        tells=("three-way", "r1", ("u4", "r4"), ("u2", "r2", "u3", "r3")),
    ),
    "cherry-pick": Case(
        lambda memory: memory.cherry_pick(["r3", "u3", "r1"]), f"{OURS} + +", new=2,
        told=sources, tells=(("u3", "r3"), ("r1",), ()),
    ),
    "cherry-pick of half an exchange": Case(
        lambda memory: memory.cherry_pick("r3"), f"{OURS} +", new=1, told=sources, tells=(("r3",), (), ("r3",))
    ),
    "cherry-pick twice": Case(
        lambda memory: [memory.cherry_pick(["u2", "r2"]).skipped for _ in range(2)], f"{OURS} + +", new=2,
        told=list, tells=[(), ("u2", "r2")],
    ),
    "stash": Case(
        lambda memory: memory.stash(), "u1 r1",
        told=lambda stash: (stash.number, stash.branch, stash.base, stash.ids), tells=(0, MAIN, "r1", ("u4", "r4")),
    ),
    "stash since a message": Case(
        lambda memory: memory.stash("u1"), "u1", told=lambda stash: stash.ids, tells=("r1", "u4", "r4")
    ),
    "stash of nothing": Case(lambda memory: memory.stash("r4"), OURS, told=lambda stash: stash, tells=None),
    "stash apply": Case(
        lambda memory: (memory.stash(), memory.stash_apply(), len(memory.stashes())), "u1 r1 + +", new=2,
        told=lambda result: result[2], tells=1,
    ),
    "stash pop": Case(
        lambda memory: (memory.stash(), memory.stash_pop(), len(memory.stashes())), "u1 r1 + +", new=2,
        told=lambda result: result[2], tells=0,
    ),
    "stash drop": Case(
        lambda memory: (memory.stash(), memory.stash_drop(), len(memory.stashes())), "u1 r1",
        told=lambda result: result[2], tells=0,
    ),
    "tag": Case(lambda memory: memory.tag("v1"), OURS),
    "reset": Case(lambda memory: memory.reset("r1"), "u1 r1"),
    "reset and back": Case(lambda memory: (memory.reset("r3"), memory.reset("main@{1}")), OURS),
    "rebase": Case(
        lambda memory: memory.rebase("side"), "u1 r1 u2 r2 u3 r3 + +", new=2,
        told=sources, tells=(("u4", "r4"), (), ()),
    ),
    "rebase since a message": Case(lambda memory: memory.rebase("side", since="u4"), "u1 r1 u2 r2 u3 r3 +", new=1),
    "rebase of what is behind": Case(lambda memory: memory.rebase("side"), "u1 r1 u2 r2 u3 r3", ahead=False),
    "rebase onto what is behind": Case(lambda memory: memory.rebase("u1"), OURS),
    "diff": Case(
        lambda memory: memory.diff("side"), OURS,
        told=lambda diff: (diff.base, diff.only_a, diff.only_b), tells=("r1", ("u2", "r2", "u3", "r3"), ("u4", "r4")),
    ),
    "delete": Case(lambda memory: (memory.fork("x"), memory.checkout(MAIN), memory.delete_branch("x")), OURS),
}  # fmt: skip


@pytest.mark.parametrize("name", CONTRACT)
def test_the_contract(memory: InfiniteMemory, name: str) -> None:
    case = CONTRACT[name]
    parted(memory, ahead=case.ahead)
    before = memory._store.after(1, 0, 999)
    result = case.does(memory)
    assert case.told(result) == case.tells
    assert memory.branch == case.branch
    stored = memory._store.after(1, 0, 999)
    assert stored[: len(before)] == before, "no message is changed or removed"
    assert len(stored) - len(before) == case.new
    known = {record.message.id for record in before} | {"u9"}
    for branch, expected in ((MAIN, case.main), ("side", case.side)):
        reader = InfiniteMemory(memory._store, ranking="lexical")
        reader.checkout(branch)
        assert [id_ if id_ in known else "+" for id_ in path(reader)] == expected.split()
        assert len(set(path(reader))) == len(path(reader))
        assert {hit.message.id for hit in reader.search("says", 99)} <= set(path(reader))


WRONG: list[tuple[Callable[[Any], Any], str]] = [
    (lambda memory: memory.merge("side", "fast-forward"), "'main' has messages that 'side' has not"),
    (lambda memory: memory.merge("side", "octopus"), "how="),
    (lambda memory: memory.merge("side", prompt="?"), "how='auto' asks nothing"),
    (lambda memory: memory.merge("side", "squash", summarizer=lambda before, messages: " "), "returned nothing"),
    (lambda memory: memory.merge("side", "three-way", summarizer=fails), "the model is down"),
    (lambda memory: memory.merge("side", "squash", summarizer=fails), "the model is down"),
    (lambda memory: memory.stash("u2"), "'u2' is not on this branch"),
    (lambda memory: memory.cherry_pick(["u2", "u99"]), "'u99'"),
    (lambda memory: memory.cherry_pick(["side"]), "'side' is not a message"),
    (lambda memory: memory.stash_apply(-1), "number=-1"),
]


def fails(before: str | None, messages: Sequence[Message]) -> str:
    raise RuntimeError("the model is down")


@pytest.mark.parametrize(("act", "message"), WRONG)
def test_what_fails_changes_nothing(memory: InfiniteMemory, act: Callable[[InfiniteMemory], Any], message: str) -> None:
    parted(memory)
    before = everything(memory)
    with pytest.raises((ValueError, LookupError, RuntimeError), match=message):
        act(memory)
    assert everything(memory) == before


def test_a_detached_head_is_merged_into_a_branch_of_its_own(memory: InfiniteMemory) -> None:
    parted(memory)
    for how, branch in (("full", "branch-1"), ("squash", "branch-2"), ("auto", None)):
        memory.checkout("r4" if how != "auto" else "r1")
        memory.merge("side", how)  # type: ignore[arg-type]
        assert memory.branch == branch
    assert path(memory) == ["u1", "r1", "u2", "r2", "u3", "r3"]
    with pytest.raises(ValueError, match="detached"):
        memory.rebase(MAIN)
    assert memory.stash() is not None
    assert (memory.branch, path(memory)) == (None, ["u1", "r1", "u2", "r2"])


@pytest.mark.parametrize(
    ("verb", "expected"),
    [
        (lambda memory: memory.merge("side"), "u1 r1 u8 u2 r2 u3 r3"),
        (lambda memory: memory.stash("r1"), "u1 r1"),
    ],
)
def test_what_is_decided_on_a_head_that_has_moved_is_decided_again(
    memory: InfiniteMemory, monkeypatch: pytest.MonkeyPatch, verb: Callable[[InfiniteMemory], Any], expected: str
) -> None:
    parted(memory, ahead=False)
    if expected == "u1 r1":
        say(memory, "u7")
    other, change = InfiniteMemory(memory._store), memory._store.change

    def after_another_writer(session: int, changes: Sequence[Change]) -> None:
        monkeypatch.undo()
        say(other, "u8")
        change(session, changes)

    monkeypatch.setattr(memory._store, "change", after_another_writer)
    result = verb(memory)
    assert path(memory) == expected.split()
    assert getattr(result, "ids", ("u7", "u8")) == ("u7", "u8")


def test_a_rebase_takes_along_what_another_writer_adds_meanwhile(
    memory: InfiniteMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    parted(memory)
    other, append = InfiniteMemory(memory._store), memory._store.append

    def after_another_writer(session: int, branch: str, drafts: Sequence[Draft], **how: Any) -> Any:
        monkeypatch.undo()
        say(other, "u8")
        return append(session, branch, drafts, **how)

    monkeypatch.setattr(memory._store, "append", after_another_writer)
    assert memory.rebase("side").sources == ("u4", "r4", "u8")


# The two questions of the post


def test_the_main_chat_knows_what_the_side_chat_found_out(memory: InfiniteMemory) -> None:
    memory.add([said("u1", "We write a parser."), said("r1", "Fine.")])
    memory.fork("debug")
    memory.add([said("u2", "Why does it hang on tabs?"), said("r2", "The tokenizer never advances past a tab.")])
    memory.checkout(MAIN)
    seen: list[Any] = []

    def summarizer(before: str | None, messages: Sequence[Message]) -> str:
        seen.append((before, [(message.role, message.content) for message in messages]))
        return "Tabs made the tokenizer hang; advance past them."

    result = memory.merge("debug", "squash", prompt="What was the bug?", summarizer=summarizer)
    assert seen == [
        (None, [
            ("user", "Why does it hang on tabs?"),
            ("assistant", "The tokenizer never advances past a tab."),
            ("user", "What was the bug?"),
        ])
    ]  # fmt: skip
    question, answer = result.messages
    assert (question.content, question.role, question.turn_id) == ("What was the bug?", "user", question.id)
    assert answer.content == "From the branch 'debug':\nTabs made the tokenizer hang; advance past them."
    assert (answer.role, answer.turn_id) == ("assistant", question.id)
    assert memory.sources(str(answer.id)) == ["u2", "r2"]
    assert memory.sources(str(question.id)) == memory.sources("u1") == []
    context = memory.context("how do we fix the hang?")
    assert answer in context.messages
    assert not {"u2", "r2"} & {message.id for message in context.messages}
    memory.checkout("debug")
    assert path(memory) == ["u1", "r1", "u2", "r2"], "and the side chat can go on"


def test_without_a_summarizer_it_is_said_what_was_said(memory: InfiniteMemory) -> None:
    parted(memory)
    answer = memory.merge("side", "squash").messages[1]
    said_there = "user: says u2\nassistant: says r2\nuser: says u3\nassistant: says r3"
    assert answer.content == f"From the branch 'side':\n{said_there}"
    memory.checkout("side")
    say(memory, *(name for n in range(10, 40) for name in (f"u{n}", f"r{n}")))
    memory.checkout(MAIN)
    text = memory.merge("side", "squash").messages[1].content
    assert text.startswith("From the branch 'side':\n...\nuser: says u30\n")
    assert text.endswith("assistant: says r39")
    assert len(text.splitlines()) == 22


def test_a_squash_covers_only_what_is_new(memory: InfiniteMemory) -> None:
    parted(memory)
    memory.merge("side", "squash")
    memory.checkout("side")
    say(memory, "u7")
    memory.checkout(MAIN)
    answer = memory.merge("side", "squash").messages[1]
    assert memory.sources(str(answer.id)) == ["u7"]
    assert memory.merge("side", "full").how == "full", "the words themselves were not here"
    assert memory.merge("side", "squash").how == "nothing"


# What a prompt sees


def prompt(memory: InfiniteMemory) -> list[str | None]:
    return ids(memory.context().messages)


def test_a_merge_is_seen_in_prompts_once_at_any_depth_and_before_what_comes_next(memory: InfiniteMemory) -> None:
    say(memory, "u1", "r1")
    for name in ("b", "c", "d"):
        memory.fork(name)
        say(memory, f"u{name}", f"r{name}", f"u{name}2")
    for source, target in (("d", "c"), ("c", "b"), ("b", MAIN), ("d", MAIN), ("c", MAIN)):
        memory.checkout(target)
        say(memory, f"u{source}{target}1", f"u{source}{target}2")
        memory.merge(source, "full")
    say(memory, "u9", "r9")
    line = path(memory)
    assert len(line) == len(set(line)) == 23
    assert line[-2:] == ["u9", "r9"]
    assert set(line) >= {"ub", "uc", "ud", "rb", "rc", "rd", "udc1", "ucb2"}
    assert prompt(memory) == line
    assert prompt(InfiniteMemory(memory._store, ranking="lexical")) == line
    assert ids(memory.newest(7)) == line[-7:]


def test_a_late_answer_that_is_merged_stands_in_its_turn(memory: InfiniteMemory) -> None:
    say(memory, "u1", "r1")
    memory.fork("side")
    say(memory, "u2")
    memory.checkout(MAIN)
    say(memory, "u3", "r3", "u4")
    memory.merge("side")
    say(memory, "u5", "r5")
    memory.checkout("side")
    say(memory, "r2", "u6")
    memory.checkout(MAIN)
    memory.merge("side")
    assert path(memory) == ["u1", "r1", "u3", "r3", "u4", "u2", "u5", "r5", "r2", "u6"]
    assert prompt(memory) == ["u1", "r1", "u3", "r3", "u4", "u2", "r2", "u5", "r5", "u6"]
    memory.add(said("r21"), turn="u2")
    assert prompt(memory) == ["u1", "r1", "u3", "r3", "u4", "u2", "r2", "r21", "u5", "r5", "u6"]


def test_what_a_merge_brings_is_recalled_along_the_branch_only(memory: InfiniteMemory) -> None:
    small = InfiniteMemory(memory._store, ranking="lexical", max_tokens=200, reserve_tokens=0)
    small.add([said("u1", "hello"), said("r1", "hi")])
    small.fork("side")
    small.add([said("u2", "the locker code is 4471"), said("r2", "noted")])
    small.checkout(MAIN)
    small.add(history(30))
    question = "what is the locker code?"
    assert small.search("locker code") == []
    small.merge("side", "full")
    small.add(history(20, start=100))
    assert ids(hit.message for hit in small.search("locker code")) == ["u2", "r2"]
    assert "4471" in " ".join(message.content for message in small.context(question).messages)
    small.reset("main@{1}")
    assert small.search("locker code") == []


# Conflicts


def test_a_three_way_merge_lists_conflicts_and_decides_none(memory: InfiniteMemory) -> None:
    memory.add([said("u1", "Plan the trip."), said("r1", "The budget is 5k.")])
    memory.fork("side")
    memory.add([said("u2", "Make it more. The budget is 20k."), said("r2", "Fine. The hotel is booked.")])
    memory.add([said("u3", "When do we go?"), said("r3", "In May.")])
    memory.checkout(MAIN)
    memory.add([said("u4", "The budget is 10k. Is the hotel near?"), said("r4", "The hotel is booked!")])
    memory.add([said("u5", "When do we  go?"), said("r5", "In June.")])
    result = memory.merge("side", "three-way")
    assert result.conflicts == (
        Conflict("the answer to 'When do we go?'", ("u5", "r5"), ("u3", "r3"), "In June.", "In May."),
        Conflict("budget", ("u4",), ("u2",), "10k", "20k"),
    )
    answer = result.messages[1].content
    assert "- budget: 'main' says '10k' [u4], 'side' says '20k' [u2]" in answer
    assert "Only on 'side':\nuser: Make it more. The budget is 20k." in answer
    assert memory.sources(str(result.messages[1].id)) == ["u4", "r4", "u5", "r5", "u2", "r2", "u3", "r3"]
    assert result.to_dict()["conflicts"][1]["ours"] == ["u4"]


def test_two_answers_to_one_question_are_a_conflict(memory: InfiniteMemory) -> None:
    say(memory, "u1")
    memory.fork("side")
    memory.add(said("r2", "Yes."))
    memory.checkout(MAIN)
    memory.add(said("r3", "No."))
    result = memory.merge("side", "three-way")
    assert result.conflicts == (Conflict("the answer to 'u1'", ("r3",), ("r2",), "No.", "Yes."),)


def test_a_summarizer_is_told_what_both_sides_said_and_what_they_contradict(memory: InfiniteMemory) -> None:
    parted(memory)
    seen: list[str] = []

    def summarizer(before: str | None, messages: Sequence[Message]) -> str:
        seen.extend(message.content for message in messages)
        return "All is well."

    answer = memory.merge("side", "three-way", prompt="And?", summarizer=summarizer).messages[1].content
    assert (seen[:2], seen[3:7], seen[-1]) == (
        ["says u4", "says r4"], ["says u2", "says r2", "says u3", "says r3"], "And?"
    )  # fmt: skip
    assert answer.startswith("All is well.\n\nOnly on 'main':")


# Copies


def test_a_tool_result_brings_its_call_and_all_its_results(memory: InfiniteMemory) -> None:
    say(memory, "u1")
    memory.fork("side")
    calls = (ToolCall(id="c1", name="find"), ToolCall(id="c2", name="find"))
    results = [said(f"t{number}", tool_call_id=f"c{number}") for number in (1, 2)]
    memory.add([said("u2"), said("r2", tool_calls=calls), *results, said("r3")])
    memory.checkout(MAIN)
    picked = memory.cherry_pick("t1")
    assert (picked.sources, picked.halves) == (("r2", "t1", "t2"), ("r2", "t1", "t2"))
    assert [(message.role, message.tool_call_id, message.turn_id) for message in picked.messages] == [
        ("assistant", None, "u1"), ("tool", "c1", "u1"), ("tool", "c2", "u1")
    ]  # fmt: skip
    assert picked.messages[0].tool_calls == calls
    assert [memory.sources(str(message.id)) for message in picked.messages] == [["r2"], ["t1"], ["t2"]]
    assert picked.to_dict()["copies"] == {s: m.id for s, m in zip(picked.sources, picked.messages, strict=True)}
    assert memory.cherry_pick(["r2", "t2"]).skipped == ("r2", "t1", "t2")


def test_a_copy_is_the_whole_message(memory: InfiniteMemory) -> None:
    say(memory, "u1")
    memory.fork("side")
    rich = said(
        "u2", "x", name="Ann", grounding="fact", pinned=True, media_tokens=7, payload={"format": "f/1", "data": [1]}
    )
    (stored,) = memory.add(rich)
    memory.checkout(MAIN)
    (copy,) = memory.cherry_pick("u2").messages
    assert copy.replace(id="u2", turn_id="u2") == stored


def test_copies_keep_their_turns(memory: InfiniteMemory) -> None:
    say(memory, "u1", "r1")
    memory.fork("side")
    say(memory, "u2", "u3", "r3")
    memory.add(said("r2"), turn="u2")
    memory.add(said("r11"), turn="u1")
    memory.checkout(MAIN)
    say(memory, "u4")
    picked = memory.cherry_pick(["r2", "r3", "u3", "u2", "r11"])
    assert picked.sources == ("u2", "r2", "u3", "r3", "r11")
    two, _, three, *_ = picked.messages
    assert [message.turn_id for message in picked.messages] == [two.id, two.id, three.id, three.id, "u1"]
    assert picked.halves == ()


def test_a_copy_of_a_copy_is_not_made_where_the_first_is(memory: InfiniteMemory) -> None:
    parted(memory)
    copies = memory.cherry_pick(["u2", "r2"]).messages
    memory.checkout("side")
    assert memory.cherry_pick([str(message.id) for message in copies]).skipped == tuple(ids(copies))
    memory.fork("third", at="r1")
    again = memory.cherry_pick(str(copies[0].id))
    assert again.sources == (copies[0].id,)
    memory.checkout(MAIN)
    assert memory.cherry_pick(str(again.messages[0].id)).messages == ()


def test_an_answer_joins_its_own_question_before_a_copy_of_it(memory: InfiniteMemory) -> None:
    say(memory, "u0")
    memory.fork("side")
    say(memory, "u1")
    memory.fork("third", at="u0")
    memory.cherry_pick("u1")
    memory.checkout(MAIN)
    (question,) = memory.cherry_pick("u1").messages
    memory.checkout("third")
    memory.merge(MAIN)
    memory.checkout(MAIN)
    say(memory, "r1")
    memory.checkout("third")
    picked = memory.cherry_pick("r1")
    assert (picked.messages[0].turn_id, picked.halves) == (question.id, ())


def test_a_copy_is_not_counted_or_embedded_again(store: CountingStore) -> None:
    counted: list[str] = []

    class Counter_:
        name = "mine"

        def __call__(self, text: str) -> int:
            counted.append(text)
            return len(text)

    memory = InfiniteMemory(store, token_counter=Counter_(), ranking="lexical")
    parted(memory)
    counted.clear()
    memory.cherry_pick(["u2", "r2"])
    assert counted == []


def test_stashes_are_numbered_from_the_newest(memory: InfiniteMemory) -> None:
    parted(memory)
    memory.stash(note="first")
    memory.checkout("side")
    memory.stash(note="second")
    assert [(stash.number, stash.branch, stash.note, stash.ids) for stash in memory.stashes()] == [
        (0, "side", "second", ("u3", "r3")), (1, MAIN, "first", ("u4", "r4"))
    ]  # fmt: skip
    memory.checkout(MAIN)
    assert memory.stash_pop().sources == ("u3", "r3")
    assert memory.stash_pop().sources == ("u4", "r4")
    assert memory.stashes() == []
    memory.stash()
    memory.forget(ids=list(memory.stashes()[0].ids))
    assert memory.stashes()[0].ids == ()
    assert memory.stash_pop().messages == ()
    assert memory.stashes() == []


def test_a_stash_takes_a_long_turn_whole_and_nothing_that_a_merge_brought(memory: InfiniteMemory) -> None:
    say(memory, "r0")
    assert memory.stash() is None, "nobody has asked anything"
    say(memory, "u0", *(f"r{number}" for number in range(50, 69)))
    stash = memory.stash()
    assert stash is not None
    assert (len(stash.ids), path(memory)) == (20, ["r0"])
    memory.stash_pop()
    parted(memory)
    memory.merge("side", "full")
    before = path(memory)
    assert memory.stash() is None
    assert path(memory) == before


# Forgetting


def test_forgetting_reaches_copies_and_what_sums_up(memory: InfiniteMemory) -> None:
    parted(memory)
    copy = memory.cherry_pick(["u2", "r2"]).messages[0]
    memory.fork("third", at="r1")
    again = memory.cherry_pick(str(copy.id)).messages[0]
    squash = memory.merge("side", "squash", prompt="And?").messages
    memory.checkout("side")
    outer = memory.merge("third", "three-way").messages
    expected = ["u2", copy.id, again.id, squash[1].id, outer[0].id, outer[1].id]
    assert list(memory.forget(ids=["u2"], dry_run=True).ids) == expected
    assert list(memory.forget(ids=["u2"]).ids) == expected
    left = [record.message.content for record in memory._store.after(1, 0, 99)]
    assert not [text for text in left if "u2" in text]
    assert squash[0].id in [record.message.id for record in memory._store.after(1, 0, 99)], "the person's own question"
    memory.checkout(MAIN)
    assert path(memory)[:5] == ["u1", "r1", "u4", "r4", memory.newest(1)[0].id]


def test_forgetting_does_not_undo_a_merge(memory: InfiniteMemory) -> None:
    parted(memory)
    memory.merge("side", "full")
    say(memory, "u9", "r9")
    memory.forget(ids=["u9", "r9", "u2", "r4"])
    assert path(memory) == ["u1", "r1", "u4", "r2", "u3", "r3"]
    assert memory.merge("side").how == "nothing"
    memory.forget(session=True)
    assert (memory.stashes(), memory.tags(), memory.reflog(), path(memory)) == ([], [], [], [])


# What the verbs read and write


def grown(store: CountingStore, count: int, forks: int, merges: int) -> InfiniteMemory:
    memory = InfiniteMemory(store, ranking="lexical", token_counter="characters/4")
    memory.add(history(count))
    for number in range(forks):
        memory.fork(f"fork {number}", at=f"m{number * count // forks}")
        memory.checkout(MAIN)
    for number in range(merges):
        memory.fork(f"side {number}")
        say(memory, f"us{number}")
        memory.checkout(MAIN)
        say(memory, f"um{number}")
        memory.merge(f"side {number}", "full")
    memory.fork("aside", at=MAIN)
    say(memory, "ua", "ra")
    memory.checkout(MAIN)
    say(memory, "uz", "rz")
    memory.context("gardens?")
    return memory


VERBS: dict[str, Callable[[Any], Any]] = {
    "fork": lambda memory: memory.fork("new"),
    "checkout": lambda memory: memory.checkout("aside"),
    "newest": lambda memory: memory.newest(10),
    "back": lambda memory: memory.checkout(MAIN),
    "diff": lambda memory: memory.diff("aside"),
    "tag": lambda memory: memory.tag("v1"),
    "squash": lambda memory: memory.merge("aside", "squash"),
    "three-way": lambda memory: memory.merge("aside", "three-way"),
    "cherry-pick": lambda memory: memory.cherry_pick(["m3", "ra"]),
    "add": lambda memory: memory.add(said("u99")),
    "stash": lambda memory: memory.stash(),
    "stashes": lambda memory: memory.stashes(),
    "pop": lambda memory: memory.stash_pop(),
    "reset": lambda memory: memory.reset("rz"),
    "full": lambda memory: memory.merge("aside", "full"),
    "undo": lambda memory: memory.reset("main@{1}"),
    "rebase": lambda memory: memory.rebase("aside"),
    "fast-forward": lambda memory: (memory.checkout("side 0"), memory.merge(MAIN)),
    "log": lambda memory: memory.log(20),
    "reflog": lambda memory: memory.reflog(limit=10),
    "rename": lambda memory: memory.rename("aside", "asides"),
    "delete": lambda memory: memory.delete_branch("asides"),
    "forget": lambda memory: memory.forget(ids=["us0"]),
}


def reads(count: int, forks: int, merges: int) -> dict[str, tuple[Counter[str], int]]:
    """Messages read by each verb, by the store's verbs, and rows written."""
    found: dict[str, tuple[Counter[str], int]] = {}
    with closing(CountingStore(":memory:")) as store:
        memory = grown(store, count, forks, merges)
        connection = store._db._ready()
        for name, verb in VERBS.items():
            store.reset()
            written, started = connection.total_changes, time.perf_counter()
            verb(memory)
            rows = Counter({kind: n for kind, n in store.rows.items() if kind not in ("branches",)})
            found[name] = +rows, connection.total_changes - written
            if TIMES is not None:
                TIMES[name] = 1000 * (time.perf_counter() - started)
    return found


TIMES: dict[str, float] | None = None
"""Where to note how long each verb takes, in milliseconds, when somebody asks."""


def test_a_verb_reads_and_writes_as_much_in_a_long_conversation_as_in_a_short_one() -> None:
    few, many = reads(100, 20, 5), reads(10_000, 200, 50)
    assert few.pop("log")[0]["newest"] == 20 + 5 + 3 + 5
    assert many.pop("log")[0]["newest"] == 200 + 50 + 3 + 5, "one for each branch"
    assert few == many
    assert all(sum(rows.values()) <= 150 and written <= 20 for rows, written in many.values())


def test_a_fork_of_100_000_messages_writes_one_row(store: CountingStore) -> None:
    session = store.create_session(None, "default")
    drafts = [Draft(message.replace(created_at=message.created_at)) for message in history(100_000)]
    store.append(session, MAIN, drafts)
    memory = InfiniteMemory(store)
    connection = store._db._ready()
    store.reset()
    written = connection.total_changes
    memory.fork("side")
    assert connection.total_changes - written == 1
    assert +store.rows == Counter()
