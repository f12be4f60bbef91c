"""Long texts in pieces that a model can read whole; pure."""

from collections.abc import Sequence
from typing import Any

MOST_PIECES = 64
"""Pieces of one text that are embedded: a text of 2 MB has 2,300 of MiniLM's length. 64 hold 56,000 characters."""


def cut(text: str, starts: Sequence[int], ends: Sequence[int], limit: int) -> list[str]:
    """Return `text` in overlapping pieces of at most `limit` tokens, given the start and end of each token."""
    if len(starts) <= limit:
        return [text]
    pieces, first = [], 0
    while first + limit < len(starts):
        stop = _boundary(text, starts, ends, first + limit // 2, first + limit)
        pieces.append(text[starts[first] : ends[stop - 1]])
        first = _boundary(text, starts, ends, stop - limit // 4 - 1, stop - limit // 8)
    return [*pieces, text[starts[first] :]]


def pieces(text: str, tokenizer: Any, limit: int) -> list[str]:
    """Return `text` in pieces of at most `limit` tokens.

    The tokenizer is a `tokenizers.Tokenizer` that neither truncates nor pads.
    """
    spans = tokenizer.encode(encodable(text), add_special_tokens=False).offsets
    if len(spans) <= limit:
        return [text]
    starts, ends = [start for start, _ in spans], [end for _, end in spans]
    for share in (1, 2, 4):  # a piece on its own can have more tokens than it has inside the text
        found = cut(text, starts, ends, max(1, limit // share))
        again = (tokenizer.encode(encodable(piece), add_special_tokens=False) for piece in found)
        if all(len(tokens) <= limit for tokens in again):
            break
    return found


def _boundary(text: str, starts: Sequence[int], ends: Sequence[int], after: int, last: int) -> int:
    """Return the last token in (after, last] that begins a word, or else a character; `last` if there is none."""
    tokens = range(last, after, -1)
    words = (i for i in tokens if any(map(str.isspace, text[max(starts[i] - 1, 0) : starts[i] + 1])))
    characters = (i for i in tokens if starts[i] >= ends[i - 1])
    return next(words, next(characters, last))


def evenly(pieces: list[str], most: int = MOST_PIECES) -> list[str]:
    """Return at most so many of a text's pieces, the first and the last among them, evenly chosen."""
    if len(pieces) <= most:
        return pieces
    return [pieces[number * (len(pieces) - 1) // (most - 1)] for number in range(most)]


def encodable(text: str) -> str:
    """Return `text` with lone surrogates, which tokenizers reject, as question marks. The length stays the same."""
    return text.encode("utf-8", "replace").decode("utf-8")
