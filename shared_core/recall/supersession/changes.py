"""Which messages newer ones replace: statements about the same thing with another value; pure."""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from shared_core.index.standing_facts import StatedFact, facts_in, task_bits
from shared_core.recall.supersession.clauses import LONGEST, bearing, statements
from shared_core.recall.supersession.former_values import History
from shared_core.recall.supersession.likeness import LONGEST_FRAME, Asked, alike
from shared_core.recall.supersession.statements import (
    CHANGE,
    KNOWN_TEXTS,
    Statement,
    may_be_replaced,
    may_say_so,
    statement,
)

MOST_JUDGED = 40
"""Of so many of the best results it is judged which replace which."""

SHORT = 2
"""Informative words of a statement that gives little but a value, such as "I eat vegan"."""

LONGEST_CORRECTION = 48
"""Characters of a message that names nothing but a value, such as "sorry, I meant 3,200" and "no wait, Tuesday"."""

_CORRECTION_BEGINS = re.compile(
    r"(?:(?:oh|ah|oops|sorry|no|wait|hang on|actually|correction|i mean|i meant|i meant to say|make (?:that|it)"
    r"|rather|scratch that|my mistake|it's|it is|that's)\b[\s,:.!\u2014-]*)+",
    re.IGNORECASE,
)
_CORRECTS = re.compile(
    r"sorry|oops|wait|hang on|correction|i mean|make (?:that|it)|scratch that|my mistake", re.IGNORECASE
)

MOST_CORRECTED_WORDS = 3
"""Words of the value that such a message names, at most."""


class Said(NamedTuple):
    """A message that may state something.

    Attributes:
        speaker: who said it, by role and name; statements of different speakers never replace each other.
        order: the newer, the larger.
        text: what was said.
        turn: the number of its turn, if it is one of this conversation.
    """

    speaker: tuple[str, str | None]
    order: int
    text: str
    turn: int | None = None


def superseded(said: Sequence[Said], words: Collection[str], question: str = "") -> dict[int, int]:
    """Return the index of each message that is replaced, with that of the newest message that replaces it.

    Only sentences that hold the words of the question count, and only those that hold about as many as the best do.

    Args:
        said: the messages, in any order.
        words: the stems that the question looks for.
        question: its text, which may name the value that it asks about.
    """
    asked = _asked(said, words, question)
    stated = _stated(said, asked) if asked.about_one_thing else {}
    most = max((len(_about(one, asked)) for each in stated.values() for one in each), default=0)
    newest: dict[int, int] = {}
    for old, new in _likely_pairs(said, stated, asked, most):
        if newest.get(old, -1) == newest.get(new, new):
            continue
        pairs = [(b, a) for a in stated[old] for b in stated[new]]
        if any(_replaces(b, a, asked, most) for b, a in pairs):
            last = newest.get(new, new)
            if old not in newest or said[last].order > said[newest[old]].order:
                newest[old] = last
    return _restated(said, asked) | newest | _corrected(said, stated, newest)


def restated(codes: npt.NDArray[np.int64], newer: Collection[int] = ()) -> npt.NDArray[np.bool_]:
    """Return which standing facts a newer one replaces: one of the same kind about the same thing.

    Args:
        codes: the code of each fact, oldest first: the same code for the same kind and thing.
        newer: the codes of what is said after all of them.
    """
    _, last = np.unique(codes[::-1], return_index=True)
    holds = np.zeros(len(codes), dtype=np.bool_)
    holds[len(codes) - 1 - last] = True
    return ~holds | np.isin(codes, np.array(list(newer), dtype=np.int64))


class _Told(NamedTuple):
    """A standing fact in one of some messages: its code, the number of its message, and what it says."""

    code: int
    message: int
    says: tuple[frozenset[str], frozenset[str], bool]


def _restated(said: Sequence[Said], asked: Asked) -> dict[int, int]:
    """Return which messages state a fact that bears on a question and that a newer one states otherwise."""
    told: list[_Told] = []
    for index in sorted(range(len(said)), key=lambda index: said[index].order):
        (role, name), text = said[index].speaker, said[index].text
        for fact, state in _facts(text) if role == "user" else ():
            if fact.tasks & task_bits(asked.words) or not asked.words.isdisjoint(fact.words | state.held):
                says = state.words | state.figures, state.gone, state.negated
                told.append(_Told(fact.code(name), index, says))
    if len(told) < 2:
        return {}
    replaced = restated(np.array([one.code for one in told], dtype=np.int64))
    newest = {one.code: one for one in told}
    pairs = [(one, newest[one.code]) for one, gone in zip(told, replaced.tolist(), strict=True) if gone]
    return {old.message: new.message for old, new in pairs if old.says != new.says and old.message != new.message}


@lru_cache(maxsize=KNOWN_TEXTS)
def _facts(text: str) -> tuple[tuple[StatedFact, Statement], ...]:
    """Return the standing facts in a message, each with what it states."""
    facts = [(fact, statement(text[fact.start : fact.end])) for fact in facts_in(text)]
    return tuple((fact, state) for fact, state in facts if state is not None)


