"""The answer of a model as a message: of a whole completion, or put together from the chunks of a stream; pure."""

from collections.abc import Mapping, Sequence
from typing import Any

from typing_extensions import override

from shared_core.doors.openai_proxy.event_stream import DONE, chunk_of, event
from shared_core.doors.openai_proxy.protocol import AnswerStream
from shared_core.doors.openai_proxy.refusal import Refused
from shared_core.messages import Message, Payload

KEPT = ("role", "content", "refusal", "tool_calls", "function_call", "audio")
"""Fields of an answer that are stored. The others, such as reasoning, some APIs refuse in a request."""

NOTED = "infinite-memory-serve/1"
"""The payload format for what the server notes of an answer.

`{"interrupted": "client"}` says why it broke off, and "ids" are those of the items that it came in.
"""


def answer_of(completion: Mapping[str, Any]) -> Message | None:
    """Return the answer of a completion, the first if there are several; None: it says nothing.

    Raises:
        ValueError: there is none, or it is no message.
    """
    choices = completion.get("choices")
    given = [one for one in choices if isinstance(one, Mapping)] if isinstance(choices, list) else []
    first = next((one for one in given if one.get("index", 0) == 0), None)
    message = None if first is None else first.get("message")
    if not isinstance(message, Mapping):
        raise ValueError("no answer is among the choices")
    return message_from(message)


def message_from(fields: Mapping[str, Any]) -> Message | None:
    """Return the message of an answer's fields; None: it says nothing; ValueError: it is no message."""
    kept = {key: fields[key] for key in KEPT if fields.get(key) is not None}
    message = Message.from_openai({**kept, "role": "assistant", "content": kept.get("content")})
    return message if message.content or message.tool_calls or message.payload is not None else None


class StreamedAnswer(AnswerStream):
    """Puts an answer together from the chunks of a stream. It has ended when a chunk said why."""

    goes_on = False

    def __init__(self) -> None:
        self.ended = self.complete = False
        self.failed = False
        self._texts: dict[str, list[str]] = {"content": [], "refusal": []}
        self._calls: dict[int, dict[str, Any]] = {}
        self._newest_call = -1

    @override
    def take(self, data: str | None) -> bool:
        if data is None:
            return False
        self.add(chunk_of(data) or {})
        done = data.strip() == DONE
        self.complete = self.ended or done
        return done

    def add(self, chunk: Mapping[str, Any]) -> None:
        """Take a chunk. Of several answers, the first is taken; what has another form is left out."""
        self.failed = self.failed or bool(chunk.get("error"))
        choices = chunk.get("choices")
        for choice in choices if isinstance(choices, list) else ():
            if not isinstance(choice, Mapping) or choice.get("index", 0) != 0:
                continue
            self.ended = self.ended or choice.get("finish_reason") is not None
            delta = choice.get("delta")
            if isinstance(delta, Mapping):
                self._take(delta)

    def _take(self, delta: Mapping[str, Any]) -> None:
        for key, pieces in self._texts.items():
            if isinstance(delta.get(key), str):
                pieces.append(delta[key])
        calls = delta.get("tool_calls")
        for call in calls if isinstance(calls, list) else ():
            if isinstance(call, Mapping):
                self._take_call(call)

    def _take_call(self, delta: Mapping[str, Any]) -> None:
        """Take a piece of a call. Some servers leave out the index: then an id begins another call."""
        index = delta.get("index")
        if not isinstance(index, int):
            index = self._newest_call + 1 if delta.get("id") or self._newest_call < 0 else self._newest_call
        self._newest_call = index
        call = self._calls.setdefault(index, {})
        for key, value in delta.items():
            if key in ("function", "custom") and isinstance(value, Mapping):
                _join(call.setdefault(key, {}), value)
            elif key != "index" and value is not None:
                call.setdefault(key, value)

    def message(self) -> Message | None:
        """Return the whole answer; None: it says nothing; ValueError: it is no message."""
        calls = [self._calls[index] for index in sorted(self._calls)]
        for call in calls:
            if isinstance(call.get("function"), dict):
                call["function"].setdefault("arguments", "")
        texts = {key: "".join(pieces) for key, pieces in self._texts.items() if any(pieces)}
        return message_from({**texts, "tool_calls": calls or None})

    @override
    def whole(self) -> Sequence[Message]:
        message = self.message()
        return () if message is None else (message,)

    @override
    def part(self, why: str) -> Message | None:
        # Calls are left out: the arguments of the last one are not whole, and no tool answers it.
        return interrupted("".join(self._texts["content"]), why)

    @override
    def closing(self, last: bytes, report: Mapping[str, Any] | None) -> bytes:
        # The event with the report has no choices, as the one on usage.
        told: dict[str, Any] = {"object": "chat.completion.chunk", "choices": [], "memory_report": report}
        return (b"" if report is None else event(told)) + (last or event(DONE))

    @override
    def error(self, refused: Refused) -> bytes:
        return event(refused.data())


def interrupted(text: str, why: str) -> Message | None:
    """Return what came of an answer that broke off, marked as such; None: nothing did."""
    mark = Payload(format=NOTED, data={"interrupted": why})
    return Message.assistant(text, payload=mark) if text else None


def _join(body: dict[str, Any], delta: Mapping[str, Any]) -> None:
    """Add a piece to the body of a call: arguments come in pieces, everything else comes at once."""
    for key, value in delta.items():
        if key in ("arguments", "input") and isinstance(value, str):
            body[key] = body.get(key, "") + value
        elif value is not None:
            body.setdefault(key, value)
