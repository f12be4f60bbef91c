"""The blocks of a message: as JSON data around its text, in which no text is stored twice, and what they cost."""

import base64
import math
from collections.abc import Iterable, Mapping, Sequence
from datetime import date, datetime
from enum import Enum
from io import IOBase
from pathlib import Path
from typing import Any, TypeVar

from llama_index.core.base.llms import types
from llama_index.core.base.llms.types import TextBlock
from llama_index.core.schema import BaseNode, MetadataMode, NodeWithScore
from llama_index.core.storage.docstore.utils import doc_to_json, json_to_doc
from pydantic import AnyUrl, BaseModel

from shared_core.doors.interop.content import references, text_slice, text_tokens, unpack_blocks
from shared_core.doors.interop.values import Encode, UnstorableError, ValueCodec
from shared_core.formats.parts import LOW_IMAGE_TOKENS
from shared_core.messages import Grounding, GroundingItem


def _encode_bytes(value: bytes | bytearray, _: Encode) -> Any:
    # Pictures come as base64 text, which needs no second encoding.
    return {"$ascii": value.decode("ascii")} if value.isascii() else {"$bytes": base64.b64encode(value).decode()}


def _encode_model(value: BaseModel, encode: Encode) -> Any:
    # The model's own dump may run serializers that fail on some versions of pydantic.
    return encode({**vars(value), **(value.model_extra or {})})


CODEC = ValueCodec(
    [
        (NodeWithScore, lambda value, encode: {"$scored": [encode(value.node), encode(value.score)]}),
        (BaseNode, lambda value, encode: {"$node": encode(doc_to_json(value))}),
        (Enum, lambda value, encode: encode(value.value)),
        (Mapping, lambda value, encode: encode(dict(value))),
        ((set, frozenset), lambda value, encode: {"$set": [encode(item) for item in value]}),
        ((bytes, bytearray), _encode_bytes),
        (date, lambda value, _: {"$time" if isinstance(value, datetime) else "$date": value.isoformat()}),
        (Path, lambda value, _: {"$path": str(value)}),
        (AnyUrl, lambda value, _: {"$url": str(value)}),
        (BaseModel, _encode_model),
    ],
    {"$scored": lambda pair: NodeWithScore(node=pair[0], score=pair[1]), "$node": json_to_doc},
)
"""Encodes the values of message fields as JSON data: besides what every `ValueCodec` does, nodes, sets, bytes, dates,
paths and URLs. Another pydantic object becomes a mapping and an enumeration its value, which are not equal to what they
were."""

GROUNDING = "grounding"
"""The key of `additional_kwargs` under which retrieved passages stand."""


def grounding_of(value: Any) -> Grounding | None:
    """Return the grounding that a text, or a list of texts and nodes, best first, stands for; None if it is none."""
    given = [value] if isinstance(value, str) else value
    if not isinstance(given, list | tuple) or not all(isinstance(one, str | BaseNode | NodeWithScore) for one in given):
        return None
    items = tuple(map(_item, given))
    return Grounding(items=items) if any(item.text for item in items) else None


def _item(value: str | BaseNode | NodeWithScore) -> GroundingItem:
    if isinstance(value, str):
        return GroundingItem(text=value)
    score = value.score if isinstance(value, NodeWithScore) else None
    node = value.node if isinstance(value, NodeWithScore) else value
    usable = score is not None and math.isfinite(score)
    return GroundingItem(text=node.get_content(MetadataMode.LLM), score=score if usable else None)


Model = TypeVar("Model", bound=BaseModel)

SEPARATOR = "\n"
"""What `ChatMessage.content` puts between the texts of its blocks."""

_CLASSES: dict[str, type[BaseModel]] = {
    known.model_fields["block_type"].default: known
    for known in vars(types).values()
    if isinstance(known, type) and issubclass(known, BaseModel) and "block_type" in known.model_fields
}
"""Block type -> the class of such blocks, in this version of LlamaIndex."""

_STREAM_FIELDS = {"image": "image", "audio": "audio", "video": "video", "document": "data"}
"""Block type -> its field that may hold a stream."""

MEDIA_TOKENS: Mapping[str, int] = {"image": 256, "audio": 256, "video": 256, "document": 2048}
"""Block type -> what a block costs in tokens unless the buffer is told otherwise; the estimates of LlamaIndex's
`Memory`."""

