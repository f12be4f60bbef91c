"""Turn search results into messages: hits for people, and candidates with excerpts for the prompt."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from math import inf

import numpy as np
import numpy.typing as npt

from shared_core.index.arrays import distinct
from shared_core.index.text import is_statement, statement_code
from shared_core.index.user_index import UserIndex
from shared_core.languages.language import LANGUAGES, Language
from shared_core.prompt.abridged import lighter
from shared_core.prompt.assembler import Placement
from shared_core.prompt.reasons import Reason
from shared_core.prompt.window import ELSEWHERE, Candidate
from shared_core.recall.excerpts import EXCERPT_MARK, excerpt
from shared_core.recall.lengths import WHOLE, excerpt_size, recalled_tokens
from shared_core.recall.newer import SURE, newer
from shared_core.recall.ranking import Ranked, ScoredMessage, Source
from shared_core.recall.rules import RecallRules
from shared_core.recall.scope import Place, records_in
from shared_core.recall.search import Found
from shared_core.records import Record
from shared_core.session.live import LiveSession
from shared_core.session.paths import Path
from shared_core.session.turns import Entry, Turn

WEAK_SHOWN = 8
"""Weak candidates that are reported anyway, so that the report shows what the floor keeps out."""

SPARE = 1.5
"""Candidates are read until their estimated size is this many times the room. Some turn out not to fit."""

CHARACTERS_PER_TOKEN = 4

MICROSECONDS = 1_000_000

PLACE_BITS = 32
"""Bits for the number of a scope, and of a message on its line."""

StatementCodes = tuple[int, ...]
"""The `statement_code` of each of some messages."""

EntryKey = tuple[bool, int]
"""Tells a message from all others: its id may be in several sessions."""


def read_candidates(
    live: LiveSession, rules: RecallRules, found: Found, *, path: Path, question: str, room: int, placement: Placement,
    epoch: int | None = None,
) -> list[Candidate]:  # fmt: skip
    """Return candidates, best first.

    Args:
        live: the session in which the question is asked.
        rules: how units are treated.
        found: the search results.
        path: the path that was searched in this session.
        question: its text. The same question, asked before, is not an answer.
        room: tokens that recalled messages may take.
        placement: with `"messages"`, messages are recalled in whole turns.
        epoch: the session's at the search; None if it does not matter.

    Raises:
        OutdatedError: something has been forgotten since.
    """
    most = rules.excerpt_tokens if placement != "messages" else None
    tokens = _sizes(found)
    size = most
    if most is not None and found.verdict is not None:  # else nothing tells how many of them are worth it
        size = excerpt_size(tokens[~_left_out(found)], room, most)
    reader = _Reader(live, rules, found, path, whole_turns=placement == "messages")
    # What a silent question matches is not read: it would only be reported.
    shortlist = [] if found.silent else _shortlist(found, tokens, room, inf if size is None else size)
    read = reader.with_newer(list(reader.read(shortlist, epoch)), shortlist)
    once = _once_each([candidate for candidate, _ in read])
    candidates = _without_repeats(
        list(zip(once, (codes for _, codes in read), strict=True)), (statement_code(question),)
    )
    return candidates if size is None else reader.cut(candidates, size)


def read_hits(live: LiveSession, found: Found, best: Sequence[Ranked], top_k: int, epoch: int) -> list[ScoredMessage]:
    """Return the messages of the first results; the one of all that is `newer` than the very first stands before it.

    Raises:
        OutdatedError: something has been forgotten since the search, when the session's epoch was this one.
    """
    others = [scope.session_index for scope in found.scopes if isinstance(scope.session_index, UserIndex)]
    known = {(one.scope, one.line_index): one for one in best}
    read = partial(live.records_of, epoch=epoch)
    order = list(known)
    records = records_in(found.scopes, order[:top_k], read)
    if order and order[0] in records and known[order[0]].reranked is None:
        old = order[0]
        new = newer(found.scopes, old, records[old].message.content, found.stems)
        if new in order:
            order.remove(new)
            order.insert(0, new)
            known[new] = known[new]._replace(score=known[old].score)
    records |= records_in(found.scopes, [at for at in order[:top_k] if at not in records], read)
    hits: list[ScoredMessage] = []
    for at in order[:top_k]:
        if at in records:
            ranked = known[at]
            sides = (ranked.lexical > 0, ranked.dense is not None)
            source: Source = "both" if all(sides) else "dense" if sides[1] else "lexical"
            hits.append(
                ScoredMessage(
                    records[at].message, ranked.score, "grounding" if ranked.grounding else source, ranked.lexical,
                    ranked.dense, _name_of(found, at, live, others), ranked.reranked,
                )
            )  # fmt: skip
    return hits


def _name_of(found: Found, at: Place, live: LiveSession, others: Sequence[UserIndex]) -> str:
    scope = found.scopes[at[0]]
    ((session, _),) = scope.session_index.places(scope.line.rows[[at[1]]])
    return live.session_id if session == live.key else others[0].name_of(session)


def _left_out(found: Found) -> npt.NDArray[np.bool_]:
    """Return which results are only reported."""
    return found.ranked.weak | found.unlikely


def _sizes(found: Found) -> npt.NDArray[np.float64]:
    """Return the approximate size of the message of each result, in tokens."""
    ranked = found.ranked
    characters = np.empty(len(ranked))
    for number in distinct(ranked.scopes).tolist() if len(found.scopes) > 1 else range(len(found.scopes)):
        scope, own = found.scopes[number], ranked.scopes == number
        characters[own] = scope.session_index.column("characters")[scope.line.rows[ranked.indices[own]]]
    return characters / CHARACTERS_PER_TOKEN


def _shortlist(
    found: Found, tokens: npt.NDArray[np.float64], room: int, size: float
) -> list[tuple[Ranked, Reason | None]]:
    """Return the results worth reading: enough to fill the room, some to spare, and a few that will not be recalled.

    Each has the reason why it will not, or None.

    Args:
        found: the search results.
        tokens: the approximate size of each.
        room: tokens that recalled messages may take.
        size: tokens of an excerpt.
    """
    ranked, unlikely, out = found.ranked, found.unlikely, _left_out(found)
    # Weak and unlikely candidates take no room.
    tokens = np.where(out, 0, recalled_tokens(tokens, size))
    before = np.cumsum(tokens) - tokens
    wanted = np.where(out, np.cumsum(out) <= WEAK_SHOWN, before <= SPARE * room)
    shown = np.flatnonzero(wanted)
    reasons = [Reason.WEAK if out else None for out in (ranked.weak | unlikely)[shown].tolist()]
    return list(zip(ranked.at(shown), reasons, strict=True))


class _Reader:
    def __init__(self, live: LiveSession, rules: RecallRules, found: Found, path: Path, *, whole_turns: bool) -> None:
        self.live = live
        self.rules = rules
        self.found = found
        self.path = path
        self.said: dict[EntryKey, int] = {}
        self.spoken: dict[EntryKey, Language] = {}
        self._entries: dict[tuple[int, int], Entry] = {}
        self.whole_turns = whole_turns
        self.by_turn = whole_turns or rules.recall_unit == "turn"

    def read(
        self, shortlist: Iterable[tuple[Ranked, Reason | None]], epoch: int | None = None
    ) -> Iterator[tuple[Candidate, StatementCodes]]:
        """Yield a candidate for each result, with the statement codes of its messages."""
        shortlist = list(shortlist)
        units = [(ranked, self._members(ranked)) for ranked, _ in shortlist]
        self._take(units, epoch)
        for (ranked, members), (_, reason) in zip(units, shortlist, strict=True):
            entries = self._entries_at(ranked.scope, members)
            match = self._entries.get((ranked.scope, ranked.line_index)) if ranked.own else None
            candidate = self._candidate(ranked, entries, match.message.id if match is not None else None, reason)
            if candidate is not None:
                yield candidate, self._codes(candidate)

    def with_newer(
        self, read: Sequence[tuple[Candidate, StatementCodes]], shortlist: Sequence[tuple[Ranked, Reason | None]]
    ) -> list[tuple[Candidate, StatementCodes]]:
        """Return candidates; what is `newer` than the best one stands before it."""
        found, verdict = list(read), self.found.verdict
        matches = (one for one, reason in shortlist if reason is None and one.own and one.reranked is None)
        best = next(matches, None)
        if best is None or self.rules.min_score is not None or (verdict is not None and verdict.chance < SURE):
            return found
        old = self._entries.get((best.scope, best.line_index))
        text = old.message.content if old is not None else ""
        new = newer(self.found.scopes, (best.scope, best.line_index), text, self.found.stems)
        if new is None:
            return found
        if new not in self._entries:
            unread = [(Ranked(*new, best.score, 0.0, None, weak=False), None)]
            found += [(replace(candidate, newer=True), codes) for candidate, codes in self.read(unread)]
        before, place = self._place(found, (best.scope, best.line_index)), self._place(found, new)
        if before < place < len(found):
            candidate, codes = found.pop(place)
            unlikely = candidate.reason is Reason.WEAK
            found.insert(before, (replace(candidate, reason=None) if unlikely else candidate, codes))
        return found

    def _place(self, found: Sequence[tuple[Candidate, StatementCodes]], at: Place) -> int:
        """Return which of some candidates has a message; the end if none has."""
        key = _key(self._entries[at]) if at in self._entries else (False, -1)
        return next((place for place, (one, _) in enumerate(found) if key in map(_key, one.entries)), len(found))

    def _codes(self, candidate: Candidate) -> StatementCodes:
        return tuple([self.said[_key(entry)] for entry in candidate.entries])

    def _entries_at(self, scope: int, indices: Iterable[int]) -> list[Entry]:
        """Return what was read at some indices of a scope."""
        return [self._entries[scope, index] for index in indices if (scope, index) in self._entries]

    def _members(self, ranked: Ranked) -> list[int]:
        """Return the indices that a result recalls: its own, or those of its turn up to the question."""
        scope, index = self.found.scopes[ranked.scope], ranked.line_index
        return scope.turn(index) if self.by_turn else [index]

    def _take(self, units: Sequence[tuple[Ranked, list[int]]], epoch: int | None) -> None:
        """Read the messages of all results together; keep them, with their codes and languages."""
        scopes, places = self.found.scopes, [(one.scope, index) for one, members in units for index in members]
        records = records_in(scopes, places, partial(self.live.records_of, epoch=epoch))
        self._keep(records, self._orders(units, records))
        for number, index in records:
            row, column = scopes[number].line.rows[index], scopes[number].session_index.column
            key = _key(self._entries[number, index])
            self.said[key], self.spoken[key] = int(column("statements")[row]), LANGUAGES[column("languages")[row]]

    def _keep(self, records: Mapping[tuple[int, int], Record], orders: Mapping[tuple[int, int], int]) -> None:
        """Keep the entries of some records; `orders` are those of other sessions' messages among each other."""
        own = [key for key in records if key not in orders]
        entries = self.live.entries([records[key] for key in own], self.path)
        self._entries.update(zip(own, entries, strict=True))
        for key, order in orders.items():
            self._entries[key] = replace(self.live.sizer.entry(records[key], order), turn_no=ELSEWHERE)

    def _orders(
        self, indices: Sequence[tuple[Ranked, list[int]]], records: Mapping[tuple[int, int], Record]
    ) -> dict[tuple[int, int], int]:
        """Return the order of the messages of other sessions among each other, by the time at which their unit begins.

        A unit stays together, so that exchanges of two sessions at the same time are not interleaved. The order does
        not depend on what else is read, since some messages are read later than others.
        """
        orders: dict[tuple[int, int], int] = {}
        for ranked, members in indices:
            scope = self.found.scopes[ranked.scope]
            if scope.session_index.session != self.live.key and members:
                began = float(scope.session_index.column("times")[scope.line.rows[members[0]]])
                unit = (int(began * MICROSECONDS) << PLACE_BITS | ranked.scope) << PLACE_BITS
                for index in members:
                    key = ranked.scope, index
                    if key in records:
                        orders[key] = max(unit | index, orders.get(key, unit))
        return orders

    def _candidate(
        self, ranked: Ranked, entries: Sequence[Entry], match: str | None, reason: Reason | None
    ) -> Candidate | None:
        if not entries:
            return None
        kept: Sequence[Entry] = entries
        if self.by_turn:
            turn = Turn(entries[0].message.turn_id or "", entries[0].turn_no, tuple(entries))
            turn = turn.whole(self.live.sizer.size)
            kept = tuple(entry for entry in turn.entries if self._returns(entry))
            if not kept or (self.whole_turns and kept[0].message.role != "user"):
                reason = reason or Reason.INCOMPLETE
        return Candidate(
            tuple([self._as_recalled(entry) for entry in kept or entries]), ranked.score, ranked.lexical, ranked.dense,
            reason, match, reranked=ranked.reranked,
        )  # fmt: skip

    def _as_recalled(self, entry: Entry) -> Entry:
        """Return an entry without grounding, and without the media that would be sent with whole messages."""
        bare = _without_grounding(entry)
        if not self.whole_turns:
            return bare
        message = lighter(bare.message, self.live.sizer.size)
        return bare if message is bare.message else replace(bare, message=message, tokens=self.live.sizer.size(message))

    def cut(self, candidates: Iterable[Candidate], size: int) -> list[Candidate]:
        """Return candidates with their long messages cut to excerpts of so many tokens."""
        return [
            self._with_excerpts(one, size)
            if one.reason is None and max([entry.tokens for entry in one.entries]) > WHOLE * size
            else one
            for one in candidates
        ]

    def _with_excerpts(self, candidate: Candidate, size: int) -> Candidate:
        entries = tuple([self._cut(entry, size) for entry in candidate.entries])
        cut = [after.message.id for before, after in zip(candidate.entries, entries, strict=True) if after != before]
        return replace(candidate, entries=entries, cut=tuple(cut)) if cut else candidate

    def _cut(self, entry: Entry, size: int) -> Entry:
        message, sizer = entry.message, self.live.sizer
        tokens, language = entry.tokens - message.media_tokens, self.spoken.get(_key(entry))
        passage = excerpt(message.content, self.found.stems, size, sizer.counter, tokens, language)
        if passage is None:
            return entry
        marked = EXCERPT_MARK.replace("{id}", message.id or "").replace("{text}", passage)
        part = message.replace(content=marked)
        return replace(entry, message=part, tokens=sizer.size(part))

    def _returns(self, entry: Entry) -> bool:
        message = entry.message
        if message.role == "tool" or (self.whole_turns and message.tool_calls):
            return False
        return bool(message.content.strip()) or self.whole_turns


