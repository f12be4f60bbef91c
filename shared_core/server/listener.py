"""The server itself: uvicorn, with a socket and time to end what has begun."""

import socket

import uvicorn
from starlette.types import ASGIApp

MOST_HEADER_BYTES = 64 * 2**10
"""The bytes of the headers of a request."""


def listener(host: str, port: int) -> socket.socket:
    """Return a socket at an address, at any free port if the port is 0; OSError if it is taken or elsewhere."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # With the protocol named, asyncio sends what is written at once; else each answer waits 40 ms for an ACK.
    opened = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        opened.bind((host, port))
    except OSError as error:
        opened.close()
        raise OSError(f"cannot listen at {host}, port {port}: {error.strerror}") from error
    return opened


def server_for(app: ASGIApp, *, grace: float) -> uvicorn.Server:
    """Return a server for an application.

    Args:
        app: the application.
        grace: the seconds that requests have to end when the server is told to stop; then they are broken off, and what
            came of their answers is stored.
    """
    config = uvicorn.Config(
        app, log_config=None, access_log=False, server_header=False, proxy_headers=False, lifespan="on",
        http="h11", ws="none", loop="asyncio", h11_max_incomplete_event_size=MOST_HEADER_BYTES,
        timeout_graceful_shutdown=max(1, round(grace)),
    )  # fmt: skip
    return uvicorn.Server(config)