MEDIA_ARGUMENTS = {kind: f"{kind}_token_size_estimate" for kind in MEDIA_TOKENS}
"""Block type -> the argument of a buffer, and of `Memory`, that sets another estimate."""


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


# Packing


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
            packed.append(_packed(block))
        except UnstorableError as error:
            lost.append(f"blocks[{index}] ({error})")
    return packed


def _packed(block: Any) -> Any:
    kind = getattr(block, "block_type", None)
    if not isinstance(block, BaseModel) or kind not in _CLASSES:
        raise UnstorableError(f"{type(block).__name__} is not a known kind of block")
    fields = {name: _field(kind, name, value) for name, value in vars(block).items()}
    return fields | {"block_type": kind}


def _field(kind: str, name: str, value: Any) -> Any:
    if _STREAM_FIELDS.get(kind) == name and isinstance(value, IOBase):
        return CODEC.encode(_read(kind, name, value))
    if isinstance(value, BaseModel):
        return _packed(value) if hasattr(value, "block_type") else CODEC.encode(value)
    if kind == "citable" and name == "content":
        return [_packed(inner) for inner in value]
    return CODEC.encode(value)


def _read(kind: str, name: str, stream: Any) -> bytes | None:
    """Return what a stream holds, as a block that was given it as bytes holds it; the stream's position is restored."""
    try:
        position = stream.tell()
        stream.seek(0)
        content = stream.read()
        stream.seek(position)
    except (OSError, ValueError) as error:
        raise UnstorableError(f"its stream cannot be read: {error}") from error
    held: bytes | None = vars(_CLASSES[kind](**{name: content}))[name]
    return held


# Unpacking


def unpack(text: str, blocks: Sequence[Any], mark: Sequence[int]) -> list[Any]:
    """Return the blocks that `pack` was given; for a text that has changed since see `unpack_blocks`."""

    def restored(block: Any) -> Any:
        return bare_text(text_slice(text, block["$text"])) if "$text" in block else _block(block)

    return unpack_blocks(
        text, blocks, mark, text_block=bare_text, block=restored,
        is_text=lambda block: "$text" in block or block["block_type"] == "text",
    )  # fmt: skip


def _block(data: Any) -> Any:
    """Return a block as it was; its constructor would look for its file, and read its bytes again."""
    kind = data["block_type"]
    if kind not in _CLASSES:  # written with a newer LlamaIndex
        return bare_text("")
    fields = {name: _value(kind, name, value) for name, value in data.items()}
    return _CLASSES[kind].model_construct(**fields)


def _value(kind: str, name: str, value: Any) -> Any:
    if isinstance(value, dict) and "block_type" in value:
        return _block(value)
    if kind == "citable" and name == "content":
        return [_block(inner) for inner in value]
    if kind == "cache" and name == "cache_control":
        return types.CacheControl.model_construct(**CODEC.decode(value))
    return CODEC.decode(value)


# Cost


def blocks_tokens(blocks: Iterable[Any], media: Mapping[str, int] = MEDIA_TOKENS) -> int:
    """Return the tokens of the blocks that are neither text nor tool calls.

    Thinking counts with the number that its provider gave, else by its text; citations count by their text.

    Args:
        blocks: the blocks.
        media: block type -> what such a block costs.
    """
    return sum(_block_tokens(block, media) for block in blocks)


def _block_tokens(block: Any, media: Mapping[str, int]) -> int:
    kind = getattr(block, "block_type", "")
    if kind == "image" and getattr(block, "detail", None) == "low":
        return min(LOW_IMAGE_TOKENS, media[kind])
    if kind in media:
        return media[kind]
    if kind == "thinking":
        return int(block.num_tokens or text_tokens(block.content or ""))
    if kind == "citable":
        return text_tokens(block.title + block.source) + sum(_inner_tokens(inner, media) for inner in block.content)
    if kind == "citation":
        return text_tokens(block.title + block.source) + _inner_tokens(block.cited_content, media)
    return 0  # texts and tool calls are counted with the message


def _inner_tokens(block: Any, media: Mapping[str, int]) -> int:
    return text_tokens(block.text) if block.block_type == "text" else _block_tokens(block, media)