def _corrected(
    said: Sequence[Said], stated: Mapping[int, Sequence[Statement]], newest: Mapping[int, int]
) -> dict[int, int]:
    """Return what corrections without a subject replace: the statement just before, and what that one replaces."""
    found: dict[int, int] = {}
    for index, one in enumerate(said):
        value = correction(one.text) if one.turn is not None else None
        before = [other for other in stated if value and _just_before(said[other], one)]
        old = max(before, key=lambda other: said[other].order, default=None)
        if value and old is not None and any(value.is_of_kind_of(state) for state in stated[old]):
            found |= {other: index for other, new in newest.items() if new == old} | {old: index}
    return found


def _just_before(old: Said, new: Said) -> bool:
    """Return whether a message is of the same speaker, in the same turn or the one before."""
    if old.speaker != new.speaker or old.order >= new.order or old.turn is None or new.turn is None:
        return False
    return new.turn - old.turn <= 1


def _asked(said: Sequence[Said], words: Collection[str], question: str) -> Asked:
    return Asked.by(question, frozenset(words), frozenset(one.speaker[1] for one in said if one.speaker[1]))


def states(said: Sequence[Said], words: Collection[str], question: str) -> bool:
    """Return whether a message states something that bears on a question, in as few words as what may be replaced."""
    asked = _asked(said, words, question)
    if not asked.about_one_thing:
        return False
    bears = (sentence for one in said if _may_state(one) for sentence in bearing(one.text, asked.hints, asked.least))
    likely = (statement(sentence) for sentence in bears if may_be_replaced(sentence))
    return any(one and 3 * asked.share(one.held) >= 1 and len(one.tokens) <= LONGEST_FRAME for one in likely)


def _stated(said: Sequence[Said], asked: Asked) -> dict[int, tuple[Statement, ...]]:
    """Return what the messages state that bears on a question, of those that state something."""
    found: dict[int, tuple[Statement, ...]] = {}
    sentences = {
        index: bearing(one.text, asked.hints, asked.least) for index, one in enumerate(said) if _may_state(one)
    }
    by_speaker: dict[tuple[str, str | None], list[int]] = {}
    for index, bears in sentences.items():
        if bears:
            by_speaker.setdefault(said[index].speaker, []).append(index)
    for own in by_speaker.values():
        compared = len(own) > 1 or any(one.turn is not None and correction(one.text) for one in said)
        if compared and any(may_say_so(one) for index in own for one in sentences[index]):
            for index in own:
                read = statements(said[index].text, asked.hints, asked.least, asked.words)
                found[index] = tuple(one for one in read if _about(one, asked))
    return {index: held for index, held in found.items() if held}


def _likely_pairs(
    said: Sequence[Said], stated: Mapping[int, Sequence[Statement]], asked: Asked, most: int
) -> Iterator[tuple[int, int]]:
    """Yield pairs of an older and a newer message of one speaker that share a word of the question, the newest first.

    Of most messages it is known without a comparison that they replace nothing.
    """
    by_speaker: dict[tuple[str, str | None], list[int]] = {}
    for index in sorted(stated, key=lambda index: said[index].order):
        by_speaker.setdefault(said[index].speaker, []).append(index)
    for own in by_speaker.values():
        about = {index: frozenset().union(*(_about(one, asked) for one in stated[index])) for index in own}
        tells = [index for index in own if any(_says_so(one, asked) for one in stated[index])]
        bears = {index for index in own if any(2 * len(_about(one, asked)) >= most for one in stated[index])}
        for old in reversed(own):
            for new in tells:
                apart = about[old].isdisjoint(about[new]) and not asked.either
                if said[new].order > said[old].order and not apart and (old in bears or new in bears):
                    yield old, new


def _about(one: Statement, asked: Asked) -> frozenset[str]:
    """Return which words of a question a statement holds, be they figures, as in "what do we eat on Sunday?"."""
    return (one.held | one.figures if asked.figures else one.held) & asked.words


def _says_so(one: Statement, asked: Asked) -> bool:
    """Return whether a statement may replace another one: it says what is so, or what has changed."""
    return (one.lasts or one.changes > 0) and not (
        asked.words.isdisjoint(one.words) and asked.words.isdisjoint(one.figures)
    )


def _may_state(said: Said) -> bool:
    """Return whether a message may tell what is so. Long answers of a model explain and advise."""
    return said.speaker != ("assistant", None) or len(said.text) <= LONGEST


def _replaces(new: Statement, old: Statement, asked: Asked, most: int) -> bool:
    """Return whether a newer statement replaces an older one of the same speaker."""
    if not _says_so(new, asked):
        return False
    given = asked.figures and new.figures & old.figures & asked.words
    if given:  # what both statements and the question name is no value
        new = replace(new, terms=new.terms | given, figures=new.figures - given)
        old = replace(old, terms=old.terms | given, figures=old.figures - given)
    if asked.either and _chosen(new, old, asked.words):
        return True
    if _asks_for_label(new, old, asked):
        new = replace(new, labels=frozenset(), figures=new.figures | new.labels - new.gone)
        old = replace(old, labels=frozenset(), figures=old.figures | old.labels - old.gone)
    same = alike(new, old, asked) and _says_otherwise(new, old, asked, most)
    return same and not asked.names_value_of(old, new)


