"""The scope of a search: a session's rows along a path, filtered by position, time, role and use of tools."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cached_property, reduce
from typing import Literal

import numpy as np
import numpy.typing as npt

from shared_core.formats.fields import Role
from shared_core.index.lines import LinePrefix
from shared_core.index.session import ROLES, SessionIndex
from shared_core.index.session_vectors import SessionVectors
from shared_core.index.vectors import PAIRED
from shared_core.languages.language import ENGLISH, LANGUAGES, Language
from shared_core.prompt.hits import Place
from shared_core.records import Position, Record
from shared_core.session.paths import Path

Mask = npt.NDArray[np.bool_]
ReadAt = Callable[[Mapping[int, Sequence[Position]]], Mapping[int, Sequence[Record]]]
"""Returns the messages at some positions of some sessions, by session."""

RecallUnit = Literal["message", "turn"]
RecallScope = Literal["session", "user"]

ALL_SAMPLED = 512
"""Messages on a line up to which all of them are sampled, at every question."""

Indices = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Scope:
    """The messages of one session, or of the user's other sessions, that a search may find.

    Attributes:
        session_index: the session's rows.
        vectors: its vectors; None to search by words alone.
        line: the path searched, up to the question.
        eligible: which messages of the line may be found, shape (line.upto,).
        unit: whether single messages or whole turns are found.
        repeats: how many of the best may say the same; None for no limit.
        of_others: of several sessions, those whose vectors are another embedder's.
    """

    session_index: SessionIndex
    vectors: SessionVectors | None
    line: LinePrefix
    eligible: Mask
    unit: RecallUnit = "message"
    repeats: int | None = None
    of_others: frozenset[int] = frozenset()

    def findable(self) -> Mask:
        """Return which rows of the session index hold the vector of a unit that may be found."""
        mask = self._findable
        later = len(self.session_index) - len(mask)  # another caller may have added rows since
        return np.pad(mask, (0, later)) if later else mask

    def pending(self) -> npt.NDArray[np.int64]:
        """Return the rows that may be found but have no vector, newest first."""
        return np.empty(0, np.int64) if self.vectors is None else self.vectors.missing(self.embeddable())

    def embeddable(self) -> Mask:
        """Return which rows hold, or should hold, the vector of a unit that may be found."""
        mask = self.findable()
        if not self.of_others:
            return mask
        rows = np.flatnonzero(mask)
        own = np.isin(self.session_index.sessions_at(rows), list(self.of_others), invert=True)
        left = np.zeros_like(mask)
        left[rows[own]] = True
        return left

    @cached_property
    def _findable(self) -> Mask:
        indices = self.eligible
        if self.unit == "turn":
            indices = np.zeros(self.line.upto, dtype=np.bool_)
            indices[self.units(np.flatnonzero(self.eligible))] = True
        return self.line.across(indices, len(self.session_index))

    def unrelated(self) -> tuple[float, float] | None:
        """Return `VectorIndex.unrelated` of what may be found here; other messages may have no vectors.

        Only the beginning of a long line is looked at, up to a power of two, so that a sample serves until the line has
        doubled. It depends on what may be found there and has a vector, not on when it was taken.
        """
        along = self.line.along(self.findable())
        if self.vectors is None or not along.any():
            return None
        count = len(along) - int(along[::-1].argmax())  # the window at the end is in the prompt
        if count > ALL_SAMPLED:
            part = along[: 1 << (count.bit_length() - 1)]
            known = self.vectors.unrelated(self.line.line, part, least=PAIRED)
            if known is not None:
                return known
        return self.vectors.vectors.unrelated(self.line.rows[: len(along)][along])

    def units(self, indices: npt.NDArray[np.integer]) -> Indices:
        """Return the index that holds the vector of each message's unit: its own, or the last one of its turn."""
        if self.unit == "message":
            return indices.astype(np.int64)
        return self.line.turn_ends(self._turns(indices))  # replies after the question are out of scope

    def best(self, units: Indices, score: Callable[[Indices], Floats]) -> Indices:
        """Return the index of the eligible message with the highest score in each unit; of equal scores, the newest."""
        if self.unit == "message" or not len(units):
            return units
        turns = [np.array([p for p in self.line.turn(t) if self.eligible[p]]) for t in self._turns(units).tolist()]
        scores = np.split(score(np.concatenate(turns)), np.cumsum([len(indices) for indices in turns])[:-1])
        newest = [np.flatnonzero(values == values.max())[-1] for values in scores]
        return np.array([indices[best] for indices, best in zip(turns, newest, strict=True)], dtype=np.int64)

    def opens(self, indices: Indices) -> Mask:
        """Return which units hold the message with which the user opened a sitting."""
        first = self._firsts(indices)
        begins = first == indices if self.unit == "message" else self._turns(first) == self._turns(indices)
        opens: Mask = begins & (self.session_index.columns["roles"][self.line.rows[first]] == ROLES.index("user"))
        return opens

    def openings(self, indices: Indices, newest: int) -> Indices:
        """Return the units that open the sittings of some messages, or one of the newest sittings, in any order."""
        upto = self.line.upto
        last = int(self.line.sittings[upto - 1]) if upto else -1
        numbers = np.arange(max(0, last - newest + 1), last + 1, dtype=np.int64)
        first = np.searchsorted(self.line.sittings[:upto], np.append(self.line.sittings[indices], numbers))
        return self.units(first[self.eligible[first] & self.opens(first)])

    def _firsts(self, indices: Indices) -> Indices:
        """Return the index of the first message in each message's sitting."""
        sittings = self.line.sittings[: self.line.upto]
        return np.searchsorted(sittings, sittings[indices]).astype(np.int64)

    def members(self, index: int) -> list[int]:
        """Return the indices of the messages of a unit, given one of them."""
        return [index] if self.unit == "message" else self.turn(index)

    def turn(self, index: int) -> list[int]:
        """Return the indices of the messages of a turn, given one of them."""
        return self.line.turn(int(self._turns(np.array([index]))[0]))

    def newest(self, count: int) -> Indices:
        """Return the indices of the newest messages of the user and the assistant, oldest first."""
        upto, look = self.line.upto, 4 * count  # results of tools may be between them
        indices = np.arange(max(0, upto - look), upto)
        spoken: Indices = indices[self.session_index.columns["speaks"][self.line.rows[indices]]]
        return spoken[-count:]

    def heard(self, indices: Indices) -> list[bool]:
        """Return which messages the assistant said."""
        roles = self.session_index.columns["roles"][self.line.rows[indices]]
        return [role == ROLES.index("assistant") for role in roles.tolist()]

    def mentions(self, terms: Iterable[str]) -> bool:
        """Return whether a message before the question contains one of some terms."""
        return any(self.session_index.lexical.occurs(term, self.line) for term in terms)

    def holds_all(self, groups: Sequence[Sequence[str]]) -> bool:
        """Return whether a message before the question contains a term of each group."""
        held = [self.session_index.lexical.on_line(terms, self.line)[1] for terms in groups]
        return len(reduce(np.intersect1d, held)) > 0

    def statement_codes(self, indices: Indices) -> Indices:
        """Return the statement code of the message at each index."""
        codes: Indices = self.session_index.columns["statements"][self.line.rows[indices]]
        return codes

    def turn_codes(self, indices: Indices) -> Indices:
        """Return a code for all texts of the turn at each index."""
        turns = [self.statement_codes(np.array(self.turn(index))).tolist() for index in indices.tolist()]
        return np.array([hash(tuple(turn)) for turn in turns], dtype=np.int64)  # hashes of ints do not vary by process

    def _turns(self, indices: npt.NDArray[np.integer]) -> npt.NDArray[np.int32]:
        turns: npt.NDArray[np.int32] = self.session_index.columns["turns"][self.line.rows[indices]]
        return turns


