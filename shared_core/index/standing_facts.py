"""Standing facts in what a user says: the rules find preferences, allergies, diets and so on; columns keep them."""

import hashlib
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from shared_core.index.arrays import GrowingArray
from shared_core.index.postings import Postings
from shared_core.index.removal import move_up
from shared_core.index.standing_rules import KINDS, TASKS, Rule, StandingKind, StandingRules
from shared_core.index.standing_rules_english import ENGLISH_RULES
from shared_core.index.standing_rules_others import OTHER_RULES
from shared_core.index.text import terms
from shared_core.languages.detection import LANGUAGES
from shared_core.languages.english import ENGLISH
from shared_core.languages.language import Language

RULES: tuple[StandingRules, ...] = (ENGLISH_RULES, *OTHER_RULES)
"""The rules of each language; English ones are applied to every text, because a short one hardly tells its language."""

LOOKED_AT = 4_000
"""Characters of a message that are read. What people paste behind them is seldom about themselves."""

OF_ITS_OWN = 160
"""Characters of a message that holds nothing besides a wish, at most."""

QUOTED = 20
"""A statement that quotes within so many characters of its beginning says what somebody else says."""

LONGEST_STATEMENT = 160
"""Characters of a statement at most."""

MOST_FACTS = 8
"""Facts of one message at most: a longer list is a document."""

BETWEEN_ORDERS = 6
"""Characters between two orders of one sentence at most, as in "Be brief and always use metric units"."""

GREETING = 6
"""Characters before a sentence that may tell what it states: "Hello! I'm Bob"."""

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
class StatedFact:
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

    stems: Callable[[str], Counter[str]]
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
def _rules_of(language: Language) -> tuple[_Rules, ...]:
    """Return the rules for texts in a language, compiled."""
    return tuple(_compile(rules) for rules in RULES if rules.language in (ENGLISH.code, language.code))


def _compile(language: StandingRules) -> _Rules:
    stems = partial(terms, language=next(one for one in LANGUAGES if one.code == language.language))

    def pattern(text: str, *, case: bool = False) -> re.Pattern[str]:
        return re.compile(text, 0 if case else re.IGNORECASE)

    return _Rules(
        stems,
        tuple((rule, pattern(rule.pattern.format(**language.words), case=rule.case)) for rule in language.rules),
        pattern(language.clause),
        pattern(language.ends),
        pattern(language.supposes),
        pattern(language.condition),
        tuple(language.hints.split("|")),
        frozenset(language.starts.split()),
        frozenset(language.lead_ins.split()),
        frozenset(language.light.split()),
        frozenset(stems(language.verbs)),
        frozenset(stems(language.generic)),
        tuple((pattern(found), name) for found, name in language.subjects.items()),
    )


@cache
def rules_digest() -> str:
    """Return a hash of the rules, so that what other rules found in a message is found again."""
    return hashlib.blake2b(repr(RULES).encode(), digest_size=8).hexdigest()


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
    for language in RULES:
        for task, words in language.tasks.items():
            for word in terms(words):
                found[word] = found.get(word, 0) | bit(task)
    return found


@cache
def bit(task: str) -> int:
    """Return the bit of a kind of task."""
    return 1 << TASKS.index(task)


def facts_in(text: str, language: Language = ENGLISH) -> list[StatedFact]:
    """Return the standing facts in a user's message, in order.

    Code, quotes, questions and what is only supposed are no standing facts.

    Args:
        text: the message.
        language: the language it is in.
    """
    said = text[:LOOKED_AT].replace("\u2019", "'")
    found: list[StatedFact] = []
    for rules in _rules_of(language):
        if hints := _hints(said, rules.hints):
            said = _NOT_SAID.sub(lambda match: re.sub(r"[^\n]", _BOX, match[0]), said)
            found += _found(said, rules, hints)
    return found[:MOST_FACTS]


def _found(said: str, rules: _Rules, hints: Sequence[str]) -> Iterator[StatedFact]:
    """Yield what the rules of one language find."""
    taken = 0
    for first, last in _sentences(said):
        sentence = said[first:last]
        if not _hints(said[max(first - GREETING, 0) : last], hints) or rules.supposes.match(sentence):
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


