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
from shared_core.sharing.format import LineError
from shared_core.sharing.readers.anthropic_api import Piece, pieces_of
from shared_core.sharing.readers.conversation import (
    EPOCH,
    Builder,
    Conversation,
    message_of,
    payload_of,
    role_of,
    time_of,
)

CLAUDE_FORMAT = "claude/1"
"""The payload format for blocks and files that `Message` has no field for."""

IGNORED = {"token_budget"}
"""Kinds of blocks that nobody says."""


def is_claude(whole: Any) -> bool:
    """Return whether a JSON value is the export of Claude.ai, or one chat of it."""
    found = claude_conversations(whole)
    return bool(found) and all(isinstance(one, dict) and "chat_messages" in one for one in found)


def claude_conversations(whole: Any) -> list[Any]:
    """Return the chats of an export as they are written."""
    return whole if isinstance(whole, list) else [whole]


def claude_id(conversation: Mapping[str, Any], number: int) -> str:
    """Return the id of a chat."""
    named = conversation.get("uuid")
    return named if isinstance(named, str) and named else f"conversation-{number}"


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
        for number, piece in enumerate(self._pieces(said), 1):
            parent = self._add(uuid if number == 1 else f"{uuid}#{number}", piece, parent)
        self.last_piece[uuid] = self.newest = parent

    def _pieces(self, said: Mapping[str, Any]) -> list[Piece]:
        role, blocks = role_of(said.get("sender")), said.get("content")
        if isinstance(blocks, list):
            blocks = [one for one in blocks if not (isinstance(one, dict) and str(one.get("type")) in IGNORED)]
        pieces = pieces_of(role, blocks or said.get("text"), said["uuid"])
        if not any(map(_says_something, pieces)):
            pieces = pieces_of(role, said.get("text"), said["uuid"])
        self._attach(pieces[0], said)
        return list(filter(_says_something, pieces))

    def _attach(self, piece: Piece, said: Mapping[str, Any]) -> None:
        """Add the texts of attachments to the message, and the names of other files to its payload."""
        attachments, files = said.get("attachments") or [], said.get("files") or []
        if not isinstance(attachments, list) or not isinstance(files, list):
            raise LineError(f"attachments {short(attachments)} or files {short(files)} are invalid; expected lists")
        for one in attachments:
            text = one.get("extracted_content") if isinstance(one, dict) else None
            if isinstance(text, str) and text:
                named = one.get("file_name")
                piece.texts += [f"[attachment {named}]"] if isinstance(named, str) and named else []
                piece.texts.append(text)
            else:
                self.builder.left_out["attachment without text"] += 1
                piece.kept.append({"type": "attachment", "attachment": one})
        if files:
            self.builder.left_out["file"] += len(files)
            piece.kept.append({"type": "files", "files": files})

    def _add(self, id_: str, piece: Piece, parent: str | None) -> str:
        data = {"content": piece.kept} if piece.kept else None
        message = message_of(
            "message", id=id_, created_at=self._time, payload=payload_of(CLAUDE_FORMAT, data), **piece.fields()
        )
        return self.builder.add(message, parent)


def _says_something(piece: Piece) -> bool:
    return bool(piece.calls or piece.kept or any(piece.texts)) or piece.answers is not None
