"""Take rows out of arrays; pure. What is left is what an index built anew from the rest has.

A forgetting concerns a few rows of very many, so all but these is copied in pieces: no index or mask is made of it.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

Scalar = TypeVar("Scalar", bound=np.generic)
Rows = npt.NDArray[np.integer[Any]]

FEW_PIECES = 512
"""Pieces that are copied one by one; of more, a mask is faster."""

FEW_STEPS = 8
"""Passes over an array that take no longer than a search in a table for each of its elements."""


class Removed(NamedTuple):
    """What a copy of an index was made without.

    Attributes:
        count: how many rows the index had.
        rows: those that the copy does not have, in order.
    """

    count: int
    rows: npt.NDArray[np.int32]


def put_without(values: npt.NDArray[Scalar], indices: Rows, target: npt.NDArray[Scalar]) -> None:
    """Copy all elements but those at some ascending indices."""
    if len(indices) > FEW_PIECES:
        kept = np.ones(len(values), dtype=np.bool_)
        kept[indices] = False
        np.compress(kept, values, out=target)
        return
    for number, (start, stop) in enumerate(_pieces(indices, len(values))):
        target[start - number : stop - number] = values[start:stop]


def without(values: npt.NDArray[Scalar], indices: Rows) -> npt.NDArray[Scalar]:
    """Return a copy without the elements at some ascending indices."""
    left = np.empty(len(values) - len(indices), dtype=values.dtype)
    put_without(values, indices, left)
    return left


def _pieces(indices: Rows, count: int) -> Iterator[tuple[int, int]]:
    """Yield from where to where the elements go that lie before, between and behind some."""
    start = 0
    for index in indices.tolist():
        yield start, index
        start = index + 1
    yield start, count


def move_up(numbers: npt.NDArray[Scalar], gone: Rows, *, bits: int = 0) -> None:
    """Subtract from each number, in place, how many of some ascending ones are smaller.

    Args:
        numbers: the numbers; none of them is gone.
        gone: the others.
        bits: how many lower bits of a number are no part of it.
    """
    step = numbers.dtype.type(1 << bits)
    if len(gone) > FEW_STEPS:
        # A table, as the numbers may be in any order.
        ranks = np.zeros(int(numbers.max(initial=0) >> bits) + 2, dtype=numbers.dtype)
        ranks[gone[gone < len(ranks) - 1] + 1] = step
        numbers -= np.cumsum(ranks, dtype=numbers.dtype)[numbers >> bits]
        return
    for one in reversed(gone.tolist()):  # the last first: those in front of it have not moved yet
        above = (numbers >= numbers.dtype.type(one << bits)).astype(numbers.dtype)
        above *= step
        numbers -= above


def in_order_of_use(codes: npt.NDArray[np.int32], count: int) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int64]]:
    """Return codes numbered anew in the order in which they occur first, and the old code of each new one.

    Args:
        codes: 0 to `count` - 1, and -1, which stays.
        count: how many codes there are; some may occur no more.
    """
    used = np.flatnonzero(np.bincount(codes + 1, minlength=count + 1)[1:])
    left = codes if len(used) == count else _recoded(codes, used, count)
    # In the order of first use, the largest code so far grows by one at a time.
    if np.any(np.diff(np.maximum.accumulate(left), prepend=np.int32(-1)) > 1):
        found, first = np.unique(codes, return_index=True)
        used = found[np.argsort(first, kind="stable")].astype(np.int64)
        used = used[used >= 0]
        left = _recoded(codes, used, count)
    return left, used


def _recoded(codes: npt.NDArray[np.int32], used: npt.NDArray[np.int64], count: int) -> npt.NDArray[np.int32]:
    ranks = np.full(count + 1, -1, dtype=np.int32)  # the last one is that of code -1
    ranks[used] = np.arange(len(used), dtype=np.int32)
    return ranks[codes]
