"""Text that fits a terminal: widths in columns, lines that do not wrap, passages, colours, and what a terminal is."""

import os
import re
import sys
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import accumulate
from types import MappingProxyType
from unicodedata import category, east_asian_width

Span = tuple[str, str]
"""A text and the name of its style; empty: plain."""

STYLES: Mapping[str, str] = MappingProxyType({
    "bold": "1", "dim": "2", "found": "1;32", "warning": "33",
    "system": "30;45", "tools": "30;47", "question": "30;43", "grounding": "30;46", "summary": "30;103",
    "recalled": "30;42", "window": "30;44",
})  # fmt: skip
"""The parameters of the terminal's escape sequence for each style."""

_OBEYED = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
"""Control characters, those that turn the direction of writing, line separators, and halves of surrogate pairs."""

ELLIPSIS = "…"
EMOJI_VARIANT = "\ufe0f"
WORD = re.compile(r"\w{4,}")
"""Shorter words hardly ever say where in a text the answer stands."""

PREVIEW = 48
"""Characters of a message in a table of a notebook, and in JSON."""

RANDOM_ID = re.compile(r"[0-9a-f]{32}|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
"""A random ID, whose beginning is enough to name the message or the session with."""

SHORT = 8
"""The characters of a random ID on a terminal. Of stores with 10,000 messages, one in 86 has two that begin alike."""

SHORT_ID = re.compile(rf"[0-9a-f]{{{SHORT}}}")
"""What a terminal shows of a random ID."""

LEAD = 3
"""Words shown before the first word that was looked for: they say what the sentence is about."""


def printable(text: str) -> str:
    """Return a text that is safe for a terminal: what it would obey instead of showing is escaped.

    Tabs and line feeds stay as they are.
    """
    if text.isprintable():
        return text
    return _OBEYED.sub(lambda found: found[0].encode("unicode_escape").decode(), text.replace("\r\n", "\n"))


def on_one_line(text: str) -> str:
    """Return a text that is safe for a terminal, on one line."""
    return " ".join(printable(text).split())


def printable_name(text: str) -> str:
    """Return an id or a name, safe for a terminal, in which line feeds and tabs are escaped, too."""
    return printable(text).replace("\n", r"\n").replace("\t", r"\t")


def short_id(id_: str) -> str:
    """Return the beginning of a random ID, which is enough to name what has it; any other ID as it is."""
    return id_[:SHORT] if RANDOM_ID.fullmatch(id_) else id_


def columns(text: str) -> int:
    """Return how many columns of a terminal a line takes."""
    return len(text) if text.isascii() else sum(_each_column(text))


def _each_column(text: str) -> Iterator[int]:
    """Yield the columns that each character adds."""
    before = 0
    for char in text:
        # The variant selector draws the character before it as a picture, which is two columns wide.
        wide = 2 - before if char == EMOJI_VARIANT and before else _columns_of(char)
        yield wide
        before = 2 if char == EMOJI_VARIANT else wide or before


@lru_cache(maxsize=4096)
def _columns_of(char: str) -> int:
    if category(char) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if east_asian_width(char) in "WF" else 1


def _beginning(text: str, width: int) -> str:
    """Return the longest beginning of a text that takes at most so many columns."""
    if text.isascii():
        return text[:width]
    fits = sum(1 for end in accumulate(_each_column(text)) if end <= width)
    return text[:fits]


def clipped(text: str, width: int) -> str:
    """Return a line cut to a width; an ellipsis marks the cut."""
    return text if columns(text) <= width else f"{_beginning(text, width - 1).rstrip()}{ELLIPSIS}"


def padded(text: str, width: int) -> str:
    """Return a line with spaces after it, up to a width."""
    return text + " " * (width - columns(text))


def wrapped(text: str, width: int) -> list[str]:
    """Return a text in lines of at most a width, broken between words, and within words that are longer."""
    return flowed(text.split(), width, between=" ")


def flowed(parts: Iterable[str], width: int, *, between: str = "  ") -> list[str]:
    """Return parts in lines of at most a width. A part is broken only if it is longer than a line."""
    lines: list[str] = []
    for part in parts:
        if lines and columns(lines[-1]) + columns(between) + columns(part) <= width:
            lines[-1] += between + part
            continue
        while columns(part) > width:
            piece = _beginning(part, width) or part[0]
            lines.append(piece)
            part = part[len(piece) :]
        lines.append(part)
    return lines


def words_of(text: str) -> frozenset[str]:
    """Return the words of a text that `passage` looks for."""
    return frozenset(word.casefold() for word in WORD.findall(text))


def passage(text: str, words: frozenset[str], width: int, most: int) -> list[str]:
    """Return the part of a text that holds the most of some words, in at most so many lines.

    Args:
        text: the text, on one line.
        words: as returned by `words_of`.
        width: columns of a line.
        most: the number of lines.
    """
    lines = wrapped(text, width)
    if len(lines) <= most:
        return lines
    tokens = text.split()

    def from_token(start: int) -> list[str]:
        return wrapped(" ".join([ELLIPSIS, *tokens[start:]]), width) if start else lines

    start = _densest(tokens, words, most * width)
    # Near the end of the text there may be room for more of what comes before.
    while start and len(from_token(start - 1)) <= most:
        start -= 1
    shown = from_token(start)
    if len(shown) <= most:
        return shown
    last = wrapped(shown[most - 1], width - 2)[0]
    return [*shown[: most - 1], f"{last} {ELLIPSIS}"]


def _densest(tokens: Sequence[str], words: frozenset[str], room: int) -> int:
    """Return the index of the token at which the passage with the most of some words begins, the earliest of equals."""
    ends = list(accumulate(columns(token) + 1 for token in tokens))
    hits = [index for index, token in enumerate(tokens) if words & words_of(token)]
    best, start = 0, 0
    for begin in [0, *(max(0, index - LEAD) for index in hits)]:
        end = bisect_right(ends, room + (ends[begin - 1] if begin else 0))
        number = sum(begin <= index < end for index in hits)
        if number > best:
            best, start = number, begin
    return start


def painted(spans: Iterable[Span], width: int, *, colour: bool) -> str:
    """Return spans as one line of at most a width, with the terminal's colours if wanted."""
    shown: list[Span] = []
    for text, style in spans:
        left = width - sum(columns(said) for said, _ in shown)
        if left > 0:
            shown.append((clipped(text, left), style))
    while shown and not shown[-1][0].strip():
        shown.pop()
    if shown:
        shown[-1] = (shown[-1][0].rstrip(), shown[-1][1])
    return "".join(
        f"\x1b[{STYLES[style]}m{said}\x1b[0m" if colour and style and said else said for said, style in shown
    )


def preview(text: str) -> str:
    """Return the beginning of a text on one line, without control characters."""
    # Cut first, as a message may have megabytes. Four times the length survives most white space.
    line = on_one_line(text[: 4 * PREVIEW])[: PREVIEW + 1]
    return line if len(line) <= PREVIEW else line[: PREVIEW - 1] + "…"


def on_a_terminal() -> bool:
    """Return whether the output is a terminal that may be coloured."""
    shown = sys.stdout is not None and sys.stdout.isatty()
    return shown and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def counted(number: int, what: str) -> str:
    """Return a number with what it counts, in the plural unless there is one."""
    return f"{number:,} {what}{'' if number == 1 else 's'}"
