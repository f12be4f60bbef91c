"""LangChain's messages as the engine's, and back, equal."""

import copy
import warnings
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    BaseMessageChunk,
    ChatMessage,
    FunctionMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
    message_chunk_to_message,
)

from langchain_infinite_memory.additional_kwargs import GROUNDING, grounding_form, grounding_of, grounding_value
from langchain_infinite_memory.content import Content, blocks_tokens, pack, unpack
from langchain_infinite_memory.kept import KEPT, Kept, kept_of, to_keep
from langchain_infinite_memory.tool_calls import function_id, lc_calls, neutral_calls
from langchain_infinite_memory.values import UnstorableError, decode, encode, is_encodable
from shared_core.messages import Grounding, Message, Payload, Role, ToolCall

__all__ = ["FORMAT", "UnstorableWarning", "from_message", "read_message", "to_message"]

FORMAT = "langchain/1"
"""The format of the payload: the message's fields, by name, as far as the neutral message does not hold them.

Keys that begin with "$" are no fields: "$type" is the message's type where the role does not say it, "$text" length and
checksum of the text that the blocks of "content" refer to, "$grounding" the form that grounding was given in.
"""

_TYPES: dict[str, type[BaseMessage]] = {
    "human": HumanMessage,
    "ai": AIMessage,
    "system": SystemMessage,
    "tool": ToolMessage,
    "function": FunctionMessage,
    "chat": ChatMessage,
}
_TYPE_OF: dict[Role, str] = {"user": "human", "assistant": "ai", "system": "system", "tool": "tool"}
_ROLE_OF: dict[str, Role] = {"human": "user", "ai": "assistant", "system": "system", "tool": "tool", "function": "tool"}
_ROLE_NAMED: dict[str, Role] = {
    **dict.fromkeys(("system", "developer"), "system"),
    **dict.fromkeys(("assistant", "ai", "model", "bot", "tool", "function"), "assistant"),
}
"""The roles of a `ChatMessage`; any other is a person's. It names no call, so that it cannot be a tool's reply."""

_NEUTRAL = {"content", "type", "id", "name", "additional_kwargs"}
_NEUTRAL_TOO = {"ai": {"tool_calls", "invalid_tool_calls"}, "tool": {"tool_call_id"}}
"""Fields that are not copied into the payload as they are."""


class UnstorableWarning(UserWarning):
    """A part of a message has no JSON form, so that it is stored without that part."""


def to_message(message: BaseMessage) -> Message:
    """Return a LangChain message as the engine stores it; `from_message` gives an equal one back.

    Chunks become whole messages first, and a subclass becomes the class of LangChain that it extends. The id is kept;
    a message without one is given one by the store, and comes back without. The text of content blocks, joined, is the
    `content`; images and the like count with fixed figures (`media`), reasoning by its text. Invalid tool calls are
    tool calls, too: each must be answered. `additional_kwargs["grounding"]` becomes `grounding`, kept apart: a text, a
    list of texts or `Document`s, or a mapping with the arguments of `Grounding`. `additional_kwargs["infinite_memory"]`
    may hold `{"pinned": True}`, and `{"media_tokens": n}` where the cost of media is known.

    A value that JSON has no form for is left out, with an `UnstorableWarning`: an artifact, a content block, a tool
    call's arguments or one entry of `additional_kwargs` and `response_metadata`.

    Raises:
        TypeError: it is no message that can be stored, such as a `RemoveMessage`.
    """
    read, lost = read_message(message)
    if lost:
        left_out = ", ".join(lost)
        warnings.warn(f"{type(message).__name__}: stored without {left_out}", UnstorableWarning, stacklevel=2)
    return read


def read_message(message: BaseMessage) -> tuple[Message, tuple[str, ...]]:
    """Return what `to_message` returns and names of what is left out, without a warning."""
    whole = _whole(message)
    kind = next((name for name, cls in _TYPES.items() if isinstance(whole, cls)), None)
    if kind is None:
        raise TypeError(
            f"a {type(message).__name__} cannot be stored; these can: "
            f"{', '.join(cls.__name__ for cls in _TYPES.values())}"
        )
    reading = _Reading(whole, kind)
    return reading.message(), tuple(reading.lost)


