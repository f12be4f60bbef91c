"""A request for a chat completion: its body, checked, and what of it concerns the memory."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from shared_core.messages import Message, message_list
from shared_core.openai_proxy.refusal import Refused

__all__ = ["ChatRequest", "read_body", "read_chat_request", "written"]


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_flag(value: Any) -> bool:
    return isinstance(value, bool)


def _is_object(value: Any) -> bool:
    return isinstance(value, dict)


def _are_objects(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(one, dict) for one in value)


_FORMS: Mapping[str, tuple[Callable[[Any], bool], str]] = {
    "conversation": (lambda value: isinstance(value, str | dict), "a string or an object"),
    "max_completion_tokens": (_is_count, "a whole number above 0"),
    "max_tokens": (_is_count, "a whole number above 0"),
    "metadata": (_is_object, "an object"),
    "model": (_is_text, "a string"),
    "n": (_is_count, "a whole number above 0"),
    "stream": (_is_flag, "true or false"),
    "stream_options": (_is_object, "an object"),
    "temperature": (_is_number, "a number"),
    "tools": (_are_objects, "a list of objects"),
    "top_p": (_is_number, "a number"),
    "user": (_is_text, "a string"),
}
"""What fields must be if they are there and not null. All others are for the model's server to judge."""


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """A request for a chat completion.

    Attributes:
        body: the fields, as the client sent them.
        messages: the messages among them.
    """

    body: Mapping[str, Any]
    messages: tuple[Message, ...]

    @property
    def streamed(self) -> bool:
        """Whether the answer is to come in pieces."""
        return bool(self.body.get("stream"))

    @property
    def reply_tokens(self) -> int | None:
        """The tokens that the reply may take; None: the client does not say."""
        given = self.body.get("max_completion_tokens") or self.body.get("max_tokens")
        return given if isinstance(given, int) else None

    def written(self, messages: Sequence[Any]) -> bytes:
        """Return the body with these messages instead, and everything else as the client sent it."""
        return written({**self.body, "messages": list(messages)})


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


def read_chat_request(body: Mapping[str, Any]) -> ChatRequest:
    """Return a request for a chat completion; Refused with 400 if a field has another form."""
    for name, (fits, form) in _FORMS.items():
        value = body.get(name)
        if value is not None and not fits(value):
            raise Refused(400, f"{name}: expected {form}")
    given = body.get("messages")
    if not isinstance(given, list) or not given:
        raise Refused(400, "messages: expected a list with one message or more")
    for index, one in enumerate(given):
        if not isinstance(one, dict) or not isinstance(one.get("role"), str):
            raise Refused(400, f'messages[{index}]: expected an object with "role" and "content"')
    try:
        messages = message_list(given)
    except (ValueError, TypeError, RecursionError) as error:
        said = "nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise Refused(400, said if said.startswith("messages[") else f"messages: {said}") from None
    if len(messages) != len(given):
        raise Refused(400, "messages: these are items of the Responses API; expected those of chat completions")
    return ChatRequest(body, tuple(messages))
