"""The words of each language that recall tells apart (`languages.toml`), and letters without capitals and accents."""

import re
import tomllib
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

# Accents over Latin, Greek and Cyrillic letters, and the optional vowel signs of Hebrew and Arabic. Other combining
# marks carry meaning, as in Thai and Hindi.
_ACCENTS = re.compile(
    r"(?<=[a-z\u03b1-\u03c9\u0430-\u044f])[\u0300-\u036f]+|[\u0591-\u05bd\u05bf\u05c1\u05c2\u05c4\u05c5\u05c7\u0640\u064b-\u0652\u0670]"
)
_ACCENTS_OF_ANY_CASE = re.compile(r"(?<=[A-Za-z\u0391-\u03a9\u03b1-\u03c9\u0410-\u042f\u0430-\u044f])[\u0300-\u036f]+")

NEVER = "(?!)"
"""A regular expression that matches nothing."""

LONGEST_INSTRUCTION = 600
"""Characters; longer texts say such words in passing."""


@dataclass(frozen=True, eq=False, repr=False)
class Language:
    """A language: lists of words, separated by spaces, and regular expressions.

    Only the first four are needed. Texts are read without accents, and so are these lists. From `speaker` on, a word
    may be a regular expression without spaces, in which `_` stands for a space.

    Attributes:
        code: its ISO 639-1 code.
        stemmer: the name of its Snowball stemmer.
        stop_words: function words, which are not indexed. They tell which language a text is in.
        signs: further words that tell the language, and those stop words that no other language has: one is enough.
        letters: a range for the brackets of a regular expression, if hardly any other language is written with them.
        endings: patterns and their replacements, in order, which give words back the accents that the stemmer looks at.
        small_talk: words that people fill a talk with. A text of nothing else asks for nothing.
        about_talk: words that ask about the conversation itself. They are searched for if the question has no others.
        relatives: words of one sense without a common stem, separated by commas: a question with one finds the others.
        speaker: words by which people speak of themselves.
        hearer: words by which they speak to somebody.
        of_us: words that make a question one about those who talk, whose small talk then counts.
        definite: the article of what is taken to be known.
        questions: words that begin a question.
        joins: the word for "and" that may come before them.
        adds: words that go on with what was said before.
        points: words that stand for what was named before.
        requests: words that begin a request.
        asks_back: a pattern for questions about what the assistant said.
        instructs: a pattern for what says how to answer from then on, or what somebody prefers.
        introduces: a pattern for what tells the speaker's name.
        months: the names of the twelve months, separated by commas.
        day: a pattern for what may follow the number of a day.
        of: a pattern for what may come between day and month.
        year: a pattern for what comes between month and year.
        near: words that come before a month without a day.
        month_first: whether the day may follow the month, as in "May 7".
        numeric: a pattern for dates in numbers with the groups day, month and year.
        compounds: whether words are joined without a space.
        nouns: whether all nouns begin with a capital, so that it does not mark a name.
        answered_by: a line for each thing that people ask about themselves: words of the question, a colon, and words
            of what they may have said: "job: work employed".
        asked_as: patterns for phrases of such questions, each with the word of `answered_by` that it stands for.
    """

    code: str
    stemmer: str
    stop_words: str
    signs: str
    letters: str = ""
    endings: tuple[tuple[str, str], ...] = ()
    small_talk: str = ""
    about_talk: str = ""
    relatives: str = ""
    speaker: str = ""
    hearer: str = ""
    of_us: str = ""
    definite: str = ""
    questions: str = ""
    joins: str = ""
    adds: str = ""
    points: str = ""
    requests: str = ""
    asks_back: str = NEVER
    instructs: str = NEVER
    introduces: str = NEVER
    months: str = ""
    day: str = ""
    of: str = ""
    year: str = r",?\s+"
    near: str = ""
    month_first: bool = False
    numeric: str = NEVER
    compounds: bool = False
    nouns: bool = False
    answered_by: str = ""
    asked_as: tuple[tuple[str, str], ...] = ()

    def __repr__(self) -> str:
        return f"Language({self.code!r})"

    @cached_property
    def stops(self) -> frozenset[str]:
        """The stop words, folded."""
        return frozenset(fold(self.stop_words).split())

    @cached_property
    def sure(self) -> frozenset[str]:
        """The signs, folded."""
        return frozenset(fold(self.signs).split())

    @cached_property
    def month_numbers(self) -> dict[str, int]:
        """The number of each month by all its names."""
        months = enumerate(fold(self.months).split(","), 1) if self.months else ()
        return {name: number for number, names in months for name in names.split()}

    @cached_property
    def dates(self) -> tuple[re.Pattern[str], ...]:
        """Patterns for dates with the groups day, month and year, strict ones first."""
        iso = r"\b(?P<year>\d{4})-(?P<month>\d{2})(?:-(?P<day>\d{2}))?\b"
        if not self.months:
            return (matcher(iso),)
        names = "|".join(sorted(self.month_numbers, key=len, reverse=True))
        month, year = rf"(?P<month>{names})\b\.?", rf"(?:{self.year}(?P<year>\d{{4}})\b)"
        day = rf"(?P<day>\d{{1,2}}){self.day}"
        # Some months are also verbs, so a month counts only next to a day, a year or a preposition.
        patterns = [iso, self.numeric, rf"\b{day}\s+{self.of}{month}{year}?"]
        patterns += [rf"\b{month}\s+{day}\b(?!\d){year}?"] if self.month_first else []
        patterns += [rf"\b{month}{year}", rf"\b{any_of(self.near)}[\s-]+{month}"]
        return tuple(map(matcher, patterns))

    def speaks_of_speaker(self, text: str) -> bool:
        """Return whether somebody speaks of himself or herself."""
        return matcher(rf"\b{any_of(self.speaker)}\b").search(unaccented(text)) is not None

    def speaks_to_hearer(self, text: str) -> bool:
        """Return whether somebody is spoken to."""
        return matcher(rf"\b{any_of(self.hearer)}\b").search(unaccented(text)) is not None

    def asks_of_us(self, text: str) -> bool:
        """Return whether those who talk are asked about: "Where did we stay?" asks for what was said."""
        words = matcher(rf"\b{any_of(self.of_us)}\b")
        # One pattern for both, word and question mark, takes the square of a long text's length.
        parts = re.split("[.!]", unaccented(text))
        return any(words.search(part[: part.rfind("?")]) for part in parts if "?" in part)

    def asks_of_known(self, text: str) -> bool:
        """Return whether a question ends with a thing that is taken to be known: "When's the wedding?"."""
        return matcher(rf"\b{any_of(self.definite)}\s+\w+\W*$").search(unaccented(text)) is not None

    def asks(self, text: str) -> bool:
        """Return whether something is asked."""
        joins = rf"(?:{self.joins}\s+)?" if self.joins else ""
        return matcher(rf"[?\uff1f]|^\W*{joins}{any_of(self.questions)}\b").search(unaccented(text)) is not None

    def adds_to_talk(self, text: str) -> bool:
        """Return whether a text begins as one that goes on with what was said: "And in May?"."""
        return matcher(rf"^\W*{any_of(self.adds)}\b").search(unaccented(text)) is not None

    def points_back(self, text: str) -> bool:
        """Return whether a text has a word for what was named before."""
        return matcher(rf"\b{any_of(self.points)}\b").search(unaccented(text)) is not None

    def instructs_for_good(self, text: str) -> bool:
        """Return whether a text holds from then on: "Always show units when I ask for a measure.", "I prefer tea"."""
        return len(text) <= LONGEST_INSTRUCTION and matcher(self.instructs).search(unaccented(text)) is not None

    def tells_name(self, text: str) -> bool:
        """Return whether somebody tells his or her name: "Hi, I'm Bob"."""
        return matcher(self.introduces).search(unaccented(text)) is not None

    def requests_something(self, text: str) -> bool:
        """Return whether a text begins as a request."""
        return matcher(rf"\W*{any_of(self.requests)}\b").match(unaccented(text)) is not None


