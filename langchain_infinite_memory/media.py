"""What a part of a message that is not text costs, in tokens: fixed figures, for nothing is opened or fetched."""

from collections.abc import Iterator, Mapping
from typing import Any

__all__ = [
    "AUDIO_TOKENS",
    "FILE_TOKENS",
    "IMAGE_TOKENS",
    "LOW_IMAGE_TOKENS",
    "VIDEO_TOKENS",
    "block_tokens",
    "text_tokens",
]

LOW_IMAGE_TOKENS = 85
"""An image asked for in low detail (OpenAI, "Images and vision": 85 tokens whatever its size)."""

IMAGE_TOKENS = 85 + 6 * 170
"""An image: six of OpenAI's tiles (85 tokens and 170 a tile, same page), enough for any picture up to 16:9 in high
detail. Gemini takes 258 a tile of 768 pixels, that is 1,032 for four; Anthropic width * height / 750, that is 1,106 for
1080 x 768."""

AUDIO_TOKENS = 60 * 32
"""A minute of sound (Gemini, "Understand and count tokens": 32 tokens a second; OpenAI takes 10 a second)."""

VIDEO_TOKENS = 10 * 263
"""Ten seconds of video (Gemini, same page: 263 tokens a second)."""

FILE_TOKENS = 3_000
"""A file: a dense page by Anthropic's figure ("PDF support": 1,500 to 3,000 tokens a page), eleven by Gemini's 258."""

_KINDS = {
    **dict.fromkeys(("image", "image_url", "input_image"), "image"),
    **dict.fromkeys(("audio", "input_audio"), "audio"),
    **dict.fromkeys(("video", "video_url"), "video"),
    **dict.fromkeys(("file", "input_file", "document", "media"), "file"),
    # These repeat what `AIMessage.tool_calls` holds, which is counted there.
    **dict.fromkeys(("tool_use", "tool_call", "function_call", "invalid_tool_call", "input_json_delta"), "call"),
}
_FIGURES = {"image": IMAGE_TOKENS, "audio": AUDIO_TOKENS, "video": VIDEO_TOKENS, "file": FILE_TOKENS, "call": 0}

_OPAQUE = {
    "type", "id", "call_id", "tool_use_id", "index", "status", "mime_type", "media_type",
    "signature", "thought_signature", "encrypted_content", "data", "base64", "file_data", "$bytes",
}  # fmt: skip
"""Keys whose texts no model reads as text."""


def block_tokens(block: Mapping[str, Any]) -> int:
    """Return the tokens of a content block that is not plain text: its figure, or those of the text in it.

    Reasoning, citations, results of a provider's own tools and unknown blocks count by their text. Encoded bytes and
    signatures never count by their length.
    """
    kind = _kind(block)
    if kind is None:
        return sum(map(text_tokens, _texts(block)))
    if kind == "file" and (document := _plain_document(block)) is not None:
        return text_tokens(document)
    return LOW_IMAGE_TOKENS if kind == "image" and _in_low_detail(block) else _FIGURES[kind]


def text_tokens(text: str) -> int:
    """Return a third of the UTF-8 bytes, rounded up: more than o200k_base needs for prose, in any script.

    For text that is counted without knowing the reader's own counter.
    """
    return -(-len(text.encode("utf-8", "surrogatepass")) // 3)


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
    """Return the text of a document that is given as text."""
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
