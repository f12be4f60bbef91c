"""Short reprs of results: ids and counts instead of whole conversations."""

from collections.abc import Mapping, Sequence
from dataclasses import MISSING, fields
from typing import Any

from shared_core.messages import Message

SHOWN = 3
"""Ids that are shown of a longer list."""

LONGEST = 60
"""Characters of a text that are shown."""


def short_repr(value: Any) -> str:
    """Return the repr of a dataclass on one line: without defaults, and with the beginnings of lists and texts."""
    shown = [
        f"{field.name}={short(getattr(value, field.name))}"
        for field in fields(value)
        if field.repr and (field.default is MISSING or getattr(value, field.name) != field.default)
    ]
    return f"{type(value).__name__}({', '.join(shown)})"


def short(value: Any) -> str:
    """Return the repr of a value on one line, with the beginnings of lists and texts."""
    match value:
        case Message():
            return f"<{value.role} {value.id}: {_text(value.content)}>"
        case str():
            return _text(value)
        case Mapping():
            return _list([f"{key!r}: {short(each)}" for key, each in value.items()], "{}")
        case tuple():
            ids = [repr(each.id) if isinstance(each, Message) else short(each) for each in value]
            return _list(ids, "()")
    return repr(value)


def _text(text: str) -> str:
    return repr(text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…")


def _list(items: Sequence[str], brackets: str) -> str:
    """Return the first items in brackets, and how many there are if that is more."""
    more = [f"… {len(items):,} in all"] if len(items) > SHOWN else []
    return f"{brackets[0]}{', '.join([*items[:SHOWN], *more])}{brackets[1]}"
