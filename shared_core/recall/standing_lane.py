"""The lane of standing facts: which of them bear on a question, and where they stand among the candidates; pure."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from shared_core.index.standing_facts import RULES, bit, facts_in, task_bits
from shared_core.index.standing_rules import KINDS, StandingKind
from shared_core.index.text import is_statement
from shared_core.messages import Message
from shared_core.prompt.reasons import Reason
from shared_core.prompt.window import ELSEWHERE, Candidate
from shared_core.recall.query import Query
from shared_core.recall.scope import Scope
from shared_core.recall.supersession.changes import restated
from shared_core.turns import Entry

CLOSE = 1.2
"""A fact bears on a request if its message is nearer by so many standard deviations than unrelated messages are.

Measured on BEAM with static vectors and `FAR`: 53 to 70 % of the evidence for questions about preferences in 1,000
tokens, 58 to 60 of all; questions of another conversation recall something in 53.5 instead of 52.7 % of the cases.
"""

FAR = 0.0
"""A fact whose message is not even as near as that bears on a request only if it matters to every one of its kind.

Without it, questions of another conversation recall something in 62 % of the cases (BEAM).
"""

FAR_SHORT = -1.5
"""`FAR` for a short message, whose vector tells little.

With static vectors, "How should I store the events?" is 1.4 deviations farther from "I prefer asynchronous persistence"
than unrelated messages are from each other on average.
"""

SHORT = 6
"""A message of at most so many terms is short."""

MOST_GUESSED = 2
"""Facts that bear on a request by their kind of task alone, at most: the newest ones."""

MOST_READ = 12
"""Facts that are read for one question. More of them do not fit in `standing_tokens`."""

BY_TASK = np.isin(KINDS, ["allergy", "diet", "name", "constraint"])
"""For each of `KINDS`, whether it matters to every request of its kind of task."""

ON_REPLIES = np.isin(KINDS, ["name", "instruction", "constraint"])
"""For each of `KINDS`, whether it matters to every request if it is about replies, as "answer in metric units" is."""

WHOLE_TOKENS = 60
"""A message of at most so many tokens is recalled whole for what it states; of a longer one, the statement alone."""

SURE_SHARE = 0.5
"""A ranked candidate that ends within this share of the room is in the prompt anyway."""

ELLIPSIS = "\u2026"

Codes = tuple[int, ...]

EntryKey = tuple[bool, int]

Indices = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float32]
Mask = npt.NDArray[np.bool_]


class StandingHit(NamedTuple):
    """A standing fact that bears on a question: its scope, its message's index there, and its offsets in the text."""

    scope: int
    line_index: int
    start: int
    end: int


@dataclass(frozen=True)
class Facts:
    """The standing facts of some scopes, oldest first, as columns.

    Attributes:
        scopes: the number of each fact's scope.
        indices: the index of its message on that scope's line.
        numbers: its number among the facts of the scope's session.
        times: when it was said, or the scope's latest time before, in seconds.
        kinds, tasks, conditional, codes, starts, ends: see `StatedFact`.
        lengths: the number of terms in its message.
    """

    scopes: Indices
    indices: Indices
    numbers: Indices
    times: npt.NDArray[np.float64]
    kinds: Indices
    tasks: Indices
    conditional: Mask
    codes: Indices
    starts: Indices
    ends: Indices
    lengths: Indices

    def __len__(self) -> int:
        return len(self.indices)

    def kind(self, which: int) -> StandingKind:
        """Return the kind of one fact."""
        return KINDS[int(self.kinds[which])]


def facts_of(scopes: Sequence[Scope]) -> Facts:
    """Return the standing facts along the lines of some scopes, oldest first."""
    parts = [_facts_on(number, scope) for number, scope in enumerate(scopes)]
    columns = [np.concatenate(column) for column in zip(*parts, strict=True)] or [np.empty(0, np.int64)] * 11
    # Within a session, the order is that of the path; between sessions, that of time.
    order = np.lexsort((columns[1], columns[0], columns[3]))
    return Facts(*(column[order] for column in columns))


def _facts_on(number: int, scope: Scope) -> tuple[npt.NDArray[np.generic], ...]:
    facts, line = scope.session_index.standing, scope.line
    rows = facts.column("rows")
    indices = line.indices(rows).astype(np.int64)
    own = np.flatnonzero((indices >= 0) & (indices < line.upto))
    own = own[np.argsort(indices[own], kind="stable")]
    times = _latest(scope.session_index.column("times")[rows[own]], scope.session_index.sessions_at(rows[own]))
    names = ("kinds", "tasks", "conditional", "codes", "starts", "ends")
    columns = (facts.column(name)[own] for name in names)
    lengths = scope.session_index.lexical.lengths[rows[own]]
    return (np.full(len(own), number), indices[own], own, times, *columns, lengths)


