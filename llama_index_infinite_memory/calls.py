"""Tool calls of a LlamaIndex message, in whatever form its model left them, as those of the engine, and back."""

import json
from collections.abc import Iterable, Mapping
from typing import Any

from llama_index.core.base.llms import types
from llama_index.core.base.llms.types import ChatMessage

from shared_core.messages import ToolCall

__all__ = ["call_blocks", "function_id", "neutral_calls"]


def neutral_calls(message: ChatMessage) -> tuple[ToolCall, ...]:
    """Return every call that a message asks for, once.

    Calls are blocks, or stand in `additional_kwargs["tool_calls"]` as OpenAI's objects or mappings, Anthropic's
    mappings or LlamaIndex's own selections; integrations of a time between have both. A `function_call`, from the time
    before tools, stands for a call where there is none.
    """
    calls = [_from_block(block) for block in message.blocks if getattr(block, "block_type", "") == "tool_call"]
    known = {call.id for call in calls}
    others = message.additional_kwargs.get("tool_calls")
    if isinstance(others, list | tuple):
        found = [call for call in map(_from_any, others) if call is not None]
        calls += [call for call in found if call.id not in known or (not call.id and not known)]
    old = _fields(message.additional_kwargs.get("function_call"))
    if not calls and isinstance(old.get("name"), str):
        calls = [ToolCall(id=function_id(old["name"]), name=old["name"], arguments=_as_text(old.get("arguments")))]
    return tuple(calls)


def function_id(name: str) -> str:
    """Return the id that pairs a `function_call` with its result, which share only the name."""
    return f"function:{name}"


def call_blocks(calls: Iterable[ToolCall]) -> tuple[list[Any], dict[str, Any]]:
    """Return tool calls as LlamaIndex has them: blocks, or, where it knows none, an entry of `additional_kwargs`."""
    given = list(calls)
    block = getattr(types, "ToolCallBlock", None)
    if block is not None:
        return [
            block(tool_call_id=call.id or None, tool_name=call.name, tool_kwargs=_as_object(call.arguments))
            for call in given
        ], {}
    form = [
        {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
        for call in given
    ]
    return [], {"tool_calls": form} if form else {}


def _from_block(block: Any) -> ToolCall:
    return ToolCall(
        id=str(block.tool_call_id or ""), name=str(block.tool_name), arguments=_as_text(block.tool_kwargs or "")
    )


def _from_any(value: Any) -> ToolCall | None:
    fields = _fields(value)
    function = _fields(fields.get("function")) or fields
    name = _first(function, "name", "tool_name")
    if not isinstance(name, str):
        return None
    arguments = _first(function, "arguments", "args", "input", "tool_kwargs")
    return ToolCall(
        id=str(_first(fields, "id", "tool_id", "tool_call_id") or ""), name=name, arguments=_as_text(arguments)
    )


def _fields(value: Any) -> Mapping[str, Any]:
    if isinstance(value, Mapping):
        return value
    return vars(value) if hasattr(value, "__dict__") else {}


def _first(fields: Mapping[str, Any], *names: str) -> Any:
    return next((fields[name] for name in names if fields.get(name) is not None), None)


def _as_text(arguments: Any) -> str:
    if arguments is None or isinstance(arguments, str):
        return arguments or ""
    try:
        return json.dumps(arguments, ensure_ascii=False, separators=(",", ":"), default=repr)
    except (TypeError, ValueError, RecursionError):
        return repr(arguments)


def _as_object(arguments: str) -> dict[str, Any] | str:
    if not arguments:
        return {}
    try:
        value = json.loads(arguments, strict=False)
    except (ValueError, RecursionError):
        return arguments
    return value if isinstance(value, dict) else arguments
