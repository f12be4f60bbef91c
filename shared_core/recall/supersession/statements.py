"""What a sentence states: its subject, its values, and whether it says that something has changed; pure."""

import re
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, lru_cache

from shared_core.index.text import terms
from shared_core.languages.english import ENGLISH
from shared_core.recall.supersession import english_phrases as english

LOOKED_AT = 2_000
"""Characters of a message that are read. What comes after them is seldom the change itself."""

LONGEST = 300
"""Characters of a sentence at most: longer ones are lists, code or quotations."""

MOST_WORDS = 20
"""Words of a sentence, at most. Longer ones tell stories."""

MOST_SENTENCES = 24
"""Sentences of a message that are read."""

FEW = 3
"""A message of at most this many sentences is about one thing."""

BRIEF = 6
"""Spaces of a sentence, at most, that tells a change of what another one is about, such as "I was wrong"."""

CHANGE = 2
"""`Statement.changes` of a sentence that says that something has changed."""

GONE_WORDS = 6
"""Words after "no longer" and the like that belong to what is not so any more."""

KNOWN_TEXTS = 8_192
"""Sentences and messages that are cached: the same ones are among the best for many questions."""

_LIKELY_NAME = frozenset(
    ["a", "an", "another", "is", "it's", "my", "our", "the", "was", "will", "took", "left", "retired"]
)

_DETERMINERS = frozenset(
    ["a", "an", "another", "her", "his", "its", "my", "our", "that", "the", "their", "this", "your"]
)

_PRONOUNS = frozenset(["he", "her", "his", "she"])
"""They tell of another person unless their sentence has named it."""

_GREETINGS = frozenset(
    [
        "bye",
        "cheers",
        "congrats",
        "congratulations",
        "dear",
        "goodbye",
        "hello",
        "hey",
        "hi",
        "morning",
        "thanks",
        "welcome",
        "wow",
    ]
)

_READS = frozenset(["i", "to", "we"])
"""After these comes a verb, and no thing that has a number."""

_REFERS = frozenset(["he", "her", "him", "his", "it", "it's", "she", "that's", "them", "there", "they"])
"""They stand for what the clauses before name."""

_EQUATES = frozenset(["is", "are", "was", "were", "will", ":", "\u2014"])
"""After a name, these may make it the value of what follows: "Ann is my doctor"."""

_PLACES = frozenset(["at", "in", "to"])

_ON_SELF = re.compile(r"\b(?:me|us)\b", re.IGNORECASE)

PREPOSITIONS = frozenset(["about", "at", "for", "from", "in", "of", "on", "over", "under", "with"])

_COPULAS = frozenset(["is", "isn't", "are", "aren't", "was", "were", "will", "won't", "costs", "has"])

_VERBS = _COPULAS | frozenset(english.SAYS.split())
"""With these, something is said of what comes before, or they begin a sentence of their own."""

_FIGURES = frozenset(f"{english.CALENDAR} {english.COUNTED}".split())

STOPS = frozenset(",:()\u2014")

_NUMBERED = frozenset(["day", "no", "nr", "number", "week", "year"])

_SELF = frozenset(["i", "we", "my", "our", "me", "us", "mine", "ours"])

_CLAUSE = re.compile(r"[,:;]\s|\s(?:so|because|but|since)\s")

_PARTS = re.compile(r"[,:;\u2014]+\s+(?:and |but |so )?|\s(?:so|and|but|because|since)\s", re.IGNORECASE)
"""Divides the clauses of a sentence, of which one may be a statement and the others tell why it is so."""

_REPORTS = re.compile(
    r"^\W*(?:(?:[\w'-]+ ){1,4}(?:says?|reckons?|confirm(?:s|ed)|said|tells? (?:me|us)|told (?:me|us))"
    r"|(?:it )?turn(?:s|ed) out),? (?:that )?(?=(?:i|i'm|we|we're|my|our|the|it's|it is|there)\b)",
    re.IGNORECASE,
)
"""Matches who says what follows, which is no part of it."""

_ADVISES = re.compile(r"^\W*(?:[\w'-]+ ){1,4}(?:told|advised|asked|wants|wanted) (?:me|us) to\b", re.IGNORECASE)
"""Matches who wants what the speaker does: "the nurse told me to"."""

_LEFT = re.compile(
    r"^(.{2,40}?) (?:has |have |is |was )?(?:left|retired|resigned|closed|full|booked out|sold out|gone)\b"
)
"""Matches what is not so any more at the beginning of a sentence: "Ann left, so ..."."""

