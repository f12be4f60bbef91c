"""The values that make up a conversation: messages, tool calls and grounding. They are frozen and do no I/O."""

import inspect
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import MISSING, fields
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, field_validator

from shared_core.display import explained, short
from shared_core.formats.anthropic import is_anthropic, read_anthropic
from shared_core.formats.fields import ROLE_NAMES, MessageFields, Role, own_copy
from shared_core.formats.openai_chat import write_chat
from shared_core.formats.openai_responses import message_groups, read_group, write_items

BLANK_LINE = "\n\n"
"""The separator between the parts of a rendered message."""


def in_utc(moment: datetime) -> datetime:
    """Return `moment`, taken as UTC if it has no zone, as a message's time is.

    Raises:
        ValueError: in UTC it is outside the years 1 to 9999, or its time zone fails.
    """
    if moment.tzinfo is None:
        return moment.replace(tzinfo=UTC)
    if moment.tzinfo is not UTC:
        try:
            moment.astimezone(UTC)
        except OverflowError:
            raise ValueError(f"{moment.isoformat()} is outside the years 1 to 9999 in UTC; give another time") from None
        except Exception as error:  # a time zone is the caller's code
            raise ValueError(f"the time zone {moment.tzinfo!r} fails with {type(error).__name__}: {error}") from error
    return moment


MOST_TOKENS = 2**31 - 1
"""The largest size of one message or text, in tokens. The sum of a whole history then fits in 64 bits."""

SET_APART = "(Left out for length: {count} parts.)"
"""The note of grounding that stood in the message itself; it marks such grounding in stored messages."""

CUT = " […]"
"""Ends a content whose end is set apart."""

_set = object.__setattr__  # the only way to set an attribute of a frozen value


def storable(text: str) -> str:
    """Return a text with U+FFFD in place of NUL and of lone halves of surrogate pairs, which databases refuse."""
    return _paired(text).replace("\0", "\ufffd")


def _paired(text: str) -> str:
    return text if text.isascii() else text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def storable_name(name: str) -> str:
    """Return a name or an id; ValueError if it cannot be stored as it is, as another one may be stored so."""
    if storable(name) != name:
        raise ValueError("NUL and halves of surrogate pairs cannot be stored in a name or an id")
    return name


def _storable_data(value: Any) -> Any:
    """Return plain data as it is stored, as JSON, which escapes NUL; as it is if it is nested too deeply for that."""
    try:
        return _each_paired(value)
    except RecursionError:
        return value


def _each_paired(value: Any) -> Any:
    if isinstance(value, str):
        return _paired(value)
    if isinstance(value, dict):
        return {_each_paired(key): _each_paired(one) for key, one in value.items()}
    return [_each_paired(one) for one in value] if isinstance(value, list) else value


Timestamp = Annotated[datetime, AfterValidator(in_utc)]
Text = Annotated[str, AfterValidator(storable)]


def join(*parts: str) -> str:
    """Return the parts that are not empty, with a blank line between them."""
    return BLANK_LINE.join(part for part in parts if part)


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


class ToolCall(_Value):
    """A tool call in an assistant message.

    Args:
        id: the id of the call, which the tool's reply repeats in `Message.tool_call_id`.
        name: the name of the tool.
        arguments: the arguments, as the JSON text that the model wrote.
    """

    id: Text
    name: Text
    arguments: Text = ""


