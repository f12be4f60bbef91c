"""The lines of a file to share, as values: what each may hold, and its form as JSON text; see `docs/format.md`."""

import json
from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StrictInt, StrictStr, TypeAdapter, ValidationError

from shared_core.messages import Message
from shared_core.sharing.jsonl import Wrong, is_mark

__all__ = [
    "FORMAT",
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
    "read_line",
    "schema",
]

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
