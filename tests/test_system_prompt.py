"""System prompts are settings: the current one is sent first, what it replaced stays stored and is sent no more."""

import json
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from shared_core import AsyncInfiniteMemory, InfiniteMemory, Message, SessionPool, SQLiteStore
from shared_core.testing import HashingEmbedder
from tests.stores.dict_store import DictStore

ai, user, system = Message.assistant, Message.user, Message.system


def new(store: Any, **settings: Any) -> InfiniteMemory:
    return InfiniteMemory(store, embedder=HashingEmbedder(), **settings)


def exchange(number: int) -> list[Message]:
    return [user(f"question {number}"), ai(f"answer {number}")]


def prompts(memory: InfiniteMemory, **asked: Any) -> list[str]:
    """The system messages that are sent. They come first."""
    sent = memory.context("and now?", **asked).messages
    found = [message.content for message in sent if message.role == "system"]
    assert [message.role for message in sent[: len(found)]] == ["system"] * len(found)
    return found


# As a setting


def test_a_setting_comes_first_is_charged_and_never_stored(store: SQLiteStore) -> None:
    memory = new(store, system="Be kind.")
    memory.add(exchange(1))
    assert prompts(memory) == ["Be kind."]
    context, bare = memory.context("and now?"), memory.context("and now?", system="")
    assert context.tokens - bare.tokens == memory._count(system("Be kind."))
    assert context.report.lines[0].text == "Be kind."
    assert [message.content for message in memory.messages()] == ["question 1", "answer 1"]


def test_a_setting_is_sent_instead_of_the_stored_prompt_and_beside_what_is_pinned(store: SQLiteStore) -> None:
    memory = new(store, system="Be kind.")
    memory.add([system("Stored."), system("Stored, too."), *exchange(1), system("Pinned.", pinned=True)])
    memory.add([*exchange(2), system("Newer.")])
    sent = [message.content for message in memory.context("and now?").messages if message.role == "system"]
    assert sent == ["Be kind.", "Pinned."]
    assert memory.context("and now?", system="Be brief.").messages[0].content == "Be brief."
    for nothing in ("", " ", lambda: None):
        assert memory.context("and now?", system=nothing).messages[0].content == "Newer."
    assert [message.content for message in memory.messages() if not message.pinned][-1] == "Newer."


def test_a_setting_may_change_between_questions(store: SQLiteStore) -> None:
    times = iter(["one", "two"])
    memory = new(store, system=lambda: next(times))
    assert [prompts(memory), prompts(memory, system="three"), prompts(memory)] == [["one"], ["three"], ["two"]]
    memory.system = "four"
    assert prompts(memory) == ["four"]
    for nothing in (None, "", " ", lambda: None):
        memory.system = nothing
        assert prompts(memory) == []


def test_the_pool_and_the_asynchronous_memory_take_it(store: SQLiteStore) -> None:
    import asyncio

    with SessionPool(store, embedder=HashingEmbedder(), system="Be kind.") as pool, pool.use("a") as memory:
        assert prompts(memory) == ["Be kind."]

    async def ask() -> list[str]:
        memory = AsyncInfiniteMemory(new(store, system="Be kind."))
        first = await memory.context("hi")
        memory.system = lambda: "Be brief."
        second = await memory.context("hi")
        third = await memory.context("hi", system="Be quick.")
        return [context.messages[0].content for context in (first, second, third)]

    assert asyncio.run(ask()) == ["Be kind.", "Be brief.", "Be quick."]


# Stored with add


def test_the_same_program_run_five_times_sends_one_prompt(tmp_path: Path) -> None:
    for _ in range(5):
        with new(tmp_path / "chat.db") as memory:
            memory.add(system("You are a travel agent."))
            memory.add(exchange(1))
            assert prompts(memory) == ["You are a travel agent."]
    with new(tmp_path / "chat.db") as memory:
        assert len(memory.messages()) == 11


def test_another_prompt_replaces_the_one_before_which_stays_stored(store: SQLiteStore) -> None:
    memory = new(store)
    memory.add([system("A"), system("A, politely"), *exchange(1)])
    assert prompts(memory) == ["A", "A, politely"]
    memory.add(system("B"))
    memory.add(exchange(2))
    for one in (memory, new(store)):
        assert prompts(one) == ["B"]
        said = [message.content for message in one.messages()]
        assert said == ["question 1", "answer 1", "B", "question 2", "answer 2"]
        assert [m.content for m in one.messages(replaced=True)][:2] == ["A", "A, politely"]
        assert one.search("politely", role="system")[0].message.content == "A, politely"


def test_the_current_prompt_added_again_is_the_stored_one(store: SQLiteStore) -> None:
    memory = new(store)
    first, second, *_ = memory.add([system("A"), system("B"), *exchange(1)])
    again = memory.add([system("A"), system("B"), user("hi")])
    assert again[:2] == [first, second]
    assert memory.add(system("A"))[0].id != first.id
    assert prompts(memory) == ["A"]
    assert memory.add([system("A"), system("C")])[0].content == "A"
    assert prompts(memory) == ["A", "C"]


# On branches


