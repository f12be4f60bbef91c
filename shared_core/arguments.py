"""Checks of arguments. Each error names the argument, its value and what is accepted."""

from collections.abc import Collection, Mapping
from datetime import UTC, datetime
from typing import Any, TypeVar

from shared_core.messages import Message

__all__ = ["in_range", "in_utc", "message_list", "one_of", "text_value", "whole_number"]

Value = TypeVar("Value")


def one_of(name: str, value: Value, choices: Collection[Value]) -> Value:
    """Return `value` if it is one of the choices; ValueError otherwise."""
    if value not in choices:
        raise ValueError(f"{name}={value!r}: choose one of {', '.join(map(repr, choices))}")
    return value


def whole_number(name: str, value: int, *, least: int) -> int:
    """Return `value` if it is an integer of at least `least`; ValueError otherwise."""
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ValueError(f"{name}={value!r}: expected a whole number of at least {least}")
    return value


def in_range(name: str, value: float, low: float, high: float) -> float:
    """Return `value` if it lies between `low` and `high`, inclusive; ValueError otherwise."""
    if not low <= value <= high:
        raise ValueError(f"{name}={value!r}: expected a number from {low:g} to {high:g}")
    return value


def in_utc(moment: datetime) -> datetime:
    """Return `moment` with a time zone: UTC if it has none, as for the times of messages."""
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)


def text_value(name: str, value: Any) -> str:
    """Return `value` if it is a text; ValueError otherwise."""
    if not isinstance(value, str):
        raise ValueError(f"{name}={value!r}: expected a text")
    return value


def message_list(messages: Any) -> list[Message]:
    """Return one message or several as a list; TypeError if anything else is among them."""
    given: list[Message] = []
    for message in [messages] if isinstance(messages, Message | str | Mapping) else messages:
        if not isinstance(message, Message):
            shown = repr(message)[:80]
            raise TypeError(f"expected messages, not {shown}: write Message.user(text), Message.assistant(text)")
        given.append(message)
    return given
