"""Read message lists in the OpenAI format from a file."""

import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from hashlib import blake2b
from pathlib import Path
from typing import Any, NoReturn

from pydantic import ValidationError

from shared_core.errors import InputFileError
from shared_core.messages import Message, Payload, Role, ToolCall, content_of
from shared_core.sharing.format import LineError

OPENAI_FORMAT = "openai/1"
"""The payload format for fields of the file that `Message` does not have."""

ROLES: Mapping[str, Role] = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "assistant": "assistant",
    "tool": "tool",
    "function": "tool",
}

TEXT_PARTS = {"text", "input_text", "output_text"}

READ_FIELDS = {
    "role",
    "content",
    "id",
    "name",
    "created_at",
    "timestamp",
    "tool_calls",
    "tool_call_id",
    "function_call",
    "grounding",
    "turn_id",  # dropped: the store assigns turns itself
}
"""The fields of a message that are read. All others go to the payload."""

EXPECTED = 'expected JSON, a list of messages or {"messages": [...]}, or one of these per line (JSONL)'


def read_messages(path: str | os.PathLike[str]) -> list[Message]:
    """Return the messages of a file, in order. Several conversations in one file are joined.

    A message keeps its `id`. A message without one gets a digest of the message before it, its role, its text and its
    tool fields. The ids are therefore the same when the file is read again, even after messages were added at its end.
    Images, audio, files and unknown fields are kept in the payload and are not counted as tokens.

    Args:
        path: a JSON file with a list of messages or an object with `messages`, or a JSONL file with one message or one
            such conversation per line.

    Raises:
        InputFileError: the file has another form. The error names the file, the line or message, and what is expected.
    """
    name = os.fspath(path)
    return messages_of(name, entries_of(name, text_of(path)))


def messages_of(
    name: str, entries: Iterable[tuple[str, Any]], convert: Callable[[Any], Any] = lambda entry: entry
) -> list[Message]:
    """Return the messages of a file. Errors are those of `read_messages`.

    Args:
        name: the file, for errors.
        entries: pairs of where a message is in the file and the message as written.
        convert: returns a message in the OpenAI format; raises `LineError` if that is impossible.
    """
    messages: dict[str, Message] = {}
    previous = ""
    for location, entry in entries:
        try:
            message = _message(convert(entry), previous)
            previous = _add_once(message, messages)
        except ValueError as error:  # also raised by comparing payloads that are nested too deeply
            raise InputFileError(f"{name!r}, {location}: {error}") from None
    return list(messages.values())


def _add_once(message: Message, messages: dict[str, Message]) -> str:
    """Add the message under its id and return the id. An id may be repeated only with the same content."""
    assert message.id is not None
    if content_of(messages.setdefault(message.id, message)) != content_of(message):
        raise LineError(f"id {message.id!r} belongs to another message, too; expected ids that are unique in the file")
    return message.id


def text_of(path: str | os.PathLike[str]) -> str:
    """Return the text of a file; InputFileError if it cannot be read or is empty."""
    try:
        return _text(Path(path))
    except LineError as error:
        raise InputFileError(f"{os.fspath(path)!r} {error}") from None


def _text(path: Path) -> str:
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise LineError(f"is not text in UTF-8 (byte {error.start}); {EXPECTED}") from None
    except OSError as error:
        raise LineError(f"cannot be read ({error.strerror or error}); expected a file to import") from None
    except ValueError as error:
        raise LineError(f"is not a file name ({error}); expected a file to import") from None
    if not text.strip():
        raise LineError(f"is empty; {EXPECTED}")
    return text


def entries_of(name: str, text: str) -> Iterator[tuple[str, Any]]:
    """Yield (location, message as written) from a text that is JSON or JSONL."""
    try:
        whole = parse_text(text)
    except LineError as error:
        lines = [(number, line) for number, line in enumerate(text.split("\n"), 1) if line.strip()]
        if len(lines) > 1 and _is_json(lines[0][1]):
            return _of_lines(name, lines)
        raise InputFileError(f"{name!r}, {error}; {EXPECTED}") from None
    return _conversation("", whole)


def _of_lines(name: str, lines: Iterable[tuple[int, str]]) -> Iterator[tuple[str, Any]]:
    for number, line in lines:
        try:
            entry = parse_text(line)
        except LineError as error:
            raise InputFileError(
                f"{name!r}, line {number} is not JSON ({error}); expected one message per line"
            ) from None
        yield from _conversation(f"line {number}", entry)


def _conversation(location: str, entry: Any) -> Iterator[tuple[str, Any]]:
    """Yield (location, message) for a message, a list of entries, or an object that holds such a list."""
    if isinstance(entry, dict) and "messages" in entry and "role" not in entry:
        entry = entry["messages"]
        if not isinstance(entry, list):
            entry = [entry]
    if not isinstance(entry, list):
        yield location or "message 1", entry
        return
    for number, item in enumerate(entry, 1):
        inner = f"{location}, message {number}" if location else f"message {number}"
        if isinstance(item, dict) and "messages" in item and "role" not in item:
            yield from _conversation(inner, item)
        else:
            yield inner, item


def parse_text(text: str) -> Any:
    """Return the value of a JSON text; `LineError` if it is not JSON."""
    try:
        return json.loads(text, parse_constant=_reject_constant)
    except json.JSONDecodeError as error:
        raise LineError(f"line {error.lineno}, column {error.colno}: {error.msg}") from None
    except RecursionError:
        raise LineError("the brackets are nested too deeply") from None
    except ValueError as error:
        raise LineError(str(error)) from None


