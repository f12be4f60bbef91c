"""What leads to positions of a session, against the paths that are walked."""

from hypothesis import given
from hypothesis import strategies as st

from shared_core.records import Position, Segment
from shared_core.session.paths import walk
from shared_core.sharing.ancestors import Ancestors


@st.composite
def trees(draw: st.DrawFn) -> list[Segment]:
    """Draw the segments of a session; some are empty, some begin with a merge."""
    segments = [Segment(0, None, draw(st.integers(-1, 3)))]
    for number in range(1, draw(st.integers(1, 12))):
        parent, merged = draw(positions(segments)), draw(st.none() | positions(segments))
        if merged is None:
            segments.append(Segment(number, parent, parent.depth + draw(st.integers(0, 3))))
            continue
        left = walk(merged, segments.__getitem__).without(walk(parent, segments.__getitem__))
        base = parent.depth + sum(span.upto - span.start + 1 for span in left) + 1
        segments.append(Segment(number, parent, base + draw(st.integers(0, 2)), merged, base))
    return segments


def positions(segments: list[Segment]) -> st.SearchStrategy[Position]:
    """Return a strategy for the positions of some segments; an empty segment has that of its parent's end."""
    ends = [(one, one.start if one.base is not None else one.start - 1) for one in segments]
    return st.sampled_from([Position(one.segment, depth) for one, first in ends for depth in range(first, one.tip + 1)])


@given(trees(), st.data())
def test_what_one_position_has_and_another_has_not(segments: list[Segment], data: st.DataObject) -> None:
    ancestors = Ancestors(segments.__getitem__)
    for _ in range(5):
        here, there = data.draw(positions(segments)), data.draw(positions(segments))
        left = walk(there, segments.__getitem__).without(walk(here, segments.__getitem__))
        assert ancestors.missing(there, here) == sum(span.upto - span.start + 1 for span in left)
        assert ancestors.leads_to(there, here) == (not left)
