"""Read what a search found: hits for people, candidates for the prompt with the reason for each refusal."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from math import inf

from shared_core.index.terms import near_duplicate_key
from shared_core.live import LiveSession
from shared_core.prompt.assembly import Placement
from shared_core.prompt.context import Reason
from shared_core.prompt.selection import ELSEWHERE, Candidate
from shared_core.prompt.turns import Entry, Turn
from shared_core.recall.excerpts import EXCERPT_MARK, WHOLE, excerpt
from shared_core.recall.ranking import Ranked, ScoredMessage, Source
from shared_core.recall.recaller import Found, Recaller
from shared_core.records import Record
from shared_core.store import Store
from shared_core.tokens import message_tokens
from shared_core.tree import Path

__all__ = ["read_candidates", "read_hits"]

WEAK_SHOWN = 8
"""Candidates that match too little and are reported all the same, so that one sees what the floor keeps out."""

SPARE = 1.5
"""Candidates are read until, by a guess of their size, they fill the room this many times."""

STATEMENT_WORDS = 3
"""Texts of fewer words are not the same statement said again: the second "yes" answers another question."""

CHARACTERS_PER_TOKEN = 4
FRAME_TOKENS = 8


def read_candidates(
    live: LiveSession, recaller: Recaller, found: Found, *, path: Path, question: str, room: int, placement: Placement
) -> list[Candidate]:
    """Return candidates, best first.

    Args:
        live: the session that asks.
        recaller: how units and tools are treated.
        found: the search.
        path: where in this session it looked.
        question: its text: the same question asked before is not an answer.
        room: tokens that recalled messages may take.
        placement: real messages (`"messages"`) come back in whole turns.
    """
    reader = _Reader(live, recaller, found, path, whole_turns=placement == "messages")
    most = recaller.rules.excerpt_tokens if placement != "messages" else None
    shortlist = _shortlist(found, room, inf if most is None else WHOLE * most)
    candidates = _without_repeats(list(reader.read(shortlist)), near_duplicate_key(question))
    return candidates if placement == "messages" else [reader.cut(candidate) for candidate in candidates]


def read_hits(store: Store, found: Found, best: Sequence[Ranked]) -> list[ScoredMessage]:
    """Return the messages at the places given, in that order."""
    hits: list[ScoredMessage] = []
    for ranked in best:
        index = found.scopes[ranked.scope].index
        rows = found.scopes[ranked.scope].line.rows[[ranked.place]]
        for record in store.at(index.session, index.positions(rows)):
            message = record.message
            sides = (ranked.lexical > 0, ranked.dense is not None)
            source: Source = "both" if all(sides) else "lexical" if sides[0] else "dense"
            hits.append(ScoredMessage(message, ranked.score, source, ranked.lexical, ranked.dense))
    return hits


def _shortlist(found: Found, room: int, most: float) -> Iterator[Ranked]:
    """Yield what is worth reading: enough to fill the room, some to spare, and some of the weak.

    A message takes `most` tokens at most.
    """
    weak, tokens = 0, 0.0
    for ranked in found.ranked:
        if ranked.weak:
            weak += 1
            if weak <= WEAK_SHOWN:
                yield ranked
        elif tokens <= SPARE * room:
            scope = found.scopes[ranked.scope]
            characters = int(scope.index.column("characters")[scope.line.rows[ranked.place]])
            tokens += min(characters / CHARACTERS_PER_TOKEN, most) + FRAME_TOKENS
            yield ranked


class _Reader:
    def __init__(self, live: LiveSession, recaller: Recaller, found: Found, path: Path, *, whole_turns: bool) -> None:
        self.live = live
        self.recaller = recaller
        self.found = found
        self.path = path
        self.own: dict[str | None, Entry] = {}
        self.whole_turns = whole_turns
        self.by_turn = whole_turns or recaller.rules.recall_unit == "turn"

    def read(self, shortlist: Iterable[Ranked]) -> Iterator[Candidate]:
        """Yield a candidate for each place, with the messages it brings back."""
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
            yield candidate

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
        for number, scope in enumerate(self.found.scopes):
            wanted = sorted({place for ranked, members in places if ranked.scope == number for place in members})
            positions = scope.index.positions(scope.line.rows[wanted])
            found = self.live.records(scope.index.session, positions)
            at = dict(zip(positions, wanted, strict=True))
            records |= {(number, at[record.position]): record for record in found}
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
        if candidate.reason is not None or self.recaller.rules.excerpt_tokens is None:
            return candidate
        entries = tuple(map(self._cut, candidate.entries))
        return candidate if entries == candidate.entries else replace(candidate, entries=entries, cut=True)

    def _cut(self, entry: Entry) -> Entry:
        message, sizer, size = entry.message, self.live.sizer, self.recaller.rules.excerpt_tokens
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
            return self.recaller.rules.recall_tools == "all"
        return bool(message.content.strip()) or self.whole_turns


def _bare(entry: Entry) -> Entry:
    """Return a message without grounding: what was retrieved for an old question is not what was said."""
    return entry if entry.message.grounding is None else replace(entry, message=entry.message.replace(grounding=None))


def _without_repeats(candidates: Sequence[Candidate], question: str) -> list[Candidate]:
    """Refuse the question itself, and of texts that say the same all but the newest."""
    texts = [near_duplicate_key(" ".join(entry.message.content for entry in c.entries)) for c in candidates]
    newest: dict[str, int] = {}
    for number, (text, candidate) in enumerate(zip(texts, candidates, strict=True)):
        if candidate.reason is None and _is_statement(text):
            best = newest.setdefault(text, number)
            if _age(candidate) > _age(candidates[best]):
                newest[text] = number
    result: list[Candidate] = []
    for number, (text, candidate) in enumerate(zip(texts, candidates, strict=True)):
        if candidate.reason is None and candidate.entries[0].message.role == "user" and text == question:
            candidate = candidate.because(Reason.REPEATS_QUESTION)
        elif candidate.reason is None and newest.get(text, number) != number:
            candidate = candidate.because(Reason.DUPLICATE)
        result.append(candidate)
    return result


def _is_statement(key: str) -> bool:
    # Scripts without spaces have no words to count.
    return not key.isascii() or key.count(" ") >= STATEMENT_WORDS - 1


def _age(candidate: Candidate) -> tuple[int, int]:
    return candidate.entries[-1].turn_no, candidate.entries[-1].order
