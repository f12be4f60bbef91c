"""What a question asks for: its terms, the participants and dates it names, and how it goes on with the talk; pure."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cache, lru_cache, partial
from math import sqrt

import numpy as np
import numpy.typing as npt

from shared_core.index.text import is_statement, language_of, question_terms, read_terms, statement_code, terms
from shared_core.languages.language import ENGLISH, Language, matcher, unaccented
from shared_core.plugins.base import Vectors

EARLIEST, LATEST = (moment.replace(microsecond=0, tzinfo=UTC).timestamp() for moment in (datetime.min, datetime.max))
"""The first and last second that `datetime` can represent, in seconds since 1970."""


SHORTEST_PARTS = 4, 3
"""Letters of the first and the last part of a compound at least, as stems."""

_OF_SELF = re.compile(r"\b(?:i|my|mine|me|we|our|ours)\b", re.IGNORECASE)
"""Matches questions about those who ask."""

_PROPER = re.compile(r"(?<=[\w,;:]\s)[^\W\d_a-z]\w+")
"""Matches capitalised words within a sentence, which are names of people, places and things in most languages."""

NEWEST_MESSAGES = 4
"""A question that points back borrows from this many of the newest messages."""

FADE = 0.5
"""What a message lends, per newer one."""

HEARD = 0.25
"""What a message of the assistant lends against one of a user, who says what the talk is about.

Measured on made-up follow-ups to a tenth of the questions of LoCoMo, BEAM and QMSum, with static vectors: 64, 64 and
22 % of the evidence among the best ten messages instead of 8, 35 and 16. With a half it is 44, 44 and 16.
"""

MOST_TERMS = 8
"""Terms that are borrowed at most."""

FEW = 2
"""A question with a pronoun and more informative terms than this borrows nothing; one without may have half as many."""

_SENTENCE = re.compile(r"[^.!?\n\u3002\uff01\uff1f]+[.!?\n\u3002\uff01\uff1f]?")
_WORD = re.compile(r"\w")


@dataclass(frozen=True, slots=True)
class DatePattern:
    """A date as precisely as a question gives it."""

    month: int
    day: int | None = None
    year: int | None = None

    def match(self, seconds: npt.NDArray[np.datetime64]) -> npt.NDArray[np.float32]:
        """Return for each time 1 if it matches, .5 if it is another day of the same month, 0 otherwise."""
        months = seconds.astype("datetime64[M]")
        numbers = months.astype(np.int64)  # from January 1970 on
        there = numbers % 12 + 1 == self.month
        if self.year is not None:
            there &= numbers // 12 + 1970 == self.year
        matches: npt.NDArray[np.float32] = there.astype(np.float32)
        if self.day is not None:
            days = (seconds.astype("datetime64[D]") - months.astype("datetime64[D]")).astype(np.int64) + 1
            matches[days != self.day] *= 0.5
        return matches


@dataclass(frozen=True, slots=True)
class Query:
    """A parsed question.

    Attributes:
        text: the question as asked.
        terms: the terms that lexical search looks for.
        dense_text: the text to embed, without participants' names: a name is close to all messages of that person.
        speakers: the participants it names.
        dates: the dates it names.
        of_dates: for each of these, its terms, and those without the year.
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
    of_dates: tuple[tuple[frozenset[str], frozenset[str]], ...] = ()

    @property
    def words(self) -> tuple[str, ...]:
        """The terms that are looked for, with those borrowed."""
        return (*self.terms, *(term for term, _ in self.borrowed))

    def forms_of(self, term: str) -> tuple[str, ...]:
        """Return a term and those that count as the same."""
        return (term, *self.forms.get(term, ()))

    def date_matches(self, times: npt.NDArray[np.float64]) -> npt.NDArray[np.float32]:
        """Return how well each time (seconds since 1970, UTC) matches the dates asked for, 0 to 1."""
        # Near either end of the range, a time zone can push a time out of the years of UTC.
        seconds = np.floor(times.clip(EARLIEST, LATEST)).astype("datetime64[s]")
        found = [date.match(seconds) for date in self.dates]
        return np.max(found, axis=0) if found else np.zeros(len(times), dtype=np.float32)


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
    of_us = language.asks_of_us(text)
    # For all questions, it finds no more, and what 20 of general knowledge recall grows by a third.
    of_known = of_us or bool(found) or language.asks_of_known(text)
    read = partial(question_terms, language=language, others=languages, of_known=of_known)
    dates, spoken, rest = _dates(text, dict.fromkeys((language, *languages)))
    said = read(text)
    asked = sorted(said.keys() - _about_talk(language)) or sorted(said)
    capitals = "" if language.nouns else " ".join(_PROPER.findall(text))
    proper = frozenset(terms(capitals, language)) & said.keys()
    informative = set(asked) if of_us else set(asked) - _small_talk(language)
    of_dates = frozenset(informative - read(rest).keys()) if dates else frozenset[str]()
    return Query(
        text, tuple(asked), dense_text, tuple(dict.fromkeys(found)), dates,
        matcher(language.asks_back).search(unaccented(text)) is not None, proper,
        not _about_talk(language).isdisjoint(said), len(informative), language=language,
        forms={term: forms for term, forms in said.items() if forms},
        of_self=not found and _OF_SELF.search(text) is not None, of_us=of_us,
        asks=language.asks(text) or language.requests_something(text),
        of_dates=tuple((of_dates & read(whole).keys(), of_dates & read(short).keys()) for whole, short in spoken),
    )  # fmt: skip


