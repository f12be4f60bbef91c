"""Rules that change or drop messages on their way into an export."""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from shared_core.index.text import UNSPACED
from shared_core.messages import Grounding, GroundingItem, Message

__all__ = ["Redact", "drop_grounding", "drop_tool_results", "redacted", "replace_names"]

Redact = Callable[[Message], Message | None]
"""Returns a message as it is exported. None: it is left out, and its position in the file is empty."""


def drop_grounding(message: Message) -> Message:
    """Drop the grounding of a message, and its payload, which may repeat the grounding."""
    return message if message.grounding is None else message.replace(grounding=None, payload=None)


def drop_tool_results(message: Message) -> Message:
    """Drop what tools returned. The calls stay."""
    return message.replace(content="", payload=None) if message.role == "tool" else message


def replace_names(names: Mapping[str, str]) -> Redact:
    """Return a rule that replaces names, as speakers and in all text, wherever they are whole words.

    In scripts without spaces between words, it replaces every occurrence. It changes messages only: the names of the
    conversation, its user and its branches stay, and so do the notes on tags and stashes. The title is left out.

    Args:
        names: name -> its replacement.
    """
    if not names:
        return lambda message: message
    longest_first = sorted(names, key=len, reverse=True)
    pattern = re.compile("|".join(map(_as_word, longest_first)))

    def replaced(text: str) -> str:
        return pattern.sub(lambda found: names[found[0]], text)

    def redact(message: Message) -> Message:
        changes: dict[str, Any] = {
            "content": replaced(message.content),
            "name": None if message.name is None else replaced(message.name),
            "tool_calls": tuple(call.model_copy(update={"arguments": _replaced_in_json(call.arguments, replaced)})
                                for call in message.tool_calls),
            "grounding": None if message.grounding is None else _replaced_in_grounding(message.grounding, replaced),
            "payload": None,
        }  # fmt: skip
        changed = message.replace(**changes)
        return message if changed.replace(payload=message.payload) == message else changed

    return redact


def _as_word(name: str) -> str:
    """Return a pattern for a name that is not part of a longer word."""
    letter = f"[^\\W{UNSPACED}]"  # of a script with spaces between words
    begins, ends = (re.match(letter, edge) for edge in (name[:1], name[-1:]))
    return f"{f'(?<!{letter})' if begins else ''}{re.escape(name)}{f'(?!{letter})' if ends else ''}"


def _replaced_in_json(text: str, replaced: Callable[[str], str]) -> str:
    """Return a JSON text with names replaced in all its strings, even in escaped letters; other text as plain text."""

    def inner(value: Any) -> Any:
        if isinstance(value, str):
            return replaced(value)
        if isinstance(value, dict):
            return {replaced(key): inner(item) for key, item in value.items()}
        return [inner(item) for item in value] if isinstance(value, list) else value

    try:
        value = json.loads(text)
        changed = inner(value)
        if changed == value or changed == json.loads(replaced(text)):
            return replaced(text)  # keeps the spacing and escapes of the original
    except (ValueError, RecursionError):
        return replaced(text)
    return json.dumps(changed, ensure_ascii=False)


def _replaced_in_grounding(grounding: Grounding, replaced: Callable[[str], str]) -> Grounding:
    items = tuple(
        GroundingItem(text=replaced(item.text), score=item.score, brief=replaced(item.brief))
        for item in grounding.items
    )
    return grounding.model_copy(
        update={"items": items, "header": replaced(grounding.header), "footer": replaced(grounding.footer)}
    )


def redacted(message: Message, rules: Sequence[Redact]) -> Message | None:
    """Return a message after all rules, or None if a rule drops it.

    Raises:
        ValueError: a rule changed the id, the time or the turn. An import needs them to recognize the message.
    """
    current = message
    for rule in rules:
        changed = rule(current)
        if changed is None:
            return None
        current = changed
        if (current.id, current.turn_id, current.created_at) != (message.id, message.turn_id, message.created_at):
            raise ValueError(f"redact: message {message.id!r} must keep its id, turn_id and created_at")
    return current
