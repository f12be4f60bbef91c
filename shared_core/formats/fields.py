"""The fields of a message as plain data. Every format is read to these fields and written from them."""

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, TypedDict

from shared_core.display import short

__all__ = [
    "ROLE_NAMES",
    "CallFields",
    "MessageFields",
    "PayloadFields",
    "Role",
    "own_copy",
    "role_named",
    "write_each",
]

Role = Literal["system", "user", "assistant", "tool"]

ROLE_NAMES: Mapping[str, Role] = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "human": "user",
    "assistant": "assistant",
    "ai": "assistant",
    "agent": "assistant",
    "model": "assistant",
    "bot": "assistant",
    "chatbot": "assistant",
    "tool": "tool",
    "function": "tool",
}
"""The names that programs give to those who speak, in small letters -> role of a `Message`."""


class CallFields(TypedDict):
    """The fields of a `ToolCall`."""

    id: str
    name: str
    arguments: str


class PayloadFields(TypedDict):
    """The fields of a `Payload`."""

    format: str
    data: Any


class MessageFields(TypedDict, total=False):
    """Fields of a `Message`. Those that a format does not have are left out."""

    role: str
    content: str
    id: Any
    name: Any
    created_at: Any
    turn_id: Any
    tool_calls: Sequence[CallFields]
    tool_call_id: Any
    grounding: Any
    pinned: Any
    media_tokens: Any
    payload: PayloadFields | None


def role_named(name: Any) -> Role:
    """Return the role that a name stands for; ValueError if it is unknown."""
    if name is None:
        raise ValueError('there is no "role"; write {"role": "user", "content": text}')
    role = ROLE_NAMES.get(name.lower()) if isinstance(name, str) else None
    if role is None:
        raise ValueError(f"unknown role {short(name)}; expected one of {', '.join(ROLE_NAMES)}")
    return role


def own_copy(data: Any) -> Any:
    """Return a deep copy of plain data; ValueError if it is nested too deeply."""
    try:
        return copy.deepcopy(data)
    except RecursionError:
        raise ValueError("the message is nested too deeply") from None


def write_each(
    messages: Sequence[MessageFields], write: Callable[[MessageFields], list[dict[str, Any]]]
) -> list[dict[str, Any]]:
    """Return what `write` makes of all messages, joined; its ValueError names the message it is about."""
    written: list[dict[str, Any]] = []
    for index, message in enumerate(messages):
        try:
            written += write(message)
        except ValueError as error:
            named = f" (id {message['id']!r})" if message.get("id") else ""
            raise ValueError(f"messages[{index}]{named}: {error}") from None
    return written
