"""Values of message fields as plain JSON data, and back. Decoding creates only values of the types listed here."""

import base64
import math
from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime
from functools import partial
from pathlib import Path
from typing import Any

from pydantic import AnyUrl

# A value that JSON cannot express becomes an object with one key that begins with "$".
_MARK = "$"

Encode = Callable[[Any], Any]
Encoder = Callable[[Any, Encode], Any]
"""Takes a value and the function that encodes what is inside it; returns JSON data."""

Lookup = Callable[[str, Any], Any]

_DECODERS: dict[str, Callable[[Any], Any]] = {
    "$map": dict,
    "$tuple": tuple,
    "$set": set,
    "$float": float,
    "$ascii": str.encode,
    "$bytes": base64.b64decode,
    "$time": datetime.fromisoformat,
    "$date": date.fromisoformat,
    "$path": Path,
    "$url": AnyUrl,
}
"""Mark -> the function that makes a value from its decoded data. Stored messages contain these marks, so none may ever
be removed."""


class UnstorableError(ValueError):
    """The value, or a value inside it, cannot be written as JSON data."""


class UnstorableWarning(UserWarning):
    """Part of a message cannot be written as JSON, so the message is stored without it."""


class ValueCodec:
    """Encodes values as JSON data and decodes them.

    JSON values, tuples, numbers that are not finite, datetimes, and dictionaries with keys of any of these types are
    always supported.

    Args:
        encoders: further types, or tuples of types, each with its encoder; the first that matches is used.
        decoders: further marks, each with the function that makes the value of its decoded data.
    """

    def __init__(
        self, encoders: Sequence[tuple[type | tuple[type, ...], Encoder]] = (),
        decoders: Mapping[str, Callable[[Any], Any]] | None = None,
    ) -> None:  # fmt: skip
        self._encoders = tuple(encoders)
        self._decoders = {**_DECODERS, **(decoders or {})}

    def encode(self, value: Any, known: Mapping[str, Any] | None = None) -> Any:
        """Return plain JSON data from which `decode` makes an equal value; `value` is not changed.

        Args:
            value: what to encode.
            known: texts that are stored elsewhere, each with the reference to write in its place: an object with one
                key that begins with "$".

        Raises:
            UnstorableError: a type is not supported, or the value is nested too deeply.
        """
        try:
            return self._encoded(value, known or {})
        except RecursionError as error:
            raise UnstorableError("nested too deeply") from error

    def _encoded(self, value: Any, known: Mapping[str, Any]) -> Any:
        kind = type(value)
        if kind is str:
            return known.get(value, value)
        if value is None or kind is bool or kind is int:
            return value
        if isinstance(value, dict):
            return self._mapping(value, known)
        if isinstance(value, list | tuple):
            items = [self._encoded(item, known) for item in value]
            return items if isinstance(value, list) else {"$tuple": items}
        for wanted, encoder in self._encoders:
            if isinstance(value, wanted):
                return encoder(value, partial(self._encoded, known=known))
        return _scalar(value, known)

    def _mapping(self, value: Mapping[Any, Any], known: Mapping[str, Any]) -> Any:
        if all(isinstance(key, str) for key in value) and not _is_marked(value):
            return {key: self._encoded(inner, known) for key, inner in value.items()}
        return {"$map": [[self._encoded(key, {}), self._encoded(inner, known)] for key, inner in value.items()]}

    def decode(self, data: Any, lookup: Lookup | None = None) -> Any:
        """Return the value that `encode` was given, in new containers.

        Args:
            data: what `encode` returned.
            lookup: takes the key and the value of a reference and returns what it stands for.

        Raises:
            KeyError: a reference cannot be resolved.
        """
        if isinstance(data, list):
            return [self.decode(item, lookup) for item in data]
        if not isinstance(data, dict):
            return data
        if not _is_marked(data):
            return {key: self.decode(inner, lookup) for key, inner in data.items()}
        ((mark, inner),) = data.items()
        if mark in self._decoders:
            return self._decoders[mark](self.decode(inner, lookup))
        if lookup is None:
            raise KeyError(mark)
        return lookup(mark, inner)


def _scalar(value: Any, known: Mapping[str, Any]) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else {"$float": repr(float(value))}
    if isinstance(value, int):
        return value
    if isinstance(value, str):
        plain = str.__str__(value)  # an enumeration's own `str()` gives the name of the member
        return known.get(plain, plain)
    if isinstance(value, datetime):
        return {"$time": value.isoformat()}
    raise UnstorableError(f"{type(value).__name__} is not a JSON value")


def _is_marked(value: Mapping[Any, Any]) -> bool:
    return len(value) == 1 and next(iter(value)).startswith(_MARK)
