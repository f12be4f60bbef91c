"""Named arrays as checksummed bytes and back: a cache of what can be rebuilt, never trusted blindly, never pickled."""

import hashlib
import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from shared_core.errors import StoreError
from shared_core.store import Store

__all__ = ["Arrays", "Stored", "digest_of", "pack", "stored_snapshot", "unpack"]

MAGIC = b"IMSNAP05"
"""Counts up whenever arrays come to mean something else, terms included: older snapshots are then rebuilt."""

HASHED = tuple(b"IMSNAP%02d" % number for number in range(1, 5))
"""Versions whose checksum is a hash of all bytes."""

DIGEST_SIZE = 16

START = len(MAGIC) + DIGEST_SIZE

CHUNK = 1 << 16
"""Bytes that are checked together."""

ALIGNED = 8
"""Arrays begin at a multiple of so many bytes, so that they can be used where they lie."""

Arrays = Mapping[str, npt.NDArray[Any]]


def pack(about: Mapping[str, Any], arrays: Arrays) -> bytes:
    """Return arrays, and JSON data about them, as bytes that `unpack` reads."""
    shapes = {name: [values.dtype.str, list(values.shape)] for name, values in arrays.items()}
    header = json.dumps({"about": dict(about), "arrays": shapes}).encode()
    parts = [len(header).to_bytes(8, "little"), header, *(values.tobytes() for values in arrays.values())]
    body = b"".join(part + bytes(-len(part) % ALIGNED) for part in parts)
    return MAGIC + _checksum(MAGIC, body) + body


def unpack(data: bytes) -> tuple[dict[str, Any], dict[str, npt.NDArray[Any]]] | None:
    """Return what was packed; None if the bytes are damaged or of another kind."""
    if data[: len(MAGIC)] != MAGIC or not _whole(data):
        return None
    try:
        return _parsed(memoryview(data)[START:])
    except (ValueError, TypeError, KeyError, AttributeError):
        return None  # right bytes that `pack` has not made


def _parsed(body: memoryview) -> tuple[dict[str, Any], dict[str, npt.NDArray[Any]]]:
    size = int.from_bytes(body[:8], "little")
    header = json.loads(bytes(body[8 : 8 + size]))
    arrays: dict[str, npt.NDArray[Any]] = {}
    offset = _aligned(8 + size)
    for name, (dtype, shape) in header["arrays"].items():
        count = int(np.prod(shape, dtype=np.int64))
        arrays[name] = np.frombuffer(body, dtype=dtype, count=count, offset=offset).reshape(shape)
        offset = _aligned(offset + arrays[name].nbytes)
    return dict(header["about"]), arrays


def _aligned(offset: int) -> int:
    return offset + -offset % ALIGNED


def _checksum(magic: bytes, body: bytes | memoryview) -> bytes:
    """Return the hash of the CRC of every `CHUNK`: it notices whatever a CRC does, four times as fast as a hash."""
    view = memoryview(body)
    sums = [zlib.crc32(view[start : start + CHUNK]) for start in range(0, len(view), CHUNK)]
    checked = np.array([len(view), *sums], dtype="<u8").tobytes()
    return hashlib.blake2b(magic + checked, digest_size=DIGEST_SIZE).digest()


def _whole(data: bytes) -> bool:
    """Return whether bytes are as they were packed, perhaps by another version."""
    magic, body = data[: len(MAGIC)], memoryview(data)[START:]
    if magic in HASHED:
        return data[len(MAGIC) : START] == hashlib.blake2b(magic + body, digest_size=DIGEST_SIZE).digest()
    return data[len(MAGIC) : START] == _checksum(magic, body)


def digest_of(data: bytes) -> str:
    """Return the checksum that packed bytes bear, in hex."""
    return data[len(MAGIC) : START].hex()


@dataclass(frozen=True)
class Stored:
    """A snapshot as a store holds it.

    Attributes:
        about: what was packed; None if there is none that can be read.
        arrays: what was packed.
        digest: its checksum.
        damaged: whether there is one that is not as it was packed.
    """

    about: dict[str, Any] | None = None
    arrays: dict[str, npt.NDArray[Any]] = field(default_factory=dict)
    digest: str = ""
    damaged: bool = False


def stored_snapshot(store: Store, session: int, name: str) -> Stored:
    """Read a snapshot; one that the store itself cannot read is damaged too."""
    try:
        data = store.snapshot(session, name)
    except StoreError:
        return Stored(damaged=True)
    if data is None:
        return Stored()
    unpacked = unpack(data)
    if unpacked is None:
        return Stored(damaged=not _whole(data))
    return Stored(*unpacked, digest_of(data))
