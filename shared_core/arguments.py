"""Checks of arguments: an error names the argument, the value and what is accepted."""

from collections.abc import Collection
from datetime import UTC, datetime
from typing import TypeVar

__all__ = ["in_range", "in_utc", "one_of", "whole_number"]

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
    """Return `moment`, taken as UTC if it has no zone, as a message's time is."""
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
