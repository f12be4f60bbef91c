"""Values of message fields as plain JSON data, and back; nothing is ever revived but what is listed here."""

import base64
import math
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from langchain_core.documents import Document

__all__ = ["UnstorableError", "decode", "encode", "is_encodable"]

# What JSON has no form for becomes an object with one key that begins with "$".
_MARK = "$"

Lookup = Callable[[str, Any], Any]


class UnstorableError(ValueError):
    """The value, or one in it, has no form here."""


def encode(value: Any, known: Mapping[str, Any] | None = None) -> Any:
    """Return plain JSON data that `decode` turns back into an equal value.

    Besides what JSON has, these are kept: tuples, bytes, datetimes, numbers that are not finite, mappings with keys of
    any of these kinds, and `Document`.

    Args:
        value: what to encode; never changed.
        known: texts that are stored elsewhere, each with the reference to put in its place, an object with one key
            that begins with "$".

    Raises:
        UnstorableError: there is something else in it, or it is nested too deeply.
    """
    try:
        return _encoded(value, known or {})
    except RecursionError as error:
        raise UnstorableError("nested too deeply") from error


def is_encodable(value: Any) -> bool:
    """Return whether `encode` takes the value."""
    try:
        encode(value)
    except UnstorableError:
        return False
    return True


def _encoded(value: Any, known: Mapping[str, Any]) -> Any:
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, str):
        return known.get(value, value)
    if isinstance(value, float):
        return value if math.isfinite(value) else {"$float": repr(float(value))}
    if isinstance(value, dict):
        if all(isinstance(key, str) for key in value) and not _marked(value):
            return {key: _encoded(inner, known) for key, inner in value.items()}
        return {"$map": [[_encoded(key, {}), _encoded(inner, known)] for key, inner in value.items()]}
    if isinstance(value, list | tuple):
        items = [_encoded(item, known) for item in value]
        return items if isinstance(value, list) else {"$tuple": items}
    return _special(value, known)


def _special(value: Any, known: Mapping[str, Any]) -> Any:
    if isinstance(value, bytes):
        return {"$bytes": base64.b64encode(value).decode()}
    if isinstance(value, datetime):
        return {"$time": value.isoformat()}
    if isinstance(value, Document):
        fields = {"id": value.id, "metadata": value.metadata, "page_content": value.page_content}
        return {"$document": {name: _encoded(inner, known) for name, inner in fields.items() if inner}}
    raise UnstorableError(f"{type(value).__name__} is no JSON value")


def _marked(value: Mapping[str, Any]) -> bool:
    return len(value) == 1 and next(iter(value)).startswith(_MARK)


def decode(data: Any, lookup: Lookup | None = None) -> Any:
    """Return the value that `encode` was given, in new containers.

    Args:
        data: what `encode` returned.
        lookup: from the key and the value of a reference to what it stands for.

    Raises:
        KeyError: a reference cannot be resolved.
    """
    if isinstance(data, list):
        return [decode(item, lookup) for item in data]
    if not isinstance(data, dict):
        return data
    if not _marked(data):
        return {key: decode(inner, lookup) for key, inner in data.items()}
    ((mark, inner),) = data.items()
    if mark == "$bytes":
        return base64.b64decode(inner)
    if mark == "$float":
        return float(inner)
    if mark == "$time":
        return datetime.fromisoformat(inner)
    return _container(mark, inner, lookup)


def _container(mark: str, inner: Any, lookup: Lookup | None) -> Any:
    if mark == "$map":
        return {decode(key, lookup): decode(value, lookup) for key, value in inner}
    if mark == "$tuple":
        return tuple(decode(item, lookup) for item in inner)
    if mark == "$document":
        return Document(**{"page_content": "", **decode(inner, lookup)})
    if lookup is None:
        raise KeyError(mark)
    return lookup(mark, inner)