def _reject_constant(name: str) -> NoReturn:
    raise LineError(f"{name} is not JSON")


def _is_json(line: str) -> bool:
    try:
        parse_text(line)
    except LineError:
        return False
    return True


def _message(entry: Any, previous: str) -> Message:
    if not isinstance(entry, dict):
        raise LineError(f'{short(entry)} is not a message; expected an object with "role" and "content"')
    role = ROLES.get(str(entry.get("role")))
    if role is None:
        raise LineError(f"unknown role {short(entry.get('role'))}; expected one of {', '.join(ROLES)}")
    content, parts = _content(entry.get("content"))
    calls = _tool_calls(entry)
    answers = _answers(entry, role)
    fields = {
        "id": entry.get("id") if entry.get("id") is not None else _chained(previous, role, content, calls, answers),
        "role": role,
        "content": content,
        "name": entry.get("name"),
        "created_at": _time(entry),
        "tool_calls": calls,
        "tool_call_id": answers,
        "grounding": entry.get("grounding"),
        "payload": _payload(entry, parts),
    }
    try:
        return Message.model_validate(fields)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        field = ".".join(map(str, first["loc"]))
        reason = f"{field} {short(first['input'])} is invalid: {first['msg']}"
        raise LineError(" ".join(reason.split())) from None


def _content(content: Any) -> tuple[str, list[Any]]:
    """Return the text of a content, and its parts if they hold more than the text."""
    if content is None:
        return "", []
    if isinstance(content, str):
        return content, []
    if not isinstance(content, list):
        raise LineError(f"content is {short(content)}; expected text, null or a list of parts")
    texts = [part if isinstance(part, str) else _text_part(part) for part in content]
    plain = all(isinstance(part, str) or part.keys() == {"type", "text"} for part in content)
    return "\n".join(text for text in texts if text is not None), [] if plain else content


def _text_part(part: Any) -> str | None:
    if not isinstance(part, dict) or not isinstance(part.get("type"), str):
        raise LineError(f'content part {short(part)} is invalid; expected an object with "type"')
    if part["type"] not in TEXT_PARTS:
        return None
    if not isinstance(part.get("text"), str):
        raise LineError(f'text part {short(part)} is invalid; expected a "text" field')
    return str(part["text"])


def _tool_calls(entry: Mapping[str, Any]) -> tuple[ToolCall, ...]:
    calls = entry.get("tool_calls") or []
    if not isinstance(calls, list):
        raise LineError(f"tool_calls is {short(calls)}; expected a list")
    named = [_tool_call(call.get("id"), call) if isinstance(call, dict) else _tool_call(None, call) for call in calls]
    legacy = entry.get("function_call")
    if isinstance(legacy, dict):
        named.append(_tool_call(_function_call_id(legacy.get("name")), {"function": legacy}))
    return tuple(named)


def _tool_call(call_id: Any, call: Any) -> ToolCall:
    body = (call.get("function") or call.get("custom")) if isinstance(call, dict) else None
    if not isinstance(body, dict) or not isinstance(body.get("name"), str) or not isinstance(call_id, str):
        raise LineError(f'tool call {short(call)} is invalid; expected "id" and "function" with "name" and "arguments"')
    arguments = body.get("arguments", body.get("input", ""))
    if not isinstance(arguments, str):
        arguments = json.dumps(arguments, ensure_ascii=False)
    return ToolCall(id=call_id, name=body["name"], arguments=arguments)


def _function_call_id(name: Any) -> str:
    """Return the id for a `function_call`, which is linked to its result only by the function's name."""
    return f"function:{name}"


def _answers(entry: Mapping[str, Any], role: Role) -> Any:
    """Return the id of the call that a tool message answers."""
    answers = entry.get("tool_call_id")
    if answers is None and entry["role"] == "function":
        answers = _function_call_id(entry.get("name"))
    if answers is None and role == "tool":
        raise LineError('a tool message has no "tool_call_id"; expected the id of the call it answers')
    return answers


def _time(entry: Mapping[str, Any]) -> datetime | None:
    value = entry.get("created_at") if entry.get("created_at") is not None else entry.get("timestamp")
    if value is None:
        return None
    try:
        if isinstance(value, str):
            return datetime.fromisoformat(value)
        if isinstance(value, int | float) and not isinstance(value, bool):
            return datetime.fromtimestamp(value, UTC)
    except (ValueError, OverflowError, OSError):
        pass
    raise LineError(f"the time {short(value)} is invalid; expected ISO 8601 text or seconds since 1970")


def _payload(entry: Mapping[str, Any], parts: Sequence[Any]) -> Payload | None:
    data = {key: value for key, value in entry.items() if key not in READ_FIELDS and value is not None}
    if parts:
        data["content"] = list(parts)
    return Payload(format=OPENAI_FORMAT, data=data) if data else None


def _chained(previous: str, role: Role, content: str, calls: Sequence[ToolCall], answers: Any) -> str:
    said = [previous, role, content, [[call.id, call.name, call.arguments] for call in calls], answers]
    return "import-" + blake2b(json.dumps(said).encode(), digest_size=16).hexdigest()


def short(value: Any) -> str:
    """Return the `repr` of a value, shortened for an error message."""
    shown = repr(value)
    return shown if len(shown) <= 60 else shown[:57] + "..."
