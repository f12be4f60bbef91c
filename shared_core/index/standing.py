"""Find standing facts in what a user says: preferences, allergies, diets, roles, constraints and instructions; pure."""

import hashlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

from shared_core.index.standing_english import ENGLISH
from shared_core.index.standing_rules import TASKS, Language, Rule, StandingKind
from shared_core.index.text import terms

LANGUAGES: tuple[Language, ...] = (ENGLISH,)
"""The languages whose rules are applied, one after the other."""

LOOKED_AT = 4_000
"""Characters of a message that are read. What people paste behind them is seldom about themselves."""

OF_ITS_OWN = 160
"""Characters of a message that holds nothing besides a wish, at most."""

QUOTED = 20
"""A statement that quotes within so many characters of its beginning says what somebody else says."""

LONGEST_STATEMENT = 160
"""Characters of a statement at most."""

MOST_STATEMENTS = 8
"""Statements of one message at most: a longer list is a document."""

BETWEEN_ORDERS = 6
"""Characters between two orders of one sentence at most, as in "Be brief and always use metric units"."""

_NOT_SAID = re.compile(
    r"```.*?(?:```|\Z)|~~~.*?(?:~~~|\Z)|`[^`\n]*`|^[ \t]*>[^\n]*$"
    r"|\"[^\"\n]*\"|\u201c[^\u201c\u201d\n]*+\u201d|\u00ab[^\u00ab\u00bb\n]*+\u00bb",
    re.DOTALL | re.MULTILINE,
)
"""Matches code and quotes, which are not the user's own words."""

_SENTENCE_END = re.compile(r"[.!?\n](?=\s|$)|\n")
_WORD = re.compile(r"[^\W_](?:[\w'-]*\w)?|[\u25a1]")
_BOX = "\u25a1"
"""Stands for a character of code or of a quote."""


@dataclass(frozen=True, slots=True)
class Statement:
    """A standing fact in a text.

    Attributes:
        kind: what kind of fact it is.
        subject: what it is about, as stems: of two facts of one kind about the same, the newer one holds.
        start, end: its offsets in the text.
        tasks: the kinds of task it bears on, a bit for each of `TASKS`.
        conditional: whether it holds only where its words are asked for: "… when I ask about libraries".
        words: the stems of what it is about; if it is conditional, of its condition.
    """

    kind: StandingKind
    subject: str
    start: int
    end: int
    tasks: int
    conditional: bool
    words: frozenset[str]

    def code(self, speaker: str | None) -> int:
        """Return a 64-bit code that is equal for facts of one kind and subject that one speaker says."""
        key = "\0".join((self.kind, self.subject, speaker or ""))
        digest = hashlib.blake2b(key.encode("utf-8", "surrogatepass"), digest_size=8).digest()
        return int.from_bytes(digest, "little", signed=True)


class _Rules(NamedTuple):
    """The rules of a language, compiled."""

    language: Language
    rules: tuple[tuple[Rule, re.Pattern[str]], ...]
    clause: re.Pattern[str]
    ends: re.Pattern[str]
    supposes: re.Pattern[str]
    condition: re.Pattern[str]
    hints: tuple[str, ...]
    starts: frozenset[str]
    lead_ins: frozenset[str]
    light: frozenset[str]
    verbs: frozenset[str]
    generic: frozenset[str]
    subjects: tuple[tuple[re.Pattern[str], str], ...]


@cache
def _compiled() -> tuple[_Rules, ...]:
    return tuple(map(_compile, LANGUAGES))


def _compile(language: Language) -> _Rules:
    def pattern(text: str, *, case: bool = False) -> re.Pattern[str]:
        return re.compile(text, 0 if case else re.IGNORECASE)

    return _Rules(
        language,
        tuple((rule, pattern(rule.pattern.format(**language.words), case=rule.case)) for rule in language.rules),
        pattern(language.clause),
        pattern(language.ends),
        pattern(language.supposes),
        pattern(language.condition),
        tuple(language.hints.split("|")),
        frozenset(language.starts.split()),
        frozenset(language.lead_ins.split()),
        frozenset(language.light.split()),
        frozenset(terms(language.verbs)),
        frozenset(terms(language.generic)),
        tuple((pattern(found), name) for found, name in language.subjects.items()),
    )


