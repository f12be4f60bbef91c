"""The two ways to reach an MCP server: the standard streams of its process, and streamable HTTP."""

import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from mcp.server.transport_security import TransportSecuritySettings
from starlette.applications import Starlette

from shared_core.doors.mcp_server.conversations import Conversations
from shared_core.doors.mcp_server.server import MemoryServer
from shared_core.doors.serving.bearer_tokens import BearerTokens, require_tokens
from shared_core.doors.serving.health import health_routes

__all__ = ["PATH", "http_app", "serve_stdio"]

PATH = "/mcp"


def serve_stdio(server: MemoryServer) -> None:
    """Serve the process that has started this one, until it closes the stream or a signal ends this one."""
    # The SDK reads in a thread that no interrupt reaches. What was answered is stored, so nothing is lost.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    server.run("stdio")


def http_app(
    server: MemoryServer, conversations: Conversations, *, host: str, tokens: BearerTokens | None
) -> Starlette:
    """Return the server as an ASGI application. No request depends on an earlier one, so any number may share a store.

    Args:
        server: the server.
        conversations: those that it lends. They are closed when it stops.
        host: the address that it is served on.
        tokens: the tokens that it asks for.

    Raises:
        ValueError: other machines reach the address, and there are no tokens.
    """
    require_tokens(host, tokens)
    app = server.streamable_http_app(
        streamable_http_path=PATH, json_response=True, stateless_http=True, host=host,
        transport_security=_checks(host, tokens),
    )  # fmt: skip
    app.router.routes += health_routes(conversations.check)  # they need no token
    inner = app.router.lifespan_context

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[Any]:
        async with inner(app) as state:
            yield state
        conversations.close()  # before the signal that stops the server ends the process

    app.router.lifespan_context = lifespan
    return app


def _checks(host: str, tokens: BearerTokens | None) -> TransportSecuritySettings:
    """Return the checks of a request's Host and Origin.

    Without tokens, a web page must not reach the server by a name that its owner points at this machine. With tokens it
    gets no further, and a proxy may pass on the name that it has itself.
    """
    if tokens is not None:
        return TransportSecuritySettings(enable_dns_rebinding_protection=False)
    names = {"127.0.0.1", "localhost", "[::1]", f"[{host}]" if ":" in host else host}
    return TransportSecuritySettings(
        allowed_hosts=[f"{name}:*" for name in names], allowed_origins=[f"http://{name}:*" for name in names]
    )
