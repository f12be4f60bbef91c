"""The endpoint of a protocol: it builds the prompt, asks the model, passes the answer on and stores it."""

import asyncio
import logging
import traceback
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, ParamSpec, TypeVar
from urllib.parse import quote

import httpx
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive

from shared_core.doors.openai_proxy.chat_request import read_body, written
from shared_core.doors.openai_proxy.identity import headers_of, session_of, user_of
from shared_core.doors.openai_proxy.prompts import Prompted, Prompts
from shared_core.doors.openai_proxy.protocol import ApiRequest
from shared_core.doors.openai_proxy.refusal import Refused
from shared_core.doors.openai_proxy.request_body import received
from shared_core.doors.openai_proxy.streaming import StreamedReply, disconnected
from shared_core.doors.openai_proxy.upstream import Upstream, returned, unreachable
from shared_core.messages import Message
from shared_core.runtime.threads import threads_of

logger = logging.getLogger("shared_core.doors.openai_proxy")

REPORT = "x-memory-report"
MEMORY = "x-memory"
SESSION = "x-memory-session"
"""Headers: the client wants the report, or no memory; the response names the conversation."""

RETRIES = "x-stainless-retry-count"
"""A header: how often OpenAI's clients have sent a request before."""

YES, NO = ("1", "true", "yes", "on"), ("0", "false", "no", "off")

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


class Keeper:
    """Runs the calls of the store in threads, and lets those that write end, whatever becomes of the request.

    Args:
        prompts: the memory.
    """

    def __init__(self, prompts: Prompts) -> None:
        self.prompts = prompts
        self._threads = threads_of(prompts.pool.store)
        self._writing: set[asyncio.Task[Any]] = set()

    async def call(
        self, function: Callable[Arguments, Result], /, *args: Arguments.args, **kwargs: Arguments.kwargs
    ) -> Result:
        """Call a function in a thread."""
        return await self._threads.run(function, *args, **kwargs)

    async def keep(self, prompted: Prompted, answer: Sequence[Message]) -> str | None:
        """Store an answer, even if the caller is cancelled meanwhile, and return the name of the conversation."""
        if not answer or not prompted.remembered:
            return prompted.session
        task = asyncio.ensure_future(self.call(self.prompts.keep, prompted, answer))
        self._writing.add(task)
        task.add_done_callback(self._writing.discard)
        return await asyncio.shield(task)

    async def close(self) -> None:
        """Wait until everything is stored."""
        while self._writing:
            await asyncio.wait(set(self._writing))


