"""The columns of the drawing: known trees exactly, and over random ones that nothing crosses what it should not."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared_core.doors.view.lanes import Edge, Layout, lay_out

Tree = tuple[list[list[int]], list[int | None]]

KNOWN: dict[str, tuple[Tree, Layout]] = {
    "nothing": (([], [None]), Layout((), (), (), 0)),
    "one line": (
        ([[], [0], [1]], [2]),
        Layout((0, 0, 0), (0, 0, 0), (Edge(0, 1, 0, 0), Edge(1, 2, 0, 0)), 1),
    ),
    "a fork goes to the right, whoever spoke first": (
        ([[], [0], [0]], [2, 1]),
        Layout((0, 1, 0), (0, 1, 0), (Edge(0, 1, 1, 1), Edge(0, 2, 0, 0)), 2),
    ),
    "what goes on where main ends is another branch": (
        ([[], [0]], [0, 1]),
        Layout((0, 1), (0, 1), (Edge(0, 1, 1, 1),), 2),
    ),
    "a merge keeps the column of what is merged": (
        ([[], [0], [0], [2, 1], [2]], [3, 1, 4]),
        Layout(
            (0, 1, 0, 0, 2),
            (0, 1, 0, 0, 2),
            (Edge(0, 1, 1, 1), Edge(0, 2, 0, 0), Edge(2, 3, 0, 0), Edge(1, 3, 1, 1), Edge(2, 4, 2, 2)),
            3,
        ),
    ),
    "a column is used again": (
        ([[], [0], [0], [2], [2]], [3, 1, 4]),
        Layout(
            (0, 1, 0, 0, 1),
            (0, 1, 0, 0, 2),
            (Edge(0, 1, 1, 1), Edge(0, 2, 0, 0), Edge(2, 3, 0, 0), Edge(2, 4, 1, 2)),
            2,
        ),
    ),
    "what is on no branch goes on by itself": (
        ([[], [0], [1], [0]], [3]),
        Layout((0, 1, 1, 0), (0, -1, -1, 0), (Edge(0, 1, 1, -1), Edge(1, 2, 1, -1), Edge(0, 3, 0, 0)), 2),
    ),
    "a branch that goes on after it was merged": (
        ([[], [0], [1], [0], [3, 1]], [4, 2]),
        Layout(
            (0, 1, 1, 0, 0),
            (0, 1, 1, 0, 0),
            (Edge(0, 1, 1, 1), Edge(1, 2, 1, 1), Edge(0, 3, 0, 0), Edge(3, 4, 0, 0), Edge(1, 4, 2, 1)),
            3,
        ),
    ),
}


def test_a_known_tree_is_laid_out_so(subtests: pytest.Subtests) -> None:
    for name in KNOWN:
        with subtests.test(name=name):
            tree, expected = KNOWN[name]
            assert lay_out(*tree) == expected


@st.composite
def trees(draw: st.DrawFn) -> Tree:
    size = draw(st.integers(1, 24))
    before = [st.lists(st.integers(max(0, node - 6), node - 1), max_size=2, unique=True) for node in range(1, size)]
    parents = [[], *(draw(some) for some in before)]
    return parents, draw(st.lists(st.none() | st.integers(0, size - 1), min_size=1, max_size=5))


@given(trees())
def test_every_line_has_its_column_to_itself(tree: Tree) -> None:
    parents, _ = tree
    layout = lay_out(*tree)
    assert [(edge.parent, edge.child) for edge in layout.edges] == [
        (parent, child) for child, before in enumerate(parents) for parent in before
    ]
    taken: dict[tuple[int, int], set[int]] = {}
    for edge in layout.edges:
        for row in range(edge.parent + 1, edge.child):
            assert layout.lanes[row] != edge.lane, "a line runs through a node"
            taken.setdefault((row, edge.lane), set()).add(edge.parent)
    assert all(len(sources) == 1 for sources in taken.values()), "two lines share a cell"
    used = {*layout.lanes, *(edge.lane for edge in layout.edges)}
    assert used <= set(range(layout.width))


@given(trees())
def test_a_branch_goes_straight_down_and_what_leaves_it_goes_right(tree: Tree) -> None:
    parents, heads = tree
    layout = lay_out(*tree)
    claimed: set[int] = set()
    for number, head in enumerate(heads):
        line = []
        node = head
        while node is not None and node not in claimed:
            line.append(node)
            node = parents[node][0] if parents[node] else None
        claimed.update(line)
        assert {layout.owners[node] for node in line} <= {number}
        assert all(layout.lanes[one] == layout.lanes[other] for one, other in pairwise(line))
    assert all(layout.owners[node] == -1 for node in range(len(parents)) if node not in claimed)
    for child, before in enumerate(parents):
        if before and layout.owners[child] != layout.owners[before[0]]:
            assert layout.lanes[child] > layout.lanes[before[0]]