def _says_otherwise(new: Statement, old: Statement, question: Asked, most: int) -> bool:
    """Return whether a newer statement gives another value of what an older one is about."""
    asked = question.words
    if _of_something_else(new, old, question) or not (new.changes or old.lasts or old.was):
        return False
    common = old.words & new.held
    bears = len(old.held & asked), len(new.held & asked)
    if new.gone & _value(old, asked) and (common & asked or not old.words & asked):
        return True
    if new.changes and _told_by_values(new, old, asked):
        return True
    if min(bears) * 2 < most or not common & asked or 2 * len(common & asked) < (min if new.changes else max)(bears):
        return False
    happened = not (old.lasts or old.was or old.changes == CHANGE)
    if happened and not new.lasts and new.changes < CHANGE:  # two events
        return False
    if happened and not (new.changes and common >= old.words & asked and (new.changes == CHANGE or common & new.nouns)):
        return False
    return len(common) > 1 or not old.of_self or new.of_self or bool(common & old.nouns & new.nouns)


def _value(old: Statement, asked: frozenset[str]) -> frozenset[str]:
    """Return what a statement says about what is asked for."""
    return (old.words | old.figures) - asked or old.words


def _told_by_values(new: Statement, old: Statement, asked: frozenset[str]) -> bool:
    """Return whether two short statements about the speaker give values of one kind in other words.

    "I drive a Volvo" and "my new car is a Tesla" do, if the question is "which car do I drive?".
    """
    bear = asked >= new.terms and asked >= old.terms and bool(old.words & asked)
    return bear and new.of_self and old.of_self and bool(new.names - old.names and old.names)


def _chosen(new: Statement, old: Statement, asked: frozenset[str]) -> bool:
    """Return whether a question names the values of two short statements about the speaker."""
    if not (new.of_self and old.of_self and max(len(new.words), len(old.words)) <= SHORT):
        return False
    return bool((new.words - old.words) & asked and (old.words - new.words) & asked)


def _of_something_else(new: Statement, old: Statement, question: Asked) -> bool:
    """Return whether two statements are about different persons or things, as far as their grammar tells."""
    if (
        new.owners - old.names - old.owners - question.words
        or old.owners - new.names - new.owners - question.words
        or new.labels != old.labels
        or _of_another_person(new, old, question)
        or (new.heads - old.words and old.heads - new.words)
    ):
        return True
    held, asked = new.words | new.gone, question.words
    nouns = (old.nouns & asked - held and new.nouns - old.words) or (
        new.nouns & question.core - old.held and old.nouns - new.held - asked
    )
    names = old.names & asked - question.plain - held and new.names - old.words and not old.names & new.names & asked
    return bool(nouns or names)


def _asks_for_label(new: Statement, old: Statement, question: Asked) -> bool:
    """Return whether a question asks which one of a kind something is, as in "which draft does the editor have?"."""
    return bool(new.changes and (new.labels or old.labels) and question.kinds & new.words & old.words)


def _of_another_person(new: Statement, old: Statement, question: Asked) -> bool:
    """Return whether a question is about the speaker, and one of two statements about somebody or something else."""
    if not question.of_self:
        return False
    pairs = ((one, other) for one, other in ((new, old), (old, new)) if not one.of_self)
    return any(other.of_self and (one.agents | one.heads) - other.words - question.words for one, other in pairs)


def newest_first(
    ranks: Sequence[int], replaced: Mapping[int, int], order: Mapping[int, int], history: History | None
) -> list[int]:
    """Return results with the newest of what replaces each other where the best of them stands.

    For a question about what was before, all of them stand there: the older ones first, and the newest last.

    Args:
        ranks: the results, best first.
        replaced: those that are replaced, each with the newest that replaces it, which need not be a result.
        order: of each, when it was said; the newer, the larger.
        history: which time a question asks for, if it asks what was so.
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


class Correction(NamedTuple):
    """The value that a correction names: figures of some kind, or names."""

    figures: frozenset[str]
    names: frozenset[str]

    def is_of_kind_of(self, other: Statement) -> bool:
        """Return whether a statement has another value of the same kind."""
        if self.figures:
            numbers = {figure[-1].isdigit() for figure in self.figures}
            return bool(other.figures - self.figures) and numbers <= {figure[-1].isdigit() for figure in other.figures}
        return bool(self.names and other.names - self.names)


def correction(text: str) -> Correction | None:
    """Return the value that a message names which does nothing but correct one; None: it is no such message."""
    begins = _CORRECTION_BEGINS.match(text) if len(text) <= LONGEST_CORRECTION else None
    if begins is None or not _CORRECTS.search(begins[0]):
        return None
    said = text[begins.end() :].strip(" .!")
    if not said or len(said.split()) > MOST_CORRECTED_WORDS:
        return None
    stated = statement(f"it is {said}")
    if stated is None or stated.terms or not (stated.figures or stated.names):
        return None
    return Correction(stated.figures, stated.names)
