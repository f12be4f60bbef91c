"""What recall reads from a text: its terms, near-duplicate key, and whom it is about."""

import hashlib
import re
import threading
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import cache, lru_cache

from shared_core.languages.detection import detect, own_words, script
from shared_core.languages.language import ENGLISH, Language, fold, matcher

UNSPACED = r"\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
"""Thai, Lao, Burmese, Khmer, Japanese and Chinese, for the brackets of a regular expression."""


_WORD = re.compile(r"[^\W_]+")
# Scripts without spaces are indexed by pairs of characters, as in Lucene's CJK analyser.
_IS_UNSPACED = re.compile(f"[{UNSPACED}]")
_RUN = re.compile(rf"[{UNSPACED}]+|[^{UNSPACED}]+")
_BETWEEN_WORDS = re.compile(r"[^\w\s]|_")

KNOWN_CHARACTERS = 4_096
"""Characters cached for near-duplicate keys: more than a conversation uses, fewer than Unicode has."""


class _PerThread(threading.local):
    """Holds the Snowball stemmers of a thread, because stemmers are not thread-safe."""

    def __init__(self) -> None:
        self.by_name: dict[str, Callable[[str], str]] = {}

    def stem(self, name: str, word: str) -> str:
        """Return the stem of a word."""
        if name not in self.by_name:
            import Stemmer

            self.by_name[name] = Stemmer.Stemmer(name).stemWord
        return self.by_name[name](word)


@cache
def _stemmers() -> _PerThread:
    return _PerThread()


@cache
def _stemming(language: Language) -> Callable[[str], str]:
    """Return the function that stems a folded word of a language."""
    endings = [(re.compile(pattern), replacement) for pattern, replacement in language.endings]

    @lru_cache(maxsize=65_536)
    def stem(word: str) -> str:
        for pattern, replacement in endings:
            word = pattern.sub(replacement, word)
        stemmed = _stemmers().stem(language.stemmer, word)
        return fold(stemmed) if endings else stemmed

    return stem


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


def word_spans(text: str) -> list[tuple[int, str]]:
    """Return the words of a text as they are written, each with its offset."""
    word = _WORD if text.isascii() else _marks()[1]
    return [(match.start(), match.group()) for match in word.finditer(text)]


def terms(text: str, language: Language = ENGLISH) -> Counter[str]:
    """Return the terms of a text with their frequencies.

    Words are folded to lower case without accents, stop words are left out, and words are reduced to their stems
    (Snowball), in English only those of plain letters. Runs of scripts without spaces are split into pairs of adjacent
    characters.
    """
    return _count(_words(fold(text)), language)


def read_terms(text: str) -> tuple[Counter[str], Language]:
    """Return the terms of a text in the language it is in, and that language; English if it cannot be told."""
    words = _words(folded := fold(text))
    language = ENGLISH if _is_english(folded, words) else detect(_small_words(text))
    return _count(words, language), language


def language_of(text: str, expected: Sequence[Language] = (ENGLISH,)) -> Language:
    """Return the language of a text.

    Args:
        text: the text.
        expected: the languages it may well be in, the likeliest first: which a text in none of them is taken for.
    """
    if all(language is ENGLISH for language in expected) and _is_english(folded := fold(text), _words(folded)):
        return ENGLISH
    return detect(_small_words(text), expected)


FIRST_WORDS = 150
"""Words that tell whether a text may be in another language than English, about as many as `LOOKED_AT` characters."""


def _is_english(folded: str, words: Sequence[str]) -> bool:
    """Return whether no word and no letter speaks for another language: far faster than `detect` for most texts."""
    if not own_words().isdisjoint(words[:FIRST_WORDS]):
        return False
    return folded.isascii() or not script().search(folded, 0, LOOKED_AT)


def _small_words(text: str) -> list[str]:
    """Return the first words of a text, folded, without those that begin with a capital, which may be names."""
    begins = text[:LOOKED_AT]
    words = _words(unicodedata.normalize("NFC", begins.lower() if begins.isupper() else begins))
    return [fold(word) for number, word in enumerate(words) if not number or not word[0].isupper()]


def question_terms(
    text: str, language: Language, others: Iterable[Language], *, of_known: bool = False
) -> dict[str, tuple[str, ...]]:
    """Return the terms of a question, each with other terms that messages may hold instead.

    These are the forms of its word in other languages, and words of the same sense.

    Args:
        text: the question.
        language: its language, which says what its stop words are.
        others: the languages of the messages.
        of_known: whether it is about those who talk, a participant or a thing that is taken to be known: "I work" then
            holds the word of "my job", and "we're getting married" that of "the wedding".
    """
    forms: dict[str, dict[str, None]] = {}
    answers = _answers(language) if of_known else {}
    for pattern, word in language.asked_as if of_known else ():
        text = matcher(pattern).sub(word, text)
    others = [other for other in others if other is not language]
    for word in _words(fold(text)):
        own = _count([word], language)
        for term in own:
            same = forms.setdefault(term, {})
            if len(own) == 1:
                same.update(dict.fromkeys(answers.get(term, ())))
                same.update(dict.fromkeys(form for other in others for form in _count([word], other)))
                same.update(dict.fromkeys(_relatives(language).get(term, ())))
    taken = set(forms)
    return {term: tuple(form for form in same if form not in taken) for term, same in forms.items()}


@cache
def _answers(language: Language) -> dict[str, tuple[str, ...]]:
    """Return the terms of what people say of themselves, by the terms of questions for it."""
    found: dict[str, dict[str, None]] = {}
    for line in language.answered_by.splitlines():
        asked, _, said = line.partition(":")
        for term in terms(asked, language):
            found.setdefault(term, {}).update(dict.fromkeys(other for other in terms(said, language) if other != term))
    return {term: tuple(others) for term, others in found.items()}


def _count(words: Iterable[str], language: Language) -> Counter[str]:
    counts: Counter[str] = Counter()
    stops, stem, english = language.stops, _stemming(language), language is ENGLISH
    for word in words:
        for run in (word,) if word.isascii() else _RUN.findall(word):
            if not run.isascii() and (english or _IS_UNSPACED.match(run)):
                counts.update(_pairs(run) if _IS_UNSPACED.match(run) else (run,))
            elif run not in stops:
                counts[stem(run)] += 1
    return counts


def _pairs(run: str) -> list[str]:
    return [run[i : i + 2] for i in range(len(run) - 1)] or [run]


@cache
def _relatives(language: Language) -> dict[str, tuple[str, ...]]:
    """Return the terms of words that have relatives, with those of these."""
    groups = [tuple(terms(group, language)) for group in language.relatives.split(",")]
    return {term: tuple(other for other in group if other != term) for group in groups for term in group}


def near_duplicate_key(text: str) -> str:
    """Return a key that is equal for texts that differ only in case, accents, punctuation and white space."""
    return " ".join(fold(text).translate(_BETWEEN).split()) or text.strip()


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


LOOKED_AT = 600
"""Characters that `speaker_focus` and `language_of` read. A longer text is about more than one thing."""


def speaker_focus(text: str, language: Language = ENGLISH) -> int:
    """Return whom a text is about: 1 the speaker ("I went there"), -1 the listener ("Did you like it?"), 0 neither.

    A text about both is about the speaker.
    """
    begins = text[:LOOKED_AT]
    if language.speaks_of_speaker(begins):
        return 1
    return -1 if language.speaks_to_hearer(begins) else 0
