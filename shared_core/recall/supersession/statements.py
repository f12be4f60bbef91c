"""What a sentence states: its subject, its values, and whether it says that something has changed; pure."""

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache, lru_cache

from shared_core.index.text import terms
from shared_core.languages.english import ENGLISH
from shared_core.recall.supersession import english_phrases as english

FEW = 3
"""A message of at most this many sentences is about one thing."""

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

PRONOUNS = frozenset(["he", "her", "his", "she", "their"])
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

_EQUATES = frozenset(["is", "are", "was", "were", "will", ":", "\u2014"])
"""After a name, these may make it the value of what follows: "Ann is my doctor"."""

_PLACES = frozenset(["at", "in", "to"])

_KIN = {kin + ending: kin for kin in english.KIN.split() for ending in ("", "s", "'s")}
"""Whom a sentence may be about instead of the speaker, by how they are called."""

_ON_SELF = re.compile(r"\b(?:me|us)\b", re.IGNORECASE)

PREPOSITIONS = frozenset(["about", "at", "for", "from", "in", "of", "on", "over", "under", "with"])

_COPULAS = frozenset(["is", "isn't", "are", "aren't", "was", "were", "will", "won't", "costs", "has"])

_VERBS = _COPULAS | frozenset(english.SAYS.split())
"""With these, something is said of what comes before, or they begin a sentence of their own."""

_FIGURES = frozenset(f"{english.CALENDAR} {english.COUNTED}".split())

TELL_APART = frozenset(english.TELL_APART.split())
"""Of things of one kind, these tell which one is meant."""

STOPS = frozenset(",:()\u2014")

_NUMBERED = frozenset(["day", "no", "nr", "number", "week", "year"])

_SELF = frozenset(["i", "we", "my", "our", "me", "us", "mine", "ours"])

_CLAUSE = re.compile(r"[,:;]\s|\s(?:so|because|but|since)\s")

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

_NO_PROSE = re.compile(
    r"[{}<>=`#*\[\]|\\]|(?<!\w)_|_(?!\w)|https?:|\A(?>.*\byours?\b)(?!.*\b(?:i|my|we|our)\b)", re.IGNORECASE
)
"""Matches code, lists, and what is said about the listener."""

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


@lru_cache(maxsize=KNOWN_TEXTS)
def statement(sentence: str) -> Statement | None:
    """Return what a sentence states; None: nothing."""
    return None if _asks_or_reacts(sentence) else _statement(sentence)


@lru_cache(maxsize=KNOWN_TEXTS)
def manner(sentence: str) -> tuple[bool, bool, tuple[str | None, ...]]:
    """Return whether a sentence says that something has changed or is new, and of each clause what `_happened` does."""
    body = _unreported(sentence)
    clauses = [clause for clause in _CLAUSE.split(body) if clause.count(" ") >= FEW]
    happened = tuple(map(_happened, clauses or [body]))
    return CHANGED.search(sentence) is not None, LATER.search(sentence) is not None, happened


def may_say_so(sentence: str) -> bool:
    """Return whether a sentence may replace another one: it does not only tell what happened."""
    changed, later, happened = manner(sentence)
    return changed or later or None in happened


def may_be_replaced(sentence: str) -> bool:
    """Return whether a sentence may be replaced by one that does not say that something has changed."""
    return may_say_so(sentence) or not {"was", "were"}.isdisjoint(manner(sentence)[2])


def _shortened(found: re.Match[str]) -> str:
    """Return what stays of words that say that something has changed: what stands between them."""
    return "" if found[0].count(" ") < FEW else found[0]


def _happened(clause: str) -> str | None:
    """Return the word by which a clause tells of something that happened; None: it tells what is so."""
    found = PAST.search(clause)
    if found is None and REGULAR_PAST.search(clause):
        found = REGULAR_PAST.search(PLANS.sub("", clause))
    return found[0].lower() if found else None


def _unreported(sentence: str) -> str:
    """Return a sentence without who says it, or who wants it."""
    return _ADVISES.sub("I", _REPORTS.sub("", sentence, count=1), count=1)


def _asks_or_reacts(sentence: str) -> bool:
    """Return whether a sentence states nothing: it asks, doubts or reacts, or it is no prose."""
    return doubts(sentence) or _REACTS.match(sentence) is not None


