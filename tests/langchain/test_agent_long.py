"""An agent with tools, over 150 turns or 400: every request fits, and what was said in turn 3 is known in the last."""

import os
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import HumanMessage

from tests.langchain.agents import Model, agent, config, memory, reply, size, sqlite_saver, stored
from tests.langchain.random_histories import objections

TURNS = 400 if os.environ.get("SOAK") else 80
"""A prompt has room for two dozen of them."""


def question(number: int) -> str:
    if number == 3:
        return "my locker code is 4471"
    return f"look at a{number}, b{number} then c{number}" if number % 10 == 0 else f"chat {number} " + "of rain " * 40


def run(middleware: Any, checkpointer: Any) -> Model:
    model = Model(reply=reply)
    one = agent(model, middleware, checkpointer=checkpointer)
    settings = config()
    for number in range(1, TURNS):
        one.invoke({"messages": [HumanMessage(question(number))]}, settings, durability="exit")
    last = {"messages": [HumanMessage("what is my locker code?")]}
    messages = one.invoke(last, settings, durability="exit")["messages"]
    asked = [m.text for m in messages if isinstance(m, HumanMessage)]
    assert asked == [*map(question, range(1, TURNS)), "what is my locker code?"], "the state is untouched"
    assert messages[-1].text == "4471"
    assert [text.strip("[]") for text in stored(middleware)] == [
        m.text or ",".join(call["id"] for call in m.tool_calls) for m in messages
    ]
    return model


@pytest.mark.slow
def test_a_long_conversation(tmp_path: Path) -> None:
    middleware = memory(tmp_path / "memory.db", max_tokens=4096)
    with closing(middleware), sqlite_saver(tmp_path / "graph.db") as saver:
        model = run(middleware, saver)
    sizes = [size(sent) for sent in model.sent]
    assert len(sizes) == TURNS + 2 * (TURNS // 10 - 1)
    assert 3000 < max(sizes) <= 4096
    assert all(objections(sent.messages, window=True) == [] for sent in model.sent[::7])
