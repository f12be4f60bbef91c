"""Settings that are compared: arguments of `InfiniteMemory` that can be written as a text or a number."""

import inspect
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from shared_core.arguments import suggestion
from shared_core.field_errors import shown
from shared_core.memory import InfiniteMemory
from shared_core.plugins.base import Embedder

__all__ = ["PRESENT", "Setting", "parsed", "settings_of"]

PRESENT = "present"
"""The name of the setting that the others are compared with."""

NEVER_TRIED = {"self", "store", "session_id", "user_id"}
"""What says where the conversation is, not how it is recalled."""

Setting = Mapping[str, Any]
"""Arguments for `InfiniteMemory`."""


def parsed(written: Sequence[str], option: str) -> dict[str, list[Any]]:
    """Return the values of arguments that were written as `name=value,value`; after a comma, another name may follow.

    Args:
        written: the texts. `none`, numbers and `true` are what they are in JSON, all else is text.
        option: what they were written after, for errors.

    Raises:
        ValueError: there is no such argument.
    """
    found: dict[str, list[Any]] = {}
    for text in written:
        name = ""
        for part in text.split(","):
            before, separator, value = part.partition("=")
            if separator and (not name or before.strip() in _known()):
                name = before.strip()
                if name not in _known():
                    raise ValueError(f"{option} {part!r}: there is no such argument{suggestion(name, _known())}")
            elif name:
                value = part
            else:
                raise ValueError(f"{option} {text!r}: expected NAME=VALUE, such as recall=precise")
            values = found.setdefault(name, [])
            values += [one for one in [_value(value.strip())] if one not in values]
    return found


def _known() -> list[str]:
    return [name for name in inspect.signature(InfiniteMemory.__init__).parameters if name not in NEVER_TRIED]


def _value(text: str) -> Any:
    try:
        return json.loads({"none": "null", "None": "null", "True": "true", "False": "false"}.get(text, text))
    except ValueError:
        return text


def settings_of(arguments: Setting, tries: Mapping[str, Sequence[Any]], user_id: str | None) -> dict[str, Setting]:
    """Return the present setting, and one for each value that is tried instead of it, by name.

    Args:
        arguments: the present setting.
        tries: the values of each argument.
        user_id: a user whose conversations are asked; None: some belong to no user.

    Raises:
        ValueError: an argument is unknown, or a value out of range.
        EmbedderError: an embedder is the name of no model on this machine.
    """
    found = {PRESENT: arguments, **dict(_tried(arguments, tries))}
    for setting in found.values():
        # In memory, so that a wrong value is found before the work begins.
        try:
            InfiniteMemory(user_id=user_id, **setting).close()
        except TypeError as error:
            raise ValueError(str(error)) from error
    return found


def _tried(arguments: Setting, tries: Mapping[str, Sequence[Any]]) -> Iterator[tuple[str, Setting]]:
    for name, values in tries.items():
        if name not in _known():
            raise ValueError(f"{shown(name, values)}: there is no such argument to try{suggestion(name, _known())}")
        if isinstance(values, str) or not isinstance(values, Sequence):
            raise ValueError(f"{shown(name, values)}: expected a list of values; write {name}=[{values!r}]")
        for value in values:
            short = value.fingerprint.key if isinstance(value, Embedder) else "none" if value is None else value
            yield f"{name}={short}", {**arguments, name: value}
