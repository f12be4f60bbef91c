"""Read ChatGPT's export: a tree of nodes becomes a conversation with branches.

How to get the export: https://help.openai.com/en/articles/7260999. OpenAI does not document `conversations.json`; its
form is the one that https://github.com/mitkury/chatgpt-export-parser (docs/chatgpt-data-export-format.md) describes.
Large exports are split into `conversations-000.json`, `conversations-001.json` and so on
(https://github.com/alexeygrigorev/chatgpt-data-viewer/issues/1).
"""

import heapq
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from shared_core.display import short
from shared_core.formats.fields import Role
from shared_core.messages import Message, ToolCall
from shared_core.sharing.format import LineError
from shared_core.sharing.readers.conversation import EPOCH, Builder, Conversation, message_of, payload_of, time_of

CHATGPT_FORMAT = "chatgpt/1"
"""The payload format for data of a node that `Message` has no field for."""

ROLES: Mapping[str, Role] = {"system": "system", "user": "user", "assistant": "assistant", "tool": "tool"}

REASONING = {"thoughts", "reasoning_recap"}
"""Kinds of content that are not said to anybody: what a model thought before it answered."""

INSTRUCTIONS = "user_editable_context"
"""The kind of content that holds the user's custom instructions."""


def read_chatgpt(conversation: Mapping[str, Any], id_: str) -> Conversation:
    """Return a conversation: the version last shown becomes `main`, the others become branches.

    Raises:
        LineError: the conversation is not a tree of messages.
    """
    reader = _Reader(conversation)
    reader.walk()
    return reader.builder.finish(id_, conversation.get("title"), reader.current())


class _Reader:
    """Walks a tree of nodes by time, but each after its parent."""

    def __init__(self, conversation: Mapping[str, Any]) -> None:
        mapping = conversation["mapping"]
        if not isinstance(mapping, dict) or not all(isinstance(node, dict) for node in mapping.values()):
            raise LineError(f"mapping is {short(mapping)}; expected an object of nodes")
        self.builder = Builder()
        self._conversation = conversation
        self._mapping = mapping
        self._said: dict[str, str | None] = {}
        self._calls: dict[str, str] = {}

    def walk(self) -> None:
        mapping, children = self._mapping, _children(self._mapping)
        start = time_of(self._conversation.get("create_time"), EPOCH)
        times = {id_: time_of(_said(node).get("create_time"), start) for id_, node in mapping.items()}
        order = {id_: index for index, id_ in enumerate(mapping)}  # decides between equal times
        waiting = [(times[id_], order[id_], id_) for id_ in children.get(None, ())]
        heapq.heapify(waiting)
        while waiting:
            when, _, id_ = heapq.heappop(waiting)
            above = mapping[id_].get("parent")
            parent = None if above is None else self._said[above]
            message = self._message(id_, mapping[id_].get("message"), when, parent)
            self._said[id_] = parent if message is None else self.builder.add(message, parent)
            for child in children.get(id_, ()):
                times[child] = max(times[child], when)
                heapq.heappush(waiting, (times[child], order[child], child))
        if len(self._said) < len(mapping):
            lost = next(id_ for id_ in mapping if id_ not in self._said)
            raise LineError(f"node {short(lost)} leads back to itself; expected a tree")

    def current(self) -> str | None:
        """Return the message that the version last shown ends at."""
        current = self._conversation.get("current_node")
        return self._said.get(current) if isinstance(current, str) else None

    def _message(self, id_: str, said: Any, when: datetime, parent: str | None) -> Message | None:
        """Return a node's message; None if there is nothing to store."""
        if said is None:
            return None
        role, name = _author(id_, said)
        content, metadata = said.get("content"), said.get("metadata")
        kind = str(content.get("content_type")) if isinstance(content, dict) else ""
        if kind in REASONING:
            self.builder.left_out["step of reasoning"] += 1
            return None
        text, rest = _content(content)
        if rest or (isinstance(metadata, dict) and metadata.get("attachments")):
            self._count_media(rest, metadata)
        fields: dict[str, Any] = {"name": name} if name else {}
        recipient = said.get("recipient")
        if role == "assistant" and isinstance(recipient, str) and recipient not in ("", "all"):
            fields["tool_calls"], text = (ToolCall(id=id_, name=recipient, arguments=text),), ""
            self._calls[id_] = id_
        elif role == "tool":
            fields["tool_call_id"] = self._calls[id_] = self._calls.get(parent or "", "")
        elif kind == INSTRUCTIONS:
            role = "system"
        if not (text or rest or "tool_calls" in fields):
            return None
        if data := ({"metadata": metadata} if metadata else {}) | ({"content": rest} if rest else {}):
            fields["payload"] = payload_of(CHATGPT_FORMAT, data)
        return message_of("node", role=role, content=text, id=id_, created_at=when, **fields)

    def _count_media(self, rest: Any, metadata: Any) -> None:
        """Count the pictures, recordings and files of a message, whose bytes are not in the file."""
        parts = rest.get("parts") if isinstance(rest, dict) else None
        written = parts if isinstance(parts, list) else []
        kinds = [str(part.get("content_type")) for part in written if isinstance(part, dict)]
        images = sum(kind.startswith("image") for kind in kinds)
        files = metadata.get("attachments") if isinstance(metadata, dict) else None
        counts = {
            "image": images,
            "recording": sum(kind.endswith("audio_asset_pointer") for kind in kinds),
            # a picture that the user added is in both lists
            "attachment without text": max(0, len(files) - images) if isinstance(files, list) else 0,
        }
        self.builder.left_out.update({what: count for what, count in counts.items() if count})


