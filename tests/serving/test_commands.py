"""The commands that serve, `serve` and `mcp`: they take one file of tokens, and refuse the same in the same words."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from shared_core.doors.cli.command import run
from tests.support.documents import ROOT

TOKEN = "token-0123456789abcdef"

TRACED = """
import sys
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, ConsoleSpanExporter
from shared_core.doors.cli.command import run

provider = TracerProvider()
exporter = ConsoleSpanExporter(formatter=lambda span: f"{span.name}\\n")
provider.add_span_processor(BatchSpanProcessor(exporter, schedule_delay_millis=600_000))
trace.set_tracer_provider(provider)
run(sys.argv[1:])
"""
"""A program that runs a command whose spans are exported at the end, or every ten minutes."""

COMMANDS = [["serve", "--model", "echo"], ["mcp", "--http"]]


def errors(capsys: pytest.CaptureFixture[str], *options: str) -> set[str]:
    """Return what the commands say that are to serve a store with some options, and refuse."""
    said = set()
    for command in COMMANDS:
        assert run([*command, "--port", "0", *options]) == 2
        out, err = capsys.readouterr()
        assert (out, err.count("\n")) == ("", 1)
        said.add(err)
    assert not Path("chat.db").exists()
    return said


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("tokens").write_text(f"ann {TOKEN}\n", encoding="utf-8")
    Path("swapped").write_text(f"{TOKEN} ann\n", encoding="utf-8")


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--tokens", "none"], "cannot read the tokens in 'none': No such file or directory"),
        (["--tokens", "swapped"], "'swapped', line 1: a token has 16 or more ASCII characters"),
        (["--host", "0.0.0.0"], "other machines reach '0.0.0.0': pass --tokens FILE"),
        (["--host", "192.0.2.1", "--tokens", "tokens"], "cannot listen at 192.0.2.1, port 0"),
    ],
)
def test_both_say_the_same(capsys: pytest.CaptureFixture[str], options: list[str], expected: str) -> None:
    (said,) = errors(capsys, *options)
    assert expected in said
    assert TOKEN not in said


def test_an_extra_that_is_not_installed_is_named(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shared_core.errors.find_spec", lambda name: None)
    assert errors(capsys) == {
        'infinite-memory: starlette is not installed: pip install "infinite-memory[server]"\n',
        'infinite-memory: mcp.server.mcpserver is not installed: pip install "infinite-memory[mcp]"\n',
    }


@pytest.mark.skipif(os.name != "posix", reason="this system has no SIGTERM")
def test_a_server_that_is_told_to_stop_exports_what_it_has_recorded(tmp_path: Path) -> None:
    command = ["serve", "--model", "echo", "--store", str(tmp_path / "chat.db"), "--port", "0"]
    process = subprocess.Popen(
        [sys.executable, "-c", TRACED, *command], cwd=ROOT, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True, env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )  # fmt: skip
    with process:
        assert process.stderr is not None
        url = next(found[1] for line in process.stderr if (found := re.search(r" at (http://[^/]+)/", line)))
        body = {"messages": [{"role": "user", "content": "Hello."}]}
        assert httpx.post(f"{url}/v1/chat/completions", json=body, timeout=60).status_code == 200
        process.send_signal(signal.SIGTERM)
        exported, _ = process.communicate(timeout=60)
    assert process.returncode == -signal.SIGTERM
    assert set(exported.split()) >= {"search_memory", "upsert_memory"}
