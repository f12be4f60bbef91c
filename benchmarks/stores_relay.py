"""A relay to a socket that hands everything on a little later: `python stores_relay.py SOCKET MILLISECONDS`.

It prints its port, and ends with its standard input. Threads sleep here, since an event loop counts in whole
milliseconds; they have a process of their own, so that they do not wait for the one that is measured.
"""

import os
import socket
import sys
import threading
import time
from queue import SimpleQueue

LARGEST = 2**20
"""Bytes that are handed on together."""


def relay(source: socket.socket, target: socket.socket, seconds: float) -> None:
    """Hand on what arrives, each piece `seconds` after it came; pieces may be under way together."""
    waiting: SimpleQueue[tuple[float, bytes]] = SimpleQueue()

    def deliver() -> None:
        while True:
            due, data = waiting.get()
            time.sleep(max(0.0, due - time.monotonic()))
            if not data:
                break
            try:
                target.sendall(data)
            except OSError:  # the other side has hung up
                break
        hang_up(target)

    threading.Thread(target=deliver, daemon=True).start()
    data = b"-"
    while data:
        try:
            data = source.recv(LARGEST)
        except OSError:
            data = b""
        waiting.put((time.monotonic() + seconds, data))


def hang_up(connection: socket.socket) -> None:
    """Tell the other side that nothing more comes."""
    try:
        connection.shutdown(socket.SHUT_WR)
    except OSError:  # it has hung up already
        return


def serve(listening: socket.socket, path: str, seconds: float) -> None:
    """Take connections, and connect each to the socket at a path.

    Args:
        listening: where connections come in.
        path: where they lead.
        seconds: what a round trip takes longer, half of it each way.
    """
    while True:
        client, _ = listening.accept()
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        server = socket.socket(socket.AF_UNIX)
        server.connect(path)
        for source, target in ((client, server), (server, client)):
            threading.Thread(target=relay, args=(source, target, seconds / 2), daemon=True).start()


def main(path: str, milliseconds: str) -> None:
    """Relay until the standard input ends."""
    listening = socket.create_server(("127.0.0.1", 0))
    print(listening.getsockname()[1], flush=True)
    threading.Thread(target=serve, args=(listening, path, float(milliseconds) / 1_000), daemon=True).start()
    sys.stdin.read()
    os._exit(0)


if __name__ == "__main__":
    main(*sys.argv[1:])
