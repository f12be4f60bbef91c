"""A model server without a model: it quotes the line of the prompt that answers, and needs no network and no key."""

import json
from collections.abc import AsyncIterator, Mapping
from typing import Any

import httpx
from typing_extensions import override

from shared_core.interop.echo import echo, words
from shared_core.messages import message_list
from shared_core.openai_proxy.event_stream import DONE, event

ECHO = "echo"
"""The name of the model."""


class _Events(httpx.AsyncByteStream):
    def __init__(self, events: list[bytes]) -> None:
        self._events = events

    @override
    async def __aiter__(self) -> AsyncIterator[bytes]:
        for one in self._events:
            yield one


class EchoTransport(httpx.AsyncBaseTransport):
    """Answers chat completions as the server of a model does, in one piece or word by word."""

    @override
    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        path = request.url.path
        if path.endswith("/chat/completions"):
            return _completion(json.loads(await request.aread()))
        if path.endswith("/models"):
            return httpx.Response(200, json={"object": "list", "data": [_MODEL]})
        if path.endswith(f"/models/{ECHO}"):
            return httpx.Response(200, json=_MODEL)
        return httpx.Response(404, json={"error": {"message": "there is no such model", "type": "not_found_error"}})


_MODEL = {"id": ECHO, "object": "model", "created": 0, "owned_by": "infinite-memory"}


def _completion(body: Mapping[str, Any]) -> httpx.Response:
    text = echo([(message.role, message.content) for message in message_list(body["messages"])])
    made = {"id": "chatcmpl-echo", "created": 0, "model": body.get("model") or ECHO}
    if not body.get("stream"):
        message = {"role": "assistant", "content": text}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        return httpx.Response(200, json={**made, "object": "chat.completion", "choices": [choice]})
    made["object"] = "chat.completion.chunk"
    deltas: list[tuple[dict[str, str], str | None]] = [({"role": "assistant", "content": ""}, None)]
    deltas += [({"content": word}, None) for word in words(text)]
    deltas.append(({}, "stop"))
    chunks = [
        {**made, "choices": [{"index": 0, "delta": delta, "finish_reason": end}]} for delta, end in deltas
    ]  # fmt: skip
    events = [*map(event, chunks), event(DONE)]
    return httpx.Response(200, headers={"content-type": "text/event-stream"}, stream=_Events(events))