def _latest(times: npt.NDArray[np.float64], sessions: Indices) -> npt.NDArray[np.float64]:
    """Return the latest time up to each fact in its session; the facts of one are next to each other."""
    if not np.any((times[1:] < times[:-1]) & (sessions[1:] == sessions[:-1])):
        return times
    parts = np.split(times, np.flatnonzero(np.diff(sessions)) + 1)
    return np.concatenate([np.maximum.accumulate(part) for part in parts])


@cache
def _patterns() -> tuple[tuple[re.Pattern[str], re.Pattern[str]], ...]:
    return tuple(
        (re.compile(language.request, re.IGNORECASE), re.compile(language.past, re.IGNORECASE)) for language in RULES
    )


def is_request(text: str) -> bool:
    """Return whether a text wants something made, suggested or explained, and not to know what was."""
    said = text.replace("\u2019", "'")
    return any(past.search(said) is None and request.search(said) is not None for request, past in _patterns())


@cache
def _asking() -> tuple[tuple[re.Pattern[str], tuple[StandingKind, ...]], ...]:
    patterns = [pair for language in RULES for pair in language.asks_for]
    return tuple((re.compile(pattern, re.IGNORECASE), kinds) for pattern, kinds in patterns)


def _asked_for(text: str) -> Mask:
    """Return, for each of `KINDS`, whether it answers a question: a name "what is my name?"."""
    said = text.replace("\u2019", "'")
    return np.isin(KINDS, [kind for pattern, kinds in _asking() if pattern.search(said) for kind in kinds])


def bearing(query: Query, scopes: Sequence[Scope], closeness: "Closeness | None" = None) -> list[StandingHit]:
    """Return the standing facts that bear on a question and may be recalled, those to take first at the beginning.

    An instruction with a condition bears on what its condition names. All other facts bear on requests alone: on those
    of their kind of task, and on those that share a word or the meaning. Those that match by more than their kind of
    task come first, the newest at the beginning.

    Args:
        query: the question.
        scopes: the scopes that are searched.
        closeness: how close messages are to the question; None: by words alone.
    """
    facts = facts_of(scopes)
    if not len(facts):
        return []
    asked = _asked_for(query.text)[facts.kinds]
    wants = is_request(query.text)
    if not asked.any() and not (query.informative and (wants or facts.conditional.any())):
        return []
    said_now = [said.code(None) for said in facts_in(query.text, query.language)]
    open_to = ~restated(facts.codes, said_now) & _eligible(facts, scopes)
    matched = _matched(facts, scopes, query.words)
    close, far = np.zeros(len(facts), dtype=np.bool_), np.zeros(len(facts), dtype=np.bool_)
    if closeness is not None:
        near = closeness(facts.scopes, facts.indices)
        close, far = near >= CLOSE, near < np.where(facts.lengths <= SHORT, FAR_SHORT, FAR)
    sure, guessed = _fits(facts, query, matched & ~far, close, far, wants=wants)
    sure |= asked
    newest = np.flatnonzero(open_to & sure)[::-1], np.flatnonzero(open_to & guessed & ~sure)[::-1][:MOST_GUESSED]
    return [
        StandingHit(
            int(facts.scopes[which]), int(facts.indices[which]), int(facts.starts[which]), int(facts.ends[which])
        )
        for which in np.concatenate(newest)[:MOST_READ].tolist()
    ]


def _fits(facts: Facts, query: Query, matched: Mask, close: Mask, far: Mask, *, wants: bool) -> tuple[Mask, Mask]:
    """Return which facts bear on a question, or request, for sure, and which do by their kind of task alone."""
    tasks = task_bits(frozenset(query.words)) & ~bit("reply")
    at_task = (facts.tasks & tasks) != 0
    by_task = BY_TASK[facts.kinds] & at_task
    on_replies = (facts.tasks & bit("reply")) != 0
    on_replies &= ON_REPLIES[facts.kinds]
    sure = np.where(facts.conditional, matched | close, wants & (by_task | on_replies | matched | close))
    return sure, wants & at_task & ~facts.conditional & ~far


def _eligible(facts: Facts, scopes: Sequence[Scope]) -> Mask:
    found = np.zeros(len(facts), dtype=np.bool_)
    for number, scope in enumerate(scopes):
        own = facts.scopes == number
        found[own] = scope.eligible[facts.indices[own]]
    return found


def _matched(facts: Facts, scopes: Sequence[Scope], words: Iterable[str]) -> Mask:
    """Return which facts are about one of some words."""
    found = np.zeros(len(facts), dtype=np.bool_)
    words = list(words)
    for number, scope in enumerate(scopes):
        own = np.flatnonzero(facts.scopes == number)
        hits = [scope.session_index.standing.words.of(word)[0] for word in words] if len(own) else []
        if hits:
            found[own] = np.isin(facts.numbers[own], np.concatenate(hits))
    return found


