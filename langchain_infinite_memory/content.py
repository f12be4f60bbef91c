"""The content of a message: one text, and the blocks around it, in which no text is stored twice."""

import base64
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from langchain_core.documents import Document

from shared_core.doors.interop.content import references, text_mark, text_slice, text_tokens, unpack_blocks
from shared_core.doors.interop.values import Encode, UnstorableError, ValueCodec
from shared_core.formats.parts import AUDIO_TOKENS, FILE_TOKENS, IMAGE_TOKENS, LOW_IMAGE_TOKENS, VIDEO_TOKENS


def _encode_document(document: Document, encode: Encode) -> Any:
    fields = {"id": document.id, "metadata": document.metadata, "page_content": document.page_content}
    return {"$document": {name: encode(value) for name, value in fields.items() if value}}


CODEC = ValueCodec(
    [(bytes, lambda value, _: {"$bytes": base64.b64encode(value).decode()}), (Document, _encode_document)],
    {"$document": lambda fields: Document(**{"page_content": "", **fields})},
)
"""Encodes the values of message fields as JSON data: besides what every `ValueCodec` does, bytes and documents."""

Blocks = list[str | dict[Any, Any]]

_TEXT_TYPES = (None, "text", "input_text", "output_text")


@dataclass(frozen=True, slots=True)
class Content:
    """The parts of a message's content.

    Attributes:
        text: all text in it.
        blocks: the blocks as JSON data, in which each text is a reference into `text`; None if the content is a str.
        mark: the `text_mark` of `text`.
        lost: descriptions of what JSON cannot express and is left out.
    """

    text: str
    blocks: list[Any] | None = None
    mark: Sequence[int] = ()
    lost: tuple[str, ...] = ()


def pack(content: str | Sequence[Any] | None, separator: str) -> Content:
    """Take content apart; `separator` is put between the texts of its blocks."""
    if content is None or isinstance(content, str):
        return Content(str(content or ""))
    texts = [_text_of(block) for block in content]
    blocks: list[Any] = []
    lost: list[str] = []
    for index, (block, reference) in enumerate(zip(content, references(texts, separator), strict=True)):
        try:
            blocks.append(_packed(block, reference))
        except UnstorableError as error:
            lost.append(f"content[{index}] ({error})")
            blocks += [] if reference is None else [reference]
    whole = separator.join(text for text in texts if text is not None)
    return Content(whole, blocks, text_mark(whole), tuple(lost))


def unpack(text: str, blocks: Sequence[Any], mark: Sequence[int]) -> Blocks:
    """Return the blocks that `pack` was given; for a text that has changed since see `unpack_blocks`."""

    def plain(block: Any) -> Any:
        return CODEC.decode(block, lambda _, reference: text_slice(text, reference))

    return unpack_blocks(
        text, blocks, mark, block=plain,
        text_block=lambda said: {"type": "text", "text": said},
        is_text=lambda block: _text_of(plain(block)) is not None,
    )  # fmt: skip


def blocks_tokens(blocks: Sequence[Any]) -> int:
    """Return the tokens of the packed blocks that are not text."""
    return sum(block_tokens(block) for block in blocks if isinstance(block, Mapping) and not _is_text(block))


def _text_of(block: Any) -> str | None:
    if isinstance(block, str):
        return block
    if isinstance(block, Mapping) and block.get("type") in _TEXT_TYPES and isinstance(block.get("text"), str):
        return str(block["text"]) if all(isinstance(key, str) for key in block) else None
    return None


def _is_text(block: Mapping[str, Any]) -> bool:
    return "$text" in block or ("text" in block and block.get("type") in _TEXT_TYPES)


def _packed(block: Any, reference: Any) -> Any:
    """Return a block as JSON data, with the reference in place of its text."""
    if reference is None:
        return CODEC.encode(block)
    if isinstance(block, str):
        return reference
    return {**CODEC.encode({**block, "text": ""}), "text": reference}


# What a block costs

_KINDS = {
    **dict.fromkeys(("image", "image_url", "input_image"), "image"),
    **dict.fromkeys(("audio", "input_audio"), "audio"),
    **dict.fromkeys(("video", "video_url"), "video"),
    **dict.fromkeys(("file", "input_file", "document", "media"), "file"),
    # These repeat `AIMessage.tool_calls`, which are counted there.
    **dict.fromkeys(("tool_use", "tool_call", "function_call", "invalid_tool_call", "input_json_delta"), "call"),
}
_FIGURES = {"image": IMAGE_TOKENS, "audio": AUDIO_TOKENS, "video": VIDEO_TOKENS, "file": FILE_TOKENS, "call": 0}

_OPAQUE = {
    "type", "id", "call_id", "tool_use_id", "index", "status", "mime_type", "media_type",
    "signature", "thought_signature", "encrypted_content", "data", "base64", "file_data", "$bytes",
}  # fmt: skip
"""Keys whose values no model reads as text."""


def block_tokens(block: Mapping[str, Any]) -> int:
    """Return the tokens of a block that is not plain text: a fixed figure, or those of the text in it.

    Reasoning, citations, results of a provider's own tools and unknown blocks are counted by their text. Encoded bytes
    and signatures are not counted.
    """
    kind = _kind(block)
    if kind is None:
        return sum(map(text_tokens, _texts(block)))
    if kind == "file" and (document := _plain_document(block)) is not None:
        return text_tokens(document)
    return LOW_IMAGE_TOKENS if kind == "image" and _in_low_detail(block) else _FIGURES[kind]


def _kind(block: Mapping[str, Any]) -> str | None:
    named = block.get("type")
    if named is None and len(block) == 1:  # {"image": {...}}, as Bedrock has it
        named = next(iter(block))
    kind = _KINDS.get(named) if isinstance(named, str) else None
    mime = block.get("mime_type")
    if kind == "file" and isinstance(mime, str):
        return _KINDS.get(mime.partition("/")[0], kind)
    return kind


def _in_low_detail(block: Mapping[str, Any]) -> bool:
    inner = block.get("image_url")
    return "low" in (block.get("detail"), inner.get("detail") if isinstance(inner, Mapping) else None)


def _plain_document(block: Mapping[str, Any]) -> str | None:
    """Return the text of a document that is sent as text; None for any other."""
    source = block.get("source")
    if isinstance(source, Mapping) and source.get("type") == "text" and isinstance(source.get("data"), str):
        return str(source["data"])
    text = block.get("text")
    return text if isinstance(text, str) else None


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        if not value.startswith("data:"):
            yield value
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            if key not in _OPAQUE:
                yield from _texts(inner)
    elif isinstance(value, list):
        for item in value:
            yield from _texts(item)
