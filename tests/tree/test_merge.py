"""Merge, cherry-pick, rebase and stash in detail; their contract is in `test_verb_contract.py`."""

import asyncio
import re
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shared_core import AsyncInfiniteMemory, InfiniteMemory, Message, ToolCall
from shared_core.queries import After
from shared_core.records import MAIN, Change, Draft
from shared_core.results import Conflict
from shared_core.summaries.requests import LINE_TOKENS
from shared_core.tree.merge import conflicts
from tests.support.histories import CountingStore, history, ids
from tests.support.summarizers import Reading
from tests.tree.two_branches import parted, path, said, say


@pytest.fixture
def memory(store: CountingStore) -> InfiniteMemory:
    return InfiniteMemory(store, embedder="words", token_counter="characters/4")


@pytest.mark.interleaved
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


@pytest.mark.interleaved
def test_a_rebase_takes_along_what_another_writer_adds_during_it(
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


def test_a_squash_without_a_summarizer_quotes_the_messages(memory: InfiniteMemory) -> None:
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


# What a prompt sees


def prompt(memory: InfiniteMemory) -> list[str | None]:
    return ids(memory.context().messages)


def test_merged_messages_are_recalled_on_their_branch_only(memory: InfiniteMemory) -> None:
    small = InfiniteMemory(memory._store, embedder="words", max_tokens=200, reserve_tokens=0)
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
        Conflict("the budget is …", ("u4",), ("u2",), "The budget is 10k.", "The budget is 20k."),
    )
    answer = result.messages[1].content
    assert "- the budget is …: 'main' says 'The budget is 10k.' [u4], 'side' says 'The budget is 20k.' [u2]" in answer
    assert "Only on 'side':\nuser: Make it more. The budget is 20k." in answer
    assert memory.sources(str(result.messages[1].id)) == ["u4", "r4", "u5", "r5", "u2", "r2", "u3", "r3"]
    assert result.to_dict()["conflicts"][1]["ours"] == ["u4"]


def test_what_a_tool_says_is_no_statement_and_ends_none() -> None:
    ours = [Message.tool("The price is 4k.", tool_call_id="c"), said("u1", "The budget is 10k.")]
    theirs = [said("u2", "The budget is 20k. The price is 5k.")]
    assert [(one.ours, one.theirs) for one in conflicts(ours, theirs)] == [(("u1",), ("u2",))]


@pytest.mark.parametrize(
    ("ours", "theirs", "found"),
    [
        ("Das Budget beträgt 10.000 Euro.", "das Budget beträgt 20.000 Euro", True),
        ("Бюджет теперь 10 тысяч", "Нет. Бюджет теперь 20 тысяч!", True),
        ("The budget is 20k. No. The budget is 10k.", "The budget is 10k", False),
        ("Is the budget 10k?", "Is the budget 20k?", False),
        ("The budget is 10k", "The price was 20k", False),
        ("No.", "Yes.", False),
    ],
)
def test_sentences_that_differ_in_one_word_are_a_conflict_in_any_language(
    ours: str, theirs: str, *, found: bool
) -> None:
    assert bool(conflicts([said("u1", ours)], [said("u2", theirs)])) == found


def test_two_answers_to_one_question_are_a_conflict(memory: InfiniteMemory) -> None:
    say(memory, "u1")
    memory.fork("side")
    memory.add(said("r2", "Yes."))
    memory.checkout(MAIN)
    memory.add(said("r3", "No."))
    result = memory.merge("side", "three-way")
    assert result.conflicts == (Conflict("the answer to 'u1'", ("r3",), ("r2",), "No.", "Yes."),)


# Summarizers


class Calls:
    """A summarizer of words: it answers with the number of all words so far, and records what it is given."""

    def __init__(self, *, limit: int, answer_tokens: int = 20) -> None:
        self.given: list[Message] = []
        self.answers: list[str] = []
        self._limits = limit, answer_tokens

    def __call__(self, before: str | None, messages: Sequence[Message]) -> str:
        limit, answer_tokens = self._limits
        *told, question = messages
        assert (before or None) == (self.answers[-1] if self.answers else None)
        assert (question.role, question.id) == ("user", None)
        assert len((before or "").split()) + sum(LINE_TOKENS + len(one.content.split()) for one in messages) <= limit
        assert len((before or "").split()) <= answer_tokens
        self.given += told
        self.answers.append(f"{sum(len(one.content.split()) for one in self.given)} words")
        return self.answers[-1]

    async def awaited(self, before: str | None, messages: Sequence[Message]) -> str:
        await asyncio.sleep(0)
        return self(before, messages)


