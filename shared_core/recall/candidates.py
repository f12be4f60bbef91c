"""Read what a search found: hits for people, and candidates for the prompt, with excerpts of long messages."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from math import inf

import numpy as np

from shared_core.index.arrays import distinct
from shared_core.index.text import is_statement, statement_code
from shared_core.prompt.assembler import Placement
from shared_core.prompt.context import Reason
from shared_core.prompt.window import ELSEWHERE, Candidate
from shared_core.recall.ranking import Ranked, ScoredMessage, Source
from shared_core.recall.search import Found, RecallRules
from shared_core.records import Record
from shared_core.session import LiveSession
from shared_core.store import Store
from shared_core.tokens import message_tokens
from shared_core.tree.paths import Path
from shared_core.turns import Entry, Turn

__all__ = ["EXCERPT_MARK", "WHOLE", "excerpt", "read_candidates", "read_hits"]

EXCERPT_MARK = "{text} (excerpt of message {id})"
"""How an excerpt is marked, so that the whole can be asked for."""

WHOLE = 1.5
"""A message comes back whole if it is no longer than so many excerpts."""

LEAD = 0.25
"""Of the room that the words found leave, so much goes to what comes before them."""

MOST_HITS = 200
"""Words found that are looked at; more do not make another passage the best."""

_ENDS = re.compile(r"(?<=[.!?])\s+|(?<=\u3002)|\n+")


def excerpt(text: str, words: Sequence[str], size: int, counter: Callable[[str], int], tokens: int) -> str | None:
    """Return the part of a text in which most of the words occur, with dots where something is left out.

    It begins and ends between sentences where there is room for it, else between words.

    Args:
        text: the message.
        words: stems, as `terms` has them.
        size: tokens it may take.
        counter: counts them.
        tokens: what the text takes, roughly.

    Returns:
        None if the text is no longer than `WHOLE` times the size.
    """
    if tokens <= WHOLE * size:
        return None
    room = int(len(text) * size / tokens)
    hits = _hits(text, words)
    while True:
        found = _passage(text, hits, room)
        if counter(found) <= size or room <= 1:
            return found
        room = min(room - 1, int(room * 0.9))


def _hits(text: str, words: Sequence[str]) -> list[tuple[int, str]]:
    """Return where words begin, and which."""
    folded = text.casefold()
    if len(folded) != len(text):
        folded = "".join(c if len(c.casefold()) > 1 else c.casefold() for c in text)  # places stay those of the text
    found: dict[int, str] = {}
    # Of two words that begin in one place it is the longer.
    for word in sorted(words, key=len, reverse=True):
        for form in _beginnings(word):
            for place in islice(_places(folded, form, within=not word.isascii()), MOST_HITS):
                found.setdefault(place, word)
    return sorted(found.items())[:MOST_HITS]


def _places(text: str, form: str, *, within: bool) -> Iterator[int]:
    """Yield where a form stands; if not `within` words, then only where one begins."""
    place = text.find(form)
    while place >= 0:
        # Scripts without spaces have no beginnings of words.
        if within or not place or not (text[place - 1].isalnum() or text[place - 1] == "_"):
            yield place
        place = text.find(form, place + 1)


def _beginnings(stem: str) -> tuple[str, ...]:
    """Return how the words of a stem begin: Snowball has "batteri" for battery, "move" for moving."""
    if not stem.isascii():
        return (stem,)
    ends = {"i": ("i", "y"), "e": ("e", "ing")}
    return tuple(stem[:-1] + end for end in ends.get(stem[-1], stem[-1:]))


def _passage(text: str, hits: Sequence[tuple[int, str]], room: int) -> str:
    first, last = _densest(hits, room)
    before = int(LEAD * (room - (last - first)))
    start = max(0, min(first - before, len(text) - room))
    start = _snap(text, start, first) if start else 0
    end = min(len(text), start + room)
    if end < len(text):
        ends = [match.start() for match in _ENDS.finditer(text, last, end)]
        spaces = text.rfind(" ", last, end)
        end = ends[-1] if ends else spaces if spaces > start else end
    return f"{'… ' if start else ''}{text[start:end].strip()}{' …' if end < len(text) else ''}"


def _densest(hits: Sequence[tuple[int, str]], room: int) -> tuple[int, int]:
    """Return where the first and the last hit of the stretch are that has most of the words, then most hits."""
    best, found = (0, 0), (0, 0)
    for number, (start, _) in enumerate(hits):
        inside = [(place, word) for place, word in hits[number:] if place - start < room * (1 - LEAD)]
        score = len({word for _, word in inside}), len(inside)
        if score > best:
            best, found = score, (start, inside[-1][0])
    return found


def _snap(text: str, start: int, first: int) -> int:
    """Return where the first sentence after a place begins, the first word if there is none before the first hit."""
    sentence = next((match.end() for match in _ENDS.finditer(text, start, first + 1)), None)
    if sentence is not None and sentence <= first:
        return sentence
    space = text.find(" ", start, first)
    return space + 1 if space >= 0 else start


WEAK_SHOWN = 8
"""Candidates that match too little and are reported all the same, so that one sees what the floor keeps out."""

SPARE = 1.5
"""Candidates are read until, by a guess of their size, they fill the room this many times."""

CHARACTERS_PER_TOKEN = 4
FRAME_TOKENS = 8

Said = tuple[int, ...]
"""What each of some messages says (`statement_code`)."""


def read_candidates(
    live: LiveSession, rules: RecallRules, found: Found, *, path: Path, question: str, room: int, placement: Placement
) -> list[Candidate]:
    """Return candidates, best first.

    Args:
        live: the session that asks.
        rules: how units and tools are treated.
        found: the search.
        path: where in this session it looked.
        question: its text: the same question asked before is not an answer.
        room: tokens that recalled messages may take.
        placement: real messages (`"messages"`) come back in whole turns.
    """
    reader = _Reader(live, rules, found, path, whole_turns=placement == "messages")
    most = rules.excerpt_tokens if placement != "messages" else None
    shortlist = _shortlist(found, room, inf if most is None else most)
    candidates = _without_repeats(list(reader.read(shortlist)), (statement_code(question),))
    return candidates if placement == "messages" else [reader.cut(candidate) for candidate in candidates]


def read_hits(store: Store, found: Found, best: Sequence[Ranked]) -> list[ScoredMessage]:
    """Return the messages at the places given, in that order."""
    hits: list[ScoredMessage] = []
    for ranked in best:
        index = found.scopes[ranked.scope].index
        rows = found.scopes[ranked.scope].line.rows[[ranked.place]]
        for record in store.get(index.session, index.positions(rows)):
            message = record.message
            sides = (ranked.lexical > 0, ranked.dense is not None)
            source: Source = "both" if all(sides) else "lexical" if sides[0] else "dense"
            hits.append(ScoredMessage(message, ranked.score, source, ranked.lexical, ranked.dense))
    return hits


def _shortlist(found: Found, room: int, most: float) -> list[Ranked]:
    """Return what is worth reading: enough to fill the room, some to spare, and some of the weak.

    Of a message of more than `WHOLE` times `most` tokens so many are carried.
    """
    ranked = found.ranked
    characters = np.empty(len(ranked))
    for number in distinct(ranked.scopes).tolist():
        scope, own = found.scopes[number], ranked.scopes == number
        characters[own] = scope.index.column("characters")[scope.line.rows[ranked.places[own]]]
    tokens = characters / CHARACTERS_PER_TOKEN
    tokens = np.where(ranked.weak, 0, np.where(tokens > WHOLE * most, most, tokens) + FRAME_TOKENS)
    before = np.cumsum(tokens) - tokens
    wanted = np.where(ranked.weak, np.cumsum(ranked.weak) <= WEAK_SHOWN, before <= SPARE * room)
    return ranked.at(np.flatnonzero(wanted))


class _Reader:
    def __init__(self, live: LiveSession, rules: RecallRules, found: Found, path: Path, *, whole_turns: bool) -> None:
        self.live = live
        self.rules = rules
        self.found = found
        self.path = path
        self.own: dict[str | None, Entry] = {}
        self.said: dict[tuple[int, str | None], int] = {}
        self.whole_turns = whole_turns
        self.by_turn = whole_turns or rules.recall_unit == "turn"

    def read(self, shortlist: Iterable[Ranked]) -> Iterator[tuple[Candidate, Said]]:
        """Yield a candidate for each place, with the messages it brings back, and what these say."""
        places = [(ranked, self._members(ranked)) for ranked in shortlist]
        records = self._records(places)
        orders = self._orders(places, records)
        own = [record for key, record in records.items() if key not in orders]
        self.own = {entry.message.id: entry for entry in self.live.entries(own, self.path)}
        turns: set[tuple[int, str]] = set()
        for ranked, members in places:
            keys = [(ranked.scope, place) for place in members if (ranked.scope, place) in records]
            candidate = self._candidate(ranked, [self._entry(records[key], orders.get(key)) for key in keys])
            if candidate is None:
                continue
            key = (ranked.scope, candidate.entries[0].message.turn_id or "")
            if self.by_turn and key in turns and candidate.reason is None:
                candidate = candidate.because(Reason.SAME_TURN)
            if candidate.reason is None:
                turns.add(key)
            yield candidate, tuple(self.said[ranked.scope, entry.message.id] for entry in candidate.entries)

    def _members(self, ranked: Ranked) -> list[int]:
        """Return the places that a place brings back: itself, or its turn as far as it was said by then."""
        if not self.by_turn:
            return [ranked.place]
        scope = self.found.scopes[ranked.scope]
        turn = int(scope.index.column("turns")[scope.line.rows[ranked.place]])
        return [place for place in scope.line.line.of_turn(turn) if place < scope.line.upto]

    def _records(self, places: Sequence[tuple[Ranked, list[int]]]) -> dict[tuple[int, int], Record]:
        """Return the records at all the places, read together, by scope and place."""
        records: dict[tuple[int, int], Record] = {}
        in_scope: dict[int, set[int]] = {}
        for ranked, members in places:
            in_scope.setdefault(ranked.scope, set()).update(members)
        for number, places_there in sorted(in_scope.items()):
            scope, wanted = self.found.scopes[number], sorted(places_there)
            rows = scope.line.rows[wanted]
            positions = scope.index.positions(rows)
            said = scope.index.column("statements")[rows].tolist()
            at = dict(zip(positions, zip(wanted, said, strict=True), strict=True))
            for record in self.live.records(scope.index.session, positions):
                place, code = at[record.position]
                records[number, place] = record
                self.said[number, record.message.id] = code
        return records

    def _orders(
        self, places: Sequence[tuple[Ranked, list[int]]], records: Mapping[tuple[int, int], Record]
    ) -> dict[tuple[int, int], int]:
        """Return where the messages of other sessions stand among each other: by the time at which their unit begins.

        A unit stays together: exchanges of two sessions at one time are two exchanges.
        """
        units: set[tuple[float, int, tuple[int, ...]]] = set()
        for ranked, members in places:
            scope = self.found.scopes[ranked.scope]
            if scope.index.session != self.live.key and members:
                began = float(scope.index.column("times")[scope.line.rows[members[0]]])
                units.add((began, ranked.scope, tuple(members)))
        keys = [(scope, place) for _, scope, members in sorted(units) for place in members]
        return {key: order for order, key in enumerate(keys) if key in records}

    def _entry(self, record: Record, order: int | None) -> Entry:
        """Return a message; `order` is its place among those of other sessions, None: it is of this one."""
        if order is None:
            return self.own[record.message.id]
        return replace(self.live.sizer.entry(record, order), turn_no=ELSEWHERE)

    def _candidate(self, ranked: Ranked, entries: Sequence[Entry]) -> Candidate | None:
        if not entries:
            return None
        reason = Reason.WEAK if ranked.weak else None
        kept = tuple(entries)
        if self.by_turn:
            turn = Turn(entries[0].message.turn_id or "", entries[0].turn_no, kept).whole()
            kept = tuple(entry for entry in turn.entries if self._returns(entry))
            if not kept:
                reason = reason or Reason.BROKEN_GROUP
            elif self.whole_turns and kept[0].message.role != "user":
                reason = reason or Reason.NO_QUESTION
        return Candidate(tuple(map(_bare, kept or entries)), ranked.score, ranked.lexical, ranked.dense, reason)

    def cut(self, candidate: Candidate) -> Candidate:
        """Return a candidate with excerpts of its long messages."""
        if candidate.reason is not None or self.rules.excerpt_tokens is None:
            return candidate
        entries = tuple(map(self._cut, candidate.entries))
        return candidate if entries == candidate.entries else replace(candidate, entries=entries, cut=True)

    def _cut(self, entry: Entry) -> Entry:
        message, sizer, size = entry.message, self.live.sizer, self.rules.excerpt_tokens
        assert size is not None
        passage = excerpt(message.content, self.found.words, size, sizer.counter, entry.tokens - message.media_tokens)
        if passage is None:
            return entry
        marked = EXCERPT_MARK.replace("{id}", message.id or "").replace("{text}", passage)
        part = message.replace(content=marked)
        return replace(entry, message=part, tokens=message_tokens(part, sizer.counter, sizer.overhead))

    def _returns(self, entry: Entry) -> bool:
        message = entry.message
        if message.role == "tool" or (self.whole_turns and message.tool_calls):
            return self.rules.recall_tools == "all"
        return bool(message.content.strip()) or self.whole_turns


def _bare(entry: Entry) -> Entry:
    """Return a message without grounding: what was retrieved for an old question is not what was said."""
    return entry if entry.message.grounding is None else replace(entry, message=entry.message.replace(grounding=None))


def _without_repeats(candidates: Sequence[tuple[Candidate, Said]], question: Said) -> list[Candidate]:
    """Refuse the question itself, and of what says the same all but the newest."""
    newest: dict[Said, Candidate] = {}
    for candidate, said in candidates:
        if candidate.reason is None and any(map(is_statement, said)):
            best = newest.setdefault(said, candidate)
            if _age(candidate) > _age(best):
                newest[said] = candidate
    result: list[Candidate] = []
    for candidate, said in candidates:
        if candidate.reason is None and candidate.entries[0].message.role == "user" and said == question:
            candidate = candidate.because(Reason.REPEATS_QUESTION)
        elif candidate.reason is None and newest.get(said, candidate) is not candidate:
            candidate = candidate.because(Reason.DUPLICATE)
        result.append(candidate)
    return result


def _age(candidate: Candidate) -> tuple[int, int]:
    return candidate.entries[-1].turn_no, candidate.entries[-1].order
