"""Items of the Responses API: which belong to which message, and what the memory keeps and sends of them; pure."""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from shared_core.doors.openai_proxy.answer import NOTED
from shared_core.formats.openai_responses import (
    ITEMS,
    OUTPUTS,
    is_call,
    is_output,
    is_own_call,
    message_groups,
    write_items,
)
from shared_core.formats.parts import RESPONSES_FORMAT, link_of, text_of
from shared_core.messages import Message, Payload, fields_of, message_list
from shared_core.records import Record

Item = Mapping[str, Any]

_BEGUN = ("in_progress", "incomplete")
"""The states of a call whose arguments are not whole."""


class Grouped(NamedTuple):
    """The messages among some items.

    Attributes:
        messages: the messages.
        items: for each message, its items, as they were given. Items that make no message, such as one of an unknown
            type, are among those of the message after them, or else before them.
        loose: all items, if none of them makes a message.
    """

    messages: tuple[Message, ...]
    items: tuple[tuple[Any, ...], ...]
    loose: tuple[Any, ...]


def grouped(items: Sequence[Item]) -> Grouped:
    """Return the messages among some items.

    Raises:
        ValueError: an item that makes a message has another form. The error names its index.
    """
    known = _known(items)
    messages: list[Message] = []
    ends: list[int] = []
    for first, group in message_groups([item for _, item in known]):
        if not any(item["type"] == "message" or is_call(item) or is_output(item) for item in group):
            continue
        messages.append(_message(group, known[first][0]))
        ends.append(known[first + len(group) - 1][0] + 1)
    if not messages:
        return Grouped((), (), tuple(items))
    bounds = [0, *ends[:-1], len(items)]
    parts = (tuple(items[start:end]) for start, end in pairwise(bounds))
    return Grouped(tuple(messages), tuple(parts), ())


def _known(items: Sequence[Item]) -> list[tuple[int, Item]]:
    """Return the items that the memory can read, with their indexes.

    A result belongs to a call. If what the model said is sent, and the call is not, the call is in an item that only
    the model's server can read, such as a reference.
    """
    known: list[tuple[int, Item]] = []
    calls: set[str] = set()
    answered = False
    for index, item in enumerate(map(_with_type, items)):
        link = link_of(item)
        if is_output(item):
            readable = not answered or not isinstance(link, str) or link in calls
        else:
            answered = answered or item.get("role") in (None, "assistant")
            readable = item.get("type") in ITEMS or is_call(item)
        if is_call(item) and isinstance(link, str):
            calls.add(link)
        if readable:
            known.append((index, item))
    return known


def _with_type(item: Item) -> Item:
    """Return an item with its type, which a message need not have."""
    return {**item, "type": "message"} if "role" in item and item.get("type") is None else item


def _message(group: Sequence[Item], index: int) -> Message:
    try:
        (message,) = message_list(group)
    except ValueError as error:
        raise ValueError(f"input[{index}]: {str(error).partition(': ')[2]}") from None
    return message


def answer_messages(output: Sequence[Item], *, noted: bool) -> list[Message]:
    """Return the messages that are kept of the items of a response; `noted`: with the ids of these items."""
    made: list[Message] = []
    for items in grouped(_whole(output)).items:
        ids = [item["id"] for item in items if isinstance(item.get("id"), str)]
        made += [with_ids(one, ids) if noted else one for one in grouped(to_keep(items)).messages]
    return made


def _whole(output: Sequence[Item]) -> list[Item]:
    return [item for item in output if not (is_call(item) and item.get("status") in _BEGUN)]


def to_keep(output: Sequence[Item]) -> list[Item]:
    """Return what is kept of the items of a response: the words, the calls of tools, and what calls cannot go without.

    That is reasoning that the model's server encrypted, as far as a call comes with it. All other reasoning, and what
    the server did itself, such as searches, it refuses in another request unless it has it stored. Beside a call of a
    tool that the API defines, such as a computer's, everything is kept as it came: servers check that it is whole.
    """
    whole = _whole(output)
    if any(map(is_own_call, whole)):
        return whole
    calls = any(map(is_call, whole))
    return [portable(item) for item in whole if _is_kept(item, calls=calls)]


def _is_kept(item: Item, *, calls: bool) -> bool:
    if item.get("type") == "reasoning":
        return calls and isinstance(item.get("encrypted_content"), str)
    return is_call(item) or item.get("type") == "message"


def portable(item: Item) -> Item:
    """Return an item as any server takes it: without the ids that one server gave, and the model's words as text."""
    if item.get("type") == "reasoning" or (is_output(item) and item["type"] not in OUTPUTS):
        return item
    kept = {key: value for key, value in item.items() if key not in ("id", "status")}
    if kept.get("role") == "assistant":
        kept["content"] = text_of(kept.get("content"))
    return kept


def to_send(message: Message, items: Sequence[Item], *, current: bool) -> list[Item]:
    """Return the items of a message of a prompt that the client did not send itself.

    Args:
        message: the message.
        items: its items as they are stored.
        current: whether it belongs to the newest turn, which reasoning is for.
    """
    if message.role != "assistant":
        return [portable(item) for item in items]
    kept = to_keep(items)
    if current or any(map(is_own_call, kept)):
        return kept
    return [item for item in kept if item.get("type") != "reasoning"]


def with_ids(message: Message, ids: Sequence[str]) -> Message:
    """Return an answer with the ids of its items, by which a client may refer to it."""
    payload = message.payload or Payload(format=NOTED, data={})
    noted = Payload(format=payload.format, data={**payload.data, "ids": [*ids]})
    return message.replace(payload=noted) if ids else message


def ids_of(message: Message) -> Sequence[str]:
    """Return the ids that `with_ids` noted."""
    payload = message.payload
    noted = payload is not None and payload.format in (NOTED, RESPONSES_FORMAT)
    ids: Sequence[str] = payload.data.get("ids", ()) if payload is not None and noted else ()
    return ids


def reference_of(item: Any) -> str | None:
    """Return the id of the item that another one refers to; None: it is no reference."""
    if not isinstance(item, dict) or "role" in item or item.get("type") not in (None, "item_reference"):
        return None
    return item["id"] if isinstance(item.get("id"), str) else None


def resolved(items: Sequence[Item], stored: Mapping[str, Sequence[Record]]) -> list[Item]:
    """Return items with what is stored in place of references to it, each message once.

    Args:
        items: the items.
        stored: the messages that have an item of an id, in the order of storing; none: it was forgotten. Of several,
            the first one that was stored after what the reference before it means counts: some servers number the
            items of every response alike.
    """
    found: list[Item] = []
    newest, beside = 0, False
    for item in items:
        records = stored.get(reference_of(item) or "")
        if records is None:
            found.append(item)
        later = [one for one in records or () if one.seq >= newest + (not beside)]
        record = next(iter([*later, *(records or ())]), None)
        beside = record is not None
        if record is not None and record.seq != newest:
            newest = record.seq
            found += to_send(record.message, write_items(fields_of(record.message)), current=True)
    return found


def wordless(answer_id: str) -> Message:
    """Return the message for a response of which nothing is kept, so that a request may go on after it."""
    return Message.assistant(id=answer_id, payload=Payload(format=RESPONSES_FORMAT, data={"items": []}))