@cache
def any_of(words: str) -> str:
    """Return a pattern for any of the words of a list."""
    return f"(?:{'|'.join(words.split()).replace('_', ' ')})" if words else NEVER


@cache
def matcher(pattern: str) -> re.Pattern[str]:
    """Return a compiled pattern that ignores case; patterns are compiled when they are first needed."""
    return re.compile(unaccented(pattern), re.IGNORECASE)


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


_DATA: dict[str, Any] = tomllib.loads(Path(__file__).with_name("languages.toml").read_text(encoding="utf-8"))


def _languages() -> Iterator[Language]:
    for fields in _DATA["languages"]:
        not_names = any_of(fields.pop("not_names", ""))
        for name, value in fields.items():
            if isinstance(value, list):
                fields[name] = "|".join(value) if isinstance(value[0], str) else tuple(map(tuple, value))
        yield Language(**{**fields, "introduces": fields.get("introduces", NEVER).replace("NOT_NAMES", not_names)})


LANGUAGES = tuple(_languages())
"""All languages, the first of which is English; a text in none of them is read as English."""

ENGLISH = LANGUAGES[0]

ALSO_ENGLISH = frozenset(_DATA["also_english"].split())
"""Function words of other languages that count for these, and need further ones to tell a text from an English one."""

IN_ENGLISH = frozenset(_DATA["in_english"].split())
"""Function words of other languages in what English borrows: only several tell."""