class GroundingItem(_Value):
    """One retrieved passage.

    Args:
        text: the passage.
        score: how well it matches the question. Passages with lower scores are trimmed first.
        brief: the passage in less detail, such as its title: if the passages do not fit, the weakest are given so,
            before any is left out. Empty: it is whole or left out.
    """

    text: Text
    score: float | None = None
    brief: Text = ""


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
    header: Text = ""
    footer: Text = ""
    omitted_note: Text = ""

    @classmethod
    def of(cls, *texts: str, **fields: str) -> "Grounding":
        """Return grounding of plain passages, best first; `fields` are the other arguments of `Grounding`."""
        return cls(items=tuple(GroundingItem(text=text) for text in texts), **fields)

    @property
    def filled(self) -> list[int]:
        """The indices of the items that have text."""
        return [index for index, item in enumerate(self.items) if item.text]

    @property
    def surrounds(self) -> bool:
        """Whether the text stood in the message itself, directly around its content; see `set_apart`."""
        return self.omitted_note == SET_APART

    @property
    def text(self) -> str:
        """Everything it holds, for a search."""
        return join(self.header, *(item.text for item in self.items), self.footer)

    def shown(self, keep: Sequence[int] | None = None) -> list[str]:
        """Return the texts of the items at these indices, in order; by default of all."""
        return [self.items[index].text for index in (self.filled if keep is None else sorted(keep))]

    def render(self, texts: Sequence[str] | None = None) -> str:
        """Return header, texts, the note on items that are left out, and footer as one text; empty without texts.

        Args:
            texts: the texts of the items that are there; by default of all.
        """
        texts = self.shown() if texts is None else texts
        return join(self.header, *texts, self._note(texts), self.footer) if any(texts) else ""

    def with_content(self, content: str, texts: Sequence[str] | None = None) -> str:
        """Return the text of a message with its grounding, as it is sent; `texts` as for `render`."""
        texts = self.shown() if texts is None else texts
        if not self.surrounds:
            return join(self.render(texts), content)
        if not any(texts):
            return content
        rest, note = "".join(texts), self._note(texts)
        if note:
            rest = join(rest.strip("\n"), note)
        if self.header:
            return content.removesuffix(CUT) + self.header + rest
        return rest + (BLANK_LINE if note else "") + content + self.footer

    def _note(self, texts: Sequence[str]) -> str:
        omitted = len(self.filled) - sum(map(bool, texts))
        return self.omitted_note.replace("{count}", str(omitted)) if omitted else ""

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
    data: Annotated[Any, AfterValidator(_storable_data)] = None

    def __hash__(self) -> int:
        return hash(self.format)  # JSON data is not hashable


