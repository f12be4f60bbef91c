"""Programs of other environments through the server: OpenAI's SDK for TypeScript, and LlamaIndex's OpenAILike.

`make clients` installs both in a folder, which CLIENTS names, and runs these tests and those of docs/clients.md.
"""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.openai_proxy.servers import ModelServer, proxied, served
from tests.openai_proxy.weather_model import small_talk, weather_model

HERE = Path(__file__).parent / "clients"
CONVERSATION = [json.dumps(small_talk(300)), "300" if os.environ.get("SOAK") else "20"]
"""What is said, and how many turns of it are asked; the others are the history that the first of these is sent with."""


def installed(*names: str) -> Path:
    """Return the folder in which packages are installed; skip the test if one is not."""
    if "CLIENTS" not in os.environ:
        pytest.skip("needs another environment: `make clients`")
    folder = Path(os.environ["CLIENTS"]).absolute()
    for name in names:
        if not (folder / name).is_dir():
            pytest.skip(f"{name} is not installed in {folder}")
    return folder


def with_node() -> tuple[str, Path]:
    """Return the program, and the folder of its packages; skip the test where either is missing."""
    found = shutil.which("node")
    if found is None:
        pytest.skip("node is not installed: apt-get install nodejs npm")
    return found, installed("node_modules/openai")


def with_llama_index() -> Path:
    """Return the folder with the packages of LlamaIndex; skip the test where they are missing."""
    return installed("llama_index/openai") / "llama_index"


def ran(*command: str | Path, **environment: str) -> str:
    """Return what a program writes; it must succeed and complain of nothing."""
    env = {**os.environ, "NO_PROXY": "*", **environment}
    done = subprocess.run(command, env=env, capture_output=True, text=True, encoding="utf-8", check=False)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def by_itself(program: Path, packages: str | Path, *arguments: str) -> str:
    """Return what a program in Python writes that finds these packages before our own."""
    return ran(sys.executable, program, *arguments, PYTHONPATH=str(packages))


def by_node(*urls: str) -> Any:
    node, folder = with_node()
    program = folder / "sdk.mjs"  # node looks for packages beside the program
    shutil.copy(HERE / "sdk.mjs", program)
    return json.loads(ran(node, program, *CONVERSATION, *urls))


def by_llama_index(*urls: str) -> Any:
    return json.loads(by_itself(HERE / "open_ai_like.py", with_llama_index(), *CONVERSATION, *urls))


@pytest.fixture(scope="module")
def urls() -> Iterator[tuple[str, str]]:
    """The addresses of the memory and of the model behind it."""
    bare = ModelServer(weather_model)
    with proxied(weather_model) as (url, _), served(bare.app) as (bare_url, _):
        yield url, f"{bare_url}/v1"


@pytest.mark.parametrize("program", [by_node, by_llama_index])
def test_a_program_chats_streams_calls_tools_and_remembers(urls: tuple[str, str], program: Any) -> None:
    through, bare = program(*urls)
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
