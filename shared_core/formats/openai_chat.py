"""Messages of OpenAI's chat completions, as fields and back."""

import json
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from shared_core.display import short
from shared_core.formats.fields import CallFields, MessageFields, own_copy, role_named
from shared_core.formats.parts import (
    CHAT_PARTS,
    OPENAI_FORMAT,
    RESPONSES_FORMAT,
    chat_parts,
    check_parts,
    media_tokens,
    text_of,
)

ROLES = ("system", "developer", "user", "assistant", "tool", "function")
"""The roles that chat completions know. Others that mean one of them are read, and never written."""

OWN_FIELDS = ("id", "turn_id", "grounding", "pinned", "media_tokens")
"""Fields of `Message` that a dict may hold as well. A request has no room for them."""

_TIMES = ("created_at", "timestamp")
_NOTHING: tuple[Any, ...] = (None, [])
_NOT_IN_NAMES = re.compile(r"[\s<|\\/>]")
"""Characters that the API refuses in a name."""

# Reading


def read_chat(item: Mapping[str, Any]) -> MessageFields:
    """Return the fields of a message.

    Whatever `write_chat` would not give back from the other fields is kept in the payload. A null means the same as no
    value, and so does an empty list, except as the content. Parts of unknown kinds are kept, too.

    Raises:
        ValueError: the role is unknown, a field has another form, or the text is not in "content" but in "text".
    """
    role = role_named(item.get("role"))
    if item["role"] not in ROLES:
        item = {**item, "role": role}
    if "content" not in item and "text" in item:
        raise ValueError('the message has "text"; expected the text as "content"')
    content = item.get("content")
    fields: MessageFields = {
        "role": role,
        "content": text_of(content) if content is not None else _spoken(item),
        "name": item.get("name"),
        "created_at": _time(item),
        "tool_calls": _calls(item),
        "tool_call_id": _answered(item, role),
        "media_tokens": media_tokens(content),
    }
    own: Any = {key: item[key] for key in OWN_FIELDS if item.get(key) is not None}
    if rest := _rest(item, fields):
        fields["payload"] = {"format": OPENAI_FORMAT, "data": rest}
    fields.update(own)
    return fields


def check_chat(item: Mapping[str, Any]) -> None:
    """Raise ValueError if a message has no content, or parts that chat completions do not have."""
    if "choices" in item or item.get("object") == "response":
        part = "completion.choices[0].message" if "choices" in item else "response.output"
        raise ValueError(f"a whole reply is no message; pass {part}")
    check_parts(item.get("content"), CHAT_PARTS)
    beside = ("tool_calls", "function_call", "refusal", "audio")
    if "role" in item and "content" not in item and "text" not in item and not any(item.get(key) for key in beside):
        raise ValueError('the message has no "content"; write its text, or None if it only calls tools')


def _spoken(item: Mapping[str, Any]) -> str:
    """Return what an assistant said in another field than the content: a refusal, or the transcript of its voice."""
    audio = item.get("audio")
    said = item.get("refusal") or (audio.get("transcript") if isinstance(audio, Mapping) else None)
    return said if isinstance(said, str) else ""


def _rest(item: Mapping[str, Any], fields: MessageFields) -> dict[str, Any]:
    """Return what `fields` alone would not give back."""
    written = write_chat(fields)
    read = (*OWN_FIELDS, *_TIMES, "name", "content")
    given = {key: value for key, value in item.items() if key not in read and value not in _NOTHING}
    rest = {key: value for key, value in given.items() if written.get(key) != _typed(value, key)}
    if rest:
        written = write_chat(fields | {"payload": {"format": OPENAI_FORMAT, "data": rest}})
    if item.get("content") is not None and item["content"] != written["content"]:
        rest["content"] = item["content"]
    copied: dict[str, Any] = own_copy(rest)
    return copied


def _typed(value: Any, key: str) -> Any:
    """Return a value; of calls, those without a type as calls of functions, which other programs leave unsaid."""
    if key != "tool_calls":
        return value
    return [{"type": "function"} | call if isinstance(call, dict) and "function" in call else call for call in value]


def _calls(item: Mapping[str, Any]) -> list[CallFields]:
    calls = item.get("tool_calls") or []
    if not isinstance(calls, list | tuple):
        raise ValueError(f"tool_calls is {short(calls)}; expected a list")
    named = [_call(call.get("id") if isinstance(call, Mapping) else None, call) for call in calls]
    legacy = item.get("function_call")
    if isinstance(legacy, Mapping):
        named.append(_call(function_call_id(legacy.get("name")), {"function": legacy}))
    return named


