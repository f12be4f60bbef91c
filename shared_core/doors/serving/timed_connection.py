"""A connection of a client that keeps the server waiting no longer than it may."""

import asyncio
import json
from contextlib import suppress
from http import HTTPStatus
from typing import Any

import h11
from typing_extensions import override
from uvicorn.protocols.http.h11_impl import H11Protocol

__all__ = ["HEADER_SECONDS", "READING_SECONDS", "TimedConnection"]

HEADER_SECONDS = 10.0
"""How long a client may take to send the headers of a request, or the rest of a request that is answered already."""

READING_SECONDS = 60.0
"""How long a client may read nothing of an answer when the buffers are full. One that reads slowly has all the time."""


class TimedConnection(H11Protocol):
    """Closes the connections of clients that say nothing, end no headers, or read nothing.

    Uvicorn itself ends a connection only if nothing at all arrives after an answer. While a request is answered, the
    application judges how long its body may take. When there are as many connections as may be open, a new one takes
    the place of one without a request: that which would be closed first.

    Args:
        given: as for uvicorn's protocol.
        header_seconds: as `HEADER_SECONDS`.
        reading_seconds: as `READING_SECONDS`.
    """

    def __init__(
        self,
        *given: Any,
        header_seconds: float = HEADER_SECONDS,
        reading_seconds: float = READING_SECONDS,
        **named: Any,
    ) -> None:
        super().__init__(*given, **named)
        self._header_seconds, self._reading_seconds = header_seconds, reading_seconds
        self._sending: asyncio.TimerHandle | None = None
        self._reading: asyncio.TimerHandle | None = None

    @override
    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn's own
        if self.limit_concurrency is not None and len(self.connections) >= self.limit_concurrency - 1:
            self._make_room()
        super().connection_made(transport)
        self._look()

    @override
    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._look()

    @override
    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._look()

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        for timer in (self._sending, self._reading):
            if timer is not None:
                timer.cancel()
        self._unset_keepalive_if_required()  # uvicorn does so only if the connection ended without an error
        super().connection_lost(exc)

    @override
    def pause_writing(self) -> None:
        super().pause_writing()
        self._await_reader()

    @override
    def resume_writing(self) -> None:
        super().resume_writing()
        if self._reading is not None:
            self._reading.cancel()
            self._reading = None

    def _await_reader(self) -> None:
        """Wait for the client to read on, and wait again as long as it does."""
        left = self.transport.get_write_buffer_size()
        self._reading = self.loop.call_later(self._reading_seconds, self._check_reader, left)

    def _check_reader(self, left: int) -> None:
        """Close the connection if as much is left unread as at the last look."""
        if self.transport.get_write_buffer_size() < left:
            self._await_reader()
        else:
            self.transport.abort()

    def _look(self) -> None:
        """Begin to wait for the client, go on waiting, or stop, by whose turn it is."""
        answering = self.cycle is not None and not self.cycle.response_complete
        if answering or self.timeout_keep_alive_task is not None or self.transport.is_closing():
            if self._sending is not None:
                self._sending.cancel()
                self._sending = None
        elif self._sending is None:  # bytes that trickle in do not begin it anew
            self._sending = self.loop.call_later(self._header_seconds, self._give_up)

    def _give_up(self) -> None:
        if self.conn.our_state is h11.IDLE and self.conn.trailing_data[0]:
            self._refuse(HTTPStatus.REQUEST_TIMEOUT, f"the headers took longer than {self._header_seconds:g} seconds")
        self.transport.abort() if self.transport.get_write_buffer_size() else self.transport.close()

    def _make_room(self) -> None:
        """Close a connection that has no request."""
        found: list[tuple[float, TimedConnection]] = []
        for one in self.connections:
            assert isinstance(one, TimedConnection)
            waiting = one._sending or one.timeout_keep_alive_task
            if waiting is not None and not one.transport.is_closing():
                found.append((waiting.when(), one))
        if found:
            min(found, key=lambda one: one[0])[1].transport.abort()

    @override
    def send_400_response(self, msg: str) -> None:
        """Refuse what is no HTTP request."""
        self._refuse(HTTPStatus.BAD_REQUEST, "this is no valid HTTP request")

    def _refuse(self, status: HTTPStatus, message: str) -> None:
        """Answer with an error as the application's own ones, if no answer has begun, and close the connection."""
        kind = "invalid_request_error"
        body = json.dumps({"error": {"message": message, "type": kind, "param": None, "code": None}}).encode()
        headers = [("content-type", "application/json"), ("content-length", str(len(body))), ("connection", "close")]
        response = h11.Response(status_code=status, headers=headers, reason=status.phrase.encode())
        with suppress(h11.LocalProtocolError):  # an answer has begun
            for event in (response, h11.Data(data=body), h11.EndOfMessage()):
                self.transport.write(self.conn.send(event) or b"")
        if self.cycle is not None and not self.cycle.response_complete:
            self.cycle.disconnected = True  # whose application would answer, too
            self.cycle.message_event.set()
        self.transport.close()
