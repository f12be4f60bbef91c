"""Text for a terminal: what it would obey is escaped, random IDs are short, and a preview is one line."""

import re

_OBEYED = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
"""Control characters, those that turn the direction of writing, line separators, and halves of surrogate pairs."""


PREVIEW = 48
"""Characters of a message in a table of a notebook, and in JSON."""

RANDOM_ID = re.compile(r"[0-9a-f]{32}|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
"""A random ID, whose beginning is enough to name the message or the session with."""

SHORT = 8
"""The characters of a random ID on a terminal. Of stores with 10,000 messages, one in 86 has two that begin alike."""

SHORT_ID = re.compile(rf"[0-9a-f]{{{SHORT}}}")
"""What a terminal shows of a random ID."""


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


def preview(text: str) -> str:
    """Return the beginning of a text on one line, without control characters."""
    # Cut first, as a message may have megabytes. Four times the length survives most white space.
    line = on_one_line(text[: 4 * PREVIEW])[: PREVIEW + 1]
    return line if len(line) <= PREVIEW else line[: PREVIEW - 1] + "…"


def counted(number: int, what: str) -> str:
    """Return a number with what it counts, in the plural unless there is one."""
    return f"{number:,} {what}{'' if number == 1 else 's'}"
