"""A client that takes the time of its requests and does little else: bytes over one connection, no library of HTTP."""

import asyncio
import json
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

__all__ = ["Client", "Taken"]


class Taken(NamedTuple):
    """How long a request took.

    Attributes:
        status: of the answer.
        first: the seconds until the first byte of its body.
        whole: the seconds until its end.
    """

    status: int
    first: float
    whole: float


class Client:
    """A client of a server, over a connection that stays open.

    Args:
        host: of the server.
        port: of the server.
    """

    def __init__(self, host: str, port: int) -> None:
        self._host, self._port = host, port
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def ask(
        self, text: str, session: str, *, streamed: bool, before: Sequence[Mapping[str, str]] = ()
    ) -> Taken:  # fmt: skip
        """Ask in a conversation, after the messages `before`, and read the answer to its end."""
        asked = [*before, {"role": "user", "content": text}]
        body = json.dumps({"model": "m", "stream": streamed, "messages": asked}).encode()
        head = (
            f"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            f"X-Session-Id: {session}\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        if self._streams is not None:
            try:
                return await self._answered(head.encode() + body)
            except (asyncio.IncompleteReadError, ConnectionError):
                await self.close()  # a server waits only some seconds for the next request of a connection
        return await self._answered(head.encode() + body)

    async def _answered(self, request: bytes) -> Taken:
        if self._streams is None:
            self._streams = await asyncio.open_connection(self._host, self._port)
        reader, writer = self._streams
        began = time.perf_counter()
        writer.write(request)
        answer = (await reader.readuntil(b"\r\n\r\n")).lower()
        if b"content-length: " in answer:
            size = int(answer.partition(b"content-length: ")[2].split(b"\r\n")[0])
            await reader.readexactly(size)
            first = time.perf_counter()
        else:
            await reader.readuntil(b"\n")
            first = time.perf_counter()
            await reader.readuntil(b"\r\n0\r\n\r\n")
        return Taken(int(answer.split()[1]), first - began, time.perf_counter() - began)

    async def close(self) -> None:
        """Close the connection."""
        if self._streams is not None:
            streams, self._streams = self._streams, None
            streams[1].close()
            with suppress(ConnectionError):
                await streams[1].wait_closed()
