"""The passage of a long message that speaks of a question; pure."""

import re
from collections.abc import Callable, Iterator, Sequence
from itertools import islice

__all__ = ["EXCERPT_MARK", "WHOLE", "excerpt"]

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
