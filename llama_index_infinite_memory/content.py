"""The blocks of a message: as JSON data around its text, in which no text is stored twice, and what they cost."""

import base64
from collections.abc import Iterable, Mapping, Sequence
from datetime import date, datetime
from enum import Enum
from io import IOBase
from pathlib import Path
from typing import Any, TypeVar

from llama_index.core.base.llms import types
from llama_index.core.base.llms.types import TextBlock
from pydantic import AnyUrl, BaseModel

from shared_core.doors.interop.content import references, text_slice, text_tokens, unpack_blocks
from shared_core.doors.interop.values import Encode, UnstorableError, ValueCodec
from shared_core.formats.parts import AUDIO_TOKENS, FILE_TOKENS, IMAGE_TOKENS, LOW_IMAGE_TOKENS, VIDEO_TOKENS

Model = TypeVar("Model", bound=BaseModel)

SEPARATOR = "\n"
"""What `ChatMessage.content` puts between the texts of its blocks."""

_CLASSES: dict[str, type[BaseModel]] = {
    name: known
    for name, known in vars(types).items()
    if isinstance(known, type) and issubclass(known, BaseModel) and "block_type" in known.model_fields
} | {"CacheControl": types.CacheControl}
"""The classes of blocks, and of what stands in them, in this version of LlamaIndex, by their names."""

_MEDIA_TOKENS = {"image": IMAGE_TOKENS, "audio": AUDIO_TOKENS, "video": VIDEO_TOKENS, "document": FILE_TOKENS}
"""Block type -> what a block costs in tokens."""


def constructed(model: type[Model], fields: dict[str, Any]) -> Model:
    """Return a model with all its fields, as `model_construct` does, which takes three times as long.

    A call of a long conversation makes thousands of them.
    """
    made = model.__new__(model)
    object.__setattr__(made, "__dict__", fields)
    object.__setattr__(made, "__pydantic_fields_set__", set(fields))
    object.__setattr__(made, "__pydantic_extra__", None)
    object.__setattr__(made, "__pydantic_private__", None)
    return made


def bare_text(text: str) -> TextBlock:
    """Return a text as a block, without validation, which would take most of the time."""
    return constructed(TextBlock, {"block_type": "text", "text": text})


# As JSON data


def _encode_bytes(value: bytes | bytearray, _: Encode) -> Any:
    # Pictures come as base64 text, which needs no second encoding.
    return {"$ascii": value.decode("ascii")} if value.isascii() else {"$bytes": base64.b64encode(value).decode()}


def _encode_model(value: BaseModel, encode: Encode) -> Any:
    # The model's own dump may run serializers that fail on some versions of pydantic.
    fields = {**vars(value), **(value.model_extra or {})}
    streams = {name: _read(stream) for name, stream in fields.items() if isinstance(stream, IOBase)}
    if streams:  # the block holds what it makes of bytes
        fields = vars(type(value)(**(fields | streams)))
    kind = _known(value)
    return encode(fields) if kind is None else {"$block": [kind, encode(fields)]}


def _known(value: object) -> str | None:
    """Return the name of the known class that a block is of; None if there is none."""
    return next((kind.__name__ for kind in type(value).__mro__ if _CLASSES.get(kind.__name__) is kind), None)


def _read(stream: Any) -> bytes:
    """Return all that a stream holds; its position is restored."""
    try:
        position = stream.tell()
        stream.seek(0)
        content: bytes = stream.read()
        stream.seek(position)
    except (OSError, ValueError) as error:
        raise UnstorableError(f"its stream cannot be read: {error}") from error
    return content


def _decode_block(pair: Sequence[Any]) -> Any:
    """Return a block as it was; its constructor would look for its file, and read its bytes again."""
    kind = _CLASSES.get(pair[0])
    return bare_text("") if kind is None else kind.model_construct(**pair[1])  # None: written with a newer LlamaIndex


CODEC = ValueCodec(
    [
        (Enum, lambda value, encode: encode(value.value)),
        (Mapping, lambda value, encode: encode(dict(value))),
        ((set, frozenset), lambda value, encode: {"$set": [encode(item) for item in value]}),
        ((bytes, bytearray), _encode_bytes),
        (date, lambda value, _: {"$time" if isinstance(value, datetime) else "$date": value.isoformat()}),
        (Path, lambda value, _: {"$path": str(value)}),
        (AnyUrl, lambda value, _: {"$url": str(value)}),
        (BaseModel, _encode_model),
    ],
    {"$block": _decode_block},
)
"""Encodes the values of message fields as JSON data: besides what every `ValueCodec` does, blocks, sets, bytes, dates,
paths and URLs. Another pydantic object becomes a mapping and an enumeration its value, which are not equal to what they
were."""


def pack(blocks: Iterable[Any], lost: list[str]) -> list[Any]:
    """Return blocks as JSON data, in which each plain text block is a reference into all text.

    What JSON cannot express is left out and described in `lost`.
    """
    given = list(blocks)
    texts = [block.text if isinstance(block, TextBlock) else None for block in given]
    packed: list[Any] = []
    for index, (block, reference) in enumerate(zip(given, references(texts, SEPARATOR), strict=True)):
        if type(block) is TextBlock and vars(block).keys() == {"block_type", "text"}:
            packed.append(reference)
            continue
        try:
            if _known(block) is None:
                raise UnstorableError(f"{type(block).__name__} is not a known kind of block")
            packed.append(CODEC.encode(block))
        except UnstorableError as error:
            lost.append(f"blocks[{index}] ({error})")
    return packed


def unpack(text: str, blocks: Sequence[Any], mark: Sequence[int]) -> list[Any]:
    """Return the blocks that `pack` was given; for a text that has changed since see `unpack_blocks`."""
    return unpack_blocks(
        text, blocks, mark, text_block=bare_text,
        block=lambda data: CODEC.decode(data, lambda _, place: bare_text(text_slice(text, place))),
        is_text=lambda data: "$text" in data or data["$block"][0] == TextBlock.__name__,
    )  # fmt: skip


# Cost


def blocks_tokens(blocks: Iterable[Any]) -> int:
    """Return the tokens of the blocks that are neither text nor tool calls.

    Thinking counts with the number that its provider gave, else by its text; citations count by their text.
    """
    return sum(map(_block_tokens, blocks))


def _block_tokens(block: Any) -> int:
    kind = getattr(block, "block_type", "")
    if kind in _MEDIA_TOKENS:
        return LOW_IMAGE_TOKENS if getattr(block, "detail", None) == "low" and kind == "image" else _MEDIA_TOKENS[kind]
    if kind == "thinking":
        return int(block.num_tokens or text_tokens(block.content or ""))
    if kind in ("citable", "citation"):
        inner = block.content if kind == "citable" else [block.cited_content]
        return text_tokens(block.title + block.source) + sum(map(_inner_tokens, inner))
    return 0  # texts and tool calls are counted with the message


def _inner_tokens(block: Any) -> int:
    return text_tokens(block.text) if block.block_type == "text" else _block_tokens(block)
