"""LangChain's messages as the engine's, and back without loss."""

import copy
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
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

from langchain_infinite_memory.additional_kwargs import (
    ENGINE_FIELDS,
    GROUNDING,
    EngineFields,
    decode_grounding,
    encode_grounding,
    grounding_of,
    read_fields,
    written_fields,
)
from langchain_infinite_memory.content import CODEC, Content, blocks_tokens, pack, unpack
from langchain_infinite_memory.tool_calls import answered_call, engine_calls, langchain_calls
from shared_core.doors.interop.values import UnstorableError, UnstorableWarning
from shared_core.errors import warn
from shared_core.formats.fields import ROLE_NAMES, Role
from shared_core.messages import Grounding, Message, Payload, ToolCall

__all__ = ["UnstorableWarning", "from_message", "to_message"]

FORMAT = "langchain/1"
"""The format of the payload: those fields of the message, by name, that the engine's message does not hold.

Keys that begin with "$" are not fields: "$type" is the message's type where the role does not imply it, "$text" the
`text_mark` of the text that the blocks of "content" refer to, "$grounding" the form in which grounding was given.
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
_NEUTRAL = {"content", "type", "id", "name", "additional_kwargs"}
_NEUTRAL_TOO = {"ai": {"tool_calls", "invalid_tool_calls"}, "tool": {"tool_call_id"}}
"""Fields that are not copied into the payload."""


def to_message(message: BaseMessage) -> Message:
    """Convert a LangChain message for the engine; `from_message` restores an equal one.

    A chunk is converted to a whole message first, and a subclass to the class of LangChain that it extends. The id is
    kept; the store gives an id to a message without one, which is restored without. The texts of content blocks are
    joined to the `content`. Images and the like cost fixed figures, reasoning costs what its text does. Invalid tool
    calls count as tool calls, because each must be answered, too.

    `additional_kwargs["grounding"]` becomes `grounding`: a text, a list of texts or `Document`s, or a mapping with the
    arguments of `Grounding`. `additional_kwargs["infinite_memory"]` may hold `{"pinned": True}`, and
    `{"media_tokens": n}` where the cost of media is known.

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


def read_message(message: BaseMessage) -> tuple[Message, tuple[str, ...]]:
    """Return what `to_message` returns, and descriptions of what is left out, without a warning."""
    whole = _whole(message)
    kind = next((name for name, cls in _TYPES.items() if isinstance(whole, cls)), None)
    if kind is None:
        raise TypeError(
            f"a {type(message).__name__} cannot be stored; these can: "
            f"{', '.join(cls.__name__ for cls in _TYPES.values())}"
        )
    reader = _MessageReader(whole, kind)
    return reader.message(), tuple(reader.lost)


def _whole(message: BaseMessage) -> BaseMessage:
    while isinstance(message, BaseMessageChunk):  # a subclass of a chunk is converted to a chunk first
        message = message_chunk_to_message(message)
    return message


