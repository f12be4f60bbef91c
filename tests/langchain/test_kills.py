"""An agent that is killed at any point goes on: nothing is lost or doubled, and nothing sent that providers refuse."""

import os
import random
import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage

from langchain_infinite_memory.middleware import InfiniteMemoryMiddleware
from tests.langchain.agents import Model, agent, ask, config, memory, reply, sqlite_saver, stored
from tests.langchain.random_histories import PROVIDERS, objections, sent_objections

KILLS = int(os.environ.get("KILLS", "6"))


@contextmanager
def opened(folder: Path) -> Iterator[tuple[Any, InfiniteMemoryMiddleware]]:
    """What a process has: an agent whose model notes what a provider would refuse, and its memory."""

    def answer(messages: Sequence[BaseMessage]) -> AIMessage:
        for problem in sent_objections(messages) if PROVIDERS else objections(messages, window=True):
            with (folder / "refused.txt").open("a") as file:
                file.write(f"{problem}\n")
        return reply(messages)

    middleware = memory(folder / "chat.db", max_tokens=300)
    with sqlite_saver(folder / "threads.db") as saver:
        yield agent(Model(reply=answer), middleware, checkpointer=saver), middleware
    middleware.close()


def talk(folder: Path, one: Any) -> None:
    """Ask, and note what was answered, until this process is killed."""
    while True:
        number = time.monotonic_ns()
        answer = ask(one, f"look at a{number}, b{number} then c{number}")[-1]
        with (folder / "answered.txt").open("a") as file:
            file.write(f"{answer.text}\n")


def killed_after(folder: Path, seconds: float) -> None:
    """Talk in a forked process, and kill it."""
    child = os.fork()
    if child == 0:  # pragma: no cover
        try:
            signal.alarm(60)
            with opened(folder) as (one, _):
                (folder / "ready").touch()
                talk(folder, one)
        finally:
            os._exit(1)
    while not (folder / "ready").exists():
        time.sleep(0.01)
    time.sleep(seconds)
    os.kill(child, signal.SIGKILL)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    (folder / "ready").unlink()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_what_is_killed_goes_on(tmp_path: Path) -> None:
    chance, messages = random.Random(int(os.environ.get("SEED", "33"))), list[BaseMessage]()
    (tmp_path / "answered.txt").touch()
    for _ in range(KILLS):
        killed_after(tmp_path, chance.uniform(0, 0.25))
        with opened(tmp_path) as (one, middleware):
            if one.get_state(config()).created_at is None:
                continue  # it was killed before it stored anything
            messages = list(one.invoke(None, config())["messages"])
            assert stored(middleware) == [as_stored(message) for message in messages]
    asked = [f"fine: {message.text}" for message in messages if isinstance(message, HumanMessage)]
    assert [message.text for message in messages if message.text.startswith("fine")] == asked, "each is answered once"
    assert len(set(asked)) == len(asked)
    assert {*(tmp_path / "answered.txt").read_text().splitlines()} <= {*asked}, "no answer that was given is lost"
    assert not (tmp_path / "refused.txt").exists()


def as_stored(message: BaseMessage) -> str:
    if isinstance(message, AIMessage) and message.tool_calls:
        return ",".join(str(call["id"]) for call in message.tool_calls)
    return f"[{message.text}]" if message.type == "tool" else str(message.text)
