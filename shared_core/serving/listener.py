"""The server itself: uvicorn, with a socket, limits, and time to end what has begun."""

import os
import socket
from functools import partial
from typing import Any

import uvicorn
from starlette.types import ASGIApp

from shared_core.serving.timed_connection import HEADER_SECONDS, READING_SECONDS, TimedConnection

__all__ = ["listener", "server_for", "url_of"]

MOST_HEADER_BYTES = 64 * 2**10
"""The bytes of the headers of a request."""

MOST_CONNECTIONS = 1_024
"""Connections that are open at a time, or half as many as the process may open files. A further one takes the place of
one that has no request, or is refused with 503."""

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
        raise OSError(f"cannot listen at {host}, port {port}: {error.strerror}") from error
    return opened


def url_of(host: str, opened: socket.socket) -> str:
    """Return the URL of a socket that listens at a host, without a path."""
    shown = f"[{host}]" if ":" in host else host
    return f"http://{shown}:{opened.getsockname()[1]}"


def server_for(
    app: ASGIApp, *, grace: float, most_connections: int | None = None, header_seconds: float = HEADER_SECONDS,
    reading_seconds: float = READING_SECONDS,
) -> uvicorn.Server:  # fmt: skip
    """Return a server for an application. It logs nothing of a request, and only to loggers that are set up already.

    Args:
        app: the application.
        grace: the seconds that requests have to end when the server is told to stop; then they are broken off.
        most_connections: how many connections may be open at a time. None: as `MOST_CONNECTIONS` says.
        header_seconds: how long a client may take to send the headers of a request. Then it is answered with 408.
        reading_seconds: how long a client may read nothing of its answer. Then the connection is closed.
    """
    connection: Any = partial(TimedConnection, header_seconds=header_seconds, reading_seconds=reading_seconds)
    config = uvicorn.Config(
        app, log_config=None, access_log=False, server_header=False, proxy_headers=False, lifespan="on",
        http=connection, ws="none", loop="asyncio", h11_max_incomplete_event_size=MOST_HEADER_BYTES,
        limit_concurrency=most_connections or min(MOST_CONNECTIONS, _open_files() // 2),
        timeout_graceful_shutdown=max(1, round(grace)),
    )  # fmt: skip
    return uvicorn.Server(config)


def _open_files() -> int:
    """Return how many files and connections this process may have open."""
    if os.name != "posix":
        return 2 * MOST_CONNECTIONS
    import resource  # not on Windows

    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return 2 * MOST_CONNECTIONS if limit == resource.RLIM_INFINITY else limit
