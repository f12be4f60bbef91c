"""The values of rows, the same in every database: how messages, vectors and summaries are written, read and checked."""

import json
import zlib
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime
from functools import cache
from operator import itemgetter
from typing import Any

from pydantic import TypeAdapter

from shared_core.errors import StoreError, warn
from shared_core.messages import Message
from shared_core.records import Forgotten, Position, Record, Ref, Segment, SessionKey, Summary, VectorRow

WRONG = "its checksum is wrong"
"""What is said of a row that does not hold what was written."""


ADVICE = (
    "the database is damaged: restore it from a backup, or run `infinite-memory doctor`, which lists what is damaged "
    "and saves the rest"
)
"""What to do about damage."""


class DamagedRow(StoreError):
    """A row that cannot be read, or is missing: what it is, why, and in the message also what to do."""

    def __init__(self, what: str, why: str = WRONG) -> None:
        super().__init__(f"{what} cannot be read: {why}; {ADVICE}")
        self.what = what
        self.why = why


def lost_messages(session: SessionKey | None, before: str | None) -> DamagedRow:
    """Return the error that says that messages are missing; `before`: the id of the one that was before them."""
    whose = "a session" if session is None else f"session {session.session_id!r}"
    return DamagedRow(
        f"messages of {whose}", f"missing {'at the beginning' if before is None else f'after message {before!r}'}"
    )


def checksum_of(values: Sequence[Any]) -> int:
    """Return the checksum of a row's values: the CRC-32 of their texts, each followed by a zero byte.

    A CRC of 32 bits notices every change within 4 bytes in a row, and of other changes all but one in 2**32. For a
    message of 250 characters it takes 2.5 µs, of which 2 µs join the values; a BLAKE2b of 8 bytes takes 3 µs more.
    """
    return zlib.crc32((_form(len(values)) % tuple(values)).encode("utf-8", "surrogatepass"))


@cache
def _form(count: int) -> str:
    return "%s\0" * count


def vector_checksum(segment: int, depth: int, hash_: str, vector: bytes) -> int | None:
    """Return the checksum of a stored vector; None if the row holds no bytes at all."""
    return zlib.crc32(vector, checksum_of((segment, depth, hash_))) if isinstance(vector, bytes) else None


def read_vector(row: tuple[Any, ...]) -> VectorRow:
    """Return a stored vector; a damaged one without hash and bytes, so that it is made again.

    Args:
        row: segment, depth, hash, vector and checksum.
    """
    segment, depth, hash_, vector, checksum = row
    if checksum != vector_checksum(segment, depth, hash_, vector):
        return Position(segment, depth), "", b""
    return Position(segment, depth), hash_, vector


_NOWHERE = Position(-1, -1)
"""Stands in table `erasures` for an epoch in which nothing was erased."""

_REMEMBERED = 4_096
"""Of more positions at once it is not noted where they were: an index is then built anew from what is left."""


def erasures(positions: Sequence[Position], stale: Sequence[Position]) -> list[tuple[int, int, int]]:
    """Return the rows that note where something was erased: segment, depth, and 1 if only the vectors were."""
    if len(positions) + len(stale) > _REMEMBERED:
        return []
    noted = dict.fromkeys(stale, 1) | dict.fromkeys(positions, 0) or {_NOWHERE: 0}
    return [(*position, kind) for position, kind in noted.items()]


def read_erasures(rows: Sequence[tuple[int, int, int, int]], epochs: int) -> Forgotten | None:
    """Return what was erased in some epochs; None if that is not known of each.

    Args:
        rows: epoch, segment, depth, and whether only the vectors were erased.
        epochs: how many there were.
    """
    if len({row[0] for row in rows}) < epochs:
        return None
    found = [(Position(segment, depth), stale) for _, segment, depth, stale in rows]
    positions = [position for position, stale in found if not stale and position != _NOWHERE]
    return Forgotten(positions, [position for position, stale in found if stale])


def position_of(segment: int | None, depth: int | None) -> Position | None:
    """Return the position in two columns, both of which are NULL if there is none."""
    return None if segment is None or depth is None else Position(segment, depth)


def position_values(position: Position | None) -> tuple[int | None, int | None]:
    """Return the two columns of a position that may be missing."""
    return (None, None) if position is None else position


def segment_values(session: int, segment: Segment) -> tuple[Any, ...]:
    """Return what the checksum of a segment is of; its tip is not part of it."""
    parent, merged = position_values(segment.parent), position_values(segment.merged)
    return (session, segment.segment, *parent, *merged, segment.base, segment.turn_shift)


def read_segment(session: int, row: tuple[Any, ...]) -> Segment:
    """Return a segment; StoreError if it is damaged.

    Args:
        session: the key of its session.
        row: number, parent segment and depth, tip, merged segment and depth, base, shift of turns, and checksum.
    """
    number, *tree, checksum = row
    check_row("segment", number, checksum, (session, number, *tree[:2], *tree[3:]))
    return Segment(number, position_of(*tree[:2]), tree[2], position_of(*tree[3:5]), *tree[5:])


