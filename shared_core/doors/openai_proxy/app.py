"""The ASGI application: its paths, and what holds for every request."""

import asyncio
import logging
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from types import MappingProxyType
from typing import Any
from urllib.parse import quote

import httpx
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from shared_core.doors.openai_proxy.asides import Asides
from shared_core.doors.openai_proxy.chat_request import read_chat_request
from shared_core.doors.openai_proxy.endpoint import MEMORY, SESSION, ClientGone, Endpoint, Keeper, client_key, frames_of
from shared_core.doors.openai_proxy.identity import headers_of
from shared_core.doors.openai_proxy.inspector.endpoints import API, PAGE, POLLED, inspector_routes
from shared_core.doors.openai_proxy.inspector.request_ring import RequestRing
from shared_core.doors.openai_proxy.prompts import Prompts
from shared_core.doors.openai_proxy.refusal import Refused
from shared_core.doors.openai_proxy.responses_request import read_responses_request
from shared_core.doors.openai_proxy.upstream import Upstream, returned, unreachable
from shared_core.doors.serving.bearer_tokens import BearerTokens, is_loopback
from shared_core.doors.serving.health import HEALTH, READY, health_routes
from shared_core.errors import StoreError
from shared_core.pool import SessionPool

logger = logging.getLogger("shared_core.doors.openai_proxy")
access_log = logging.getLogger("shared_core.doors.openai_proxy.access")

MOST_BYTES = 32 * 2**20
"""The bytes of the largest body: a history with some photos."""

MOST_REQUESTS = 64
"""How many requests are served at a time. The next ones are refused, with `Retry-After`."""

BODY_SECONDS = 60.0
"""How long a client may take to send a body."""

GONE = 499
"""The status in the log of a request whose client went away."""

PATHS = (HEALTH, READY, "/v1/chat/completions", "/v1/models", "/v1/responses")
"""Paths that the log names."""

ORIGIN = re.compile(r"https?://[^/*\s]+")

OPEN = (HEALTH, READY)
"""Paths that need no token, and are served at any load."""


def create_app(
    pool: SessionPool, upstream: Upstream, *, tokens: BearerTokens | None = None, user: str | None = None,
    windows: Mapping[str, int] = MappingProxyType({}), most_bytes: int = MOST_BYTES,
    most_requests: int = MOST_REQUESTS, body_seconds: float = BODY_SECONDS, inspector: bool = False,
    asides: Sequence[str] = (), allow_origins: Sequence[str] = (),
) -> ASGIApp:  # fmt: skip
    """Return the application. It closes pool and upstream when it ends.

    Args:
        pool: the memories.
        upstream: the server of the model.
        tokens: the tokens that let a request in. None: everybody may ask who names this machine as the host. By another
            name that leads to this machine, a web page could ask with the browser of somebody who sits at it.
        user: the user of requests that name none, if no tokens are needed.
        windows: context limits of models, in tokens, by their names. The others have what upstream tells, if it is
            asked, or else that of the pool.
        most_bytes: the size of the largest body.
        most_requests: how many requests are served at a time.
        body_seconds: how long a client may take to send a body.
        inspector: whether the page that shows a user's conversations and requests is served at `/`. The page needs no
            token, and its data needs the user's.
        asides: regular expressions. A request whose instructions or newest message match one of them at the beginning
            is about a conversation, and no part of it. The prompts of Open WebUI and LibreChat are known.
        allow_origins: the origins, such as `"https://chat.example"`, whose pages may ask. A request from another page
            is refused.

    Raises:
        ValueError: the pool has `scope="user"`, or one of `allow_origins` is no exact origin.
        re.error: one of `asides` is no regular expression.
    """
    for origin in allow_origins:
        if not ORIGIN.fullmatch(origin):
            raise ValueError(f"{origin!r} is no origin: write it like https://chat.example, without a path or *")
    ring = RequestRing() if inspector else None
    keeper = Keeper(Prompts(pool, windows, ring, upstream.window, Asides(asides)))
    limits: Any = {"most_bytes": most_bytes, "body_seconds": body_seconds, "user": user}
    chat = Endpoint(keeper, read_chat_request, upstream, **limits)
    responses = Endpoint(keeper, read_responses_request, upstream, **limits)

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        yield
        await gate.empty()
        await keeper.close()
        await upstream.close()
        await asyncio.to_thread(pool.close)

    routes = [
        *health_routes(keeper.prompts.check),  # not behind the requests that wait for the store's threads
        Route("/v1/chat/completions", chat.__call__, methods=["POST"]),
        Route("/v1/responses", responses.__call__, methods=["POST"]),
        Route("/v1/models", _models(upstream), methods=["GET"]),
        Route("/v1/models/{model:path}", _models(upstream), methods=["GET"]),
    ]
    if ring is not None:
        routes += inspector_routes(keeper, ring, user=user)
    errors = (HTTPException, Refused, StoreError, ClientGone, ClientDisconnect, Exception)
    app = Starlette(routes=routes, lifespan=lifespan, exception_handlers=dict.fromkeys(errors, _error_response))
    app.router.redirect_slashes = False
    free = frozenset({PAGE} if inspector else ())
    gate = Gate(app, tokens=tokens, most_requests=most_requests, origins=allow_origins, free=free)
    if not allow_origins:
        return gate
    exposed = (SESSION, MEMORY)
    return CORSMiddleware(gate, allow_origins, ("GET", "POST"), ("*",), expose_headers=exposed)