@lru_cache(maxsize=KNOWN_TEXTS)
def doubts(sentence: str) -> bool:
    """Return whether a sentence asks or doubts, or is no prose."""
    if sentence.endswith("?") or DOUBTS.search(sentence):
        return True
    return _NO_PROSE.search(sentence) is not None


def _statement(sentence: str) -> Statement:
    body = _unreported(sentence)
    changed, later, happened = manner(sentence)
    said = CHANGED.sub(_shortened, body) if changed else body
    tokens = _TOKEN.findall((LATER.sub(_shortened, said) if later else said).replace("\u2019", "'"))
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
        heads=_terms_in(tokens[: verb_at(folded)]) & informative,
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
    named = verb and tokens[0][0].isupper() and informs(tokens[0])
    if not named or tokens[verb].lower() in _EQUATES:
        return frozenset()
    return _terms_in(tokens[:verb]) - _stems(english.LIGHT)


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
    return acts and informs(token) and token.lower() not in _set(english.KIN)


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
    return tokens[at][0].isalpha() or before in _NUMBERED or (before.isalpha() and informs(before))


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


def informs(token: str) -> bool:
    """Return whether a token has a term."""
    return bool(terms_of(token))


@lru_cache(maxsize=KNOWN_TEXTS)
def terms_of(token: str) -> frozenset[str]:
    """Return the terms of a token: most are looked at several times, and most sentences share theirs."""
    return frozenset(terms(token))


def _terms_in(tokens: Iterable[str]) -> frozenset[str]:
    return frozenset().union(*map(terms_of, tokens))


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
        return not folded.endswith("'s") or not tokens[at + 1 : at + 2] or not informs(tokens[at + 1])
    # A word such as "opens" after a noun is a verb, as far as can be told.
    noun = at > 0 and tokens[at - 1].isalpha() and informs(tokens[at - 1])
    return noun and folded.endswith("s") and not folded.endswith("ss") and tokens[at].islower() and at + 1 < len(tokens)


def _figure(token: str) -> str:
    folded = token.lower()
    if folded[-1].isdigit():
        return folded.strip("$\u20ac\u00a3").replace(",", "")
    return folded.removesuffix("s") if folded in _set(english.CALENDAR) else folded


def _informative(tokens: list[str], kinds: list[str], kind: str) -> frozenset[str]:
    said = (token.removesuffix("'s") for token, own in zip(tokens, kinds, strict=True) if own == kind)
    return _terms_in(said) - (_stems(english.LIGHT) if kind == "word" else frozenset())


def _nouns(tokens: list[str]) -> frozenset[str]:
    """Return the stems of words after an article, "my" or a preposition, up to the next word that tells nothing."""
    nouns: list[str] = []
    inside = False
    for token in tokens:
        folded = token.lower()
        if folded in _DETERMINERS or folded in PREPOSITIONS:
            inside = True
        elif inside and informs(folded) and folded not in _COPULAS:
            nouns.append(folded.removesuffix("'s"))
        else:
            inside = False
    return _terms_in(nouns)


def verb_at(folded: Sequence[str]) -> int:
    """Return the index of the first "is" or the like; 0: there is none."""
    return next((at for at, token in enumerate(folded) if token in _COPULAS), 0)


def _owners(tokens: list[str], body: str) -> frozenset[str]:
    """Return whom or what a sentence is about instead of the speaker; not who does something to the speaker."""
    found = set[str]()
    nobody, before, last = True, "", len(tokens) - 1
    for at, token in enumerate(tokens):
        folded = token.lower()
        if folded in _KIN:
            found.update([_KIN[folded]] if not _ON_SELF.search(body) else ())
        elif folded in PRONOUNS:
            found.update([folded] if nobody else ())
        elif token.endswith("'s") and at < last and informs(token[:-2]) and informs(tokens[at + 1]):
            named = before not in _PLACES and not before[:1].isupper()
            owns = before in _DETERMINERS if token.islower() else named
            found.update(terms_of(folded[:-2]) - _stems(english.LIGHT) if owns else ())
        nobody = nobody and not informs(token)
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
            yield from terms_of(token) - _stems(english.LIGHT)


def figures_of(text: str) -> frozenset[str]:
    """Return the numbers, times, weekdays and months of a text, as statements have them."""
    return frozenset(map(_figure, filter(_is_figure, _TOKEN.findall(text))))
