"""Convert ChatGPT's `conversations.json` to the lines of an export file: a tree of nodes becomes branches."""

import heapq
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

from shared_core.errors import InputFileError
from shared_core.messages import Message, Payload, Role, ToolCall
from shared_core.records import MAIN
from shared_core.sharing.format import BranchLine, HeadLine, Line, LineError, MessageLine, SessionLine
from shared_core.sharing.readers.openai import short

CHATGPT_FORMAT = "chatgpt/1"
"""The payload format for data of a node that `Message` has no field for."""

ROLES: Mapping[str, Role] = {"system": "system", "user": "user", "assistant": "assistant", "tool": "tool"}

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class _Node(NamedTuple):
    """A message of the tree, and the id of the nearest message above it."""

    message: Message
    parent: str | None


def is_chatgpt(whole: Any) -> bool:
    """Return whether a JSON value is ChatGPT's export, or one conversation of it."""
    return bool(conversations(whole))


def conversations(whole: Any) -> list[Mapping[str, Any]]:
    """Return the conversations of an export; an empty list if the value is not one."""
    found = [whole] if isinstance(whole, dict) else whole
    if not isinstance(found, list) or not all(isinstance(one, dict) and "mapping" in one for one in found):
        return []
    return found


def session_id_of(conversation: Mapping[str, Any], number: int) -> str:
    """Return the session id for a conversation."""
    named = conversation.get("conversation_id") or conversation.get("id")
    return named if isinstance(named, str) else f"conversation-{number}"


def chatgpt_lines(name: str, conversation: Mapping[str, Any], number: int) -> Iterator[Line]:
    """Yield the lines of one conversation: the version last shown becomes `main`, the others become branches.

    Raises:
        InputFileError: the conversation is not a tree of messages.
    """
    try:
        nodes = _nodes(conversation)
        ends = _ends(conversation, nodes)
    except LineError as error:
        raise InputFileError(f"{name!r}, conversation {number}: {error}") from None
    yield SessionLine(type="session", session_id=session_id_of(conversation, number))
    for id_, node in nodes.items():
        fields = {field: getattr(node.message, field) for field in node.message.model_fields_set}
        parents = () if node.parent is None else (node.parent,)
        yield MessageLine(type="message", parents=parents, **{**fields, "id": id_})
    for branch, at in ends.items():
        yield BranchLine(type="branch", name=branch, at=at)
    yield HeadLine(type="head", branch=MAIN)


def _nodes(conversation: Mapping[str, Any]) -> dict[str, _Node]:
    """Return the messages by time, but each after its parent."""
    mapping = conversation["mapping"]
    if not isinstance(mapping, dict) or not all(isinstance(node, dict) for node in mapping.values()):
        raise LineError(f"mapping is {short(mapping)}; expected an object of nodes")
    children: dict[str | None, list[str]] = {}
    for id_, node in mapping.items():
        parent = node.get("parent")
        if parent is not None and not (isinstance(parent, str) and parent in mapping):
            raise LineError(f"node {short(id_)} has the parent {short(parent)}, which does not exist")
        children.setdefault(parent, []).append(id_)
    start = _time(conversation.get("create_time"), _EPOCH)
    times = {id_: _time(_said(node).get("create_time"), start) for id_, node in mapping.items()}
    order = {id_: index for index, id_ in enumerate(mapping)}  # decides between equal times
    waiting = [(times[id_], order[id_], id_) for id_ in children.get(None, ())]
    heapq.heapify(waiting)
    said: dict[str, str | None] = {}
    found: dict[str, _Node] = {}
    seen = 0
    while waiting:
        when, _, id_ = heapq.heappop(waiting)
        seen += 1
        above = mapping[id_].get("parent")
        parent = None if above is None else said[above]
        message = _message(id_, mapping[id_].get("message"), when, found, parent)
        said[id_] = parent if message is None else id_
        if message is not None:
            found[id_] = _Node(message, parent)
        for child in children.get(id_, ()):
            times[child] = max(times[child], when)
            heapq.heappush(waiting, (times[child], order[child], child))
    if seen < len(mapping):
        lost = next(id_ for id_ in mapping if id_ not in said)
        raise LineError(f"node {short(lost)} leads back to itself; expected a tree")
    return found


