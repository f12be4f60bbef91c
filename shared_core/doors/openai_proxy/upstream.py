"""The server of the model: any that speaks OpenAI's API. Requests go there, and answers come back as they are."""

import asyncio
import json
import time
from collections.abc import Mapping, Sequence
from typing import Any

import httpx

from shared_core.doors.openai_proxy.chat_request import is_count
from shared_core.doors.openai_proxy.refusal import Refused

FORWARDED = ("accept-language", "idempotency-key", "traceparent", "tracestate", "user-agent", "x-request-id")
RETURNED = ("content-type", "retry-after", "retry-after-ms", "x-request-id", "x-should-retry")
"""Headers that pass the server. All others end at it: cookies, addresses, keys of its own."""

LIMITS = (
    "max_model_len", "loaded_context_length", "n_ctx", "context_length", "context_window", "max_context_length",
    "n_ctx_train",
)  # fmt: skip
"""Fields with the context limit of a model: of vLLM, LM Studio, llama.cpp (in `meta`), OpenRouter, Groq and Mistral.

What a server has loaded stands before what the model was trained for."""

ASKED_EVERY, ASKED_FOR = 60.0, 5.0
"""The seconds after which a server is asked for its limits again, and those that it has to answer."""

_PREFIXES = ("openai-", "x-ratelimit-", "x-stainless-")


class Upstream:
    """Sends requests to the server of the model.

    Args:
        base_url: its address, up to `/v1`.
        key: the key for it. None: the client's own `Authorization`, if the caller passes it on.
        timeout: the seconds without a byte after which a request is given up.
        retries: how often a connection that fails is tried again. A request that arrived is never sent twice.
        tells_windows: whether the server is asked for the context limits of its models.
        transport: answers instead of the network.
    """

    def __init__(
        self, base_url: str, *, key: str | None = None, timeout: float = 600, retries: int = 2,
        tells_windows: bool = False, transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:  # fmt: skip
        url = httpx.URL(base_url)
        if url.scheme not in ("http", "https") or not url.host:
            raise ValueError(f"upstream {base_url!r} is not a URL: write it like https://api.openai.com/v1")
        self._base, self._key = str(url).rstrip("/"), key
        self._client = httpx.AsyncClient(
            transport=transport or httpx.AsyncHTTPTransport(retries=retries, limits=httpx.Limits(max_connections=None)),
            timeout=httpx.Timeout(timeout, connect=min(10.0, timeout)),
        )
        self._windows: dict[str, int] = {}
        self._ask_at = time.monotonic() if tells_windows else float("inf")
        self._asking = asyncio.Lock()

    async def send(
        self, method: str, path: str, *, content: bytes | None = None, headers: Sequence[tuple[str, str]] = (),
        authorization: str | None = None,
    ) -> httpx.Response:  # fmt: skip
        """Return the response, whose body is not read yet. The caller closes it.

        Args:
            method: the method.
            path: the path after the base address, quoted.
            content: the body.
            headers: the headers of the client's request, with small letters. Few of them are sent.
            authorization: the client's own key, which is sent if this server has none.

        Raises:
            Refused: with 502 or 504, if there is no response.
        """
        sent = [(name, value) for name, value in headers if name in FORWARDED or name.startswith(_PREFIXES)]
        sent.append(("accept-encoding", "identity"))  # what is streamed is passed on as it comes
        key = f"Bearer {self._key}" if self._key is not None else authorization
        if key is not None:
            sent.append(("authorization", key))
        if content is not None:
            sent.append(("content-type", "application/json"))
        request = self._client.build_request(method, f"{self._base}/{path}", content=content, headers=sent)
        try:
            return await self._client.send(request, stream=True)
        except httpx.HTTPError as error:
            raise unreachable(error) from None

    def window(self, model: str) -> int | None:
        """Return the context limit of a model, or of the only one that there is; None: the server does not tell it."""
        only = next(iter(self._windows.values())) if len(self._windows) == 1 else None
        return self._windows.get(model, only)

    async def learn_windows(self, authorization: str | None) -> None:
        """Ask the server for the context limits of its models, if it is time to; what it told before holds if it fails.

        Args:
            authorization: as for `send`.
        """
        async with self._asking:
            if time.monotonic() < self._ask_at:
                return
            try:
                async with asyncio.timeout(ASKED_FOR):
                    response = await self.send("GET", "models", authorization=authorization)
                    try:
                        self._windows = windows_of(json.loads(await response.aread())) or self._windows
                    finally:
                        await response.aclose()
            except (Refused, httpx.HTTPError, TimeoutError, ValueError):
                pass  # it may not have such a list
            self._ask_at = time.monotonic() + ASKED_EVERY

    async def close(self) -> None:
        """Close all connections."""
        await self._client.aclose()


def unreachable(error: httpx.HTTPError) -> Refused:
    """Return what a client is told if there is no response, or no whole one."""
    if isinstance(error, httpx.TimeoutException):
        return Refused(504, "upstream did not answer in time", code="upstream_timeout")
    return Refused(502, "upstream cannot be reached, or broke off", code="upstream_unreachable")


def returned(headers: Mapping[str, str]) -> dict[str, str]:
    """Return the headers of a response that go on to the client."""
    return {name: value for name, value in headers.items() if name in RETURNED or name.startswith(_PREFIXES)}


def windows_of(listed: Any) -> dict[str, int]:
    """Return the context limits in a list of models, by their names. A model that tells none is not among them."""
    given = listed.get("data") if isinstance(listed, dict) else None
    windows = {}
    for model in given if isinstance(given, list) else ():
        if isinstance(model, dict) and isinstance(model.get("id"), str):
            meta = model.get("meta")
            fields = {**(meta if isinstance(meta, dict) else {}), **model}
            limits = (fields.get(name) for name in LIMITS)
            limit = next(filter(is_count, limits), None)
            if limit is not None:
                windows[model["id"]] = limit
    return windows
