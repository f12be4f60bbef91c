"""An MCP server over HTTP that is asked how it is, and told to stop in the middle of a call."""

import sqlite3
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import httpx

from shared_core import InfiniteMemory
from shared_core.doors.mcp_server.conversations import Conversations
from shared_core.doors.mcp_server.server import MemoryServer
from shared_core.doors.mcp_server.transports import http_app
from shared_core.doors.serving.bearer_tokens import BearerTokens
from shared_core.testing import HashingEmbedder
from tests.openai_proxy.servers import served, until

TOKEN = "ann-0123456789abcdef"
REMEMBER = {"name": "remember", "arguments": {"messages": [{"text": "We loved the Casa Azul."}]}}
CALL = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": REMEMBER}
HEADERS = {"Accept": "application/json, text/event-stream", "Authorization": f"Bearer {TOKEN}"}


def test_a_call_that_runs_is_answered_and_stored_when_the_server_stops(tmp_path: Path) -> None:
    """Another program holds the file, so that the call waits."""
    path, tokens = tmp_path / "chat.db", BearerTokens({TOKEN: "ann"})
    conversations = Conversations(path, embedder=HashingEmbedder())
    app = http_app(MemoryServer(conversations, tokens=tokens), conversations, host="127.0.0.1", tokens=tokens)
    with served(app, grace=20) as (url, server), closing(sqlite3.connect(path)) as other, ThreadPoolExecutor() as pool:
        for name, status in (("healthz", "ok"), ("readyz", "ready")):  # without a token
            assert httpx.get(f"{url}/{name}").json() == {"status": status}
        assert httpx.post(f"{url}/mcp", json=CALL).status_code == 401
        other.execute("BEGIN IMMEDIATE")
        answer = pool.submit(httpx.post, f"{url}/mcp", json=CALL, headers=HEADERS, timeout=60)
        until(lambda: len(server.server_state.tasks) == 1)
        server.should_exit = True
        until(lambda: not any(each.is_serving() for each in server.servers))
        assert not answer.done()
        other.rollback()
        (told,) = answer.result().json()["result"]["content"]
        stored = told["text"].rpartition(": ")[2]
    with InfiniteMemory(path, user_id="ann", embedder=HashingEmbedder()) as memory:
        assert [(message.id, message.content) for message in memory.messages()] == [(stored, "We loved the Casa Azul.")]
