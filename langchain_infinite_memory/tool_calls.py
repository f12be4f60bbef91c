"""The tool calls of a LangChain message as the engine's, and back."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, ToolMessage

from shared_core.doors.interop.content import arguments_object, compact_json
from shared_core.messages import ToolCall

LangChainCalls = tuple[list[dict[str, Any]], list[dict[str, Any]]]
"""The `tool_calls` and the `invalid_tool_calls` of a message."""


def engine_calls(message: BaseMessage) -> tuple[ToolCall, ...]:
    """Return every call of a message. Invalid calls come last; each of them must be answered, too."""
    if not isinstance(message, AIMessage):
        return ()
    valid = (_call(call, compact_json(call.get("args"))) for call in message.tool_calls)
    return (*valid, *(_call(call, call.get("args")) for call in message.invalid_tool_calls))


def langchain_calls(calls: Iterable[ToolCall]) -> LangChainCalls:
    """Return calls as LangChain writes them. A call is invalid if its arguments are not a JSON object."""
    valid: list[dict[str, Any]] = []
    invalid: list[dict[str, Any]] = []
    for call in calls:
        arguments = arguments_object(call.arguments)
        if arguments is None:
            shown = {"name": call.name, "args": call.arguments, "id": call.id, "error": None}
            invalid.append({**shown, "type": "invalid_tool_call"})
        else:
            valid.append({"name": call.name, "args": arguments, "id": call.id, "type": "tool_call"})
    return valid, invalid


def with_added_results(stored: Sequence[BaseMessage], sent: Sequence[BaseMessage]) -> Sequence[BaseMessage]:
    """Return a graph's messages with the results that LangChain adds for invalid calls, which no tool answers.

    LangChain adds them to a request, and to the state only after it. They get their ids here, so that they have the
    same ones there. A call without them would not be sent, nor the other results beside it.
    """
    asked: dict[str | None, str] = {}
    for message in stored:
        if isinstance(message, AIMessage) and message.id is not None:
            for call in message.invalid_tool_calls:
                asked.setdefault(call["id"], message.id)
    known = {message.id for message in stored}
    added: dict[str | None, list[BaseMessage]] = {}
    for message in sent if asked else ():
        if isinstance(message, ToolMessage) and (caller := asked.get(message.tool_call_id)) is not None:
            id_ = f"{caller}/{message.tool_call_id}"
            if message.id in (None, id_) and id_ not in known:
                message.id = id_
                added.setdefault(caller, []).append(message)
    return [one for message in stored for one in (message, *added.get(message.id, ()))] if added else stored


def _call(call: Mapping[str, Any], arguments: Any) -> ToolCall:
    return ToolCall(id=str(call.get("id") or ""), name=str(call.get("name") or ""), arguments=str(arguments or ""))
