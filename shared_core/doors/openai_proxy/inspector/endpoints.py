"""The paths of the inspector: its page, and the data that it asks for."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from shared_core.doors.openai_proxy.chat_request import read_body
from shared_core.doors.openai_proxy.endpoint import Keeper
from shared_core.doors.openai_proxy.identity import LONGEST_NAME, USER_HEADERS, header, headers_of, user_of
from shared_core.doors.openai_proxy.inspector.live_sessions import LiveSessions
from shared_core.doors.openai_proxy.inspector.request_ring import RequestRing
from shared_core.doors.openai_proxy.refusal import Refused
from shared_core.doors.openai_proxy.request_body import received
from shared_core.doors.serving.bearer_tokens import ANY_USER
from shared_core.doors.view.page import embedded, page, policy

__all__ = ["ALLOWED", "API", "PAGE", "POLLED", "inspector_routes"]

PAGE = "/"
"""The path of the page. It holds no data, so it needs no token."""

API = "/inspector/api"

POLLED = f"{API}/requests"
"""The path that an open page asks every other second."""

MARK = "x-inspector"
"""The header that every request for data has. Another site's page cannot send it without asking first."""

SAFE: Mapping[str, str] = {
    "cache-control": "no-store",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
}
"""The headers of every response."""

MOST_BYTES = 64 * 2**10
"""The bytes of the largest change that is asked for."""

LONGEST_QUERY = 2_000
"""Characters of the longest query."""

MOST_IDS = 200
"""The most messages that one request names."""

BODY_SECONDS = 10.0
"""How long a page may take to send what it asks for."""

ALLOWED = ("connect-src 'self'", "img-src data:")
"""What the page may do besides drawing: ask this server, and show its own icon."""


def inspector_routes(keeper: Keeper, ring: RequestRing, *, user: str | None) -> list[Route]:
    """Return the routes of the inspector.

    Args:
        keeper: the memory, and the threads in which it is read.
        ring: the requests that were seen.
        user: the user of requests without a token that name none.
    """
    inspector = _Inspector(keeper, LiveSessions(keeper.prompts.pool, ring), user)
    reads = {
        "sessions": inspector.sessions, "session": inspector.session, "search": inspector.search,
        "requests": inspector.requests, "request": inspector.request,
    }  # fmt: skip
    return [
        Route(PAGE, _page, methods=["GET"]),
        Route(f"{API}/me", inspector.me, methods=["GET"]),
        *(Route(f"{API}/{name}", inspector.reading(work), methods=["GET"]) for name, work in reads.items()),
        Route(f"{API}/forget", inspector.forget, methods=["POST"]),
    ]


async def _page(request: Request) -> Response:
    html = page({"token": request.scope["state"]["guarded"]}, ALLOWED)
    rules = policy([*ALLOWED, "frame-ancestors 'none'"])
    headers = {**SAFE, "cache-control": "no-cache", "content-security-policy": rules}
    return Response(html, headers=headers, media_type="text/html")


Fields = Mapping[str, Any]


class _Inspector:
    """Checks what a page asks for, and answers it for the user of its token."""

    def __init__(self, keeper: Keeper, live: LiveSessions, user: str | None) -> None:
        self._keeper, self._live, self._user = keeper, live, user
        self._one_at_a_time = asyncio.Lock()

    async def me(self, request: Request) -> Response:
        """Say who asks: the user, whether the page may name one, and whether it has to."""
        check_origin(request)
        bearer = request.scope["state"].get("bearer")
        must = bearer == ANY_USER and header(headers_of(request), USER_HEADERS) is None
        user = None if must else self._user_of(request)
        return _json({"user": user, "may_name": bearer in (None, ANY_USER), "must_name": must})

    def reading(self, work: Callable[[str | None, Fields], Any]) -> Callable[[Request], Any]:
        """Return an endpoint that reads, with its arguments in the query."""

        async def answer(request: Request) -> Response:
            check_origin(request)
            user = self._user_of(request)
            if work not in (self.session, self.search):
                return _json(await self._keeper.call(work, user, request.query_params))
            async with self._one_at_a_time:  # what takes long leaves the other threads to the conversations
                return _json(await self._keeper.call(work, user, request.query_params))

        return answer

    async def forget(self, request: Request) -> Response:
        """Erase messages, or show what would be erased, with the arguments in the body."""
        check_origin(request)
        user = self._user_of(request)
        fields = read_body(await received(request, most_bytes=MOST_BYTES, seconds=BODY_SECONDS))
        ids, whole = fields.get("ids"), fields.get("whole", False)
        if (ids is None) is not (whole is True):
            raise Refused(400, "pass ids, a list, or whole, which is true")
        are_texts = isinstance(ids, list) and all(isinstance(one, str) for one in ids)
        if ids is not None and not (are_texts and 0 < len(ids) <= MOST_IDS):
            raise Refused(400, f"ids: expected a list of 1 to {MOST_IDS} strings")
        given = _text(fields, "confirmation", LONGEST_NAME) if fields.get("confirmation") is not None else None
        session = _text(fields, "session", LONGEST_NAME)
        return _json(await self._keeper.call(self._live.forget, user, session, ids, given))

    def _user_of(self, request: Request) -> str | None:
        return user_of(request.scope["state"].get("bearer"), headers_of(request), {}, self._user)

    # What can be read

    def sessions(self, user: str | None, _: Fields) -> Any:
        return self._live.sessions(user)

    def session(self, user: str | None, fields: Fields) -> Any:
        also = [_text(fields, "ask", LONGEST_NAME)] if "ask" in fields else []
        return self._live.session(user, _text(fields, "session", LONGEST_NAME), also=also)

    def search(self, user: str | None, fields: Fields) -> Any:
        return self._live.search(user, _text(fields, "query", LONGEST_QUERY))

    def requests(self, user: str | None, fields: Fields) -> Any:
        return self._live.requests(user, _number(fields, "after", 0, 2**53))

    def request(self, user: str | None, fields: Fields) -> Any:
        return self._live.request(user, _number(fields, "number", 0, 2**53))


def _json(data: Any) -> Response:
    return Response(embedded(data), headers=dict(SAFE), media_type="application/json")


def _text(fields: Fields, name: str, longest: int) -> str:
    value = fields.get(name)
    if not isinstance(value, str) or not 0 < len(value) <= longest:
        raise Refused(400, f"{name}: expected a string of 1 to {longest} characters")
    return value


def _number(fields: Fields, name: str, otherwise: int, most: int) -> int:
    value = str(fields.get(name, otherwise))
    if not (value.isascii() and value.isdecimal() and len(value) <= len(str(most)) and int(value) <= most):
        raise Refused(400, f"{name}: expected a whole number up to {most}")
    return int(value)


def check_origin(request: Request) -> None:
    """Refuse a request for data that comes from another origin, or may come from one."""
    if _values(request, MARK) != ["1"]:
        raise Refused(403, f"the header {MARK}: 1 is missing", code="wrong_origin")
    site, own = _values(request, "sec-fetch-site"), _values(request, "host")
    # Who may ask the model from a page of another origin may not read here.
    if site not in ([], ["same-origin"], ["none"]) or any(
        [urlsplit(one).netloc] != own for one in _values(request, "origin")
    ):
        raise Refused(403, "the request comes from a page of another origin", code="wrong_origin")


def _values(request: Request, name: str) -> Sequence[str]:
    return [value.lower() for value in request.headers.getlist(name)]
