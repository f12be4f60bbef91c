"""The rows that messages become in the SQLite database, and the way back."""

import json
from collections.abc import Callable, Mapping
from datetime import datetime
from operator import itemgetter
from types import NoneType
from typing import Annotated, Any, Literal, get_args, get_origin

from pydantic import BaseModel, TypeAdapter

from shared_core.errors import StoreError
from shared_core.messages import Message
from shared_core.records import Position, Record

__all__ = ["COLUMNS", "message_row", "plain", "record_of", "text", "text_row"]

COLUMNS = (
    "m.segment, m.depth, m.seq, m.id, m.turn_id, m.turn_no, m.role, m.created_at, m.counter, m.tokens, "
    "m.picked_from, t.name, t.content, t.extra"
)
"""The columns that `record_of` reads, of `messages AS m` joined with `texts AS t`."""

_BLANK = Message(role="user")
_COLUMNS = {"id", "turn_id", "role", "created_at", "name", "content"}
_EXTRA = {
    name: field.get_default(call_default_factory=True)
    for name, field in Message.model_fields.items()
    if name not in _COLUMNS
}
"""Each field without a column of its own, with its default; a value other than that is stored as JSON."""
_EXTRA_DEFAULTS = tuple(_EXTRA.values())
_extra_values = itemgetter(*_EXTRA)

Decoder = Callable[[Any], Any]
"""Turns parsed JSON into a value of some type, without checking it: it was checked before it was stored."""


def _kept_as_it_is(value: Any) -> Any:
    return value


def _decoder(annotation: Any) -> Decoder | None:
    """Return the decoder of a type; None if only pydantic can decode it."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _decoder(arguments[0])
    if annotation in (str, int, float, bool, NoneType, Any) or origin is Literal:
        return _kept_as_it_is
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return _model_decoder(annotation)
    if origin is tuple and arguments[1:] == (...,):
        inner = _decoder(arguments[0])
        return None if inner is None else lambda items: tuple(map(inner, items))
    if origin is not None and NoneType in arguments and len(arguments) == 2:
        some = _decoder(next(one for one in arguments if one is not NoneType))
        return some if some in (None, _kept_as_it_is) else lambda value: None if value is None else some(value)
    return None


def _model_decoder(model: type[BaseModel]) -> Decoder | None:
    decoders = {name: _decoder(field.annotation) for name, field in model.model_fields.items()}
    nested = {name: one for name, one in decoders.items() if one is not None and one is not _kept_as_it_is}
    if None in decoders.values():
        return None

    def decode(value: dict[str, Any]) -> BaseModel:
        for name in nested.keys() & value.keys():
            value[name] = nested[name](value[name])
        return model.model_construct(**value)

    return decode


_DECODERS = {name: _decoder(Message.model_fields[name].annotation) for name in _EXTRA}
_NESTED = {name: one for name, one in _DECODERS.items() if one is not None and one is not _kept_as_it_is}
_ADAPTERS: Mapping[str, TypeAdapter[Any]] = {
    name: TypeAdapter[Any](Message.model_fields[name].annotation or Any)
    for name, one in _DECODERS.items()
    if one is None
}
"""Fields whose types JSON has no form for, such as a time."""


def text(value: str) -> str | bytes:
    """Return a text as SQLite can hold it: bytes if it has lone surrogates, for which UTF-8 has no form."""
    if value.isascii():
        return value
    try:
        value.encode()
    except UnicodeEncodeError:
        return value.encode("utf-8", "surrogatepass")
    return value


def plain(value: str | bytes) -> str:
    """Return the text that was given to `text`."""
    return value if isinstance(value, str) else value.decode("utf-8", "surrogatepass")


def text_row(key: int, message: Message) -> tuple[Any, ...]:
    """Return the row of table `texts`, with everything that a forgotten message must not leave behind.

    Raises:
        StoreError: the payload is not plain JSON.
    """
    name = None if message.name is None else text(message.name)
    return key, name, text(message.content), _extra(message)


def message_row(session: int, record: Record, key: int) -> tuple[Any, ...]:
    """Return the row of table `messages`, all columns in order; `key` is the key of its text."""
    message = record.message
    assert message.id is not None
    assert message.turn_id is not None
    assert message.created_at is not None
    return (
        session,
        record.position.segment,
        record.position.depth,
        record.seq,
        text(message.id),
        text(message.turn_id),
        record.turn_no,
        message.role,
        message.created_at.isoformat(),
        int(message.stays),
        None if record.counter is None else text(record.counter),
        record.tokens,
        None if record.picked_from is None else text(record.picked_from),
        key,
    )


def record_of(row: tuple[Any, ...]) -> Record:
    """Return the record in a row of `COLUMNS`, without validating it again.

    Raises:
        StoreError: the row is not one that this package writes.
    """
    segment, depth, seq, id_, turn_id, turn_no, role, created_at, counter, tokens, picked_from, *said = row
    name, content, extra = said
    try:
        fields = {
            "role": role,
            "content": plain(content),
            "id": plain(id_),
            "turn_id": plain(turn_id),
            "created_at": datetime.fromisoformat(created_at),
        }
        if name is not None:
            fields["name"] = plain(name)
        if extra is not None:
            fields.update(_decoded(json.loads(plain(extra))))
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise StoreError(f"message {id_!r} cannot be read: {error}; restore the database from a backup") from error
    return Record(
        message=_BLANK.replace(**fields),
        position=Position(segment, depth),
        seq=seq,
        turn_no=turn_no,
        counter=None if counter is None else plain(counter),
        tokens=tokens,
        picked_from=None if picked_from is None else plain(picked_from),
    )


def _extra(message: Message) -> str | bytes | None:
    values = message.__dict__
    if _extra_values(values) == _EXTRA_DEFAULTS:  # as for most messages
        return None
    try:
        fields = message.model_dump(include=set(_EXTRA), exclude_defaults=True)
        fields |= {n: one.dump_python(values[n], mode="json") for n, one in _ADAPTERS.items() if n in fields}
        return text(json.dumps(fields, ensure_ascii=False, separators=(",", ":")))
    except (TypeError, ValueError, RecursionError) as error:
        raise StoreError(f"message {message.id!r} cannot be stored: its payload is not plain JSON: {error}") from error


def _decoded(fields: dict[str, Any]) -> dict[str, Any]:
    """Return the values of a message's fields from parsed JSON."""
    for name in fields.keys() & _NESTED.keys():
        fields[name] = _NESTED[name](fields[name])
    for name in _ADAPTERS.keys() & fields.keys():
        fields[name] = _ADAPTERS[name].validate_python(fields[name])
    return fields