def _stated(said: str, start: int, last: int, rules: _Rules, *, orders: bool) -> StatedFact | None:
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
) -> StatedFact | None:
    start, said = match.start(), match.string
    end, groups = start + len(text), match.re.groupindex
    phrase = said[match.start("what") : end] if "what" in groups else ""
    words = frozenset[str]()
    if condition is not None:
        if condition[0] > start:
            phrase = said[match.start("what") : condition[0]]
        words = frozenset(rules.stems(said[condition[1] : min(condition[2], end)])) - rules.generic
    conditional = bool(words)  # "when I ask" alone is no condition
    if not conditional:
        words = frozenset(rules.stems(f"{match['about']} {phrase}" if "about" in groups else phrase)) - rules.generic
    if rule.kind == "instruction" and not conditional:
        words -= rules.verbs
    if "what" in groups and not rules.stems(phrase):
        return None
    tasks = task_bits(words)
    for task in rule.tasks:
        tasks |= bit(task)
    about = [rule.about or _subject(rule, phrase, text, rules, match)]
    about += sorted(rules.stems(match["who"])) if "who" in groups and match["who"] else []
    about += ["|", *sorted(words)] if conditional else []
    return StatedFact(rule.kind, " ".join(about), start, end, tasks, conditional, words)


def _subject(rule: Rule, phrase: str, text: str, rules: _Rules, match: re.Match[str]) -> str:
    for pattern, name in rules.subjects:
        if pattern.search(text):
            return name
    if "about" in match.re.groupindex:
        return " ".join(sorted(rules.stems(match["about"])))
    if rule.subject == "phrase" or not phrase:
        return " ".join(sorted(rules.stems(phrase or text)))
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
        return " ".join(sorted(rules.stems(text)))  # "working at night": its last noun alone says too little
    cut = _AFTER_HEAD.search(" " + text)
    noun = list(rules.stems(text[: cut.start()] if cut is not None and cut.start() > 0 else text))
    return noun[-1] if noun else ""


FACT_COLUMNS = {
    "rows": np.int32,
    "kinds": np.int8,
    "tasks": np.int32,
    "conditional": np.bool_,
    "codes": np.int64,
    "starts": np.int32,
    "ends": np.int32,
}

WORDS = "words "
"""Begins the names of a snapshot's arrays that hold the words of the facts."""


class StandingFacts:
    """The standing facts of a session as columns, numbered from 0 in the order of their messages.

    `words` holds the stems of what each is about, by its number.
    """

    def __init__(self) -> None:
        self.words = Postings()
        self._columns: dict[str, GrowingArray[Any]] = {
            name: GrowingArray(dtype) for name, dtype in FACT_COLUMNS.items()
        }

    def __len__(self) -> int:
        return len(self._columns["rows"])

    @property
    def nbytes(self) -> int:
        """About how many bytes they take in memory."""
        return self.words.nbytes + sum(column.nbytes for column in self._columns.values())

    def column(self, name: str) -> npt.NDArray[Any]:
        """Return one of `FACT_COLUMNS`, with a value per fact."""
        return self._columns[name].values

    def add(self, row: int, speaker: str | None, facts: Iterable[StatedFact]) -> None:
        """Append the facts of a message. Rows must ascend."""
        for said in facts:
            self.words.add(len(self), dict.fromkeys(said.words, 1))
            values = {
                "rows": row, "kinds": KINDS.index(said.kind), "tasks": said.tasks, "conditional": said.conditional,
                "codes": said.code(speaker), "starts": said.start, "ends": said.end,
            }  # fmt: skip
            for name, value in values.items():
                self._columns[name].extend([value])

    def without(self, gone: npt.NDArray[np.int32]) -> "StandingFacts":
        """Return the facts without those of some messages, given by their rows, ascending."""
        facts = np.flatnonzero(np.isin(self.column("rows"), gone))
        left = StandingFacts()
        left.words = self.words.without(facts)
        left._columns = {name: column.without(facts) for name, column in self._columns.items()}
        move_up(left._columns["rows"].values, gone)
        return left

    def arrays(self) -> dict[str, npt.NDArray[np.generic]]:
        """Return the facts as plain arrays for a snapshot."""
        return {name: self.column(name) for name in FACT_COLUMNS} | {
            f"{WORDS}{name}": values for name, values in self.words.arrays().items()
        }

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, npt.NDArray[np.generic]]) -> "StandingFacts":
        """Return the facts that `arrays` was made from, without copying."""
        facts = cls()
        facts._columns = {name: GrowingArray.of(arrays[name]) for name in FACT_COLUMNS}
        own = {name.removeprefix(WORDS): values for name, values in arrays.items() if name.startswith(WORDS)}
        facts.words = Postings.from_arrays(own)
        return facts
