"""Checks of arguments: an error names the argument, its value and what is accepted."""

from collections.abc import Collection
from typing import Any, TypeVar

Value = TypeVar("Value")


def one_of(name: str, value: Value, choices: Collection[Value]) -> Value:
    """Return a value that is one of the choices.

    Raises:
        ValueError: it is none of them.
    """
    if value not in choices:
        raise ValueError(f"{name}={value!r}: choose one of {', '.join(map(repr, choices))}")
    return value


def whole_number(name: str, value: int, *, least: int) -> int:
    """Return an integer of at least `least`.

    Raises:
        ValueError: it is smaller, or no integer; True and False are none.
    """
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ValueError(f"{name}={value!r}: expected a whole number of at least {least}")
    return value


def in_range(name: str, value: float, low: float, high: float) -> float:
    """Return a number from `low` to `high`, both included.

    Raises:
        ValueError: it lies outside.
    """
    if not low <= value <= high:
        raise ValueError(f"{name}={value!r}: expected a number from {low:g} to {high:g}")
    return value


def text_value(name: str, value: Any) -> str:
    """Return a text.

    Raises:
        ValueError: it is something else.
    """
    if not isinstance(value, str):
        raise ValueError(f"{name}={value!r}: expected a text")
    return value
