"""The answer in a response as messages: of a whole response, or put together from the events of a stream; pure."""

from collections.abc import Mapping, Sequence
from typing import Any

from typing_extensions import override

from shared_core.doors.openai_proxy.answer import interrupted
from shared_core.doors.openai_proxy.event_stream import DONE, chunk_of, named_event
from shared_core.doors.openai_proxy.protocol import AnswerStream
from shared_core.doors.openai_proxy.refusal import Refused
from shared_core.doors.openai_proxy.responses_items import answer_messages, grouped, to_keep, with_ids, wordless
from shared_core.formats.parts import text_of
from shared_core.messages import Message

ENDED = ("completed", "incomplete")
"""The states of a response that is an answer. One that is incomplete reached a limit."""

FAILED = ("failed", "cancelled")

_LAST = tuple(f"response.{state}" for state in ENDED)
_ERRORS = ("error", *(f"response.{state}" for state in FAILED))
_ITEM_EVENTS = ("response.output_item.added", "response.output_item.done")
_WORDS = ("response.output_text.delta", "response.refusal.delta")


def answer_of_response(response: Mapping[str, Any], *, keep_id: bool) -> tuple[Message, ...]:
    """Return the answer of a response. None: it says nothing.

    Args:
        response: the response.
        keep_id: whether the last message has the id of the response.

    Raises:
        ValueError: it is no response.
    """
    output = response.get("output")
    if not isinstance(output, list) or not all(map(_is_item, output)):
        raise ValueError("the response has no output")
    own = response.get("id")
    answer_id = own if keep_id and isinstance(own, str) and own else None
    status = response.get("status", "completed")
    if status in FAILED:
        part = interrupted("\n".join(one.content for one in grouped(to_keep(output)).messages), "upstream")
        return () if part is None else (part.replace(id=answer_id),)
    if status not in ENDED:
        return ()  # it is answered later
    messages = answer_messages(output, noted=answer_id is not None)
    if not messages:
        return () if answer_id is None else (wordless(answer_id),)
    return (*messages[:-1], messages[-1].replace(id=answer_id))


def _is_item(value: Any) -> bool:
    return isinstance(value, dict) and isinstance(value.get("type"), str)


def _words_of(item: Mapping[str, Any]) -> str:
    """Return what the model says in an item; empty: it is no message, or none that can be read."""
    try:
        return text_of(item.get("content")) if item["type"] == "message" else ""
    except ValueError:
        return ""


def _said(text: str) -> dict[str, Any]:
    return {"type": "message", "role": "assistant", "content": text}


class StreamedResponse(AnswerStream):
    """Puts an answer together from the events of a stream.

    The last event should hold the whole response. Some servers and gateways leave the output out of it: then the items
    that came one by one count, and the words of those that did not come.

    Args:
        keep_id: as for `answer_of_response`.
    """

    goes_on = True

    def __init__(self, *, keep_id: bool) -> None:
        self.ended = self.complete = False
        self.failed = False
        self._keep_id = keep_id
        self._id: str | None = None
        self._ids: dict[str, None] = {}
        self._words: dict[tuple[int, int], list[str]] = {}
        self._items: dict[tuple[int, str], Mapping[str, Any]] = {}
        self._response: Mapping[str, Any] = {}
        self._next_number = 0

    @override
    def take(self, data: str | None) -> bool:
        event = (chunk_of(data) if data is not None else None) or {}
        kind, response, number = event.get("type"), event.get("response"), event.get("sequence_number")
        if isinstance(number, int):
            self._next_number = number + 1
        if isinstance(response, dict):
            self._response = response
            self._id = response["id"] if isinstance(response.get("id"), str) and response["id"] else self._id
        index, part = (event[key] if isinstance(event.get(key), int) else 0 for key in _PLACE)
        if kind in _WORDS and isinstance(event.get("delta"), str):
            self._words.setdefault((index, part), []).append(event["delta"])
        elif kind in _ITEM_EVENTS and _is_item(event.get("item")):
            item = event["item"]
            if isinstance(item.get("id"), str):
                self._ids[item["id"]] = None
            if kind == _ITEM_EVENTS[1]:
                self._items[index, str(item.get("id") or item.get("call_id"))] = item
        self.failed = self.failed or kind in _ERRORS or bool(event.get("error"))
        self.ended = self.complete = self.ended or kind in _LAST
        return self.ended or (data is not None and data.strip() == DONE)

    @override
    def whole(self) -> Sequence[Message]:
        response = {"id": self._id, **self._response}
        if response.get("output") in (None, []):
            response["output"] = self._collected() or response.get("output")
        if response.get("status") not in (*ENDED, *FAILED):
            response["status"] = "completed"  # an event said so
        return answer_of_response(response, keep_id=self._keep_id)

    def _collected(self) -> list[Mapping[str, Any]]:
        """Return the items that came one by one, and for those that did not come their words."""
        items = [(index, item) for (index, _), item in self._items.items()]
        spoken = {index for index, item in items if _words_of(item)}
        texts: dict[int, list[str]] = {}
        for index, part in sorted(self._words):
            texts.setdefault(index, []).append("".join(self._words[index, part]))
        said = [(index, _said("\n".join(parts))) for index, parts in texts.items() if index not in spoken]
        return [item for _, item in sorted([*said, *items], key=lambda one: one[0])]

    @override
    def part(self, why: str) -> Message | None:
        part = interrupted("\n".join(text for item in self._collected() if (text := _words_of(item))), why)
        return with_ids(part.replace(id=self._id), [*self._ids]) if part is not None and self._keep_id else part

    @override
    def closing(self, last: bytes, report: Mapping[str, Any] | None) -> bytes:
        if report is None:
            return last
        return named_event({"type": "memory.report", "memory_report": report}) + last

    @override
    def error(self, refused: Refused) -> bytes:
        # Programs look for the fields of the protocol's own error; OpenAI's SDKs raise what `error` says.
        told = refused.data()["error"]
        fields = {key: told[key] for key in ("code", "message", "param")}
        return named_event({"type": "error", **fields, "sequence_number": self._next_number, "error": told})


_PLACE = ("output_index", "content_index")
"""Where words belong: among the items of the response, and among the parts of the item. Some servers send neither."""