@dataclass(frozen=True, slots=True)
class Filter:
    """Which messages may be found.

    Attributes:
        path: the path to search; None for the path that is checked out.
        before: the question's position on the path; None for all of the path.
        without: turns that are in the prompt anyway.
        since, until: seconds since 1970, inclusive.
        roles: only messages of these; None for all that take part in the conversation, not results of tools.
        repeats: how many messages that say the same are considered, newest first; None for no limit.
        scope: what is searched: this session, or the user's other sessions, too; None: what the memory's rules say.
        in_conversation: whether the question is understood as the next message of the conversation.
        as_of: seconds since 1970; other sessions end before the first message said later.
    """

    path: Path | None = None
    before: Position | None = None
    without: tuple[str, ...] = ()
    since: float = -np.inf
    until: float = np.inf
    roles: tuple[Role, ...] | None = None
    repeats: int | None = None
    scope: RecallScope | None = None
    in_conversation: bool = False
    as_of: float = np.inf


def records_in(scopes: Sequence[Scope], places: Iterable[Place], read: ReadAt) -> dict[Place, Record]:
    """Read some messages with one call of `read`; without those forgotten since."""
    indices: dict[int, set[int]] = {}
    for number, index in places:
        indices.setdefault(number, set()).add(index)
    at: dict[tuple[int, Position], Place] = {}
    for number, some in sorted(indices.items()):
        scope, own = scopes[number], sorted(some)
        at |= zip(scope.session_index.places(scope.line.rows[own]), [(number, index) for index in own], strict=True)
    wanted: dict[int, list[Position]] = {}
    for session, position in at:
        wanted.setdefault(session, []).append(position)
    found = read(wanted) if wanted else {}
    return {at[session, record.position]: record for session, some in found.items() for record in some}


