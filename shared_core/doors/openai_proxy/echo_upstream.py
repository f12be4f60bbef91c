"""A model server without a model: it quotes the line of the prompt that answers, and needs no network and no key."""

import json
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any
from uuid import uuid4

import httpx
from typing_extensions import override

from shared_core.doors.interop.echo import echo, words
from shared_core.doors.openai_proxy.event_stream import DONE, event, named_event
from shared_core.doors.openai_proxy.responses_items import grouped
from shared_core.messages import Message, message_list

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
    """Answers chat completions and responses as the server of a model does, in one piece or word by word."""

    @override
    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        path = request.url.path
        if path.endswith("/chat/completions"):
            return _completion(json.loads(await request.aread()))
        if path.endswith("/responses"):
            return _response(json.loads(await request.aread()))
        if path.endswith("/models"):
            return httpx.Response(200, json={"object": "list", "data": [_MODEL]})
        if path.endswith(f"/models/{ECHO}"):
            return httpx.Response(200, json=_MODEL)
        return httpx.Response(404, json={"error": {"message": "there is no such model", "type": "not_found_error"}})


_MODEL = {"id": ECHO, "object": "model", "created": 0, "owned_by": "infinite-memory"}


def _said(shown: Sequence[Message], instructions: Any = None) -> str:
    """Return the answer to a prompt."""
    told = [("system", instructions)] if isinstance(instructions, str) else []
    return echo([*told, *((message.role, message.content) for message in shown)])


def _completion(body: Mapping[str, Any]) -> httpx.Response:
    text = _said(message_list(body["messages"]))
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
    return _streamed([*map(event, chunks), event(DONE)])


def _streamed(events: list[bytes]) -> httpx.Response:
    return httpx.Response(200, headers={"content-type": "text/event-stream"}, stream=_Events(events))


def _response(body: Mapping[str, Any]) -> httpx.Response:
    given = body.get("input") or []
    items = [{"type": "message", "role": "user", "content": given}] if isinstance(given, str) else given
    text = _said(grouped(items).messages, body.get("instructions"))  # the items that no memory reads say nothing
    said = {"id": f"msg_{uuid4().hex}", "type": "message", "role": "assistant", "status": "completed"}
    item = {**said, "content": [_text_part(text)]}
    own = {"id": f"resp_{uuid4().hex}", "object": "response", "created_at": 0, "model": body.get("model") or ECHO}
    asked = {"tools": body.get("tools") or [], "tool_choice": "auto", "parallel_tool_calls": True}
    begun = {**own, **asked, "status": "in_progress", "output": []}
    whole = {**begun, "status": "completed", "output": [item]}
    if not body.get("stream"):
        return httpx.Response(200, json=whole)
    at: dict[str, Any] = {"item_id": said["id"], "output_index": 0, "content_index": 0}
    begins = {"output_index": 0, "item": {**said, "status": "in_progress", "content": []}}
    parts: list[tuple[str, dict[str, Any]]] = [
        ("created", {"response": begun}),
        ("output_item.added", begins),
        ("content_part.added", {**at, "part": _text_part("")}),
        *(("output_text.delta", {**at, "delta": word, "logprobs": []}) for word in words(text)),
        ("output_text.done", {**at, "text": text, "logprobs": []}),
        ("content_part.done", {**at, "part": _text_part(text)}),
        ("output_item.done", {"output_index": 0, "item": item}),
        ("completed", {"response": whole}),
    ]
    events = ({"type": f"response.{kind}", "sequence_number": n, **more} for n, (kind, more) in enumerate(parts))
    return _streamed([*map(named_event, events)])


def _text_part(text: str) -> dict[str, Any]:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