def _call(call_id: Any, call: Any) -> CallFields:
    body = (call.get("function") or call.get("custom")) if isinstance(call, Mapping) else None
    if not isinstance(body, Mapping) or not isinstance(body.get("name"), str) or not isinstance(call_id, str):
        raise ValueError(
            f'tool call {short(call)} is invalid; expected "id" and "function" with "name" and "arguments"'
        )
    arguments = body.get("arguments", body.get("input", ""))
    if not isinstance(arguments, str):
        arguments = json.dumps(arguments, ensure_ascii=False)
    return {"id": call_id, "name": body["name"], "arguments": arguments}


def function_call_id(name: Any) -> str:
    """Return the id for a `function_call`, which is linked to its result only by the function's name."""
    return f"function:{name}"


def _answered(item: Mapping[str, Any], role: str) -> Any:
    """Return the id of the call that a tool message answers."""
    answered = item.get("tool_call_id")
    if answered is None and item["role"] == "function":
        answered = function_call_id(item.get("name"))
    if answered is None and role == "tool":
        raise ValueError('a tool message has no "tool_call_id"; expected the id of the call it answers')
    return answered


def _time(item: Mapping[str, Any]) -> datetime | None:
    value = next((item[key] for key in _TIMES if item.get(key) is not None), None)
    if value is None or isinstance(value, datetime):
        return value
    try:
        if isinstance(value, str):
            return datetime.fromisoformat(value)
        if isinstance(value, int | float) and not isinstance(value, bool):
            return datetime.fromtimestamp(value, UTC)
    except (ValueError, OverflowError, OSError):
        pass
    raise ValueError(f"the time {short(value)} is invalid; expected ISO 8601 text or seconds since 1970")


# Writing


def write_chat(fields: MessageFields) -> dict[str, Any]:
    """Return a message for a request to chat completions.

    Raises:
        ValueError: it holds an image, sound or a file that has no form there.
    """
    payload = fields.get("payload")
    named = fields.get("name") or fields.get("tool_calls") or fields.get("tool_call_id") is not None
    if payload is None and not named:  # as most are, in every prompt
        return {"role": fields["role"], "content": fields["content"]}
    own = payload is not None and payload["format"] == OPENAI_FORMAT and isinstance(payload["data"], Mapping)
    data: dict[str, Any] = dict(payload["data"]) if payload is not None and own else {}
    calls, answered = _written_calls(fields, data), fields.get("tool_call_id")
    role = _written_role(fields, data)
    item: dict[str, Any] = {"role": role, "content": _written_content(fields, data)}
    if fields.get("name"):
        item["name"] = _NOT_IN_NAMES.sub("_", str(fields["name"]))
    item |= calls
    if answered is not None and not (role == "function" and answered == function_call_id(fields.get("name"))):
        item["tool_call_id"] = answered
    item |= {key: value for key, value in data.items() if key not in ("role", "content", "tool_calls", "function_call")}
    if isinstance(item.get("audio"), Mapping) and "id" in item["audio"]:
        item["audio"] = {"id": item["audio"]["id"]}  # a request refers to sound that the API made itself
    return item


def _written_role(fields: MessageFields, data: Mapping[str, Any]) -> str:
    given = data.get("role")
    return given if given in ROLES and role_named(given) == fields["role"] else fields["role"]


def _written_calls(fields: MessageFields, data: Mapping[str, Any]) -> dict[str, Any]:
    calls = list(fields.get("tool_calls", ()))
    given = {key: data[key] for key in ("tool_calls", "function_call") if key in data}
    if given and _calls(given) == calls:
        return given
    custom = custom_calls(fields)
    return {"tool_calls": [_written_call(call, custom=call["id"] in custom) for call in calls]} if calls else {}


def _written_call(call: CallFields, *, custom: bool) -> dict[str, Any]:
    if custom:
        return {"id": call["id"], "type": "custom", "custom": {"name": call["name"], "input": call["arguments"]}}
    function = {"name": call["name"], "arguments": call["arguments"]}
    return {"id": call["id"], "type": "function", "function": function}


def custom_calls(fields: MessageFields) -> set[str]:
    """Return the ids of those calls of a message that call custom tools, which take any text."""
    payload = fields.get("payload")
    if payload is None or not isinstance(payload["data"], Mapping):
        return set()
    if payload["format"] == OPENAI_FORMAT:
        calls = payload["data"].get("tool_calls") or ()
        return {call["id"] for call in calls if isinstance(call, Mapping) and call.get("type") == "custom"}
    if payload["format"] == RESPONSES_FORMAT:
        return {item["call_id"] for item in payload["data"]["items"] if item.get("type") == "custom_tool_call"}
    return set()


def _written_content(fields: MessageFields, data: Mapping[str, Any]) -> str | Sequence[Any] | None:
    content = chat_parts(fields)
    if not isinstance(content, str) or data.get("content") == content:
        return content
    # An assistant's null content is read as what its other fields say, which may be nothing.
    beside = fields.get("tool_calls") or any(key in data for key in ("refusal", "audio"))
    return None if fields["role"] == "assistant" and beside and content == _spoken(data) else content
