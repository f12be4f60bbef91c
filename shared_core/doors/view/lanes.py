"""The tree as a drawing: each message in a row of its own, branches in columns, and the lines between them."""

from bisect import bisect_right, insort
from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heappop, heappush

__all__ = ["NO_BRANCH", "Edge", "Layout", "lay_out"]

NO_BRANCH = -1
"""The owner of a node that is on no branch."""


@dataclass(frozen=True, slots=True)
class Edge:
    """A line from a node to one of its children.

    Attributes:
        parent: row of the parent.
        child: row of the child.
        lane: the column of the line between the two rows, which it shares with no node.
        owner: number of the branch that the line belongs to; -1: none.
    """

    parent: int
    child: int
    lane: int
    owner: int


@dataclass(frozen=True, slots=True)
class Layout:
    """The columns of a drawing. Each node has a row of its own.

    Attributes:
        lanes: the column of each node, from 0.
        owners: the number of the branch that each node belongs to; -1: none.
        edges: all lines, in the order of their children.
        width: the number of columns.
    """

    lanes: tuple[int, ...]
    owners: tuple[int, ...]
    edges: tuple[Edge, ...]
    width: int


@dataclass(slots=True)
class _Line:
    """Something that occupies a column: a run of nodes, or the edge from a node inside a branch to a merge.

    Attributes:
        start: the first row it occupies.
        end: the last row it occupies.
        beside: the node whose column is to its left; -1: none.
    """

    start: int
    end: int
    beside: int


def lay_out(parents: Sequence[Sequence[int]], heads: Sequence[int | None]) -> Layout:
    """Return the columns of the nodes and the lines between them.

    A node is drawn below its first parent if both belong to the same branch. Other children are drawn to the right of
    the parent, in the first column that is free for all the rows they need.

    Args:
        parents: the rows of the parents of each node, first parent first. Parents come before their children.
        heads: the row of the last node of each branch. None: the branch is empty. A node on several branches belongs to
            the first of them.
    """
    owners = _owners(parents, heads)
    follows = _follows(parents, owners)
    run_of, lines = _runs(parents, follows)
    loose: dict[tuple[int, int], int] = {}
    for child, before in enumerate(parents):
        for source in before[1:]:
            if source not in follows:
                lines[run_of[source]].end = max(lines[run_of[source]].end, child)
            elif child > source + 1:
                loose[source, child] = len(lines)
                lines.append(_Line(source + 1, child - 1, source))
    columns = _columns(lines, run_of)
    lanes = [columns[run] for run in run_of]
    edges = []
    for child, before in enumerate(parents):
        for number, parent in enumerate(before):
            lane, owner = lanes[child], owners[child]
            if number:
                owner = owners[parent]
                own = loose.get((parent, child))
                lane = columns[own] if own is not None else lanes[child] if parent in follows else lanes[parent]
            edges.append(Edge(parent, child, lane, owner))
    return Layout(tuple(lanes), tuple(owners), tuple(edges), max(columns, default=-1) + 1)


def _owners(parents: Sequence[Sequence[int]], heads: Sequence[int | None]) -> list[int]:
    """Return for each node the first branch that reaches it through first parents."""
    owners = [NO_BRANCH] * len(parents)
    for branch, head in enumerate(heads):
        node = head
        while node is not None and owners[node] == NO_BRANCH:
            owners[node] = branch
            node = parents[node][0] if parents[node] else None
    return owners


def _follows(parents: Sequence[Sequence[int]], owners: Sequence[int]) -> dict[int, int]:
    """Return node -> the node that is drawn directly below it."""
    follows: dict[int, int] = {}
    for child, before in enumerate(parents):
        if before and owners[child] == owners[before[0]]:
            follows.setdefault(before[0], child)
    return follows


def _runs(parents: Sequence[Sequence[int]], follows: dict[int, int]) -> tuple[list[int], list[_Line]]:
    """Return the run that each node belongs to, and the runs."""
    run_of: list[int] = []
    lines: list[_Line] = []
    for node, before in enumerate(parents):
        if before and follows.get(before[0]) == node:
            run_of.append(run_of[before[0]])
            lines[run_of[node]].end = node
        else:
            beside = before[0] if before else -1
            run_of.append(len(lines))
            lines.append(_Line(beside + 1 if before else node, node, beside))
    return run_of, lines


def _columns(lines: Sequence[_Line], run_of: Sequence[int]) -> list[int]:
    """Return a column for each line, so that lines with common rows have different columns."""
    columns = [0] * len(lines)
    free: list[int] = []
    taken: list[tuple[int, int]] = []
    count = 0
    for number in sorted(range(len(lines)), key=lambda number: lines[number].start):
        line = lines[number]
        while taken and taken[0][0] < line.start:
            insort(free, heappop(taken)[1])
        beside = columns[run_of[line.beside]] if line.beside >= 0 else -1
        at = bisect_right(free, beside)
        if at < len(free):
            columns[number] = free.pop(at)
        else:
            columns[number] = count
            count += 1
        heappush(taken, (line.end, columns[number]))
    return columns
