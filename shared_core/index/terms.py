"""The words of a text as lexical search sees them: lower case, no stop words, stemmed."""

import re
import threading
import unicodedata
from collections import Counter
from functools import cache, lru_cache

__all__ = ["near_duplicate_key", "terms"]

# Function words, and the words a question is made of: they say nothing about what it is about.
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
# Scripts that are written without spaces are indexed by pairs of characters, as Lucene's CJK analyser does.
_UNSPACED = re.compile(
    r"[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff]+"
)


class _PerThread(threading.local):
    """Holds one Snowball stemmer a thread: its object must not be shared between threads."""

    def __init__(self) -> None:
        import Stemmer

        self.english = Stemmer.Stemmer("english")


@cache
def _stemmers() -> _PerThread:
    return _PerThread()


@lru_cache(maxsize=65_536)
def _stem(word: str) -> str:
    return str(_stemmers().english.stemWord(word))


def terms(text: str) -> Counter[str]:
    """Return the terms of a text with how often they occur.

    Words are folded to lower case without accents, stop words are left out, and English stems stand for their forms
    (Snowball). Runs of scripts without spaces count as pairs of neighbouring characters.
    """
    counts: Counter[str] = Counter()
    for word in _WORD.findall(_fold(text)):
        if word.isascii():
            if word not in STOP_WORDS:
                counts[_stem(word)] += 1
        elif _UNSPACED.search(word):
            counts.update(_pairs(word))
        else:
            counts[word] += 1
    return counts


def _fold(text: str) -> str:
    lowered = text.lower()
    if lowered.isascii():
        return lowered
    decomposed = unicodedata.normalize("NFKD", lowered)
    # Combining marks carry meaning in Thai or Arabic; only accents over Latin, Greek and Cyrillic letters go.
    return unicodedata.normalize("NFC", re.sub(r"(?<=[a-z\u03b1-\u03c9\u0430-\u044f])[\u0300-\u036f]+", "", decomposed))


def _pairs(word: str) -> list[str]:
    found: list[str] = []
    last = 0
    for match in _UNSPACED.finditer(word):
        found += [word[last : match.start()]] if match.start() > last else []
        run = match.group()
        found += [run[i : i + 2] for i in range(len(run) - 1)] or [run]
        last = match.end()
    return found + ([word[last:]] if last < len(word) else [])


@cache
def _not_words() -> re.Pattern[str]:
    return re.compile(r"[\W_]+")


def near_duplicate_key(text: str) -> str:
    """Return what two texts share that differ only in case, accents, punctuation and white space."""
    return _not_words().sub(" ", _fold(text)).strip()