class Message(_Value):
    """One message of a conversation.

    In all texts, NUL and lone halves of surrogate pairs become U+FFFD, the replacement character, because databases
    refuse them; NUL in a payload stays. Ids with these are refused. Messages with equal fields are equal. If `id`,
    `created_at` and `turn_id` are None, they are filled in when the message is stored.

    Args:
        role: who speaks: `"system"`, `"user"`, `"assistant"` or `"tool"`; or what other programs call them, such as
            `"human"`, `"ai"`, `"agent"`, `"model"`, `"bot"`, `"developer"` or `"function"`.
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
    content: Text = ""
    id: Annotated[str, Field(min_length=1), AfterValidator(storable_name)] | None = None
    name: Text | None = None
    created_at: Timestamp | None = None
    turn_id: Annotated[str, AfterValidator(storable_name)] | None = None
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: Text | None = None
    grounding: Grounding | None = None
    pinned: bool = False
    media_tokens: Annotated[int, Field(ge=0, le=MOST_TOKENS)] = 0
    payload: Payload | None = None

    @field_validator("role", mode="before")
    @classmethod
    def _accept_names(cls, value: Any) -> Any:
        return ROLE_NAMES.get(value.lower(), value) if isinstance(value, str) else value

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

    @classmethod
    def from_openai(cls, item: Mapping[str, Any] | BaseModel) -> "Message":
        """Return the message that a dict of OpenAI's means; `to_openai` gives an equal dict back.

        Images, sound, files and unknown fields are kept in the payload, and `media_tokens` is an estimate of what media
        cost. The dict may also hold `id`, `created_at`, `turn_id`, `grounding`, `pinned` and `media_tokens`.

        Args:
            item: a message of chat completions, an item of the Responses API, or an object of the SDK that is one.

        Raises:
            ValueError: the role or the type of a part is unknown, a field has another form, or there is no content.
        """
        return message_of(read_group([_plain(item)]))

    @classmethod
    def from_anthropic(cls, item: Mapping[str, Any] | BaseModel) -> "Message":
        """Return the message that a dict or a reply of Anthropic's means.

        Blocks that have no field here, such as thoughts with their signatures, are kept in the payload, and
        `Context.to_anthropic` sends them back where a tool loop needs them. `media_tokens` is an estimate of what
        pictures, files and thoughts cost. The dict may also hold `id`, `created_at`, `turn_id`, `grounding`, `pinned`
        and `media_tokens`.

        Args:
            item: a `Message` of the SDK, or a dict with `role` and `content`.

        Raises:
            ValueError: the role is unknown, a block is invalid, or it holds several results, which are a message each:
                `InfiniteMemory.add` takes them.
        """
        given = _plain(item)
        content = given.get("content")
        blocks = content if isinstance(content, list) else [{"type": "text", "text": content}]
        found = read_anthropic({**given, "content": blocks})
        if len(found) != 1:
            raise ValueError(f"it holds {len(found)} messages: pass it to add(), which stores each of them")
        return message_of(found[0])

    def to_openai(self) -> dict[str, Any]:
        """Return the message for a request to OpenAI's chat completions, with its grounding before its text.

        Characters that the API refuses in a name, such as blanks, are written as `_`. Reasoning and searches of the
        Responses API have no field there and are left out.

        Raises:
            ValueError: it holds media in the form of another API, which cannot be expressed.
        """
        return write_chat(fields_of(self))

    def to_responses(self) -> list[dict[str, Any]]:
        """Return the message as items for a request to OpenAI's Responses API, with its grounding before its text.

        Raises:
            ValueError: it holds sound, or media in the form of another API, which cannot be expressed.
        """
        return write_items(fields_of(self))

    @property
    def whole(self) -> "Message":
        """The message as it was before text was set apart from its content; the message itself if none was."""
        return self.grounded if self.grounding is not None and self.grounding.surrounds else self

    @property
    def grounded(self) -> "Message":
        """The message as it is sent with all its grounding: in its content instead of in a field of its own."""
        if self.grounding is None:
            return self
        return self.replace(content=self.grounding.with_content(self.content), grounding=None)

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
        changed = object.__new__(Message)
        _set(changed, "__dict__", {**self.__dict__, **changes})
        _set(changed, "__pydantic_fields_set__", self.__pydantic_fields_set__ | changes.keys())
        _set(changed, "__pydantic_extra__", None)
        _set(changed, "__pydantic_private__", None)
        return changed


def with_grounding(message: Message, grounding_text: str) -> Message:
    """Return the message as sent: with the grounding before its text instead of in a field of its own.

    Grounding that surrounds the content has been rendered with it, so its text is the whole content.
    """
    if not grounding_text and message.grounding is None:
        return message
    surrounds = message.grounding is not None and message.grounding.surrounds
    content = grounding_text if surrounds and grounding_text else join(grounding_text, message.content)
    return message.replace(content=content, grounding=None)


def _said(content: Any) -> Any:
    """Return the text of a message. Unlike a model's reply with tool calls, what a person says is never None."""
    if content is None:
        raise ValueError("content=None: expected a text")
    return content


def content_of(message: Message) -> Mapping[str, Any]:
    """Return the fields that two messages with the same content share: all except those that the store fills in.

    Text that is set apart counts as part of the content.
    """
    return message.whole.model_dump(mode="json", exclude={"id", "created_at", "turn_id"}, exclude_defaults=True)


MessageLike = Message | Mapping[str, Any] | BaseModel
"""A message, a dict in one of OpenAI's formats or in Anthropic's, or an object of their SDKs."""


def fields_of(message: Message) -> MessageFields:
    """Return what a format writes of a message: plain data of its own, with the grounding before the text."""
    payload = message.payload
    return {
        "role": message.role,
        "content": message.grounded.content,
        "id": message.id,
        "name": message.name,
        "tool_calls": [{"id": call.id, "name": call.name, "arguments": call.arguments} for call in message.tool_calls],
        "tool_call_id": message.tool_call_id,
        "media_tokens": message.media_tokens,
        "payload": {"format": payload.format, "data": own_copy(payload.data)} if payload else None,
    }


def message_of(fields: MessageFields) -> Message:
    """Return the message with these fields; ValueError, in one line, if a field is invalid."""
    values: Any = fields
    return Message(**values)


