"""Read message lists in the OpenAI format from a file."""

import json
import os
from collections.abc import Callable, Iterable, Iterator
from hashlib import blake2b
from pathlib import Path
from typing import Any, NoReturn

from shared_core.display import short
from shared_core.errors import InputFileError
from shared_core.formats.openai_chat import read_chat
from shared_core.messages import Message, content_of, message_of
from shared_core.sharing.format import LineError

EXPECTED = 'expected JSON, a list of messages or {"messages": [...]}, or one of these per line (JSONL)'


def read_messages(path: str | os.PathLike[str]) -> list[Message]:
    """Return the messages of a file, in order. Several conversations in one file are joined.

    A message keeps its `id`. A message without one gets a digest of the message before it, its role, its text and its
    tool fields. The ids are therefore the same when the file is read again, even after messages were added at its end.
    Images, audio, files and unknown fields are kept in the payload; media count as an estimate of tokens.

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
    message = message_of(read_chat(entry)).replace(turn_id=None)  # the store assigns turns itself
    return message if message.id is not None else message.replace(id=_chained(previous, message))


def _chained(previous: str, message: Message) -> str:
    calls = [[call.id, call.name, call.arguments] for call in message.tool_calls]
    said = [previous, message.role, message.content, calls, message.tool_call_id]
    return "import-" + blake2b(json.dumps(said).encode(), digest_size=16).hexdigest()
