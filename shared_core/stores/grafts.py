"""How the segments of a stage are numbered in the session that they become a part of; the same in every database."""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from shared_core.records import Position, Segment
from shared_core.stores.rows import Rows
from shared_core.stores.tree_rules import segment_at


class Graft(NamedTuple):
    """What `Store.graft` says about the segments of a stage."""

    segments: Sequence[Segment]
    grown: Mapping[int, int]
    depth: int
    turns: int


def number_segments(rows: Rows, session: int, given: Graft) -> dict[int, int]:
    """Return segment of the stage -> segment of the session, and have the branches there stay where they end."""
    number = rows.next_segment(session)
    numbers: dict[int, int] = {}
    for one in given.segments:
        into = given.grown.get(one.segment)
        if into is not None and one.parent == (into, segment_at(rows, session, into).tip):
            rows.detach_branches(session, [into])
            numbers[one.segment] = into
        else:
            numbers[one.segment] = number
            number += 1
    return numbers


def mover(numbers: Mapping[int, int], depth: int) -> Callable[[Position], Position]:
    """Return a function that returns where a position is in the session."""

    def moved(position: Position) -> Position:
        number = numbers.get(position.segment)
        return position if number is None else Position(number, position.depth + depth)

    return moved


def renumbered(segment: Segment, numbers: Mapping[int, int]) -> Segment:
    """Return a segment with the numbers that it and its parents have in the session."""
    moved = mover(numbers, 0)
    parent = None if segment.parent is None else moved(segment.parent)
    merged = None if segment.merged is None else moved(segment.merged)
    return segment._replace(segment=numbers[segment.segment], parent=parent, merged=merged)