def _key(entry: Entry) -> EntryKey:
    return entry.turn_no == ELSEWHERE, entry.order


def _once_each(candidates: Iterable[Candidate]) -> list[Candidate]:
    """Return candidates with each message recalled once: several messages of a turn may be found, which is recalled."""
    found: list[Candidate] = []
    seen: set[EntryKey] = set()
    for candidate in candidates:
        if candidate.reason is None:
            keys = {_key(entry) for entry in candidate.entries}
            candidate = candidate.because(Reason.REPEATED) if keys & seen else candidate
            seen |= keys
        found.append(candidate)
    return found


def _without_grounding(entry: Entry) -> Entry:
    """Return an entry without grounding: text retrieved for an old question is not part of the conversation."""
    return entry if entry.message.grounding is None else replace(entry, message=entry.message.replace(grounding=None))


def _without_repeats(
    candidates: Sequence[tuple[Candidate, StatementCodes]], question: StatementCodes
) -> list[Candidate]:
    """Mark repeats of the question, and of candidates that say the same, all but the newest."""
    newest: dict[StatementCodes, Candidate] = {}
    for candidate, said in candidates:
        if candidate.reason is None and any(map(is_statement, said)):
            best = newest.setdefault(said, candidate)
            if best is not candidate and _age(candidate) > _age(best):
                newest[said] = candidate
    result: list[Candidate] = []
    for candidate, said in candidates:
        asked = candidate.entries[0].message.role == "user" and said == question
        if candidate.reason is None and (asked or newest.get(said, candidate) is not candidate):
            candidate = candidate.because(Reason.REPEATED)
        result.append(candidate)
    return result


def _age(candidate: Candidate) -> tuple[int, int]:
    return candidate.entries[-1].turn_no, candidate.entries[-1].order