def read_ref(session: int, row: tuple[Any, ...]) -> Ref:
    """Return a ref; StoreError if it is damaged.

    Args:
        session: the key of its session.
        row: number, kind, name, segment, depth, base segment, base depth, note, time and checksum.
    """
    number, kind, name, segment, depth, base_segment, base_depth, note, created_at, checksum = row
    check_row(kind, name, checksum, (session, *row[1:8]))
    position, base = position_of(segment, depth), position_of(base_segment, base_depth)
    return Ref(number, kind, name, position, base, note, created_at)


def check_row(what: str, name: object, checksum: int | None, values: tuple[Any, ...]) -> None:
    """Raise StoreError if the checksum of a row is wrong."""
    if checksum != checksum_of(values):
        raise DamagedRow(f"{what} {name!r} of session number {values[0]}")


def summary_values(summary: Summary) -> tuple[Any, ...]:
    """Return the values of a summary: its text, its positions, what was summed up, and its size."""
    return (
        summary.text, *summary.upto, *summary.along, summary.last_id, summary.messages,
        summary.created_at.isoformat(), summary.counter, summary.tokens,
    )  # fmt: skip


def read_summary(row: tuple[Any, ...]) -> Summary:
    """Return a summary from its `summary_values` and their checksum; StoreError if it is damaged."""
    said, segment, depth, along_segment, along_depth, last_id, messages, created_at, counter, tokens, checksum = row
    if checksum != checksum_of(row[:-1]):
        raise DamagedRow(f"the summary up to message {last_id!r}")
    return Summary(
        said, Position(segment, depth), Position(along_segment, along_depth), last_id,
        messages, datetime.fromisoformat(created_at), counter, tokens,
    )  # fmt: skip


TEXTS = 3
"""How many values at the end of `message_values` a forgotten message must not leave behind."""


def message_values(session: int, record: Record) -> tuple[Any, ...]:
    """Return the values of a message: session, position, numbers, and last its name, its text and all other fields.

    Raises:
        StoreError: the payload is not plain JSON.
    """
    message = record.message
    assert message.id is not None
    assert message.turn_id is not None
    assert message.created_at is not None
    return (
        session,
        record.position.segment,
        record.position.depth,
        record.seq,
        message.id,
        message.turn_id,
        record.turn_no,
        message.role,
        message.created_at.isoformat(),
        int(message.stays),
        record.counter,
        record.tokens,
        record.picked_from,
        message.name,
        message.content,
        _extra(message),
    )


def shown_record(row: tuple[Any, ...]) -> Record | None:
    """Return the record in a row, to describe its session; None, with a `RuntimeWarning`, if the row is damaged."""
    try:
        return read_record(row)
    except StoreError as error:
        warn(str(error))
        return None


def span_of(first: str, last: str) -> tuple[datetime, datetime]:
    """Return the times of a session's first and last message; one that is damaged is taken to be the other.

    Raises:
        ValueError: both are damaged.
    """
    times: list[datetime] = []
    for time in (first, last):
        with suppress(ValueError, TypeError):
            times.append(datetime.fromisoformat(time))
    if not times:
        raise ValueError(f"neither {first!r} nor {last!r} is a time")
    return times[0], times[-1]


def read_record(row: tuple[Any, ...]) -> Record:
    """Return the record in `message_values`, their checksum and whether it is alone.

    Raises:
        StoreError: the row is damaged, or not one that this package writes.
    """
    _, segment, depth, seq, id_, turn_id, turn_no, role, created_at, _, *others = row
    counter, tokens, picked_from, name, content, extra, checksum, alone = others
    if checksum != checksum_of(row[:-2]):
        raise DamagedRow(f"message {id_!r}")
    try:
        fields = {
            "role": role,
            "content": content,
            "id": id_,
            "turn_id": turn_id,
            "created_at": datetime.fromisoformat(created_at),
        }
        if name is not None:
            fields["name"] = name
        if extra is not None:
            fields |= {name: _READERS[name].validate_python(value) for name, value in json.loads(extra).items()}
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise DamagedRow(f"message {id_!r}", str(error)) from error
    return Record(
        message=_BLANK.replace(**fields),
        position=Position(segment, depth),
        seq=seq,
        turn_no=turn_no,
        counter=counter,
        tokens=tokens,
        picked_from=picked_from,
        alone=bool(alone),
    )


_BLANK = Message(role="user")
_COLUMNS = {"id", "turn_id", "role", "created_at", "name", "content"}
_EXTRA = {
    name: field.get_default(call_default_factory=True)
    for name, field in Message.model_fields.items()
    if name not in _COLUMNS
}
"""Each field without a column of its own, with its default; a value other than that is stored as JSON."""
_EXTRA_DEFAULTS = tuple(_EXTRA.values())
_extra_values = itemgetter(*_EXTRA)

_READERS = {name: TypeAdapter[Any](Message.model_fields[name].annotation or Any) for name in _EXTRA}


def _extra(message: Message) -> str | None:
    if _extra_values(message.__dict__) == _EXTRA_DEFAULTS:  # as for most messages
        return None
    try:
        fields = message.model_dump(include=set(_EXTRA), exclude_defaults=True)
        return json.dumps(fields, ensure_ascii=False, separators=(",", ":"))
    except (TypeError, ValueError, RecursionError) as error:
        raise StoreError(f"message {message.id!r} cannot be stored: its payload is not plain JSON: {error}") from error
