"""The body of a request: read within limits of size and time, and only if its headers say that it is JSON."""

import asyncio

from starlette.requests import Request

from shared_core.doors.openai_proxy.refusal import Refused

__all__ = ["received"]

DIGITS = 15
"""The digits of the longest length of a body that is read as a number."""


async def received(request: Request, *, most_bytes: int, seconds: float) -> bytes:
    """Return the body of a request.

    Args:
        request: the request.
        most_bytes: how large its body may be.
        seconds: how long it may take to arrive.

    Raises:
        Refused: it is too large or too slow, or no JSON by its headers.
    """
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":  # a web page of another origin can send others than JSON without asking
        raise Refused(415, "expected the header Content-Type: application/json")
    if request.headers.get("content-encoding", "identity").lower() != "identity":
        raise Refused(415, "compressed bodies are not read")
    too_large = Refused(413, f"the body is larger than {most_bytes} bytes", code="request_too_large")
    length = request.headers.get("content-length", "0")
    if len(length) > DIGITS or (length.isdecimal() and int(length) > most_bytes):
        raise too_large
    body = bytearray()
    try:
        async with asyncio.timeout(seconds):
            async for part in request.stream():
                body += part
                if len(body) > most_bytes:
                    raise too_large
    except TimeoutError:
        raise Refused(408, f"the body took longer than {seconds:g} seconds") from None
    return bytes(body)