def one_message(message: MessageLike) -> Message:
    """Return a message; TypeError or ValueError, as for `message_list`, if it is none."""
    if isinstance(message, Message):
        return message
    given = _plain(message)
    return Message.from_anthropic(given) if is_anthropic(given) else Message.from_openai(given)


def message_list(messages: Any) -> list[Message]:
    """Return one message or several as a list. Items of the Responses API that belong together are one message.

    Raises:
        TypeError: something is neither a message nor a dict.
        ValueError: a dict is no message of OpenAI's. The error names its index and what is wrong.
    """
    if isinstance(messages, Message):
        return [messages]
    if isinstance(messages, Mapping | BaseModel):
        one = _plain(messages)
        return [*map(message_of, read_anthropic(one))] if is_anthropic(one) else [Message.from_openai(one)]
    if isinstance(messages, str) or not isinstance(messages, Iterable):
        raise _not_a_message(messages)
    given = [one if isinstance(one, Message) else _plain(one) for one in messages]
    found: list[Message] = []
    for index, group in message_groups(given):
        try:
            if isinstance(group[0], Message):
                found.append(group[0])
            elif is_anthropic(group[0]):
                found += map(message_of, read_anthropic(group[0]))
            else:
                found.append(message_of(read_group(group)))
        except ValueError as error:
            raise ValueError(f"messages[{index}]: {error}") from None
    return found


def _plain(given: Any) -> Mapping[str, Any]:
    """Return a dict of OpenAI's; an object of its SDK, which is a pydantic model, as such a dict."""
    if isinstance(given, BaseModel) and not isinstance(given, _Value):
        given = _dumped(given)
    if not isinstance(given, Mapping):
        raise _not_a_message(given)
    # People write `{"role": "assistant", "tool_calls": reply.tool_calls}`, which holds objects of the SDK.
    return {
        key: [_dumped(one) for one in value] if isinstance(value, list | tuple) else _dumped(value)
        for key, value in given.items()
    }


def _dumped(value: Any) -> Any:
    """Return an object of the SDK as a dict, and any other value as it is."""
    if not isinstance(value, BaseModel):
        return value
    # The SDK builds its objects without validation, so pydantic may warn of what the API returned.
    return value.model_dump(mode="json", by_alias=True, exclude_none=True, warnings=False)


def _not_a_message(given: Any) -> TypeError:
    return TypeError(
        f"expected messages, not {short(given)}: write Message.user(text), Message.assistant(text), or dicts such as "
        '{"role": "user", "content": text}'
    )


# Short reprs of results: ids and counts instead of whole conversations

SHOWN = 3
"""Ids that are shown of a longer list."""

TEXT_SHOWN = 60
"""Characters of a text that are shown."""


def short_repr(value: Any) -> str:
    """Return the repr of a dataclass on one line: without defaults, and with the beginnings of lists and texts."""
    shown = [
        f"{field.name}={brief(getattr(value, field.name))}"
        for field in fields(value)
        if field.repr and (field.default is MISSING or getattr(value, field.name) != field.default)
    ]
    return f"{type(value).__name__}({', '.join(shown)})"


def brief(value: Any) -> str:
    """Return the repr of a value on one line, with the beginnings of lists and texts."""
    match value:
        case Message():
            return f"<{value.role} {value.id}: {_text(value.content)}>"
        case str():
            return _text(value)
        case Mapping():
            return _list([f"{key!r}: {brief(each)}" for key, each in value.items()], "{}")
        case tuple():
            ids = [repr(each.id) if isinstance(each, Message) else brief(each) for each in value]
            return _list(ids, "()")
    return repr(value)


def _text(text: str) -> str:
    return repr(text if len(text) <= TEXT_SHOWN else f"{text[: TEXT_SHOWN - 1]}…")


def _list(items: Sequence[str], brackets: str) -> str:
    """Return the first items in brackets, and how many there are if that is more."""
    more = [f"… {len(items):,} in all"] if len(items) > SHOWN else []
    comma = "," if len(items) == 1 and brackets == "()" else ""
    return f"{brackets[0]}{', '.join([*items[:SHOWN], *more])}{comma}{brackets[1]}"
