"""Read the export of Claude.ai: a list of chats whose messages are made of the blocks of the Messages API.

How to get it: https://support.claude.com/en/articles/9450526. Anthropic does not document its form; it is the one that
https://github.com/Sinity/polylogue (docs/providers/claude-ai.md) and
https://github.com/socketteer/Claude-Conversation-Exporter read. Exports since 2025 name the parent of each message,
older ones are lists.
"""

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from shared_core.display import short
from shared_core.formats.anthropic import read_anthropic
from shared_core.formats.fields import MessageFields
from shared_core.formats.parts import ANTHROPIC_FORMAT
from shared_core.sharing.format import LineError
from shared_core.sharing.readers.conversation import (
    EPOCH,
    Builder,
    Conversation,
    message_of,
    time_of,
)

IGNORED = {"token_budget"}
"""Kinds of blocks that nobody says."""

FIELDS = {
    "text": ("text", "citations"),
    "tool_use": ("id", "name", "input"),
    "tool_result": ("tool_use_id", "content", "is_error"),
}
"""The fields of blocks that the Messages API has, too. Others tell when and how a block was shown."""


def read_claude(conversation: Mapping[str, Any], id_: str) -> Conversation:
    """Return a chat: the version last shown becomes `main`, the others become branches.

    Raises:
        LineError: the chat is invalid.
    """
    said = conversation["chat_messages"]
    if not isinstance(said, list):
        raise LineError(f"chat_messages is {short(said)}; expected a list")
    reader = _Reader(time_of(conversation.get("created_at"), EPOCH))
    for number, message in _parents_first(said):
        try:
            reader.add(message)
        except LineError as error:
            raise LineError(f"message {number}: {error}") from None
    current = conversation.get("current_leaf_message_uuid")
    last = reader.last_piece.get(current) if isinstance(current, str) else None
    return reader.builder.finish(id_, conversation.get("name"), last or reader.newest)


def _parents_first(said: Sequence[Any]) -> Iterator[tuple[int, Any]]:
    """Yield messages with their numbers, in the order of the file, but each after its parent.

    Raises:
        LineError: a message comes before itself.
    """
    later = {_uuid(message) for message in said}  # not yielded yet
    waiting: dict[str, list[tuple[int, Any]]] = {}
    for numbered in enumerate(said, 1):
        above = _uuid(numbered[1], "parent_message_uuid")
        if above is not None and above in later:
            waiting.setdefault(above, []).append(numbered)
            continue
        ready = deque([numbered])
        while ready:
            yield ready[0]
            uuid = _uuid(ready.popleft()[1])
            later.discard(uuid)
            ready += waiting.pop(uuid or "", ())
    if waiting:
        number, message = next(iter(waiting.values()))[0]
        raise LineError(f"message {number}: {short(_uuid(message))} leads back to itself; expected a tree")


def _uuid(said: Any, field: str = "uuid") -> str | None:
    found = said.get(field) if isinstance(said, dict) else None
    return found if isinstance(found, str) else None


class _Reader:
    """Adds messages. One message becomes several if it holds the results of tools."""

    def __init__(self, start: datetime) -> None:
        self.builder = Builder()
        self.last_piece: dict[str, str | None] = {}
        self.newest: str | None = None
        self._time = start

    def add(self, said: Any) -> None:
        if not isinstance(said, dict) or not isinstance(said.get("uuid"), str):
            raise LineError(f'{short(said)} is not a message; expected an object with "uuid" and "sender"')
        uuid, above = said["uuid"], said.get("parent_message_uuid")
        if uuid in self.last_piece:
            raise LineError(f"two messages have the uuid {short(uuid)}; expected unique ids")
        # The first message names a parent that is not in the file; in older exports, no message names one.
        parent = self.newest if above is None else self.last_piece.get(above) if isinstance(above, str) else None
        self._time = time_of(said.get("created_at"), self._time)
        for number, fields in enumerate(self._messages(said), 1):
            parent = self._add(uuid if number == 1 else f"{uuid}#{number}", fields, parent)
        self.last_piece[uuid] = self.newest = parent

    def _messages(self, said: Mapping[str, Any]) -> Iterator[MessageFields]:
        """Yield what is said with its calls, and each result of a tool on its own; all of it that says something."""
        blocks, text = said.get("content"), said.get("text") or ""
        if not isinstance(blocks, list):
            blocks = [{"type": "text", "text": text}]
        found = self._read(said, list(_api_blocks(blocks, said["uuid"])))
        if not any(map(_says_something, found)):
            found = self._read(said, [{"type": "text", "text": text}])
        self._attach(found[0], said)
        yield from filter(_says_something, found)

    def _read(self, said: Mapping[str, Any], blocks: Sequence[Any]) -> list[MessageFields]:
        try:
            return read_anthropic({"role": said.get("sender"), "content": blocks})
        except ValueError as error:
            raise LineError(str(error)) from None

    def _attach(self, fields: MessageFields, said: Mapping[str, Any]) -> None:
        """Add the texts of attachments to the message, and the names of other files to its payload."""
        attachments, files = said.get("attachments") or [], said.get("files") or []
        if not isinstance(attachments, list) or not isinstance(files, list):
            raise LineError(f"attachments {short(attachments)} or files {short(files)} are invalid; expected lists")
        texts, kept = [fields["content"]], []
        for one in attachments:
            text = one.get("extracted_content") if isinstance(one, dict) else None
            if isinstance(text, str) and text:
                named = one.get("file_name")
                texts += [f"[attachment {named}]"] if isinstance(named, str) and named else []
                texts.append(text)
            else:
                self.builder.left_out["attachment without text"] += 1
                kept.append({"type": "attachment", "attachment": one})
        if files:
            self.builder.left_out["file"] += len(files)
            kept.append({"type": "files", "files": files})
        fields["content"] = "\n".join(text for text in texts if text)
        if kept:
            payload = fields.get("payload") or {"format": ANTHROPIC_FORMAT, "data": {}}
            content = payload["data"].get("content", [])
            fields["payload"] = {**payload, "data": payload["data"] | {"content": [*content, *kept]}}

    def _add(self, id_: str, fields: MessageFields, parent: str | None) -> str:
        return self.builder.add(message_of("message", **fields | {"id": id_, "created_at": self._time}), parent)


def _api_blocks(blocks: Sequence[Any], key: str) -> Iterator[Any]:
    """Yield blocks as the Messages API has them; calls and results without ids, as in older exports, get some."""
    call = ""
    for number, block in enumerate(blocks, 1):
        kind = str(block.get("type")) if isinstance(block, dict) else ""
        if kind not in FIELDS:
            yield from [] if kind in IGNORED else [block]
            continue
        written = {name: block[name] for name in FIELDS[kind] if block.get(name) not in (None, [], False)}
        if kind == "tool_use":
            call = written.setdefault("id", f"{key}#{number}")
        elif kind == "tool_result":
            written.setdefault("tool_use_id", call)
        yield {"type": kind, **written}


def _says_something(fields: MessageFields) -> bool:
    return bool(fields["content"] or fields.get("tool_calls") or fields.get("payload")) or "tool_call_id" in fields
