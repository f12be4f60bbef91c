"""Excerpts: the part of a long message in which most of the words of a question occur; pure."""

import math
import re
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from itertools import islice

import numpy as np
import numpy.typing as npt

from shared_core.index.text import language_of, terms, word_spans
from shared_core.languages.language import ENGLISH, Language

WHOLE = 1.5
"""A message at most this many times as long as an excerpt is recalled whole: a cut would save little."""

FRAME_TOKENS = 8
"""What a line of a recalled message takes beside its text, about."""

SHORTEST = 60
"""Tokens below which excerpts are not cut for more messages.

Measured on BEAM's questions for orders and summaries and on QMSum in 4,000 tokens, against 100: 2 to 5 points more of
the evidence, and .3 to 1.3 less of the facts of the answer. 45 and 30 tokens bring more evidence, and lose 1 to 4
points of the facts.
"""

EXCERPT_MARK = "{text} (excerpt of message {id})"
"""How an excerpt is marked. The id lets the model ask for the whole message."""

LEAD = 0.25
"""The share of an excerpt's free room that goes before the words found. The rest goes after them."""

MOST_HITS = 200
"""At most this many occurrences of words are considered. More of them hardly ever change the best passage."""

_ENDS = re.compile(r"(?<=[.!?])\s+|(?<=\u3002)|\n+")


Floats = npt.NDArray[np.float64]


def recalled_tokens(tokens: Floats, size: float) -> Floats:
    """Return what messages take when those longer than `WHOLE` times `size` are cut to that size.

    Args:
        tokens: the size of each message.
        size: tokens of an excerpt.
    """
    cut: Floats = np.where(tokens > WHOLE * size, size, tokens) + FRAME_TOKENS
    return cut


def excerpt_size(tokens: Floats, room: int, most: int) -> int:
    """Return the size of excerpts at which all messages fit, or `SHORTEST` if even then they do not; at most `most`.

    Args:
        tokens: the size of each message that is worth recalling.
        room: tokens that they may take.
        most: the largest size.
    """
    sizes = range(min(SHORTEST, most), most + 1)
    # What they take grows with the size, so bisect.
    fitting = bisect_right(sizes, room, key=lambda size: math.ceil(recalled_tokens(tokens, size).sum()))
    return sizes[max(fitting - 1, 0)]


def excerpt(
    text: str, words: Sequence[str], size: int, counter: Callable[[str], int], tokens: int,
    language: Language | None = None,
) -> str | None:  # fmt: skip
    """Return the part of a text in which most of the words occur. An ellipsis marks what is left out.

    The excerpt begins and ends between sentences if there is room, else between words.

    Args:
        text: the message.
        words: stems, as returned by `terms`.
        size: tokens that the excerpt may take.
        counter: counts tokens.
        tokens: the approximate size of the text.
        language: what it is in; None: it is found out, which takes longer than all else.

    Returns:
        None if the text is no longer than `WHOLE` times the size.
    """
    if tokens <= WHOLE * size:
        return None
    room = int(len(text) * size / tokens)
    hits = _hits(text, words, language or language_of(text))
    while True:
        found = _passage(text, hits, room)
        # Characters per token vary within a text, so shrink the passage until it fits.
        if counter(found) <= size or room <= 1:
            return found
        room = min(room - 1, int(room * 0.9))


def _hits(text: str, words: Sequence[str], language: Language) -> list[tuple[int, str]]:
    """Return the offsets in a text at which words begin, each with its word, in order."""
    return _stemmed_hits(text, words, language) if language is not ENGLISH else _plain_hits(text, words)


def _stemmed_hits(text: str, words: Sequence[str], language: Language) -> list[tuple[int, str]]:
    """Return the hits in a text whose words differ from their stems by more than an ending, as most languages' do."""
    wanted, found = frozenset(words), list[tuple[int, str]]()
    for start, said in word_spans(text):
        hit = next((term for term in terms(said, language) if term in wanted), None)
        found += [(start, hit)] if hit else []
    return found[:MOST_HITS]


def _plain_hits(text: str, words: Sequence[str]) -> list[tuple[int, str]]:
    folded = text.casefold()
    if len(folded) != len(text):
        # Folding may lengthen a character. Such characters stay as they are, so that offsets are those of the text.
        folded = "".join(c if len(c.casefold()) > 1 else c.casefold() for c in text)
    found: dict[int, str] = {}
    # If two words begin at the same offset, the longer one counts.
    for word in sorted(words, key=len, reverse=True):
        for form in _beginnings(word):
            for index in islice(_indices(folded, form, within=not word.isascii()), MOST_HITS):
                found.setdefault(index, word)
    return sorted(found.items())[:MOST_HITS]


def _indices(text: str, form: str, *, within: bool) -> Iterator[int]:
    """Yield the offsets of a form. Unless `within` is set, only those at the beginning of a word count."""
    index = text.find(form)
    while index >= 0:
        # Scripts without spaces do not mark where a word begins, so there every occurrence counts.
        if within or not index or not (text[index - 1].isalnum() or text[index - 1] == "_"):
            yield index
        index = text.find(form, index + 1)


def _beginnings(stem: str) -> tuple[str, ...]:
    """Return how the words of a stem begin: Snowball stems battery to "batteri" and moving to "move"."""
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
    """Return the offsets of the first and last hit of the best passage: most different words, then most hits."""
    best, found = (0, 0), (0, 0)
    for number, (start, _) in enumerate(hits):
        inside = [(index, word) for index, word in hits[number:] if index - start < room * (1 - LEAD)]
        score = len({word for _, word in inside}), len(inside)
        if score > best:
            best, found = score, (start, inside[-1][0])
    return found


def _snap(text: str, start: int, first: int) -> int:
    """Return where the first sentence after `start` begins, or the first word if no sentence begins before the hit."""
    sentence = next((match.end() for match in _ENDS.finditer(text, start, first + 1)), None)
    if sentence is not None and sentence <= first:
        return sentence
    space = text.find(" ", start, first)
    return space + 1 if space >= 0 else start
