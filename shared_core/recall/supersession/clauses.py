"""What a text states: by its sentences, and by those of their clauses that bear on a question; pure."""

import re
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache

from shared_core.recall.supersession.statements import (
    CHANGE,
    CHANGED,
    FEW,
    KNOWN_TEXTS,
    PRONOUNS,
    Statement,
    doubts,
    manner,
    statement,
    terms_of,
)

LOOKED_AT = 2_000
"""Characters of a message that are read. What comes after them is seldom the change itself."""

KNOWN_PARTS = 512
"""Messages of which is cached which sentences bear on a question: a few questions' worth."""

LONGEST = 300
"""Characters of a sentence at most: longer ones are lists, code or quotations."""

MOST_WORDS = 20
"""Words of a sentence, at most. Longer ones tell stories."""

MOST_SENTENCES = 24
"""Sentences of a message that are read."""

BRIEF = 6
"""Spaces of a sentence, at most, that tells a change of what another one is about, such as "I was wrong"."""

_REFERS = frozenset(["he", "her", "him", "his", "it", "it's", "she", "that's", "them", "there", "they"])
"""They stand for what the clauses before name."""

_PARTS = re.compile(r"[,:;\u2014]+\s+(?:and |but |so )?|\s(?:so|and|but|because|since)\s", re.IGNORECASE)
"""Divides the clauses of a sentence, of which one may be a statement and the others tell why it is so."""

_REASON = re.compile(r"\b(?:because|since)\b", re.IGNORECASE)
"""What comes after these in a request is no part of what is asked."""

_IN_PASSING = re.compile(
    r"(?:(?:by the way|btw|fyi|also|and|but|so|that|because|since|now that),? )*"
    r"(?=(?:i|i'm|i've|we|we're|we've|my|our|the|it|it's|they|they've|there's)\b(?! (?:should|can|could|need|want)\b))",
    re.IGNORECASE,
)
"""Matches what stands before a clause that tells something, and asks for nothing."""

_SUPPOSES = re.compile(
    r"\b(?:if|unless|whether|suppose|supposing|imagine|assuming|pretend"
    r"|says?|said|tell(?! (?:me|us)\b)|tells|told|claim(?:s|ed)?|wrote|translate|rephrase|proofread)\b",
    re.IGNORECASE,
)
"""Matches sentences that suppose something, or report what somebody says: none of their clauses is a statement."""

_TITLES = r"(?<!\bDr)(?<!\bMr)(?<!\bMrs)(?<!\bMs)(?<!\bSt)(?<!\bProf)(?<!\bNo)"
# The mark is looked for first: what comes before it is then looked at there only, which takes a third of the time.
_SENTENCE = re.compile(rf"(?=[.!]){_TITLES}(?<![.!])[.!]++(?=\s|$)|(?<=\?)\s+|\n+|;\s")


def statements(
    text: str, hints: tuple[str, ...] = (), least: float = 0, words: frozenset[str] = frozenset()
) -> tuple[Statement, ...]:
    """Return what the sentences of a text state. Questions and doubts state nothing.

    In a short message, what one sentence says has changed is what the others are about: "I was wrong. It is on Friday."

    Args:
        text: what was said.
        hints: parts of words.
        least: so many of these must be in a sentence or clause that is read.
        words: what a question asks for: "it" and the like may stand for them.
    """
    said = _sentences(text)
    found = [one for sentence in bearing(text, hints, least)
             for one in _with_clauses(sentence, hints, least, words)]  # fmt: skip
    if not found or not 1 < len(said) <= FEW:
        return tuple(found)
    brief = [one for one in said if one.count(" ") <= BRIEF and CHANGED.search(one)]
    marks = [one for one in map(statement, brief) if one is not None and len(one.words) < FEW]
    if marks:
        gone = frozenset().union(*(one.gone for one in (*marks, *found)))
        found = [replace(one, changes=CHANGE, gone=one.gone | gone - one.words - one.figures) for one in found]
    return tuple(found)


@lru_cache(maxsize=KNOWN_TEXTS)
def _sentences(text: str) -> tuple[str, ...]:
    said = (sentence.strip() for sentence in _SENTENCE.split(text[:LOOKED_AT])[:MOST_SENTENCES])
    return tuple(one for one in said if one and _is_short(one))


