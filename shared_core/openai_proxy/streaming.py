"""A streamed answer: its events go to the client as they come, and the end follows when the answer is stored."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any

import httpx
from starlette.responses import Response
from starlette.types import Receive, Scope, Send
from typing_extensions import override

from shared_core.errors import InfiniteMemoryError
from shared_core.messages import Message
from shared_core.openai_proxy.answer import StreamedAnswer
from shared_core.openai_proxy.event_stream import DONE, EventSplitter, chunk_of, data_of, event
from shared_core.openai_proxy.prompts import Prompted
from shared_core.openai_proxy.refusal import Refused
from shared_core.openai_proxy.upstream import unreachable

logger = logging.getLogger("shared_core.openai_proxy")

Keep = Callable[[Prompted, Message | None], Awaitable[Any]]


class StreamedReply(Response):
    """Passes the events of a stream on, byte by byte as they come, and stores the answer that they say.

    The client gets `[DONE]` after the answer is stored: an answer that ended is never lost. If the stream or the client
    breaks off, the words so far are stored, and marked. An answer whose last chunk came, with the reason why it ends,
    is stored whole.

    Args:
        upstream: the response of the model's server, whose body is not read yet. It is closed in the end.
        keep: stores an answer.
        prompted: the prompt that is answered.
        headers: the headers of the response.
    """

    def __init__(self, upstream: httpx.Response, keep: Keep, prompted: Prompted, headers: Mapping[str, str]) -> None:
        self.status_code = upstream.status_code
        self.background = None
        self.init_headers({**headers, "cache-control": "no-cache"})
        self._upstream, self._keep, self._prompted = upstream, keep, prompted
        self._answer = StreamedAnswer()
        self._settled = False

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
        """Pass all events on but the last, store the answer, and return what ends the stream."""
        try:
            done = False
            async for each in self._events():
                data = data_of(each)
                done = data is not None and data.strip() == DONE
                if done:
                    break
                self._answer.add((chunk_of(data) if data is not None else None) or {})
                if self._answer.failed:  # before the client knows: it may ask again at once
                    await self._settle_part("upstream")
                await send({"type": "http.response.body", "body": each, "more_body": True})
            return await self._end(done)
        except httpx.HTTPError as error:
            await self._settle_part("upstream")
            return event(unreachable(error).data())
        except (InfiniteMemoryError, ValueError) as error:
            logger.error("a streamed answer was not stored: %s", type(error).__name__)
            refused = error if isinstance(error, Refused) else Refused(503, "the answer could not be stored")
            return event(refused.data())

    async def _events(self) -> AsyncIterator[bytes]:
        splitter = EventSplitter()
        async for data in self._upstream.aiter_raw():
            for each in splitter.feed(data):
                yield each
        rest = splitter.rest()
        if rest.strip():
            yield rest + b"\n\n"

    async def _end(self, done: bool) -> bytes:
        """Store the answer, and return the events that end the stream."""
        if self._answer.failed or not (done or self._answer.ended):
            await self._settle_part("upstream")
            cut = Refused(502, "upstream broke off", code="upstream_unreachable")
            return (event(DONE) if done else b"") if self._answer.failed else event(cut.data())
        self._settled = True
        try:
            answer = self._answer.message() if self._prompted.remembered else None
        except ValueError:
            raise Refused(502, "upstream sent no chat completion", code="upstream_invalid") from None
        await self._keep(self._prompted, answer)
        return self._report() + event(DONE)

    def _report(self) -> bytes:
        """Return the event with the report; empty if none is wanted. It has no choices, as the one on usage."""
        if self._prompted.report is None:
            return b""
        return event({"object": "chat.completion.chunk", "choices": [], "memory_report": self._prompted.report})

    async def _settle_part(self, why: str) -> None:
        """Store what came of an answer that broke off, all of it if it had ended, unless it was stored already."""
        if self._settled:
            return
        self._settled = True
        try:
            await self._keep(self._prompted, self._whole() or self._answer.part(why))
        except (InfiniteMemoryError, ValueError) as error:
            logger.error("what came of an answer was not stored: %s", type(error).__name__)

    def _whole(self) -> Message | None:
        """Return the answer if it ended without an error and is a message."""
        if self._answer.failed or not self._answer.ended:
            return None
        try:
            return self._answer.message()
        except ValueError:
            return None


async def disconnected(receive: Receive) -> None:
    """Return when the client has closed the connection."""
    while (await receive())["type"] != "http.disconnect":
        pass
