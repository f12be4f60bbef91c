"""Hundreds of requests that are none, made from a table: each gets a 4xx, or its connection is closed."""

import json
import socket
import struct
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from typing import Any

import httpx
import pytest
import uvicorn

from shared_core import SessionPool
from shared_core.doors.openai_proxy.app import create_app
from shared_core.doors.openai_proxy.upstream import Upstream
from tests.openai_proxy import malformed
from tests.openai_proxy.malformed import GOOD, HEALTH, Case
from tests.openai_proxy.servers import ModelServer, served, until
from tests.support.histories import CountingStore

MOST_BYTES = 2**20
FAMILIES: dict[str, list[Case]] = {
    "request lines": [*malformed.request_lines()],
    "header lines": [*malformed.header_lines()],
    "names and kinds": [*malformed.names_and_kinds()],
    "chunked bodies": [*malformed.chunked_bodies()],
    "bodies": [*malformed.bodies()],
    "deep bodies": [*malformed.deep_bodies()],
    "huge bodies": [*malformed.huge_bodies(MOST_BYTES)],
}

NOT_HTTP = b"Invalid HTTP request received."  # said by the server itself, which passes no such request on

Address = tuple[str, int]
Server = tuple[Address, uvicorn.Server]


@contextmanager
def guarded(**limits: Any) -> Iterator[Server]:
    """Serve a memory that no request may reach the model of, or store anything in, but the good one at the end."""
    store = CountingStore(":memory:")
    model = ModelServer(lambda _: "Yes.")
    with served(model.app) as (model_url, _):
        app = create_app(SessionPool(store), Upstream(f"{model_url}/v1"), most_bytes=MOST_BYTES, body_seconds=1)
        with served(app, **limits) as (url, server):
            yield (httpx.URL(url).host, httpx.URL(url).port or 0), server
            assert (model.bodies, store.sessions(), store.overview(None)) == ([], [], [])
            assert httpx.post(f"{url}/v1/chat/completions", json=GOOD, timeout=60).status_code == 200
            assert [info.messages for info in store.overview(None)] == [2]
            until(lambda: not server.server_state.connections and not server.server_state.tasks)
    store.close()


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with guarded() as opened:
        yield opened


def answer(address: Address, data: bytes, ending: Callable[[socket.socket], object] = lambda _: None) -> bytes:
    """Send something, and return all that comes back until the connection is closed."""
    got = b""
    with closing(socket.create_connection(address, timeout=20)) as opened:
        try:
            opened.sendall(data)
            ending(opened)
            while part := opened.recv(2**16):
                got += part
        except ConnectionError:  # the server does not read all of what it refuses
            pass
        except OSError:
            assert opened.fileno() < 0  # the test itself has closed it
    return got


def is_refusal(got: bytes) -> bool:
    """Return whether an answer is one 4xx that quotes nothing of the request: the API's error, or `NOT_HTTP`."""
    head, _, body = got.partition(b"\r\n\r\n")
    if not head.startswith(b"HTTP/1.1 4") or b"Where to" in got:
        return False
    if not body:  # of a HEAD request
        return b"content-length: 0" not in head
    if body in (NOT_HTTP, b"%x\r\n%b\r\n0\r\n\r\n" % (len(NOT_HTTP), NOT_HTTP)):  # whole, or in chunks
        return head.startswith(b"HTTP/1.1 400")
    error = json.loads(body)["error"]
    return error["type"] in ("invalid_request_error", "not_found_error") and 0 < len(error["message"]) < 400


@pytest.mark.parametrize("family", [pytest.param(name, id=f"{len(FAMILIES[name])} {name}") for name in FAMILIES])
def test_what_is_no_request_is_refused(server: Server, family: str) -> None:
    cases = FAMILIES[family]
    with ThreadPoolExecutor(8) as threads:  # some are given up as too slow
        answers = threads.map(lambda case: answer(server[0], case[1]), cases)
    for (name, data), got in zip(cases, answers, strict=True):
        closed = not got and len(data) > 2**16  # before all of it was read, so the answer may be lost
        assert closed or is_refusal(got), (name, got[:300])
    assert answer(server[0], HEALTH.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")).startswith(b"HTTP/1.1 200")


def test_a_bad_request_behind_a_good_one(server: Server) -> None:
    for name, data in malformed.pipelined():
        good, _, refused = answer(server[0], data).partition(b'{"status":"ok"}')
        assert good.startswith(b"HTTP/1.1 200"), name
        assert is_refusal(refused), (name, refused[:300])


def reset(opened: socket.socket) -> None:
    """Close a connection at once, as a process that crashes does."""
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    opened.close()


@pytest.mark.parametrize(
    "ending", [lambda opened: opened.shutdown(socket.SHUT_WR), reset], ids=["half-closed", "reset"]
)
def test_a_request_that_is_not_sent_to_its_end(server: Server, ending: Callable[[socket.socket], object]) -> None:
    for name, data in malformed.half_sent():
        got = answer(server[0], data, ending)
        assert not got or is_refusal(got), (name, got[:300])
