"""The write-ahead log of a database: is all that was committed to it still readable?

After a crash, SQLite reads the log up to the first frame whose checksum is wrong, and drops the rest without a word:
that is how the end of a transaction looks that was being written. A frame that was damaged later looks the same, and
takes everything with it that was committed after it. The two differ in what follows: nothing is written after a
transaction that is not complete. The format is that of https://www.sqlite.org/fileformat2.html#the_write_ahead_log.

Only a process that was killed before its commit was acknowledged may leave frames there, which the next one writes over
from the first on. While any process has the database open, the index of the log, in `-shm`, tells how many frames were
acknowledged. The first one to open it after a crash makes the index anew.
See https://www.sqlite.org/walformat.html#the_wal_index_file_format.
"""

import struct
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from shared_core.errors import StoreError, warn
from shared_core.stores.row_values import DamagedRow

Words = npt.NDArray[np.uint32]

_HEADER, _FRAME = 32, 24
_MAGIC = 0x377F0682
_CHUNK = 256
"""Frames checked at a time."""
_INDEX = struct.Struct("=8xI4xI12x8s8x")
"""Of one of the two heads of an index: the commits since it was made, the frames of the log, and its salts."""
_LOOKS = 10
"""Times that a log is looked into while others write to it."""


class LogState(NamedTuple):
    """What a write-ahead log holds.

    Attributes:
        frames: how many frames SQLite reads from it.
        dropped: how many transactions that were committed come after those; the last of them may have been cut short
            instead of being damaged.
        salts: which generation of the log it is.
    """

    frames: int
    dropped: int
    salts: bytes = bytes(8)


def check_log(path: Path, label: str) -> None:
    """Raise StoreError if the log of a database is damaged; warn if only its last transaction cannot be read.

    No connection of this process may have the database open: reading the index would drop its locks.
    """
    wal = Path(f"{path}-wal")
    try:
        log = _acknowledged(wal, Path(f"{path}-shm"))
    except OSError as error:
        raise StoreError(f"{label} cannot be opened: {error}; check the permissions of {str(wal)!r}") from error
    if log.dropped > 1:
        raise DamagedRow(
            label, f"{str(wal)!r}, which holds what was written last, is damaged at frame {log.frames + 1}"
        )
    if log.dropped:
        warn(
            f"{str(wal)!r} ends with a transaction that cannot be read, as after a power failure: "
            "what was stored last may be missing"
        )


def _acknowledged(wal: Path, index: Path) -> LogState:
    """Return the state of a log; what no process was told is stored does not count as dropped."""
    log = LogState(0, 0)
    for _ in range(_LOOKS):
        known, salts = _frames_in(index)  # before the log, which may be begun anew meanwhile, or grow
        log = look_into(wal)
        if not log.dropped or (salts == log.salts and known <= log.frames):
            return LogState(log.frames, 0)
    return log


def _frames_in(index: Path) -> tuple[int, bytes]:
    """Return how many frames an index knows, and the salts of its log: none if it cannot tell what was acknowledged.

    One without a commit was made from the log itself, damaged or not.
    """
    try:
        with index.open("rb") as file:
            head, again = file.read(_INDEX.size), file.read(_INDEX.size)
    except FileNotFoundError:
        return 0, b""
    if head != again or len(head) < _INDEX.size:
        return 0, b""  # it is being written
    commits, frames, salts = _INDEX.unpack(head)
    return (frames, salts) if commits else (0, b"")


def look_into(path: Path) -> LogState:
    """Return the state of a log that may be written to meanwhile; an empty one if there is none.

    Raises:
        OSError: it cannot be read.
    """
    try:
        data = path.read_bytes()
        with path.open("rb") as again:
            header = again.read(_HEADER)
    except FileNotFoundError:
        return LogState(0, 0)
    if header != data[:_HEADER] or len(data) <= _HEADER:
        return LogState(0, 0)  # it was begun anew by another process, which has read it
    return state_of(data)


