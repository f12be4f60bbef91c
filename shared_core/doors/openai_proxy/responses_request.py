"""A request to the Responses API: its body, checked, and what of it concerns the memory."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from typing_extensions import override

from shared_core.doors.openai_proxy.chat_request import (
    COUNT,
    FLAG,
    OBJECT,
    SHARED_FORMS,
    TEXT,
    check_fields,
    written,
)
from shared_core.doors.openai_proxy.event_stream import chunk_of
from shared_core.doors.openai_proxy.identity import LONGEST_RESPONSE_ID, checked_name
from shared_core.doors.openai_proxy.protocol import ApiRequest, Stored
from shared_core.doors.openai_proxy.refusal import Refused
from shared_core.doors.openai_proxy.responses_answer import StreamedResponse, answer_of_response
from shared_core.doors.openai_proxy.responses_items import Item, grouped, reference_of, resolved, to_send
from shared_core.doors.openai_proxy.seen_histories import parted
from shared_core.formats.openai_chat import custom_calls
from shared_core.formats.openai_responses import write_items
from shared_core.messages import Message, fields_of
from shared_core.prompt.context import Context

__all__ = ["ResponsesRequest", "read_responses_request"]

_FORMS = {
    **SHARED_FORMS, "background": FLAG, "input": (str | list, "a string or a list of items"), "instructions": TEXT,
    "max_output_tokens": COUNT, "previous_response_id": TEXT, "prompt": OBJECT, "store": FLAG,
}  # fmt: skip

OWN = ("conversation", "previous_response_id")
"""Fields that say what the model's server would put before the input. The memory puts it there instead."""


@dataclass(frozen=True, slots=True)
class ResponsesRequest(ApiRequest):
    """A request for a response.

    Attributes:
        loose: the items of the input, if none of them makes a message.
    """

    path = "responses"
    loose: tuple[Any, ...] = ()

    @property
    @override
    def previous(self) -> str | None:
        given = self.body.get("previous_response_id")
        return None if given is None else checked_name("previous_response_id", given, LONGEST_RESPONSE_ID)

    @staticmethod
    @override
    def references(entries: Sequence[Any]) -> list[str]:
        return [named for item in entries if (named := reference_of(item)) is not None]

    @override
    def read(self, stored: Stored = MappingProxyType({})) -> "ResponsesRequest":
        items = resolved(self.unread(), stored)
        for index, one in enumerate(items):
            _check(index, one)
        try:
            found = grouped(items)
        except (ValueError, TypeError, RecursionError) as error:
            said = "nested too deeply" if isinstance(error, RecursionError) else str(error)
            raise Refused(400, said if said.startswith("input[") else f"input: {said}") from None
        return replace(self, messages=found.messages, sent=found.items, loose=found.loose)

    @staticmethod
    @override
    def answers(entry: Any) -> bool:
        return isinstance(entry, dict) and (entry.get("role") == "assistant" or reference_of(entry) is not None)

    @override
    def one(self, entries: Sequence[Any]) -> Message | None:
        return next(iter(grouped(entries).messages), None)

    @property
    @override
    def goes_on_upstream(self) -> bool:
        return bool(self.references(self.given)) or any(self.body.get(key) for key in OWN)

    @property
    @override
    def beside(self) -> Message | None:
        instructions = self.body.get("instructions")
        return Message.system(instructions) if instructions else None

    @property
    @override
    def reply_tokens(self) -> int | None:
        given = self.body.get("max_output_tokens")
        return given if isinstance(given, int) else None

    @override
    def entries(self, context: Context) -> list[list[Any]]:
        fields = [*map(fields_of, context.messages)]
        custom = {call_id for one in fields for call_id in custom_calls(one)}
        asked = max((index for index, one in enumerate(context.messages) if one.role == "user"), default=-1)
        return [
            [*to_send(message, write_items(one, custom), current=index > asked)]
            for index, (message, one) in enumerate(zip(context.messages, fields, strict=True))
        ]

    @override
    def written(self, entries: Sequence[Any]) -> bytes:
        kept = {key: value for key, value in self.body.items() if key not in OWN}
        return written({**kept, "input": [*entries, *self.loose]})

    @override
    def answer(self, body: Mapping[str, Any]) -> Sequence[Message]:
        return answer_of_response(body, keep_id=self._keeps_ids)

    @override
    def refusal(self, status: int, body: bytes) -> Refused | None:
        # A path that is not there is told as a text, or as JSON of another form; a model that is not, as an error.
        told = chunk_of(body.decode("utf-8", "replace"))
        if status not in (404, 405, 501) or (told is not None and isinstance(told.get("error"), dict)):
            return None
        text = "the model's server has no /v1/responses; send the request to /v1/chat/completions"
        return Refused(404, text, code="upstream_without_responses")

    @override
    def answer_stream(self) -> StreamedResponse:
        return StreamedResponse(keep_id=self._keeps_ids)

    @property
    def _keeps_ids(self) -> bool:
        """Whether a request may go on after the response. Otherwise the client sends its history each time."""
        return self.body.get("store") is not False


def read_responses_request(body: Mapping[str, Any]) -> ResponsesRequest:
    """Return a request for a response; Refused with 400 if a field has another form."""
    check_fields(body, _FORMS)
    if body.get("conversation") is not None and body.get("previous_response_id") is not None:
        raise Refused(400, "conversation, previous_response_id: send one of them, not both")
    if body.get("background"):
        raise Refused(400, "background: responses cannot be fetched later here; leave it out")
    given = body.get("input")
    if given is None and body.get("prompt") is None and body.get("previous_response_id") is None:
        raise Refused(400, "input: expected a string or a list of items")
    items = [{"type": "message", "role": "user", "content": given}] if isinstance(given, str) else given or []
    return ResponsesRequest(body, items, parted(items))


def _check(index: int, item: Item) -> None:
    """Raise Refused if an entry of the input is no item. One of an unknown type is for the model's server to judge."""
    kinds = (item.get("type"), item.get("role")) if isinstance(item, dict) else ()
    if not any(isinstance(kind, str) for kind in kinds) or not all(isinstance(kind, str | None) for kind in kinds):
        # The API takes an id alone for a reference to an item.
        if isinstance(item, dict) and kinds == (None, None) and isinstance(item.get("id"), str):
            return
        raise Refused(400, f'input[{index}]: expected an item: an object with "role" and "content", or with "type"')
