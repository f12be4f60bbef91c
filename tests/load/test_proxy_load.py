"""Many clients at one proxy, which is killed again and again, as clients are in the middle of an answer."""

import asyncio
import json
import multiprocessing
import os
import random
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from itertools import count
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from shared_core.stores import open_store
from tests.load import proxy_client
from tests.load.figures import quantile
from tests.load.proxy_client import OWNER, Note, notes_in, tokens_file, work
from tests.load.proxy_oracle import faults, foreign, lines_of, mixed, owners, user_of_owner
from tests.openai_proxy.servers import chunk, completion, served
from tests.support.documents import ROOT

CLIENT_KILLED_EVERY, SERVER_KILLED_EVERY = 60, 500
"""Answers."""

SECONDS = float(os.environ.get("LOAD_SECONDS", "3600"))
"""After this time, clients end early."""

LAST = re.compile(r"\[\[\w (\d+) (\d+)\]\]")

Record = Callable[[str, object], None]
"""Pytest's `record_property`."""


class MarkingModel:
    """A model that marks its answers, calls a tool if it may, breaks off now and then, and notes whose words it got.

    Attributes:
        prompts: of each request, the client that asks, and the clients whose words are in the prompt.
    """

    def __init__(self) -> None:
        self.prompts: list[tuple[int, set[int]]] = []
        self._serial = count(1)
        self.app = Starlette(routes=[Route("/v1/chat/completions", self._completion, methods=["POST"])])

    async def _completion(self, request: Request) -> Response:
        body = json.loads(await request.body())
        last = LAST.search(body["messages"][-1]["content"])
        assert last is not None
        self.prompts.append((int(last[1]), owners(json.dumps(body["messages"]))))
        serial = next(self._serial)
        deltas: list[dict[str, Any]] = [{"content": f"[[a {last[1]} {last[2]} {serial}]] "}]
        deltas += [{"content": f"It is in the {word}. "} for word in ("hall", "attic", "cellar", "garage")]
        if body.get("tools") and body["messages"][-1]["role"] == "user":
            function = {"name": "look", "arguments": "{}"}
            call = {"index": 0, "id": f"call-{last[1]}-{last[2]}-{serial}", "type": "function", "function": function}
            deltas = [{"tool_calls": [call]}]
        if body.get("stream"):
            return StreamingResponse(self._events(deltas, broken=serial % 41 == 0), media_type="text/event-stream")
        await asyncio.sleep(0.01)
        if serial % 41 == 0:
            return JSONResponse({"error": {"message": "overloaded", "type": "x"}}, 503)
        if "tool_calls" in deltas[0]:
            calls = [{key: value for key, value in deltas[0]["tool_calls"][0].items() if key != "index"}]
            return JSONResponse(completion({"content": None, "tool_calls": calls}, "tool_calls"))
        return JSONResponse(completion({"content": "".join(delta["content"] for delta in deltas)}))

    async def _events(self, deltas: Sequence[dict[str, Any]], *, broken: bool) -> AsyncIterator[str]:
        for number, delta in enumerate(deltas):
            if broken and number == len(deltas) // 2:
                raise ConnectionAbortedError
            yield f"data: {chunk(delta)}\n\n"
            await asyncio.sleep(0.002)
        yield f"data: {chunk({}, 'stop')}\n\n"
        yield "data: [DONE]\n\n"


class ProxyProcess:
    """The command `serve`, which is killed and started again at the same port.

    Args:
        folder: of the store.
        upstream: the address of the model.
    """

    def __init__(self, folder: Path, upstream: str) -> None:
        (folder / "tokens").write_text(tokens_file(), encoding="utf-8")
        with closing(socket.create_server(("127.0.0.1", 0))) as free:
            self.port = free.getsockname()[1]
        self._folder = folder
        options = ["--upstream", f"{upstream}/v1", "--tokens", "tokens", "--max-tokens", "3000"]
        self._command = [sys.executable, "-m", "shared_core", "serve", "--store", "chat.db", "--port", str(self.port)]
        self._command += options
        self.kills = 0
        self.process = self._started()

    def _started(self) -> "subprocess.Popen[bytes]":
        with (self._folder / "log").open("ab") as log:
            env = {**os.environ, "PYTHONPATH": str(ROOT)}
            process = subprocess.Popen(self._command, cwd=self._folder, env=env, stderr=log)
        while True:
            assert process.poll() is None, self.log()
            try:
                with closing(socket.create_connection(("127.0.0.1", self.port), timeout=1)):
                    return process
            except OSError:
                time.sleep(0.02)

    def kill(self) -> None:
        """Kill it wherever it is, and start it again."""
        self.end(signal.SIGKILL)
        self.kills += 1
        self.process = self._started()

    def end(self, how: signal.Signals = signal.SIGTERM) -> None:
        """End it."""
        self.process.send_signal(how)
        assert self.process.wait(60) in (0, -how), self.log()

    def log(self) -> str:
        """Return the end of what it logged."""
        return (self._folder / "log").read_text(encoding="utf-8")[-4000:]


