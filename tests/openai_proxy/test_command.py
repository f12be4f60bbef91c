"""The command `serve`: what it refuses, a server that is told to stop, and one that is killed in the middle."""

import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from openai import APIError, NotFoundError, OpenAI

from shared_core import InfiniteMemory, SessionPool
from shared_core.doors.cli.command import run
from shared_core.doors.openai_proxy.app import create_app
from shared_core.doors.openai_proxy.echo_upstream import EchoTransport
from shared_core.doors.openai_proxy.upstream import Upstream
from shared_core.store import Store
from tests.openai_proxy.servers import ModelServer, served, spoken, stream, until
from tests.support.documents import ROOT

SECRET = "ann-secret-0123456789"


@contextmanager
def serving(folder: Path, args: Sequence[str]) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """Run the command in a folder, and yield the address it says and the process."""
    command = [sys.executable, "-m", "shared_core", "serve", "--store", "chat.db", "--port", "0", *args]
    env = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"}
    process = subprocess.Popen(command, cwd=folder, env=env, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    try:
        lines = iter(process.stderr.readline, "")
        url = next(found[1] for line in lines if (found := re.search(r" at (http://\S+/v1);", line)))
        assert any("startup complete" in line for line in lines)
        yield url, process
    finally:
        process.kill()
        process.communicate()


def told(path: Path, session: str) -> list[tuple[str, bool]]:
    """Return what is stored in a conversation, and which of it is marked."""
    with InfiniteMemory(path, session_id=session) as memory:
        return [(message.content, message.payload is not None) for message in memory.messages()]


def test_echo_needs_no_model(store: Store) -> None:
    answers = []
    app = create_app(SessionPool(store), Upstream("http://echo.invalid/v1", transport=EchoTransport()))
    with served(app) as (url, _), OpenAI(base_url=f"{url}/v1", api_key="none") as client:
        assert [model.id for model in client.models.list()] == ["echo"]
        assert client.models.retrieve("echo").id == "echo"
        with pytest.raises(NotFoundError):
            client.models.retrieve("other")
        for question in ("My locker code is 4471.", "What is my locker code?"):
            asked: Any = {"messages": [{"role": "user", "content": question}], "extra_headers": {"x-session-id": "s"}}
            with client.chat.completions.stream(model="echo", **asked) as events:
                answers.append(events.get_final_completion().choices[0].message.content)
        again = client.chat.completions.create(model="echo", **asked)
    assert answers == ["Noted. I was shown 1 message.", "You said: My locker code is 4471."]
    assert again.choices[0].message.content == answers[1]


@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGKILL])
def test_what_was_acknowledged_survives_the_end_of_the_server(tmp_path: Path, end: signal.Signals) -> None:
    """One answer has ended, another one is on its way. A server that is told to stop stores what came of it."""
    over = threading.Event()
    half: list[str | None] = [*spoken("Half of it.")[:4], None]
    model = ModelServer(lambda body: "Whole." if "first" in str(body) else stream(half, wait=over))
    page = [] if end == signal.SIGTERM else ["--no-inspector"]
    with (
        served(model.app) as (model_url, _),
        serving(tmp_path, ["--upstream", f"{model_url}/v1", "--grace", "1", *page]) as (url, process),
        OpenAI(base_url=url, api_key="k", max_retries=0) as client,
    ):
        assert httpx.get(url.removesuffix("v1")).status_code == (404 if page else 200)
        asked: list[tuple[str, str]] = [("one", "The first?"), ("two", "The second?")]
        for session, question in asked:
            pieces = client.chat.completions.create(
                model="m", stream=True, messages=[{"role": "user", "content": question}],
                extra_headers={"x-session-id": session},
            )  # fmt: skip
            seen = ""
            for piece in pieces:
                seen += piece.choices[0].delta.content or ""
                if seen == "Half of i":
                    break
        process.send_signal(end)
        assert process.wait(30) == -end
        over.set()
        with pytest.raises((APIError, httpx.TransportError)):  # the SDK does not take it for a whole answer
            list(pieces)
    assert told(tmp_path / "chat.db", "one") == [("The first?", False), ("Whole.", False)]
    part = [("Half of i", True)] if end == signal.SIGTERM else []
    assert told(tmp_path / "chat.db", "two") == [("The second?", False), *part]


def is_closed(url: str) -> bool:
    """Return whether nothing listens at an address."""
    try:
        httpx.get(f"{url.removesuffix('/v1')}/healthz", timeout=20)
    except httpx.ConnectError:
        return True
    except httpx.TransportError:  # it was let in just before the end
        return False
    return False


def test_a_server_is_not_ready_before_it_closes(store: Store) -> None:
    """It answers for as long as `--drain` says, so that requests that are on their way to it are served."""
    app = create_app(SessionPool(store), Upstream("http://echo.invalid/v1", transport=EchoTransport()))
    with served(app) as (url, server):
        server.drain = 3600.0  # type: ignore[attr-defined]
        assert httpx.get(f"{url}/readyz").status_code == 200
        server.should_exit = True
        until(lambda: httpx.get(f"{url}/readyz").status_code == 503)
        assert httpx.get(f"{url}/readyz").headers["retry-after"] == "1"
        assert httpx.get(f"{url}/healthz").status_code == 200
        said = {"model": "echo", "messages": [{"role": "user", "content": "Is anybody there?"}]}
        assert httpx.post(f"{url}/v1/chat/completions", json=said).status_code == 200
        server.drain = 0.0  # type: ignore[attr-defined]
        until(lambda: is_closed(url))


@pytest.mark.parametrize(
    ("args", "said"),
    [
        ([], "say who answers"),
        (["--model", "gpt-4o"], "say who answers"),
        (["--model", "echo", "--upstream", "http://localhost/v1"], "say who answers"),
        (["--upstream", "localhost:11434"], "is not a URL"),
        (["--upstream", "ftp://localhost/v1"], "is not a URL"),
        (["--model", "echo", "--host", "192.0.2.1", "--tokens", "tokens"], "192.0.2.1"),
        (["--model", "echo", "--session", "s"], "leave out --session"),
        (["--model", "echo", "--window", "m"], "expected MODEL=N"),
        (["--model", "echo", "--window", "m=0"], "expected MODEL=N"),
        (["--model", "echo", "--aside", "Title("], "--aside Title(: expected a regular expression"),
        (["--model", "echo", "--max-tokens", "100"], "--max-tokens 100 is not larger"),
    ],
)
def test_what_cannot_be_served_is_said_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], args: list[str], said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("tokens").write_text(f"ann {SECRET}\n", encoding="utf-8")
    assert run(["serve", "--port", "0", *args]) == 2
    err = capsys.readouterr().err
    assert said in err
    assert err.count("\n") == 1
    assert not Path("chat.db").exists()
