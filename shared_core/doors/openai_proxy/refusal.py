"""A request that is refused: the status, and the JSON in which OpenAI's API tells an error."""

import json
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from shared_core.errors import InfiniteMemoryError

_KINDS = {401: "authentication_error", 403: "permission_error", 404: "not_found_error"}


class Refused(InfiniteMemoryError):
    """A request is not answered.

    Args:
        status: the status of the response.
        message: what is wrong and what to do. It goes to the client: it quotes no content of anybody.
        code: a word for programs, such as `"context_length_exceeded"`.
        headers: headers of the response, such as `Retry-After`.
    """

    def __init__(
        self, status: int, message: str, *, code: str | None = None,
        headers: Mapping[str, str] = MappingProxyType({}),
    ) -> None:  # fmt: skip
        super().__init__(message)
        self.status = status
        self.message = message
        self.code = code
        self.headers = dict(headers)

    def body(self) -> bytes:
        """Return the body of the response."""
        return json.dumps(self.data()).encode()

    def data(self) -> dict[str, Any]:
        """Return the body of the response as plain data."""
        kind = _KINDS.get(self.status, "invalid_request_error" if self.status < 500 else "server_error")
        return {"error": {"message": self.message, "type": kind, "param": None, "code": self.code}}
