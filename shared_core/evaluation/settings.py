"""Settings that are compared: arguments of `InfiniteMemory` that can be written as a text or a number."""

import inspect
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from shared_core.arguments import suggestion
from shared_core.base import Embedder
from shared_core.field_errors import shown
from shared_core.memory import InfiniteMemory

__all__ = ["PRESENT", "Setting", "budget_of", "parsed", "settings_of", "triable"]

PRESENT = "present"
"""The name of the setting that the others are compared with."""

NEVER_TRIED = {"store", "session_id", "user_id", "durability"}
"""What says where the conversation is, not how it is recalled."""

Choice = type[Any] | tuple[Any, ...]
"""A type, or the values of a `Literal`."""


@dataclass(frozen=True, slots=True)
class Setting:
    """One way to set up the memory.

    Attributes:
        name: what is set, as on the command line, such as `"recall=precise"`; that of today's is `PRESENT`.
        arguments: for `InfiniteMemory`, those that all settings have in common included.
    """

    name: str
    arguments: Mapping[str, Any] = field(default_factory=dict)

    @property
    def reindexes(self) -> bool:
        """Whether it names an embedder, which may not be the one that made the stored vectors."""
        return self.arguments.get("embedder") is not None


def triable() -> dict[str, list[Choice]]:
    """Return the names of the arguments that can be tried, and the types and choices of their values."""
    hints = get_type_hints(InfiniteMemory.__init__)
    names = [name for name in hints if name not in NEVER_TRIED and name != "return"]
    kinds = {name: list(_choices(hints[name])) for name in names}
    return {name: found for name, found in kinds.items() if {str, int, float}.intersection(found) or _literals(found)}


def _choices(hint: Any) -> Iterator[Choice]:
    if get_origin(hint) in (Union, UnionType):
        for part in get_args(hint):
            yield from _choices(part)
    elif get_origin(hint) is Literal:
        yield get_args(hint)
    elif isinstance(hint, type):
        yield hint


def _literals(found: Sequence[Choice]) -> list[Any]:
    return [value for choice in found if isinstance(choice, tuple) for value in choice]


def parsed(written: Sequence[str], option: str) -> dict[str, list[Any]]:
    """Return the values of arguments that were written as `name=value,value`; after a comma, another name may follow.

    Args:
        written: the texts.
        option: what they were written after, for errors.

    Raises:
        ValueError: there is no such argument, or it cannot have such a value.
    """
    found: dict[str, list[Any]] = {}
    for text in written:
        name = ""
        for part in text.split(","):
            before, separator, value = part.partition("=")
            if separator and (not name or before.strip() in triable()):
                name = before.strip()
            elif name:
                value = part
            else:
                raise ValueError(f"{option} {text!r}: expected NAME=VALUE; {_what_can_be_tried()}")
            values = found.setdefault(name, [])
            one = _value(name, value.strip(), option)
            values += [one] if one not in values else []
    return found


def _value(name: str, text: str, option: str) -> Any:
    """Return a value, of the type that the argument has."""
    choices = triable().get(name)
    if choices is None:
        raise ValueError(f"{option} {f'{name}={text}'!r}: there is no such argument{_advice(name)}")
    if NoneType in choices and text.lower() == "none":
        return None
    literals = _literals(choices)
    if text in literals:
        return text
    for kind in (int, float):
        if kind in choices:
            try:
                return kind(text)
            except ValueError:
                continue
    if str in choices and text:
        return text
    what = [*map(repr, literals), *(["a number"] if {int, float}.intersection(choices) else [])]
    what += ["none"] if NoneType in choices else []
    raise ValueError(f"{option} {f'{name}={text}'!r}: expected {' or '.join(what) or 'a text'}")


def _advice(name: str) -> str:
    return suggestion(name, list(triable())) or f"; {_what_can_be_tried()}"


def _what_can_be_tried() -> str:
    return f"these can be tried: {', '.join(map(repr, triable()))}"


def settings_of(
    arguments: Mapping[str, Any], tries: Mapping[str, Sequence[Any]], *, user_id: str | None = None
) -> list[Setting]:
    """Return the present setting, and one for each value that is tried instead of it.

    Args:
        arguments: the present setting.
        tries: the values of each argument.
        user_id: a user whose conversations are asked; None: some belong to no user.

    Raises:
        ValueError, TypeError: an argument is unknown, or a value out of range.
        EmbedderError: an embedder is the name of no model on this machine.
    """
    known = triable()
    for name, values in tries.items():
        if name not in known:
            raise ValueError(f"{shown(name, values)}: there is no such argument to try{_advice(name)}")
        if isinstance(values, str) or not isinstance(values, Sequence):
            raise ValueError(f"{shown(name, values)}: expected a list of values; write {name}=[{values!r}]")
    tried = [
        Setting(f"{name}={_shown(value)}", {**arguments, name: value})
        for name, values in tries.items()
        for value in values
    ]
    found = [Setting(PRESENT, dict(arguments)), *tried]
    for setting in found:
        # In memory, so that a wrong value is found before the work begins.
        InfiniteMemory(user_id=user_id, **setting.arguments).close()
    return found


def budget_of(setting: Setting) -> int:
    """Return the tokens that a prompt may take."""
    defaults = inspect.signature(InfiniteMemory.__init__).parameters
    limit, reserve = (setting.arguments.get(name, defaults[name].default) for name in ("max_tokens", "reserve_tokens"))
    return int(limit - reserve)


def _shown(value: Any) -> str:
    if isinstance(value, Embedder):
        return value.fingerprint.key
    return value if isinstance(value, str) else "none" if value is None else repr(value)