def _with_clauses(sentence: str, hints: Sequence[str], least: float, words: frozenset[str]) -> list[Statement]:
    """Return what a sentence states, and what those of its clauses state that are read.

    People say why something has changed in the same breath: "Ann is ill, so Ben gives the speech".
    """
    whole = statement(sentence)
    found = [whole] if whole is not None else []
    if whole is None and doubts(sentence):
        return found
    meant = words & whole.words if whole else frozenset[str]()
    for part, refers in _clauses(sentence):
        read = (holds(part, hints, least) or (refers and meant)) and None in manner(part)[2]
        clause = statement(part) if read else None
        if clause is not None and clause.lasts:
            found.append(_in_sentence(clause, whole, meant if refers else frozenset()) if whole else clause)
    return found


@lru_cache(maxsize=KNOWN_TEXTS)
def _clauses(sentence: str) -> tuple[tuple[str, bool], ...]:
    """Return the clauses of a sentence that has several, and whether each refers to what those before it name."""
    parts = [part.strip() for part in _PARTS.split(sentence)] if _PARTS.search(sentence) else []
    long = [part for part in parts if part.count(" ") >= FEW - 1]
    return tuple((part, not _REFERS.isdisjoint(part.lower().split())) for part in long)


def _in_sentence(clause: Statement, whole: Statement, words: frozenset[str]) -> Statement:
    """Return a clause as it is meant in its sentence, which tells what its pronouns mean, and what is not so any more.

    Args:
        clause: what it states.
        whole: what its sentence states.
        words: what its pronouns may stand for.
    """
    owned = not clause.owners.isdisjoint(PRONOUNS)
    named = whole.owners - PRONOUNS if owned else frozenset[str]()
    tokens = clause.tokens
    if words and tokens[0] in _REFERS:
        tokens = ("the", *(token for token in whole.tokens if not words.isdisjoint(terms_of(token))), *tokens[1:])
    return replace(
        clause,
        changes=max(clause.changes, whole.changes),
        owners=whole.owners if owned else clause.owners,
        terms=clause.terms | named | whole.terms & words,
        names=clause.names | whole.names & words,
        tokens=tokens,
        nouns=clause.nouns | whole.nouns & words,
        gone=clause.gone | whole.gone - clause.words - clause.figures,
    )


@lru_cache(maxsize=KNOWN_TEXTS)
def _told(text: str) -> tuple[str, ...]:
    """Return the sentences of a text, and what long ones and requests tell in passing.

    "The exam is on June 10 now, so can you stretch my plan?" tells when the exam is.
    """
    said = (sentence.strip() for sentence in _SENTENCE.split(text[:LOOKED_AT])[:MOST_SENTENCES])
    found: list[str] = []
    for one in filter(None, said):
        short = _is_short(one)
        found += [one] if short else []
        found += _in_passing(one) if one.endswith("?") or not short else []
    return tuple(found)


def _is_short(sentence: str) -> bool:
    return len(sentence) <= LONGEST and sentence.count(" ") < MOST_WORDS


def _in_passing(sentence: str) -> list[str]:
    """Return the clauses of a sentence that say something of the speaker or of a thing; none of one that supposes."""
    if _SUPPOSES.search(sentence):
        return []
    joints = ["", *(match[0] for match in _PARTS.finditer(sentence))]
    found: list[str] = []
    for joint, part in zip(joints, _PARTS.split(sentence), strict=True):
        if ":" in joint:  # what follows is quoted, or a text to work on
            break
        tells = _IN_PASSING.match(part)
        asks = tells is None or (part.endswith("?") and not _REASON.search(joint + tells[0]))
        if tells and not asks and part.count(" ") >= FEW - 1 and _is_short(part):
            found.append(part[tells.end() :].rstrip(" ?"))
    return found


@lru_cache(maxsize=KNOWN_PARTS)
def bearing(text: str, hints: tuple[str, ...], least: float) -> tuple[str, ...]:
    """Return the sentences of a text that hold so many of some parts of words. They are asked for more than once."""
    if not holds(text, hints, least):
        return ()
    return tuple(sentence for sentence in _told(text) if holds(sentence, hints, least))


def holds(text: str, hints: Sequence[str], least: float) -> bool:
    """Return whether a text holds so many of some parts of words, in lower case."""
    folded = text.casefold()
    return sum([hint in folded for hint in hints]) >= least
