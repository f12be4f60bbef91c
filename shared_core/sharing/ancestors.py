"""What leads to each position of a session, kept so that merging two lines costs what they differ in."""

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

from shared_core.records import Position, Segment

_MEMO = 100_000
"""Unions that are remembered. It bounds the memory; what is needed again is nearly always recent."""

Node: TypeAlias = tuple[Any, ...]
"""A part of a set: the number of its positions, and its two halves. A leaf, which stands for a segment, has none.

Nodes are never changed, so sets share all that they have in common, and two sets are compared where they differ.
"""


class _Set(NamedTuple):
    """A set of positions: the segments 0 to 2**height - 1, each with its first positions up to some depth."""

    height: int
    root: Node | None


class Ancestors:
    """Counts and compares the positions that lead to positions of a session.

    Args:
        segment_of: looks up a segment.
    """

    def __init__(self, segment_of: Callable[[int], Segment]) -> None:
        self._segment_of = segment_of
        self._before: dict[int, _Set] = {}
        self._unions: dict[tuple[int, int], tuple[Node, Node, Node]] = {}

    def missing(self, merged: Position, parent: Position) -> int:
        """Return how many positions lead to `merged` and not to `parent`, both included."""
        there, here = self._upto(merged), self._upto(parent)
        return _size(self._union(there, here)) - _size(here)

    def leads_to(self, position: Position, head: Position) -> bool:
        """Return whether a position is on the path that ends at `head`."""
        return not self.missing(position, head)

    def _upto(self, position: Position) -> _Set:
        """Return the positions on the path to a position, itself included."""
        before, segment = self._of_segment(position.segment), self._segment_of(position.segment)
        size = position.depth - segment.start + 1
        return self._union(before, _single(position.segment, size)) if size > 0 else before

    def _of_segment(self, number: int) -> _Set:
        """Return what comes before a segment. A loop, because a chain may be longer than the recursion limit."""
        waiting = [] if number in self._before else [number]
        while waiting:
            segment = self._segment_of(waiting[-1])
            parents = [one for one in (segment.parent, segment.merged) if one is not None]
            missing = [one.segment for one in parents if one.segment not in self._before]
            if missing:
                waiting += missing
                continue
            found = _Set(0, None)
            for one in parents:
                found = self._union(found, self._upto(one))
            self._before[waiting.pop()] = found
        return self._before[number]

    def _union(self, a: _Set, b: _Set) -> _Set:
        height = max(a.height, b.height)
        return _Set(height, self._joined(_lifted(a, height), _lifted(b, height)))

    def _joined(self, a: Node | None, b: Node | None) -> Node | None:
        """Return the union of two parts; one of them itself if it holds the other."""
        if a is b or b is None:
            return a
        if a is None:
            return b
        if len(a) == 1:
            return a if a[0] >= b[0] else b
        key = (id(a), id(b))
        known = self._unions.get(key)
        if known is not None:
            return known[2]
        low, high = self._joined(a[1], b[1]), self._joined(a[2], b[2])
        if low is a[1] and high is a[2]:
            found = a
        elif low is b[1] and high is b[2]:
            found = b
        else:
            found = (_count(low) + _count(high), low, high)
        if len(self._unions) >= _MEMO:
            self._unions.clear()
        self._unions[key] = (a, b, found)  # the two are kept, so that nothing else gets their ids
        return found


def _single(segment: int, size: int) -> _Set:
    """Return the first positions of one segment."""
    height = segment.bit_length()
    node: Node = (size,)
    for level in range(height):
        node = (size, None, node) if segment >> level & 1 else (size, node, None)
    return _Set(height, node)


def _lifted(one: _Set, height: int) -> Node | None:
    """Return the root of a set as it is at a larger height."""
    root = one.root
    for _ in range(height - one.height if root is not None else 0):
        root = (_count(root), root, None)
    return root


def _count(node: Node | None) -> int:
    return 0 if node is None else int(node[0])


def _size(one: _Set) -> int:
    return _count(one.root)
