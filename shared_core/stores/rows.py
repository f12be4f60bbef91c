"""Messages as rows of the SQLite database, and back."""

import json
from collections.abc import Iterator
from datetime import datetime
from typing import Any

from shared_core.errors import StoreError
from shared_core.messages import Grounding, GroundingItem, Message, Payload, ToolCall, content_of
from shared_core.records import Position, Record

__all__ = ["COLUMNS", "canonical", "message_row", "plain", "record_of", "text", "text_row"]

COLUMNS = (
    "m.segment, m.depth, m.seq, m.id, m.turn_id, m.turn_no, m.role, m.created_at, m.counter, m.tokens, "
    "m.picked_from, t.name, t.content, t.extra"
)
"""What `record_of` reads, of `messages AS m` joined with `texts AS t`."""

_BLANK = Message(role="user")
_NESTED = {"tool_calls", "tool_call_id", "grounding", "pinned", "media_tokens", "payload"}


def text(value: str) -> str | bytes:
    """Return `value` as SQLite can hold it: text, or bytes if it has lone surrogates, which UTF-8 has no form for."""
    if value.isascii():
        return value
    try:
        value.encode()
    except UnicodeEncodeError:
        return value.encode("utf-8", "surrogatepass")
    return value


def plain(value: str | bytes) -> str:
    """Return what `text` was given."""
    return value if isinstance(value, str) else value.decode("utf-8", "surrogatepass")


def canonical(message: Message) -> bytes:
    """Return the content of a message as bytes that are equal exactly if the content is."""
    return json.dumps(content_of(message), sort_keys=True, ensure_ascii=False, separators=(",", ":")).encode(
        "utf-8", "surrogatepass"
    )


def text_row(key: int, message: Message) -> tuple[Any, ...]:
    """Return the row of table `texts`: everything that was said.

    Raises:
        StoreError: the payload is not plain JSON.
    """
    name = None if message.name is None else text(message.name)
    return key, name, text(message.content), _extra(message)


def message_row(session: int, record: Record, key: int) -> tuple[Any, ...]:
    """Return the row of table `messages`, in the order of `INSERT_MESSAGE`; `key` is that of its text."""
    message = record.message
    assert message.id is not None
    assert message.turn_id is not None
    assert message.created_at is not None
    return (
        session,
        record.position.segment,
        record.position.depth,
        record.seq,
        text(message.id),
        text(message.turn_id),
        record.turn_no,
        message.role,
        message.created_at.isoformat(),
        int(message.stays),
        None if record.counter is None else text(record.counter),
        record.tokens,
        None if record.picked_from is None else text(record.picked_from),
        key,
    )


def record_of(row: tuple[Any, ...]) -> Record:
    """Return the record that a row of `COLUMNS` holds, without validating it again.

    Raises:
        StoreError: the row does not hold what this package writes.
    """
    segment, depth, seq, id_, turn_id, turn_no, role, created_at, counter, tokens, picked_from, *said = row
    name, content, extra = said
    try:
        fields = {
            "role": role,
            "content": plain(content),
            "id": plain(id_),
            "turn_id": plain(turn_id),
            "created_at": datetime.fromisoformat(created_at),
        }
        if name is not None:
            fields["name"] = plain(name)
        if extra is not None:
            fields.update(_nested(json.loads(plain(extra))))
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise StoreError(f"message {id_!r} cannot be read: {error}; restore the database from a backup") from error
    return Record(
        message=_BLANK.replace(**fields),
        position=Position(segment, depth),
        seq=seq,
        turn_no=turn_no,
        counter=None if counter is None else plain(counter),
        tokens=tokens,
        picked_from=None if picked_from is None else plain(picked_from),
    )


def _extra(message: Message) -> str | bytes | None:
    if not (
        message.tool_calls
        or message.tool_call_id is not None
        or message.grounding is not None
        or message.pinned
        or message.media_tokens
        or message.payload is not None
    ):
        return None
    try:
        fields = message.model_dump(include=_NESTED, exclude_defaults=True)
        return text(json.dumps(fields, ensure_ascii=False, separators=(",", ":")))
    except (TypeError, ValueError, RecursionError) as error:
        raise StoreError(f"message {message.id!r} cannot be stored: its payload is not plain JSON: {error}") from error


def _nested(fields: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, value in fields.items():
        if name == "tool_calls":
            yield name, tuple(ToolCall.model_construct(**call) for call in value)
        elif name == "grounding":
            items = tuple(GroundingItem.model_construct(**item) for item in value.pop("items", ()))
            yield name, Grounding.model_construct(items=items, **value)
        elif name == "payload":
            yield name, Payload.model_construct(**value)
        else:
            yield name, value
