"""A trace from the client through the server: its own span, what the memory does, and what upstream is told."""

import asyncio
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from shared_core import SessionPool
from shared_core.doors.mcp_server.transports import PATHS as MCP_PATHS
from shared_core.doors.openai_proxy.app import ALL_PATHS, PATHS, create_app
from shared_core.doors.openai_proxy.inspector.endpoints import API, POLLED
from shared_core.doors.openai_proxy.upstream import Upstream
from shared_core.doors.serving.request_spans import RequestSpans
from shared_core.events.telemetry import OpenTelemetryEvents
from shared_core.testing import HashingEmbedder
from tests.openai_proxy.servers import ModelServer, Script, served, until
from tests.support.documents import ROOT

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

TRACE, CLIENT = 0x0AF7651916CD43DD8448EB211C80319C, 0xB7AD6B7169203331
PARENT = f"00-{TRACE:032x}-{CLIENT:016x}-01"
SECRET = "xyzzy4471"


class Recorded:
    """Spans as the SDK records them."""

    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self._exporter))

    @property
    def spans(self) -> dict[str, ReadableSpan]:
        return {span.name: span for span in self._exporter.get_finished_spans()}


@contextmanager
def proxy(recorded: Recorded, script: Script, store: Path) -> Iterator[tuple[httpx.Client, ModelServer]]:
    """Serve a proxy whose requests and memories are traced."""
    model = ModelServer(script)
    hook = OpenTelemetryEvents(tracer_provider=recorded.provider, stages_from=float("inf"))
    with served(model.app) as (upstream, _):
        pool = SessionPool(store, embedder=HashingEmbedder(), on_event=hook)
        app = RequestSpans(create_app(pool, Upstream(f"{upstream}/v1")), PATHS, recorded.provider)
        with served(app) as (url, _), httpx.Client(base_url=url) as client:
            yield client, model


@pytest.mark.parametrize("streamed", [False, True])
def test_a_request_is_one_trace(tmp_path: Path, streamed: bool) -> None:
    recorded = Recorded()
    with proxy(recorded, lambda _: "Noted.", tmp_path / "chat.db") as (client, model):
        body = {"messages": [{"role": "user", "content": SECRET}], "stream": streamed}
        headers = {"traceparent": PARENT, "tracestate": "vendor=1", "x-session-id": "s"}
        assert client.post("/v1/chat/completions", json=body, headers=headers).status_code == 200
        until(lambda: "POST /v1/chat/completions" in recorded.spans)
    server = recorded.spans["POST /v1/chat/completions"]
    own, parent = server.get_span_context(), server.parent
    assert own is not None
    assert parent is not None
    assert (own.trace_id, parent.span_id, server.kind) == (TRACE, CLIENT, SpanKind.SERVER)
    assert dict(server.attributes or {}) == {
        "http.request.method": "POST", "http.route": "/v1/chat/completions", "url.scheme": "http",
        "http.response.status_code": 200,
    }  # fmt: skip
    assert model.headers[0]["traceparent"] == f"00-{TRACE:032x}-{own.span_id:016x}-01"
    assert model.headers[0]["tracestate"] == "vendor=1"
    for name in ("upsert_memory", "search_memory"):
        inner = recorded.spans[name].parent
        assert inner is not None
        assert (inner.trace_id, inner.span_id) == (TRACE, own.span_id)
    assert SECRET not in "".join(span.to_json() for span in recorded.spans.values())


def test_errors_and_paths_that_are_not_known(tmp_path: Path) -> None:
    recorded = Recorded()

    def failing(body: dict[str, Any]) -> Response:
        return JSONResponse({"error": {"message": SECRET}}, 503)

    with proxy(recorded, failing, tmp_path / "chat.db") as (client, _):
        client.post("/v1/chat/completions", json={"messages": [{"role": "user", "content": SECRET}]})
        client.get(f"/{SECRET}")
        client.request(SECRET.upper(), f"/v1/chat/completions/{SECRET}")
        until(lambda: len(recorded.spans) >= 4)
    failed = recorded.spans["POST /v1/chat/completions"]
    assert (failed.status.status_code, (failed.attributes or {})["error.type"]) == (StatusCode.ERROR, "503")
    lost = recorded.spans["GET"]
    assert (lost.status.status_code, (lost.attributes or {})["http.response.status_code"]) == (StatusCode.UNSET, 404)
    odd = recorded.spans["HTTP /v1/chat/completions/*"]
    assert (odd.attributes or {})["http.request.method"] == "_OTHER"
    assert SECRET not in "".join(span.to_json() for span in recorded.spans.values()).lower()


def scope_of(headers: list[tuple[bytes, bytes]]) -> Scope:
    return {"type": "http", "method": "GET", "path": "/healthz", "headers": headers}


def run(app: ASGIApp, scope: Scope) -> None:
    async def receive() -> Any:
        raise AssertionError

    async def send(message: Any) -> None:
        pass

    asyncio.run(app(scope, receive, send))  # type: ignore[arg-type]


def test_an_error_of_the_application_is_raised_and_named() -> None:
    recorded = Recorded()

    async def failing(scope: Scope, receive: Receive, send: Send) -> None:
        raise ValueError(SECRET)

    with pytest.raises(ValueError, match=SECRET):
        run(RequestSpans(failing, PATHS, recorded.provider), scope_of([]))
    span = recorded.spans["GET /healthz"]
    assert (span.status.status_code, span.status.description) == (StatusCode.ERROR, None)
    assert (span.attributes or {})["error.type"] == "ValueError"
    assert SECRET not in span.to_json()


async def silent(scope: Scope, receive: Receive, send: Send) -> None:
    pass


@pytest.mark.parametrize(
    ("paths", "path", "name"),
    [
        (ALL_PATHS, "/", "GET /"),
        (ALL_PATHS, f"{API}/sessions", f"GET {API}/*"),
        (ALL_PATHS, POLLED, None),
        (ALL_PATHS, f"/{SECRET}", "GET"),
        (MCP_PATHS, "/readyz", "GET /readyz"),
        (MCP_PATHS, "/healthz", "GET /healthz"),
        (MCP_PATHS, "/mcp", "GET /mcp"),
    ],
)
def test_the_paths_of_the_servers(paths: Sequence[str], path: str, name: str | None) -> None:
    recorded = Recorded()
    run(RequestSpans(silent, paths, recorded.provider, polled=(POLLED,)), {**scope_of([]), "path": path})
    assert [*recorded.spans] == [name] * (name is not None)


@pytest.mark.parametrize("headers", [[], [(b"traceparent", PARENT.encode())], [(b"traceparent", b"00-zz")]])
def test_without_a_provider_requests_pass_as_they_are(headers: list[tuple[bytes, bytes]]) -> None:
    seen: list[Scope] = []

    async def noting(scope: Scope, receive: Receive, send: Send) -> None:
        seen.append(scope)

    app = RequestSpans(noting, PATHS, trace.NoOpTracerProvider())
    run(app, scope_of(headers))
    run(app, {"type": "lifespan"})
    assert [scope["type"] for scope in seen] == ["http", "lifespan"]
    assert seen[0]["headers"] == headers


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
        body = {"messages": [{"role": "user", "content": SECRET}]}
        assert httpx.post(f"{url}/v1/chat/completions", json=body, timeout=60).status_code == 200
        process.send_signal(signal.SIGTERM)
        exported, _ = process.communicate(timeout=60)
    assert process.returncode == -signal.SIGTERM
    assert set(exported.split()) >= {"/v1/chat/completions", "search_memory", "upsert_memory"}