_REACTS = re.compile(
    r"(?:oh\W+|well\W+)?(?:that|this|these|those|thanks?|congrats|congratulations|wow|can't wait|check out"
    r"|let's (?!make))\b",
    re.IGNORECASE,
)
"""Matches the beginning of sentences about what was just said or shown."""

_NO_PROSE = re.compile(r"[{}<>=`#*_\[\]|\\]|https?:|\A(?>.*\byours?\b)(?!.*\b(?:i|my|we|our)\b)", re.IGNORECASE)
"""Matches code, lists, and what is said about the listener."""

_TITLES = r"(?<!\bDr)(?<!\bMr)(?<!\bMrs)(?<!\bMs)(?<!\bSt)(?<!\bProf)(?<!\bNo)"
# The mark is looked for first: what comes before it is then looked at there only, which takes a third of the time.
_SENTENCE = re.compile(rf"(?=[.!]){_TITLES}(?<![.!])[.!]++(?=\s|$)|(?<=\?)\s+|\n+|;\s")
_TOKEN = re.compile(
    r"[A-Za-z]+\d[\w.]*(?<=\d)|[$\u20ac\u00a3]?\d+(?:[.,:]\d+)*|[^\W\d_]+(?:['\u2019][^\W\d_]+)*|[,:()\u2014]"
)


def _any_of(pattern: str) -> re.Pattern[str]:
    return re.compile(rf"(?<![\w'])(?:{''.join(pattern.split(chr(10)))})(?![\w'])", re.IGNORECASE)


CHANGED, LATER, GONE, PAST, PLANS, DOUBTS = map(
    _any_of, (english.CHANGED, english.LATER, english.GONE, english.PAST, english.PLANS, english.DOUBTS)
)
PAST = re.compile(rf"(?<!\bto ){PAST.pattern}", re.IGNORECASE)
REGULAR_PAST = re.compile(
    r"(?<!is )(?<!are )(?<!be )(?<!been )(?<!being )"
    r"\b(?!need|feed|speed|seed|indeed|bed|red|shed|wed|hundred)\w{2,}ed\b"
)
"""Matches regular verbs in the past, and some adjectives; `PLANS` are exceptions."""


@dataclass(frozen=True, slots=True)
class Statement:
    """What a sentence states.

    Attributes:
        terms: the stems of its informative words, without names and numbers.
        names: its names, folded.
        figures: its numbers, times, weekdays and months.
        nouns: those of its terms that follow an article, "my", or a preposition.
        heads: those of its terms that come before "is" and the like.
        agents: terms of who does something, as in "Ann teaches me".
        gone: terms, names and figures that it says are not so any more.
        owners: persons other than the speaker whom it is about.
        labels: numbers that name something, as in "ticket 12 is".
        of_self: whether the speaker occurs in it.
        changes: 2 if it says that something has changed, or corrects something; 1 if it says that something is new.
        lasts: whether it says what is so, rather than what happened, or is a mere fragment.
        was: whether it says what was so, as in "the rent was 800".
        negated: whether it is a negative statement.
        tokens: its words, folded, without those that say that something has changed.
        words: its terms and names.
        held: its words and what it says is gone.
    """

    terms: frozenset[str]
    names: frozenset[str]
    figures: frozenset[str]
    nouns: frozenset[str]
    heads: frozenset[str]
    agents: frozenset[str]
    gone: frozenset[str]
    owners: frozenset[str]
    labels: frozenset[str]
    of_self: bool
    changes: int
    lasts: bool
    was: bool
    negated: bool
    tokens: tuple[str, ...]
    words: frozenset[str] = field(init=False)
    held: frozenset[str] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "words", self.terms | self.names)
        object.__setattr__(self, "held", self.words | self.gone)


@cache
def _stems(words: str) -> frozenset[str]:
    return frozenset(terms(words))


@cache
def _set(words: str) -> frozenset[str]:
    return frozenset(words.split())


def informative(words: Iterable[str]) -> frozenset[str]:
    """Return the stems that say what something is about; all of them if none does."""
    stems = frozenset(words)
    return (stems - _stems(english.LIGHT)) or stems


def statements(
    text: str, bears: Callable[[str], bool] = bool, words: frozenset[str] = frozenset()
) -> tuple[Statement, ...]:
    """Return what the sentences of a text state. Questions and doubts state nothing.

    In a short message, what one sentence says has changed is what the others are about: "I was wrong. It is on Friday."

    Args:
        text: what was said.
        bears: whether a sentence is read.
        words: what a question asks for: "it" and the like may stand for them.
    """
    said = _sentences(text)
    found = [one for sentence in bearing(text, bears) for one in _with_clauses(sentence, bears, words)]
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
    return tuple(one for one in said if one and len(one) <= LONGEST and one.count(" ") < MOST_WORDS)