def _whole(message: BaseMessage) -> BaseMessage:
    while isinstance(message, BaseMessageChunk):  # a subclass of a chunk becomes a chunk at first
        message = message_chunk_to_message(message)
    return message


class _Reading:
    """One LangChain message, taken apart.

    Attributes:
        data: what goes into the payload.
        lost: what has no JSON form, named for a person.
    """

    def __init__(self, message: BaseMessage, kind: str) -> None:
        self.source = message
        self.kind = kind
        self.role = _role(message, kind)
        self.data: dict[str, Any] = {} if _TYPE_OF[self.role] == kind else {"$type": kind}
        self.lost: list[str] = []
        self.kept: Kept | None = None
        self.grounding: Grounding | None = None
        if not message.id:
            self.data["id"] = message.id
        self.content = self._read_content()
        self.tool_calls = self._read_calls()
        self._read_kwargs()
        done = _NEUTRAL | _NEUTRAL_TOO.get(kind, set())
        for name, value in message:
            if name not in done and not _is_default(message, name, value):
                self._keep_entries(name, value) if name == "response_metadata" else self._keep(name, value)

    def message(self) -> Message:
        """Return the engine's message."""
        message = self._message()
        given = self.source.additional_kwargs.get(KEPT)
        if self.kept is not None and from_message(message).additional_kwargs.get(KEPT) != given:
            self.data["additional_kwargs"] = {**self.data.get("additional_kwargs", {}), KEPT: encode(given)}
            message = self._message()
        return message

    def _message(self) -> Message:
        kept = self.kept or Kept()
        media = blocks_tokens(self.content.blocks or ())
        own = Payload(format=FORMAT, data=self.data) if self.data else None
        return Message(
            role=self.role,
            content=self.content.text,
            id=self.source.id or None,
            name=self.source.name,
            tool_calls=kept.tool_calls or self.tool_calls,
            tool_call_id=_answered(self.source),
            grounding=self.grounding,
            pinned=kept.pinned,
            media_tokens=media if kept.media_tokens is None else kept.media_tokens,
            payload=own or copy.deepcopy(kept.payload),
        )

    def _read_content(self) -> Content:
        # An answer comes in pieces of one text, a question may come with texts that stand apart.
        content = pack(self.source.content, "" if self.kind == "ai" else "\n")
        if content.blocks is not None:
            self.data["content"] = content.blocks
            self.data["$text"] = list(content.mark)
            self.lost += content.lost
        return content

    def _read_calls(self) -> tuple[ToolCall, ...]:
        if not isinstance(self.source, AIMessage):
            return ()
        calls = neutral_calls(self.source)
        given = {"tool_calls": self.source.tool_calls, "invalid_tool_calls": self.source.invalid_tool_calls}
        pairs = zip(given.items(), lc_calls(calls), strict=True)
        try:
            self.data |= {name: encode(value) for (name, value), back in pairs if value != back}
        except UnstorableError as error:
            self.lost.append(f"tool_calls ({error})")
        return calls

    def _read_kwargs(self) -> None:
        entries = dict(self.source.additional_kwargs)
        if KEPT in entries and is_encodable(entries[KEPT]) and _plain_keys(entries):
            self.kept = kept_of(self.source)
            if self.kept is not None:
                del entries[KEPT]
        if (grounding := grounding_of(entries.get(GROUNDING))) is not None:
            self.grounding = grounding
            try:
                form = grounding_form(entries.pop(GROUNDING), grounding)
                self.data |= {} if form is None else {"$grounding": form}
            except UnstorableError as error:
                self.lost.append(f"what else is in additional_kwargs['{GROUNDING}'] ({error})")
        if entries:
            self._keep_entries("additional_kwargs", entries)

    def _keep_entries(self, name: str, value: Any) -> None:
        """Keep a mapping, without what in it has no JSON form."""
        if not isinstance(value, dict) or not _plain_keys(value):
            self._keep(name, value)
            return
        entries: dict[str, Any] = {}
        for key, inner in value.items():
            try:
                entries[key] = encode(inner)
            except UnstorableError as error:
                self.lost.append(f"{name}[{key!r}] ({error})")
        if entries:
            self.data[name] = entries

    def _keep(self, name: str, value: Any) -> None:
        try:
            self.data[name] = encode(value)
        except UnstorableError as error:
            self.lost.append(f"{name} ({error})")


