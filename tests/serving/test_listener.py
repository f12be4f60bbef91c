"""The socket of a server: where it listens, and what it says of itself."""

import socket

import pytest

from shared_core.doors.serving.listener import listener, url_of


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
        with pytest.raises(OSError, match=f"cannot listen at {host}, port {port}: "):
            listener(host, port)