def _author(id_: str, said: Any) -> tuple[Role, str]:
    """Return the role and the name of a node's author."""
    author = said.get("author") if isinstance(said, dict) else None
    role = ROLES.get(str(author.get("role"))) if isinstance(author, dict) else None
    if role is None or not isinstance(author, dict):
        raise LineError(f"node {short(id_)} has no author with a known role; expected one of {', '.join(ROLES)}")
    name = author.get("name")
    return role, name if isinstance(name, str) else ""


def _children(mapping: Mapping[str, Any]) -> dict[str | None, list[str]]:
    children: dict[str | None, list[str]] = {}
    for id_, node in mapping.items():
        parent = node.get("parent")
        if parent is not None and not (isinstance(parent, str) and parent in mapping):
            raise LineError(f"node {short(id_)} has the parent {short(parent)}, which does not exist")
        children.setdefault(parent, []).append(id_)
    return children


def _said(node: Mapping[str, Any]) -> Mapping[str, Any]:
    said = node.get("message")
    return said if isinstance(said, dict) else {}


def _content(content: Any) -> tuple[str, Any]:
    """Return the text of a node's content, and the content itself if it holds more than text (else None)."""
    if not isinstance(content, dict):
        return (content, None) if isinstance(content, str) else ("", content)
    parts = content.get("parts")
    if isinstance(parts, list):
        texts = [text for part in parts if (text := _part_text(part))]
        plain = all(isinstance(part, str) for part in parts)
        return "\n".join(texts), None if plain else content
    if content.get("content_type") == INSTRUCTIONS:
        told = (content.get(key) for key in ("user_profile", "user_instructions"))
        return "\n\n".join(text for text in told if isinstance(text, str) and text), None
    text = content.get("text") or content.get("result") or content.get("content") or ""
    return (text, None) if isinstance(text, str) and text else ("", content if _has_data(content) else None)


def _part_text(part: Any) -> str:
    """Return the text of a part: a text, or what a recording says."""
    text = part.get("text") if isinstance(part, dict) else part
    return text if isinstance(text, str) else ""


def _has_data(content: Mapping[str, Any]) -> bool:
    return any(value for key, value in content.items() if key not in ("content_type", "language"))
