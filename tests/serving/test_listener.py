"""The socket of a server: where it listens, and what it says of itself; and its end."""

import asyncio
import socket
import threading
import time
from typing import Any

import pytest

from shared_core.doors.serving import listener as module
from shared_core.doors.serving.listener import listener, server_for, url_of


@pytest.mark.parametrize(("host", "shown"), [("127.0.0.1", "127.0.0.1"), ("::1", "[::1]")])
def test_a_connection_waits_for_the_server(host: str, shown: str) -> None:
    try:
        opened = listener(host, 0)
    except OSError:
        if host == "127.0.0.1":
            raise
        pytest.skip("this machine has no IPv6")
    with opened:
        port = opened.getsockname()[1]
        assert url_of(host, opened) == f"http://{shown}:{port}"
        with socket.create_connection((host, port), timeout=20):
            pass
        with pytest.raises(OSError, match=f"^cannot listen at {host}, port {port}: .+; port=0 takes a free one$"):
            listener(host, port)


def test_a_last_export_that_hangs_or_fails_does_not_keep_the_process(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        while True:
            event = (await receive())["type"]
            await send({"type": f"{event}.complete"})
            if event == "lifespan.shutdown":
                return

    async def stopped(last: Any) -> None:
        server = server_for(app, grace=1, at_end=last)
        server.should_exit = True
        with listener("127.0.0.1", 0) as opened:
            await server.serve(sockets=[opened])

    def fails() -> None:
        raise RuntimeError("no answer from collector.example")

    monkeypatch.setattr(module, "END_SECONDS", 0.1)
    let_go, began = threading.Event(), time.monotonic()
    asyncio.run(stopped(lambda: let_go.wait(60)))
    assert time.monotonic() - began < 30, "asyncio waits for its own threads"
    let_go.set()
    asyncio.run(stopped(fails))
    assert [one.getMessage() for one in caplog.records] == ["the server ended without its last export: RuntimeError"]