@contextmanager
def reading(scopes: Sequence[Scope]) -> Iterator[None]:
    """Enter a block in which the indexes of some scopes do not grow; the store must not be asked in it."""
    with ExitStack() as held:
        for scope in scopes:
            held.enter_context(scope.session_index.lock)
        yield


def eligible_mask(session_index: SessionIndex, line: LinePrefix, wanted: Filter) -> Mask:
    """Return which messages of a line may be found. The line already ends at `wanted.before`."""
    eligible = _speaks(session_index, line, wanted.roles)
    if wanted.since != -np.inf or wanted.until != np.inf:
        times = line.along(session_index.columns["times"])
        eligible &= (times >= wanted.since) & (times <= wanted.until)
    for turn in wanted.without:
        eligible[line.turn(session_index.turn(turn))] = False
    return eligible


def _speaks(session_index: SessionIndex, line: LinePrefix, wanted: tuple[Role, ...] | None) -> Mask:
    """Return which messages have text that may be recalled."""
    if wanted is None:
        return line.along(session_index.columns["speaks"]).copy()
    said: Mask = np.isin(line.along(session_index.columns["roles"]), [ROLES.index(role) for role in wanted])
    said &= line.along(session_index.columns["characters"]) > 0
    return said


def speakers(scopes: Sequence[Scope]) -> list[str]:
    """Return the names of the participants who speak in some scopes."""
    found: dict[str, None] = {}
    for scope in scopes:
        found |= dict.fromkeys(name for code, name in enumerate(scope.session_index.names) if scope.line.has_said(code))
    return list(found)


NEWEST = 64
"""Messages whose languages say in which one a question is that does not show it."""

SPOKEN = 0.25
"""The share of them that must be in another language than English: short ones often do not show theirs."""


def languages(scopes: Sequence[Scope]) -> tuple[Language, ...]:
    """Return the languages of some scopes, first the one that the newest messages of the first scope speak."""
    found = {number: None for scope in scopes for number in scope.line.languages()}
    first = [_spoken(scopes[0])] if scopes else []
    return tuple(LANGUAGES[number] for number in dict.fromkeys([*first, *found])) or (ENGLISH,)


def _spoken(scope: Scope) -> int:
    rows = scope.line.rows[max(0, scope.line.upto - NEWEST) : scope.line.upto]
    counts = np.bincount(scope.session_index.columns["languages"][rows], minlength=len(LANGUAGES))
    english = LANGUAGES.index(ENGLISH)
    counts[english] = 0
    most = int(counts.argmax())
    return most if counts[most] > SPOKEN * len(rows) else english