@lru_cache(maxsize=KNOWN_TEXTS)
def statement(sentence: str) -> Statement | None:
    """Return what a sentence states; None: nothing."""
    return None if _asks_or_reacts(sentence) else _statement(sentence)


def _with_clauses(sentence: str, bears: Callable[[str], bool], words: frozenset[str]) -> list[Statement]:
    """Return what a sentence states, and what those of its clauses state that are read.

    People say why something has changed in the same breath: "Ann is ill, so Ben gives the speech".
    """
    whole = statement(sentence)
    found = [whole] if whole is not None else []
    if whole is None and _doubts(sentence):
        return found
    for part, refers in _clauses(sentence):
        clause = statement(part) if refers or bears(part) else None
        if clause is not None and (clause.lasts or clause.gone):
            found.append(_in_sentence(clause, whole, words if refers else frozenset()) if whole else clause)
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
    owned = not clause.owners.isdisjoint(_PRONOUNS)
    named = whole.owners - _PRONOUNS if owned else frozenset[str]()
    meant = [token for token in whole.tokens if words and not (words & whole.words).isdisjoint(terms(token))]
    return replace(
        clause,
        changes=max(clause.changes, whole.changes),
        owners=whole.owners if owned else clause.owners,
        terms=clause.terms | named | whole.terms & words,
        names=clause.names | whole.names & words,
        tokens=("the", *meant, *clause.tokens[1:]) if meant and clause.tokens[0] in _REFERS else clause.tokens,
        nouns=clause.nouns | whole.nouns & words,
        gone=clause.gone | whole.gone - clause.words - clause.figures,
    )


@lru_cache(maxsize=KNOWN_TEXTS)
def _manner(sentence: str) -> tuple[bool, bool, tuple[str | None, ...]]:
    """Return whether a sentence says that something has changed or is new, and of each clause what `_happened` does."""
    body = _unreported(sentence)
    clauses = [clause for clause in _CLAUSE.split(body) if clause.count(" ") >= FEW]
    happened = tuple(map(_happened, clauses or [body]))
    return CHANGED.search(sentence) is not None, LATER.search(sentence) is not None, happened


def may_say_so(sentence: str) -> bool:
    """Return whether a sentence may replace another one: it does not only tell what happened."""
    changed, later, happened = _manner(sentence)
    return changed or later or None in happened


def may_be_replaced(sentence: str) -> bool:
    """Return whether a sentence may be replaced by one that does not say that something has changed."""
    return may_say_so(sentence) or not {"was", "were"}.isdisjoint(_manner(sentence)[2])


def _shortened(found: re.Match[str]) -> str:
    """Return what stays of words that say that something has changed: what stands between them."""
    return "" if found[0].count(" ") < FEW else found[0]


def _happened(clause: str) -> str | None:
    """Return the word by which a clause tells of something that happened; None: it tells what is so."""
    found = PAST.search(clause) or REGULAR_PAST.search(PLANS.sub("", clause))
    return found[0].lower() if found else None


def _unreported(sentence: str) -> str:
    """Return a sentence without who says it, or who wants it."""
    return _ADVISES.sub("I", _REPORTS.sub("", sentence, count=1), count=1)


def _asks_or_reacts(sentence: str) -> bool:
    """Return whether a sentence states nothing: it asks, doubts or reacts, or it is no prose."""
    return _doubts(sentence) or _REACTS.match(sentence) is not None


@lru_cache(maxsize=KNOWN_TEXTS)
def _doubts(sentence: str) -> bool:
    """Return whether a sentence asks or doubts, or is no prose."""
    if sentence.endswith("?") or DOUBTS.search(sentence):
        return True
    return _NO_PROSE.search(sentence) is not None


