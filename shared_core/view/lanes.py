"""Where the nodes of a conversation tree stand in a drawing: one column per line of talk, forks to the right; pure."""

from bisect import bisect_right, insort
from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heappop, heappush

__all__ = ["Edge", "Layout", "lay_out"]

NOBODY = -1
"""The owner of what is on no branch."""


@dataclass(frozen=True, slots=True)
class Edge:
    """A line from a node to one that comes after it.

    Attributes:
        parent: row of the earlier node.
        child: row of the later one.
        lane: the column it runs in between the two; nobody else stands there.
        owner: the branch whose line it is, by number; -1: none.
    """

    parent: int
    child: int
    lane: int
    owner: int


@dataclass(frozen=True, slots=True)
class Layout:
    """A drawing, row by row.

    Attributes:
        lanes: column of each node, from 0.
        owners: the branch each node was said on, by number; -1: it is on none.
        edges: all lines, in order of their children.
        width: columns in all.
    """

    lanes: tuple[int, ...]
    owners: tuple[int, ...]
    edges: tuple[Edge, ...]
    width: int


@dataclass(slots=True)
class _Line:
    """What takes a column: a run of nodes, or with `of` the edge from a node that goes on to where it is merged.

    Attributes:
        start: the first row it takes.
        end: the last row it takes.
        beside: the node that it begins to the right of; -1: none.
        of: the child at the end of the edge; -1: it is a run of nodes.
    """

    start: int
    end: int
    beside: int
    of: int = -1


def lay_out(parents: Sequence[Sequence[int]], heads: Sequence[int | None]) -> Layout:
    """Return where to draw each node, and the lines between them.

    A node stands below its first parent if both belong to one branch; whatever else follows that parent goes to the
    right of it, in the first column that is free for as long as it needs.

    Args:
        parents: of each node, first parent first, by number; all before the node itself.
        heads: the node that each branch ends at, the branch that owns what it shares with others first; None: empty.
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
                lines.append(_Line(source + 1, child - 1, source, child))
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
    """Return the first branch whose line, first parents only, has each node."""
    owners = [NOBODY] * len(parents)
    for branch, head in enumerate(heads):
        node = head
        while node is not None and owners[node] == NOBODY:
            owners[node] = branch
            node = parents[node][0] if parents[node] else None
    return owners


def _follows(parents: Sequence[Sequence[int]], owners: Sequence[int]) -> dict[int, int]:
    """Return node -> the node that stands straight below it."""
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
    """Return a column for each line, so that no two that overlap share one."""
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
