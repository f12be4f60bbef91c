"""Which messages newer ones replace: statements about the same thing with another value; pure."""

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Literal, NamedTuple

from shared_core.recall.statements import FEW, Statement, informative, statements

MOST_JUDGED = 40
"""Of so many of the best results it is judged which replace which."""

SHORT = 2
"""Informative words of a statement that gives little but a value, such as "I eat vegan"."""

MOST_LEFT = 3
"""Words that a statement has besides those it shares, at most, if nothing in it says that something has changed."""

History = Literal["before", "beginning"]

_BEGINNING = re.compile(
    r"\b(?:original(?:ly)?|initial(?:ly)?|at (?:the )?(?:first|beginning|start)|first|in the beginning|how (?:did|has|have)"
    r"\b.{0,60}\bchange[ds]?|over time|evolve[ds]?|history of)\b",
    re.IGNORECASE,
)
_BEFORE = re.compile(
    r"\b(?:before|previous(?:ly)?|former(?:ly)?|earlier|use[d]? to|prior|back then|until (?:recently|then)|old"
    r"|no longer|any ?more|changed from)\b",
    re.IGNORECASE,
)


class Said(NamedTuple):
    """A message that may state something.

    Attributes:
        speaker: who said it, by role and name; statements of different speakers never replace each other.
        order: the newer, the larger.
        text: what was said.
    """

    speaker: tuple[str, str | None]
    order: int
    text: str


def asks_history(question: str) -> History | None:
    """Return whether a question asks what was so before ("what was it before?") or at the beginning, or neither."""
    if _BEGINNING.search(question):
        return "beginning"
    return "before" if _BEFORE.search(question) else None


def superseded(said: Sequence[Said], words: Collection[str]) -> dict[int, int]:
    """Return the index of each message that is replaced, with that of the newest message that replaces it.

    Only sentences that hold the words of the question count, and only those that hold about as many as the best do.

    Args:
        said: the messages, in any order.
        words: the stems that the question looks for.
    """
    asked = informative(words)
    stated = [_bearing(statements(text), asked) for _, _, text in said]
    most = max((len((one.words | one.gone) & asked) for each in stated for one in each), default=0)
    newest: dict[int, int] = {}
    order = sorted((index for index in range(len(said)) if stated[index]), key=lambda index: said[index].order)
    for number, old in reversed(list(enumerate(order))):
        for new in order[number + 1 :]:
            if said[new].speaker != said[old].speaker or said[new].order == said[old].order:
                continue
            if newest.get(old, -1) == newest.get(new, new):
                continue
            if any(_replaces(b, a, asked, most) for a in stated[old] for b in stated[new]):
                last = newest.get(new, new)
                if old not in newest or said[last].order > said[newest[old]].order:
                    newest[old] = last
    return newest


def _bearing(said: Sequence[Statement], asked: frozenset[str]) -> Sequence[Statement]:
    """Return the statements that bear on a question; of a message of few sentences, all."""
    return said if len(said) <= FEW else [one for one in said if not asked.isdisjoint(one.words | one.gone)]


def _replaces(new: Statement, old: Statement, asked: frozenset[str], most: int) -> bool:
    """Return whether a newer statement replaces an older one of the same speaker."""
    if not (new.changes or (new.lasts and (old.lasts or old.was))) or not _differ(new, old):
        return False
    if new.owners != old.owners or new.labels != old.labels or (new.heads - old.words and old.heads - new.words):
        return False
    common = old.words & (new.words | new.gone)
    if new.changes and new.words & asked and 2 * len(new.gone & old.words) >= len(old.words):
        return True
    bears = len((old.words | old.gone) & asked), len((new.words | new.gone) & asked)
    if min(bears) * 2 < most or _about_another_thing(new, old, asked):
        return False
    gone = bool(new.gone & (old.words | old.figures))
    if new.changes and ((gone and common) or _alternatives(new, old, asked)):
        return True
    happened = not (old.lasts or old.was)
    if not common & asked or (happened and len(common) < 2):
        return False
    if old.of_self and not new.of_self and len(common) < 2 and not common & old.nouns & new.nouns:
        return False
    if new.changes:
        return 2 * len(common & asked) >= min(bears)
    return 2 * len(common & asked) > max(bears) and _one_value_differs(new, old, common)


def _alternatives(new: Statement, old: Statement, asked: frozenset[str]) -> bool:
    """Return whether the question names the values of both, as "am I vegan or vegetarian?" does."""
    short = max(len(new.words), len(old.words)) <= SHORT
    return short and bool((new.words - old.words) & asked and (old.words - new.words) & asked)


def _differ(new: Statement, old: Statement) -> bool:
    """Return whether two statements give other values, or one denies what the other says."""
    if new.gone & old.words or new.negated != old.negated:
        return True
    pairs = ((new.figures, old.figures), (new.names, old.names), (new.terms, old.terms))
    return any(one - other and other - one for one, other in pairs)


def _about_another_thing(new: Statement, old: Statement, asked: frozenset[str]) -> bool:
    """Return whether the older one is about something that the question names and the newer one replaces by another."""
    held = new.words | new.gone
    nouns = old.nouns & asked - held and new.nouns - old.words
    return bool(nouns or (old.names & asked - held and new.names - old.words))


def _one_value_differs(new: Statement, old: Statement, common: frozenset[str]) -> bool:
    """Return whether two statements are the same but for one value."""
    figures = bool(new.figures and old.figures and new.figures != old.figures)
    names = bool(new.names - old.names and old.names - new.names)
    if figures and names:
        return False
    least = min(len(new.words), len(old.words))
    near = len(common) * 2 >= least - (0 if figures else 1)
    return near and len(new.terms - common) <= MOST_LEFT and len(old.terms - common) <= MOST_LEFT


def newest_first(
    ranks: Sequence[int], replaced: Mapping[int, int], order: Mapping[int, int], history: History | None
) -> list[int]:
    """Return results with the newest of what replaces each other where the best of them stands.

    For a question about what was before, all of them stand there: the older ones first, and the newest last.

    Args:
        ranks: the results, best first.
        replaced: those that are replaced, each with the newest that replaces it, which need not be a result.
        order: of each, when it was said; the newer, the larger.
        history: see `asks_history`.
    """
    groups: dict[int, set[int]] = {}
    for old, new in replaced.items():
        groups.setdefault(new, {new}).add(old)
    result = list(ranks)
    for newest, members in groups.items():
        there = [rank for rank in result if rank in members]
        by_age = sorted(there, key=lambda rank: order[rank])
        if history is None:
            first = by_age[-1:]
        else:
            older = [rank for rank in by_age if rank != newest]
            first = [*(older if history == "beginning" else reversed(older)), *by_age[len(older) :]]
        at = result.index(there[0]) if there else 0
        rest = [rank for rank in result[at:] if rank not in first]
        result = [*result[:at], *first, *rest]
    return result