def _ends(conversation: Mapping[str, Any], nodes: Mapping[str, _Node]) -> dict[str, str | None]:
    """Return branch -> its last message: `main` for the version last shown, then the others by time."""
    inner = {node.parent for node in nodes.values()}
    leaves = [id_ for id_ in nodes if id_ not in inner]
    current, mapping = conversation.get("current_node"), conversation["mapping"]
    while isinstance(current, str) and current in mapping and current not in nodes:
        current = mapping[current].get("parent")
    main = current if isinstance(current, str) and current in nodes else leaves[-1] if leaves else None
    others = [leaf for leaf in leaves if leaf != main]
    return {MAIN: main, **{f"version-{number}": leaf for number, leaf in enumerate(others, 1)}}


def _said(node: Mapping[str, Any]) -> Mapping[str, Any]:
    said = node.get("message")
    return said if isinstance(said, dict) else {}


def _time(value: Any, missing: datetime) -> datetime:
    if not isinstance(value, int | float) or isinstance(value, bool):
        return missing
    try:
        return datetime.fromtimestamp(value, UTC)
    except (ValueError, OverflowError, OSError):
        raise LineError(f"create_time {short(value)} is not a time; expected seconds since 1970") from None


def _message(id_: str, said: Any, when: datetime, found: Mapping[str, _Node], parent: str | None) -> Message | None:
    """Return a node's message; None if it is empty."""
    if said is None:
        return None
    author = said.get("author") if isinstance(said, dict) else None
    role = ROLES.get(str(author.get("role"))) if isinstance(author, dict) else None
    if role is None:
        raise LineError(f"node {short(id_)} has no author with a known role; expected one of {', '.join(ROLES)}")
    text, rest = _content(said.get("content"))
    recipient = said.get("recipient")
    calls: tuple[ToolCall, ...] = ()
    if role == "assistant" and isinstance(recipient, str) and recipient not in ("", "all"):
        calls, text = (ToolCall(id=id_, name=recipient, arguments=text),), ""
    if not (text or calls or rest):
        return None
    name = author.get("name") if isinstance(author, dict) else None
    data = {key: said[key] for key in ("metadata",) if said.get(key)} | ({"content": rest} if rest else {})
    fields: dict[str, Any] = {"name": name} if isinstance(name, str) and name else {}
    fields |= {"payload": Payload(format=CHATGPT_FORMAT, data=data)} if data else {}
    fields |= {"tool_calls": calls} if calls else {}
    fields |= {"tool_call_id": _call_above(found, parent)} if role == "tool" else {}
    try:
        return Message(role=role, content=text, id=id_, created_at=when, **fields)
    except ValueError as error:
        raise LineError(f"node {short(id_)}: {' '.join(str(error).removeprefix('Message: ').split())}") from None


def _call_above(found: Mapping[str, _Node], parent: str | None) -> str:
    """Return the id of the call that a tool message answers: the nearest call above it."""
    while parent is not None:
        node = found[parent]
        if node.message.tool_calls:
            return node.message.tool_calls[0].id
        parent = node.parent if node.message.role == "tool" else None
    return ""


def _content(content: Any) -> tuple[str, Any]:
    """Return the text of a node's content, and the content itself if it holds more than text (else None)."""
    if not isinstance(content, dict):
        return (content, None) if isinstance(content, str) else ("", content)
    parts = content.get("parts")
    if not isinstance(parts, list):
        text = content.get("text") or content.get("result") or content.get("content") or ""
        return (text, None) if isinstance(text, str) and text else ("", content if _has_data(content) else None)
    texts = [part for part in parts if isinstance(part, str) and part]
    return "\n".join(texts), content if _has_other_parts(parts) else None


def _has_other_parts(parts: Sequence[Any]) -> bool:
    return any(not isinstance(part, str) for part in parts)


def _has_data(content: Mapping[str, Any]) -> bool:
    return any(value for key, value in content.items() if key not in ("content_type", "language"))
