"""Read messages of Anthropic's Messages API: their blocks become text, tool calls and results.

The form is documented at https://platform.claude.com/docs/en/api/messages; the types are those of the package
`anthropic` (`MessageParam`, `ContentBlockParam`). A message whose blocks hold several results becomes several messages.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

from shared_core.display import short
from shared_core.errors import InputFileError
from shared_core.formats.anthropic import THOUGHTS
from shared_core.formats.fields import Role
from shared_core.formats.parts import ANTHROPIC_FORMAT
from shared_core.messages import Message, ToolCall
from shared_core.sharing.format import LineError
from shared_core.sharing.readers.conversation import (
    EPOCH,
    Conversation,
    list_of,
    message_of,
    payload_of,
    role_of,
    time_of,
)

CALLS = {"tool_use", "server_tool_use", "mcp_tool_use"}
SOURCES = {"image", "document"}

_READ = {"role", "content", "id", "type", "created_at", "timestamp"}
_ONLY_OPENAI = {"tool_calls", "tool_call_id", "function_call"}


@dataclass
class Piece:
    """A part of a message that becomes a message of its own: what is said with its calls, or one result."""

    role: Role
    texts: list[str] = field(default_factory=list)
    calls: list[ToolCall] = field(default_factory=list)
    answers: str | None = None
    kept: list[Any] = field(default_factory=list)

    def fields(self) -> dict[str, Any]:
        """Return the fields of the message, without those that are empty."""
        found: dict[str, Any] = {"role": self.role, "content": "\n".join(text for text in self.texts if text)}
        found |= {"tool_calls": tuple(self.calls)} if self.calls else {}
        return found if self.answers is None else found | {"tool_call_id": self.answers}


def pieces_of(role: Role, content: Any, key: str) -> list[Piece]:
    """Return the pieces of a message: at least one, in the order of its blocks.

    Args:
        role: who speaks.
        content: a text or a list of blocks.
        key: stands for the id of a call that has none.

    Raises:
        LineError: the content is neither.
    """
    if content is None or isinstance(content, str):
        return [Piece(role, [content or ""])]
    if not isinstance(content, list):
        raise LineError(f"content is {short(content)}; expected text or a list of blocks")
    pieces: list[Piece] = []
    open_calls: list[str] = []
    for number, block in enumerate(content, 1):
        kind = _kind_of(block)
        if _is_result(kind):
            answers = block.get("tool_use_id") or (open_calls[-1] if open_calls else "")
            pieces.append(_result(block, answers))
            continue
        if not pieces or pieces[-1].role == "tool":
            pieces.append(Piece(role))
        if kind in CALLS:
            call = _call(block, f"{key}#{number}")
            pieces[-1].calls.append(call)
            open_calls.append(call.id)
        else:
            _say(pieces[-1], kind, block)
    return pieces or [Piece(role)]


def _kind_of(block: Any) -> str:
    kind = block.get("type") if isinstance(block, dict) else None
    if not isinstance(kind, str):
        raise LineError(f'block {short(block)} is invalid; expected an object with "type"')
    return kind


def _is_result(kind: str) -> bool:
    return kind == "tool_result" or kind.endswith("_tool_result")


def _call(block: Mapping[str, Any], id_: str) -> ToolCall:
    name, given = block.get("name"), block.get("input")
    found = block.get("id") or id_
    if not isinstance(name, str) or not isinstance(found, str):
        raise LineError(f'block {short(block)} is invalid; expected "id", "name" and "input"')
    arguments = given if isinstance(given, str) else json.dumps({} if given is None else given, ensure_ascii=False)
    return ToolCall(id=found, name=name, arguments=arguments)


def _result(block: Mapping[str, Any], answers: Any) -> Piece:
    if not isinstance(answers, str):
        raise LineError(f"block {short(block)} is invalid; expected the id of a call as tool_use_id")
    content = block.get("content")
    parts = content if isinstance(content, list) else [] if content is None else [content]
    other = [part for part in parts if not (isinstance(part, str) or _plain_text(part))]
    kept: dict[str, Any] = {"is_error": True} if block.get("is_error") is True else {}
    kept |= {"type": block["type"], "content": other} if other else {}
    return Piece("tool", list(_texts(parts)), answers=answers, kept=[kept] if kept else [])


def _say(piece: Piece, kind: str, block: Mapping[str, Any]) -> None:
    """Add a block that is neither a call nor a result."""
    if kind == "text" and not isinstance(block.get("text"), str):
        raise LineError(f'block {short(block)} is invalid; expected a "text" field')
    if kind not in THOUGHTS:
        piece.texts += _texts([block])
    if not _plain_text(block):
        piece.kept.append(block)


def _plain_text(block: Any) -> bool:
    """Return whether a block is a text without citations."""
    return isinstance(block, dict) and block.get("type") == "text" and not block.get("citations")


def _texts(parts: Iterable[Any]) -> Iterator[str]:
    """Yield the texts of blocks, including those of documents and search results."""
    for part in parts:
        if isinstance(part, str):
            yield part
        elif isinstance(part, dict):
            source, inner = part.get("source"), part.get("content")
            if isinstance(part.get("text"), str):
                yield part["text"]
            elif isinstance(source, dict) and source.get("type") == "text" and isinstance(source.get("data"), str):
                yield source["data"]
            elif isinstance(inner, list):
                yield from (one["text"] for one in inner if isinstance(one, dict) and isinstance(one.get("text"), str))


def is_anthropic(whole: Any, entries: Sequence[tuple[str, Any]]) -> bool:
    """Return whether messages have the form of the Messages API. Plain texts alone have the form of several."""
    messages = [entry for _, entry in entries if isinstance(entry, dict)]
    if any(_ONLY_OPENAI & message.keys() or message.get("role") == "tool" for message in messages):
        return False
    if isinstance(whole, dict) and "messages" in whole and whole.get("system"):
        return True
    blocks = (block for message in messages for block in _blocks(message.get("content")))
    return any(_is_own_kind(block) for block in blocks)


def _blocks(content: Any) -> list[Any]:
    return [block for block in content if isinstance(block, dict)] if isinstance(content, list) else []


def _is_own_kind(block: Mapping[str, Any]) -> bool:
    kind = str(block.get("type"))
    return (
        kind in {*CALLS, *THOUGHTS} or _is_result(kind) or (kind in SOURCES and isinstance(block.get("source"), dict))
    )


def read_anthropic(name: str, whole: Any, entries: Iterable[tuple[str, Any]]) -> Conversation:
    """Return a list of messages; the system prompt of a request comes first.

    A message keeps its `id`. A message without one gets a digest of the message before it and of its content, so that
    the ids are the same when the file is read again after messages were added at its end.

    Raises:
        InputFileError: a message is invalid.
    """
    messages: dict[str, Message] = {}
    system = whole.get("system") if isinstance(whole, dict) else None
    located = [("system", {"role": "system", "content": system}), *entries] if system else entries
    for location, entry in located:
        try:
            for message in _messages(entry, next(reversed(messages), "")):
                if messages.setdefault(str(message.id), message) is not message:
                    raise LineError(f"id {message.id!r} belongs to another message, too; expected unique ids")
        except (LineError, RecursionError) as error:
            raise InputFileError(f"{name!r}, {location}: {error}") from None
    return list_of(list(messages.values()))


def _messages(entry: Any, previous: str) -> list[Message]:
    if not isinstance(entry, dict):
        raise LineError(f'{short(entry)} is not a message; expected an object with "role" and "content"')
    role = role_of(entry.get("role"))
    written = entry.get("created_at") or entry.get("timestamp")
    when = {} if written is None else {"created_at": time_of(written, EPOCH)}
    rest = {key: value for key, value in entry.items() if key not in _READ and value is not None}
    found: list[Message] = []
    given = entry.get("id")
    for number, piece in enumerate(pieces_of(role, entry.get("content"), str(given or previous)), 1):
        fields = piece.fields() | when
        own = given if number == 1 else f"{given}#{number}"
        id_ = _chained(previous, fields) if given is None else own
        data = ({"content": piece.kept} if piece.kept else {}) | (rest if number == 1 else {})
        found.append(message_of("message", id=id_, payload=payload_of(ANTHROPIC_FORMAT, data), **fields))
        previous = str(id_)
    return found


def _chained(previous: str, fields: Mapping[str, Any]) -> str:
    calls = [[call.id, call.name, call.arguments] for call in fields.get("tool_calls", ())]
    said = json.dumps([previous, fields["role"], fields["content"], calls, fields.get("tool_call_id")])
    return "import-" + blake2b(said.encode(), digest_size=16).hexdigest()