def state_of(data: bytes) -> LogState:
    """Return the state of the bytes of a log."""
    head = np.frombuffer(data, ">u4", _HEADER // 4)
    order = ">u4" if head[0] & 1 else "<u4"
    size = int(head[2])
    sums = _weights(_HEADER // 4 - 2)
    words = np.frombuffer(data, order, _HEADER // 4 - 2).astype(np.uint32)
    whole = int(head[0]) & ~1 == _MAGIC and [int(one) for one in words @ sums] == head[6:].tolist()
    if not whole:
        return LogState(0, _commits_anyhow(data))
    count = (len(data) - _HEADER) // (_FRAME + size)
    frames = np.frombuffer(data, np.uint8, count * (_FRAME + size), _HEADER).reshape(count, _FRAME + size)
    heads = np.ascontiguousarray(frames[:, :_FRAME]).view(">u4")
    good = _unbroken(frames, heads, order, (int(head[6]), int(head[7])), head[4:6])
    return LogState(good, _commits(heads[good:], head[4:6]), data[16:24])


def _unbroken(
    frames: npt.NDArray[np.uint8], heads: npt.NDArray[np.uint32], order: str, seed: tuple[int, int],
    salts: npt.NDArray[np.uint32],
) -> int:  # fmt: skip
    """Return how many frames from the first on have the right salts and checksums."""
    words = (frames.shape[1] - _FRAME + 8) // 4
    weights, (same, cross, last) = _weights(words), _power(words // 2)
    s0, s1 = seed
    for start in range(0, len(frames), _CHUNK):
        part = frames[start : start + _CHUNK]
        # A checksum goes on from that of the frame before it, over the first 8 bytes of the head and the page.
        said = np.ascontiguousarray(np.hstack([part[:, :8], part[:, _FRAME:]])).view(order).astype(np.uint32)
        for number, (t0, t1) in enumerate((said @ weights).tolist(), start):
            s0, s1 = (same * s0 + cross * s1 + t0) & 0xFFFFFFFF, (cross * s0 + last * s1 + t1) & 0xFFFFFFFF
            if heads[number, 2:].tolist() != [*salts.tolist(), s0, s1]:
                return number
    return len(frames)


def _commits(heads: npt.NDArray[np.uint32], salts: npt.NDArray[np.uint32]) -> int:
    """Return how many frames end a transaction of this generation of the log; one of the salts may be damaged."""
    return int(np.count_nonzero((heads[:, 2:4] == salts).any(axis=1) & (heads[:, 1] != 0)))


def _commits_anyhow(data: bytes) -> int:
    """Return how many frames after a damaged header end a transaction, of whatever generation."""
    sizes = [2**power for power in range(9, 17)]
    return max((_commits_sized(data, size) for size in sizes if len(data) >= _HEADER + _FRAME + size), default=0)


def _commits_sized(data: bytes, size: int) -> int:
    count = (len(data) - _HEADER) // (_FRAME + size)
    frames = np.frombuffer(data, np.uint8, count * (_FRAME + size), _HEADER).reshape(count, _FRAME + size)
    heads = np.ascontiguousarray(frames[:, :_FRAME]).view(">u4")
    return _commits(heads, heads[0, 2:4])


def _power(steps: int) -> tuple[int, int, int]:
    """Return what two sums become in so many steps of two words: ((a, b), (b, c)), modulo 2**32."""
    a, b, c = 1, 0, 1
    for _ in range(steps):
        a, b, c = a + b, b + c, b + 2 * c  # times ((1, 1), (1, 2)), with which it commutes
        a, b, c = a & 0xFFFFFFFF, b & 0xFFFFFFFF, c & 0xFFFFFFFF
    return a, b, c


def _weights(words: int) -> Words:
    """Return the weight of each word in the two sums of a checksum, shape (words, 2).

    A step takes two words x and y: the first sum grows by the second and x, then the second by the first and y. That is
    linear, so the checksum of all frames is one product of matrices, modulo 2**32.
    """
    found = np.zeros((words, 2), np.uint32)
    a, b, c = 1, 0, 1
    for index in range(words - 2, -1, -2):
        found[index] = (a + b) & 0xFFFFFFFF, (b + c) & 0xFFFFFFFF
        found[index + 1] = b, c
        a, b, c = (a + b) & 0xFFFFFFFF, (b + c) & 0xFFFFFFFF, (b + 2 * c) & 0xFFFFFFFF
    return found