def _statement(sentence: str) -> Statement:
    body = _unreported(sentence)
    tokens = _TOKEN.findall(LATER.sub(_shortened, CHANGED.sub(_shortened, body)).replace("\u2019", "'"))
    changed, later, happened = _manner(sentence)
    verbs = [at for at in range(len(tokens)) if _is_predicate(tokens, at)]
    says = bool(verbs)
    subjects = _subjects(tokens, verbs) if says or changed or later else frozenset(range(len(tokens)))
    kinds = [_kind(tokens, at, subjects) for at in range(len(tokens))]
    gone = _gone(body)
    informative = _informative(tokens, kinds, "word") | {term for means, term in english.MEANT if means.search(body)}
    figures = {_figure(token) for token, kind in zip(tokens, kinds, strict=True) if kind == "figure"}
    names = _informative(tokens, kinds, "name")
    labels = {_figure(token) for token, kind in zip(tokens, kinds, strict=True) if kind == "label"}
    folded = [token.lower() for token in tokens]
    past = next((word for word in happened if word), None)
    lasts = None in happened
    return Statement(
        terms=informative,
        names=names - gone,
        figures=frozenset(figures) - gone,
        nouns=_nouns(tokens) & informative,
        heads=frozenset(terms(" ".join(tokens[: _verb_at(folded)]))) & informative,
        agents=_agents(tokens, verbs) - gone,
        gone=gone,
        owners=_owners(tokens, body),
        labels=frozenset(labels),
        of_self=any(word.split("'")[0] in _SELF for word in folded),
        changes=CHANGE if changed else int(later or (lasts and bool(past))),
        lasts=lasts and says,
        was=past in ("was", "were"),
        negated=any(word.endswith("n't") or word in ("not", "never", "no") for word in folded),
        tokens=tuple(folded),
    )


def _agents(tokens: list[str], verbs: Sequence[int]) -> frozenset[str]:
    """Return the terms of who does something: those before the first verb, if they begin with what may be a name."""
    verb = verbs[0] if verbs else 0
    named = verb and tokens[0][0].isupper() and _informs(tokens[0])
    if not named or tokens[verb].lower() in _EQUATES:
        return frozenset()
    return frozenset(terms(" ".join(tokens[:verb]))) - _stems(english.LIGHT)


def _kind(tokens: list[str], at: int, subjects: Collection[int]) -> str:
    """Return what a token is, given the indices of those of subjects: a word, a name, a figure, a label, or nothing."""
    token = tokens[at]
    if token[-1].isdigit():
        return "label" if at in subjects and _labels(tokens, at) else "figure"
    if _is_figure(token):
        return "figure"
    if not token[0].isalpha() or _is_called(tokens, at):
        return ""
    return "name" if _is_name(tokens, at) else "word"


def _is_name(tokens: list[str], at: int) -> bool:
    token = tokens[at]
    if not token[0].isupper() or token.split("'")[0] == "I" or (not at and token.endswith("ing")):
        return False
    alone = all(word[0].isupper() for word in tokens[at:])
    if at and (tokens[at - 1] != ":" or alone):
        return True
    after = next((word.lower() for word in tokens[at + 1 :] if not word[0].isupper()), "")
    acts = after in _LIKELY_NAME or (after.endswith("s") and not after.endswith("ss") and after not in ENGLISH.stops)
    return acts and _informs(token) and token.lower() not in _set(english.KIN)


def _is_called(tokens: list[str], at: int) -> bool:
    """Return whether a name is that of the person who is spoken to, as in "Hi Ann"."""
    greeted = at == 1 and tokens[0].lower() in _GREETINGS
    return tokens[at][0].isupper() and tokens[at + 1 : at + 2] in ([","], []) and greeted


def _is_figure(token: str) -> bool:
    folded = token.lower()
    return folded[-1].isdigit() or folded in _FIGURES or token == "May"


def _labels(tokens: list[str], at: int) -> bool:
    """Return whether a number tells which one something is, as in "locker number 12" and "m0426"."""
    if tokens[at + 1 : at + 2] == [":"]:
        return False
    before = tokens[at - 1].lower() if at else ""
    if at > 1 and tokens[at - 2].lower() in _READS:  # "I want to read 20 books"
        return False
    return tokens[at][0].isalpha() or before in _NUMBERED or (before.isalpha() and _informs(before))


def _subjects(tokens: list[str], verbs: Collection[int]) -> frozenset[int]:
    """Return the indices of the tokens of which their clauses say something: those before the first verb."""
    found: list[int] = []
    clause: list[int] = []
    for at, token in enumerate(tokens):
        if token in STOPS:
            clause = []
        elif at in verbs:
            found += clause
            clause = []
        else:
            clause.append(at)
    return frozenset(found)


@lru_cache(maxsize=KNOWN_TEXTS)
def _informs(token: str) -> bool:
    """Return whether a token has a term: most are looked at several times, and most sentences share theirs."""
    return bool(terms(token))


