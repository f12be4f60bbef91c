"""Read what was found: the messages of results, what goes before them, and how much of each is shown."""

import re
from collections import defaultdict
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from math import inf
from operator import attrgetter

import numpy as np
import numpy.typing as npt

from shared_core.index.lexical import idf_of
from shared_core.index.session import ROLES
from shared_core.index.text import is_statement, near_duplicate_key, read_terms
from shared_core.index.user import UserIndex
from shared_core.languages.language import LANGUAGES
from shared_core.prompt.hits import Hit, Place, Reason
from shared_core.prompt.window import ELSEWHERE, lighter
from shared_core.recall.excerpts import EXCERPT_MARK, WHOLE, excerpt, excerpt_size, recalled_tokens
from shared_core.recall.scope import Scope, reading, records_in
from shared_core.recall.search import Found
from shared_core.records import Record
from shared_core.session.live import LiveSession
from shared_core.session.paths import Path
from shared_core.session.turns import Entry, Turn

WEAK_SHOWN = 8
"""Weak results that are reported anyway, so that the report shows what the floor keeps out."""

SPARE = 1.5
"""Results are read until their estimated size is this many times the room. Some turn out not to fit."""

CHARACTERS_PER_TOKEN = 4

MICROSECONDS = 1_000_000

PLACE_BITS = 32
"""Bits for the number of a scope, and of a message on its line."""

RARE = 20
"""A word that more messages hold tells nothing of what they are about."""

LEAST = 0.4
"""The share of a message's rare words, by their idf, that a newer one must hold.

Of 40 made-up changes, 24 to 27 reach a prompt of 600 tokens with .4 and 24 to 25 with .5. With .3 it is one more, and
foreign questions get more, too. For the two best results instead of one it is one more, and LoCoMo loses evidence.
"""

LONGEST = 300
"""Characters; longer messages are about too much to be renewed by one."""

NUMBERS = re.compile(r"\d+")

TOKENS = attrgetter("tokens")

Floats = npt.NDArray[np.float64]

Texts = Callable[[Sequence[Place]], Mapping[Place, str]]
"""Returns what some messages say; those forgotten since are left out."""


def shortlist(found: Found, room: int, excerpt_tokens: int | None) -> tuple[list[Hit], int | None]:
    """Return the results worth reading, and the size of an excerpt: enough to fill the room, some to spare.

    A few that will not be recalled are among them, for the report.

    Args:
        found: the search results.
        room: tokens that recalled messages may take.
        excerpt_tokens: the most that an excerpt may take; None: messages are recalled whole.
    """
    if found.silent:  # what it matches would only be reported
        return [], excerpt_tokens
    ranked, tokens, size = found.ranked, _sizes(found), excerpt_tokens
    out = ranked.weak | found.unlikely
    if size is not None and found.verdict is not None:  # else nothing tells how many of them are worth it
        size = excerpt_size(tokens[~out], room, size)
    taken = np.where(out, 0, recalled_tokens(tokens, inf if size is None else size))
    wanted = np.where(out, np.cumsum(out) <= WEAK_SHOWN, np.cumsum(taken) - taken <= SPARE * room)
    shown = np.flatnonzero(wanted)
    hits = ranked.hits(shown)
    weak = out[shown].tolist()
    return [hit.because(Reason.WEAK) if late else hit for hit, late in zip(hits, weak, strict=True)], size


def _sizes(found: Found) -> Floats:
    """Return the approximate size of the message of each result, in tokens."""
    ranked, characters = found.ranked, np.empty(len(found.ranked))
    for number, scope in enumerate(found.scopes):
        own = ranked.scopes == number
        characters[own] = scope.session_index.columns["characters"][scope.line.rows[ranked.indices[own]]]
    return characters / CHARACTERS_PER_TOKEN


def read_messages(live: LiveSession, found: Found, hits: Sequence[Hit], top_k: int, epoch: int) -> list[Hit]:
    """Return the first hits with their messages; the one of all that is `newer` than the very first comes before it.

    Raises:
        OutdatedError: something has been forgotten since the search, when the session's epoch was this one.
    """
    read, known = partial(live.records_of, epoch=epoch), {hit.place: hit for hit in hits}
    order = list(known)
    records = records_in(found.scopes, order[:top_k], read)
    if order and order[0] in records and hits[0].reranked is None and not found.dated:

        def texts(places: Sequence[Place]) -> Mapping[Place, str]:
            return {place: one.message.content for place, one in records_in(found.scopes, places, read).items()}

        new = newer(found.scopes, order[0], records[order[0]].message.content, found.stems, texts)
        if new in known:
            known[new] = known[new]._replace(score=hits[0].score)
            order.remove(new)
            order.insert(0, new)
    records |= records_in(found.scopes, [place for place in order[:top_k] if place not in records], read)
    return [
        known[place]._replace(
            entries=(live.sizer.entry(records[place], place[1]),), id=records[place].message.id,
            session_id=_session_of(found, place, live),
        )
        for place in order[:top_k]
        if place in records
    ]  # fmt: skip


