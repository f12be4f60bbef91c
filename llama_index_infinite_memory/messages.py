"""LlamaIndex's chat messages as the engine's, and back without loss."""

from collections.abc import Iterable, Mapping
from typing import Any

from llama_index.core.base.llms.types import ChatMessage, MessageRole, ToolCallBlock

from llama_index_infinite_memory.content import CODEC, bare_text, blocks_tokens, constructed, pack, unpack
from llama_index_infinite_memory.strippers import EXECUTED
from shared_core.display import shown
from shared_core.doors.interop.content import arguments_object, arguments_text, function_call_id, legacy_call, text_mark
from shared_core.doors.interop.values import UnstorableError, UnstorableWarning
from shared_core.errors import warn
from shared_core.formats.fields import Role
from shared_core.messages import Message, Payload, ToolCall

__all__ = ["UnstorableWarning", "from_message", "to_message"]

FORMAT = "llama-index/1"
"""The format of the payload: those fields of the message, by name, that do not follow from the engine's message.

"$text" is the `text_mark` of the text that "blocks" refer to.
"""

_ROLE_OF: dict[str, Role] = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "assistant": "assistant",
    "chatbot": "assistant",
    "model": "assistant",
    "tool": "tool",
    "function": "tool",
}
_LLAMA_INDEX_ROLES = {role: MessageRole(role) for role in ("system", "user", "assistant", "tool")}


def from_message(message: ChatMessage) -> Message:
    """Convert a LlamaIndex message for the engine; `to_message` restores an equal one.

    The texts of its blocks, a line each, become the `content`. Pictures and the like cost fixed figures, thinking costs
    what its text does. A system message is pinned: it is always sent, where it was put. Objects in `additional_kwargs`
    are restored as mappings of the same content. What JSON cannot express is left out with an `UnstorableWarning`: a
    block, or one entry of `additional_kwargs`.

    Raises:
        TypeError: it is not a `ChatMessage`.
    """
    read, lost = read_message(message)
    if lost:
        warn(f"{type(message).__name__}: stored without {', '.join(lost)}", UnstorableWarning)
    return read


def chat_messages(name: str, messages: Any) -> list[ChatMessage]:
    """Return an argument as a list; TypeError if it is a single message or text, or no list."""
    if isinstance(messages, str | bytes | Mapping | ChatMessage) or not isinstance(messages, Iterable):
        advice = "; the path of a file is store=" if isinstance(messages, str) else ""
        raise TypeError(f"{shown(name, messages)}: expected a list of ChatMessages{advice}")
    return list(messages)


def read_message(message: ChatMessage) -> tuple[Message, tuple[str, ...]]:
    """Return what `from_message` returns, and descriptions of what is left out, without a warning."""
    if not isinstance(message, ChatMessage):
        raise TypeError(f"expected a ChatMessage, not {repr(message)[:80]}")
    role, kwargs = MessageRole(message.role).value, message.additional_kwargs
    text = message.content or ""
    # The result of a CodeActAgent's code belongs to the turn of the question, although its role is the user's.
    executed = role == "user" and text.startswith(EXECUTED)
    converted = Message(
        role="assistant" if executed else _ROLE_OF[role],
        content=text,
        name=_text(kwargs.get("name")),
        tool_calls=engine_calls(message) if _ROLE_OF[role] == "assistant" else (),
        tool_call_id=_answered(role, kwargs),
        pinned=_ROLE_OF[role] == "system",
        media_tokens=blocks_tokens(message.blocks),
    )
    lost: list[str] = []
    data = _rest(message, converted, lost)
    if "blocks" in data:
        data["$text"] = text_mark(converted.content)
    return converted.replace(payload=Payload(format=FORMAT, data=data)) if data else converted, tuple(lost)


def _rest(message: ChatMessage, converted: Message, lost: list[str]) -> dict[str, Any]:
    """Return the fields of a message that the engine's fields alone do not give."""
    data: dict[str, Any] = {}
    bare, kwargs = _bare(converted), message.additional_kwargs
    if message.role != bare.role:
        data["role"] = MessageRole(message.role).value
    if not same(message.blocks, bare.blocks):
        data["blocks"] = pack(message.blocks, lost)
    if not same(kwargs, bare.additional_kwargs):
        entries = _entries(kwargs, lost)
        if entries != bare.additional_kwargs:  # an object may say what the mapping of a call does
            data["additional_kwargs"] = entries
    return data


def same(given: Any, other: Any) -> bool:
    """Return whether two values are equal; False if they cannot be compared."""
    try:
        return bool(given == other)
    except (TypeError, ValueError):  # such as arrays, which compare element by element
        return False


