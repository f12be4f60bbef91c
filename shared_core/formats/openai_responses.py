"""Items of OpenAI's Responses API, as fields and back. One message of the model may be several items."""

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from shared_core.display import short
from shared_core.formats.fields import ROLE_NAMES, CallFields, MessageFields, own_copy, role_named
from shared_core.formats.openai_chat import check_chat, custom_calls, read_chat
from shared_core.formats.parts import (
    APPROVAL_REQUEST,
    RESPONSES_FORMAT,
    RESPONSES_PARTS,
    chat_parts,
    check_parts,
    fitted,
    items_content,
    link_of,
    media_tokens,
    responses_part,
    says,
    text_of,
    with_name,
)

CALLS = {"function_call": "arguments", "custom_tool_call": "input"}
"""The items that are calls of the program's tools, and the key of the arguments."""

OUTPUTS = ("function_call_output", "custom_tool_call_output")

BESIDE = (
    "reasoning",
    "web_search_call",
    "file_search_call",
    "code_interpreter_call",
    "image_generation_call",
    "mcp_list_tools",
    "mcp_call",
)
"""Items beside what the model says, of which the program answers none. They are kept with the message."""

ITEMS = ("message", *CALLS, *OUTPUTS, *BESIDE)

_LINKS = ("type", "id", "call_id", "status")
"""Fields of a call that do not say what is to be done."""

ITEM_ROLES = ("user", "assistant", "system", "developer")


def is_item(given: Any) -> bool:
    """Return whether a value is an item of the Responses API rather than a message of chat completions."""
    if not isinstance(given, Mapping):
        return False
    if given.get("type") is not None:
        return "role" not in given or given["type"] == "message"
    content = given.get("content")
    return isinstance(content, list) and any(_is_responses_part(part) for part in content)


def is_call(item: Mapping[str, Any]) -> bool:
    """Return whether an item is a call that the program answers: of a function, or of what the API defines itself.

    Of the second kind are `computer_call`, `shell_call`, `apply_patch_call` and the like, and requests for approval.
    """
    return item.get("type") in CALLS or is_own_call(item)


def is_own_call(item: Mapping[str, Any]) -> bool:
    """Return whether an item is a call of a tool that the API defines and the program runs."""
    kind = item.get("type")
    if not isinstance(kind, str) or kind in (*CALLS, *BESIDE):
        return False
    ends = kind.endswith("_call") or kind == APPROVAL_REQUEST
    return ends and isinstance(link_of(item), str)


def is_output(item: Mapping[str, Any]) -> bool:
    """Return whether an item is the result of a call that the program made."""
    return says(item) and "role" not in item and (item.get("type") in OUTPUTS or isinstance(link_of(item), str))


def _is_responses_part(part: Any) -> bool:
    return isinstance(part, Mapping) and part.get("type") in RESPONSES_PARTS and part["type"] != "refusal"


# Reading


def message_groups(given: Sequence[Any]) -> Iterator[tuple[int, list[Any]]]:
    """Yield (index of the first, entries) for the entries of a list that make one message.

    Reasoning, the assistant's message and the calls that follow one another are one message: chat completions and other
    providers demand that the results of all calls follow the one message that made them.
    """
    start, group = 0, list[Any]()
    for index, entry in enumerate(given):
        if group and not (_of_model(entry) and _of_model(group[-1]) and not _begins(entry, group)):
            yield start, group
            start, group = index, []
        group.append(entry)
    if group:
        yield start, group


def _of_model(entry: Any) -> bool:
    if not is_item(entry):
        return False
    return entry.get("role") == "assistant" if "role" in entry else is_call(entry) or entry.get("type") in BESIDE