def _models(upstream: Upstream) -> Callable[[Request], Awaitable[Response]]:
    async def models(request: Request) -> Response:
        name = request.path_params.get("model", "")
        if {".", ".."} & set(name.split("/")):
            raise Refused(404, "there is no such model")
        path = f"models/{quote(name)}" if name else "models"
        response = await upstream.send("GET", path, headers=headers_of(request), authorization=client_key(request))
        try:
            return Response(await response.aread(), response.status_code, returned(response.headers))
        except httpx.HTTPError as error:
            raise unreachable(error) from None
        finally:
            await response.aclose()

    return models


class Gate:
    """Lets requests in, refuses the others, and writes a line of log for each: method, path, status, milliseconds.

    The log holds nothing that a client says: a path that does not exist is not named.

    Args:
        app: answers the requests.
        tokens: as for `create_app`.
        most_requests: as for `create_app`.
        origins: as for `create_app`.
        free: paths that need no token.
    """

    def __init__(
        self, app: ASGIApp, *, tokens: BearerTokens | None, most_requests: int, origins: Sequence[str] = (),
        free: frozenset[str] = frozenset(),
    ) -> None:  # fmt: skip
        self._app, self._tokens, self._free = app, tokens, free
        self._most, self._inside, self._origins = most_requests, 0, origins
        self._nobody = asyncio.Event()
        self._nobody.set()

    async def empty(self) -> None:
        """Wait until no request is inside."""
        await self._nobody.wait()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began, status = time.monotonic(), GONE

        async def noting(message: Message) -> None:
            nonlocal status
            status = message.get("status", status)
            await send(message)

        self._inside += 1
        self._nobody.clear()
        try:
            await self._answer(scope, receive, noting)
        except Exception as error:  # Starlette has answered it; its message may hold what was said
            logger.error("a request failed with %s\n%s", type(error).__name__, frames_of(error))
        finally:
            self._inside -= 1
            if not self._inside:
                self._nobody.set()
            took = (time.monotonic() - began) * 1000
            if (scope["path"], status) != (POLLED, 200):  # an open page would fill the log
                access_log.info("%s %s %d %.0f ms", scope["method"], _known(scope["path"]), status, took)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            self._let_in(scope)
        except Refused as refused:
            await _reply(refused)(scope, receive, send)
        else:
            await self._app(scope, receive, send)

    def _let_in(self, scope: Scope) -> None:
        """Check a request by its headers, and note the user of its token; Refused if it may not come in."""
        state = scope.setdefault("state", {})
        state["guarded"] = self._tokens is not None
        if scope["path"] in OPEN:
            return
        if self._tokens is None and not all(map(is_loopback, _values(scope, b"host") or [""])):
            raise Refused(403, "without tokens, the host is 127.0.0.1 or localhost", code="wrong_host")
        hosts = [host.lower() for host in _values(scope, b"host")]
        for origin in _values(scope, b"origin"):  # a proxy with TLS changes the scheme
            if origin not in self._origins and [origin.lower().partition("://")[2]] != hosts:
                raise Refused(403, "the request comes from a page of another origin", code="wrong_origin")
        if self._tokens is not None and scope["path"] not in self._free:
            given = _values(scope, b"authorization")
            if len(given) > 1:
                raise Refused(400, "the header authorization was sent more than once")
            state["bearer"] = _bearer(given[0] if given else None, self._tokens)
        if self._inside > self._most:
            text = "too many concurrent requests; try again in a second"
            raise Refused(503, text, code="overloaded", headers={"retry-after": "1"})


def _bearer(authorization: str | None, tokens: BearerTokens) -> str:
    """Return the user of a request's token, or `*`; Refused with 401 if there is no such token."""
    user = tokens.user_of_header(authorization)
    if user is None:
        wrong = "the bearer token is unknown" if authorization else "a bearer token is needed: Authorization: Bearer …"
        raise Refused(401, wrong, code="invalid_api_key", headers={"www-authenticate": "Bearer"})
    return user


def _values(scope: Scope, name: bytes) -> list[str]:
    return [value.decode("latin-1") for key, value in scope["headers"] if key == name]


def _reply(refused: Refused) -> Response:
    return Response(refused.body(), refused.status, refused.headers, media_type="application/json")


def _known(path: str) -> str:
    """Return a path as the log may show it."""
    below = (f"{prefix}/*" for prefix in ("/v1/models", API) if path.startswith(f"{prefix}/"))
    return path if path in (PAGE, *PATHS) else next(below, "-")


async def _error_response(_: Request, error: Exception) -> Response:
    """Return the response to a request that ended in an error."""
    if isinstance(error, ClientGone | ClientDisconnect):
        return Response(status_code=GONE)
    if isinstance(error, HTTPException):
        no_path = "there is no such path; see /v1/chat/completions, /v1/responses and /v1/models"
        said = no_path if error.status_code == 404 else error.detail
        return _reply(Refused(error.status_code, said, headers=error.headers or {}))
    if isinstance(error, StoreError):
        logger.error("the store failed: %s", type(error).__name__)
        error = Refused(503, "the store cannot be read or written now", headers={"retry-after": "1"})
    return _reply(error if isinstance(error, Refused) else Refused(500, "the server failed; its log says where"))
