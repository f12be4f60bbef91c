"""Read lists of messages from a JSON or JSONL file, in the forms of the APIs of OpenAI and Anthropic."""

import json
import os
from collections.abc import Iterator
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from shared_core.display import short
from shared_core.errors import InputFileError
from shared_core.formats.anthropic import is_anthropic, read_anthropic
from shared_core.formats.openai_chat import read_chat
from shared_core.messages import Message, content_of, message_of
from shared_core.sharing.format import LineError
from shared_core.sharing.readers.conversation import check_nesting

EXPECTED = 'expected JSON, a list of messages or {"messages": [...]}, or one of these per line (JSONL)'


class Document(NamedTuple):
    """The content of a JSON or JSONL file.

    Attributes:
        name: the file.
        whole: its value; that of JSONL is the list of the messages in its lines.
        entries: its messages as written, each with where it is in the file.
    """

    name: str
    whole: Any
    entries: list[tuple[str, Any]]


def read_messages(path: str | os.PathLike[str]) -> list[Message]:
    """Return the messages of a file, in order. Several conversations in one file are joined.

    A message keeps its `id`. A message without one gets a digest of the message before it, its role, its text and its
    tool fields. The ids are therefore the same when the file is read again, even after messages were added at its end.

    Raises:
        InputFileError: the file is invalid. The error names the file, the line or message, and what is expected.
    """
    return messages_of(parsed(os.fspath(path), text_of(path)))


def messages_of(document: Document) -> list[Message]:
    """Return the messages of a file. Errors are those of `read_messages`."""
    messages: dict[str, Message] = {}
    previous = ""
    for location, entry in document.entries:
        try:
            for message in _messages(entry, previous):
                previous = _add_once(message, messages)
        except (ValueError, RecursionError) as error:  # also raised by comparing what is nested too deeply
            raise InputFileError(f"{document.name!r}, {location}: {error}") from None
    return list(messages.values())


def _messages(entry: Any, previous: str) -> Iterator[Message]:
    """Yield the messages that one entry means: in Anthropic's form, each result of a call is one of its own."""
    if not isinstance(entry, dict):
        raise LineError(f'{short(entry)} is not a message; expected an object with "role" and "content"')
    if entry.get("parts") and not entry.get("content"):
        raise LineError('has "parts" instead of "content"; rename the field to "content"')
    for fields in read_anthropic(entry) if is_anthropic(entry) else [read_chat(entry)]:
        message = message_of(fields).replace(turn_id=None)  # the store assigns turns itself
        check_nesting(message)
        message = message if message.id is not None else message.replace(id=_chained(previous, message))
        yield message
        previous = message.id or ""


def _chained(previous: str, message: Message) -> str:
    calls = [[call.id, call.name, call.arguments] for call in message.tool_calls]
    said = [previous, message.role, message.content, calls, message.tool_call_id]
    return "import-" + blake2b(json.dumps(said).encode(), digest_size=16).hexdigest()


def _add_once(message: Message, messages: dict[str, Message]) -> str:
    """Add the message under its id and return the id. An id may be repeated only with the same content."""
    assert message.id is not None
    if content_of(messages.setdefault(message.id, message)) != content_of(message):
        raise LineError(f"id {message.id!r} belongs to another message, too; expected ids that are unique in the file")
    return message.id


# The text of a file


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


def parsed(name: str, text: str) -> Document:
    """Return the content of a text; InputFileError if it is neither JSON nor JSONL."""
    try:
        whole = _parsed(text)
    except LineError as error:
        lines = [(number, line) for number, line in enumerate(text.split("\n"), 1) if line.strip()]
        if len(lines) < 2 or not _is_json(lines[0][1]):
            raise InputFileError(f"{name!r}, {error}; {EXPECTED}") from None
        entries = [entry for number, line in lines for entry in _located(f"line {number}", _line(name, number, line))]
        return Document(name, [entry for _, entry in entries], entries)
    return Document(name, whole, list(_located("", whole)))


def _line(name: str, number: int, line: str) -> Any:
    try:
        return _parsed(line)
    except LineError as error:
        raise InputFileError(f"{name!r}, line {number} is not JSON ({error}); expected one message per line") from None


def _located(location: str, entry: Any) -> Iterator[tuple[str, Any]]:
    """Yield (location, message) for a message, a list of entries, or an object that holds such a list.

    The system prompt of a request in Anthropic's form becomes a message before the others.
    """
    if _is_request(entry):
        if entry.get("system"):
            yield f"{location}, system" if location else "system", {"role": "system", "content": entry["system"]}
        entry = entry["messages"] if isinstance(entry["messages"], list) else [entry["messages"]]
    if not isinstance(entry, list):
        yield location or "message 1", entry
        return
    for number, item in enumerate(entry, 1):
        inner = f"{location}, message {number}" if location else f"message {number}"
        if _is_request(item):
            yield from _located(inner, item)
        else:
            yield inner, item


def _is_request(entry: Any) -> bool:
    return isinstance(entry, dict) and "messages" in entry and "role" not in entry


def _parsed(text: str) -> Any:
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
        _parsed(line)
    except LineError:
        return False
    return True
