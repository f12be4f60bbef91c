"""The proxy and the MCP server over one PostgreSQL store: two users apart, and a database that is away for a while."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import httpx
import pytest

from shared_core import SessionPool
from shared_core.mcp_server.conversations import Conversations
from shared_core.mcp_server.server import BUSY, memory_server
from shared_core.mcp_server.transports import http_app
from shared_core.openai_proxy.app import create_app
from shared_core.openai_proxy.upstream import Upstream
from shared_core.serving.bearer_tokens import BearerTokens
from shared_core.testing import HashingEmbedder
from tests.openai_proxy.servers import ModelServer, served
from tests.stores.postgres_server import Server

pytestmark = pytest.mark.server

TOKENS = {"ann": "ann-0123456789abcdef", "ben": "ben-0123456789abcdef"}


class Both(NamedTuple):
    """The addresses of both servers, and the model behind the proxy."""

    proxy: str
    mcp: str
    model: ModelServer

    def ask(self, user: str, words: str) -> httpx.Response:
        """Ask the model through the proxy, in the conversation `codes`."""
        body = {"model": "m", "messages": [{"role": "user", "content": words}]}
        headers = {"x-session-id": "codes", "authorization": f"Bearer {TOKENS[user]}"}
        return httpx.post(f"{self.proxy}/v1/chat/completions", json=body, headers=headers, timeout=60)

    def call(self, user: str, tool: str, **arguments: Any) -> tuple[bool, str]:
        """Call a tool in the same conversation; return whether it failed, and its text."""
        given = {"name": tool, "arguments": {**arguments, "session": "codes"}}
        call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": given}
        headers = {"accept": "application/json, text/event-stream", "authorization": f"Bearer {TOKENS[user]}"}
        result = httpx.post(f"{self.mcp}/mcp", json=call, headers=headers, timeout=60).json()["result"]
        return result["isError"], result["content"][0]["text"]

    def states(self) -> list[int]:
        """Return what both say of their health, and then of their readiness."""
        paths = [f"{url}/{path}" for path in ("healthz", "readyz") for url in (self.proxy, self.mcp)]
        return [httpx.get(path, timeout=60).status_code for path in paths]


@pytest.fixture
def both(server: Server) -> Iterator[Both]:
    server.run("CREATE DATABASE served TEMPLATE template0 ENCODING 'UTF8'")
    address = f"{server.address('served')}&retry_seconds=0.2"
    tokens = BearerTokens({token: user for user, token in TOKENS.items()})
    model, embedder = ModelServer(lambda _: "Noted."), HashingEmbedder()
    conversations = Conversations(address, embedder=embedder)
    mcp = http_app(memory_server(conversations, tokens=tokens), conversations, host="127.0.0.1", tokens=tokens)
    with served(model.app) as (model_url, _):
        proxy = create_app(SessionPool(address, embedder=embedder), Upstream(f"{model_url}/v1"), tokens=tokens)
        with served(proxy) as (proxy_url, _), served(mcp) as (mcp_url, _):
            yield Both(proxy_url, mcp_url, model)
    server.run("DROP DATABASE served WITH (FORCE)")


def test_two_users_apart_and_a_database_that_is_away(both: Both, server: Server) -> None:
    codes = {"ann": "4471", "ben": "9902"}
    for user, code in codes.items():
        assert both.ask(user, f"My locker code is {code}.").status_code == 200
        failed, text = both.call(user, "remember", messages=[{"text": f"The code of my bike is {code}1."}])
        assert not failed, text
    for user, other in (("ann", "ben"), ("ben", "ann")):
        failed, text = both.call(user, "recall", question="What is my locker code?")
        assert f"locker code is {codes[user]}." in text, "what the proxy stored"
        assert codes[other] not in text
        assert both.ask(user, "What is the code of my bike?").status_code == 200
        prompt = "\n".join(both.model.texts())
        assert f"bike is {codes[user]}1." in prompt, "what the MCP server stored"
        assert codes[other] not in prompt

    server.control("stop", "-m", "fast")
    try:
        assert both.states() == [200, 200, 503, 503]
        refused = both.ask("ann", "Is the database there?")
        assert (refused.status_code, refused.headers["retry-after"]) == (503, "1")
        for tool, given in (("log", {}), ("remember", {"messages": [{"text": "Is the database there?"}]})):
            assert both.call("ann", tool, **given) == (True, f"{tool}: {BUSY}")
        assert "postgres" not in refused.text
    finally:
        server.control("start")
    assert both.states() == [200] * 4
    assert both.ask("ann", "Is the database there?").status_code == 200
    _, text = both.call("ann", "log")
    assert text.count("Is the database there?") == 1
