"""A streamed answer: its events go to the client as they come, and the end follows when the answer is stored."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import Any

import httpx
from starlette.responses import Response
from starlette.types import Receive, Scope, Send
from typing_extensions import override

from shared_core.doors.openai_proxy.event_stream import EventSplitter, data_of
from shared_core.doors.openai_proxy.prompts import Prompted
from shared_core.doors.openai_proxy.protocol import AnswerStream
from shared_core.doors.openai_proxy.refusal import Refused
from shared_core.doors.openai_proxy.upstream import unreachable
from shared_core.errors import InfiniteMemoryError
from shared_core.messages import Message

logger = logging.getLogger("shared_core.doors.openai_proxy")

Keep = Callable[[Prompted, Sequence[Message]], Awaitable[Any]]


class StreamedReply(Response):
    """Passes the events of a stream on, byte by byte as they come, and stores the answer that they say.

    The client gets the last event after the answer is stored: an answer that ended is never lost. If the stream or the
    client breaks off, the words so far are stored, and marked. An answer whose last chunk came, with the reason why it
    ends, is stored whole.

    Args:
        upstream: the response of the model's server, whose body is not read yet. It is closed in the end.
        answer: puts the answer together.
        keep: stores an answer.
        prompted: the prompt that is answered.
        headers: the headers of the response.
    """

    def __init__(
        self, upstream: httpx.Response, answer: AnswerStream, keep: Keep, prompted: Prompted, headers: Mapping[str, str]
    ) -> None:
        self.status_code = upstream.status_code
        self.background = None
        self.init_headers({**headers, "cache-control": "no-cache"})
        self._upstream, self._keep, self._prompted = upstream, keep, prompted
        self._answer = answer
        self._settled = self._closed = False

    @override
    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the response."""
        passing = asyncio.ensure_future(self._pass_on(send))
        gone = asyncio.ensure_future(disconnected(receive))
        try:
            await asyncio.wait((passing, gone), return_when=asyncio.FIRST_COMPLETED)
        finally:
            gone.cancel()
            passing.cancel()  # without effect if it has ended
            await asyncio.wait((passing, gone))
        if not passing.cancelled():
            passing.result()

    async def _pass_on(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        try:
            last = await self._last_events(send)
        except asyncio.CancelledError:
            await self._settle_part("client")
            raise
        except OSError:  # the client is gone
            await self._settle_part("client")
            return
        finally:
            await self._upstream.aclose()
        await send({"type": "http.response.body", "body": last, "more_body": False})

    async def _last_events(self, send: Send) -> bytes:
        """Pass the events on, store the answer before its last one goes out, and return what ends the stream."""
        try:
            async for each in self._events():
                if not self._closed:
                    if self._answer.take(data_of(each)):
                        each = await self._end(each)
                        if not self._answer.goes_on:
                            return each
                        self._closed = True
                    elif self._answer.failed:  # before the client knows: it may ask again at once
                        await self._settle_part("upstream")
                await send({"type": "http.response.body", "body": each, "more_body": True})
            return b"" if self._closed else await self._end(b"")
        except httpx.HTTPError as error:
            await self._settle_part("upstream")
            return b"" if self._closed else self._answer.error(unreachable(error))
        except (InfiniteMemoryError, ValueError) as error:
            logger.error("a streamed answer was not stored: %s", type(error).__name__)
            refused = error if isinstance(error, Refused) else Refused(503, "the answer could not be stored")
            return self._answer.error(refused)

    async def _events(self) -> AsyncIterator[bytes]:
        splitter = EventSplitter()
        async for data in self._upstream.aiter_raw():
            for each in splitter.feed(data):
                yield each
        rest = splitter.rest()
        if rest.strip():
            yield rest + b"\n\n"

    async def _end(self, last: bytes) -> bytes:
        """Store the answer, and return the events that end it; `last` is its last event, empty if none came."""
        if self._answer.failed or not self._answer.complete:
            await self._settle_part("upstream")
            cut = Refused(502, "upstream broke off", code="upstream_unreachable")
            return last if self._answer.failed else self._answer.error(cut)
        self._settled = True
        try:
            answer = self._answer.whole() if self._prompted.remembered else ()
        except ValueError:
            raise Refused(502, "upstream sent no answer that can be read", code="upstream_invalid") from None
        await self._keep(self._prompted, answer)
        return self._answer.closing(last, self._prompted.report)

    async def _settle_part(self, why: str) -> None:
        """Store what came of an answer that broke off, all of it if it had ended, unless it was stored already."""
        if self._settled:
            return
        self._settled = True
        try:
            part = None if (whole := self._whole()) else self._answer.part(why)
            await self._keep(self._prompted, whole if part is None else (part,))
        except (InfiniteMemoryError, ValueError) as error:
            logger.error("what came of an answer was not stored: %s", type(error).__name__)

    def _whole(self) -> Sequence[Message]:
        """Return the answer if it ended without an error and can be read."""
        if self._answer.failed or not self._answer.ended:
            return ()
        try:
            return self._answer.whole()
        except ValueError:
            return ()


async def disconnected(receive: Receive) -> None:
    """Return when the client has closed the connection."""
    while (await receive())["type"] != "http.disconnect":
        pass
