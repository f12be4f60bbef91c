"""Convert LangChain's message dicts and LlamaIndex's `SimpleChatStore` to the OpenAI format."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from shared_core.display import short
from shared_core.sharing.format import LineError

LANGCHAIN_ROLES = {"human": "user", "ai": "assistant", "system": "system", "tool": "tool", "function": "function"}
CHAT_ROLES = {"assistant": "assistant", "ai": "assistant", "system": "system"}

_EMPTY: Sequence[Any] = (None, "", [], {}, False)
_LANGCHAIN_READ = {"content", "type", "id", "name", "tool_calls", "tool_call_id", "role", "additional_kwargs"}


def is_langchain(whole: Any) -> bool:
    """Return whether a JSON value is a list of LangChain's message dicts."""
    return (
        isinstance(whole, list)
        and bool(whole)
        and all(isinstance(one, dict) and one.keys() == {"type", "data"} for one in whole)
    )


def langchain_entry(message: Mapping[str, Any]) -> dict[str, Any]:
    """Return a message in the OpenAI format; `LineError` if that is impossible."""
    return _entry(str(message["type"]), message["data"])


def _entry(kind: str, data: Any) -> dict[str, Any]:
    kind = kind.removesuffix("MessageChunk").lower()
    if not isinstance(data, dict):
        raise LineError(f"data is {short(data)}; expected an object with the message's fields")
    role = CHAT_ROLES.get(str(data.get("role")).lower(), "user") if kind == "chat" else LANGCHAIN_ROLES.get(kind)
    if role is None:
        raise LineError(f"unknown type {short(kind)}; expected one of {', '.join([*LANGCHAIN_ROLES, 'chat'])}")
    more = data.get("additional_kwargs")
    calls = data.get("tool_calls") or []
    rest = {key: value for key, value in data.items() if key not in _LANGCHAIN_READ and value not in _EMPTY}
    old = more.get("function_call") if isinstance(more, dict) and not calls else None
    return rest | {
        "role": role,
        "content": data.get("content") or None,
        "id": data.get("id") or None,
        "name": data.get("name"),
        "tool_calls": [_langchain_call(call) for call in calls] if isinstance(calls, list) else calls,
        "tool_call_id": data.get("tool_call_id") or ("" if role == "tool" else None),
        "function_call": old,
    }


def _langchain_call(call: Any) -> Any:
    if not isinstance(call, dict) or "args" not in call:
        return call
    arguments = call["args"] if isinstance(call["args"], str) else json.dumps(call["args"], ensure_ascii=False)
    return {"id": call.get("id") or "", "function": {"name": call.get("name"), "arguments": arguments}}


LLAMA_INDEX_ROLES = {"chatbot": "assistant", "model": "assistant"}


def is_simple_chat_store(whole: Any) -> bool:
    """Return whether a JSON value is a `SimpleChatStore`."""
    return isinstance(whole, dict) and isinstance(whole.get("store"), dict) and "role" not in whole


def llama_index_entry(message: Any) -> dict[str, Any]:
    """Return a message in the OpenAI format; `LineError` if that is impossible."""
    if not isinstance(message, dict):
        raise LineError(f'{short(message)} is not a message; expected an object with "role" and "blocks"')
    more = message.get("additional_kwargs") or {}
    blocks = message.get("blocks")
    if not isinstance(more, dict) or not isinstance(blocks, list | None):
        raise LineError(f"{short(message)} is not a LlamaIndex message")
    calls = [_llama_index_call(block) for block in blocks or () if _kind(block) == "tool_call"]
    older = more.get("tool_calls") or []
    role, name = message.get("role"), more.get("name")
    answers = more.get("tool_call_id")
    return {
        "role": LLAMA_INDEX_ROLES.get(str(role), role),
        "content": message.get("content")
        if blocks is None
        else [_part(block) for block in blocks if _is_content(block)],
        "name": name if isinstance(name, str) and name else None,
        "tool_calls": calls or ([_openai_call(call) for call in older] if isinstance(older, list) else older),
        "tool_call_id": answers or (f"function:{name}" if role in ("tool", "function") else None),
        "additional_kwargs": {key: value for key, value in more.items() if key not in _LLAMA_INDEX_READ} or None,
    }


_LLAMA_INDEX_READ = {"name", "tool_call_id", "tool_calls"}


def _kind(block: Any) -> Any:
    return block.get("block_type") if isinstance(block, dict) else None


def _is_content(block: Any) -> bool:
    return bool(_kind(block) != "tool_call")


def _part(block: Any) -> Any:
    """Return a block as a part of the content. A block that is not text is kept as it is."""
    if _kind(block) == "text":
        return {"type": "text", "text": block.get("text")}
    return block | {"type": str(_kind(block))} if isinstance(block, dict) else block


def _llama_index_call(block: Mapping[str, Any]) -> dict[str, Any]:
    name, given = block.get("tool_name"), block.get("tool_kwargs") or {}
    arguments = given if isinstance(given, str) else json.dumps(given, ensure_ascii=False)
    return {"id": block.get("tool_call_id") or f"function:{name}", "function": {"name": name, "arguments": arguments}}


def _openai_call(call: Any) -> Any:
    """Return a call of an older version, which stored it as OpenAI's client returned it, with an id."""
    return call if not isinstance(call, dict) or call.get("id") else call | {"id": ""}
