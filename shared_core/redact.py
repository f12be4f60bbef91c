"""What not to tell: rules that a message passes on its way into a file."""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from shared_core.index.text import UNSPACED
from shared_core.messages import Grounding, GroundingItem, Message

__all__ = ["Redact", "drop_grounding", "drop_tool_results", "redacted", "replace_names"]

Redact = Callable[[Message], Message | None]
"""Returns what is told of a message; None: nothing, its place stays empty."""


def drop_grounding(message: Message) -> Message:
    """Leave out what was retrieved for a question, and the framework's own form of the message, which may hold it."""
    return message if message.grounding is None else message.replace(grounding=None, payload=None)


def drop_tool_results(message: Message) -> Message:
    """Leave out what tools returned; that they were called stays."""
    return message.replace(content="", payload=None) if message.role == "tool" else message


def replace_names(names: Mapping[str, str]) -> Redact:
    """Return a rule that writes other names for these, wherever they are whole words: of speakers, and in all text.

    In scripts that put no spaces between words, it writes them wherever they stand. What the conversation, its user and
    its branches are called, and notes on tags and stashes, are no messages: they stay.

    Args:
        names: name -> what is told instead.
    """
    if not names:
        return lambda message: message
    longest_first = sorted(names, key=len, reverse=True)
    pattern = re.compile("|".join(map(_as_word, longest_first)))

    def told(text: str) -> str:
        return pattern.sub(lambda found: names[found[0]], text)

    def redact(message: Message) -> Message:
        changes: dict[str, Any] = {
            "content": told(message.content),
            "name": None if message.name is None else told(message.name),
            "tool_calls": tuple(call.model_copy(update={"arguments": _told_json(call.arguments, told)})
                                for call in message.tool_calls),
            "grounding": None if message.grounding is None else _told(message.grounding, told),
            "payload": None,
        }  # fmt: skip
        changed = message.replace(**changes)
        return message if changed.replace(payload=message.payload) == message else changed

    return redact


def _as_word(name: str) -> str:
    """Return a pattern for a name that does not stand within a longer word."""
    letter = f"[^\\W{UNSPACED}]"  # of a script with spaces between words
    begins, ends = (re.match(letter, edge) for edge in (name[:1], name[-1:]))
    return f"{f'(?<!{letter})' if begins else ''}{re.escape(name)}{f'(?!{letter})' if ends else ''}"


def _told_json(text: str, told: Callable[[str], str]) -> str:
    """Return a JSON text with its texts told, in whatever way their letters are escaped; another text as it is told."""

    def inner(value: Any) -> Any:
        if isinstance(value, str):
            return told(value)
        if isinstance(value, dict):
            return {told(key): inner(item) for key, item in value.items()}
        return [inner(item) for item in value] if isinstance(value, list) else value

    try:
        value = json.loads(text)
        changed = inner(value)
        if changed == value or changed == json.loads(told(text)):
            return told(text)  # as it was written
    except (ValueError, RecursionError):
        return told(text)
    return json.dumps(changed, ensure_ascii=False)


def _told(grounding: Grounding, told: Callable[[str], str]) -> Grounding:
    items = tuple(GroundingItem(text=told(item.text), score=item.score) for item in grounding.items)
    return grounding.model_copy(
        update={"items": items, "header": told(grounding.header), "footer": told(grounding.footer)}
    )


def redacted(message: Message, rules: Sequence[Redact]) -> Message | None:
    """Return a message after all rules, or None.

    Raises:
        ValueError: a rule changed the id, the time or the turn, by which a message is known.
    """
    told = message
    for rule in rules:
        changed = rule(told)
        if changed is None:
            return None
        told = changed
        if (told.id, told.turn_id, told.created_at) != (message.id, message.turn_id, message.created_at):
            raise ValueError(f"redact: message {message.id!r} must keep its id, turn_id and created_at")
    return told
