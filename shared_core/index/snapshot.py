"""Named arrays as checksummed bytes and back: a cache of what can be rebuilt, never trusted blindly, never pickled."""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["Arrays", "pack", "unpack"]

MAGIC = b"IMSNAP02"
"""Counts up whenever arrays come to mean something else, terms included: older snapshots are then rebuilt."""

DIGEST_SIZE = 16

Arrays = Mapping[str, npt.NDArray[Any]]


def pack(about: Mapping[str, Any], arrays: Arrays) -> bytes:
    """Return arrays, and JSON data about them, as bytes that `unpack` reads."""
    shapes = {name: [values.dtype.str, list(values.shape)] for name, values in arrays.items()}
    header = json.dumps({"about": dict(about), "arrays": shapes}).encode()
    body = b"".join([len(header).to_bytes(8, "little"), header, *(values.tobytes() for values in arrays.values())])
    return MAGIC + hashlib.blake2b(body, digest_size=DIGEST_SIZE).digest() + body


def unpack(data: bytes) -> tuple[dict[str, Any], dict[str, npt.NDArray[Any]]] | None:
    """Return what was packed; None if the bytes are damaged or of another kind."""
    start = len(MAGIC) + DIGEST_SIZE
    body = memoryview(data)[start:]
    if (
        data[: len(MAGIC)] != MAGIC
        or hashlib.blake2b(body, digest_size=DIGEST_SIZE).digest() != data[len(MAGIC) : start]
    ):
        return None
    size = int.from_bytes(body[:8], "little")
    header = json.loads(bytes(body[8 : 8 + size]))
    arrays: dict[str, npt.NDArray[Any]] = {}
    offset = 8 + size
    for name, (dtype, shape) in header["arrays"].items():
        count = int(np.prod(shape, dtype=np.int64))
        arrays[name] = np.frombuffer(body, dtype=dtype, count=count, offset=offset).reshape(shape)
        offset += arrays[name].nbytes
    return header["about"], arrays