def task_bits(words: frozenset[str]) -> int:
    """Return the kinds of task that some stems name, a bit for each of `TASKS`."""
    named = _task_words()
    bits = 0
    for word in words:
        bits |= named.get(word, 0)
    return bits


@cache
def _task_words() -> dict[str, int]:
    found: dict[str, int] = {}
    for language in LANGUAGES:
        for task, words in language.tasks.items():
            for word in terms(words):
                found[word] = found.get(word, 0) | bit(task)
    return found


@cache
def bit(task: str) -> int:
    """Return the bit of a kind of task."""
    return 1 << TASKS.index(task)


def statements(text: str) -> list[Statement]:
    """Return the standing facts in a user's message, in order.

    Code, quotes, questions and what is only supposed are no standing facts.
    """
    said = text[:LOOKED_AT].replace("\u2019", "'")
    found: list[Statement] = []
    for rules in _compiled():
        if hints := _hints(said, rules.hints):
            said = _NOT_SAID.sub(lambda match: re.sub(r"[^\n]", _BOX, match[0]), said)
            found += _found(said, rules, hints)
    return found[:MOST_STATEMENTS]


def _found(said: str, rules: _Rules, hints: Sequence[str]) -> Iterator[Statement]:
    """Yield what the rules of one language find."""
    taken = 0
    for first, last in _sentences(said):
        sentence = said[first:last]
        if not _hints(sentence, hints) or rules.supposes.match(sentence):
            continue
        for start, joined in _beginnings(sentence, rules):
            if first + start < taken:
                continue
            # "They help and always make us smile" orders nothing, but an order may follow another one.
            free = not joined or 0 < first + start - taken <= BETWEEN_ORDERS
            statement = _stated(said, first + start, last, rules, orders=free)
            if statement is not None and not _supposed(sentence[:start], rules):
                yield statement
                taken = statement.end


def _hints(said: str, hints: Sequence[str]) -> list[str]:
    """Return which hints a text holds."""
    folded = said.lower()
    return [hint for hint in hints if hint in folded]


def _sentences(said: str) -> Iterator[tuple[int, int]]:
    """Yield where each sentence begins and ends, its mark included."""
    start = 0
    for match in _SENTENCE_END.finditer(said):
        yield start, match.end()
        start = match.end()
    if start < len(said):
        yield start, len(said)


def _beginnings(sentence: str, rules: _Rules) -> Iterator[tuple[int, bool]]:
    """Yield the offsets at which a statement may begin: after a clause's beginning and each of its lead-in words.

    With each, whether a conjunction alone joins its clause to the one before.
    """
    for offset in _after_lead_ins(sentence, 0, rules):
        yield offset, False
    for match in rules.clause.finditer(sentence):
        joined = match[0][0].isalpha() and sentence[: match.start()].rstrip()[-1:].isalnum()
        for offset in _after_lead_ins(sentence, match.end(), rules):
            yield offset, joined


def _after_lead_ins(sentence: str, offset: int, rules: _Rules) -> Iterator[int]:
    while (found := _WORD.search(sentence, offset)) is not None:
        word = found[0].lower()
        if word in rules.starts:
            yield found.start()
        if word not in rules.lead_ins:
            return
        offset = found.end()


def _supposed(before: str, rules: _Rules) -> bool:
    return rules.supposes.search(before) is not None


def _stated(said: str, start: int, last: int, rules: _Rules, *, orders: bool) -> Statement | None:
    """Return the statement that begins at an offset, if any; `last` is where its sentence ends."""
    for rule, pattern in rules.rules:
        match = pattern.match(said, start, last)
        if match is None:
            continue
        if not rule.lasting and len(said) > OF_ITS_OWN:
            continue
        condition = _condition(match, last, rules)
        if condition is not None and rule.kind != "instruction":
            continue
        if condition is None and rule.kind == "instruction" and not orders:
            continue
        end = _end(rule.kind, match, condition, last, rules)
        asked = said[start:last].rstrip().endswith("?") and end >= last - 1
        if asked or _BOX in said[start : start + QUOTED]:
            continue
        return _statement(rule, match, said[start:end].rstrip(" ,;:.!"), condition, rules)
    return None


