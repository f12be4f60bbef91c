"""The loops that people write first: whatever a client sends back, the talk is one line, each message stored once."""

from collections.abc import Callable
from contextlib import closing
from itertools import count as count_up
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shared_core import InfiniteMemory, Message, SQLiteStore, ToolCall
from shared_core.queries import Pinned
from shared_core.testing import HashingEmbedder

ai, user, system = Message.assistant, Message.user, Message.system

Sent = Callable[[list[Message]], list[Message]]
"""What a client sends of its history."""


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
        memory, history = new(store), list[Message]()
        for number, word in enumerate(words):
            history.append(user(word))
            memory.follow([*([system(f"clock {number}")] if clock else []), *history])
            history.append(ai(word if echo else f"{word}{number}"))
            memory.add(history[-1])
        assert texts(m for m in memory.messages() if m.role != "system") == texts(history)
        assert branches(memory) == ["main"]


def tool_loop(name: str, calls: int) -> list[Message]:
    """A message with calls, and their results."""
    asked = [ToolCall(id=f"{name}-{number}", name="f", arguments="{}") for number in range(calls)]
    return [
        ai(f"{name} asks", tool_calls=asked),
        *(Message.tool(f"{name} result", tool_call_id=call.id) for call in asked),
    ]


STEPS = st.tuples(
    st.sampled_from(["ask", "ask", "ask", "generate again", "edit", "another tab", "lose the reply"]),
    st.integers(0, 99),
    st.lists(st.sampled_from(["A", "B"]), max_size=2),
    st.sampled_from(["none", "followed", "added"]),
)


class Client:
    """Sends its whole history to two objects, and knows what must be stored: a tree of all that it ever sent."""

    def __init__(self, store: SQLiteStore, ids: str) -> None:
        self.store, self.ids, self.given = store, ids, count_up()
        self.objects = [new(store) for _ in range(2)]
        self.history: list[Message] = []
        self.tabs: list[list[Message]] = []
        self.nodes: set[tuple[str, ...]] = set()
        self.notes: list[str] = []

    def named(self, message: Message) -> Message:
        given = self.ids == "all" or (self.ids == "questions" and message.role == "user")
        return message.replace(id=f"client-{next(self.given)}") if given else message

    def ask(self, step: str, number: int, text: str) -> None:
        asked = [at for at, message in enumerate(self.history) if message.role == "user"]
        if step == "another tab" and self.tabs:
            self.history = list(self.tabs[number % len(self.tabs)])
        elif step == "edit" and len(asked) > 1:
            self.history = self.history[: asked[1 + number % (len(asked) - 1)]]
        if step == "generate again" and asked:
            self.history = self.history[: asked[-1] + 1]
        else:
            self.history.append(self.named(user(text)))
        self.follow(number)

    def follow(self, number: int) -> None:
        at, memory = number % (len(self.history) + 1), self.objects[number % 2]
        before, between = self.notes[:1], self.notes[1:]
        memory.follow([*map(system, before), *self.history[:at], *map(system, between), *self.history[at:]])
        self.check(memory)

    def add(self, number: int, messages: list[Message]) -> None:
        self.objects[number % 2].add(messages)
        self.check(self.objects[number % 2])

    def check(self, memory: InfiniteMemory) -> None:
        stored, said = memory.messages(), texts(self.history)
        assert texts(m for m in stored if m.role != "system") == said
        assert not self.notes or sorted(texts(m for m in stored if m.role == "system")) == sorted(self.notes)
        assert len(stored) == len(list(stored))
        self.nodes.update(tuple(said[: end + 1]) for end in range(len(said)))
        prompts = [record for record in self.store.find(1, Pinned()) if record.message.role == "system"]
        assert self.store.stats(1)["messages"] - len(prompts) == len(self.nodes)


@settings(max_examples=25)
@given(st.lists(STEPS, min_size=2, max_size=7), st.sampled_from(["none", "all", "questions"]))
def test_what_is_checked_out_says_what_the_client_says(steps: list[tuple[str, int, list[str], str]], ids: str) -> None:
    """Whatever a client does that sends its whole history, nothing is lost, and nothing is stored twice."""
    with closing(SQLiteStore(":memory:")) as store:
        client = Client(store, ids)
        for count, (step, number, notes, tools) in enumerate(steps):
            client.notes = notes
            client.ask(step, number, f"question {count}")
            said = [client.named(message) for message in tool_loop(f"{count}", 1 + number % 2) if tools != "none"]
            client.history += said
            if said and tools == "followed":
                client.follow(number + 1)
            elif said:
                client.add(number, said)
            client.history.append(client.named(ai(f"answer {count}")))
            if step != "lose the reply":
                client.add(number + (tools == "followed"), client.history[-1:])
            client.tabs.append(list(client.history))
        client.follow(0)
