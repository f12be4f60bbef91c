"""Estimate how likely recall helps, and decide where it stops; pure."""

import math
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from shared_core.recall.query import Query

Recall = Literal["balanced", "thorough", "precise"]

Floats = npt.NDArray[np.float32]


class Bars(NamedTuple):
    """How likely recall must help.

    Attributes:
        open: how likely the conversation must hold an answer, or nothing is recalled.
        go_on: how likely a message must be part of it, or recall stops before it.
    """

    open: float
    go_on: float

    def wide(self, chance: float) -> "Bars":
        """Return the bars for a question about many messages, given how likely the conversation holds an answer.

        Each message is a small part of the answer, so the surer the answer, the lower the bar for one.
        """
        sure = min(max((chance - self.open) / (1 - self.open), 0.0), 1.0) if self.open < 1 else 0.0
        return Bars(self.open, self.go_on * WIDE**sure)


WIDE = 1 / 16
"""How much lower the bar for a message is at most if the question is about many messages.

Measured with static vectors and 4,000 tokens, together with shorter excerpts: 44 to 55 % of the evidence on QMSum, 31
to 50 % and 21 to 31 % on BEAM's questions for orders and summaries. A bar that is always as low as 1/8 brings 2 points
more on QMSum, and a quarter more tokens for questions about another conversation.
"""

BARS: dict[Recall, Bars | None] = {"balanced": Bars(0.25, 0.0065), "precise": Bars(0.5, 0.02), "thorough": None}
"""Measured on LoCoMo, BEAM and RealMem with questions of each conversation, those of another, and small talk.

With static vectors and 4,000 tokens, `"balanced"` recalls for 97, 99 and 96 % of a conversation's own questions.
"""

HOLDS_ALL = 0.9
"""The share of a question's informative words, by their weight, that counts as all of them."""

LEAST_DEVIATION = 0.02
"""Where the cosines of messages differ by less, as in a talk that repeats itself, they say nothing finer."""

CERTAIN = 30.0
"""A logit beyond which a chance is 0 or 1."""

LIKELY = 0.5
"""The least chance of an answer if one message holds all informative words of the question, as with "the locker?"."""


class Opening(NamedTuple):
    """The coefficients of a logistic regression: does a conversation hold an answer to a question?

    It is fitted on the questions of LoCoMo, BEAM, RealMem and QMSum, against those of another conversation of the set
    and small talk, every set and kind weighted equally.

    Attributes:
        constant: added always.
        words: per share of the question's informative words that a single message holds, at most.
        meaning: per standard deviation that the nearest message is closer than unrelated ones are.
        terms: per natural logarithm of the question's informative terms plus one.
        participant: if it names a participant.
        stranger: if it names somebody or something that never occurs.
        about_talk: if it speaks about the conversation itself.
        goes_on: if it goes on with the conversation; set so that 3 % of RealMem's questions recall nothing, not 6.
    """

    constant: float
    words: float
    meaning: float
    terms: float
    participant: float
    stranger: float
    about_talk: float
    goes_on: float


BY_MEANING = Opening(-4.2, 3.0, 1.75, 0.58, 2.5, -1.25, 0.46, 0.5)
BY_WORDS = Opening(-6.1, 5.75, 0.0, 1.58, 2.6, -1.6, 0.4, 0.5)


class Part(NamedTuple):
    """The coefficients of a logistic regression: is the message of a rank part of the answer, if there is one?

    Attributes:
        constant: added always.
        score: per unit of its score.
        behind: per unit of its score minus the best one's, which is negative.
        rank: per natural logarithm of its rank.
    """

    constant: float
    score: float
    behind: float
    rank: float


ASKED = Part(-2.18, 0.19, 0.22, -0.49)
"""A logistic regression for a question by itself.

Fitted on LoCoMo, BEAM and RealMem, each question weighted equally. Cosines, words and lengths as further terms keep no
more of the evidence for the same tokens.
"""

GOES_ON = Part(-1.5, 0.13, 0.04, -0.59)
"""For a question that goes on with the conversation.

Fitted on RealMem with static vectors and MiniLM, with an `OPENS_BOOST` of 4 and recency in days; then .7 was added to
the constant by hand, so that recall goes on where what such a question needs is spread over many sittings.
"""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What recall is expected to bring for one question.

    Attributes:
        chance: how likely the conversation holds an answer, 0 to 1.
        worth: how many of the results, best first, are worth their tokens.
        bars: what they had to reach.
    """

    chance: float
    worth: int
    bars: Bars

    @property
    def why(self) -> str:
        """Why recall stops, as a sentence for the report."""
        return self._why("nothing recalled")

    @property
    def why_besides(self) -> str:
        """Why recall stops, if something is recalled without regard to the question."""
        return self._why("nothing else recalled")

    def _why(self, nothing: str) -> str:
        if self.chance < self.bars.open:
            return f"{nothing}: older messages help with a chance of {self.chance:.0%}, below {self.bars.open:.0%}"
        return f"recall stops where the chance that a message helps falls below {self.bars.go_on:.1%}"


def chance_of_answer(
    query: Query, present: Floats, dense: Floats, *, unrelated: tuple[float, float] | None, stranger: bool
) -> float:
    """Return how likely the conversation holds an answer to a question, 0 to 1.

    Args:
        query: the question.
        present: the share of its informative words that each message found holds itself.
        dense: the cosine of each, NaN without a vector.
        unrelated: the mean and the standard deviation of the cosine of two unrelated messages; None: by words alone.
        stranger: whether it names somebody or something that never occurs.
    """
    if not query.informative and not query.about_talk:
        return 0.0
    cosines, holds = dense[np.isfinite(dense)], float(present.max(initial=0))
    by, meaning = BY_WORDS, 0.0
    if unrelated is not None and len(cosines):
        mean, deviation = unrelated
        by, meaning = BY_MEANING, (float(cosines.max()) - mean) / max(deviation, LEAST_DEVIATION)
    logit = by.constant + by.words * holds + by.meaning * meaning + by.terms * float(np.log1p(query.informative))
    logit += by.participant * bool(query.speakers) + by.stranger * stranger + by.about_talk * query.about_talk
    logit += by.goes_on * query.goes_on
    chance = 1 / (1 + math.exp(-min(max(logit, -CERTAIN), CERTAIN)))
    return max(chance, LIKELY) if holds >= HOLDS_ALL and query.informative else chance


def chances_of_part(score: Floats, part: Part = ASKED) -> Floats:
    """Return how likely each message is part of the answer, given the scores, best first, and that there is one."""
    if not len(score):
        return score
    logits = part.constant + part.score * score + part.behind * (score - score[0])
    logits = np.clip(logits + part.rank * np.log1p(np.arange(len(score))), -CERTAIN, CERTAIN)
    chances: Floats = (1 / (1 + np.exp(-logits))).astype(np.float32)
    return chances


def verdict(bars: Bars, chance: float, score: Floats, part: Part = ASKED) -> Verdict:
    """Return what is worth its tokens. The scores are best first."""
    if chance < bars.open:
        return Verdict(chance, 0, bars)
    return Verdict(chance, int(np.count_nonzero(chance * chances_of_part(score, part) >= bars.go_on)), bars)
