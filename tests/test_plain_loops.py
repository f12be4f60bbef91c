"""The loops that people write first: whatever a client sends back, the talk is one line, each message stored once."""

from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared_core import InfiniteMemory, Message, SQLiteStore, ToolCall
from shared_core.testing import HashingEmbedder

ai, user, system = Message.assistant, Message.user, Message.system

Sent = Callable[[list[Message]], list[Message]]
"""What a client sends of its history."""


@pytest.fixture
def store() -> Iterator[SQLiteStore]:
    with closing(SQLiteStore(":memory:")) as store:
        yield store


def new(store: SQLiteStore, **settings: Any) -> InfiniteMemory:
    return InfiniteMemory(store, embedder=HashingEmbedder(), **settings)


def texts(messages: Any) -> list[str]:
    return [message.content for message in messages]


def branches(memory: InfiniteMemory) -> list[str]:
    return [branch.name for branch in memory.branches()]


def with_ids(history: list[Message]) -> list[Message]:
    return [message.replace(id=f"client-{number}") for number, message in enumerate(history)]


SENT: dict[str, Sent] = {
    "everything": lambda history: history,
    "everything with ids": with_ids,
    "ids on questions": lambda history: [
        message.replace(id=f"q{number}") if message.role == "user" else message
        for number, message in enumerate(history)
    ],
    "the last five": lambda history: history[-5:],
    "the newest": lambda history: history[-1:],
}


@pytest.mark.parametrize("fresh", [False, True], ids=["one object", "an object a turn"])
@pytest.mark.parametrize("sent", SENT.values(), ids=SENT)
def test_follow_then_add_is_one_line_of_talk(store: SQLiteStore, sent: Sent, *, fresh: bool) -> None:
    """As in the first program anyone writes: 12 turns and a system prompt are 25 messages on one branch."""
    memory, history = new(store), [] if sent is SENT["the newest"] else [system("Be kind.")]
    for number in range(12):
        history.append(user(f"question {number % 5}"))
        memory = new(store) if fresh else memory
        memory.follow(sent(history))
        history.append(ai(f"answer {number % 3}"))
        memory.add(history[-1])
    assert texts(memory.messages()) == texts(history)
    assert branches(memory) == ["main"]
    assert memory.stats()["messages"] == len(history)


@pytest.mark.parametrize("fresh", [False, True], ids=["one object", "an object a turn"])
def test_a_clock_in_the_system_prompt_neither_forks_nor_piles_up(store: SQLiteStore, *, fresh: bool) -> None:
    memory, history = new(store, max_tokens=700, reserve_tokens=100), list[Message]()
    for number in range(20):
        history.append(user(f"question {number}"))
        memory = new(store, max_tokens=700, reserve_tokens=100) if fresh else memory
        memory.follow([system(f"It is 10:{number:02}. Be kind."), *history])
        prompt = memory.context().messages
        assert texts(m for m in prompt if m.role == "system") == [f"It is 10:{number:02}. Be kind."]
        assert prompt[0].role == "system"
        history.append(ai(f"answer {number}"))
        memory.add(history[-1])
    assert sorted(texts(memory.messages())) == sorted(["It is 10:19. Be kind.", *texts(history)])
    assert texts(m for m in memory.messages(replaced=True) if m.role != "system") == texts(history)
    assert texts(m for m in memory.messages(replaced=True) if m.role == "system")[0] == "It is 10:00. Be kind."
    assert branches(memory) == ["main"]


def test_a_clock_as_a_setting_is_never_stored(store: SQLiteStore) -> None:
    times = iter(range(20))
    memory = new(store, system=lambda: f"It is 10:{next(times):02}.")
    for number in range(20):
        memory.add(user(f"question {number}"))
        prompt = memory.context().messages
        assert texts(m for m in prompt if m.role == "system") == [f"It is 10:{number:02}."]
        memory.add(ai(f"answer {number}"))
    assert memory.stats()["messages"] == len(memory.messages()) == 40


def test_a_reply_sent_back_with_the_next_question_is_the_stored_one(store: SQLiteStore) -> None:
    memory = new(store)
    first = memory.follow([user("q1")])
    (reply,) = memory.add(ai("a1"))
    again = memory.follow([user("q1"), ai("a1"), user("q2")])
    assert again.ids[:2] == (*first.ids, reply.id)
    assert texts(memory.newest(5)) == ["q1", "a1", "q2"]


@pytest.mark.parametrize("sent", [SENT["everything"], SENT["the last five"]], ids=["everything", "the last five"])
def test_an_answer_generated_again_is_a_branch_from_the_question(store: SQLiteStore, sent: Sent) -> None:
    memory, history = new(store), list[Message]()
    for number in range(5):
        history.append(user(f"q{number}"))
        memory.follow(sent(history))
        history.append(ai(f"a{number}"))
        memory.add(history[-1])
    memory.follow(sent(history[:-1]))
    memory.add(ai("another"))
    assert texts(memory.messages()) == [*texts(history[:-1]), "another"]
    assert branches(memory) == ["main", "branch-1"]
    for answer, line in (("a4", "main"), ("another", "branch-1")):
        memory.follow(sent([*history[:-1], ai(answer), user(f"after {answer}")]))
        assert memory.branch == line
    assert memory.stats()["messages"] == 13


@pytest.mark.parametrize("sent", [SENT["everything"], SENT["the last five"]], ids=["everything", "the last five"])
def test_an_edited_question_is_a_branch_from_before_it(store: SQLiteStore, sent: Sent) -> None:
    memory, history = new(store), list[Message]()
    for number in range(5):
        history.append(user(f"q{number}"))
        memory.follow(sent(history))
        history.append(ai(f"a{number}"))
        memory.add(history[-1])
    edited = [*history[:-2], user("edited")]
    memory.follow(sent(edited))
    memory.add(ai("to it"))
    assert texts(memory.messages()) == [*texts(edited), "to it"]
    assert branches(memory) == ["main", "branch-1"]
    assert memory.stats()["messages"] == 12


def test_an_answer_generated_again_with_tools_is_a_branch_though_all_words_are_the_same(store: SQLiteStore) -> None:
    memory, history = new(store), list[Message]()
    for _ in range(4):
        history.append(user("again"))
        memory.follow(history)
        history.append(ai("no"))
        memory.add(history[-1])
    again = history[:-1]
    memory.follow(again)
    again += [ai("", tool_calls=[ToolCall(id="1", name="f", arguments="{}")]), Message.tool("r", tool_call_id="1")]
    memory.follow(again)
    assert texts(memory.messages()) == texts(again)
    assert branches(memory) == ["main", "branch-1"]


@given(st.lists(st.sampled_from(["a", "b"]), min_size=1, max_size=12), st.booleans(), st.booleans())
def test_any_talk_is_stored_as_it_is_sent(words: list[str], echo: bool, clock: bool) -> None:
    """Repeated words are messages of their own, whatever the system prompt says meanwhile."""
    with closing(SQLiteStore(":memory:")) as store:
        memory, history = new(store, embed_budget_ms=0), list[Message]()
        for number, word in enumerate(words):
            history.append(user(word))
            memory.follow([*([system(f"clock {number}")] if clock else []), *history])
            history.append(ai(word if echo else f"{word}{number}"))
            memory.add(history[-1])
        assert texts(m for m in memory.messages() if m.role != "system") == texts(history)
        assert branches(memory) == ["main"]