@lru_cache(maxsize=KNOWN_TEXTS)
def _is_verb(folded: str) -> bool:
    """Return whether a token is a verb wherever it stands, or a mark that stands for one."""
    if folded in _VERBS or folded in (":", "\u2014"):
        return True
    return PAST.fullmatch(folded) is not None or REGULAR_PAST.fullmatch(folded) is not None


def _is_predicate(tokens: list[str], at: int) -> bool:
    folded = tokens[at].lower()
    if _is_verb(folded):
        return True
    if "'" in folded:
        return not folded.endswith("'s") or not tokens[at + 1 : at + 2] or not _informs(tokens[at + 1])
    # A word such as "opens" after a noun is a verb, as far as can be told.
    noun = at > 0 and tokens[at - 1].isalpha() and _informs(tokens[at - 1])
    return noun and folded.endswith("s") and not folded.endswith("ss") and tokens[at].islower() and at + 1 < len(tokens)


def _figure(token: str) -> str:
    folded = token.lower()
    if folded[-1].isdigit():
        return folded.strip("$\u20ac\u00a3").replace(",", "")
    return folded.removesuffix("s") if folded in _set(english.CALENDAR) else folded


def _informative(tokens: list[str], kinds: list[str], kind: str) -> frozenset[str]:
    said = " ".join(token.removesuffix("'s") for token, own in zip(tokens, kinds, strict=True) if own == kind)
    return frozenset(terms(said)) - (_stems(english.LIGHT) if kind == "word" else frozenset())


def _nouns(tokens: list[str]) -> frozenset[str]:
    """Return the stems of words after an article, "my" or a preposition, up to the next word that is no informative one."""
    nouns: list[str] = []
    inside = False
    for token in tokens:
        folded = token.lower()
        if folded in _DETERMINERS or folded in PREPOSITIONS:
            inside = True
        elif inside and _informs(folded) and folded not in _COPULAS:
            nouns.append(folded.removesuffix("'s"))
        else:
            inside = False
    return frozenset(terms(" ".join(nouns)))


def _verb_at(folded: list[str]) -> int:
    """Return the index of the first "is" or the like; 0: there is none."""
    return next((at for at, token in enumerate(folded) if token in _COPULAS), 0)


def _owners(tokens: list[str], body: str) -> frozenset[str]:
    """Return whom or what a sentence is about instead of the speaker; not who does something to the speaker."""
    found = set()
    nobody, before = True, ""
    for token, after in zip(tokens, [*tokens[1:], ""] if tokens else (), strict=True):
        folded = token.lower()
        bare = folded.removesuffix("'s")
        kin = {bare, bare.removesuffix("s")} & _set(english.KIN)
        owns = bare != folded and after[:1].isalpha() and _informs(bare) and _informs(after)
        if folded in _PRONOUNS and nobody:
            found.add(folded)
        elif kin:
            found.update(kin if not _ON_SELF.search(body) else ())
        elif owns and (
            before in _DETERMINERS if token.islower() else before not in _PLACES and not before[:1].isupper()
        ):
            found.update(terms(bare).keys() - _stems(english.LIGHT))
        nobody = nobody and not _informs(token)
        before = folded if folded in _DETERMINERS else token
    return frozenset(found)


def _gone(sentence: str) -> frozenset[str]:
    """Return the terms and figures after "no longer", "instead of" and the like, up to the end of their clause."""
    parts: list[str] = []
    for match in GONE.finditer(sentence):
        words = re.split(r"[,:](?!\d)|;|\b(?:but|and|any|so)\b", sentence[match.end() :])[0].split()[:GONE_WORDS]
        parts += words
    left = _LEFT.match(sentence)
    parts += [left[1]] if left else []
    tokens = _TOKEN.findall(" ".join(parts))
    return frozenset(_plain(tokens))


def _plain(tokens: Iterable[str]) -> Iterable[str]:
    """Yield the stems and figures of tokens."""
    for token in tokens:
        if _is_figure(token):
            yield _figure(token)
        else:
            yield from terms(token).keys() - _stems(english.LIGHT)


def figures_of(text: str) -> frozenset[str]:
    """Return the numbers, times, weekdays and months of a text, as statements have them."""
    return frozenset(map(_figure, filter(_is_figure, _TOKEN.findall(text))))


def bearing(text: str, bears: Callable[[str], bool]) -> tuple[str, ...]:
    """Return the sentences of a text that are read."""
    return tuple(filter(bears, _sentences(text))) if bears(text) else ()
