"""The arguments and ids of tool calls, in the forms that providers and frameworks write them."""

import json
from collections.abc import Mapping
from typing import Any

from shared_core.messages import ToolCall

__all__ = ["arguments_object", "arguments_text", "compact_json", "function_call_id", "legacy_call"]


def function_call_id(name: str) -> str:
    """Return the id that pairs a `function_call` with its result.

    Function calls, which came before tool calls, have no id: a call and its result share only the function's name.
    """
    return f"function:{name}"


def legacy_call(call: Mapping[str, Any]) -> ToolCall | None:
    """Return the call that a `function_call` is; None if it does not name its function."""
    name = call.get("name")
    if not isinstance(name, str):
        return None
    return ToolCall(id=function_call_id(name), name=name, arguments=arguments_text(call.get("arguments")))


def arguments_text(arguments: Any) -> str:
    """Return arguments as text: text as it is, nothing as the empty text, anything else as JSON."""
    return arguments or "" if arguments is None or isinstance(arguments, str) else compact_json(arguments)


def compact_json(arguments: Any) -> str:
    """Return arguments as JSON text, with the `repr` of whatever JSON cannot express; never raises.

    The text is only stored and counted. A call with arguments of a model's own making must not stop the conversation.
    """
    try:
        return json.dumps(arguments, ensure_ascii=False, separators=(",", ":"), default=repr)
    except (TypeError, ValueError, RecursionError):
        return repr(arguments)


def arguments_object(text: str) -> dict[str, Any] | None:
    """Return the JSON object that a call's arguments are; None if they are something else.

    No text at all is an empty object. Control characters within strings are accepted, because models write them.
    """
    if not text:
        return {}
    try:
        value = json.loads(text, strict=False)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None