def _role(message: BaseMessage, kind: str) -> Role:
    if isinstance(message, ChatMessage):
        return _ROLE_NAMED.get(message.role.lower(), "user")
    return _ROLE_OF[kind]


def _answered(message: BaseMessage) -> str | None:
    if isinstance(message, FunctionMessage):
        return function_id(message.name)
    return message.tool_call_id if isinstance(message, ToolMessage) else None


def _is_default(message: BaseMessage, name: str, value: Any) -> bool:
    default = _defaults(type(message)).get(name, ...)
    return type(value) is type(default) and bool(value == default)


@lru_cache(maxsize=64)
def _defaults(cls: type[BaseMessage]) -> Mapping[str, Any]:
    optional = {name: field for name, field in cls.model_fields.items() if not field.is_required()}
    return {name: field.get_default(call_default_factory=True) for name, field in optional.items()}


def _plain_keys(entries: Mapping[Any, Any]) -> bool:
    return all(isinstance(key, str) and not key.startswith("$") for key in entries)


def from_message(message: Message) -> BaseMessage:
    """Return a message of the engine as LangChain's.

    One that `to_message` made comes back equal. One that was written without LangChain, or by another adapter, becomes
    a plain message of its role; what LangChain has no field for (`pinned`, `media_tokens`, the other payload, the exact
    text of a call's arguments) is kept in `additional_kwargs["infinite_memory"]` where there is any, so that
    `to_message` returns the same content again. `created_at` and `turn_id` are the store's and are not carried; nor are
    tool calls of a message that is not an assistant's, or a `tool_call_id` of one that is not a tool's (a tool's
    without one gets "").

    In a prompt, where recalled text and grounding have been put before the content, they stand before it here, too.
    """
    data = _own(message.payload)
    built = _bare(message, data)
    if "content" in data:
        built.content = unpack(message.content, data["content"], data["$text"])
    if isinstance(built, AIMessage):
        built.tool_calls, built.invalid_tool_calls = lc_calls(message.tool_calls)  # type: ignore[assignment]
    for name, value in data.items():
        if name not in _NEUTRAL and not name.startswith("$"):
            _put(built, name, decode(value))
    entries = decode(data.get("additional_kwargs", {}))
    if message.grounding is not None:
        entries[GROUNDING] = grounding_value(message.grounding, data.get("$grounding"))
    if KEPT not in entries and (kept := to_keep(message, data, built)):
        entries[KEPT] = kept
    if entries:
        built.additional_kwargs = entries
    return built


def _own(payload: Payload | None) -> Mapping[str, Any]:
    if payload is None or payload.format != FORMAT or not isinstance(payload.data, Mapping):
        return {}
    return payload.data if payload.data.get("$type", "ai") in _TYPES else {}


def _bare(message: Message, data: Mapping[str, Any]) -> BaseMessage:
    # All other fields are set later, because the constructor reads tool calls anew, and with another result.
    kind = data.get("$type", _TYPE_OF[message.role])
    fields: dict[str, Any] = {"content": message.content, "id": data.get("id", message.id), "name": message.name}
    if kind == "tool":
        return ToolMessage(**fields, tool_call_id=message.tool_call_id or "")
    if kind == "chat":
        return ChatMessage(**fields, role=data.get("role", message.role))
    if kind == "function":
        fields["name"] = message.name or ""
    return _TYPES[kind](**fields)


def _put(built: BaseMessage, name: str, value: Any) -> None:
    if name in type(built).model_fields:
        setattr(built, name, value)
    elif built.model_extra is not None:  # a plain assignment would go to a property of that name
        built.model_extra[name] = value