def long_branch(memory: InfiniteMemory, sizes: Sequence[int]) -> list[str]:
    """Say something on `main`, then messages of so many words on `side`, and return these."""
    memory.add([said("u0", "We write a parser."), said("r0", "Fine.")])
    memory.fork("side")
    texts = [" ".join(f"w{number}" for _ in range(size)) for number, size in enumerate(sizes)]
    memory.add([said(f"{'ur'[number % 2]}{number + 1}", text) for number, text in enumerate(texts)])
    memory.checkout(MAIN)
    return texts


def by_words(**settings: Any) -> InfiniteMemory:
    return InfiniteMemory(
        token_counter=lambda text: len(text.split()),
        embedder="words",
        **settings,
    )


@settings(max_examples=30)
@given(st.lists(st.integers(1, 60), min_size=1, max_size=14), st.sampled_from(["squash", "three-way"]))
def test_no_call_is_given_too_much_and_every_message_is_in_one_call(sizes: list[int], how: Any) -> None:
    calls = Calls(limit=100)
    with by_words() as memory:
        texts = long_branch(memory, sizes)
        memory.add([said("u90", "ours"), said("r90", "fine")])
        answer = memory.merge("side", how, summarizer=Reading(calls, 100)).messages[1].content
    theirs = [message.content for message in calls.given if (message.id or "") not in ("u90", "r90", "")]
    assert [text for text in theirs if text.startswith("w")] == texts
    assert calls.answers[-1] in answer
    if how == "squash":
        # Beside the messages, a call has a question of 8 words, and after the first an answer of 2.
        assert answer == f"From the branch 'side':\n{sum(sizes)} words"
        room = 100 - LINE_TOKENS - 8
        filled = [room]
        for size in sizes:
            if filled[-1] < size + LINE_TOKENS:
                filled.append(room - 2)
            filled[-1] -= size + LINE_TOKENS
        assert len(calls.answers) == len(filled)


def test_the_memorys_own_summarizer_writes_the_answer() -> None:
    own, other = Calls(limit=100), Calls(limit=100)
    with by_words(summarizer=Reading(own, 100)) as memory:
        long_branch(memory, [60, 60])
        assert memory.merge("side", "squash").messages[1].content.endswith("\n120 words")
        memory.checkout("side")
        memory.add(said("u70", "more"))
        memory.checkout(MAIN)
        assert memory.merge("side", "squash", summarizer=Reading(other, 100)).messages[1].content.endswith("\n1 words")
        assert memory.merge("side").how == "full", "which asks nothing"
    assert (len(own.answers), len(other.answers)) == (2, 1)


@pytest.mark.parametrize("own", [True, False])
@pytest.mark.parametrize("later", [True, False])
def test_a_coroutine_function_is_awaited_by_both_memories(*, own: bool, later: bool) -> None:
    calls = Calls(limit=100)
    awaited = Reading(calls.awaited, 100)
    given: Any = {} if own else {"summarizer": awaited}
    with by_words(summarizer=awaited if own else None) as memory:
        long_branch(memory, [60, 60])
        if later:
            result = asyncio.run(AsyncInfiniteMemory(memory).merge("side", "squash", **given))
        else:
            result = memory.merge("side", "squash", **given)
    assert result.messages[1].content.endswith("\n120 words")
    assert len(calls.answers) == 2


def test_a_question_that_leaves_no_room_is_refused() -> None:
    calls = Calls(limit=100)
    with by_words() as memory:
        long_branch(memory, [3])
        with pytest.raises(ValueError, match="leaves no room for messages in a call of input_tokens=100"):
            memory.merge("side", "squash", prompt="why " * 80, summarizer=Reading(calls, 100))
        memory.merge("side", "squash", prompt="why " * 79, summarizer=Reading(calls, 100))
    assert len(calls.answers) == 1


# Copies


def test_a_tool_result_is_copied_with_its_call_and_all_results(memory: InfiniteMemory) -> None:
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
    with pytest.raises(ValueError, match=re.escape("undo() takes the merge back")):
        memory.stash()
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
    left = [record.message.content for record in memory._store.find(1, After(0, 99))]
    assert not [text for text in left if "u2" in text]
    assert squash[0].id in [record.message.id for record in memory._store.find(1, After(0, 99))], (
        "the person's own question"
    )
    memory.checkout(MAIN)
    assert path(memory)[:5] == ["u1", "r1", "u4", "r4", memory.newest(1)[0].id]


def test_replies_to_two_questions_that_are_there_join_each_its_own(memory: InfiniteMemory) -> None:
    say(memory, "u1", "r1", "u2", "r2")
    memory.fork("side")
    memory.add(said("r11"), turn="u1")
    memory.add(said("r21"), turn="u2")
    memory.checkout(MAIN)
    assert [message.turn_id for message in memory.cherry_pick(["r11", "r21"]).messages] == ["u1", "u2"]
