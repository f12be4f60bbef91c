"""How a question goes on with the conversation around it; pure."""

import re
from collections.abc import Sequence
from dataclasses import replace
from math import sqrt

import numpy as np

from shared_core.base import Vectors
from shared_core.index.text import is_statement, read_terms, statement_code
from shared_core.languages.english import ENGLISH
from shared_core.languages.language import Language
from shared_core.recall.query import Query, informative_terms

NEWEST_MESSAGES = 4
"""A question that points back borrows from this many of the newest messages."""

FADE = 0.5
"""What a message lends, per newer one."""

MOST_TERMS = 4
"""Terms that are borrowed at most. Of more, an older message about the topic holds too small a share."""

FEW = 2
"""A question with a pronoun and more informative terms than this borrows nothing; one without may have half as many."""

_SENTENCE = re.compile(r"[^.!?\n\u3002\uff01\uff1f]+[.!?\n\u3002\uff01\uff1f]?")
_WORD = re.compile(r"\w")


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


def borrowed_terms(newest: Sequence[str], query: Query) -> tuple[tuple[str, float], ...]:
    """Return terms of the newest messages that join a question, with their weights below 1, heaviest first.

    A message shares its weight among its terms, so that a long reply does not decide what the talk is about. A term
    that several messages hold has the sum of their weights.

    Args:
        newest: the newest messages, oldest first.
        query: the question.
    """
    weights: dict[str, float] = {}
    for age, text in enumerate(reversed(newest)):
        said = informative_terms(*read_terms(text)) - set(query.terms)
        for term in said:
            weights[term] = weights.get(term, 0.0) + FADE**age / sqrt(len(said))
    best = sorted(weights, key=lambda term: (-weights[term], term))[:MOST_TERMS]
    return tuple((term, share(query) * (weights[term] / weights[best[0]])) for term in best)


def share(query: Query) -> float:
    """Return how much of the talk joins a question: less, the more informative terms it has of its own."""
    return 0.9 / (1 + query.informative / 2)


def in_conversation(query: Query, newest: Sequence[str]) -> Query:
    """Return a question as it is meant after the newest messages, which are given oldest first."""
    borrowed = borrowed_terms(newest, query) if newest else ()
    # "that makes sense, thanks a lot" tells nothing new
    tells_news = query.informative > FEW and tells(query.text, query.language)
    return replace(query, goes_on=tells_news, borrowed=borrowed, informative=query.informative + len(borrowed))


def towards(question: Vectors, newest: Vectors, share: float) -> Vectors:
    """Return a question's vector, turned towards what the talk is about.

    Args:
        question: its unit vector, shape (1, dimension) or (dimension,).
        newest: unit vectors of the newest messages, oldest first, shape (n, dimension).
        share: how much they count together, against 1 for the question.
    """
    if not len(newest) or share <= 0:
        return question
    fades = FADE ** np.arange(len(newest), dtype=np.float32)[::-1]
    topic = fades @ newest
    turned = question + np.float32(share) * topic / max(float(np.linalg.norm(topic)), 1e-9)
    unit: Vectors = (turned / max(float(np.linalg.norm(turned)), 1e-9)).astype(np.float32)
    return unit
