"""The blocks of a message as JSON data around its text, without keeping a text twice."""

from collections.abc import Iterable, Sequence
from io import IOBase
from itertools import accumulate
from typing import Any
from zlib import crc32

from llama_index.core.base.llms import types
from llama_index.core.base.llms.types import TextBlock
from pydantic import BaseModel

from llama_index_infinite_memory.values import UnstorableError, decode, encode

__all__ = ["SEPARATOR", "bare_text", "pack", "text_mark", "unpack"]

SEPARATOR = "\n"
"""What `ChatMessage.content` puts between the texts of its blocks."""

# Looked up by name, because older versions of LlamaIndex lack some.
_NAMES = (
    "TextBlock", "ImageBlock", "AudioBlock", "VideoBlock", "DocumentBlock", "CachePoint", "CitableBlock",
    "CitationBlock", "ThinkingBlock", "ToolCallBlock",
)  # fmt: skip
_CLASSES: dict[str, type[BaseModel]] = {
    found.model_fields["block_type"].default: found for name in _NAMES if (found := getattr(types, name, None))
}
_STREAMED = {"image": "image", "audio": "audio", "video": "video", "document": "data"}
"""Block type -> its field that may hold a stream."""


def bare_text(text: str) -> TextBlock:
    """Return a text as a block; nothing is validated, which takes most of the time."""
    return TextBlock.model_construct(block_type="text", text=text)


def text_mark(text: str) -> list[int]:
    """Return length and checksum of a text, by which `unpack` knows it again."""
    return [len(text), crc32(text.encode("utf-8", "surrogatepass"))]


def pack(blocks: Iterable[Any], lost: list[str]) -> list[Any]:
    """Return blocks as JSON data, each text block as a reference into all text, counted from its end.

    So text that is put before it changes nothing. What has no JSON form is left out and named in `lost`.
    """
    given = list(blocks)
    sizes = [len(block.text) + len(SEPARATOR) if isinstance(block, TextBlock) else 0 for block in given]
    starts = list(accumulate(sizes, initial=len(SEPARATOR) - sum(sizes)))
    packed: list[Any] = []
    for place, block in enumerate(given):
        if type(block) is TextBlock and vars(block).keys() == {"block_type", "text"}:
            packed.append({"$text": [starts[place], starts[place] + len(block.text)]})
            continue
        try:
            packed.append(_packed(block))
        except UnstorableError as error:
            lost.append(f"blocks[{place}] ({error})")
    return packed


def _packed(block: Any) -> Any:
    kind = getattr(block, "block_type", None)
    if not isinstance(block, BaseModel) or kind not in _CLASSES:
        raise UnstorableError(f"{type(block).__name__} is no kind of block known")
    fields = {name: _field(kind, name, value) for name, value in vars(block).items()}
    return fields | {"block_type": kind}


def _field(kind: str, name: str, value: Any) -> Any:
    if _STREAMED.get(kind) == name and isinstance(value, IOBase):
        return encode(_read(kind, name, value))
    if isinstance(value, BaseModel):
        return _packed(value) if hasattr(value, "block_type") else encode(value)
    if kind == "citable" and name == "content":
        return [_packed(inner) for inner in value]
    return encode(value)


def _read(kind: str, name: str, stream: Any) -> bytes | None:
    """Return what a stream holds, as a block that was given it as bytes holds it; the stream stays where it is."""
    try:
        place = stream.tell()
        stream.seek(0)
        content = stream.read()
        stream.seek(place)
    except (OSError, ValueError) as error:
        raise UnstorableError(f"its stream cannot be read: {error}") from error
    held: bytes | None = vars(_CLASSES[kind](**{name: content}))[name]
    return held


def unpack(text: str, blocks: Sequence[Any], mark: Sequence[int]) -> list[Any]:
    """Return the blocks that `pack` was given, for a text that is the same.

    What has been put before the text since, such as grounding, becomes a block of its own at the front. For another
    text, that text is the only text block, before the others.
    """
    before = len(text) - mark[0]
    if before < 0 or text_mark(text[before:]) != list(mark):
        others = [block for block in blocks if "$text" not in block and block["block_type"] != "text"]
        return [bare_text(text), *(_block(block) for block in others)]
    added = [bare_text(text[:before])] if before else []
    return added + [_slice(text, block["$text"]) if "$text" in block else _block(block) for block in blocks]


def _slice(text: str, place: Sequence[int]) -> TextBlock:
    start, end = (len(text) + number for number in place)
    return bare_text(text[max(start, 0) : end])


def _block(data: Any) -> Any:
    """Return a block as it was: a constructor would look for its file, and read its bytes anew."""
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
        return types.CacheControl.model_construct(**decode(value))
    return decode(value)
