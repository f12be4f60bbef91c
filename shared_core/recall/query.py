"""Parse a question into its terms and the participants and dates it names; pure."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cache, lru_cache

import numpy as np
import numpy.typing as npt

from shared_core.index.text import language_of, question_terms, terms
from shared_core.languages.english import ENGLISH
from shared_core.languages.language import Language, matcher
from shared_core.languages.letters import unaccented
from shared_core.recall.wide import is_wide

EARLIEST, LATEST = (moment.replace(microsecond=0, tzinfo=UTC).timestamp() for moment in (datetime.min, datetime.max))
"""The first and last second that `datetime` can represent, in seconds since 1970."""


SHORTEST_PARTS = 4, 3
"""Letters of the first and the last part of a compound at least, as stems."""

_OF_SELF = re.compile(r"\b(?:i|my|mine|me|we|our|ours)\b", re.IGNORECASE)
"""Matches questions about those who ask."""

_HISTORY = re.compile(
    r"\b(?:used? to|originally|initially|formerly|at (?:the )?(?:first|start|beginning))\b", re.IGNORECASE
)
"""Matches what asks for the time before a change. Nobody says it in a message of that time."""

_PROPER = re.compile(r"(?<=[\w,;:]\s)[^\W\d_a-z]\w+")
"""Matches capitalised words within a sentence, which are names of people, places and things in most languages."""


@dataclass(frozen=True, slots=True)
class DatePattern:
    """A date as precisely as a question gives it."""

    month: int
    day: int | None = None
    year: int | None = None

    def match(self, time: datetime) -> float:
        """Return 1 if the time matches, .5 if it is another day of the same month, 0 otherwise."""
        if time.month != self.month or self.year not in (None, time.year):
            return 0.0
        return 1.0 if self.day in (None, time.day) else 0.5


@dataclass(frozen=True, slots=True)
class Query:
    """A parsed question.

    Attributes:
        text: the question as asked.
        terms: the terms that lexical search looks for.
        dense_text: the text to embed, without participants' names: a name is close to all messages of that person.
        speakers: the participants it names.
        dates: the dates it names.
        asks_back: whether it asks what the assistant said.
        of_self: whether it asks about those who ask, and names no participant.
        of_us: whether it asks about those who talk, whether or not it names a participant.
        asks: whether it asks or requests something.
        proper: the terms of its capitalised words, such as names.
        about_talk: whether it speaks about the conversation itself, as "what did we discuss" does.
        informative: how many of its terms are neither small talk nor about the talk, or all terms of a question about
            those who talk; with those borrowed.
        goes_on: whether it goes on with the conversation, telling something besides asking.
        language: the language it is in, or is taken to be in.
        forms: for some of its terms, the terms that messages in other languages have for the same word.
        borrowed: terms of the newest messages that a question joins which points back to them, with weights below 1.
        wide: whether it is about many messages at once, as "list all books I mentioned" is.
    """

    text: str
    terms: tuple[str, ...]
    dense_text: str
    speakers: tuple[str, ...]
    dates: tuple[DatePattern, ...]
    asks_back: bool = False
    proper: frozenset[str] = frozenset()
    about_talk: bool = False
    informative: int = 0
    goes_on: bool = False
    language: Language = ENGLISH
    forms: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    borrowed: tuple[tuple[str, float], ...] = ()
    of_self: bool = False
    of_us: bool = False
    asks: bool = False
    wide: bool = False

    @property
    def words(self) -> tuple[str, ...]:
        """The terms that are looked for, with those borrowed."""
        return (*self.terms, *(term for term, _ in self.borrowed))

    def forms_of(self, term: str) -> tuple[str, ...]:
        """Return a term and those that count as the same."""
        return (term, *self.forms.get(term, ()))

    def date_matches(self, times: npt.NDArray[np.float64]) -> npt.NDArray[np.float32]:
        """Return how well each time (seconds since 1970, UTC) matches the dates asked for, 0 to 1."""
        best = np.zeros(len(times), dtype=np.float32)
        if self.dates:
            # Near either end of the range, a time zone can push a time out of the years of UTC.
            moments = [datetime.fromtimestamp(time, UTC) for time in times.clip(EARLIEST, LATEST).tolist()]
            best[:] = [max(date.match(moment) for date in self.dates) for moment in moments]
        return best


def parse_query(text: str, names: Sequence[str], languages: Sequence[Language] = (ENGLISH,)) -> Query:
    """Parse a question.

    Args:
        text: the question.
        names: the participants of the conversation.
        languages: the languages of the conversation, first the one that the question is in if it does not show it.
    """
    language = language_of(text, languages)
    called, folded = _called(tuple(names), language), text.casefold()
    found: list[str] = []
    stripped = text
    # Longer names first, so that removing a part does not leave the rest of a name behind. Only names that occur are
    # compiled: in a talk of hundreds of people, a question names few.
    for name in sorted((name for name in called if _may_name(name, folded)), key=len, reverse=True):
        # A name that is also a stop word, such as Will, counts only in its exact spelling.
        flags = 0 if name.lower() in language.stops | ENGLISH.stops else re.IGNORECASE
        spellings = "|".join(map(re.escape, dict.fromkeys((name, unaccented(name)))))
        pattern = re.compile(rf"(?<!\w)(?:{spellings})(?:['\u2019]s?)?(?!\w)", flags)
        stripped, count = pattern.subn(" ", stripped)
        found += called[name] if count else ()
    dense_text = " ".join(stripped.split()) if re.search(r"\w", stripped) else text
    kept = _HISTORY.sub(" ", text)
    said = question_terms(kept, language, languages) or question_terms(text, language, languages)
    asked = sorted(said.keys() - _about_talk(language)) or sorted(said)
    capitals = "" if language.nouns else " ".join(_PROPER.findall(text))
    proper = frozenset(terms(capitals, language)) & said.keys()
    of_us = language.asks_of_us(text)
    informative = set(asked) if of_us else set(asked) - _small_talk(language)
    dates = _dates(text, dict.fromkeys((language, *languages)))
    return Query(
        text, tuple(asked), dense_text, tuple(dict.fromkeys(found)), dates,
        matcher(language.asks_back).search(unaccented(text)) is not None, proper,
        not _about_talk(language).isdisjoint(said), len(informative), language=language,
        forms={term: forms for term, forms in said.items() if forms},
        of_self=not found and _OF_SELF.search(text) is not None, of_us=of_us,
        asks=language.asks(text) or language.requests_something(text), wide=is_wide(text),
    )  # fmt: skip


def with_parts(query: Query, occurs: Callable[[str], bool]) -> Query:
    """Return a question whose compounds that never occur are found by the parts that do: "Rahmennummer" by "Nummer".

    Args:
        query: the question.
        occurs: whether a message holds a term.
    """
    if not query.language.compounds:
        return query
    found = dict(query.forms)
    for term in query.terms:
        if len(term) >= sum(SHORTEST_PARTS) and not any(map(occurs, query.forms_of(term))):
            parts = _parts(term, query.language) - set(query.terms) - _small_talk(query.language)
            found[term] = (*query.forms.get(term, ()), *sorted(part for part in parts if occurs(part)))
    return replace(query, forms=found)


def _parts(term: str, language: Language) -> set[str]:
    """Return the terms at the beginnings and ends of a term, where it may be joined."""
    first, last = SHORTEST_PARTS
    splits = range(first, len(term) - last + 1)
    return {part for at in splits for half in (term[:at], term[at:]) for part in terms(half, language)}


def informative_terms(found: Iterable[str], language: Language = ENGLISH) -> set[str]:
    """Return the terms of a text in a language that are neither small talk nor about the talk."""
    return set(found) - _about_talk(language) - _small_talk(language)


@cache
def _about_talk(language: Language) -> frozenset[str]:
    return frozenset(terms(language.about_talk, language))


@cache
def _small_talk(language: Language) -> frozenset[str]:
    return frozenset(terms(language.small_talk, language))


def _may_name(name: str, folded: str) -> bool:
    """Return whether a name occurs in a text without capitals, with or without its accents."""
    return name.casefold() in folded or (not name.isascii() and unaccented(name).casefold() in folded)


@lru_cache(maxsize=64)
def _called(names: tuple[str, ...], language: Language) -> dict[str, list[str]]:
    """Return the names participants may be called by, whole or in part, each with the participants it may mean."""
    called = {name: [name] for name in names if name.strip()}
    known = set(names)
    for name in names:
        for part in name.split():
            if (
                part not in known
                and part.lower() not in ENGLISH.stops | language.stops
                and re.search(r"[^\W\d_]{2}", part)
            ):
                called.setdefault(part, []).append(name)
    return called


def _dates(text: str, languages: Iterable[Language]) -> tuple[DatePattern, ...]:
    found: list[DatePattern] = []

    def take(match: re.Match[str]) -> str:
        groups = match.groupdict()
        month, day, year = groups["month"], groups.get("day"), groups.get("year")
        number = int(month) if month.isdigit() else language.month_numbers[month.lower()]
        if not 1 <= number <= 12 or not 1 <= int(day or 1) <= 31:
            return match.group()
        found.append(DatePattern(number, int(day) if day else None, int(year) if year else None))
        return ";"

    # Strict patterns come first and remove what they match, so that looser ones do not match it again.
    text = unaccented(text)
    for language in languages:
        for pattern in language.dates:
            text = pattern.sub(take, text)
    return tuple(found)
