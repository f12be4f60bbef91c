"""What recall reads from a text: its terms, near-duplicate key, standing instructions, and whom it is about."""

import hashlib
import re
import threading
import unicodedata
from collections import Counter
from functools import cache, lru_cache

UNSPACED = r"\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
"""Thai, Lao, Burmese, Khmer, Japanese and Chinese, for the brackets of a regular expression."""


# Function words and question words: they do not tell what a text is about.
_STOP_WORDS = """
a about above after again against all also am an and any are aren as at be because been before being below between
both but by can cannot could couldn did didn do does doesn doing don down during each else ever few for from further
get got had hadn has hasn have haven having he her here hers herself him himself his how i if in into is isn it its
itself just know let ll me more most mustn my myself no nor not of off ok okay on once only or other our ours
ourselves out over own please re same shall shan she should shouldn so some such tell than thank thanks that the their
theirs them themselves then there these they this those through to too under until up us ve very was wasn we were
weren what when where which while who whom whose why will with won would wouldn yes you your yours yourself yourselves
s t d m
"""
STOP_WORDS = frozenset(_STOP_WORDS.split())

_WORD = re.compile(r"[^\W_]+")
# Scripts without spaces are indexed by pairs of characters, as in Lucene's CJK analyser.
_IS_UNSPACED = re.compile(f"[{UNSPACED}]")
_RUN = re.compile(rf"[{UNSPACED}]+|[^{UNSPACED}]+")
# Accents over Latin, Greek and Cyrillic letters, and the optional vowel signs of Hebrew and Arabic. Other combining
# marks carry meaning, as in Thai and Hindi.
_ACCENTS = re.compile(
    r"(?<=[a-z\u03b1-\u03c9\u0430-\u044f])[\u0300-\u036f]+|[\u0591-\u05bd\u05bf\u05c1\u05c2\u05c4\u05c5\u05c7\u0640\u064b-\u0652\u0670]"
)
_BETWEEN_WORDS = re.compile(r"[^\w\s]|_")

KNOWN_CHARACTERS = 4_096
"""Characters cached for near-duplicate keys: more than a conversation uses, fewer than Unicode has."""


class _PerThread(threading.local):
    """Holds a Snowball stemmer per thread, because stemmers are not thread-safe."""

    def __init__(self) -> None:
        import Stemmer

        self.english = Stemmer.Stemmer("english")


@cache
def _stemmers() -> _PerThread:
    return _PerThread()


@lru_cache(maxsize=65_536)
def _stem(word: str) -> str:
    return str(_stemmers().english.stemWord(word))


@cache
def _marks() -> tuple[frozenset[str], re.Pattern[str]]:
    """Return all combining marks, and a pattern for words that contain them: to `re` alone, a mark ends a word."""
    marks = frozenset(c for c in map(chr, range(0x20000)) if unicodedata.category(c)[0] == "M")
    return marks, re.compile(rf"[^\W_]+(?:[{''.join(sorted(marks))}]+[^\W_]*)*")


def _words(folded: str) -> list[str]:
    if folded.isascii():
        return _WORD.findall(folded)
    marks, word = _marks()
    return (_WORD if marks.isdisjoint(folded) else word).findall(folded)


def terms(text: str) -> Counter[str]:
    """Return the terms of a text with their frequencies.

    Words are folded to lower case without accents, stop words are left out, and English words are reduced to their
    stems (Snowball). Runs of scripts without spaces are split into pairs of adjacent characters.
    """
    counts: Counter[str] = Counter()
    for word in _words(_fold(text)):
        for run in (word,) if word.isascii() else _RUN.findall(word):
            if not run.isascii():
                counts.update(_pairs(run) if _IS_UNSPACED.match(run) else (run,))
            elif run not in STOP_WORDS:
                counts[_stem(run)] += 1
    return counts


def _fold(text: str) -> str:
    if text.isascii():
        return text.lower()
    return unicodedata.normalize("NFC", _ACCENTS.sub("", unicodedata.normalize("NFKD", text).casefold()))


def _pairs(run: str) -> list[str]:
    return [run[i : i + 2] for i in range(len(run) - 1)] or [run]


def near_duplicate_key(text: str) -> str:
    """Return a key that is equal for texts that differ only in case, accents, punctuation and white space."""
    return " ".join(_fold(text).translate(_BETWEEN).split()) or text.strip()


class _Between(dict[int, int | str]):
    """Maps code points to their replacements in a near-duplicate key.

    Between words, only symbols count, and marks, which belong to the letter before.
    """

    def __missing__(self, code: int) -> int | str:
        found = self._find(chr(code))
        if len(self) < KNOWN_CHARACTERS:
            self[code] = found
        return found

    def _find(self, character: str) -> int | str:
        kind = unicodedata.category(character)
        if not _BETWEEN_WORDS.match(character) or kind[0] == "M":
            return ord(character)
        return f" {character} " if kind in ("Sm", "Sc", "So") else " "


_BETWEEN = _Between()


STATEMENT_WORDS = 3
"""Texts with fewer words never count as repeated: the second "yes" answers another question."""


def statement_code(text: str) -> int:
    """Return a 64-bit hash of the near-duplicate key. The lowest bit tells whether the text `is_statement`."""
    key = near_duplicate_key(text)
    digest = hashlib.blake2b(key.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    bits = int.from_bytes(digest, "little", signed=True)
    # Scripts without spaces have no words to count, so their texts always count as long.
    long = not key.isascii() or key.count(" ") >= STATEMENT_WORDS - 1
    return bits | 1 if long else bits & ~1


def is_statement(code: int) -> bool:
    """Return whether the text of a code is long enough that a second one like it says nothing new."""
    return bool(code & 1)


LONGEST_INSTRUCTION = 600
"""Characters of a standing instruction at most: longer texts use such words in passing."""

_STANDING = re.compile(
    r"\b(?:always|never|from now on|whenever|every time|each time)\b.{0,80}\b(?:when|if|whenever|i ask|me)\b"
    r"|\b(?:when(?:ever)? i (?:ask|say|mention|request)|if i (?:ask|say))\b",
    re.IGNORECASE,
)


def is_standing_instruction(text: str) -> bool:
    """Return whether a text sounds like "always show the units when I ask for a measure"."""
    return len(text) < LONGEST_INSTRUCTION and _STANDING.search(text) is not None


LOOKED_AT = 600
"""Characters that `speaker_focus` reads. A longer text is about more than one thing."""

_SELF = re.compile(r"\b(?:i|me|my|mine|myself|we|us|our|ours|ourselves)\b", re.IGNORECASE)
_HEARER = re.compile(r"\b(?:you|your|yours|yourself|yourselves)\b", re.IGNORECASE)


def speaker_focus(text: str) -> int:
    """Return whom a text is about: 1 the speaker ("I went there"), -1 the listener ("Did you like it?"), 0 neither.

    A text about both is about the speaker.
    """
    begins = text[:LOOKED_AT]
    if _SELF.search(begins):
        return 1
    return -1 if _HEARER.search(begins) else 0
