"""LlamaIndex's `SimpleChatStore` files, as entries of the OpenAI format."""

import json
from collections.abc import Mapping
from typing import Any

from shared_core.sharing.format import Wrong
from shared_core.sharing.readers.openai import short

__all__ = ["is_simple_chat_store", "llama_index_entry"]

ROLES = {"chatbot": "assistant", "model": "assistant"}


def is_simple_chat_store(whole: Any) -> bool:
    """Return whether a JSON value is such a store."""
    return isinstance(whole, dict) and isinstance(whole.get("store"), dict) and "role" not in whole


def llama_index_entry(message: Any) -> dict[str, Any]:
    """Return a message in the OpenAI format; `Wrong` if it has no place there."""
    if not isinstance(message, dict):
        raise Wrong(f'{short(message)} is not a message; expected an object with "role" and "blocks"')
    more = message.get("additional_kwargs") or {}
    blocks = message.get("blocks")
    if not isinstance(more, dict) or not isinstance(blocks, list | None):
        raise Wrong(f"{short(message)} is not a message of LlamaIndex")
    calls = [_call(block) for block in blocks or () if _kind(block) == "tool_call"]
    role, name = message.get("role"), more.get("name")
    answers = more.get("tool_call_id")
    return {
        "role": ROLES.get(str(role), role),
        "content": message.get("content") if blocks is None else [_part(block) for block in blocks if _said(block)],
        "name": name if isinstance(name, str) and name else None,
        "tool_calls": calls or [_old(call) for call in more.get("tool_calls") or ()],
        "tool_call_id": answers or (f"function:{name}" if role in ("tool", "function") else None),
        "additional_kwargs": {key: value for key, value in more.items() if key not in _READ} or None,
    }


_READ = {"name", "tool_call_id", "tool_calls"}


def _kind(block: Any) -> Any:
    return block.get("block_type") if isinstance(block, dict) else None


def _said(block: Any) -> bool:
    return bool(_kind(block) != "tool_call")


def _part(block: Any) -> Any:
    """Return a block as a part of the content; of other kinds than text, all of it is kept."""
    if _kind(block) == "text":
        return {"type": "text", "text": block.get("text")}
    return block | {"type": str(_kind(block))} if isinstance(block, dict) else block


def _call(block: Mapping[str, Any]) -> dict[str, Any]:
    name, given = block.get("tool_name"), block.get("tool_kwargs") or {}
    arguments = given if isinstance(given, str) else json.dumps(given, ensure_ascii=False)
    return {"id": block.get("tool_call_id") or f"function:{name}", "function": {"name": name, "arguments": arguments}}


def _old(call: Any) -> Any:
    """Return a call as older versions keep it: as the client of OpenAI had it."""
    return call if not isinstance(call, dict) or call.get("id") else call | {"id": ""}
