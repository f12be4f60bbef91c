"""The server of the model: any that speaks OpenAI's API. Requests go there, and answers come back as they are."""

from collections.abc import Mapping, Sequence

import httpx

from shared_core.openai_proxy.refusal import Refused

FORWARDED = ("accept-language", "idempotency-key", "traceparent", "tracestate", "user-agent", "x-request-id")
RETURNED = ("content-type", "retry-after", "retry-after-ms", "x-request-id", "x-should-retry")
"""Headers that pass the server. All others end at it: cookies, addresses, keys of its own."""

_PREFIXES = ("openai-", "x-ratelimit-", "x-stainless-")


class Upstream:
    """Sends requests to the server of the model.

    Args:
        base_url: its address, up to `/v1`.
        key: the key for it. None: the client's own `Authorization`, if the caller passes it on.
        timeout: the seconds without a byte after which a request is given up.
        retries: how often a connection that fails is tried again. A request that arrived is never sent twice.
        transport: answers instead of the network.
    """

    def __init__(
        self, base_url: str, *, key: str | None = None, timeout: float = 600, retries: int = 2,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:  # fmt: skip
        url = httpx.URL(base_url)
        if url.scheme not in ("http", "https") or not url.host:
            raise ValueError(f"upstream {base_url!r} is not a URL: write it like https://api.openai.com/v1")
        self._base, self._key = str(url).rstrip("/"), key
        self._client = httpx.AsyncClient(
            transport=transport or httpx.AsyncHTTPTransport(retries=retries, limits=httpx.Limits(max_connections=None)),
            timeout=httpx.Timeout(timeout, connect=min(10.0, timeout)),
        )

    async def send(
        self, method: str, path: str, *, content: bytes | None = None, headers: Sequence[tuple[str, str]] = (),
        authorization: str | None = None,
    ) -> httpx.Response:  # fmt: skip
        """Return the response, whose body is not read yet. The caller closes it.

        Args:
            method: the method.
            path: the path after the base address, quoted.
            content: the body, which is JSON.
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
