"""The export file: the values that its lines hold, their form as JSON, and how it is read; see `docs/format.md`."""

import hashlib
import json
import math
import os
from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import IO, Annotated, Any, Literal, NamedTuple, NoReturn

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StrictInt, StrictStr, TypeAdapter, ValidationError

from shared_core.errors import InputFileError
from shared_core.messages import Message, storable, storable_name
from shared_core.stores.sqlite.database_file import is_database

MAX_LINE = 100 * 2**20
"""The largest line, in bytes. Without a limit, a file that is one endless line would fill the memory."""

MAX_NESTING = 300
"""The deepest nesting of brackets in a line. It stays below the recursion limit of everything that walks a value."""


class LineError(ValueError):
    """A part of a file is invalid. The message says why; the caller adds the file and the line."""


def encode(line: Mapping[str, Any]) -> bytes:
    """Return a line as UTF-8 with its line feed. Values that JSON cannot express are escaped.

    Raises:
        ValueError: the line is longer than `MAX_LINE`.
    """
    try:
        # A payload that looks like an escaped one is escaped too, so that reading it returns what was written.
        if "payload" in line and is_escaped_payload(line["payload"]["data"]):
            line = _escaped(line)
        text = json.dumps(line, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    except ValueError:
        text = json.dumps(_escaped(line), ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    data = text.encode() + b"\n"
    if len(data) > MAX_LINE:
        raise ValueError(f"{line.get('type')} {line.get('id')!r} is larger than {MAX_LINE:,} bytes; redact it")
    return data


def _escaped(line: Mapping[str, Any]) -> dict[str, Any]:
    """Return a message's line without NaN and infinity: scores become words, and the payload becomes one JSON text."""
    changed = dict(line)
    if "payload" in line:
        payload = line["payload"]
        changed["payload"] = {
            "format": payload["format"],
            "data": {"$json": json.dumps(payload["data"], ensure_ascii=False)},
        }
    if "grounding" in line:
        items = [
            item | ({} if math.isfinite(item.get("score") or 0) else {"score": _score_word(item["score"])})
            for item in line["grounding"].get("items", ())
        ]
        changed["grounding"] = line["grounding"] | {"items": items}
    return changed


def is_escaped_payload(data: Any) -> bool:
    """Return whether `data` has the form of an escaped payload."""
    return isinstance(data, dict) and data.keys() == {"$json"}


def _score_word(score: float) -> str:
    return "NaN" if math.isnan(score) else "Infinity" if score > 0 else "-Infinity"


def parse(data: bytes) -> Any:
    """Return the value of a line of JSON.

    Raises:
        LineError: the line is not JSON in UTF-8, is too long, or is nested too deeply.
    """
    if len(data) > MAX_LINE:
        raise LineError(f"is longer than {MAX_LINE:,} bytes; a line holds one message")
    try:
        value = _decoder.decode(data.decode())
    except LineError:
        raise
    except UnicodeDecodeError as error:
        raise LineError(f"is not text in UTF-8 (byte {error.start})") from None
    except RecursionError:
        raise LineError("is nested too deeply") from None
    except json.JSONDecodeError as error:
        raise LineError(f"is not JSON (column {error.colno}: {error.msg})") from None
    except ValueError as error:
        raise LineError(f"is not JSON ({error})") from None
    # Counting brackets is cheap and proves most lines shallow; only the others are walked.
    if data.count(b"[") + data.count(b"{") > MAX_NESTING and nesting(value) > MAX_NESTING:
        raise LineError(f"is nested too deeply; {MAX_NESTING} levels are enough")
    return value


def _reject_constant(name: str) -> NoReturn:
    raise LineError(f"has {name}, which is not JSON")


def _float(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise LineError(f"has a number that is too large, {text[:20]}")
    return value


_decoder = json.JSONDecoder(parse_constant=_reject_constant, parse_float=_float)


def nesting(value: Any) -> int:
    """Return how many levels of lists and objects a JSON value has, itself included."""
    depth, level = 0, [value]
    while level:
        depth += 1
        inner = (one.values() if isinstance(one, dict) else one for one in level if isinstance(one, dict | list))
        level = [item for items in inner for item in items]
    return depth


def file_error(name: str, number: int, error: Exception) -> InputFileError:
    """Return the error that names the file and the line."""
    return InputFileError(f"{name!r}, line {number} {error}; nothing was stored: ask for a new copy of the file")


FORMAT = "infinite-memory"
VERSION = 1

MAX_NUMBER = 2**31 - 1
"""The store counts positions and turns in 32 bits."""

Number = Annotated[StrictInt, Field(ge=0, le=MAX_NUMBER)]
Depth = Annotated[StrictInt, Field(ge=-1, le=MAX_NUMBER)]
Name = Annotated[StrictStr, AfterValidator(storable_name)]
Text = Annotated[StrictStr, AfterValidator(storable)]
FilePosition = tuple[Number, Depth]
"""A position as in the store: a segment, and a depth, which is -1 before the first message."""

Count = Annotated[StrictInt, Field(ge=0)]
TurnNumber = Annotated[StrictInt, Field(ge=-1, le=MAX_NUMBER)]
TurnShift = Annotated[StrictInt, Field(ge=-MAX_NUMBER, le=MAX_NUMBER)]


class _LineModel(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Header(_LineModel):
    """The first line: the format, its version, and what follows."""

    format: Literal["infinite-memory"]
    version: Literal[1]
    type: Literal["header"]
    sessions: Count
    messages: Count
    vectors: bool = False
    redacted: bool = False


class SessionLine(_LineModel):
    """The beginning of a session. The lines up to the next `SessionLine` belong to it."""

    type: Literal["session"]
    session_id: Name
    user_id: Name | None = None
    spaces: tuple[Name, ...] = ()


class SegmentLine(_LineModel):
    """A run of positions, down to the depth `tip`: it begins after `parent`, or at `base` with a merge of two."""

    type: Literal["segment"]
    segment: Number
    tip: Depth
    parent: FilePosition | None = None
    merged: FilePosition | None = None
    base: Number | None = None
    turn_shift: TurnShift = 0


class ForgottenLine(_LineModel):
    """Ids of forgotten messages. They are not stored again."""

    type: Literal["forgotten"]
    ids: tuple[Name, ...]


class VectorValue(_LineModel):
    """The vectors of a message's text: half precision, little endian, in base64. Several are joined end to end."""

    space: Name
    hash: Name
    data: StrictStr


class MessageLine(Message):
    """A message and its position. Without `turn_id`, it stands in a turn of its own."""

    type: Literal["message"]
    id: Annotated[Name, Field(min_length=1)]
    at: FilePosition
    turn_no: TurnNumber
    picked_from: Name | None = None
    alone: bool = False
    covers: tuple[tuple[Number, Depth, Depth], ...] = ()
    vectors: tuple[VectorValue, ...] = ()

    def message(self) -> Message:
        """Return the message without the fields of the line."""
        fields = self.__dict__
        return _BLANK.model_copy(update={name: fields[name] for name in self.model_fields_set & _MESSAGE_FIELDS})


_BLANK = Message(role="user")
_MESSAGE_FIELDS = frozenset(Message.model_fields)


class BranchLine(_LineModel):
    """The end of a branch."""

    type: Literal["branch"]
    name: Name
    at: FilePosition


class RefLine(_LineModel):
    """A tag, a stash (from after `base` up to `at`), an entry of the reflog (from `base` to `at`), or the title.

    An entry of the reflog without `at` says that the branch was deleted. The note of the title is the title.
    """

    type: Literal["ref"]
    kind: Literal["tag", "stash", "move", "title"]
    name: Name
    at: FilePosition | None = None
    base: FilePosition | None = None
    note: Text = ""
    created_at: StrictStr


class HeadLine(_LineModel):
    """What the exporting memory had checked out: a branch or, without a name, a position."""

    type: Literal["head"]
    branch: Name | None = None
    at: FilePosition | None = None


class EndLine(_LineModel):
    """The last line: the number of lines and messages before it, and the SHA-256 of all their bytes in hex."""

    type: Literal["end"]
    lines: Count
    messages: Count
    sha256: Annotated[StrictStr, Field(pattern="^[0-9a-f]{64}$")]


Line = (
    Header | SessionLine | SegmentLine | ForgottenLine | MessageLine | BranchLine | RefLine | HeadLine | EndLine
)  # fmt: skip

_LINES: TypeAdapter[Line] = TypeAdapter(Annotated[Line, Field(discriminator="type")])


def read_line(value: Any) -> Line:
    """Return a JSON value as a line.

    Raises:
        LineError: the value is not a valid line.
    """
    if not isinstance(value, dict):
        raise LineError('is not a line of this format; expected an object with "type"')
    try:
        if value.get("type") == "message":
            return MessageLine.model_validate(_with_plain_values(value))
        return _LINES.validate_python(value)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        field = ".".join(str(part) for part in first["loc"][:6])
        raise LineError(" ".join(f"{field or 'this line'}: {first['msg']}".split())[:200]) from None
    except LineError:
        raise
    except (ValueError, RecursionError) as error:
        raise LineError(f"is invalid: {error}") from None


def _with_plain_values(value: dict[str, Any]) -> dict[str, Any]:
    """Return a message's line with a parsed time and with the payload as it was before `encode`."""
    when = value.get("created_at")
    if when is not None:
        if not isinstance(when, str):
            raise LineError("created_at: expected ISO 8601 text")
        value = value | {"created_at": datetime.fromisoformat(when)}
    payload = value.get("payload")
    if isinstance(payload, dict) and is_escaped_payload(payload.get("data")):
        value = value | {"payload": payload | {"data": json.loads(str(payload["data"]["$json"]))}}
    return value


def schema() -> dict[str, Any]:
    """Return the JSON Schema of a line."""
    found = _LINES.json_schema()
    score = found["$defs"]["GroundingItem"]["properties"]["score"]
    score["anyOf"].append({"enum": ["NaN", "Infinity", "-Infinity"]})
    for one in found["$defs"].values():
        if "type" in one.get("properties", ()):
            one["properties"]["between"] = {"maxLength": 1, "minLength": 1, "title": "Between", "type": "string"}
    title = "A line of an infinite-memory file, version 1"
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": title} | found


BOM = b"\xef\xbb\xbf"
"""The byte order mark that some editors put at the beginning of a text."""

ADVICE = "nothing was stored: ask for a new copy of the file"


class NumberedLine(NamedTuple):
    """A line and its number in the file, from 1."""

    number: int
    line: Line


def open_file(path: str | os.PathLike[str]) -> IO[bytes]:
    """Open a file for reading; InputFileError if that fails."""
    try:
        return open(path, "rb")
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise InputFileError(f"{os.fspath(path)!r} cannot be read ({reason}); expected a file to import") from None


def is_ours(path: str | os.PathLike[str]) -> bool:
    """Return whether a file begins like an export file. Only the beginning is read.

    Raises:
        InputFileError: the file cannot be read, or is a database.
    """
    if is_database(Path(path)):
        raise InputFileError(f"{os.fspath(path)!r} is a database, not a file to import; export from it first")
    with open_file(path) as file:
        try:
            start = file.read(300)
        except OSError as error:  # a folder can be opened on some systems
            raise InputFileError(f"{os.fspath(path)!r} cannot be read ({error}); expected a file to import") from None
    return start.removeprefix(BOM).lstrip().replace(b" ", b"").startswith(f'{{"format":"{FORMAT}"'.encode())


def read_header(path: str | os.PathLike[str]) -> Header:
    """Return the first line of an export file. Errors are those of `read_lines`."""
    with open_file(path) as file:
        return _header(os.fspath(path), file.readline(MAX_LINE + 2).removeprefix(BOM))


def _header(name: str, data: bytes) -> Header:
    try:
        value = parse(data)
        version = value.get("version") if isinstance(value, dict) else None
        if isinstance(version, int) and version > VERSION:
            raise InputFileError(
                f"{name!r} was written by a newer version of this package (format {version}, not {VERSION}); "
                "upgrade infinite-memory to import it"
            )
        line = read_line(value)
    except LineError as error:
        raise file_error(name, 1, error) from None
    if not isinstance(line, Header):
        raise file_error(name, 1, LineError("is not the header of an infinite-memory file"))
    return line


def read_lines(path: str | os.PathLike[str]) -> Iterator[NumberedLine]:
    """Yield the lines between header and end. They may be used only after the last one has been yielded.

    The checksum is in the last line, so a damaged file may show itself only there.

    Raises:
        InputFileError: the file is invalid. The error says in which line, why, and what to do.
    """
    name = os.fspath(path)
    with open_file(path) as file:
        first = file.readline(MAX_LINE + 2).removeprefix(BOM)
        header = _header(name, first)
        digest = hashlib.sha256(first)
        number, messages, sessions = 1, 0, 0
        end: EndLine | None = None
        while data := file.readline(MAX_LINE + 2):
            if end is not None and not data.strip():
                continue
            number += 1
            if end is not None:
                raise file_error(name, number, LineError("comes after the end"))
            if not data.endswith(b"\n") and len(data) <= MAX_LINE and not _is_whole(data):
                raise InputFileError(f"{name!r} breaks off in line {number}; {ADVICE}")
            try:
                line = read_line(parse(data))
            except LineError as error:
                raise file_error(name, number, error) from None
            if isinstance(line, EndLine):
                end = line
                continue
            digest.update(data)
            messages += isinstance(line, MessageLine)
            sessions += isinstance(line, SessionLine)
            if isinstance(line, Header):
                raise file_error(name, number, LineError("is a second header"))
            if not sessions:
                raise file_error(name, number, LineError("comes before the first session"))
            yield NumberedLine(number, line)
    _check_end(name, end, number, messages, digest.hexdigest())
    if sessions != header.sessions:
        raise InputFileError(f"{name!r} holds {sessions} sessions, but its header says {header.sessions}; {ADVICE}")


def _is_whole(data: bytes) -> bool:
    try:
        json.loads(data)
    except (ValueError, RecursionError):
        return False
    return True


def _check_end(name: str, end: EndLine | None, lines: int, messages: int, digest: str) -> None:
    if end is None:
        raise InputFileError(f"{name!r} breaks off after line {lines}: its end is missing; {ADVICE}")
    if end.lines != lines - 1:
        raise InputFileError(f"{name!r} holds {lines - 1} lines before its end, which says {end.lines}; {ADVICE}")
    if end.messages != messages:
        raise InputFileError(f"{name!r} holds {messages} messages, but its end says {end.messages}; {ADVICE}")
    if end.sha256 != digest:
        raise InputFileError(f"{name!r} was changed after it was written (its checksum differs); {ADVICE}")
