"""Apply changes to results: the newest statement of each thing takes the place of the best one; pure."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import chain, islice

import numpy as np
import numpy.typing as npt

from shared_core.messages import Message
from shared_core.prompt.reasons import Reason
from shared_core.prompt.window import ELSEWHERE, Candidate
from shared_core.recall.ranking import RankedResults, ScoredMessage
from shared_core.recall.supersession.changes import MOST_JUDGED, Said, newest_first, states, superseded
from shared_core.recall.supersession.former_values import asks_history
from shared_core.turns import Entry, Turn

HOLDS = 0.3
"""A result is judged if it holds this share of the question's words, compared with the one that holds most of them.

Statements about one thing share its words, and reading a result costs more than judging it.
"""

MOST_FURTHER = 8
"""So many further results are read at most, for what may replace a candidate or be what was before it."""

MOST_CORRECTED = 3
"""Of so many of the best results the next messages are read, if they are as short as a mere correction."""

MOST_SHOWN = 20
"""Of so many of the newest messages in the prompt it is judged what they replace."""

_MAY_STATE = (None, Reason.UNLIKELY)
"""The decisions on candidates that may replace each other. Others are left out for good."""


def judged(ranked: RankedResults) -> npt.NDArray[np.int64]:
    """Return the ranks of the results that may replace each other, best first."""
    best = np.flatnonzero(~ranked.weak)[:MOST_JUDGED]
    holds = ranked.present[best]
    likely: npt.NDArray[np.int64] = best[holds >= HOLDS * holds.max(initial=0)]
    return likely


def may_be_replaced(candidates: Sequence[Candidate], question: str, words: Sequence[str]) -> bool:
    """Return whether one of the likely candidates states something that another message may state otherwise."""
    likely = [one.stating.message for one in candidates if one.reason is None]
    return states([_said(message, 0) for message in likely], words, question)


def hits_newest_first(
    hits: Sequence[ScoredMessage], ages: Sequence[tuple[float, ...]], question: str, words: Sequence[str]
) -> list[ScoredMessage]:
    """Return hits with the newest statements first, each with the id of the message that replaces it.

    A hit that takes the place of another one takes its score, so that hits stay in the order of their scores.

    Args:
        hits: best first.
        ages: of each, when it was said; the newer, the larger.
        question: what was searched for.
        words: its stems.
    """
    said = [_said(hit.message, order) for hit, order in zip(hits, _numbered(ages), strict=True)]
    replaced = superseded(said[:MOST_JUDGED], words, question)
    if not replaced:
        return list(hits)
    ranks = newest_first(
        range(len(hits)), replaced, {at: one.order for at, one in enumerate(said)}, asks_history(question)
    )
    ids = {old: hits[new].message.id for old, new in replaced.items()}
    found, least = [], float("-inf")
    for at in reversed(ranks):
        least = max(least, hits[at].score)
        found.append(replace(hits[at], score=least, superseded_by=ids.get(at)))
    return found[::-1]


def candidates_newest_first(
    candidates: Sequence[Candidate], further: Sequence[Candidate], question: str, words: Sequence[str],
    window: Sequence[Turn] = (),
) -> list[Candidate]:  # fmt: skip
    """Return candidates with the newest statements first, each with the id of the message that replaces it.

    The newest takes the place, the score and the chance to be recalled of the best one that it replaces. For a question
    about what was before, the older ones do.

    Args:
        candidates: best first.
        further: the next ones, which become candidates only if they replace one, or are what was before it.
        question: its text.
        words: the stems that were searched for.
        window: turns in the prompt, newest first. They replace candidates, too.
    """
    every = [*candidates, *further]
    may = [at for at, candidate in enumerate(every) if candidate.reason in _MAY_STATE]
    may = [*may[:MOST_JUDGED], *(at for at in may[MOST_JUDGED:] if at >= len(candidates))]
    shown = [*islice(chain.from_iterable(reversed(turn.entries) for turn in window), MOST_SHOWN)]
    entries = [*(every[at].stating for at in may), *shown]
    ages = _ages(entries)
    turns = [None if entry.turn_no == ELSEWHERE else entry.turn_no for entry in entries]
    said = [_said(entry.message, ages[index])._replace(turn=turns[index]) for index, entry in enumerate(entries)]
    replaced = superseded(said, words, question)
    if not any(old < len(may) for old in replaced):
        return list(candidates)
    ids = {may[old]: entries[new].message.id for old, new in replaced.items() if old < len(may)}
    at_all = dict(enumerate(may)) | {len(may) + n: len(every) + n for n in range(len(shown))}
    order = {at_all[index]: one.order for index, one in enumerate(said)}
    history = asks_history(question)
    ranks = newest_first(range(len(every)), {at_all[o]: at_all[n] for o, n in replaced.items()}, order, history)
    return _settled(every, ranks, ids, len(candidates))


def _settled(
    every: Sequence[Candidate], ranks: Sequence[int], ids: dict[int, str | None], count: int
) -> list[Candidate]:
    """Return candidates in a new order; those after the first `count` only if they rose among these."""
    found: list[Candidate] = []
    least, first, likely = float("-inf"), len(every), False
    for at in reversed(ranks):
        candidate, rose = every[at], first < at
        if candidate.reason in _MAY_STATE:
            first = min(first, at)
            least = max(least, candidate.score)
            likely = likely or (candidate.reason is None and at < count)
            reason = None if rose and likely else candidate.reason
            candidate = replace(candidate, score=least, reason=reason, superseded_by=ids.get(at))
        if at < count or (rose and likely and candidate.reason is None):
            found.append(candidate)
    return found[::-1]


def _said(message: Message, order: int) -> Said:
    return Said((message.role, message.name), order, message.content)


def _ages(entries: Sequence[Entry]) -> list[int]:
    """Return when messages were said: by their times if some are of other sessions, else by their turns."""
    by_time = any(entry.turn_no == ELSEWHERE for entry in entries)
    times = [entry.message.created_at if by_time else None for entry in entries]
    ages = [
        (0.0 if at is None else at.timestamp(), one.turn_no, one.order) for at, one in zip(times, entries, strict=True)
    ]
    return _numbered(ages)


def _numbered(ages: Sequence[tuple[float, ...]]) -> list[int]:
    number = {age: order for order, age in enumerate(sorted(set(ages)))}
    return [number[age] for age in ages]