def _session_of(found: Found, place: Place, live: LiveSession) -> str:
    index, row = found.scopes[place[0]].session_index, found.scopes[place[0]].line.rows[[place[1]]]
    ((session, _),) = index.places(row)
    return index.name_of(session) if isinstance(index, UserIndex) else live.session_id


class Reader:
    """Reads the messages of hits as they are recalled.

    Args:
        live: the session in which the question is asked.
        found: the search results.
        path: the path that was searched in this session.
        by_turn: whether whole turns are recalled.
        as_messages: whether they are sent as messages of the conversation.
        epoch: the session's at the search; None if it does not matter.
    """

    def __init__(
        self, live: LiveSession, found: Found, path: Path, *, by_turn: bool, as_messages: bool, epoch: int | None
    ) -> None:
        self._live = live
        self._found = found
        self._path = path
        self._by_turn = by_turn or as_messages
        self._as_messages = as_messages
        self._epoch = epoch
        self._entries: dict[Place, Entry] = {}
        self._said: dict[int, tuple[int, int]] = {}  # statement code and language by `Entry.order`, which is unique

    def read(self, hits: Sequence[Hit], question: str, size: int | None, *, follow: bool) -> list[Hit]:
        """Return hits with their messages, and what is `newer` than the best one before it.

        Args:
            hits: best first.
            question: its text. The same question, asked before, is not an answer.
            size: tokens of an excerpt; None: messages are recalled whole.
            follow: whether what is newer than the best hit is looked for.

        Raises:
            OutdatedError: something has been forgotten since.
        """
        read = self._taken(hits)
        read = self._once_each(self._with_newer(read) if follow and not self._found.dated else read)
        read = self._marked(read, question)
        if size is None:
            return read
        longest = WHOLE * size
        return [
            self._with_excerpts(hit, size) if hit.reason is None and max(map(TOKENS, hit.entries)) > longest else hit
            for hit in read
        ]

    def _taken(self, hits: Iterable[Hit]) -> list[Hit]:
        """Read the messages of all hits together."""
        units = [(hit, self._turn(hit.place) if self._by_turn else [hit.place]) for hit in hits]
        places = [place for _, members in units for place in members]
        records = records_in(self._found.scopes, places, partial(self._live.records_of, epoch=self._epoch))
        self._keep(records, [members for _, members in units])
        if self._by_turn:
            there = [(hit, list(filter(None, map(self._entries.get, members)))) for hit, members in units]
            return [self._of_turn(hit, entries) for hit, entries in there if entries]
        return [
            hit._replace(entries=(_bare(entry) if entry.message.grounding else entry,), id=entry.message.id)
            for hit, _ in units
            if (entry := self._entries.get(hit.place)) is not None
        ]

    def _turn(self, place: Place) -> list[Place]:
        """Return the places of the messages of a turn up to the question, given that of one of them."""
        number, index = place
        return [(number, member) for member in self._found.scopes[number].turn(index)]

    def _keep(self, records: Mapping[Place, Record], units: Sequence[Sequence[Place]]) -> None:
        """Keep messages with what the index knows of them."""
        elsewhere = self._orders(records, units)
        here = [place for place in records if place not in elsewhere]
        entries = self._live.entries([records[place] for place in here], self._path)
        self._entries |= zip(here, entries, strict=True)
        for place, order in elsewhere.items():
            self._entries[place] = replace(self._live.sizer.entry(records[place], order), turn_no=ELSEWHERE)
        for number, scope in enumerate(self._found.scopes):
            own = [place for place in records if place[0] == number]
            rows, columns = scope.line.rows[[index for _, index in own]], scope.session_index.columns
            said = zip(columns["statements"][rows].tolist(), columns["languages"][rows].tolist(), strict=True)
            self._said |= zip([self._entries[place].order for place in own], said, strict=True)

    def _orders(self, records: Mapping[Place, Record], units: Sequence[Sequence[Place]]) -> dict[Place, int]:
        """Return the order of the messages of other sessions among each other, by the time at which their unit begins.

        A unit stays together, so that exchanges of two sessions at the same time are not interleaved. The order does
        not depend on what else is read, since some messages are read later than others.
        """
        orders: dict[Place, int] = {}
        own = self._live.key
        for members in units:
            number, first = members[0]
            scope = self._found.scopes[number]
            if scope.session_index.session != own:
                began = float(scope.session_index.columns["times"][scope.line.rows[first]])
                unit = (int(began * MICROSECONDS) << PLACE_BITS | number) << PLACE_BITS
                orders |= {place: unit | place[1] for place in members if place in records}
        return orders

    def _of_turn(self, hit: Hit, entries: Sequence[Entry]) -> Hit:
        """Return a hit with those messages of its turn that can be recalled."""
        size, match = self._live.sizer.size, self._entries.get(hit.place)
        turn = Turn(entries[0].message.turn_id or "", entries[0].turn_no, tuple(entries)).whole(size)
        kept: Sequence[Entry] = [entry for entry in turn.entries if self._returns(entry)]
        alone = not kept or (self._as_messages and kept[0].message.role != "user")
        return hit._replace(
            entries=tuple([self._light(_bare(entry)) for entry in kept or entries]),
            id=match.message.id if match is not None else None,
            reason=hit.reason or (Reason.INCOMPLETE if alone else None),
        )

    def _light(self, entry: Entry) -> Entry:
        """Return an entry without the media that would be sent with whole messages."""
        message = lighter(entry.message, self._live.sizer.size) if self._as_messages else entry.message
        if message is entry.message:
            return entry
        return replace(entry, message=message, tokens=self._live.sizer.size(message))

    def _returns(self, entry: Entry) -> bool:
        """Return whether recall brings back a message of a turn."""
        message = entry.message
        if message.role == "tool" or (self._as_messages and message.tool_calls):
            return False
        return bool(message.content.strip()) or self._as_messages

    def _once_each(self, hits: list[Hit]) -> list[Hit]:
        """Return hits with each turn recalled once: several of its messages may be found."""
        if not self._by_turn:
            return hits
        found: list[Hit] = []
        seen: set[int] = set()
        for hit in hits:
            orders = {entry.order for entry in hit.entries} if hit.reason is None else set()
            found.append(hit.because(Reason.REPEATED) if orders & seen else hit)
            seen |= orders
        return found

    def _with_newer(self, hits: list[Hit]) -> list[Hit]:
        """Return hits; what is `newer` than the best one comes before it."""
        likely = (rank for rank, hit in enumerate(hits) if hit.reason is None and hit.matches and hit.reranked is None)
        best = next(likely, None)
        if best is None or hits[best].place not in self._entries:
            return hits
        old = hits[best]
        taken: dict[Place, Hit] = {}

        def texts(places: Sequence[Place]) -> Mapping[Place, str]:
            unread = [Hit(place, old.score, matches=False) for place in places if place not in self._entries]
            taken.update((hit.place, hit) for hit in self._taken(unread))
            return {place: self._entries[place].message.content for place in places if place in self._entries}

        text = self._entries[old.place].message.content
        new = newer(self._found.scopes, old.place, text, self._found.stems, texts)
        if new is None:
            return hits
        if new in taken:
            hits = [*hits, taken[new]]
        elif new not in self._entries:
            hits = [*hits, *self._taken([Hit(new, old.score, matches=False)])]
        order = self._entries[new].order if new in self._entries else None
        rank = next((rank for rank, hit in enumerate(hits) if order in [entry.order for entry in hit.entries]), best)
        if rank <= best:
            return hits
        hit = hits[rank].because(None) if hits[rank].reason is Reason.WEAK else hits[rank]
        return [*hits[:best], hit, *hits[best:rank], *hits[rank + 1 :]]

    def _marked(self, hits: Sequence[Hit], question: str) -> list[Hit]:
        """Mark earlier copies of the question with other numbers at most, and all but one of what is alike.

        That is the newest, or the best match if the question names a date.
        """
        asked, said = _without_numbers(question), dict[tuple[int, ...], list[Hit]]()
        repeated: set[Place] = set()
        for hit in hits:
            if hit.reason is None:
                said.setdefault(tuple([self._said[entry.order][0] for entry in hit.entries]), []).append(hit)
                if len(hit.entries) == 1 and hit.message.role == "user":
                    repeated |= {hit.place} if _without_numbers(hit.message.content) == asked else set()
        for codes, alike in said.items():
            if len(alike) > 1 and any(map(is_statement, codes)):
                newest = max(alike, key=lambda hit: (hit.entries[-1].turn_no, hit.entries[-1].order))
                kept = alike[0] if self._found.dated else newest
                repeated |= {hit.place for hit in alike if hit is not kept}
        if not repeated:
            return list(hits)
        return [hit.because(Reason.REPEATED) if hit.reason is None and hit.place in repeated else hit for hit in hits]

    def _with_excerpts(self, hit: Hit, size: int) -> Hit:
        """Return a hit with its long messages cut to excerpts of so many tokens."""
        entries = tuple([self._cut(entry, size) for entry in hit.entries])
        cut = [after.message.id for before, after in zip(hit.entries, entries, strict=True) if after is not before]
        return hit._replace(entries=entries, cut=tuple(cut))

    def _cut(self, entry: Entry, size: int) -> Entry:
        message, sizer = entry.message, self._live.sizer
        tokens, language = entry.tokens - message.media_tokens, LANGUAGES[self._said[entry.order][1]]
        passage = excerpt(message.content, self._found.stems, size, sizer.counter, tokens, language)
        if passage is None:
            return entry
        part = message.replace(content=EXCERPT_MARK.replace("{id}", message.id or "").replace("{text}", passage))
        return replace(entry, message=part, tokens=sizer.size(part))