class Endpoint:
    """Answers the requests of a protocol.

    Args:
        keeper: the memory.
        read: reads a request; Refused if it is none.
        upstream: the server of the model.
        most_bytes: the size of the largest body.
        body_seconds: how long a client may take to send it.
        user: the user of requests without a token that name none.
    """

    def __init__(
        self, keeper: Keeper, read: Callable[[Mapping[str, Any]], ApiRequest], upstream: Upstream, *, most_bytes: int,
        body_seconds: float, user: str | None,
    ) -> None:  # fmt: skip
        self._keeper, self._read, self._upstream = keeper, read, upstream
        self._most_bytes, self._body_seconds, self._user = most_bytes, body_seconds, user

    async def __call__(self, request: Request) -> Response:
        """Answer a request."""
        raw = await received(request, most_bytes=self._most_bytes, seconds=self._body_seconds)
        wants_report = _flag(request, REPORT, default=False)
        await self._upstream.learn_windows(client_key(request))
        prompted, asked, content = await self._keeper.call(self._prepared, request, raw, wants_report)
        response = await _unless_gone(
            self._upstream.send(
                "POST", asked.path, content=content, headers=headers_of(request),
                authorization=client_key(request),
            ),
            request.receive,
        )  # fmt: skip
        own = returned(response.headers) | ({} if prompted.header is None else {MEMORY: prompted.header})
        stream = response.headers.get("content-type", "").startswith("text/event-stream")
        if response.is_success and asked.streamed and stream:
            answer = asked.answer_stream()
            return StreamedReply(response, answer, self._keeper.keep, prompted, own | _naming(prompted.session))
        try:
            body = await _unless_gone(response.aread(), request.receive)
        except httpx.HTTPError as error:
            raise unreachable(error) from None
        finally:
            await response.aclose()
        session = prompted.session
        if response.is_success:
            body, session = await self._kept(asked, prompted, body)
        elif (refused := asked.refusal(response.status_code, body)) is not None:
            raise refused
        return Response(body, response.status_code, own | _naming(session))

    def _prepared(self, request: Request, raw: bytes, wants_report: bool) -> tuple[Prompted, ApiRequest, bytes]:
        """Return the prompt for a request, the request, and the body to send to the model; runs in a thread."""
        asked = self._read(read_body(raw))
        user = user_of(request.scope["state"].get("bearer"), headers_of(request), asked.body, self._user)
        session = session_of(headers_of(request), asked.body)
        shared = bool(request.scope["state"].get("guarded"))  # all users share this server's key at the model's
        if not _flag(request, MEMORY, default=True):
            if asked.goes_on_upstream and shared:  # the response may be another user's
                text = f"{MEMORY}: off: what refers to earlier responses needs the memory, or send the history"
                raise Refused(403, text, code="memory_needed")
            return Prompted(None, header="off"), asked, raw
        asked = self._keeper.prompts.read(asked, user=user, session=session, shared=shared)
        asked.written(asked.unread())  # what cannot be sent is not stored
        try:
            prompted = self._keeper.prompts.prompt(
                asked, user=user, session=session, report=wants_report, retried=_is_retry(request),
                client=request.headers.get("user-agent", ""),
            )  # fmt: skip
        except (ValueError, RecursionError) as error:
            logger.warning("a history cannot be stored: %s\n%s", type(error).__name__, frames_of(error))
            raise Refused(400, "messages: these cannot be stored; see the log of the server") from error
        return prompted, asked, raw if prompted.messages is None else asked.written(prompted.messages)

    async def _kept(self, asked: ApiRequest, prompted: Prompted, body: bytes) -> tuple[bytes, str | None]:
        """Store the answer in the body of a response; return the body, with the report if wanted, and the session."""
        if not prompted.remembered and prompted.report is None:
            return body, prompted.session  # whatever it is
        try:
            completion = read_body(body)
            answer = asked.answer(completion) if prompted.remembered else ()
        except (Refused, ValueError):
            raise Refused(502, "upstream sent no answer that can be read", code="upstream_invalid") from None
        session = await self._keeper.keep(prompted, answer)
        if prompted.report is not None:
            body = written({**completion, "memory_report": prompted.report})
        return body, session


def _naming(session: str | None) -> dict[str, str]:
    return {} if session is None else {SESSION: quote(session, safe=" ")}


def client_key(request: Request) -> str | None:
    """Return the key that a client sends for the model's server; None: its key is one for this server."""
    return None if request.scope["state"].get("guarded") else request.headers.get("authorization")


def _is_retry(request: Request) -> bool:
    """Return whether a client says that it sends a request once more, as OpenAI's do."""
    return request.headers.get(RETRIES, "0").strip("0").isdecimal()


def _flag(request: Request, name: str, *, default: bool) -> bool:
    """Return what a header switches. Words such as "none", which stand for no name, do not stand for no header."""
    given = {value.strip().lower() for key, value in headers_of(request) if key == name}
    if not given:
        return default
    if len(given) > 1 or not given <= {*YES, *NO}:
        raise Refused(400, f"the header {name} must be one of {', '.join(YES + NO)}")
    return given <= {*YES}


def frames_of(error: BaseException) -> str:
    """Return where an error was raised, for the log: without its message, which may hold what was said."""
    frames = traceback.extract_tb(error.__traceback__)
    return "\n".join(f"  {frame.filename}:{frame.lineno} {frame.name}" for frame in frames)


class ClientGone(Exception):
    """The client closed the connection before it was answered."""


async def _unless_gone(work: Coroutine[Any, Any, Result], receive: Receive) -> Result:
    """Await some work; give it up if the client goes away, who would never see what comes of it.

    Raises:
        ClientGone: it went away.
    """
    task, gone = asyncio.ensure_future(work), asyncio.ensure_future(disconnected(receive))
    try:
        await asyncio.wait((task, gone), return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            return task.result()
        raise ClientGone
    finally:
        for each in (task, gone):
            each.cancel()
        await asyncio.gather(task, gone, return_exceptions=True)
