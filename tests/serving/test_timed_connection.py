"""Clients that keep the server waiting: they are cut off, and those that send a request are served meanwhile."""

import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing

import pytest
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from tests.openai_proxy.servers import served, until

MOST = 12
SLOW = b"GET / HTTP/1.1\r\nHost: a\r\nX-Header: "
WHOLE = 12 * 2**20
LATE = "408 Request Timeout"

Address = tuple[str, int]


async def app(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer with the size of the body, or at once; /large and /whole answer with more than any buffer holds."""
    if scope["type"] == "lifespan":
        for said in ("startup", "shutdown"):
            await receive()
            await send({"type": f"lifespan.{said}.complete"})
        return
    request = Request(scope, receive)
    if request.url.path == "/large":
        await send({"type": "http.response.start", "status": 200, "headers": []})
        for _ in range(1_000):
            await send({"type": "http.response.body", "body": b"x" * 2**16, "more_body": True})
        return
    if request.url.path == "/whole":
        await Response(b"x" * WHOLE)(scope, receive, send)
        return
    size = 0 if request.url.path == "/at-once" else len(await request.body())
    await Response(str(size))(scope, receive, send)


@pytest.fixture(scope="module")
def address() -> Iterator[Address]:
    with served(app, header_seconds=0.5, reading_seconds=0.5, most_connections=MOST) as (url, server):
        host, _, port = url.removeprefix("http://").partition(":")
        yield host, int(port)
        until(lambda: not server.server_state.connections)


@pytest.fixture
def opened(address: Address) -> Iterator[socket.socket]:
    with closing(socket.create_connection(address, timeout=20)) as connection:
        yield connection


def received(connection: socket.socket) -> str:
    """Return all that arrives until the server closes the connection."""
    got = b""
    try:
        while part := connection.recv(2**16):
            got += part
    except ConnectionError:  # it did not wait until all that was sent had been read
        pass
    return got.decode()


def trickle(connection: socket.socket, piece: bytes) -> str:
    """Send a piece again and again, faster than the server gives up, and return its answer."""
    try:
        for _ in range(400):
            connection.sendall(piece)
            time.sleep(0.02)
    except ConnectionError:
        return received(connection)
    raise AssertionError("the server goes on listening")


def test_who_says_nothing_is_left(opened: socket.socket) -> None:
    assert received(opened) == ""


@pytest.mark.parametrize("later", [False, True], ids=["first", "later"])
@pytest.mark.parametrize("said", [b"G", SLOW], ids=["a letter", "a header"])
def test_headers_that_stop(opened: socket.socket, later: bool, said: bytes) -> None:
    if later:
        opened.sendall(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        answered = b""
        while not answered.endswith(b"\r\n\r\n0"):
            answered += opened.recv(2**16)
    opened.sendall(said)
    answer = received(opened)
    assert answer.startswith(f"HTTP/1.1 {LATE}")
    assert answer.endswith('"code": null}}')


@pytest.mark.parametrize("piece", [b"x", b"x\r\nX-Header: "], ids=["one header", "many headers"])
def test_headers_that_trickle_in(opened: socket.socket, piece: bytes) -> None:
    opened.sendall(SLOW)
    trickle(opened, piece)  # the answer may be lost, because there is more to read when the connection is closed


def test_a_request_that_takes_long_is_the_application_s_affair(opened: socket.socket) -> None:
    """Bodies may take as long as it allows."""
    opened.sendall(b"POST / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: 4\r\n\r\n")
    for _ in range(4):
        time.sleep(0.2)
        opened.sendall(b"x")
    assert received(opened).endswith("\r\n\r\n4")


def test_an_answer_that_nobody_reads(opened: socket.socket) -> None:
    opened.sendall(b"GET /large HTTP/1.1\r\nHost: a\r\n\r\n")
    time.sleep(1)
    assert len(received(opened)) < 1_000 * 2**16


def test_a_client_that_reads_slowly_reads_all(address: Address) -> None:
    """It takes longer than one may read nothing, and the buffers are full all the while."""
    with closing(socket.socket()) as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2**18)
        connection.settimeout(20)
        connection.connect(address)
        connection.sendall(b"GET /whole HTTP/1.1\r\nHost: a\r\n\r\n")
        got = 0
        while got < WHOLE:
            part = connection.recv(2**20, socket.MSG_WAITALL)
            assert part, f"the server closes the connection after {got:,} bytes"
            got += len(part)
            time.sleep(0.08)


def test_who_opens_many_connections_shuts_nobody_out() -> None:
    """The oldest of those without a request make room, long before the server would give them up."""
    with ExitStack() as stack:
        url, server = stack.enter_context(served(app, header_seconds=600, most_connections=MOST))
        host, _, port = url.removeprefix("http://").partition(":")
        for _ in range(4 * MOST):
            slow = stack.enter_context(closing(socket.create_connection((host, int(port)), timeout=20)))
            slow.sendall(SLOW)
            with closing(socket.create_connection((host, int(port)), timeout=20)) as good:
                good.sendall(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
                assert received(good).endswith("\r\n\r\n0")
            assert len(server.server_state.connections) <= MOST
        assert len(server.server_state.connections) > MOST / 2
