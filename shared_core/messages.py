"""The values that make up a conversation: messages, tool calls and grounding. They are frozen and do no I/O."""

import inspect
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, field_validator

from shared_core.field_errors import explained

__all__ = [
    "Grounding",
    "GroundingItem",
    "Message",
    "Payload",
    "Role",
    "ToolCall",
    "content_of",
    "in_utc",
    "message_list",
]

Role = Literal["system", "user", "assistant", "tool"]


def in_utc(moment: datetime) -> datetime:
    """Return `moment`, taken as UTC if it has no zone, as a message's time is."""
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)


_set = object.__setattr__  # the only way to set an attribute of a frozen value

Timestamp = Annotated[datetime, AfterValidator(in_utc)]


class _Value(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    if not TYPE_CHECKING:  # type checkers know the arguments from the fields

        def __init__(self, /, *unnamed: object, **fields: Any) -> None:
            """Raise a `ValueError` that says what to write if a field is unknown or has a wrong value."""
            if unnamed:
                kind, names = type(self).__name__, list(type(self).model_fields)[:2]
                raise TypeError(f"name the fields of a {kind}: {kind}({names[0]}=…, {names[1]}=…)")
            try:
                super().__init__(**fields)
            except ValidationError as error:
                invalid = ValueError(explained(type(self), error))
            else:
                return
            raise invalid  # outside of the handler, so that pydantic's own error does not come along

        # Without this mark, pydantic would call the constructor for every value that it validates itself.
        __init__.__pydantic_base_init__ = True
        __init__.__signature__ = inspect.signature(BaseModel.__init__)

        def __setattr__(self, name: str, value: object) -> None:
            """Raise a `TypeError`, because values are frozen."""
            try:
                super().__setattr__(name, value)
            except ValidationError:
                kind = type(self).__name__
                raise TypeError(f"a {kind} is frozen; copy it: value.model_copy(update={{{name!r}: …}})") from None


class ToolCall(_Value):
    """A tool call in an assistant message.

    Args:
        id: the id of the call, which the tool's reply repeats in `Message.tool_call_id`.
        name: the name of the tool.
        arguments: the arguments, as the JSON text that the model wrote.
    """

    id: str
    name: str
    arguments: str = ""


class GroundingItem(_Value):
    """One retrieved passage.

    Args:
        text: the passage.
        score: how well it matches the question. Passages with lower scores are trimmed first.
    """

    text: str
    score: float | None = None


class Grounding(_Value):
    """Text that was retrieved for one question, kept apart from the text that the user typed.

    Args:
        items: the passages, rendered in this order with a blank line between them. Plain strings are accepted. Without
            scores, earlier passages count as better.
        header: a line before the items. It stays as long as an item is left.
        footer: a line after the items. It stays as long as an item is left.
        omitted_note: a note for the model that items were left out; `{count}` is replaced by their number. Empty: no
            note.
    """

    items: tuple[GroundingItem, ...] = ()
    header: str = ""
    footer: str = ""
    omitted_note: str = ""

    @classmethod
    def of(cls, *texts: str, **fields: str) -> "Grounding":
        """Return grounding of plain passages, best first; `fields` are the other arguments of `Grounding`."""
        return cls(items=tuple(GroundingItem(text=text) for text in texts), **fields)

    @field_validator("items", mode="before")
    @classmethod
    def _accept_strings(cls, value: Any) -> Any:
        if isinstance(value, Sequence) and not isinstance(value, str):
            return tuple({"text": item} if isinstance(item, str) else item for item in value)
        return value


class Payload(_Value):
    """The original form of a message in a framework. The engine stores it and does not look into it.

    Args:
        format: the framework and the version of the form, for example `"langchain/1"`.
        data: plain JSON data.
    """

    format: str
    data: Any = None

    def __hash__(self) -> int:
        return hash(self.format)  # JSON data is not hashable


class Message(_Value):
    """One message of a conversation.

    Messages with equal fields are equal. If `id`, `created_at` and `turn_id` are None, they are filled in when the
    message is stored.

    Args:
        role: who speaks: `"system"`, `"user"`, `"assistant"` or `"tool"`.
        content: the text, without grounding.
        id: an id that is unique in the session.
        name: the speaker's name, if several people or agents share a role.
        created_at: when it was said. A time without a zone is taken as UTC.
        turn_id: the id of the user message that opened its turn (for a user message, its own id).
        tool_calls: the tool calls of an assistant message.
        tool_call_id: the id of the call that a tool message answers.
        grounding: text retrieved for this message. A plain string is accepted.
        pinned: whether it stays in every prompt, with its whole turn. System messages always stay.
        media_tokens: the tokens of images, audio and the like, in addition to the text.
        payload: the original form of the message in a framework.
    """

    role: Role
    content: str = ""
    id: Annotated[str, Field(min_length=1)] | None = None
    name: str | None = None
    created_at: Timestamp | None = None
    turn_id: str | None = None
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str | None = None
    grounding: Grounding | None = None
    pinned: bool = False
    media_tokens: Annotated[int, Field(ge=0)] = 0
    payload: Payload | None = None

    @field_validator("grounding", mode="before")
    @classmethod
    def _accept_text(cls, value: Any) -> Any:
        if isinstance(value, str):
            return Grounding(items=(GroundingItem(text=value),)) if value else None
        return value

    @field_validator("content", mode="before")
    @classmethod
    def _missing_is_empty(cls, value: Any) -> Any:
        return "" if value is None else value

    @classmethod
    def system(cls, content: str, **fields: Any) -> "Message":
        """Return a system message; `fields` are the other arguments of `Message`."""
        return cls(role="system", content=_said(content), **fields)

    @classmethod
    def user(cls, content: str, **fields: Any) -> "Message":
        """Return a user message; `fields` are the other arguments of `Message`."""
        return cls(role="user", content=_said(content), **fields)

    @classmethod
    def assistant(cls, content: str = "", **fields: Any) -> "Message":
        """Return an assistant message; `fields` are the other arguments of `Message`."""
        return cls(role="assistant", content=content, **fields)

    @classmethod
    def tool(cls, content: str, tool_call_id: str, **fields: Any) -> "Message":
        """Return a tool's reply to the call `tool_call_id`."""
        return cls(role="tool", content=content, tool_call_id=tool_call_id, **fields)

    @property
    def stays(self) -> bool:
        """Whether every prompt must hold this message."""
        return self.pinned or self.role == "system"

    def replace(self, **changes: Any) -> "Message":
        """Return a copy with some fields changed. Unlike in the constructor, the values are not validated."""
        # This does what `model_copy` does for a model without private fields, in half the time. Every message is copied
        # like this when it is stored and when it is read.
        if type(self) is not Message:
            return self.model_copy(update=changes)
        copy = object.__new__(Message)
        _set(copy, "__dict__", {**self.__dict__, **changes})
        _set(copy, "__pydantic_fields_set__", self.__pydantic_fields_set__ | changes.keys())
        _set(copy, "__pydantic_extra__", None)
        _set(copy, "__pydantic_private__", None)
        return copy


def _said(content: Any) -> Any:
    """Return the text of a message. Unlike a model's reply with tool calls, what a person says is never None."""
    if content is None:
        raise ValueError("content=None: expected a text")
    return content


def content_of(message: Message) -> Mapping[str, Any]:
    """Return the fields that two messages with the same content share: all except those that the store fills in."""
    return message.model_dump(mode="json", exclude={"id", "created_at", "turn_id"}, exclude_defaults=True)


def message_list(messages: Any) -> list[Message]:
    """Return one message or several as a list; TypeError if there is anything else among them."""
    given: list[Message] = []
    single = isinstance(messages, Message | str | bytes | Mapping) or not isinstance(messages, Iterable)
    for message in [messages] if single else messages:
        if not isinstance(message, Message):
            shown = repr(message)[:80]
            raise TypeError(f"expected messages, not {shown}: write Message.user(text), Message.assistant(text)")
        given.append(message)
    return given
