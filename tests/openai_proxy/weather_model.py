"""The script of a model with a small window: it calls a tool for the weather, and finds a code in what it is sent."""

import json
from typing import Any

from starlette.responses import JSONResponse, Response

from tests.openai_proxy.servers import chunk, completion, stream

TOOL = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object", "properties": {}}}}
CALL = {"id": "call-1", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Porto"}'}}

WINDOW = 4096
"""The tokens of a prompt and its reply, at four characters each."""

FACT = "My locker code is 4471."
QUESTION = "What is my locker code?"


def small_talk(turns: int) -> list[str]:
    """Return what a user says in a conversation: the fact in the third turn, the question for it in the last one."""
    told = [f"Small talk number {turn} about tea, rain and trains. " * 5 for turn in range(1, turns)]
    told[2] = FACT
    return [*told, QUESTION]


def weather_model(body: dict[str, Any]) -> Response | str:
    """Call the tool if there is one, then say what it returned; else say the code, or the number of messages."""
    if len(json.dumps(body["messages"])) > 4 * WINDOW:
        told = {"message": "the prompt is too long", "type": "x", "param": None, "code": "context_length_exceeded"}
        return JSONResponse({"error": told}, 400)
    newest = body["messages"][-1]
    if newest["role"] == "tool":
        return f"It is {newest['content']}."
    if QUESTION in newest["content"]:  # what was recalled stands before it
        return "4471." if FACT in json.dumps(body["messages"]) else "I do not know."
    if "tools" not in body:
        return f"I see {len(body['messages'])}."
    return _called_in_pieces() if body.get("stream") else _called()


def _called() -> Response:
    return JSONResponse(completion({"content": None, "tool_calls": [CALL]}, "tool_calls"))


def _called_in_pieces() -> Response:
    begun = {"index": 0, **CALL, "function": {"name": "weather", "arguments": ""}}
    more = [{"index": 0, "function": {"arguments": part}} for part in ('{"city"', ': "Porto"}')]
    deltas: list[dict[str, Any]] = [
        {"role": "assistant", "content": None, "tool_calls": [begun]},
        *({"tool_calls": [one]} for one in more),
    ]
    return stream([*(chunk(delta) for delta in deltas), chunk({}, "tool_calls"), "[DONE]"])
