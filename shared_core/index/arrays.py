"""Arrays that NumPy lacks: append-only arrays, and checksummed snapshots of arrays."""

import hashlib
import json
import zlib
from collections.abc import Mapping
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from shared_core.errors import StoreError
from shared_core.store import Store

Scalar = TypeVar("Scalar", bound=np.generic)
Arrays = Mapping[str, npt.NDArray[Any]]


class GrowingArray(Generic[Scalar]):
    """An append-only array of one dtype.

    Args:
        dtype: the type of the elements.
        values: the first elements, which are copied.
    """

    def __init__(self, dtype: type[Scalar], values: npt.ArrayLike = ()) -> None:
        self._buffer: npt.NDArray[Scalar] = np.array(values, dtype=dtype)
        self._size = len(self._buffer)

    @classmethod
    def of(cls, values: npt.NDArray[Scalar]) -> "GrowingArray[Scalar]":
        """Return an array that begins with another one without copying it. Neither may be written to."""
        growing = cls(values.dtype.type)
        growing._buffer, growing._size = values, len(values)
        return growing

    def __len__(self) -> int:
        return self._size

    @property
    def values(self) -> npt.NDArray[Scalar]:
        """The elements: a view, valid until the next `extend`."""
        return self._buffer[: self._size]

    def extend(self, values: npt.ArrayLike) -> None:
        """Append elements."""
        added = np.asarray(values, dtype=self._buffer.dtype)
        if not len(added):
            return  # appending nothing must not copy or write to the array that `of` shares
        needed = self._size + len(added)
        if needed > len(self._buffer):
            # Doubling keeps the total cost of appending linear.
            grown = np.empty(max(16, needed, 2 * len(self._buffer)), dtype=self._buffer.dtype)
            grown[: self._size] = self.values
            self._buffer = grown
        self._buffer[self._size : needed] = added
        self._size = needed


def distinct(values: npt.NDArray[Scalar]) -> npt.NDArray[Scalar]:
    """Return the distinct values in order. For a few hundred values, `np.unique` (2.4) takes eight times as long."""
    ordered = np.sort(values)
    new = np.ones(len(ordered), dtype=np.bool_)
    np.not_equal(ordered[1:], ordered[:-1], out=new[1:])
    return ordered[new]


def distinct_with_inverse(values: npt.NDArray[Scalar]) -> tuple[npt.NDArray[Scalar], npt.NDArray[np.int64]]:
    """Return the distinct values in order, and the index of each value among them, like `np.unique` but faster."""
    found = distinct(values.ravel())
    return found, found.searchsorted(values.ravel())


MAGIC = b"IMSNAP12"
"""The version of snapshots. Increment it when the meaning of arrays or terms changes: older ones are then rebuilt."""

DIGEST_SIZE = 16

START = len(MAGIC) + DIGEST_SIZE

CHUNK = 1 << 16
"""Bytes per CRC of the checksum."""

ALIGNED = 8
"""Arrays begin at a multiple of this many bytes, so that they can be used without copying."""


def pack(about: Mapping[str, Any], arrays: Arrays) -> bytes:
    """Return arrays and JSON data about them as bytes for `unpack`."""
    shapes = {name: [values.dtype.str, list(values.shape)] for name, values in arrays.items()}
    header = json.dumps({"about": dict(about), "arrays": shapes}).encode()
    parts = [len(header).to_bytes(8, "little"), header, *(values.tobytes() for values in arrays.values())]
    body = b"".join(part + bytes(-len(part) % ALIGNED) for part in parts)
    return MAGIC + _checksum(MAGIC, body) + body


def unpack(data: bytes) -> tuple[dict[str, Any], dict[str, npt.NDArray[Any]]] | None:
    """Return the data and arrays that were packed; None if the bytes are damaged or of another version."""
    if data[: len(MAGIC)] != MAGIC or is_damaged(data):
        return None
    body = memoryview(data)[START:]
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
    """Return the hash of the CRCs of all chunks. It detects what a CRC detects, four times as fast as a hash."""
    view = memoryview(body)
    sums = [zlib.crc32(view[start : start + CHUNK]) for start in range(0, len(view), CHUNK)]
    checked = np.array([len(view), *sums], dtype="<u8").tobytes()
    return hashlib.blake2b(magic + checked, digest_size=DIGEST_SIZE).digest()


def is_damaged(data: bytes) -> bool:
    """Return whether packed bytes are no longer what was packed, by this version or another one."""
    return data[len(MAGIC) : START] != _checksum(data[: len(MAGIC)], memoryview(data)[START:])


class StoredSnapshot(NamedTuple):
    """A snapshot read from a store.

    Attributes:
        about: the data packed with the arrays; None if there is no readable snapshot.
        arrays: the arrays.
        damaged: whether there is a snapshot whose bytes have changed.
    """

    about: dict[str, Any] | None
    arrays: Arrays
    damaged: bool = False


def read_snapshot(store: Store, session: int, name: str) -> StoredSnapshot:
    """Read a snapshot. One that the store cannot read counts as damaged."""
    try:
        data = store.snapshot(session, name)
    except StoreError:
        return StoredSnapshot(None, {}, damaged=True)
    if data is None:
        return StoredSnapshot(None, {})
    unpacked = unpack(data)
    return StoredSnapshot(*unpacked) if unpacked else StoredSnapshot(None, {}, is_damaged(data))
