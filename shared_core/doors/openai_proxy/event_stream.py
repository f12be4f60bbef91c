"""The events of a stream: where each one ends, and what it holds."""

import json
import re
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

from shared_core.doors.openai_proxy.refusal import Refused

MOST_BYTES = 16 * 2**20
"""The bytes of the largest event. Images come in events of a few megabytes."""

DONE = "[DONE]"
"""The data of the event that ends a stream."""

_END = re.compile(rb"(?:\r\n|\n|\r(?!\n)){2}")
_LINE = re.compile(r"\r\n|\n|\r")


class EventSplitter:
    """Cuts the bytes of a stream after each event. No byte is changed or lost."""

    def __init__(self) -> None:
        self._rest = bytearray()
        self._looked = 0

    def feed(self, data: bytes) -> list[bytes]:
        """Return the events that end in these bytes, each with the blank line at its end.

        Raises:
            Refused: with 502, if an event is too long.
        """
        self._rest += data
        ends = [found.end() for found in _END.finditer(self._rest, max(0, self._looked - 3))]
        events = [bytes(self._rest[start:end]) for start, end in pairwise([0, *ends])]
        del self._rest[: ends[-1] if ends else 0]
        self._looked = len(self._rest)
        if self._looked > MOST_BYTES:
            raise Refused(502, "upstream sent an event that is too long")
        return events

    def rest(self) -> bytes:
        """Return what follows the last event, and forget it."""
        rest, self._rest, self._looked = bytes(self._rest), bytearray(), 0
        return rest


def data_of(event: bytes) -> str | None:
    """Return the data of an event; None: it has none, such as a comment that keeps the connection open."""
    lines = _LINE.split(event.decode("utf-8", "replace"))
    data = [line[5:].removeprefix(" ") for line in lines if line.startswith("data:")]
    return "\n".join(data) if data else None


def chunk_of(data: str) -> dict[str, Any] | None:
    """Return the chunk that an event holds; None: the data is no JSON object."""
    try:
        chunk = json.loads(data)
    except (ValueError, RecursionError):
        return None
    return chunk if isinstance(chunk, dict) else None


def event(data: Any) -> bytes:
    """Return the bytes of an event that holds this data, a text or what becomes JSON."""
    return f"data: {data if isinstance(data, str) else json.dumps(data)}\n\n".encode()


def named_event(data: Mapping[str, Any]) -> bytes:
    """Return the bytes of an event that is named by its type, as those of the Responses API are."""
    return f"event: {data['type']}\ndata: {json.dumps(data)}\n\n".encode()
