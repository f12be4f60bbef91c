"""Tool calls of a LangChain message as those of the engine, and back."""

import json
from collections.abc import Iterable, Mapping
from typing import Any

from langchain_core.messages import AIMessage

from shared_core.messages import ToolCall

__all__ = ["function_id", "lc_calls", "neutral_calls"]

LcCalls = tuple[list[dict[str, Any]], list[dict[str, Any]]]


def neutral_calls(message: AIMessage) -> tuple[ToolCall, ...]:
    """Return every call that a message asks for, each of which must be answered: invalid ones, too, after the others.

    A `function_call`, from the time before tools, stands for a call where there is none; see `function_id`.
    """
    calls = [_call(call, _as_text(call.get("args"))) for call in message.tool_calls]
    calls += [_call(call, call.get("args")) for call in message.invalid_tool_calls]
    old = message.additional_kwargs.get("function_call")
    if not calls and isinstance(old, Mapping) and isinstance(old.get("name"), str):
        calls = [_call({**old, "id": function_id(old["name"])}, old.get("arguments"))]
    return tuple(calls)


def function_id(name: str) -> str:
    """Return the id that pairs a `function_call` with its `FunctionMessage`, which share only the name."""
    return f"function:{name}"


def lc_calls(calls: Iterable[ToolCall]) -> LcCalls:
    """Return valid and invalid tool calls as LangChain has them: invalid are those whose arguments are no object."""
    valid: list[dict[str, Any]] = []
    invalid: list[dict[str, Any]] = []
    for call in calls:
        arguments = _as_object(call.arguments)
        if arguments is None:
            shown = {"name": call.name, "args": call.arguments, "id": call.id, "error": None}
            invalid.append({**shown, "type": "invalid_tool_call"})
        else:
            valid.append({"name": call.name, "args": arguments, "id": call.id, "type": "tool_call"})
    return valid, invalid


def _call(call: Mapping[str, Any], arguments: Any) -> ToolCall:
    return ToolCall(id=str(call.get("id") or ""), name=str(call.get("name") or ""), arguments=str(arguments or ""))


def _as_text(arguments: Any) -> str:
    try:
        return json.dumps(arguments, ensure_ascii=False, separators=(",", ":"), default=repr)
    except (TypeError, ValueError, RecursionError):
        return repr(arguments)


def _as_object(arguments: str) -> dict[str, Any] | None:
    if not arguments:
        return {}
    try:
        value = json.loads(arguments, strict=False)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None
