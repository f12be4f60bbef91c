"""Whether two statements are about one thing, as a question asks for it, and may give two values of it; pure."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from functools import lru_cache
from itertools import takewhile

from shared_core.index.text import terms
from shared_core.recall.supersession import english_phrases as english
from shared_core.recall.supersession.statements import (
    CHANGE,
    PREPOSITIONS,
    STOPS,
    TELL_APART,
    Statement,
    figures_of,
    informative,
    informs,
    verb_at,
)

KNOWN_QUESTIONS = 64
"""Questions that are cached: the messages recalled for one are judged several times."""

MOST_ASKED = 8
"""Informative words of a question that asks for one thing. Longer ones tell what somebody wants done."""

LONGEST_FRAME = 18
"""Words of a statement around a figure or name that may be replaced, at most."""

LONGEST_PLAIN = 12
"""The same for values that are plain words, which hardly differ from what else a sentence tells."""

LONGEST_ALONE = 9
"""The same for statements about the speaker that share a single word of the question."""

MOST_REST = (2, 2, 3)
"""Words that two statements do not share, at most, beside figures and names, for each value of `Statement.changes`."""

PART = 4
"""Words of a value, at most."""

ALIKE = 3
"""Words that two sentences share around it, at least."""

_EITHER = re.compile(r"\bor\b", re.IGNORECASE)
"""Matches questions that name several values, such as "am I vegan or vegetarian?"."""

_KIND = re.compile(r"\b(?:what|which|whose|how many|how much)\s+([^\W\d_]+)", re.IGNORECASE)
"""Matches what a question says about the kind of a value: "which colour". Statements seldom say it."""

_SEVERAL = re.compile(
    r"\b(?:what|which)\s+(?:are\b(?! (?:i|we|you|they|he|she|it)\b)|(?:kind|type|sort)s? of\b"
    r"|(?!are\b|is\b|was\b|does\b|has\b)[^\W\d_]+(?<![su])s\b)",
    re.IGNORECASE,
)
"""Matches questions for all that there is, such as "which books have I read?"."""

_ONE_OF_SEVERAL = re.compile(
    r"\b(?:second|third|fourth|fifth|sixth|seventh|eighth|ninth|tenth|another|mention(?:s|ed)?|brought up)\b"
    r"|\b(?:talk(?:s|ed)?|sa(?:y|ys|id)|told)\b.{0,20}\babout\b",
    re.IGNORECASE,
)
"""Matches questions for one of several, or for what was mentioned, which stays mentioned."""

_REASON = re.compile(r"^\W*(?:(?:and|but|so)\W+)?(?:why|how come)\b", re.IGNORECASE)
"""Matches questions for a reason, which is no value that changes."""

_COUNT = re.compile(r"\bhow (?:many|much|old|tall|far|heavy|high|large|big)\b", re.IGNORECASE)
"""Matches questions that a number answers."""

_YES_OR_NO = re.compile(
    r"(?:^|,)\W*(?:(?:and|but|so)\W+)?(?:am|are|is|was|were|do|does|did|have|has|had|can|could|will|would)\b",
    re.IGNORECASE,
)
"""Matches questions whether something is so, which a statement answers that denies it."""

_OF_SELF = re.compile(r"\b(?:i|my|me|we|our|us)\b", re.IGNORECASE)

_WHO = re.compile(r"\bwho(?:m|se)?\b", re.IGNORECASE)

_CAPITALS = re.compile(r"(?<=[\w,;:]\s)[^\W\d_a-z]\w+")
"""Matches names in a question. If it holds some, its other words are none: of "our hotel in Porto", hotel is none."""

_TELLS = frozenset(["i", "i'm", "i've", "my", "our", "we", "we're", "we've"])
"""One of these is in a sentence that tells something of the speaker."""

_ADDS = re.compile(r"\b(?:also|too|as well|in addition|additionally|besides)\b")
"""Matches the words of somebody who says something in addition."""

_ANOTHER = "another"
"""It says that there are two, unless something has changed: "we moved to another office"."""

_WISHES = frozenset(english.WISHES.split())

_NEGATES = frozenset(["no", "not", "never"])

_SAID_BY = {"live": ("moved", "relocat")}
"""How sentences begin a word by which they say what another word asks for."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What a question asks for.

    Attributes:
        words: the stems of its informative words, without the names of those who speak.
        core: those of them that do not only say of which kind the value is.
        figures: its numbers, times, weekdays and months.
        either: whether it names values to choose from.
        several: whether it asks for all that there is, or one of it. Only what is gone is no answer to it.
        counts: whether a number answers it.
        kinds: those of them that say of which kind the value is.
        yes_or_no: whether it asks whether something is so.
        of_self: whether it asks about those who talk, and not who does something.
        plain: those of its words that are no names.
        hints: how its words begin, and those by which people say them otherwise.
    """

    words: frozenset[str]
    core: frozenset[str]
    figures: frozenset[str]
    either: bool
    several: bool
    counts: bool
    kinds: frozenset[str]
    yes_or_no: bool
    of_self: bool
    plain: frozenset[str]
    hints: tuple[str, ...]

    @classmethod
    @lru_cache(maxsize=KNOWN_QUESTIONS)
    def by(cls, question: str, words: frozenset[str], speakers: frozenset[str]) -> "Asked":
        """Return what a question asks for, given its stems and the names of those who speak."""
        no_value = _REASON.search(question) is not None
        own = frozenset[str]() if no_value else informative(words) - frozenset(terms(" ".join(speakers)))
        kinds = frozenset(terms(" ".join(_KIND.findall(question))))
        hints = {word[:-1] if len(word) > len("abc") else word for word in own}
        hints.update(said for word in own for said in _SAID_BY.get(word, ()))
        either = _EITHER.search(question) is not None
        several = _SEVERAL.search(question) is not None or _ONE_OF_SEVERAL.search(question) is not None
        counts = _COUNT.search(question) is not None
        capitals = frozenset(terms(" ".join(_CAPITALS.findall(question))))
        plain = own - capitals if capitals else frozenset()
        of_self = _OF_SELF.search(question) is not None and _WHO.search(question) is None
        return cls(
            own, (own - kinds) or own, figures_of(question), either, several, counts, kinds & own,
            _YES_OR_NO.search(question) is not None, of_self, plain, tuple(hints),
        )  # fmt: skip

    @property
    def about_one_thing(self) -> bool:
        """Whether newer statements may replace older ones that answer it."""
        return 0 < len(self.words) <= MOST_ASKED

    @property
    def least(self) -> float:
        """So many of its `hints` are in a sentence that may answer it: half of what it asks for."""
        return len(self.core) / 2

    def share(self, common: frozenset[str]) -> float:
        """Return how much of the question some words are, the kind of the value being asked for or not."""
        return max(len(common & self.words) / len(self.words), len(common & self.core) / len(self.core))

    def names_value_of(self, old: Statement, new: Statement) -> bool:
        """Return whether it is about the value of an older statement, which a newer one says nothing of.

        "How hot is the sauna beside locker 7?" asks about a message with 7, whatever another one says about locker 16.
        """
        if self.either:
            return False
        asks_about = (old.figures | old.labels) & (self.figures | self.words)
        plain = not (old.figures or old.names) and one_part_differs(new.tokens, old.tokens)
        asks_about |= (old.terms - new.held) & self.core if plain else frozenset()
        of_another = (old.names - new.held | new.names - old.held) & (self.words - self.plain)
        return bool(asks_about - new.held - new.figures - new.labels or of_another)


def alike(new: Statement, old: Statement, asked: Asked) -> bool:
    """Return whether two statements are about what is asked for, and about little else but their values.

    Events of different days are both true, and people say many things about one topic: a statement replaces another one
    if they share what is asked for, say it in few words, and give values of one kind, or if the newer one says of the
    value of the older one that it is gone.
    """
    common = old.words & new.held
    lacking, added = len(old.terms - common - asked.words), len(new.terms - common - asked.words)
    rest, longest = lacking + added, max(len(new.tokens), len(old.tokens))
    if longest > LONGEST_FRAME or max(lacking, added) > MOST_REST[new.changes] or adds(new):
        return False
    if new.changes < CHANGE and _of_two_things(new, old):
        return False
    share = asked.share(common)
    gone = new.gone & ((old.words | old.figures) - (frozenset() if asked.either else asked.words))
    if gone:
        brief = longest <= LONGEST_PLAIN or bool(gone & old.figures)
        says_so = new.changes > 0 or (old.lasts and brief and 2 * share >= 1)
        return says_so and max(lacking, added) <= MOST_REST[0]
    if asked.several or (asked.counts and not _exchanged(new.figures, old.figures)):
        return False
    noun = bool(common & asked.words & new.nouns & old.nouns)
    if 3 * share < 1 or not (old.lasts or old.was or new.changes):
        return False
    figures, names = _exchanged(new.figures, old.figures), _exchanged(new.names, old.names)
    wishes = not (_WISHES.isdisjoint(new.tokens) or _WISHES.isdisjoint(old.tokens))
    if not new.changes and wishes and not figures:
        return False
    if figures or names:
        said = 2 * share >= 1 or (noun and new.changes > 0)
        return figures != names and said and rest <= MOST_REST[CHANGE if noun else new.changes]
    if rest == 0:
        return (new.negated != old.negated or bool(new.gone & common)) and share == 1 and asked.yes_or_no
    return 2 * share >= 1 and longest <= LONGEST_PLAIN and _plainly_alike(new, old, asked, common & asked.words)


def adds(new: Statement) -> bool:
    """Return whether a statement says something in addition to what was said before."""
    return _ADDS.search(" ".join(new.tokens)) is not None or (_ANOTHER in new.tokens and new.changes < CHANGE)


def _of_two_things(new: Statement, old: Statement) -> bool:
    """Return whether two statements that do not say that something has changed differ in more than a value.

    "The invoice for March is 400" and "the invoice for April is 520" do, and so do "I have a call with Ann at ten" and
    "I have a call with Ben at two". After "my mechanic is", whatever differs is one value.
    """
    before, after = exchanged_parts(new, old)
    if new.changes or new.heads & old.heads:
        return before > 0 and after > 0
    return before + after > 1


def exchanged_parts(new: Statement, old: Statement) -> tuple[int, int]:
    """Return in how many parts two statements differ, before and after the "is" and the like of the newer one.

    Only parts count in which each has an informative word that the other one lacks, or one of them a negation.
    """
    verb, before, after = verb_at(new.tokens), 0, 0
    for tag, first, last, start, end in SequenceMatcher(None, old.tokens, new.tokens, autojunk=False).get_opcodes():
        gone, said = old.tokens[first:last], new.tokens[start:end]
        exchanged = tag == "replace" and _tells_apart(gone, new) and _tells_apart(said, old)
        if exchanged or _NEGATES.isdisjoint(gone) != _NEGATES.isdisjoint(said):
            before, after = before + (start < verb), after + (start >= verb)
    return before, after


def _tells_apart(part: Sequence[str], other: Statement) -> bool:
    return any(word not in other.tokens and (word in TELL_APART or informs(word)) for word in part)


def _plainly_alike(new: Statement, old: Statement, asked: Asked, common: frozenset[str]) -> bool:
    """Return whether two statements may differ in a value that is neither a figure nor a name.

    Args:
        new: the newer statement.
        old: the older one.
        asked: the question.
        common: those of its words that both hold.
    """
    share = asked.share(common)
    if not (old.lasts or old.was or old.changes == CHANGE):
        return False
    head, noun = common & new.heads & old.heads, common & new.nouns & old.nouns
    if not new.changes:
        told = bool(head) or not (_TELLS.isdisjoint(new.tokens) or _TELLS.isdisjoint(old.tokens))
        return told and 3 * share >= 2 and one_part_differs(new.tokens, old.tokens)
    run = _shared_run(new.tokens, old.tokens, common)
    if run < 2 or (share == 1 and len(common) > 1):
        return run >= 2
    brief = max(len(new.tokens), len(old.tokens)) <= LONGEST_ALONE
    rest = len(old.terms - common) + len(new.terms - common)
    alone = (bool(noun) or (new.of_self and old.of_self)) and share == 1 and rest <= MOST_REST[CHANGE]
    besides = rest - len((old.terms | new.terms) & asked.words - common)
    alone = alone or (bool(noun) and run >= ALIKE and besides <= PART // 2)
    same = head or (noun and new.changes == CHANGE) or alone
    return bool(same) and brief and bool(new.names) == bool(old.names)


def _shared_run(new: Sequence[str], old: Sequence[str], stems: frozenset[str]) -> int:
    """Return how many words in a row two sentences share, at most, where they hold one of some stems.

    A preposition at the beginning does not count: many things are in the garden.
    """
    longest = 0
    new, old = _alike_determiners(new), _alike_determiners(old)
    for first in range(len(new)):
        for second in range(len(old)):
            pairs = zip(new[first:], old[second:], strict=False)
            words = [word for word, _ in takewhile(lambda pair: pair[0] == pair[1], pairs)]
            run = len(words) - bool(words and words[0] in PREPOSITIONS)
            if run > longest and not stems.isdisjoint(terms(" ".join(words))):
                longest = run
    return longest


def _alike_determiners(tokens: Sequence[str]) -> list[str]:
    """Return words with one for "the" and "my", with which people name the same thing."""
    return ["the" if token in ("my", "our") else token for token in tokens]


def _exchanged(new: frozenset[str], old: frozenset[str]) -> bool:
    """Return whether each of two statements has a value that the other one has not."""
    return bool(new - old and old - new)


def one_part_differs(new: Sequence[str], old: Sequence[str]) -> bool:
    """Return whether two sentences have the same words but for one part of each, which is at most `PART` words.

    Of a newer sentence, one clause may have them: "they called, the dentist is on Friday".
    """
    return _differs(new, old) or any(_differs(clause, old) for clause in _clauses(new))


def _clauses(tokens: Sequence[str]) -> list[Sequence[str]]:
    """Return the clauses of a sentence, if it has several."""
    ends = [at for at, token in enumerate(tokens) if token in STOPS]
    starts = [0, *(at + 1 for at in ends)]
    return [tokens[start:end] for start, end in zip(starts, [*ends, len(tokens)], strict=True)] if ends else []


def _differs(new: Sequence[str], old: Sequence[str]) -> bool:
    least = min(len(new), len(old))
    start = next((at for at in range(least) if new[at] != old[at]), least)
    end = next((at for at in range(least - start) if new[-1 - at] != old[-1 - at]), least - start)
    parts = len(new) - start - end, len(old) - start - end
    return min(parts) > 0 and max(parts) <= PART and start + end >= ALIKE
