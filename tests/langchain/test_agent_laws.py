"""A law of agents with a checkpointer: what is sent and stored is what the state holds, whatever was done to it."""

import asyncio
import random
from typing import Any

import pytest
from langchain_core.messages import HumanMessage, RemoveMessage
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
        self.memory = memory(self.path, max_tokens=10**6, durability="process")
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