def as_said(
    query: Query, occurs: Callable[[str], bool], *,
    hold: Callable[[frozenset[str]], bool] = lambda terms: False,
) -> Query:  # fmt: skip
    """Return a question in the words of the messages.

    The words of a date are not looked for if no message names it: messages are said on a date, and "3 May" is not
    "number 3". A message may leave out the year. A compound that never occurs is found by the parts that do:
    "Rahmennummer" by "Nummer".

    Args:
        query: the question.
        occurs: whether a message holds a term.
        hold: whether a message holds all of some terms.
    """
    named = frozenset[str]().union(*(next(filter(hold, filter(None, date)), ()) for date in query.of_dates))
    unsaid = frozenset[str]().union(*(whole for whole, _ in query.of_dates)) - named
    left = tuple(term for term in query.terms if term not in unsaid)
    if unsaid and left:
        informative = query.informative - len(unsaid)
        query = replace(query, terms=left, proper=query.proper - unsaid, informative=informative)
    return _with_parts(query, occurs) if query.language.compounds else query


def _with_parts(query: Query, occurs: Callable[[str], bool]) -> Query:
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


def _dates(text: str, languages: Iterable[Language]) -> tuple[tuple[DatePattern, ...], list[tuple[str, str]], str]:
    """Return the dates that a text names, each as it names it and without the year, and the text without them."""
    found: list[DatePattern] = []
    said: list[tuple[str, str]] = []

    def take(match: re.Match[str]) -> str:
        groups = match.groupdict()
        month, day, year = groups["month"], groups.get("day"), groups.get("year")
        number = int(month) if month.isdigit() else language.month_numbers[month.lower()]
        if not 1 <= number <= 12 or not 1 <= int(day or 1) <= 31:
            return match.group()
        found.append(DatePattern(number, int(day) if day else None, int(year) if year else None))
        said.append((match.group(), match.group() if month.isdigit() else f"{day or ''} {month}"))
        return ";"

    # Strict patterns come first and remove what they match, so that looser ones do not match it again.
    text = unaccented(text)
    for language in languages:
        for pattern in language.dates:
            text = pattern.sub(take, text)
    return tuple(found), said, text


def tells(text: str, language: Language = ENGLISH) -> bool:
    """Return whether a text says anything besides what it asks for: "The draft is done. What is next?" does.

    Fewer than three words, such as "locker code", say nothing.

    Of the questions of LoCoMo and BEAM, which are asked from outside the conversation, .1 and 6 % do; of those of
    RealMem, which people ask as they go on with their plans, 99 %.
    """
    sentences = [sentence.strip() for sentence in _SENTENCE.findall(text) if _WORD.search(sentence)]
    return any(
        is_statement(statement_code(sentence))
        and not sentence.endswith(("?", "\uff1f"))
        and not language.requests_something(sentence)
        for sentence in sentences
    )


def points_back(query: Query) -> bool:
    """Return whether a question cannot be understood by itself, as "And how much was it?".

    A pronoun in a question that names somebody or something may stand for that: "When did Ann sell her boat?".
    """
    if not query.language.asks(query.text):
        return False
    names = bool(query.speakers or query.proper)
    adds = query.informative <= FEW // 2 and query.language.adds_to_talk(query.text)
    return adds or (query.informative <= FEW and not names and query.language.points_back(query.text))


def lending(heard: Sequence[bool]) -> list[float]:
    """Return what each of the newest messages lends, given which the assistant said; both oldest first."""
    ages = reversed(range(len(heard)))
    return [FADE**age * (HEARD if by_assistant else 1.0) for age, by_assistant in zip(ages, heard, strict=True)]


def borrowed_terms(newest: Sequence[tuple[str, float]], query: Query) -> tuple[tuple[str, float], ...]:
    """Return terms of the newest messages that join a question, with their weights below 1, heaviest first.

    A message shares its weight among its terms, so that a long reply does not decide what the talk is about. A term
    that several messages hold has the sum of their weights.

    Args:
        newest: the newest messages, each with what it lends.
        query: the question.
    """
    weights: dict[str, float] = {}
    for text, lent in newest:
        said = informative_terms(*read_terms(text)) - set(query.terms)
        for term in said:
            weights[term] = weights.get(term, 0.0) + lent / sqrt(len(said))
    best = sorted(weights, key=lambda term: (-weights[term], term))[:MOST_TERMS]
    return tuple((term, share(query) * (weights[term] / weights[best[0]])) for term in best)


def share(query: Query) -> float:
    """Return how much of the talk joins a question: less, the more informative terms it has of its own."""
    return 0.9 / (1 + query.informative / 2)


def in_conversation(query: Query, newest: Sequence[tuple[str, float]]) -> Query:
    """Return a question as it is meant after the newest messages, each given with what it lends."""
    borrowed = borrowed_terms(newest, query) if newest else ()
    # "that makes sense, thanks a lot" tells nothing new
    tells_news = query.informative > FEW and tells(query.text, query.language)
    return replace(query, goes_on=tells_news, borrowed=borrowed, informative=query.informative + len(borrowed))


def towards(question: Vectors, newest: Vectors, lent: Sequence[float], share: float) -> Vectors:
    """Return a question's vector, turned towards what the talk is about.

    Args:
        question: its unit vector, shape (1, dimension) or (dimension,).
        newest: unit vectors of the newest messages, shape (n, dimension).
        lent: what each of them lends.
        share: how much they count together, against 1 for the question.
    """
    if not len(newest) or share <= 0:
        return question
    topic = np.array(lent, dtype=np.float32) @ newest
    turned = question + np.float32(share) * topic / max(float(np.linalg.norm(topic)), 1e-9)
    unit: Vectors = (turned / max(float(np.linalg.norm(turned)), 1e-9)).astype(np.float32)
    return unit