@contextmanager
def proxied_model(folder: Path) -> Iterator[tuple[ProxyProcess, MarkingModel]]:
    model = MarkingModel()
    with served(model.app) as (url, _):
        proxy = ProxyProcess(folder, url)
        try:
            yield proxy, model
            proxy.end()
        finally:
            proxy.process.kill()
            proxy.process.wait()


def check(folder: Path, model: MarkingModel, clients: int, turns: int) -> list[Note]:
    """Judge the store, all prompts, and what the server logged; return what was acknowledged."""
    notes = {number: notes_in(folder / f"{number}.notes") for number in range(clients)}
    wrong = [*mixed(model.prompts)]
    with closing(open_store(folder / "chat.db")) as store:
        users = {user: lines_of(store, user) for user in store.users() if user is not None}
    for user, lines in users.items():
        wrong += [f"{user}: {fault}" for fault in foreign(lines)]
        text = "\n".join(f"{message.to_openai()}" for held in lines.values() for line in held for message in line)
        wrong += [f"{user} has words of {owner}" for owner in owners(text) if user_of_owner(owner) != user]
    for number, told in notes.items():
        assert (folder / "stop").exists() or sum(note.sent["role"] == "user" for note in told) == turns
        wrong += faults(number, told, users[user_of_owner(number)])
    assert not wrong, f"{len(wrong)} faults:\n" + "\n".join(wrong[:20])
    logged = (folder / "log").read_text(encoding="utf-8")
    assert not OWNER.search(logged)
    assert not re.search(r"token-|user-\d|talk-\d|Traceback", logged), logged[-4000:]
    assert "completions 500 " not in logged
    return [note for told in notes.values() for note in told]


def figures(notes: Sequence[Note], seconds: float, title: str) -> str:
    """Return requests a second, and how long those took that were acknowledged."""
    lines = [f"{title}, {seconds:.1f} s: {len(notes)} answers, {len(notes) / seconds:.1f}/s"]
    for name, streamed in (("whole", False), ("streamed", True)):
        times = [note.took * 1000 for note in notes if note.streamed is streamed]
        p50, p95 = quantile(times, 0.5), quantile(times, 0.95)
        lines.append(f"  {name:<9}{len(times):6d}   p50 {p50:7.1f} ms   p95 {p95:7.1f} ms")
    return "\n".join(lines)


def test_clients_that_are_cut_off_at_a_server_that_is_killed(tmp_path: Path) -> None:
    """A small load, in threads: clients hang up in the middle, and the server is killed once."""
    with proxied_model(tmp_path) as (proxy, model):
        working = Thread(target=work, args=(proxy.port, tmp_path, range(6), 12))
        working.start()
        while sum(len(notes_in(tmp_path / f"{number}.notes")) for number in range(6)) < 40:
            assert working.is_alive(), "all of it is over, or failed"
            time.sleep(0.01)
        proxy.kill()
        working.join()
    assert not (tmp_path / "complaints").exists(), (tmp_path / "complaints").read_text(encoding="utf-8")
    check(tmp_path, model, 6, 12)


@pytest.mark.soak
@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_processes_of_clients_that_are_killed(tmp_path: Path, record_property: Record) -> None:
    """32 clients of 200 turns in 8 processes. Answers are counted, not seconds, so that a busy machine gets on, too."""
    clients, turns, size = 32, int(os.environ.get("LOAD_TURNS", "200")), 8
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([proxy_client.__name__])
    chance, killed, began = random.Random(7), 0, time.monotonic()
    with proxied_model(tmp_path) as (proxy, model):

        def start(number: int) -> Any:
            given = (proxy.port, tmp_path, range(number, clients, size), turns)
            process = context.Process(target=work, args=given, daemon=True)
            process.start()
            return process

        crew = {number: start(number) for number in range(size)}
        answers = 0
        while crew := {number: one for number, one in crew.items() if one.exitcode != 0}:
            time.sleep(0.2)
            if time.monotonic() - began > SECONDS:
                (tmp_path / "stop").touch()
            before, answers = answers, sum(map(lines_in, tmp_path.glob("*.notes")))
            if before // CLIENT_KILLED_EVERY != answers // CLIENT_KILLED_EVERY:
                victim = chance.choice([*crew])
                crew[victim].kill()
                crew[victim].join()
                killed += 1
                crew[victim] = start(victim)
            if before // SERVER_KILLED_EVERY != answers // SERVER_KILLED_EVERY:
                proxy.kill()
            assert all(one.exitcode in (None, 0) for one in crew.values()), "a client complains"
        seconds = time.monotonic() - began
    notes = check(tmp_path, model, clients, turns)
    kills = f"{killed} kills of 4 clients, {proxy.kills} of the server"
    title = f"The proxy: {clients} clients, {turns} turns each at most, {kills}"
    record_property("load", figures(notes, seconds, title))


def lines_in(path: Path) -> int:
    """Return how many lines a file has."""
    return path.read_bytes().count(b"\n")
