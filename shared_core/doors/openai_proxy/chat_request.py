"""A request for a chat completion: its body, checked, and what of it concerns the memory."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType, UnionType
from typing import Any, NoReturn

from typing_extensions import override

from shared_core.doors.openai_proxy.answer import StreamedAnswer, answer_of
from shared_core.doors.openai_proxy.protocol import ApiRequest, Stored
from shared_core.doors.openai_proxy.refusal import Refused
from shared_core.doors.openai_proxy.seen_histories import parted
from shared_core.messages import Message, message_list
from shared_core.prompt.context import Context

Form = tuple[type | UnionType, str]
"""What a field must be if it is there and not null, with the words for it: a whole number is one above 0."""

COUNT: Form = (int, "a whole number above 0")
FLAG: Form = (bool, "true or false")
NUMBER: Form = (int | float, "a number")
OBJECT: Form = (dict, "an object")
TEXT: Form = (str, "a string")

SHARED_FORMS: Mapping[str, Form] = {
    "conversation": (str | dict, "a string or an object"), "metadata": OBJECT, "model": TEXT, "stream": FLAG,
    "stream_options": OBJECT, "temperature": NUMBER, "tools": (list, "a list of objects"), "top_p": NUMBER,
    "user": TEXT,
}  # fmt: skip
"""The fields of all protocols. Those that are not checked are for the model's server to judge."""

_FORMS = {**SHARED_FORMS, "max_completion_tokens": COUNT, "max_tokens": COUNT, "n": COUNT}


@dataclass(frozen=True, slots=True)
class ChatRequest(ApiRequest):
    """A request for a chat completion."""

    path = "chat/completions"

    @override
    def read(self, stored: Stored = MappingProxyType({})) -> "ChatRequest":
        entries = self.unread()
        for index, one in enumerate(entries):
            if not isinstance(one, dict) or not isinstance(one.get("role"), str):
                raise Refused(400, f'messages[{index}]: expected an object with "role" and "content"')
        try:
            messages = message_list(entries)
        except (ValueError, TypeError, RecursionError) as error:
            said = "nested too deeply" if isinstance(error, RecursionError) else str(error)
            raise Refused(400, said if said.startswith("messages[") else f"messages: {said}") from None
        if len(messages) != len(entries):
            raise Refused(400, "messages: these are items of the Responses API; expected those of chat completions")
        return replace(self, messages=tuple(messages), sent=tuple((one,) for one in entries))

    @staticmethod
    @override
    def answers(entry: Any) -> bool:
        return isinstance(entry, dict) and entry.get("role") == "assistant"

    @override
    def one(self, entries: Sequence[Any]) -> Message | None:
        return message_list(entries)[0]

    @property
    @override
    def reply_tokens(self) -> int | None:
        """The tokens that the reply may take; None: the client does not say."""
        given = self.body.get("max_completion_tokens") or self.body.get("max_tokens")
        return given if isinstance(given, int) else None

    @override
    def entries(self, context: Context) -> list[list[Any]]:
        return [[message] for message in context.to_openai()]

    @override
    def written(self, entries: Sequence[Any]) -> bytes:
        return written({**self.body, "messages": list(entries)})

    @override
    def answer(self, body: Mapping[str, Any]) -> Sequence[Message]:
        answer = answer_of(body)
        return () if answer is None else (answer,)

    @override
    def answer_stream(self) -> StreamedAnswer:
        return StreamedAnswer()


def written(data: Any) -> bytes:
    """Return JSON; Refused with 400 if JSON has no form for a number, or the data is nested too deeply."""
    try:
        return json.dumps(data, allow_nan=False, separators=(",", ":")).encode()
    except (ValueError, RecursionError):
        raise Refused(400, "a number of the request is too large, or it is nested too deeply") from None


def read_body(raw: bytes) -> dict[str, Any]:
    """Return the fields of a body; Refused with 400 if it is no JSON object."""
    try:
        body = json.loads(raw.decode("utf-8"), parse_constant=_no_number)
    except UnicodeDecodeError:
        raise Refused(400, "the body is not UTF-8") from None
    except RecursionError:
        raise Refused(400, "the body is nested too deeply") from None
    except ValueError:  # its message may quote the body
        raise Refused(400, "the body is not valid JSON") from None
    if not isinstance(body, dict):
        raise Refused(400, "the body must be a JSON object")
    return body


def _no_number(name: str) -> NoReturn:
    raise ValueError(name)


def check_fields(body: Mapping[str, Any], forms: Mapping[str, Form]) -> None:
    """Raise Refused with 400 if a field has another form."""
    for name, (kind, form) in forms.items():
        value = body.get(name)
        if value is not None and not (is_count(value) if kind is int else _is_a(kind, value)):
            raise Refused(400, f"{name}: expected {form}")


def is_count(value: Any) -> bool:
    """Return whether a value is a whole number above 0."""
    return _is_a(int, value) and value > 0


def _is_a(kind: type | UnionType, value: Any) -> bool:
    if kind is list:
        return isinstance(value, list) and all(isinstance(one, dict) for one in value)
    return isinstance(value, kind) and (kind is bool or not isinstance(value, bool))  # which is an int in Python


def read_chat_request(body: Mapping[str, Any]) -> ChatRequest:
    """Return a request for a chat completion; Refused with 400 if a field has another form."""
    check_fields(body, _FORMS)
    given = body.get("messages")
    if not isinstance(given, list) or not given:
        raise Refused(400, "messages: expected a list with one message or more")
    return ChatRequest(body, given, parted(given))
