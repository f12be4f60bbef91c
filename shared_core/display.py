"""Values as people read them: in errors, on one line and cut; on a terminal, without what it would obey."""

import re
from collections.abc import Iterator
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pydantic import BaseModel, ValidationError

# In errors

LONGEST = 80
"""The largest number of characters of a value that a message shows."""

ADVICE = {
    ("content", "string_type"): "; Message.from_openai reads a message made of parts",
    ("arguments", "string_type"): ", the JSON that the model wrote; write json.dumps(…)",
    ("grounding", "model_type"): " or a text",
}
"""What to write instead, by field and type of error."""


def short(value: Any) -> str:
    """Return the `repr` of a value, cut to what one line can show."""
    text = repr(value)
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}…"


def shown(name: str, value: object) -> str:
    """Return an argument as it was given, cut to what one line can show."""
    return f"{name}={short(value)}"


def explained(value: "type[BaseModel]", error: "ValidationError") -> str:
    """Return what is wrong with the fields of a value and what is expected, in one line for each of the first three."""
    problems = list(_problems(value, error))
    more = [f"and {len(problems) - 3} more"] if len(problems) > 3 else []
    return f"{value.__name__}: " + "\n".join([*problems[:3], *more])


def _problems(value: "type[BaseModel]", error: "ValidationError") -> Iterator[str]:
    for one in error.errors(include_url=False):
        name, kind, given = _name(one["loc"]), one["type"], one["input"]
        if kind == "missing":
            yield f"{name}= is missing"
        elif kind == "extra_forbidden":
            fields = list(value.model_fields) if len(one["loc"]) == 1 else []
            near = get_close_matches(name, fields, n=1, cutoff=0.7)
            yield f"there is no field {name!r}" + (f"; did you mean {near[0]!r}?" if near else _choices(fields))
        else:
            why = one["ctx"]["error"] if kind == "value_error" else one["msg"]
            yield f"{shown(name, given) if name else short(given)}: {why}{_advice(name, kind, given)}"


def _name(location: tuple[int | str, ...]) -> str:
    """Return the name of a field as Python writes it, for example `tool_calls[0].name`."""
    parts = [f"[{part}]" if isinstance(part, int) else f".{part}" for part in location]
    return "".join(parts).removeprefix(".")


def _choices(fields: list[str]) -> str:
    return f"; there are {', '.join(fields)}" if fields else ""


def _advice(name: str, kind: str, given: object) -> str:
    if kind == "string_type" and isinstance(given, int | float):
        return f"; write {str(given)!r}"
    field = name.rpartition(".")[2]
    return ADVICE.get((field, kind), "") if kind != "string_type" or isinstance(given, list | dict) else ""


# On a terminal

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


def counted(number: int, what: str, several: str = "") -> str:
    """Return a number with what it counts, in the plural unless there is one."""
    return f"{number:,} {what if number == 1 else several or f'{what}s'}"
