"""The lines of an export file: the values they hold, and their form as JSON bytes; see `docs/format.md`."""

import json
import math
from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any, Literal, NoReturn

from pydantic import BaseModel, ConfigDict, Field, StrictInt, StrictStr, TypeAdapter, ValidationError

from shared_core.errors import InputFileError
from shared_core.messages import Message

__all__ = [
    "FORMAT",
    "MAX_LINE",
    "VERSION",
    "BranchLine",
    "EndLine",
    "ForgottenLine",
    "GoneLine",
    "HeadLine",
    "Header",
    "Line",
    "MergeLine",
    "MessageLine",
    "MoveLine",
    "Place",
    "SessionLine",
    "StashLine",
    "TagLine",
    "VectorValue",
    "Wrong",
    "encode",
    "is_mark",
    "parse",
    "read_line",
    "refused",
    "schema",
]

MAX_LINE = 100 * 2**20
"""Bytes a line may have, so that a file of one endless line does not fill the memory."""

MAX_NESTING = 300
"""Brackets within brackets that a line may have."""


class Wrong(ValueError):
    """What is wrong with a part of a file, without saying where."""


def encode(line: Mapping[str, Any]) -> bytes:
    """Return a line as UTF-8 with its line feed; what UTF-8 or JSON has no form for is escaped."""
    try:
        if "payload" in line and is_mark(line["payload"]["data"]):
            line = _finite(line)
        text = json.dumps(line, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    except ValueError:
        text = json.dumps(_finite(line), ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    try:
        data = text.encode() + b"\n"
    except UnicodeEncodeError:  # a lone surrogate
        data = json.dumps(json.loads(text), separators=(",", ":")).encode() + b"\n"
    if len(data) > MAX_LINE:
        raise ValueError(f"{line.get('type')} {line.get('id')!r} is larger than {MAX_LINE:,} bytes; redact it")
    return data


def _finite(line: Mapping[str, Any]) -> dict[str, Any]:
    """Return a message's line with NaN and infinity written as texts: scores in words, a payload whole."""
    changed = dict(line)
    if "payload" in line:
        payload = line["payload"]
        changed["payload"] = {"format": payload["format"], "data": {"$json": json.dumps(payload["data"])}}
    if "grounding" in line:
        items = [
            item | ({} if math.isfinite(item.get("score") or 0) else {"score": _word(item["score"])})
            for item in line["grounding"].get("items", ())
        ]
        changed["grounding"] = line["grounding"] | {"items": items}
    return changed


def is_mark(data: Any) -> bool:
    """Return whether data is what stands for a payload that JSON has no form for."""
    return isinstance(data, dict) and data.keys() == {"$json"}


def _word(score: float) -> str:
    return "NaN" if math.isnan(score) else "Infinity" if score > 0 else "-Infinity"


def parse(data: bytes) -> Any:
    """Return the value of a line of JSON.

    Raises:
        Wrong: it is not JSON in UTF-8, or larger or deeper than a line may be.
    """
    if len(data) > MAX_LINE:
        raise Wrong(f"is longer than {MAX_LINE:,} bytes; a line holds one message")
    try:
        value = _decoder.decode(data.decode())
    except Wrong:
        raise
    except UnicodeDecodeError as error:
        raise Wrong(f"is not text in UTF-8 (byte {error.start})") from None
    except RecursionError:
        raise Wrong("is nested too deeply") from None
    except json.JSONDecodeError as error:
        raise Wrong(f"is not JSON (column {error.colno}: {error.msg})") from None
    except ValueError as error:
        raise Wrong(f"is not JSON ({error})") from None
    if data.count(b"[") + data.count(b"{") > MAX_NESTING and _nesting(value) > MAX_NESTING:
        raise Wrong(f"is nested too deeply; {MAX_NESTING} levels are enough")
    return value


def _no_constant(name: str) -> NoReturn:
    raise Wrong(f"has {name}, which is not JSON")


def _float(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise Wrong(f"has a number that is too large, {text[:20]}")
    return value


_decoder = json.JSONDecoder(parse_constant=_no_constant, parse_float=_float)


def _nesting(value: Any) -> int:
    depth, level = 0, [value]
    while level:
        depth += 1
        inner = (one.values() if isinstance(one, dict) else one for one in level if isinstance(one, dict | list))
        level = [item for items in inner for item in items]
    return depth


def refused(name: str, number: int, wrong: Exception) -> InputFileError:
    """Return the error for a line of a file."""
    return InputFileError(f"{name!r}, line {number} {wrong}; nothing was stored: ask for a new copy of the file")


FORMAT = "infinite-memory"
VERSION = 1

MAX_NUMBER = 2**31 - 1
"""Places and turns are counted in 32 bits."""

Place = Annotated[StrictStr | Annotated[StrictInt, Field(ge=0, le=MAX_NUMBER)], Field(union_mode="left_to_right")]
"""A message, by its id; or a merge or a place where nothing is any more, by its number in the session."""

Count = Annotated[StrictInt, Field(ge=0)]
Number = Annotated[StrictInt, Field(ge=-1, le=MAX_NUMBER)]
Shift = Annotated[StrictInt, Field(ge=-MAX_NUMBER, le=MAX_NUMBER)]


class _Line(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Header(_Line):
    """The first line: what this is, and what follows."""

    format: Literal["infinite-memory"]
    version: Literal[1]
    type: Literal["header"]
    sessions: Count
    messages: Count
    vectors: bool = False
    redacted: bool = False


class SessionLine(_Line):
    """Begins a session; what follows is its own, up to the next one."""

    type: Literal["session"]
    session_id: StrictStr
    user_id: StrictStr | None = None
    spaces: tuple[StrictStr, ...] = ()


class ForgottenLine(_Line):
    """Ids that were forgotten, so that they are not stored again."""

    type: Literal["forgotten"]
    ids: tuple[StrictStr, ...]


class VectorValue(_Line):
    """What a message's text was embedded as: half precision, little endian, in base64; one or more, end to end."""

    space: StrictStr
    hash: StrictStr
    data: StrictStr


class MessageLine(Message):
    """A message, and where it stands; without `turn_id` it is its own turn's, if it can open one."""

    type: Literal["message"]
    id: Annotated[StrictStr, Field(min_length=1)]
    parents: Annotated[tuple[Place, ...], Field(max_length=1)]
    fork: bool = False
    turn_no: Number | None = None
    picked_from: StrictStr | None = None
    covers: tuple[tuple[Place, Place], ...] = ()
    vectors: tuple[VectorValue, ...] = ()

    def message(self) -> Message:
        """Return the message alone."""
        fields = self.__dict__
        return _BLANK.model_copy(update={name: fields[name] for name in self.model_fields_set & _MESSAGE_FIELDS})


_BLANK = Message(role="user")
_MESSAGE_FIELDS = frozenset(Message.model_fields)


class MergeLine(_Line):
    """A merge: the first parent is the branch that was merged into; null: before the first message."""

    type: Literal["merge"]
    place: Count
    parents: tuple[Place | None, Place | None]
    turn_shift: Shift = 0


class GoneLine(_Line):
    """So many places, one after the other, where a message was that is not told."""

    type: Literal["gone"]
    place: Count
    parents: Annotated[tuple[Place, ...], Field(max_length=1)]
    count: Annotated[StrictInt, Field(ge=1, le=2**24)] = 1
    fork: bool = False


class BranchLine(_Line):
    """Where a branch ends; null: before the first message."""

    type: Literal["branch"]
    name: StrictStr
    at: Place | None


class TagLine(_Line):
    """A name for a place."""

    type: Literal["tag"]
    name: StrictStr
    at: Place | None
    note: StrictStr = ""
    created_at: StrictStr


class StashLine(_Line):
    """The end of a branch, put aside: what comes after `base`, up to `at`."""

    type: Literal["stash"]
    branch: StrictStr
    at: Place | None
    base: Place | None
    note: StrictStr = ""
    created_at: StrictStr


class MoveLine(_Line):
    """A branch ended at `base` and was moved to `at`, or deleted."""

    type: Literal["move"]
    branch: StrictStr
    base: Place | None
    at: Place | None = None
    deleted: bool = False
    note: StrictStr = ""
    created_at: StrictStr


class HeadLine(_Line):
    """Where the one who wrote the file stood: on a branch, or without a name at a place."""

    type: Literal["head"]
    branch: StrictStr | None = None
    at: Place | None = None


class EndLine(_Line):
    """The last line: how many lines and messages came before it, and the SHA-256 of all their bytes, in hex."""

    type: Literal["end"]
    lines: Count
    messages: Count
    sha256: Annotated[StrictStr, Field(pattern="^[0-9a-f]{64}$")]


Line = (
    Header | SessionLine | ForgottenLine | MessageLine | MergeLine | GoneLine | BranchLine | TagLine | StashLine
    | MoveLine | HeadLine | EndLine
)  # fmt: skip

_LINES: TypeAdapter[Line] = TypeAdapter(Annotated[Line, Field(discriminator="type")])


def read_line(value: Any) -> Line:
    """Return the line that a value is.

    Raises:
        Wrong: it is none.
    """
    if not isinstance(value, dict):
        raise Wrong('is not a line of this format; expected an object with "type"')
    try:
        if value.get("type") == "message":
            return MessageLine.model_validate(_with_plain_values(value))
        return _LINES.validate_python(value)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        field = ".".join(str(part) for part in first["loc"][:6])
        raise Wrong(" ".join(f"{field or 'this line'}: {first['msg']}".split())[:200]) from None
    except Wrong:
        raise
    except (ValueError, RecursionError) as error:
        raise Wrong(f"is wrong: {error}") from None


def _with_plain_values(value: dict[str, Any]) -> dict[str, Any]:
    """Return a message's line with its time read, and its payload as it was before `encode`."""
    when = value.get("created_at")
    if when is not None:
        if not isinstance(when, str):
            raise Wrong("created_at: expected ISO 8601 text")
        value = value | {"created_at": datetime.fromisoformat(when)}
    payload = value.get("payload")
    if isinstance(payload, dict) and is_mark(payload.get("data")):
        value = value | {"payload": payload | {"data": json.loads(str(payload["data"]["$json"]))}}
    return value


def schema() -> dict[str, Any]:
    """Return the JSON Schema of a line."""
    found = _LINES.json_schema()
    score = found["$defs"]["GroundingItem"]["properties"]["score"]
    score["anyOf"].append({"enum": ["NaN", "Infinity", "-Infinity"]})
    title = "A line of an infinite-memory file, version 1"
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": title} | found
