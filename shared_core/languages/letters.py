"""Letters without capitals and accents."""

import re
import unicodedata

# Accents over Latin, Greek and Cyrillic letters, and the optional vowel signs of Hebrew and Arabic. Other combining
# marks carry meaning, as in Thai and Hindi.
_ACCENTS = re.compile(
    r"(?<=[a-z\u03b1-\u03c9\u0430-\u044f])[\u0300-\u036f]+|[\u0591-\u05bd\u05bf\u05c1\u05c2\u05c4\u05c5\u05c7\u0640\u064b-\u0652\u0670]"
)
_ACCENTS_OF_ANY_CASE = re.compile(r"(?<=[A-Za-z\u0391-\u03a9\u03b1-\u03c9\u0410-\u042f\u0430-\u044f])[\u0300-\u036f]+")


def fold(text: str) -> str:
    """Return a text in lower case without accents, and with ligatures and the like as plain letters."""
    if text.isascii():
        return text.lower()
    return unicodedata.normalize("NFC", _ACCENTS.sub("", unicodedata.normalize("NFKD", text).casefold()))


def unaccented(text: str) -> str:
    """Return a text without accents, all else as it is."""
    if text.isascii():
        return text
    return unicodedata.normalize("NFC", _ACCENTS_OF_ANY_CASE.sub("", unicodedata.normalize("NFD", text)))