@dataclass(frozen=True, slots=True)
class Closeness:
    """How close messages are to a question, in standard deviations of the cosines of unrelated messages.

    Attributes:
        scopes: the scopes.
        vector: the question's unit vector.
        mean: of the cosines of unrelated messages.
        deviation: of these.
    """

    scopes: Sequence[Scope]
    vector: npt.NDArray[np.float32]
    mean: float
    deviation: float

    def __call__(self, scopes: Indices, indices: Indices) -> Floats:
        """Return the closeness of messages, given by their scopes and indexes; `FAR` without a vector."""
        close = np.full(len(indices), FAR, dtype=np.float32)
        for number, scope in enumerate(self.scopes):
            own = np.flatnonzero(scopes == number)
            if scope.vectors is not None and len(own):
                cosines = scope.vectors.vectors.cosines(self.vector, scope.line.rows[indices[own]])
                close[own] = np.nan_to_num((cosines - self.mean) / self.deviation, nan=FAR)
        return close


def entry_key(entry: Entry) -> EntryKey:
    """Return what tells a message from all others: its id may be in several sessions."""
    return entry.turn_no == ELSEWHERE, entry.order


@dataclass(frozen=True, slots=True)
class StandingCandidate:
    """A message with a standing fact that bears on the question.

    Attributes:
        candidate: what is recalled of it for the fact; `match` is the message's id.
        key: the message's key.
        codes: the `statement_code` of each of the candidate's messages.
    """

    candidate: Candidate
    key: EntryKey
    codes: Codes


def around(said: str, passage: str, text: str) -> str:
    """Return a passage of a text with what is said in the text before or after it, unless the passage holds it."""
    if said in passage:
        return passage
    first = text.find(said) <= text.find(passage.strip(f"{ELLIPSIS} "))
    return f"{said} {ELLIPSIS} {passage}" if first else f"{passage} {ELLIPSIS} {said}"


def statement_entry(entry: Entry, marked: str, size: Callable[[Message], int], *, cut: bool) -> Entry:
    """Return what is recalled of a message for a standing fact in it.

    Args:
        entry: the message.
        marked: the fact, marked as an excerpt of the message.
        size: counts the tokens of a message.
        cut: whether long messages may be cut.
    """
    if not cut or entry.tokens <= WHOLE_TOKENS:
        return entry
    part = entry.message.replace(content=marked)
    tokens = size(part)
    return replace(entry, message=part, tokens=tokens) if tokens < entry.tokens else entry


def with_standing(
    lane: Sequence[StandingCandidate], ranked: Sequence[Candidate], codes: Mapping[EntryKey, int], *, tokens: int,
    room: int,
) -> list[Candidate]:  # fmt: skip
    """Return the candidates with the standing facts in front, which take at most `tokens` tokens.

    A message that is ranked so well that it is in the prompt anyway stays where it is. One that is ranked lower moves
    to the front with the passage that matches the question, if that fits, or else with the fact alone.

    Args:
        lane: the messages with standing facts, those to take first at the beginning.
        ranked: the other candidates, best first.
        codes: the `statement_code` of the messages of both.
        tokens: what the facts may take together.
        room: the tokens that all recalled messages may take.
    """
    live = {entry_key(entry): one for one in ranked[::-1] if one.reason is None for entry in one.entries}
    sure, left = _sure(ranked, room), tokens
    front: list[Candidate] = []
    shown, said = set[EntryKey](), set[Codes]()
    for one in lane:
        ways = [live[one.key], one.candidate] if one.key in live else [one.candidate]
        best = next((way for way in ways if way.tokens <= left), None)
        if best is None or one.key in sure or one.key in shown or one.candidate.reason is not None:
            continue
        left -= best.tokens
        front.append(replace(best, match=one.candidate.match, standing=True))
        shown.update(map(entry_key, best.entries))
        said.add(one.codes)
    rest = [_without(candidate, shown) for candidate in ranked]
    return [*front, *(_unless_repeated(candidate, codes, said) for candidate in rest if candidate.entries)]


def _sure(ranked: Sequence[Candidate], room: int) -> set[EntryKey]:
    """Return the messages that are ranked so well that they are in the prompt anyway."""
    sure, used = set[EntryKey](), 0
    for candidate in ranked:
        if candidate.reason is None:
            used += candidate.tokens
            if used > SURE_SHARE * room:
                break
            sure.update(map(entry_key, candidate.entries))
    return sure


def _without(candidate: Candidate, shown: set[EntryKey]) -> Candidate:
    """Return a candidate without the messages that are in front."""
    kept = tuple(entry for entry in candidate.entries if entry_key(entry) not in shown)
    return candidate if len(kept) == len(candidate.entries) else replace(candidate, entries=kept)


def _unless_repeated(candidate: Candidate, codes: Mapping[EntryKey, int], said: set[Codes]) -> Candidate:
    """Return a candidate, marked as a duplicate if a message in front says all that it says."""
    own = tuple(codes.get(entry_key(entry), 0) for entry in candidate.entries)
    repeats = candidate.reason is None and any(map(is_statement, own)) and own in said
    return candidate.because(Reason.DUPLICATE) if repeats else candidate
