"""Texts as PostgreSQL can hold them: it refuses NUL, and UTF-8 has no form for a lone surrogate."""

import re

from shared_core.stores.row_values import DamagedRow, RowForm

MARK = "\x10"
"""Begins an escape of five characters: the mark, and four hexadecimal digits. No other text has a mark without them."""

_HELD_BACK = re.compile("[\x00\x10\ud800-\udfff]")
_ESCAPED = re.compile(f"{MARK}([0-9a-f]{{4}})")

ADVICE = "a row was changed or lost outside of this package: restore the database from a backup"
"""What to do about damage."""


def text(value: str) -> str:
    """Return a text in which NUL, lone surrogates and the mark itself are escaped.

    Each character is escaped by itself, so a text begins with another exactly if their escaped forms do.
    """
    return _HELD_BACK.sub(lambda found: f"{MARK}{ord(found[0]):04x}", value)


def plain(value: str) -> str:
    """Return the text that was given to `text`."""
    return _ESCAPED.sub(lambda found: chr(int(found[1], 16)), value) if MARK in value else value


def after_all(prefix: str) -> str | None:
    """Return the least text, by code points, that comes after all that begin with a prefix; None if there is none."""
    for end in range(len(prefix), 0, -1):
        last = ord(prefix[end - 1])
        if last < 0x10FFFF:
            return prefix[: end - 1] + chr(0xE000 if last == 0xD7FF else last + 1)
    return None


def damaged(what: str, why: str) -> DamagedRow:
    """Return the error that says what is damaged, and what to do."""
    return DamagedRow(what, why, ADVICE)


FORM = RowForm(text, plain, damaged)
"""How PostgreSQL holds texts, and what is said about damage."""
