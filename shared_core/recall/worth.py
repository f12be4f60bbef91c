"""Estimate how likely the conversation answers a question, and how many messages are worth their tokens; pure."""

import math
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

Recall = Literal["balanced", "thorough", "precise"]

Floats = npt.NDArray[np.float32]

OPEN = 0.25
"""How likely the conversation must hold an answer, or nothing is recalled."""

PRICES: dict[Recall, float | None] = {"precise": 0.08, "balanced": 0.03, "thorough": None}
"""How likely a message must be part of the answer to be worth its tokens; None: whatever matches is."""

BEST, ENOUGH, USUAL = 5, 60, 3.5
"""The best messages whose mean score is one of the `Signs`, those that must be found, and what it is if fewer are.

Scores are standard scores, which say little of few messages.
"""

LEAST_DEVIATION = 0.02
"""Where the cosines of messages differ by less, as in a talk that repeats itself, they say nothing finer."""

HOLDS_ALL, LIKELY = 0.9, 0.5
"""If one message holds this share of the informative words of a question, an answer is as likely as this, at least.

So "the locker?" is answered where every message is about lockers, and none stands out.
"""

CERTAIN = 30.0
"""A logit beyond which a chance is 0 or 1."""

DOUBT = 2
"""The exponent of the chance of an answer if a question goes on with the conversation: much is near to what it tells.

Measured on RealMem with static vectors, 4,000 tokens and every fourth question, against 1: questions about another
conversation recall 1,307 tokens instead of 2,038, its own 3,169 instead of 3,320 for .3 points less of the evidence. 3
costs 5 points.
"""


class Signs(NamedTuple):
    """What tells whether the conversation holds an answer; or how much each counts, in `GATE`.

    Attributes:
        words: the share of the question's informative words that a single message holds, at most; if it goes on with
            the conversation, the share of its words that the best messages hold together.
        meaning: how many standard deviations the nearest message is closer than unrelated ones are; `UNKNOWN` if
            nothing can be compared.
        terms: the natural logarithm of the question's informative terms plus one; if it goes on with the conversation,
            at most that of `MOST_TOLD`.
        participant: whether it names a participant.
        stranger: whether it names somebody or something that never occurs.
        about_talk: whether it speaks about the conversation itself.
        of_us: whether it is about those who talk, as "where did we stay?" is.
        asks: whether it asks or requests something, or goes on with the conversation.
        borrows: whether it points back to the newest messages and has words of theirs.
        score: the mean score of the `BEST` messages.
    """

    words: float
    meaning: float
    terms: float
    participant: float
    stranger: float
    about_talk: float
    of_us: float
    asks: float
    borrows: float
    score: float


class Opening(NamedTuple):
    """A logistic regression on `Signs`, as `benchmarks/recall_gate.py` fits it."""

    constant: float
    weights: Signs


GATE = Opening(-9.58, Signs(2.91, 1.21, 1.78, 2.18, -1.42, 0.66, 1.18, 1.11, 1.52, 0.75))

UNKNOWN = 0.83
"""`Signs.meaning` without vectors, fitted with the rest."""


class Part(NamedTuple):
    """A logistic regression, by the same script: is a message part of the answer, if there is one?

    Attributes:
        constant: added always.
        rank: per natural logarithm of its rank.
        behind: per unit of its score minus the best one's, which is negative; 0 if the answer is spread.
    """

    constant: float
    rank: float
    behind: float


PART = Part(-0.84, -0.47, 0.20)


def best_score(score: Floats) -> float:
    """Return `Signs.score`, given the scores, best first."""
    return float(score[:BEST].mean()) if len(score) >= ENOUGH else USUAL


@dataclass(frozen=True, slots=True)
class Verdict:
    """What recall is expected to bring for one question.

    Attributes:
        chance: how likely the conversation holds an answer, 0 to 1.
        worth: how many of the results, best first, are worth their tokens.
        price: how likely they had to be part of the answer.
    """

    chance: float
    worth: int
    price: float

    @property
    def why(self) -> str:
        """Why recall stops, as a sentence for the report."""
        if self.chance < OPEN:
            return f"nothing recalled: the chat is {self.chance:.0%} likely to hold an answer, {OPEN:.0%} is needed"
        return f"recalled is what is at least {self.price:.1%} likely to help"


def verdict(price: float, signs: Signs, score: Floats, *, spread: bool, goes_on: bool = False) -> Verdict:
    """Return what is worth its tokens.

    Args:
        price: how likely a message must be part of the answer.
        signs: of an answer.
        score: the scores of what was found, best first.
        spread: whether the answer is spread over many messages, as it is if a question goes on with the conversation or
            is about it.
        goes_on: whether the question goes on with the conversation.
    """
    chance = chance_of_answer(signs)
    worth = chance ** (DOUBT if goes_on else 1) * chances_of_part(score, spread=spread) >= price
    return Verdict(chance, int(np.count_nonzero(worth)) if chance >= OPEN else 0, price)


def chance_of_answer(signs: Signs) -> float:
    """Return how likely the conversation holds an answer to a question, 0 to 1."""
    logit = GATE.constant + sum(weight * sign for weight, sign in zip(GATE.weights, signs, strict=True))
    chance = 1 / (1 + math.exp(-min(max(logit, -CERTAIN), CERTAIN)))
    return max(chance, LIKELY) if signs.words >= HOLDS_ALL and signs.asks and signs.terms else chance


def chances_of_part(score: Floats, *, spread: bool) -> Floats:
    """Return how likely each message is part of the answer, given the scores, best first, and that there is one."""
    if not len(score):
        return score
    behind = np.zeros_like(score) if spread else score - score[0]
    logits = PART.constant + PART.rank * np.log1p(np.arange(len(score))) + PART.behind * behind
    logits = np.clip(logits, -CERTAIN, CERTAIN)
    chances: Floats = (1 / (1 + np.exp(-logits))).astype(np.float32)
    return chances


def apart(nearest: float, unrelated: tuple[float, float]) -> float:
    """Return how many standard deviations the nearest message is closer than unrelated ones are.

    Args:
        nearest: its cosine.
        unrelated: the mean and the standard deviation of the cosine of two unrelated messages.
    """
    mean, deviation = unrelated
    return (nearest - mean) / max(deviation, LEAST_DEVIATION)
