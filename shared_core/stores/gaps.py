"""Gaps: which positions and numbers hold no message on purpose, so that any other that is missing is noticed."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence

from shared_core.records import Position

Range = tuple[int, int]
"""A first and a last number, both included."""

NUMBERS = -1
"""Stands for a segment where the gaps are in the numbers of a session's messages, not in the depths of a segment."""


def missing(found: Iterable[int], first: int, last: int) -> list[Range]:
    """Return the ranges from `first` to `last` that hold none of some ascending numbers."""
    ranges = []
    for number in found:
        if number > first:
            ranges.append((first, min(number - 1, last)))
        first = max(first, number + 1)
    if first <= last:
        ranges.append((first, last))
    return ranges


def runs(numbers: Iterable[int]) -> list[Range]:
    """Return some numbers as ranges, in order."""
    ranges: list[Range] = []
    for number in sorted(set(numbers)):
        if ranges and ranges[-1][1] == number - 1:
            ranges[-1] = ranges[-1][0], number
        else:
            ranges.append((number, number))
    return ranges


def by_segment(positions: Iterable[Position]) -> dict[int, list[int]]:
    """Return the depths of positions by segment."""
    depths: dict[int, list[int]] = {}
    for segment, depth in positions:
        depths.setdefault(segment, []).append(depth)
    return depths


def without(ranges: Sequence[Range], gaps: Sequence[Range]) -> list[Range]:
    """Return what is left of ranges where there is no gap; the gaps are ascending and do not overlap."""
    starts, ends = [start for start, _ in gaps], [upto for _, upto in gaps]
    left: list[Range] = []
    for first, last in ranges:
        for start, upto in gaps[bisect_left(ends, first) : bisect_right(starts, last)]:
            if start > first:
                left.append((first, start - 1))
            first = max(first, upto + 1)
        if first <= last:
            left.append((first, last))
    return left
