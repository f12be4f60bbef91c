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

BARS: dict[Recall, Bars | None] = {"balanced": Bars(0.15, 0.004), "precise": Bars(0.4, 0.017), "thorough": None}
"""Measured on LoCoMo, BEAM, RealMem and QMSum with questions of each conversation, those of another, and small talk.

With static vectors and 4,000 tokens, `"balanced"` recalls for 98, 99, 99 and 93 % of a conversation's own questions. It
is silent for 2 of the 15 questions of the example conversation in other words than their answers; opening at .25 would
be for 5.
"""

TRUST = 1.5
"""The exponent of the chance of an answer where it counts for a single message: a doubtful question stays short.

Measured with static vectors and 4,000 tokens against .5, on part of the questions of LoCoMo, RealMem and QMSum: 35,
1,454 and 679 tokens for questions about another conversation instead of 78, 2,318 and 824, and 6, 4 and 8 % fewer for
a conversation's own, for 0, 0 and 2.2 points of the evidence. Both halves of the conversations agree.
"""

TRUST_APART = 0.5
"""The same where an answer is doubtful, but the nearest message stands `APART`.

Such a question has other words than its answer, which is far down the list. Of 15 of them about the example
conversation it keeps 70 % of the evidence; `TRUST` would keep 40.
"""

APART = 2.5
"""The standard deviations that a message stands apart from those of its talk, which are compared with each other.

Where a talk has many subjects, a near message is on that of the question. Where it has one, as each of BEAM's has, all
messages are near to whatever is asked. All doubtful questions of the example conversation about those who talk reach
it, and .5 % of those asked about another conversation (BEAM).
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
        of_us: if it asks about those who talk, as "where did we stay?" does.
        asks: if it asks or requests something, or goes on with the conversation; set by hand, because all questions of
            these sets do, and hardly any small talk.
        together: per share of its terms that the best messages hold together.
        score: per unit of the score of the best one.
    """

    constant: float
    words: float
    meaning: float
    terms: float
    participant: float
    stranger: float
    about_talk: float
    of_us: float
    asks: float
    together: float = 0.0
    score: float = 0.0


BY_MEANING = Opening(-5.08, 3.05, 1.62, 0.79, 2.42, -1.36, 0.04, 0.12, 1.0)
BY_WORDS = Opening(-6.8, 5.5, 0.0, 1.5, 2.65, -1.63, 0.0, 0.34, 1.0)

TO_GO_ON = Opening(-6.35, 0.0, 1.41, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, together=4.86, score=0.59)
"""For a question that goes on with the conversation, and whose vector is known.

It tells so much that no single message holds it. Fitted on RealMem, whose own questions it tells from those of another
conversation with an AUC of .91, each person left out in turn (`BY_MEANING`: .85). With static vectors, 4,000 tokens and
`TRUST`, the latter recall 1,225 tokens instead of 2,338, and its own questions 1.5 points more of the evidence.
"""

TOGETHER = 40
"""The best messages whose terms count together. With 20, the AUC is .01 lower."""


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


ASKED = Part(-0.73, 0.06, 0.35, -0.83)
"""For a question about somebody or something.

Fitted on LoCoMo, BEAM and the example conversation, each question weighted equally, together with `OF_US`. Cosines,
words and lengths as further terms keep no more of the evidence for the same tokens.
"""

OF_US = Part(-1.6, 0.06, 0.35, -0.33)
"""For a question about those who talk, of which it is doubtful whether there is an answer, if a message stands `APART`.

What people ask about themselves is more often spread over messages, or said in other words.
"""

KNOWN = 0.5
"""Below this chance of an answer, a question is doubtful. Above it, its words are those of its answer."""

GOES_ON = Part(-1.6, 0.13, 0.04, -0.59)
"""For a question that goes on with the conversation.

Fitted on RealMem with static vectors and MiniLM, with an `OPENS_BOOST` of 4 and recency in days; the constant is set so
that recall goes on where what such a question needs is spread over many sittings.
"""


class Depth(NamedTuple):
    """How deep recall goes: the chances of each rank, and the exponent of the chance of an answer."""

    part: Part
    trust: float


PLAIN = Depth(ASKED, TRUST)
"""For most questions."""


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
        if self.chance < self.bars.open:
            return (
                f"nothing recalled: older messages help with a chance of {self.chance:.0%}, below {self.bars.open:.0%}"
            )
        return f"recall stops where the chance that a message helps falls below {self.bars.go_on:.1%}"


def chance_of_answer(
    query: Query, present: Floats, dense: Floats, *, unrelated: tuple[float, float] | None, stranger: bool,
    together: float = 0.0, score: float = 0.0,
) -> float:  # fmt: skip
    """Return how likely the conversation holds an answer to a question, 0 to 1.

    Args:
        query: the question.
        present: the share of its informative words that each message found holds itself.
        dense: the cosine of each, NaN without a vector.
        unrelated: the mean and the standard deviation of the cosine of two unrelated messages; None: by words alone.
        stranger: whether it names somebody or something that never occurs.
        together: the share of its terms that the best messages hold together; of no account unless it goes on.
        score: that of the best message; likewise.
    """
    if not query.informative and not query.about_talk:
        return 0.0
    cosines, holds = dense[np.isfinite(dense)], float(present.max(initial=0))
    by, meaning = BY_WORDS, 0.0
    if unrelated is not None and len(cosines):
        by, meaning = TO_GO_ON if query.goes_on else BY_MEANING, apart(dense, unrelated)
    logit = by.constant + by.words * holds + by.meaning * meaning + by.terms * float(np.log1p(query.informative))
    logit += by.participant * bool(query.speakers) + by.stranger * stranger + by.about_talk * query.about_talk
    logit += by.of_us * query.of_us + by.asks * (query.asks or query.goes_on)
    logit += by.together * together + by.score * score
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


def apart(dense: Floats, unrelated: tuple[float, float]) -> float:
    """Return how many standard deviations the nearest message is closer than unrelated ones are.

    Args:
        dense: the cosine of each message found, NaN without a vector; at least one has one.
        unrelated: the mean and the standard deviation of the cosine of two unrelated messages.
    """
    mean, deviation = unrelated
    return (float(np.nanmax(dense)) - mean) / max(deviation, LEAST_DEVIATION)


def verdict(bars: Bars, chance: float, score: Floats, depth: Depth = PLAIN) -> Verdict:
    """Return what is worth its tokens. The scores are best first."""
    if chance < bars.open:
        return Verdict(chance, 0, bars)
    worth = chance**depth.trust * chances_of_part(score, depth.part) >= bars.go_on
    return Verdict(chance, int(np.count_nonzero(worth)), bars)


def doubtful(query: Query, chance: float) -> bool:
    """Return whether it is doubtful that the conversation holds an answer, so that it matters what stands `APART`."""
    return chance < KNOWN and not query.goes_on


def depth_of(query: Query, *, hidden: bool) -> Depth:
    """Return how deep recall goes for a question; `hidden`: if there is an answer, it is in other words."""
    if query.goes_on:
        return Depth(GOES_ON, TRUST)
    if hidden:
        return Depth(OF_US if query.of_us else ASKED, TRUST_APART)
    return PLAIN