def _condition(match: re.Match[str], last: int, rules: _Rules) -> tuple[int, int, int] | None:
    """Return where an instruction's condition begins, where what it is about begins, and where it ends, if known."""
    if "condition" in match.re.groupindex:
        return match.start(), *match.span("condition")
    found = rules.condition.search(match.string, match.start(), last)
    return None if found is None else (found.start(), found.end(), last)


def _end(
    kind: StandingKind, match: re.Match[str], condition: tuple[int, int, int] | None, last: int, rules: _Rules
) -> int:
    """Return where a statement ends: at the next clause that goes on with something else."""
    start, said = match.start(), match.string
    if kind == "name":
        return match.end()
    least = match.start("what") + 1 if "what" in match.re.groupindex else match.end()
    if condition is not None:
        least = max(least, min(condition[1] + 1, last))
    ending = rules.ends.search(said, least, last)
    end = ending.start() if ending is not None else last
    if end - start > LONGEST_STATEMENT:
        space = said.rfind(" ", least, start + LONGEST_STATEMENT)
        end = space if space > 0 else start + LONGEST_STATEMENT
    return end


def _statement(
    rule: Rule, match: re.Match[str], text: str, condition: tuple[int, int, int] | None, rules: _Rules
) -> Statement | None:
    start, said = match.start(), match.string
    end, groups = start + len(text), match.re.groupindex
    phrase = said[match.start("what") : end] if "what" in groups else ""
    if condition is not None:
        if condition[0] > start:
            phrase = said[match.start("what") : condition[0]]
        words = frozenset(terms(said[condition[1] : min(condition[2], end)])) - rules.generic
    else:
        words = frozenset(terms(f"{match['about']} {phrase}" if "about" in groups else phrase)) - rules.generic
    if rule.kind == "instruction" and condition is None:
        words -= rules.verbs
    if "what" in groups and not terms(phrase):
        return None
    tasks = task_bits(words)
    for task in rule.tasks:
        tasks |= bit(task)
    about = [rule.about or _subject(rule, phrase, text, rules, match)]
    about += sorted(terms(match["who"])) if "who" in groups and match["who"] else []
    about += ["|", *sorted(words)] if condition is not None else []
    return Statement(rule.kind, " ".join(about), start, end, tasks, condition is not None, words)


def _subject(rule: Rule, phrase: str, text: str, rules: _Rules, match: re.Match[str]) -> str:
    for pattern, name in rules.subjects:
        if pattern.search(text):
            return name
    if "about" in match.re.groupindex:
        return " ".join(sorted(terms(match["about"])))
    if rule.subject == "phrase" or not phrase:
        return " ".join(sorted(terms(phrase or text)))
    return _head(phrase, rules)


_OVER = re.compile(r"\s(?:over|to|rather than|instead of|than|versus|vs\.?)\s", re.IGNORECASE)
_AFTER_HEAD = re.compile(
    r"[,;:(]|\s(?:for|with|in|on|at|of|by|due|from|that|which|who|when|where|because|over|to|rather|instead|than|versus"
    r"|now|again|too|as|and|or|like|such|these|during|after|before|since|without|if)(?=\s|$)",
    re.IGNORECASE,
)


def _head(phrase: str, rules: _Rules) -> str:
    """Return the stem of the last noun of a phrase; of "X over Y", those of both, so that "Y over X" replaces it."""
    sides = _OVER.split(phrase, maxsplit=1)
    stems = [_last_noun(side, rules) for side in sides]
    return " ".join(sorted(stem for stem in stems if stem))


def _last_noun(phrase: str, rules: _Rules) -> str:
    words = re.findall(r"[\w'\u2019-]+|[,;:(]", phrase)
    while words and words[0].lower() in rules.light:
        words = words[1:]
    text = " ".join(words)
    if words and words[0].lower().endswith("ing") and len(words) > 1:
        return " ".join(sorted(terms(text)))  # "working at night": its last noun alone says too little
    cut = _AFTER_HEAD.search(" " + text)
    noun = list(terms(text[: cut.start()] if cut is not None and cut.start() > 0 else text))
    return noun[-1] if noun else ""
