"""Two servers of one store, each a process: requests of one conversation at a time lose and mix up nothing."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from threading import Barrier
from typing import Any

import httpx
import pytest

from shared_core import InfiniteMemory
from tests.openai_proxy.servers import ModelServer, served
from tests.openai_proxy.test_command import serving

TALKS = 100
BASE = ["Hello", "To Hello"]

pytestmark = [
    pytest.mark.soak,
    pytest.mark.slow,
]


def script(body: dict[str, Any]) -> str:
    return f"To {body['messages'][-1]['content']}"


def ask(url: str, texts: Sequence[str], session: str) -> str:
    """Send a history of texts of user and assistant, and return the answer."""
    roles = ("user", "assistant")
    messages = [{"role": roles[number % 2], "content": text} for number, text in enumerate(texts)]
    answer = httpx.post(
        f"{url}/chat/completions", json={"messages": messages}, headers={"x-session-id": session}, timeout=60
    )
    assert answer.status_code == 200, answer.text
    said: str = answer.json()["choices"][0]["message"]["content"]
    return said


def lines(path: Path, session: str) -> list[list[str]]:
    """Return what is said on each branch of a conversation."""
    with InfiniteMemory(path, session_id=session) as memory:
        found = []
        for branch in memory.branches():
            memory.checkout(branch.name)
            found.append([message.content for message in memory.messages()])
        assert len({message for line in found for message in line}) == memory.stats()["messages"]
        return found


@pytest.mark.parametrize("whole", [True, False], ids=["whole histories", "only what is new"])
def test_two_servers_are_asked_at_once(tmp_path: Path, whole: bool) -> None:
    """Of two whole histories, neither prompt holds the other's question. What is only new follows one after another."""
    model = ModelServer(script)
    with served(model.app) as (model_url, _), ExitStack() as stack, ThreadPoolExecutor(2) as threads:
        starting = threads.map(
            lambda _: stack.enter_context(serving(tmp_path, ["--upstream", f"{model_url}/v1"])), "ab"
        )
        urls = [url for url, _ in starting]
        together = Barrier(2)

        def talk(server: int) -> None:
            for number in range(TALKS):
                asked = f"Question {server} of talk {number}"
                together.wait(60)
                assert ask(urls[server], [*BASE, asked] if whole else [asked], f"talk-{number}") == f"To {asked}"

        for number in range(TALKS):
            ask(urls[0], ["Hello"], f"talk-{number}")
        model.bodies.clear()
        list(threads.map(talk, range(2)))
    if whole:
        assert all([message["content"] for message in body["messages"]][:-1] == BASE for body in model.bodies)
    for number in range(TALKS):
        asked = [f"Question {one} of talk {number}" for one in range(2)]
        held = lines(tmp_path / "chat.db", f"talk-{number}")
        if whole:
            assert sorted(held) == [[*BASE, one, f"To {one}"] for one in asked]
        else:
            assert len(held) == 1
            assert held[0][:2] == BASE
            assert sorted(held[0][2:]) == sorted([*asked, *(f"To {one}" for one in asked)])
            assert all(held[0].index(one) < held[0].index(f"To {one}") for one in asked)
