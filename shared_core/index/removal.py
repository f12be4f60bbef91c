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


TOGETHER = 65_536
"""Postings that are copied together: as many as fit the processor's cache, as each is looked at several times."""


class Removed(NamedTuple):
    """What a copy of an index was made without.

    Attributes:
        total: how many rows the index had.
        rows: those that the copy does not have, in order.
    """

    total: int
    rows: npt.NDArray[np.int32]


def put_without(values: npt.NDArray[Scalar], indices: Rows, target: npt.NDArray[Scalar]) -> None:
    """Copy all elements but those at some ascending indices."""
    if len(indices) > FEW_PIECES:
        kept = np.ones(len(values), dtype=np.bool_)
        kept[indices] = False
        np.compress(kept, values, axis=0, out=target)
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


def move_up(numbers: npt.NDArray[Any], gone: Rows, *, bits: int = 0) -> None:
    """Subtract from each number, in place, how many of some ascending ones are smaller.

    Args:
        numbers: the numbers, none of which is gone; 0 may stand for no number, and stays.
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
        above = (numbers > numbers.dtype.type(one << bits)).astype(numbers.dtype)
        above *= step
        numbers -= above


def postings_without(
    packed: npt.NDArray[np.uint32], gone: Rows, bits: int
) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.int64]]:
    """Return postings without some rows, ascending, those of later rows moved up; and the indices of what is left out.

    Args:
        packed: the postings, each with its row above the lowest bits.
        gone: the rows.
        bits: how many bits are no part of the row.
    """
    if len(gone) > FEW_STEPS:
        hits = np.flatnonzero(np.isin(packed >> bits, gone.astype(np.uint32), kind="table"))
        left = without(packed, hits)
        move_up(left, gone, bits=bits)
        return left, hits
    left, found, taken = np.empty_like(packed), [np.empty(0, dtype=np.int64)], 0
    for start in range(0, len(packed), TOGETHER):
        part = packed[start : start + TOGETHER]
        hits = _postings_of(part, gone, bits)
        end = taken + len(part) - len(hits)
        put_without(part, hits, left[taken:end])
        move_up(left[taken:end], gone, bits=bits)
        found.append(start + hits)
        taken = end
    return left[:taken], np.concatenate(found)


def _postings_of(packed: npt.NDArray[np.uint32], rows: Rows, bits: int) -> npt.NDArray[np.int64]:
    # The difference to what is smaller wraps around, and is large.
    found = [np.flatnonzero(packed - np.uint32(row << bits) < 1 << bits) for row in rows.tolist()]
    return found[0] if len(found) == 1 else np.sort(np.concatenate([np.empty(0, dtype=np.int64), *found]))


def in_order_of_use(codes: npt.NDArray[np.int32], gone: Rows, count: int) -> tuple[npt.NDArray[np.int32], Rows]:
    """Return the codes of the rows that are left, numbered anew in the order in which they occur first.

    Args:
        codes: 0 to `count` - 1 in the order of their first use, and -1, which stays.
        gone: the other rows, ascending.
        count: how many codes there are.

    Returns:
        The new codes, and the old code of each new one.
    """
    left = without(codes, gone)
    lost = _lost(codes, gone, left) if len(gone) <= FEW_STEPS else None
    if lost is not None:
        move_up(left, lost)
        return left, without(np.arange(count), lost)
    found, first = np.unique(left, return_index=True)
    used = found[np.argsort(first, kind="stable")]
    used = used[used >= 0]
    ranks = np.full(count + 1, -1, dtype=np.int32)  # the last one is that of code -1
    ranks[used] = np.arange(len(used), dtype=np.int32)
    return ranks[left], used


def _lost(codes: npt.NDArray[np.int32], gone: Rows, left: npt.NDArray[np.int32]) -> Rows | None:
    """Return the codes that occur no more, ascending; None if the order of the others changes."""
    lost = list[int]()
    for code in sorted(set(codes[gone].tolist()) - {-1}):
        first = int((left == code).argmax()) if len(left) else 0
        if not len(left) or left[first] != code:
            lost.append(code)
        elif left[:first].max(initial=-1) > code:  # one that was used later is used earlier now
            return None
    return np.array(lost, dtype=np.int64)
