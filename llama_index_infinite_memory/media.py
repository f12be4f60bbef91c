"""What a block that is not plain text costs, in tokens: fixed figures, for nothing is opened or fetched."""

from collections.abc import Iterable
from typing import Any

__all__ = ["AUDIO_TOKENS", "FILE_TOKENS", "IMAGE_TOKENS", "LOW_IMAGE_TOKENS", "VIDEO_TOKENS", "blocks_tokens"]

LOW_IMAGE_TOKENS = 85
"""An image asked for in low detail (OpenAI, "Images and vision": 85 tokens whatever its size)."""

IMAGE_TOKENS = 85 + 6 * 170
"""An image: six of OpenAI's tiles (85 tokens and 170 a tile, same page), enough for any picture up to 16:9 in high
detail. Gemini takes 258 a tile of 768 pixels, Anthropic width * height / 750."""

AUDIO_TOKENS = 60 * 32
"""A minute of sound (Gemini, "Understand and count tokens": 32 tokens a second; OpenAI takes 10 a second)."""

VIDEO_TOKENS = 10 * 263
"""Ten seconds of video (Gemini, same page: 263 tokens a second)."""

FILE_TOKENS = 3_000
"""A file: a dense page by Anthropic's figure ("PDF support": 1,500 to 3,000 tokens a page), eleven by Gemini's 258."""

_FIGURES = {
    "image": IMAGE_TOKENS,
    "audio": AUDIO_TOKENS,
    "video": VIDEO_TOKENS,
    "document": FILE_TOKENS,
    "cache": 0,
    "text": 0,  # counted as the message's text
    "tool_call": 0,  # counted as the message's tool calls
}


def blocks_tokens(blocks: Iterable[Any]) -> int:
    """Return the tokens of those blocks that are neither text nor tool calls.

    Thinking counts with the number that its provider gave, else by its text; what is cited by its text, too.
    """
    return sum(map(_block_tokens, blocks))


def _block_tokens(block: Any) -> int:
    kind = getattr(block, "block_type", "")
    if kind == "image" and getattr(block, "detail", None) == "low":
        return LOW_IMAGE_TOKENS
    if kind in _FIGURES:
        return _FIGURES[kind]
    if kind == "thinking":
        return int(block.num_tokens or _text_tokens(block.content or ""))
    if kind == "citable":
        return _text_tokens(block.title + block.source) + sum(map(_inner_tokens, block.content))
    if kind == "citation":
        return _text_tokens(block.title + block.source) + _inner_tokens(block.cited_content)
    return 0


def _inner_tokens(block: Any) -> int:
    return _text_tokens(block.text) if block.block_type == "text" else _block_tokens(block)


def _text_tokens(text: str) -> int:
    """Return a third of the UTF-8 bytes, rounded up: more than o200k_base needs for prose, in any script.

    For text that is counted without knowing the reader's own counter.
    """
    return -(-len(text.encode("utf-8", "surrogatepass")) // 3)
