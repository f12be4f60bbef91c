"""Programs of other environments through the server: OpenAI's SDK for TypeScript, and LlamaIndex's OpenAILike.

`make clients` installs both in a folder, which CLIENTS names, and runs these tests.
"""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.openai_proxy.servers import ModelServer, proxied, served
from tests.openai_proxy.weather_model import small_talk, weather_model

FOLDER = Path(os.environ.get("CLIENTS", "")).absolute()
HERE = Path(__file__).parent / "clients"
CONVERSATION = [json.dumps(small_talk(300)), "300" if os.environ.get("SOAK") else "20"]
"""What is said, and how many turns of it are asked; the others are the history that the first of these is sent with."""

pytestmark = pytest.mark.skipif("CLIENTS" not in os.environ, reason="needs other environments: `make clients`")


def node() -> str:
    """Return the program; skip the test where it or the SDK is missing."""
    found = shutil.which("node")
    if found is None:
        pytest.skip("node is not installed: apt-get install nodejs npm")
    if not (FOLDER / "node_modules" / "openai").is_dir():
        pytest.skip(f"npm has not installed the SDK in {FOLDER}")
    return found


def ran(command: Sequence[str | Path], **environment: str) -> str:
    """Return what a program writes; it must succeed and complain of nothing."""
    env = {**os.environ, "NO_PROXY": "*", **environment}
    done = subprocess.run(command, env=env, capture_output=True, text=True, encoding="utf-8", check=False)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def by_node(url: str) -> Any:
    program = FOLDER / "sdk.mjs"  # node looks for packages beside the program
    command: list[str | Path] = [node(), program, url, *CONVERSATION]
    shutil.copy(HERE / "sdk.mjs", program)
    return json.loads(ran(command))


def by_llama_index(url: str) -> Any:
    packages = FOLDER / "llama_index"
    if not (packages / "openai").is_dir():
        pytest.skip(f"pip has not installed OpenAILike in {packages}")
    command: list[str | Path] = [sys.executable, HERE / "open_ai_like.py", url, *CONVERSATION]
    return json.loads(ran(command, PYTHONPATH=str(packages)))


@pytest.fixture(scope="module")
def urls() -> Iterator[tuple[str, str]]:
    """The addresses of the memory and of the model behind it."""
    bare = ModelServer(weather_model)
    with proxied(weather_model) as (url, _), served(bare.app) as (bare_url, _):
        yield url, f"{bare_url}/v1"


@pytest.mark.parametrize("program", [by_node, by_llama_index])
def test_a_program_chats_streams_calls_tools_and_remembers(urls: tuple[str, str], program: Any) -> None:
    through, bare = map(program, urls)
    call = {"name": "weather", "arguments": '{"city": "Porto"}'}
    for got in (through, bare):
        assert got["chat"] == "I see 1."
        assert "".join(each["choices"][0]["delta"].get("content") or "" for each in got["stream"]) == "I see 1."
        assert got["tools"] == got["tools_streamed"] == [call, "It is sunny."]
    for chunks in ("stream", "tool_stream"):
        assert through[chunks] == bare[chunks]
        assert len(bare[chunks]) > 3
    assert bare["conversation"][1] == "context_length_exceeded", "the window of the model does not hold the history"
    assert through["conversation"] == [300, "4471."]