def _begins(entry: Mapping[str, Any], group: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether the model says something new: it has said something before, and called nothing since."""
    if is_call(entry) or any(is_call(item) for item in group):
        return False
    return any("role" in item for item in group)


def read_group(group: Sequence[Mapping[str, Any]]) -> MessageFields:
    """Return the fields of the message that a group of `message_groups` makes.

    The ids of items stay in the payload. A message gets an id of its own, since some servers number each answer alike.

    Raises:
        ValueError: there is an item or a part of an unknown type, a field has another form, or something is missing.
    """
    if not is_item(group[0]):
        check_chat(group[0])
        return read_chat(group[0])
    group = [_known_role(item) for item in group]
    for item in group:
        _check(item)
    fields = _said(group)
    if write_items(fields) != list(group):
        fields["payload"] = {"format": RESPONSES_FORMAT, "data": {"items": own_copy([*map(dict, group)])}}
    return fields


def _check(item: Mapping[str, Any]) -> None:
    kind = item.get("type", "message")
    if kind not in ITEMS and not is_call(item) and not is_output(item):
        raise ValueError(f"unknown item type {short(kind)}; expected a message with a role, or {', '.join(ITEMS)}")
    if kind == "message":
        if item.get("role") not in ITEM_ROLES:
            raise ValueError(f"unknown role {short(item.get('role'))}; expected one of {', '.join(ITEM_ROLES)}")
        if item.get("content") is None:
            raise ValueError('the message has no "content"; write its text')
        check_parts(item["content"], RESPONSES_PARTS)
    elif kind in CALLS:
        _need(item, "call_id", "name", CALLS[kind])
    elif kind in OUTPUTS:
        _need(item, "call_id")
        if item.get("output") is None:
            raise ValueError(f'the {kind} has no "output"')
        check_parts(item["output"], RESPONSES_PARTS)


def _known_role(item: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return an item with the API's name for its role."""
    role = item.get("role")
    ours = ROLE_NAMES.get(role.lower()) if isinstance(role, str) and role not in ITEM_ROLES else None
    return {**item, "role": ours} if ours in ITEM_ROLES else item


def _need(item: Mapping[str, Any], *keys: str) -> None:
    for key in keys:
        if not isinstance(item.get(key), str):
            raise ValueError(f'the {item["type"]} has {short(item.get(key))} as "{key}"; expected a text')


def _said(group: Sequence[Mapping[str, Any]]) -> MessageFields:
    words = [item for item in group if says(item)]
    calls = [_call(item) for item in group if is_call(item)]
    if not words and not calls:
        kinds = ", ".join(dict.fromkeys(str(item["type"]) for item in group))
        raise ValueError(f"there is no message and no call after these items: {kinds}")
    content = items_content(group)
    first = words[0] if words else {"role": "assistant"}
    fields: MessageFields = {
        "role": role_named(first["role"]) if "role" in first else "tool",
        "content": text_of(content),
        "tool_calls": calls,
        "media_tokens": media_tokens(content),
    }
    if is_output(first):
        fields["tool_call_id"] = link_of(first)
    return fields


def _call(item: Mapping[str, Any]) -> CallFields:
    if is_own_call(item):
        rest = {key: value for key, value in item.items() if key not in _LINKS}
        return {"id": link_of(item), "name": item["type"], "arguments": json.dumps(rest, ensure_ascii=False)}
    return {"id": item["call_id"], "name": item["name"], "arguments": item[CALLS[item["type"]]]}


# Writing


def write_items(fields: MessageFields, custom: Collection[str] = ()) -> list[dict[str, Any]]:
    """Return a message as items for a request to the Responses API: an assistant's words and calls are items each.

    The API has no field for the name of who speaks, so the text begins with it.

    Args:
        fields: the message.
        custom: the ids of calls of custom tools, whose results are items of another type.

    Raises:
        ValueError: the message holds sound, or a part of an unknown kind.
    """
    given = _given_items(fields)
    if given is not None:
        return given
    role, answered = fields["role"], fields.get("tool_call_id")
    said = _content(fields if role == "tool" else with_name(fields))
    if role == "tool" and answered is not None:
        kind = OUTPUTS[answered in custom]
        return [{"type": kind, "call_id": answered, "output": said}]
    own = custom_calls(fields)
    calls = [_written_call(call, custom=call["id"] in own) for call in _calls(fields)]
    message = {"type": "message", "role": role, "content": said}
    return [*([message] if said or not calls else []), *calls]


def _calls(fields: MessageFields) -> Sequence[CallFields]:
    return fields.get("tool_calls", ())


def _written_call(call: CallFields, *, custom: bool) -> dict[str, Any]:
    kind = "custom_tool_call" if custom else "function_call"
    return {"type": kind, "call_id": call["id"], "name": call["name"], CALLS[kind]: call["arguments"]}


def _content(fields: MessageFields) -> str | list[dict[str, Any]]:
    parts = chat_parts(fields)
    if isinstance(parts, str) or fields["role"] == "assistant":
        return fields["content"]
    return [responses_part(part) for part in parts]


def _given_items(fields: MessageFields) -> list[dict[str, Any]] | None:
    """Return the items that a message was made of, with what it says now; None if they are not known, or changed."""
    payload = fields.get("payload")
    if payload is None or payload["format"] != RESPONSES_FORMAT:
        return None
    items = [dict(item) for item in payload["data"]["items"]]
    if [_call(item) for item in items if is_call(item)] != list(_calls(fields)):
        return None
    content, text = items_content(items), fields["content"]
    words = [item for item in items if says(item)]
    # The result of a call that the API defines has a form of its own, in which no text can be cut.
    if text_of(content) == text or any(is_output(item) and item.get("type") not in OUTPUTS for item in words):
        return items
    if len(words) != 1:
        return None
    kind = "output_text" if fields["role"] == "assistant" else "input_text"
    parts = [{"type": kind, "text": content}] if isinstance(content, str) else content
    key = "output" if "output" in words[0] else "content"
    words[0][key] = fitted(parts, text, lambda said: {"type": kind, "text": said})
    return items
