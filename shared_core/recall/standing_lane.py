"""Put the standing facts that bear on a question ahead of the ranked candidates, within their own few tokens; pure."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from shared_core.index.text import is_statement
from shared_core.messages import Message
from shared_core.prompt.reasons import Reason
from shared_core.prompt.window import ELSEWHERE, Candidate
from shared_core.turns import Entry

WHOLE_TOKENS = 60
"""A message of at most so many tokens is recalled whole for what it states; of a longer one, the statement alone."""

SURE_SHARE = 0.5
"""A ranked candidate that ends within this share of the room is in the prompt anyway."""

ELLIPSIS = "\u2026"

Codes = tuple[int, ...]

EntryKey = tuple[bool, int]


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