class _MessageReader:
    """Takes one LangChain message apart.

    Attributes:
        data: what goes into the payload.
        lost: descriptions of what JSON cannot express.
    """

    def __init__(self, message: BaseMessage, kind: str) -> None:
        self.source = message
        self.kind = kind
        self.role = _named_role(message.role) if isinstance(message, ChatMessage) else _ROLE_OF[kind]
        self.data: dict[str, Any] = {} if _TYPE_OF[self.role] == kind else {"$type": kind}
        self.lost: list[str] = []
        self.fields: EngineFields | None = None
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
        given = self.source.additional_kwargs.get(ENGINE_FIELDS)
        if self.fields is not None and from_message(message).additional_kwargs.get(ENGINE_FIELDS) != given:
            self.data.setdefault("additional_kwargs", {})[ENGINE_FIELDS] = CODEC.encode(given)
            message = self._message()
        return message

    def _message(self) -> Message:
        fields = self.fields or EngineFields()
        media = blocks_tokens(self.content.blocks or ())
        own = Payload(format=FORMAT, data=self.data) if self.data else None
        return Message(
            role=self.role,
            content=self.content.text,
            id=self.source.id or None,
            name=self.source.name,
            tool_calls=fields.tool_calls or self.tool_calls,
            tool_call_id=answered_call(self.source),
            grounding=self.grounding,
            pinned=fields.pinned,
            media_tokens=media if fields.media_tokens is None else fields.media_tokens,
            payload=own or copy.deepcopy(fields.payload),
        )

    def _read_content(self) -> Content:
        # The blocks of an answer are pieces of one text; those of a question may be separate texts.
        content = pack(self.source.content, "" if self.kind == "ai" else "\n")
        if content.blocks is not None:
            self.data["content"] = content.blocks
            self.data["$text"] = list(content.mark)
            self.lost += content.lost
        return content

    def _read_calls(self) -> tuple[ToolCall, ...]:
        if not isinstance(self.source, AIMessage):
            return ()
        calls = engine_calls(self.source)
        given = {"tool_calls": self.source.tool_calls, "invalid_tool_calls": self.source.invalid_tool_calls}
        pairs = zip(given.items(), langchain_calls(calls), strict=True)
        with self._or_lost("tool_calls"):
            self.data |= {name: CODEC.encode(value) for (name, value), back in pairs if value != back}
        return calls

    def _read_kwargs(self) -> None:
        entries = dict(self.source.additional_kwargs)
        if ENGINE_FIELDS in entries and _plain_keys(entries):
            with suppress(UnstorableError):  # what cannot be stored is left out below, like any other entry
                CODEC.encode(entries[ENGINE_FIELDS])
                self.fields = read_fields(self.source)
        if self.fields is not None:
            del entries[ENGINE_FIELDS]
        if (grounding := grounding_of(entries.get(GROUNDING))) is not None:
            self.grounding = grounding
            with self._or_lost(f"what else is in additional_kwargs['{GROUNDING}']"):
                data = encode_grounding(entries.pop(GROUNDING), grounding)
                self.data |= {} if data is None else {"$grounding": data}
        if entries:
            self._keep_entries("additional_kwargs", entries)

    def _keep_entries(self, name: str, value: Any) -> None:
        """Keep a mapping, without the entries that JSON cannot express."""
        if not isinstance(value, dict) or not _plain_keys(value):
            self._keep(name, value)
            return
        entries: dict[str, Any] = {}
        for key, inner in value.items():
            with self._or_lost(f"{name}[{key!r}]"):
                entries[key] = CODEC.encode(inner)
        if entries:
            self.data[name] = entries

    def _keep(self, name: str, value: Any) -> None:
        with self._or_lost(name):
            self.data[name] = CODEC.encode(value)

    @contextmanager
    def _or_lost(self, what: str) -> Iterator[None]:
        try:
            yield
        except UnstorableError as error:
            self.lost.append(f"{what} ({error})")


def _named_role(name: str) -> Role:
    """Return the role of a `ChatMessage`. It is no tool's reply, because it does not name a call."""
    role = ROLE_NAMES.get(name.lower(), "user")
    return "assistant" if role == "tool" else role


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
    """Convert a message of the engine to LangChain's.

    A message made by `to_message` is restored equal. One that was stored without LangChain, or by another adapter,
    becomes a plain message of its role. What LangChain has no field for (`pinned`, `media_tokens`, another payload, the
    exact text of a call's arguments) is kept in `additional_kwargs["infinite_memory"]`, so that `to_message` returns
    the same content again. These are not carried over: `created_at` and `turn_id`, which belong to the store; tool
    calls of a message that is not an assistant's; and the `tool_call_id` of one that is not a tool's (a tool's message
    without one gets ""). Text that is set apart is where it was.

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
    entries = CODEC.decode(data.get("additional_kwargs", {}))
    if message.grounding is not None:
        entries[GROUNDING] = decode_grounding(message.grounding, data.get("$grounding"))
    if ENGINE_FIELDS not in entries and (fields := written_fields(message, data, built)):
        entries[ENGINE_FIELDS] = fields
    if entries:
        built.additional_kwargs = entries
    return built


def _own(payload: Payload | None) -> Mapping[str, Any]:
    if payload is None or payload.format != FORMAT or not isinstance(payload.data, Mapping):
        return {}
    return payload.data if payload.data.get("$type", "ai") in _TYPES else {}


def _bare(message: Message, data: Mapping[str, Any]) -> BaseMessage:
    # The other fields are set later: the constructor would parse tool calls again, with another result.
    kind = data.get("$type", _TYPE_OF[message.role])
    fields: dict[str, Any] = {"content": message.content, "id": data.get("id", message.id), "name": message.name}
    required = {
        "tool": {"tool_call_id": message.tool_call_id or ""},
        "chat": {"role": data.get("role", message.role)},
        "function": {"name": message.name or ""},
    }
    return _TYPES[kind](**fields | required.get(kind, {}))


def _put(built: BaseMessage, name: str, value: Any) -> None:
    if name in type(built).model_fields:
        setattr(built, name, value)
    elif built.model_extra is not None:  # a plain assignment would call a property of that name
        built.model_extra[name] = value


def system_first(prompt: Iterable[Message]) -> list[Message]:
    """Return a prompt with its system messages at the beginning; Anthropic's models refuse them in between."""
    return sorted(prompt, key=lambda message: message.role != "system")
