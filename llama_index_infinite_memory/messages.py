"""LlamaIndex's chat messages as the engine's, and back, equal."""

import warnings
from collections.abc import Mapping
from typing import Any

from llama_index.core.base.llms.types import ChatMessage, MessageRole

from llama_index_infinite_memory.calls import call_blocks, function_id, neutral_calls
from llama_index_infinite_memory.content import bare_text, pack, text_mark, unpack
from llama_index_infinite_memory.media import blocks_tokens
from llama_index_infinite_memory.strippers import EXECUTED
from llama_index_infinite_memory.values import UnstorableError, decode, encode
from shared_core.messages import Message, Payload, Role

__all__ = ["FORMAT", "UnstorableWarning", "from_message", "read_message", "same", "to_message"]

FORMAT = "llama-index/1"
"""The format of the payload: those fields of the message, by name, that do not follow from the neutral one.

"$text" is length and checksum of the text that "blocks" refer to.
"""

_NEUTRAL: dict[str, Role] = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "assistant": "assistant",
    "chatbot": "assistant",
    "model": "assistant",
    "tool": "tool",
    "function": "tool",
}
_ROLES = {role: MessageRole(role) for role in ("system", "user", "assistant", "tool")}


class UnstorableWarning(UserWarning):
    """A part of a message has no JSON form, so that it is stored without that part."""


def from_message(message: ChatMessage) -> Message:
    """Return a LlamaIndex message as the engine stores it; `to_message` gives an equal one back.

    The texts of its blocks, a line each, are the `content`; pictures and the like count with fixed figures, thinking
    by its text. Objects in `additional_kwargs` come back as mappings of the same content; a value that JSON has no form
    for is left out, with an `UnstorableWarning`: a block, or one entry of `additional_kwargs`.

    Raises:
        TypeError: it is no `ChatMessage`.
    """
    read, lost = read_message(message)
    if lost:
        warnings.warn(f"{type(message).__name__}: stored without {', '.join(lost)}", UnstorableWarning, stacklevel=2)
    return read


def read_message(message: ChatMessage) -> tuple[Message, tuple[str, ...]]:
    """Return what `from_message` returns and names of what is left out, without a warning."""
    if not isinstance(message, ChatMessage):
        raise TypeError(f"expected a ChatMessage, not {repr(message)[:80]}")
    role, kwargs = MessageRole(message.role).value, message.additional_kwargs
    text = message.content or ""
    # What a CodeActAgent is told of its code belongs to the turn of the question, though it is said as the user.
    told = role == "user" and text.startswith(EXECUTED)
    neutral = Message(
        role="assistant" if told else _NEUTRAL[role],
        content=text,
        name=_text(kwargs.get("name")),
        tool_calls=neutral_calls(message) if _NEUTRAL[role] == "assistant" else (),
        tool_call_id=_answered(role, kwargs),
        media_tokens=blocks_tokens(message.blocks),
    )
    lost: list[str] = []
    data = _rest(message, _bare(neutral), lost)
    if "blocks" in data:
        data["$text"] = text_mark(neutral.content)
    return neutral.replace(payload=Payload(format=FORMAT, data=data)) if data else neutral, tuple(lost)


def _rest(message: ChatMessage, bare: ChatMessage, lost: list[str]) -> dict[str, Any]:
    """Return the fields of a message that differ from those its neutral form alone gives."""
    data: dict[str, Any] = {}
    if message.role != bare.role:
        data["role"] = MessageRole(message.role).value
    if not same(message.blocks, bare.blocks):
        data["blocks"] = pack(message.blocks, lost)
    if not same(message.additional_kwargs, bare.additional_kwargs):
        data["additional_kwargs"] = _entries(message.additional_kwargs, lost)
    return data


def same(given: Any, other: Any) -> bool:
    """Return whether two values are equal; False if that cannot be said."""
    try:
        return bool(given == other)
    except (TypeError, ValueError):  # such as an array, which has no one answer
        return False


def _entries(kwargs: Mapping[str, Any], lost: list[str]) -> Any:
    kept: dict[str, Any] = {}
    for key, value in kwargs.items():
        try:
            kept[key] = encode(value)
        except UnstorableError as error:
            lost.append(f"additional_kwargs[{key!r}] ({error})")
    # A single key that begins with "$" would be taken for a mark.
    return kept if not any(key.startswith("$") for key in kept) else {"$map": [list(pair) for pair in kept.items()]}


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None


def _answered(role: str, kwargs: Mapping[str, Any]) -> str | None:
    named = _text(kwargs.get("tool_call_id"))
    if role == "function" and named is None and _text(kwargs.get("name")):
        return function_id(kwargs["name"])
    return named if _NEUTRAL[role] == "tool" else None


def to_message(message: Message) -> ChatMessage:
    """Return a message of the engine as LlamaIndex's.

    One that `from_message` made comes back equal. One that was written without LlamaIndex, or by another adapter,
    becomes a plain message of its role, with its tool calls, and with `name` and `tool_call_id` in `additional_kwargs`;
    `id`, `created_at`, `turn_id`, `pinned` and grounding, for which LlamaIndex has no field, are not carried.

    In a prompt, where recalled text and grounding have been put before the content, they stand before it here, too.
    """
    data = _own(message.payload)
    built = _bare(message)
    if "role" in data:
        built.role = MessageRole(data["role"])
    if "blocks" in data:
        built.blocks = unpack(message.content, data["blocks"], data["$text"])
    if "additional_kwargs" in data:
        built.additional_kwargs = decode(data["additional_kwargs"])
    return built


def _own(payload: Payload | None) -> Mapping[str, Any]:
    own = payload is not None and payload.format == FORMAT and isinstance(payload.data, Mapping)
    return payload.data if own and payload is not None else {}


def _bare(message: Message) -> ChatMessage:
    """Return what follows from the neutral fields alone; nothing is validated, which takes most of the time."""
    blocks: list[Any] = [bare_text(message.content)]
    kwargs: dict[str, Any] = {}
    if message.name is not None:
        kwargs["name"] = message.name
    if message.tool_call_id is not None:
        kwargs["tool_call_id"] = message.tool_call_id
    if message.tool_calls:
        calls, entries = call_blocks(message.tool_calls)
        blocks, kwargs = ([*blocks, *calls] if message.content else calls), kwargs | entries
        blocks = blocks or [bare_text("")]
    return ChatMessage.model_construct(role=_ROLES[message.role], additional_kwargs=kwargs, blocks=blocks)