def _without_numbers(text: str) -> str:
    """Return a key that is equal for texts that are alike but for their numbers, as "day 51" and "day 52" are."""
    return NUMBERS.sub("0", near_duplicate_key(text))


def _bare(entry: Entry) -> Entry:
    """Return an entry without grounding, which was retrieved for an old question."""
    return entry if entry.message.grounding is None else replace(entry, message=entry.message.replace(grounding=None))


def newer(scopes: Sequence[Scope], place: Place, text: str, asked: Container[str], texts: Texts) -> Place | None:
    """Return the later message in which a speaker says most of a message's rare words again; None: there is none.

    A question says nothing newer, and what tells no number does not renew what tells one: "The locker is blue." leaves
    its code as it was.

    Args:
        scopes: the scopes that were searched.
        place: the message.
        text: what it says.
        asked: the stems that were searched for.
        texts: returns what some messages say.
    """
    if len(text) > LONGEST:
        return None
    weights: defaultdict[Place, float] = defaultdict(float)
    with reading(scopes):
        messages = sum(scope.line.upto for scope in scopes)
        for term in read_terms(text)[0]:
            held = [scope.session_index.lexical.holding(term, scope.line) for scope in scopes]
            count = sum(map(len, held))
            # A number or a word of this message alone, which was not asked for, may be the value itself.
            if (term in asked or (count > 1 and not term.isdigit())) and count <= RARE:
                for number, indices in enumerate(held):
                    for index in indices.tolist():
                        weights[number, index] += idf_of(count, messages)
        least = LEAST * weights[place]
        likely = [at for at, weight in weights.items() if weight >= least and _renews(scopes, at, place)]
        likely.sort(key=lambda at: (weights[at], _said(scopes, at)[1], at[1]), reverse=True)
    if likely and NUMBERS.search(text):
        said = texts(likely)
        likely = [at for at in likely if at in said and NUMBERS.search(said[at])]
    return next(iter(likely), None)


def _renews(scopes: Sequence[Scope], new: Place, old: Place) -> bool:
    """Return whether what somebody says may be newer than an earlier message of the same speaker."""
    scope, (by, time), (same, earlier) = scopes[new[0]], _said(scopes, new), _said(scopes, old)
    row = scope.line.rows[new[1]]
    if by != same or by[0] == ROLES.index("tool") or not scope.eligible[new[1]]:
        return False
    if scope.session_index.columns["asks"][row] or scope.session_index.columns["characters"][row] > LONGEST:
        return False
    return new[1] > old[1] if new[0] == old[0] else time > earlier


def _said(scopes: Sequence[Scope], place: Place) -> tuple[tuple[int, str], float]:
    """Return who says a message, by role and name, and when."""
    session_index, row = scopes[place[0]].session_index, scopes[place[0]].line.rows[place[1]]
    name = int(session_index.columns["speakers"][row])
    speaker = int(session_index.columns["roles"][row]), session_index.names[name] if name >= 0 else ""
    return speaker, float(session_index.columns["times"][row])
