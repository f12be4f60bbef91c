"""Samples that the store contract stores: ids and texts that are easily confused, and a message with every field."""

from datetime import datetime, timedelta, timezone
from types import NoneType
from typing import Annotated, Any, Literal, get_args, get_origin

from pydantic import BaseModel

from shared_core.messages import Message

__all__ = ["NASTY", "RICH", "sample"]

NASTY = ('["a","b"]', "", "%", "_", "\\", "'; --", '"', "null", "None", "a\x00b", "שלום \u202e", "😀", "a", "A", " a")
"""Ids and names that meet each other in a store that quotes, trims, folds case or cuts."""

_SAMPLES: dict[Any, Any] = {
    str: "é😀",
    int: 7,
    float: 0.1 + 0.2,
    bool: True,
    datetime: datetime(2024, 2, 29, 12, 0, 0, 123456, timezone(timedelta(hours=5, minutes=45))),
    Any: {"a": [1, 2.5, None, {"b": "é😀"}]},
}


def sample(annotation: Any) -> Any:
    """Return a value of the type of a field, unlike any that a field has by default.

    Raises:
        TypeError: there is no sample of this type yet; add one to `_SAMPLES`.
    """
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return sample(arguments[0])
    if origin is Literal:
        return arguments[-1]
    if origin in (tuple, list, set, frozenset):
        return origin([sample(arguments[0])])
    if origin is dict:
        return {"key": sample(arguments[1])}
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation(**{name: sample(field.annotation) for name, field in annotation.model_fields.items()})
    if NoneType in arguments:
        return sample(next(one for one in arguments if one is not NoneType))
    if annotation not in _SAMPLES:
        raise TypeError(f"there is no sample of {annotation!r} yet: add one in {__file__}")
    return _SAMPLES[annotation]


RICH: dict[str, Any] = {
    name: sample(field.annotation)
    for name, field in Message.model_fields.items()
    if name not in ("id", "role", "content", "created_at", "turn_id")
}
"""Every field that a draft can have beyond id, role, text and time; a new field of `Message` is among them."""
