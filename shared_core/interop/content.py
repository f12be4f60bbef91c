"""Content in blocks: the texts in them are joined and stored once, and the blocks refer to slices of that text.

A reference is `{"$text": [start, end]}`, counted from the end of the text, so that it stays valid when recalled
messages or grounding are put before the text.

Blocks that are not text cost fixed figures, because nothing is opened or fetched. The figures are upper estimates over
the providers: a prompt that is smaller than expected still fits.
"""

from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate
from typing import Any, TypeVar
from zlib import crc32

__all__ = [
    "AUDIO_TOKENS", "FILE_TOKENS", "IMAGE_TOKENS", "LOW_IMAGE_TOKENS", "VIDEO_TOKENS", "references", "text_mark",
    "text_slice", "text_tokens", "unpack_blocks",
]  # fmt: skip

Block = TypeVar("Block")

LOW_IMAGE_TOKENS = 85
"""An image requested in low detail (OpenAI, "Images and vision": 85 tokens whatever its size)."""

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

BYTES_PER_TOKEN = 3
"""UTF-8 bytes. o200k_base needs fewer tokens than that for prose in any script."""


def text_tokens(text: str) -> int:
    """Return an upper estimate of the tokens in a text, for code that does not know which counter will be used."""
    return -(-len(text.encode("utf-8", "surrogatepass")) // BYTES_PER_TOKEN)


def text_mark(text: str) -> list[int]:
    """Return the length and the checksum of a text, by which `unpack_blocks` recognizes it."""
    return [len(text), crc32(text.encode("utf-8", "surrogatepass"))]


def references(texts: Iterable[str | None], separator: str) -> list[dict[str, list[int]] | None]:
    """Return for each text the reference into all texts, joined by `separator`; None where there is no text."""
    given = list(texts)
    steps = [0 if text is None else len(text) + len(separator) for text in given]
    starts = accumulate(steps, initial=len(separator) - sum(steps))
    return [
        None if text is None else {"$text": [start, start + len(text)]}
        for text, start in zip(given, starts, strict=False)
    ]


def text_slice(text: str, reference: Sequence[int]) -> str:
    """Return the part of a text that a reference stands for."""
    start, end = (len(text) + number for number in reference)
    return text[max(start, 0) : end]


def unpack_blocks(
    text: str, blocks: Sequence[Any], mark: Sequence[int], *, text_block: Callable[[str], Block],
    block: Callable[[Any], Block], is_text: Callable[[Any], bool],
) -> list[Block]:  # fmt: skip
    """Return the blocks of a message.

    Text that was put before the stored text becomes a block of its own at the front. If the text is another one, it is
    the only text block, before the others.

    Args:
        text: the content.
        blocks: as stored.
        mark: what `text_mark` returned for the stored text.
        text_block: makes a block of a text.
        block: makes a block of a stored one.
        is_text: whether a stored block holds text.
    """
    before = len(text) - mark[0]
    if before < 0 or text_mark(text[before:]) != list(mark):
        return [text_block(text), *(block(stored) for stored in blocks if not is_text(stored))]
    added = [text_block(text[:before])] if before else []
    return added + [block(stored) for stored in blocks]
