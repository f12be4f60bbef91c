"""Values of a message's fields as plain JSON data, and back; nothing is ever revived but what is listed here."""

import base64
import math
from collections.abc import Callable, Mapping
from datetime import date, datetime
from enum import Enum
from pathlib import Path
from typing import Any

from pydantic import AnyUrl, BaseModel

__all__ = ["UnstorableError", "decode", "encode"]

# What JSON has no form for becomes an object with one key that begins with "$".
_MARK = "$"

Lookup = Callable[[Any], str]


class UnstorableError(ValueError):
    """The value, or one in it, has no form here."""


def encode(value: Any) -> Any:
    """Return plain JSON data that `decode` turns back into an equal value.

    Besides what JSON has, these are kept: tuples, sets, bytes, datetimes, paths, URLs, numbers that are not finite and
    mappings with keys of any of these kinds. A pydantic object becomes a mapping and an enumeration its value, which
    are not equal to what they were.

    Args:
        value: what to encode; never changed.

    Raises:
        UnstorableError: there is something else in it, or it is nested too deeply.
    """
    try:
        return _encoded(value)
    except RecursionError as error:
        raise UnstorableError("nested too deeply") from error


def _encoded(value: Any) -> Any:
    if isinstance(value, Enum):
        return _encoded(value.value)
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, str):
        return str(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else {"$float": repr(float(value))}
    if isinstance(value, Mapping):
        return _mapping(value)
    if isinstance(value, list):
        return [_encoded(item) for item in value]
    return _special(value)


def _mapping(value: Mapping[Any, Any]) -> Any:
    if all(isinstance(key, str) for key in value) and not _marked(value):
        return {str(key): _encoded(inner) for key, inner in value.items()}
    return {"$map": [[_encoded(key), _encoded(inner)] for key, inner in value.items()]}


def _special(value: Any) -> Any:
    if isinstance(value, tuple):
        return {"$tuple": [_encoded(item) for item in value]}
    if isinstance(value, set | frozenset):
        return {"$set": [_encoded(item) for item in value]}
    if isinstance(value, bytes | bytearray):  # pictures are base64 already, which need not be done twice
        return {"$ascii": value.decode("ascii")} if value.isascii() else {"$bytes": base64.b64encode(value).decode()}
    if isinstance(value, datetime):
        return {"$time": value.isoformat()}
    if isinstance(value, date):
        return {"$date": value.isoformat()}
    if isinstance(value, Path):
        return {"$path": str(value)}
    if isinstance(value, AnyUrl):
        return {"$url": str(value)}
    if isinstance(value, BaseModel):
        # Its own dump may run serializers that fail on some versions of pydantic.
        return _mapping({**vars(value), **(value.model_extra or {})})
    raise UnstorableError(f"{type(value).__name__} is no JSON value")


def _marked(value: Mapping[Any, Any]) -> bool:
    return len(value) == 1 and next(iter(value)).startswith(_MARK)


_FORMS: dict[str, Callable[[Any], Any]] = {
    "$float": float,
    "$ascii": str.encode,
    "$bytes": base64.b64decode,
    "$time": datetime.fromisoformat,
    "$date": date.fromisoformat,
    "$path": Path,
    "$url": AnyUrl,
}


def decode(data: Any, lookup: Lookup | None = None) -> Any:
    """Return the value that `encode` was given, in new containers.

    Args:
        data: what `encode` returned.
        lookup: from the value of a reference, an object with the one key `"$text"`, to the text it stands for.

    Raises:
        KeyError: it is not what `encode` returns.
    """
    if isinstance(data, list):
        return [decode(item, lookup) for item in data]
    if not isinstance(data, dict):
        return data
    if not _marked(data):
        return {key: decode(inner, lookup) for key, inner in data.items()}
    ((mark, inner),) = data.items()
    if mark == "$map":
        return {decode(key, lookup): decode(value, lookup) for key, value in inner}
    if mark == "$tuple":
        return tuple(decode(item, lookup) for item in inner)
    if mark == "$set":
        return {decode(item, lookup) for item in inner}
    if mark == "$text" and lookup is not None:
        return lookup(inner)
    return _FORMS[mark](inner)
