"""LangChain's messages as the engine's, and back without loss."""

import math
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from numbers import Real
from typing import Any

from langchain_core.documents import Document
from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    BaseMessageChunk,
    ChatMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
    message_chunk_to_message,
)
from pydantic import ValidationError

from langchain_infinite_memory.content import CODEC, blocks_tokens, pack, unpack
from shared_core.doors.interop.content import arguments_object, compact_json
from shared_core.doors.interop.values import UnstorableError, UnstorableWarning
from shared_core.errors import warn
from shared_core.formats.fields import ROLE_NAMES, Role
from shared_core.messages import Grounding, GroundingItem, Message, Payload, ToolCall

__all__ = ["UnstorableWarning", "from_message", "to_message"]

FORMAT = "langchain/1"
"""The format of the payload: those fields of the message, by name, that the engine's message does not hold.

Keys that begin with "$" are not fields: "$type" is the message's type where the role does not imply it, "$text" the
`text_mark` of the text that the blocks of "content" refer to.
"""

GROUNDING = "grounding"
"""The key of `additional_kwargs` under which retrieved passages stand."""

ENGINE_FIELDS = "infinite_memory"
"""The key of `additional_kwargs` under which `pinned` and `media_tokens` stand."""

SCORE = "relevance_score"
"""The key of a document's metadata that is read as its score: LangChain's rerankers write it, higher is better."""

_TYPES: dict[str, type[BaseMessage]] = {
    "human": HumanMessage,
    "ai": AIMessage,
    "system": SystemMessage,
    "tool": ToolMessage,
    "chat": ChatMessage,
}
_TYPE_OF: dict[Role, str] = {"user": "human", "assistant": "ai", "system": "system", "tool": "tool"}
_ROLE_OF: dict[str, Role] = {kind: role for role, kind in _TYPE_OF.items()}
_NEUTRAL = frozenset(("content", "type", "id", "name", "tool_call_id"))
"""Fields that the engine's message holds."""


def to_message(message: BaseMessage) -> Message:
    """Convert a LangChain message for the engine; `from_message` restores an equal one.

    A chunk is converted to a whole message first, and a subclass to the class of LangChain that it extends. The id is
    kept; the store gives an id to a message without one, which is restored without. The texts of content blocks are
    joined to the `content`. Images and the like cost fixed figures, reasoning costs what its text does. Invalid tool
    calls count as tool calls, because each must be answered, too.

    `additional_kwargs["grounding"]` becomes `grounding`: a text, a list of texts or `Document`s, or a mapping with the
    arguments of `Grounding`. It is restored as a list of texts, or as a mapping where passages have scores.
    `additional_kwargs["infinite_memory"]` may hold `{"pinned": True}`, and `{"media_tokens": n}` where the cost of
    media is known.

    What JSON cannot express is left out with an `UnstorableWarning`: an artifact, a content block, the arguments of a
    tool call, or one entry of `additional_kwargs` or `response_metadata`.

    Raises:
        TypeError: this kind of message cannot be stored, such as a `RemoveMessage`.
    """
    read, lost = read_message(message)
    if lost:
        left_out = ", ".join(lost)
        warn(f"{type(message).__name__}: stored without {left_out}", UnstorableWarning)
    return read


def read_message(message: BaseMessage) -> tuple[Message, list[str]]:
    """Return what `to_message` returns, and descriptions of what is left out, without a warning."""
    message = _whole(message)
    kind = _kind(message)
    role = _named_role(message.role) if isinstance(message, ChatMessage) else _ROLE_OF[kind]
    # The blocks of an answer are pieces of one text; those of a question may be separate texts.
    content = pack(message.content, "" if kind == "ai" else "\n")
    calls, lost = engine_calls(message), list(content.lost)
    data: dict[str, Any] = {} if _TYPE_OF[role] == kind else {"$type": kind}
    if not message.id:
        data["id"] = message.id
    if content.blocks is not None:
        data |= {"content": content.blocks, "$text": list(content.mark)}
    fields, own = dict(message), message.additional_kwargs.get(ENGINE_FIELDS)
    if (grounding := grounding_of(message.additional_kwargs.get(GROUNDING))) is not None:
        fields["additional_kwargs"] = {k: v for k, v in message.additional_kwargs.items() if k != GROUNDING}
    restored = {**_defaults(type(message)), **_call_fields(message, calls)}
    for name, value in fields.items():
        default = restored.get(name, ...)
        if name not in _NEUTRAL and not (type(value) is type(default) and bool(value == default)):
            _keep(data, name, value, lost)
    if restored.get("tool_calls") != fields.get("tool_calls") and "tool_calls" not in data:
        data.pop("invalid_tool_calls", None)  # arguments without a JSON form: the calls come back as the engine's
    read = Message(
        role=role,
        content=content.text,
        id=message.id or None,
        name=message.name,
        tool_calls=calls,
        tool_call_id=message.tool_call_id if isinstance(message, ToolMessage) else None,
        grounding=grounding,
        pinned=isinstance(own, Mapping) and own.get("pinned") is True,
        media_tokens=_media_tokens(own, content.blocks or ()),
        payload=Payload(format=FORMAT, data=data) if data else None,
    )
    return read, lost


def _whole(message: BaseMessage) -> BaseMessage:
    while isinstance(message, BaseMessageChunk):  # a subclass of a chunk is converted to a chunk first
        message = message_chunk_to_message(message)
    return message


