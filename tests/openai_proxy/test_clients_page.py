"""docs/clients.md: its commands run and print what it shows, and its settings name headers that count."""

import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from shared_core import SessionPool
from shared_core.doors.openai_proxy import identity
from shared_core.doors.openai_proxy.app import create_app
from shared_core.doors.openai_proxy.echo_upstream import EchoTransport
from shared_core.doors.openai_proxy.upstream import Upstream
from shared_core.store import Store
from tests.openai_proxy.servers import served
from tests.openai_proxy.test_installed_clients import by_itself, ran, with_llama_index, with_node
from tests.support.documents import ROOT, blocks_of

TEXT = (ROOT / "docs" / "clients.md").read_text(encoding="utf-8")
ADDRESS = "http://127.0.0.1:8765"

(SHOWN,) = re.findall(r"```text\n(.*?)```", TEXT, flags=re.DOTALL)


@pytest.fixture
def url(store: Store) -> Iterator[str]:
    """The address of a server with the model `echo`, up to the port."""
    transport = EchoTransport()
    with served(create_app(SessionPool(store), Upstream("http://echo.invalid/v1", transport=transport))) as (url, _):
        yield url


def test_the_program_with_llama_index(url: str, tmp_path: Path) -> None:
    packages = with_llama_index()
    program = blocks_of("docs/clients.md", tmp_path)[2]
    program.write_text(program.read_text(encoding="utf-8").replace(ADDRESS, url), encoding="utf-8")
    assert by_itself(program, packages) == SHOWN


def test_the_program_in_typescript(url: str) -> None:
    """It is JavaScript, too: it needs no types of its own."""
    node, folder = with_node()
    (block,) = re.findall(r"```typescript\n(.*?)```", TEXT, flags=re.DOTALL)
    program = folder / "page.mjs"
    program.write_text(block.replace(ADDRESS, url), encoding="utf-8")
    assert ran(node, program) == SHOWN


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_its_commands_of_curl(url: str) -> None:
    (block,) = re.findall(r"```console\n(.*?)```", TEXT, flags=re.DOTALL)
    script = block.replace(ADDRESS, url).replace("$ curl", "curl --silent --show-error --noproxy '*'")
    env = {"MEMORY_TOKEN": "none", "PATH": "/usr/bin:/bin"}
    done = subprocess.run(["bash", "-e"], input=script, env=env, capture_output=True, text=True, check=True)
    assert done.stderr == ""
    first, streamed = done.stdout.split("data: ", 1)
    assert '"content":"Noted. I was shown 1 message."' in first
    assert "4471" in streamed
    assert streamed.endswith("data: [DONE]\n\n")


def test_the_settings_of_libre_chat_name_the_conversation_and_the_user() -> None:
    (block,) = re.findall(r"```yaml\n(.*?)```", TEXT, flags=re.DOTALL)
    (endpoint,) = yaml.safe_load(block)["endpoints"]["custom"]
    session, user = (set(map(str.lower, names)) for names in (identity.SESSION_HEADERS, identity.USER_HEADERS))
    assert {name.lower() for name in endpoint["headers"]} == {"x-session-id", "x-user-id"}
    assert "x-session-id" in session
    assert "x-user-id" in user
    assert endpoint["baseURL"] == ADDRESS.replace("127.0.0.1", "HOST") + "/v1"


def test_what_open_web_ui_sends_names_the_conversation(url: str) -> None:
    headers = {"X-OpenWebUI-User-Id": "ann", "X-OpenWebUI-Chat-Id": "c-1"}
    body: dict[str, Any] = {"model": "echo", "messages": [{"role": "user", "content": "Hello"}]}
    answer = httpx.post(f"{url}/v1/chat/completions", json=body, headers=headers)
    assert answer.headers["x-memory-session"] == "c-1"