def _entries(kwargs: Mapping[str, Any], lost: list[str]) -> Any:
    kept: dict[str, Any] = {}
    for key, value in kwargs.items():
        try:
            kept[key] = CODEC.encode(value)
        except UnstorableError as error:
            lost.append(f"additional_kwargs[{key!r}] ({error})")
    # A single key that begins with "$" would be read as a mark.
    return kept if not any(key.startswith("$") for key in kept) else {"$map": [list(pair) for pair in kept.items()]}


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None


def _answered(role: str, kwargs: Mapping[str, Any]) -> str | None:
    named = _text(kwargs.get("tool_call_id"))
    if role == "function" and named is None and _text(kwargs.get("name")):
        return function_call_id(kwargs["name"])
    return named if _ROLE_OF[role] == "tool" else None


def to_message(message: Message) -> ChatMessage:
    """Convert a message of the engine to LlamaIndex's.

    A message made by `from_message` is restored equal. One that was stored without LlamaIndex, or by another adapter,
    becomes a plain message of its role, with its tool calls, and with `name` and `tool_call_id` in `additional_kwargs`.
    LlamaIndex has no field for `id`, `created_at`, `turn_id`, `pinned` and `grounding`, which are not carried over.
    Text that is set apart is where it was.

    In a prompt, recalled messages and grounding stand before the content, here as in the engine's message.
    """
    message, data = message.whole, _own(message.payload)
    built = _bare(message)
    if "role" in data:
        built.role = MessageRole(data["role"])
    if "blocks" in data:
        built.blocks = unpack(message.content, data["blocks"], data["$text"])
    if "additional_kwargs" in data:
        built.additional_kwargs = CODEC.decode(data["additional_kwargs"])
    return built


def is_bare(message: Message) -> bool:
    """Return whether `to_message` returns the text of a message and nothing else."""
    return message.payload is None and not (message.tool_calls or message.name or message.tool_call_id)


def _own(payload: Payload | None) -> Mapping[str, Any]:
    own = payload is not None and payload.format == FORMAT and isinstance(payload.data, Mapping)
    return payload.data if own and payload is not None else {}


def _bare(message: Message) -> ChatMessage:
    """Return what the engine's fields alone give, without validation, which would take most of the time."""
    blocks: list[Any] = [bare_text(message.content)]
    kwargs: dict[str, Any] = {}
    if message.name is not None:
        kwargs["name"] = message.name
    if message.tool_call_id is not None:
        kwargs["tool_call_id"] = message.tool_call_id
    if message.tool_calls:
        blocks = [*(blocks if message.content else []), *map(_block, message.tool_calls)]
    role = _LLAMA_INDEX_ROLES[message.role]
    return constructed(ChatMessage, {"role": role, "additional_kwargs": kwargs, "blocks": blocks})


# Tool calls


def engine_calls(message: ChatMessage) -> tuple[ToolCall, ...]:
    """Return every call of a message, once.

    Calls are blocks, or stand in `additional_kwargs["tool_calls"]` as OpenAI's objects or mappings, Anthropic's
    mappings or LlamaIndex's own selections; some integrations write both. A `function_call`, from the time before
    tools, counts as a call where there is no other.
    """
    calls = _calls(block for block in message.blocks if getattr(block, "block_type", "") == "tool_call")
    known = {call.id for call in calls}
    others = message.additional_kwargs.get("tool_calls")
    if isinstance(others, list | tuple):
        calls += [call for call in _calls(others) if call.id not in known or (not call.id and not known)]
    if not calls and (old := legacy_call(_fields(message.additional_kwargs.get("function_call")))) is not None:
        return (old,)
    return tuple(calls)


def _block(call: ToolCall) -> ToolCallBlock:
    found = arguments_object(call.arguments)
    given = call.arguments if found is None else found
    return ToolCallBlock(tool_call_id=call.id or None, tool_name=call.name, tool_kwargs=given)


def _calls(values: Iterable[Any]) -> list[ToolCall]:
    return [call for call in map(_from_any, values) if call is not None]


def _from_any(value: Any) -> ToolCall | None:
    fields = _fields(value)
    function = _fields(fields.get("function")) or fields
    name = _first(function, "name", "tool_name")
    if not isinstance(name, str):
        return None
    arguments = _first(function, "arguments", "args", "input", "tool_kwargs")
    return ToolCall(
        id=str(_first(fields, "id", "tool_id", "tool_call_id") or ""), name=name, arguments=arguments_text(arguments)
    )


def _fields(value: Any) -> Mapping[str, Any]:
    if isinstance(value, Mapping):
        return value
    return vars(value) if hasattr(value, "__dict__") else {}


def _first(fields: Mapping[str, Any], *names: str) -> Any:
    return next((fields[name] for name in names if fields.get(name) is not None), None)