def _kind(message: BaseMessage) -> str:
    for kind, cls in _TYPES.items():
        if isinstance(message, cls):
            return kind
    raise TypeError(
        f"a {type(message).__name__} cannot be stored; these can: {', '.join(cls.__name__ for cls in _TYPES.values())}"
    )


def _named_role(name: str) -> Role:
    """Return the role of a `ChatMessage`. It is no tool's reply, because it does not name a call."""
    role = ROLE_NAMES.get(name.lower(), "user")
    return "assistant" if role == "tool" else role


def _call_fields(message: BaseMessage, calls: Any) -> dict[str, Any]:
    """Return the fields of a message that its calls are restored to."""
    names = ("tool_calls", "invalid_tool_calls") if isinstance(message, AIMessage) else ()
    return dict(zip(names, langchain_calls(calls), strict=False))


@lru_cache(maxsize=64)
def _defaults(cls: type[BaseMessage]) -> Mapping[str, Any]:
    optional = {name: field for name, field in cls.model_fields.items() if not field.is_required()}
    return {name: field.get_default(call_default_factory=True) for name, field in optional.items()}


def _keep(data: dict[str, Any], name: str, value: Any, lost: list[str]) -> None:
    """Keep a field for the payload; of a mapping that JSON cannot express, the entries that it can."""
    try:
        data[name] = CODEC.encode(value)
    except UnstorableError as error:
        if name not in ("additional_kwargs", "response_metadata"):
            lost.append(f"{name} ({error})")
            return
        kept: dict[str, Any] = {}
        for key, inner in value.items():
            entry: dict[str, Any] = {}
            _keep(entry, f"{name}[{key!r}]", inner, lost)
            kept |= {key: inner} if entry else {}
        if kept:
            data[name] = CODEC.encode(kept)


def _media_tokens(own: Any, blocks: Any) -> int:
    given = own.get("media_tokens") if isinstance(own, Mapping) else None
    known = isinstance(given, int) and not isinstance(given, bool) and given >= 0
    return int(given) if known and given is not None else blocks_tokens(blocks)


def grounding_of(value: Any) -> Grounding | None:
    """Return the grounding that a value stands for; None if it is none.

    Args:
        value: a text, a list of texts and `Document`s, best first, or a mapping with the arguments of `Grounding`.
    """
    if isinstance(value, str):
        return Grounding.of(value) if value else None
    if isinstance(value, list) and value and all(isinstance(item, str | Document) for item in value):
        return Grounding(items=tuple(map(_item, value)))
    if isinstance(value, dict):
        try:
            return Grounding.model_validate(value)
        except ValidationError:
            return None
    return None


def _item(value: str | Document) -> GroundingItem:
    if isinstance(value, str):
        return GroundingItem(text=value)
    score = value.metadata.get(SCORE)
    usable = isinstance(score, Real) and math.isfinite(score)
    return GroundingItem(text=value.page_content, score=float(score) if score is not None and usable else None)


def from_message(message: Message) -> BaseMessage:
    """Convert a message of the engine to LangChain's.

    A message made by `to_message` is restored equal. One that was stored without LangChain, or by another adapter,
    becomes a plain message of its role; what LangChain has no field for is not carried over. Text that is set apart is
    where it was.

    In a prompt, recalled messages and grounding stand before the content, here as in the engine's message.
    """
    message, data = message.whole, _own(message.payload)
    built = _bare(message, data)
    if "content" in data:
        built.content = unpack(message.content, data["content"], data["$text"])
    if isinstance(built, AIMessage):
        built.tool_calls, built.invalid_tool_calls = langchain_calls(message.tool_calls)  # type: ignore[assignment]
    for name, value in data.items():
        if name not in _NEUTRAL and not name.startswith("$"):
            _put(built, name, CODEC.decode(value))
    if message.grounding is not None:
        built.additional_kwargs = {**built.additional_kwargs, GROUNDING: _grounding_value(message.grounding)}
    return built


def _own(payload: Payload | None) -> Mapping[str, Any]:
    """Return the data of a payload, if it is LangChain's."""
    known = payload is not None and payload.format == FORMAT and isinstance(payload.data, Mapping)
    return payload.data if payload is not None and known else {}


def _bare(message: Message, data: Mapping[str, Any]) -> BaseMessage:
    # The other fields are set later: the constructor would parse tool calls again, with another result.
    kind = data.get("$type", _TYPE_OF[message.role])
    fields: dict[str, Any] = {"content": message.content, "id": data.get("id", message.id), "name": message.name}
    required = {"tool": {"tool_call_id": message.tool_call_id or ""}, "chat": {"role": data.get("role", message.role)}}
    return _TYPES[kind](**fields | required.get(kind, {}))


def _put(built: BaseMessage, name: str, value: Any) -> None:
    if name in type(built).model_fields:
        setattr(built, name, value)
    elif built.model_extra is not None:  # a plain assignment would call a property of that name
        built.model_extra[name] = value


def _grounding_value(grounding: Grounding) -> Any:
    texts = [item.text for item in grounding.items]
    if texts and grounding == Grounding.of(*texts):
        return texts
    fields = grounding.model_dump(exclude_defaults=True)
    return {**fields, "items": list(fields["items"])} if "items" in fields else fields


def system_first(prompt: Iterable[Message]) -> list[Message]:
    """Return a prompt with its system messages at the beginning; Anthropic's models refuse them in between."""
    return sorted(prompt, key=lambda message: message.role != "system")


# Tool calls

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
