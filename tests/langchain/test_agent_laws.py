"""A law of agents with a checkpointer: what is sent and stored is what the state holds, whatever was done to it."""

import asyncio
import random
from typing import Any

import pytest
from langchain.agents.middleware import SummarizationMiddleware
from langchain_core.messages import AIMessage, HumanMessage, RemoveMessage
from langgraph.checkpoint.memory import InMemorySaver

from langchain_infinite_memory import InfiniteMemoryMiddleware
from tests.langchain.agents import Model, agent, config, memory, said
from tests.langchain.random_histories import objections

STEPS = 14


def line(middleware: InfiniteMemoryMiddleware) -> list[tuple[str, str]]:
    """What the main line says."""
    kinds = {"user": "human", "assistant": "ai", "tool": "tool"}
    with middleware.pool.use("t") as one:
        one.checkout("main")
        return [(kinds[message.role], message.content) for message in one.messages()]


class Client:
    """Does to a thread what people do: goes on, takes back, edits, asks again, goes to an older state."""

    def __init__(self, seed: int, path: Any, way: str) -> None:
        self.random = random.Random(seed)
        self.saver, self.model, self.path, self.way = InMemorySaver(), Model(), path, way
        self.number = 0
        self.reopen()

    def reopen(self) -> None:
        self.memory = memory(self.path, max_tokens=10**6)
        self.agent = agent(self.model, self.memory, checkpointer=self.saver)

    @property
    def state(self) -> list[Any]:
        return list(self.agent.get_state(config()).values.get("messages", []))

    def run(self, given: Any, at: Any) -> None:
        if self.way == "invoke":
            self.agent.invoke(given, at)
        else:
            asyncio.run(self.agent.ainvoke(given, at))

    def text(self) -> str:
        self.number += 1
        return self.random.choice([f"number {self.number}", "ok", f"look at a{self.number} then b, c", "number 1"])

    def ask(self, at: Any = None) -> None:
        self.run({"messages": [HumanMessage(self.text())]}, at or config())

    def take_back(self) -> None:
        turns = [n for n, message in enumerate(self.state) if message.type == "human"]
        if turns:  # a whole turn, so that no call is left without its result
            start = self.random.choice(turns)
            end = next((n for n in turns if n > start), len(self.state))
            gone = [RemoveMessage(id=message.id) for message in self.state[start:end]]
            self.agent.update_state(config(), {"messages": gone})

    def edit(self) -> None:
        asked = [message for message in self.state if message.type == "human"]
        if asked:
            self.agent.update_state(
                config(), {"messages": [HumanMessage(self.text(), id=self.random.choice(asked).id)]}
            )

    def go_back(self) -> None:
        states = [one for one in self.agent.get_state_history(config()) if not one.next and one.values.get("messages")]
        if states:
            self.ask(self.random.choice(states).config)

    def again(self) -> None:
        states = [one for one in self.agent.get_state_history(config()) if one.next == ("model",)]
        if states:
            self.run(None, self.random.choice(states).config)

    def anew(self) -> None:
        self.saver.delete_thread("t")

    def close(self) -> None:
        self.memory.close()
        self.reopen()

    def check(self) -> None:
        state = self.state
        assert objections(self.model.last, window=True) == []
        assert said(self.model.last[1:]) == said(state[:-1])
        assert line(self.memory) == said(state)


@pytest.mark.parametrize("way", ["invoke", "ainvoke"])
@pytest.mark.parametrize("seed", range(3))
def test_what_is_sent_and_stored_is_what_the_state_holds(seed: int, way: str, tmp_path: Any) -> None:
    client = Client(seed, tmp_path / "memory.db", way)
    acts = [client.ask, client.take_back, client.edit, client.go_back, client.again, client.close]
    client.ask()
    for _ in range(STEPS):
        client.random.choices([*acts, client.anew], weights=[4, 3, 2, 2, 2, 2, 1])[0]()
        client.ask()
        client.check()
    client.memory.close()


class Summed(Client):
    """A client whose agent sums up its state, at either side of the memory."""

    def __init__(self, seed: int, path: Any, way: str) -> None:
        self.order = seed % 2
        self.gone: set[str] = set()
        super().__init__(seed, path, way)

    def reopen(self) -> None:
        self.memory = memory(self.path, max_tokens=10**6)
        keep = 1 + self.order * 2
        sums = SummarizationMiddleware(
            Model(reply=lambda messages: AIMessage("SUMMARY")), trigger=("messages", 8), keep=("messages", keep)
        )
        order = [self.memory, sums] if self.order else [sums, self.memory]
        self.agent = agent(self.model, *order, checkpointer=self.saver)

    def text(self) -> str:
        self.number += 1
        return f"mark-{self.number}-"

    def take_back(self) -> None:
        turns = [n for n, message in enumerate(self.state) if message.text.startswith("mark-")]
        if turns:
            start = self.random.choice(turns)
            self.gone.add(self.state[start].text)
            gone = [RemoveMessage(id=message.id) for message in self.state[start : start + 2]]
            self.agent.update_state(config(), {"messages": gone})

    def check(self) -> None:
        asked = [text for kind, text in line(self.memory) if kind == "human"]
        left = [f"mark-{number}-" for number in range(1, self.number + 1) if f"mark-{number}-" not in self.gone]
        assert asked == left
        sent = " ".join(str(message.text) for message in self.model.last)
        assert [text for text in self.gone if text in sent] == []


@pytest.mark.parametrize("seed", range(6))
def test_what_was_taken_back_is_gone_and_what_was_summed_up_is_not(seed: int, tmp_path: Any) -> None:
    client = Summed(seed, tmp_path / "memory.db", "invoke")
    for _ in range(STEPS):
        client.ask()
        client.check()
        client.random.choices([client.ask, client.take_back, client.close], weights=[2, 2, 1])[0]()
    client.memory.close()
    assert any("SUMMARY" in message.text for sent in client.model.sent for message in sent.messages)
