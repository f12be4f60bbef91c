"""Tell which language a text is in, by its function words and its script; pure."""

import hashlib
import re
from collections.abc import Collection, Iterable
from functools import cache

from shared_core.languages.language import ALSO_ENGLISH, ENGLISH, IN_ENGLISH, LANGUAGES, Language

SIGN = 2
"""What a sign counts against 1 for another function word."""

BORROWED = 0.5
"""What a word counts as a word that English does not have if English borrows it."""

ENOUGH = 2
"""What the words that English does not have must count together, or a text is English."""

EXPECTED = 0.5
"""What the language that is expected counts ahead: it wins among equals."""


@cache
def own_words() -> frozenset[str]:
    """Return the function words of all languages but English that tell a text from an English one."""
    others = [language for language in LANGUAGES if language is not ENGLISH]
    own = {word for language in others for word in language.stops | language.sure}
    return frozenset(own - ENGLISH.stops - ALSO_ENGLISH)


@cache
def _weights() -> dict[str, tuple[tuple[Language, int], ...]]:
    """Return what each function word counts, by language."""
    found: dict[str, list[tuple[Language, int]]] = {}
    for language in LANGUAGES:
        for word in language.stops | language.sure:
            sure = word in language.sure and word in own_words() - IN_ENGLISH
            found.setdefault(word, []).append((language, SIGN if sure else 1))
    return {word: tuple(counts) for word, counts in found.items()}


@cache
def script() -> re.Pattern[str]:
    """Return a pattern for the letters that tell a language by themselves."""
    return re.compile(f"[{''.join(language.letters for language in LANGUAGES)}]")


@cache
def _written_in() -> tuple[tuple[Language, re.Pattern[str]], ...]:
    return tuple((language, re.compile(f"[{language.letters}]")) for language in LANGUAGES if language.letters)


def detect(words: Collection[str], expected: Iterable[Language] = (ENGLISH,)) -> Language:
    """Return the language of a text.

    Args:
        words: its words without capitals and accents.
        expected: the languages it may well be in, the likeliest first. A text of few words is in one of them.
    """
    expected = tuple(expected)
    scores: dict[Language, float] = dict.fromkeys(LANGUAGES, 0)
    own = dict(scores)
    for word in dict.fromkeys(words):
        for language, weight in _weights().get(word, ()):
            scores[language] += weight
            if word in own_words():
                own[language] += BORROWED if word in IN_ENGLISH else weight
    for language, letters in _written_in():
        written = sum(letters.search(word) is not None for word in words)
        if written * 2 > len(words):
            scores[language] += SIGN
            own[language] += SIGN
    scores[expected[0]] += EXPECTED
    possible = [language for language in LANGUAGES if language in (ENGLISH, *expected) or own[language] >= ENOUGH]
    return max(possible, key=scores.__getitem__)  # of equal ones the first


@cache
def digest() -> str:
    """Return a hash of all that decides which terms a text has, so that an index made by other rules is made again."""
    rules = [
        (
            language.code, language.stemmer, sorted(language.stops), sorted(language.sure), language.letters,
            language.endings, language.speaker, language.hearer, language.instructs, language.introduces,
        )
        for language in LANGUAGES
    ]  # fmt: skip
    return hashlib.blake2b(repr((rules, sorted(ALSO_ENGLISH), sorted(IN_ENGLISH))).encode(), digest_size=8).hexdigest()