@pytest.mark.parametrize("kind", [SQLiteStore, DictStore])
def test_each_branch_has_its_own(kind: Any) -> None:
    with closing(kind(":memory:") if kind is SQLiteStore else kind()) as store:
        memory = new(store)
        memory.add([system("A"), *exchange(1)])
        memory.fork("side")
        memory.add([system("B"), *exchange(2)])
        assert prompts(memory) == ["B"]
        memory.checkout("main")
        assert prompts(memory) == ["A"]
        memory.add(exchange(3))
        memory.merge("side", "full")
        memory.add(exchange(4))
        assert prompts(memory) == ["A"], "what a merge brings in does not replace the branch's own prompt"
        assert prompts(new(store)) == ["A"]
        memory.add(system("C"))
        assert prompts(memory) == ["C"]


def test_a_branch_that_another_object_moves_has_the_prompt_of_where_it_ends(store: SQLiteStore) -> None:
    memory, other = new(store), new(store)
    memory.add([system("A"), *exchange(1)])
    before = memory.messages()[-1].id
    memory.add([system("B"), *exchange(2)])
    assert prompts(other) == ["B"]
    memory.stash()
    memory.stash_pop()
    assert prompts(memory) == prompts(other) == ["B"], "each message is sent once"
    assert len(other.messages()) == len(list(other.messages())) == 5
    memory.reset(before or "")
    assert prompts(memory) == prompts(other) == ["A"]


# Imported


def test_system_messages_one_after_another_in_a_list_are_one_prompt(store: SQLiteStore, tmp_path: Path) -> None:
    file, memory = tmp_path / "talk.json", new(store)
    talk = [("system", "A"), ("system", "B"), ("user", "q1"), ("assistant", "a1")]
    for more, expected in (
        ([], ["A", "B"]),
        ([("system", "C"), ("user", "q2"), ("assistant", "a2")], ["C"]),
        ([("system", "D"), ("system", "E"), ("user", "q3")], ["D", "E"]),
    ):
        talk += more
        file.write_text(json.dumps([{"role": role, "content": text} for role, text in talk]))
        assert memory.import_file(file).new == (len(more) or 4)
        assert prompts(memory) == prompts(new(store)) == expected
    assert [message.content for message in memory.messages(replaced=True)] == [text for _, text in talk]


@pytest.mark.parametrize("full", [False, True], ids=["new session", "session with messages"])
def test_system_messages_one_after_another_in_a_tree_are_one_prompt(
    store: SQLiteStore, tmp_path: Path, *, full: bool
) -> None:
    file, memory = tmp_path / "conversations.json", new(store)
    memory.add(exchange(1) if full else [])
    mapping = {
        f"n{number}": {
            "message": {"author": {"role": role}, "content": {"parts": [f"text {number}"]}, "create_time": number},
            "parent": f"n{number - 1}" if number else None,
        }
        for number, role in enumerate(["system", "system", "user", "assistant"])
    }
    file.write_text(json.dumps([{"id": "c", "title": "t", "mapping": mapping, "current_node": "n3"}]))
    memory.import_file(file)
    memory.checkout("imported/main" if full else "main")
    assert prompts(memory) == ["text 0", "text 1"]


# Sent again with a history


def test_a_history_is_followed_whatever_its_prompt_says(store: SQLiteStore) -> None:
    memory = new(store)
    talk = [user("q1"), ai("a1"), user("q2")]
    followed = [
        memory.follow([system(text, id=text and "rule"), *talk[: 1 + number]]).ids[1:]
        for number, text in enumerate(["A", "B", "A"])
    ]
    assert followed[2][:2] == followed[1]
    assert prompts(memory) == ["A"]
    assert [m.content for m in memory.messages(replaced=True) if m.role == "system"] == ["A", "B", "A"]
    memory.follow(talk)
    assert prompts(memory) == ["A"], "a client that sends no prompt keeps the one there is"


def test_notes_between_the_words_belong_to_the_prompt_and_stay_where_they_are(store: SQLiteStore) -> None:
    memory = new(store)
    history = [system("A"), user("q1"), ai("a1"), system("note"), user("q2")]
    for end in (1, 2, 3, 5):
        found = memory.follow(history[:end])
    assert [memory.get(id_ or "").content for id_ in found.ids] == [message.content for message in history]
    assert [m.content for m in memory.context().messages] == ["A", "q1", "a1", "note", "q2"]
    assert memory.stats()["messages"] == 5
    memory.follow([system("B"), *history[1:]])
    assert [m.content for m in memory.context().messages] == ["B", "note", "q1", "a1", "q2"]
    assert [branch.name for branch in memory.branches()] == ["main"]


def test_a_prompt_that_changes_in_a_list_that_is_cut_is_stored_again(store: SQLiteStore) -> None:
    memory = new(store)
    first = memory.follow([system("A"), user("q1"), ai("a1")])
    second = memory.follow([system("note"), user("q2")], after=first)
    assert len(second) == 5
    third = memory.follow([system("other"), user("q3")], after=second.upto(3))
    assert [m.content for m in memory.context().messages] == ["A", "q1", "a1", "other", "q3"]
    assert [memory.get(id_ or "").content for id_ in third.ids] == ["A", "q1", "a1", "other", "q3"]
