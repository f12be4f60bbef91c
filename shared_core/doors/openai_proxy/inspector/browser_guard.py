"""What keeps other web pages out: checks of a request's headers, and headers of every response."""

from collections.abc import Mapping, Sequence
from urllib.parse import urlsplit

from starlette.requests import Request

from shared_core.doors.openai_proxy.refusal import Refused

__all__ = ["MARK", "SAFE", "check_origin"]

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
