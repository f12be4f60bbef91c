"""Responses, their items and their events, as OpenAI's Responses API writes them."""

import json
from collections.abc import Mapping, Sequence
from typing import Any
from uuid import uuid4


def response(output: Sequence[Mapping[str, Any]], status: str = "completed", **fields: Any) -> dict[str, Any]:
    """Return a response with an id of its own."""
    made = {"id": f"resp_{uuid4().hex}", "object": "response", "created_at": 7, "status": status, "model": "scripted"}
    rest: dict[str, Any] = {
        "error": None,
        "incomplete_details": None,
        "instructions": None,
        "metadata": {},
        "temperature": 1.0,
    }
    usage = {
        "input_tokens": 1, "input_tokens_details": {"cached_tokens": 0}, "output_tokens": 1,
        "output_tokens_details": {"reasoning_tokens": 0}, "total_tokens": 2,
    }  # fmt: skip
    tools = {"parallel_tool_calls": True, "tool_choice": "auto", "tools": [], "top_p": 1.0, "truncation": "disabled"}
    return {**made, **rest, **tools, "output": [*output], "usage": usage, **fields}


def said_item(text: str, **fields: Any) -> dict[str, Any]:
    """Return the item of what the model says."""
    part = {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
    made = {"id": f"msg_{uuid4().hex}", "type": "message", "status": "completed", "role": "assistant"}
    return {**made, "content": [part], **fields}


def call_item(name: str, arguments: str, call_id: str = "call-1", **fields: Any) -> dict[str, Any]:
    """Return the item of a call."""
    made = {"id": f"fc_{uuid4().hex}", "type": "function_call", "status": "completed"}
    return {**made, "call_id": call_id, "name": name, "arguments": arguments, **fields}


def reasoning_item(encrypted: str | None = None) -> dict[str, Any]:
    """Return the item of what the model thinks."""
    own = {} if encrypted is None else {"encrypted_content": encrypted}
    return {"id": f"rs_{uuid4().hex}", "type": "reasoning", "summary": [], **own}


def numbered(events: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return events with their numbers."""
    return [{**event, "sequence_number": number} for number, event in enumerate(events)]


def spoken_events(whole: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the events of a response that is streamed, its texts and arguments in pieces of three characters."""
    begun = {**whole, "status": "in_progress", "output": [], "usage": None}
    events: list[dict[str, Any]] = [
        {"type": f"response.{state}", "response": begun} for state in ("created", "in_progress")
    ]
    for index, item in enumerate(whole["output"]):
        where: dict[str, Any] = {"output_index": index, "item_id": item["id"]}
        empty: dict[str, Any] = (
            {"content": []} if "content" in item else {"arguments": ""} if "arguments" in item else {}
        )
        added = {**item, "status": "in_progress", **empty}
        events.append({"type": "response.output_item.added", "output_index": index, "item": added})
        events += _pieces(item, where)
        events.append({"type": "response.output_item.done", "output_index": index, "item": item})
    return numbered([*events, {"type": f"response.{whole['status']}", "response": whole}])


def _pieces(item: Mapping[str, Any], where: Mapping[str, Any]) -> list[dict[str, Any]]:
    if item["type"] == "function_call":
        kind, text = "response.function_call_arguments", item["arguments"]
        pieces = [{"type": f"{kind}.delta", **where, "delta": piece} for piece in cut(text)]
        return [*pieces, {"type": f"{kind}.done", **where, "arguments": text, "name": item["name"]}]
    events: list[dict[str, Any]] = []
    for number, part in enumerate(item.get("content", ())):
        at = {**where, "content_index": number}
        events.append({"type": "response.content_part.added", **at, "part": {**part, "text": ""}})
        words = [
            {"type": "response.output_text.delta", **at, "delta": one, "logprobs": []} for one in cut(part["text"])
        ]
        done = {"type": "response.output_text.done", **at, "text": part["text"], "logprobs": []}
        events += [*words, done, {"type": "response.content_part.done", **at, "part": part}]
    return events


def cut(text: str) -> list[str]:
    """Return a text in pieces of three characters."""
    return [text[at : at + 3] for at in range(0, len(text), 3)]


def named(event: Mapping[str, Any]) -> str:
    """Return an event as it is sent."""
    return f"event: {event['type']}\ndata: {json.dumps(event)}\n\n"
