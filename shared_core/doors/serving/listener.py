"""The server itself: uvicorn, with a socket, limits, and time to end what has begun."""

import asyncio
import errno
import logging
import os
import socket
import threading
import time
from collections.abc import Callable

import uvicorn
from starlette.types import ASGIApp, Receive, Scope, Send

from shared_core.doors.serving.health import READY, not_ready

__all__ = ["listener", "server_for", "url_of"]

logger = logging.getLogger(__name__)

MOST_HEADER_BYTES = 64 * 2**10
"""The bytes of the headers of a request."""

MOST_CONNECTIONS = 1_024
"""Connections that are open at a time, or half as many as the process may open files. A further one is refused.

How slowly a client may send and read is for the reverse proxy to judge that stands before a server which others reach.
"""

END_SECONDS = 10.0
"""How long the last thing that a server does may take, such as sending telemetry to a collector out of reach."""

BACKLOG = 128
"""Connections that wait until the server takes them."""


def listener(host: str, port: int) -> socket.socket:
    """Return a socket that listens at an address; connections wait until a server takes them.

    Args:
        host: the address.
        port: the port; 0: any that is free.

    Raises:
        OSError: the port is taken, or the address is none of this machine.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # With the protocol named, asyncio sends what is written at once; else each answer waits 40 ms for an ACK.
    opened = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        if os.name == "posix":  # elsewhere the option lets two programs listen at one port
            opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        opened.bind((host, port))
        opened.listen(BACKLOG)
    except OSError as error:
        opened.close()
        cure = "; port=0 takes a free one" if error.errno == errno.EADDRINUSE else ""
        raise OSError(f"cannot listen at {host}, port {port}: {error.strerror}{cure}") from error
    return opened


def url_of(host: str, opened: socket.socket) -> str:
    """Return the URL of a socket that listens at a host, without a path."""
    shown = f"[{host}]" if ":" in host else host
    return f"http://{shown}:{opened.getsockname()[1]}"


def server_for(
    app: ASGIApp, *, grace: float, drain: float = 0, most_connections: int | None = None,
    at_end: Callable[[], None] | None = None,
) -> uvicorn.Server:  # fmt: skip
    """Return a server for an application. It logs nothing of a request, and only to loggers that are set up already.

    Args:
        app: the application.
        grace: the seconds that requests have to end when the server is told to stop; then they are broken off.
        drain: the seconds before that in which it goes on serving and says at `/readyz` that it is not ready, so that
            whoever distributes requests sends it no more.
        most_connections: how many connections may be open at a time. None: as `MOST_CONNECTIONS` says.
        at_end: is called in a thread when all requests have ended; the process waits `END_SECONDS` for it.
    """
    config = uvicorn.Config(
        app, log_config=None, access_log=False, server_header=False, proxy_headers=False, lifespan="on",
        http="h11", ws="none", loop="asyncio", h11_max_incomplete_event_size=MOST_HEADER_BYTES,
        limit_concurrency=most_connections or min(MOST_CONNECTIONS, _open_files() // 2),
        timeout_graceful_shutdown=max(1, round(grace)),
    )  # fmt: skip
    return _Server(config, app, drain, at_end)


class _Readiness:
    """Lets an application answer, but for `/readyz` once the server is stopping."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self.stopping = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        stopped = self.stopping and scope["type"] == "http" and scope["path"] == READY
        await (not_ready("stopping") if stopped else self._app)(scope, receive, send)


class _Server(uvicorn.Server):
    """A server that stops being ready `drain` seconds before it closes its port."""

    def __init__(
        self, config: uvicorn.Config, app: ASGIApp, drain: float, at_end: Callable[[], None] | None
    ) -> None:  # fmt: skip
        super().__init__(config)
        self._gate, self.drain, self._at_end = _Readiness(app), drain, at_end
        config.app = self._gate

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop being ready, then close the port, and then let requests end."""
        self._gate.stopping = True
        began = time.monotonic()
        while time.monotonic() < began + self.drain and not self.force_exit:
            await asyncio.sleep(0.05)
        await super().shutdown(sockets)
        if self._at_end is not None:
            ending = threading.Thread(target=_end, args=[self._at_end], daemon=True)  # asyncio waits for its own
            ending.start()
            await asyncio.to_thread(ending.join, END_SECONDS)


def _end(last: Callable[[], None]) -> None:
    try:
        last()
    except Exception as error:  # of an exporter, which may raise anything; its message may hold an address
        logger.warning("the server ended without its last export: %s", type(error).__name__)


def _open_files() -> int:
    """Return how many files and connections this process may have open."""
    if os.name != "posix":
        return 2 * MOST_CONNECTIONS
    import resource  # not on Windows

    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return 2 * MOST_CONNECTIONS if limit == resource.RLIM_INFINITY else limit
