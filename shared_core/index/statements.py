"""Numbers that stand for what was said, so that the same thing said again is known without reading it."""

import hashlib

from shared_core.index.terms import near_duplicate_key

__all__ = ["is_statement", "statement_code"]

STATEMENT_WORDS = 3
"""Texts of fewer words are not the same statement said again: the second "yes" answers another question."""


def statement_code(text: str) -> int:
    """Return 64 bits that are the same for texts that differ only in case, accents, punctuation and white space."""
    key = near_duplicate_key(text)
    digest = hashlib.blake2b(key.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    bits = int.from_bytes(digest, "little", signed=True)
    # Scripts without spaces have no words to count.
    long = not key.isascii() or key.count(" ") >= STATEMENT_WORDS - 1
    return bits | 1 if long else bits & ~1


def is_statement(code: int) -> bool:
    """Return whether a text is long enough that a second one like it says nothing new."""
    return bool(code & 1)
