"""The content of a message as one text and the blocks around it, without keeping a text twice."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from zlib import crc32

from langchain_infinite_memory.media import block_tokens
from langchain_infinite_memory.values import UnstorableError, decode, encode

__all__ = ["Content", "blocks_tokens", "pack", "unpack"]

_TEXT_TYPES = {"text", "input_text", "output_text"}

Blocks = list[str | dict[Any, Any]]


@dataclass(frozen=True, slots=True)
class Content:
    """Content, taken apart.

    Attributes:
        text: what is said.
        blocks: the blocks as JSON data, each text in them a reference into `text`; None for content that is a str.
        mark: length and checksum of `text`.
        lost: what has no JSON form and is left out.
    """

    text: str
    blocks: list[Any] | None = None
    mark: tuple[int, int] = (0, 0)
    lost: tuple[str, ...] = ()


def pack(content: str | Sequence[Any] | None, separator: str) -> Content:
    """Take content apart; `separator` stands between the texts of its blocks."""
    if content is None or isinstance(content, str):
        return Content(str(content or ""))
    texts = [text for text in map(_text_of, content) if text is not None]
    whole = separator.join(texts)
    blocks: list[Any] = []
    lost: list[str] = []
    start = -len(whole)
    for place, block in enumerate(content):
        text = _text_of(block)
        try:
            blocks.append(_packed(block, text, start))
        except UnstorableError as error:
            lost.append(f"content[{place}] ({error})")
            blocks += [] if text is None else [_packed(text, text, start)]
        if text is not None:
            start += len(text) + len(separator)
    return Content(whole, blocks, _mark(whole), tuple(lost))


def unpack(text: str, blocks: Sequence[Any], mark: Sequence[int]) -> Blocks:
    """Return the blocks that `pack` was given, for a text that is the same.

    What has been put before the text since, such as recalled messages, becomes a block of its own at the front. For
    another text, that text is the only text block, before the others.
    """
    before = len(text) - mark[0]
    if before < 0 or _mark(text[before:]) != tuple(mark):
        others = [block for block in blocks if _text_of(_plain(block, text)) is None]
        return [{"type": "text", "text": text}, *(_plain(block, text) for block in others)]
    added: Blocks = [{"type": "text", "text": text[:before]}] if before else []
    return added + [_plain(block, text) for block in blocks]


def blocks_tokens(blocks: Sequence[Any]) -> int:
    """Return the tokens of those packed blocks that are no text."""
    return sum(block_tokens(block) for block in blocks if isinstance(block, Mapping) and not _is_text(block))


def _text_of(block: Any) -> str | None:
    if isinstance(block, str):
        return block
    if isinstance(block, Mapping) and _named_text(block) and isinstance(block.get("text"), str):
        return str(block["text"])
    return None


def _is_text(block: Mapping[str, Any]) -> bool:
    return "$text" in block or ("text" in block and _named_text(block))


def _named_text(block: Mapping[str, Any]) -> bool:
    named = block.get("type")
    return named is None or (isinstance(named, str) and named in _TEXT_TYPES)


def _packed(block: Any, text: str | None, start: int) -> Any:
    """Return a block with its text as a slice counted from the end, so that text put before it changes nothing."""
    if text is None:
        return encode(block)
    reference = {"$text": [start, start + len(text)]}
    if isinstance(block, str):
        return reference
    packed = encode({**block, "text": ""})
    if "text" not in packed:  # a key is no str, so that it became a list of pairs
        return {"$map": [[key, reference if key == "text" else value] for key, value in packed["$map"]]}
    return {**packed, "text": reference}


def _plain(block: Any, text: str) -> Any:
    def lookup(mark: str, place: Any) -> str:
        start, end = (len(text) + number for number in place)
        return text[max(start, 0) : end]

    return decode(block, lookup)


def _mark(text: str) -> tuple[int, int]:
    return len(text), crc32(text.encode("utf-8", "surrogatepass"))
