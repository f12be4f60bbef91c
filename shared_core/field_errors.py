"""What errors say about a wrong value: the argument as it was given, and the fields that pydantic rejected."""

from collections.abc import Iterator
from difflib import get_close_matches

from pydantic import BaseModel, ValidationError

LONGEST = 80
"""The largest number of characters of a value that a message shows."""

ADVICE = {
    ("content", "string_type"): "; Message.from_openai reads a message made of parts",
    ("arguments", "string_type"): ", the JSON that the model wrote; write json.dumps(…)",
    ("grounding", "model_type"): " or a text",
}
"""What to write instead, by field and type of error."""


def shown(name: str, value: object) -> str:
    """Return an argument as it was given, cut to what one line can show."""
    text = repr(value)
    return f"{name}={text if len(text) <= LONGEST else text[:LONGEST] + '…'}"


def explained(value: type[BaseModel], error: ValidationError) -> str:
    """Return what is wrong with the fields of a value and what is expected, in one line for each of the first three."""
    problems = list(_problems(value, error))
    more = [f"and {len(problems) - 3} more"] if len(problems) > 3 else []
    return f"{value.__name__}: " + "\n".join([*problems[:3], *more])


def _problems(value: type[BaseModel], error: ValidationError) -> Iterator[str]:
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
            yield f"{shown(name, given)}: {why}{_advice(name, kind, given)}"


def _name(location: tuple[int | str, ...]) -> str:
    """Return the name of a field as Python writes it, for example `tool_calls[0].name`."""
    parts = [f"[{part}]" if isinstance(part, int) else f".{part}" for part in location]
    return "".join(parts).removeprefix(".")


def _choices(fields: list[str]) -> str:
    return f"; there are {', '.join(fields)}" if fields else ""


def _advice(name: str, kind: str, given: object) -> str:
    field = name.rpartition(".")[2]
    return ADVICE.get((field, kind), "") if kind != "string_type" or isinstance(given, list | dict) else ""
