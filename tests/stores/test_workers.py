"""Three processes of the FastAPI example on one server: what one is told another answers, also after one is killed."""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from shared_core import InfiniteMemory
from tests.stores.postgres_server import Server
from tests.support import chat_worker
from tests.support.documents import ROOT

pytestmark = [
    pytest.mark.server,
    pytest.mark.soak,
]


class Worker:
    """A process of the example.

    Args:
        address: of the store.
    """

    def __init__(self, address: str) -> None:
        command = [sys.executable, "-m", chat_worker.__name__, address]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT
        )

    def send(self, user: str, text: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"session": "main", "user": user, "text": text}) + "\n")
        self.process.stdin.flush()

    def answer(self) -> str:
        assert self.process.stdout is not None
        return str(json.loads(self.process.stdout.readline()))

    def __call__(self, user: str, text: str) -> str:
        self.send(user, text)
        return self.answer()

    def end(self) -> tuple[int, str]:
        """Let it end; return its status and what it complained of."""
        _, complaints = self.process.communicate()
        return self.process.returncode, complaints


@pytest.fixture
def address(server: Server) -> Iterator[str]:
    server.run("CREATE DATABASE workers TEMPLATE template0 ENCODING 'UTF8'")
    yield server.address("workers")
    server.run("DROP DATABASE workers WITH (FORCE)")


@pytest.fixture
def start(address: str) -> Iterator[Callable[[], Worker]]:
    with ExitStack() as ends:

        def started() -> Worker:
            worker = Worker(address)
            ends.callback(worker.end)
            return worker

        yield started


def test_any_worker_answers_and_one_may_be_killed(start: Callable[[], Worker], address: str) -> None:
    workers = [start() for _ in range(3)]  # they start at the same moment, and one of them makes the schema
    for number, worker in enumerate(workers):
        worker.send(f"person-{number}", f"The code of my locker is {4000 + number}.")
    for worker in workers:
        worker.answer()
    for turn in range(1, 3):
        for number in range(3):
            answer = workers[(number + turn) % 3](f"person-{number}", "What is the code of my locker?")
            assert f"is {4000 + number}." in answer
            assert not any(f"is {4000 + other}." in answer for other in range(3) if other != number)
    workers[0].send("person-0", "My bicycle is green.")
    workers[0].process.kill()
    assert workers[1]("person-0", "My umbrella is red.")
    workers[0] = start()
    assert "My umbrella is red." in workers[0]("person-0", "Which colour is my umbrella?")
    assert "is 4001." in workers[0]("person-1", "What is the code of my locker?")
    with InfiniteMemory(address, session_id="main", user_id="person-0") as memory:
        said = [message.content for message in memory.messages()]
        assert said.count("My umbrella is red.") == 1
        assert said.count("My bicycle is green.") <= 1, "the worker was killed in the middle of it"
    assert [worker.end() for worker in workers] == [(0, "")] * 3
