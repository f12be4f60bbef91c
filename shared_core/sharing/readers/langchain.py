"""LangChain's messages as `messages_to_dict` writes them, as entries of the OpenAI format."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from shared_core.sharing.format import Wrong
from shared_core.sharing.readers.openai import short

__all__ = ["is_langchain", "langchain_entry"]

ROLES = {"human": "user", "ai": "assistant", "system": "system", "tool": "tool", "function": "function"}
CHAT_ROLES = {"assistant": "assistant", "ai": "assistant", "system": "system"}

_UNSAID: Sequence[Any] = (None, "", [], {}, False)
_READ = {"content", "type", "id", "name", "tool_calls", "tool_call_id", "role", "additional_kwargs"}


def is_langchain(whole: Any) -> bool:
    """Return whether a JSON value is a list of such messages."""
    return (
        isinstance(whole, list)
        and bool(whole)
        and all(isinstance(one, dict) and one.keys() == {"type", "data"} for one in whole)
    )


def langchain_entry(message: Mapping[str, Any]) -> dict[str, Any]:
    """Return a message in the OpenAI format; `Wrong` if it has no place there."""
    return _entry(str(message["type"]), message["data"])


def _entry(kind: str, data: Any) -> dict[str, Any]:
    kind = kind.removesuffix("MessageChunk").lower()
    if not isinstance(data, dict):
        raise Wrong(f"data is {short(data)}; expected an object with the message's fields")
    role = CHAT_ROLES.get(str(data.get("role")).lower(), "user") if kind == "chat" else ROLES.get(kind)
    if role is None:
        raise Wrong(f"unknown type {short(kind)}; expected one of {', '.join([*ROLES, 'chat'])}")
    more = data.get("additional_kwargs")
    calls = data.get("tool_calls") or []
    rest = {key: value for key, value in data.items() if key not in _READ and value not in _UNSAID}
    old = more.get("function_call") if isinstance(more, dict) and not calls else None
    return rest | {
        "role": role,
        "content": data.get("content"),
        "id": data.get("id") or None,
        "name": data.get("name"),
        "tool_calls": [_call(call) for call in calls] if isinstance(calls, list) else calls,
        "tool_call_id": data.get("tool_call_id") or ("" if role == "tool" else None),
        "function_call": old,
    }


def _call(call: Any) -> Any:
    if not isinstance(call, dict) or "args" not in call:
        return call
    arguments = call["args"] if isinstance(call["args"], str) else json.dumps(call["args"], ensure_ascii=False)
    return {"id": call.get("id") or "", "function": {"name": call.get("name"), "arguments": arguments}}
