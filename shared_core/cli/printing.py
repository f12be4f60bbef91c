"""What the command prints: text that is safe for a terminal, and plain JSON data; pure."""

import re
from collections.abc import Mapping, Sequence
from datetime import UTC
from typing import Any

from shared_core.messages import Message
from shared_core.sharing.readers.openai import OPENAI_FORMAT

__all__ = ["SHOWN", "count", "doomed", "imported", "line", "printable", "record", "said", "table", "wire"]

CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
"""What a terminal would obey instead of showing."""

SHOWN = 20
"""Messages listed before a question whether to forget them."""


def imported(data: Mapping[str, Any]) -> str:
    """Return what an import took."""
    counts = f"{count(data['new'])} new, {data['known']:,} known, {data['forgotten']:,} forgotten earlier"
    counts += f", {data['remapped']:,} under other ids" if data["remapped"] else ""
    span = f", from {data['first'][:10]} to {data['last'][:10]}" if data["first"] else ""
    how = f"embedder {data['embedder'] or 'none (ranked by words alone)'}, {data['seconds']:.1f} s"
    return printable(f"{data['file']} -> {data['store']}: {counts}\n{data['turns']:,} turns{span}\n{how}")


def table(data: Mapping[str, Any]) -> str:
    """Return names and values, one pair a line."""
    width = max(map(len, data), default=0)
    rows = ((name, ", ".join(value) if isinstance(value, list) else value) for name, value in data.items())
    return "\n".join(f"{name:<{width}}  {'-' if value in (None, '') else value}" for name, value in rows)


def doomed(messages: Sequence[Message], total: int) -> str:
    """Return what would be forgotten, `total` messages that begin with these."""
    more = [f"... and {total - len(messages):,} more"] if total > len(messages) else []
    return "\n".join([f"would forget {count(total)}", *map(line, messages), *more])


def count(number: int) -> str:
    """Return a number of messages in words."""
    return f"{number:,} message{'' if number == 1 else 's'}"


def line(message: Message) -> str:
    """Return time (UTC), role, id and text on one line."""
    when = f"{message.created_at.astimezone(UTC):%Y-%m-%d %H:%M}" if message.created_at else ""
    text = " ".join(said(message).split())
    return f"{when:<16}  {message.role:<9}  {printable(message.id or '')}  {text}"


def said(message: Message) -> str:
    """Return what a person sees of a message: its text and the tools it calls."""
    calls = [f"calls {call.name}({call.arguments})" for call in message.tool_calls]
    return printable("\n".join([*([message.content] if message.content else []), *calls]))


def printable(text: str) -> str:
    """Return the text with control characters other than tab and line feed written out."""
    return CONTROL.sub(lambda found: found[0].encode("unicode_escape").decode(), text.replace("\r\n", "\n"))


def wire(message: Message) -> dict[str, Any]:
    """Return the message as an OpenAI request has it."""
    calls = [
        {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
        for call in message.tool_calls
    ]
    optional = {"name": message.name, "tool_calls": calls or None, "tool_call_id": message.tool_call_id}
    return {"role": message.role, "content": message.content} | _given(optional)


def record(message: Message) -> dict[str, Any]:
    """Return the message with what the store knows of it, as `read_messages` reads it."""
    when = message.created_at.isoformat() if message.created_at else None
    grounding = message.grounding.model_dump(exclude_defaults=True) if message.grounding else None
    kept = message.payload.data if message.payload and message.payload.format == OPENAI_FORMAT else {}
    stored = {"id": message.id, "created_at": when, "turn_id": message.turn_id, "grounding": grounding}
    return _given(stored) | wire(message) | kept


def _given(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}
